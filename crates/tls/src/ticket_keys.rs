//! Keys of session tickets: which there are at a moment, made and turned by the supervisor or read from a file, and
//! handed to all processes.
//!
//! ```text
//!            next ──turn──► current ──turn──► previous ──turn──► wiped
//!    opens    yes             yes               yes
//!    seals                    yes
//! ```
//!
//! The next key is handed out one turn before it seals, so that no process meets a ticket that it cannot open. Reads no
//! clock.

use std::fmt;
use std::path::Path;

use config::typed::TlsFile;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::crypto::{self, SECRET_BYTES};
use crate::fault::TlsFileFault;
use crate::file::{self, Readers};
use crate::text64;

/// Seconds that a key seals. A ticket can be opened for as long again.
pub const TURN_SECS: u64 = 6 * 3600;
/// Keys of a file.
const KEYS_LEN_MAX: usize = 16;
/// Bytes of the name of a key, which stands in front of each ticket.
pub(crate) const NAME_BYTES: usize = 16;

/// The keys at a moment: the first seals, all of them open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketKeys(Vec<TicketKey>);

/// One key; wiped when it is dropped.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketKey {
    pub(crate) name: [u8; NAME_BYTES],
    #[serde(with = "text64::secret")]
    pub(crate) secret: Zeroizing<Vec<u8>>,
}

/// Keys that are turned with time. Written for the program that takes this one's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketKeyRing {
    current: TicketKey,
    next: TicketKey,
    previous: Option<TicketKey>,
    /// In seconds since 1970.
    next_turn: u64,
}

/// Never a byte of it.
impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TicketKey")
    }
}

impl TicketKey {
    /// A new one; `None`: the system has no random bytes.
    pub fn random() -> Option<Self> {
        let mut name = [0; NAME_BYTES];
        let mut secret = Zeroizing::new(vec![0; SECRET_BYTES]);
        crypto::random(&mut name)?;
        crypto::random(&mut secret)?;
        Some(Self { name, secret })
    }
}

impl TicketKeys {
    pub(crate) fn all(&self) -> &[TicketKey] {
        &self.0
    }

    /// There are none: no ticket is given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the file that several machines have alike: a key in a line, 48 random bytes in base64.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(path: &Path) -> Result<Self, TlsFileFault> {
        let text = file::read(TlsFile::TicketKeys, path, Readers::Few)?;
        let fault = |cause: String| {
            let hint =
                "one key in each line, made by `openssl rand -base64 48`; the first encrypts";
            TlsFileFault::new(TlsFile::TicketKeys, path, cause).with_hint(hint)
        };
        let text = std::str::from_utf8(&text).map_err(|_| fault("it is not text".to_owned()))?;
        let mut keys = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let key = TicketKey::from_text(line)
                .ok_or_else(|| fault(format!("line {} is no key", index + 1)))?;
            keys.push(key);
        }
        match keys.len() {
            0 => Err(fault("there is no key in the file".to_owned())),
            1..=KEYS_LEN_MAX => Ok(Self(keys)),
            _ => Err(fault(format!("there are more than {KEYS_LEN_MAX} keys"))),
        }
    }
}

impl TicketKey {
    fn from_text(line: &str) -> Option<Self> {
        let bytes = text64::decode(line).map(Zeroizing::new)?;
        let (name, secret) = bytes.split_first_chunk::<NAME_BYTES>()?;
        (secret.len() == SECRET_BYTES).then(|| Self {
            name: *name,
            secret: Zeroizing::new(secret.to_vec()),
        })
    }
}

impl TicketKeyRing {
    /// The first keys; `None`: the system has no random bytes.
    pub fn new(now: u64) -> Option<Self> {
        Some(Self {
            current: TicketKey::random()?,
            next: TicketKey::random()?,
            previous: None,
            next_turn: now + TURN_SECS,
        })
    }

    /// When the next turn is due, in seconds since 1970.
    pub fn next_turn(&self) -> u64 {
        self.next_turn
    }

    /// Turns the keys where that is due; says whether they have changed. Two turns late, as after a suspension of the
    /// machine, all keys are older than they may be, and none of them opens any more.
    pub fn turn(&mut self, now: u64) -> bool {
        // A clock that was set back would keep a key for ever.
        let is_early = now + TURN_SECS < self.next_turn;
        if now < self.next_turn && !is_early {
            return false;
        }
        // Without random bytes the keys stay: a later call tries again.
        let Some(fresh) = TicketKey::random() else {
            return false;
        };
        let is_late = now >= self.next_turn + TURN_SECS;
        if is_late && let Some(renewed) = Self::new(now) {
            *self = renewed;
            return true;
        }
        let current = std::mem::replace(&mut self.next, fresh);
        self.previous = Some(std::mem::replace(&mut self.current, current));
        self.next_turn = match is_early {
            true => now + TURN_SECS,
            false => self.next_turn + TURN_SECS,
        };
        true
    }

    /// The keys as processes have them.
    pub fn keys(&self) -> TicketKeys {
        let all = [
            Some(&self.current),
            Some(&self.next),
            self.previous.as_ref(),
        ];
        TicketKeys(all.into_iter().flatten().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_opens_for_a_turn_before_and_a_turn_after_it_seals() {
        let mut ring = TicketKeyRing::new(1_000).unwrap();
        let first = ring.keys();
        assert!(!ring.turn(1_000 + TURN_SECS - 1));
        assert_eq!(ring.keys(), first);
        assert!(ring.turn(1_000 + TURN_SECS));
        let second = ring.keys();
        // What was next seals, and what sealed still opens.
        assert_eq!(second.all()[0], first.all()[1]);
        assert!(second.all().contains(&first.all()[0]));
        assert!(ring.turn(1_000 + 2 * TURN_SECS));
        let third = ring.keys();
        assert_eq!(third.all()[0], second.all()[1]);
        assert!(!third.all().contains(&first.all()[0]), "it was wiped");
        assert_eq!(third.all().len(), 3);
    }

    #[test]
    fn keys_that_are_two_turns_late_open_nothing() {
        let mut ring = TicketKeyRing::new(0).unwrap();
        let old = ring.keys();
        assert!(ring.turn(2 * TURN_SECS));
        let keys = ring.keys();
        assert!(old.all().iter().all(|key| !keys.all().contains(key)));
        assert_eq!(ring.next_turn(), 3 * TURN_SECS);
    }

    #[test]
    fn a_clock_that_was_set_back_delays_no_turn() {
        let mut ring = TicketKeyRing::new(10 * TURN_SECS).unwrap();
        assert!(ring.turn(TURN_SECS));
        assert_eq!(ring.next_turn(), 2 * TURN_SECS);
    }

    #[test]
    fn is_handed_over_as_it_is() {
        let mut ring = TicketKeyRing::new(5).unwrap();
        ring.turn(5 + TURN_SECS);
        let written = serde_json::to_string(&ring).unwrap();
        let read: TicketKeyRing = serde_json::from_str(&written).unwrap();
        assert_eq!(read, ring);
    }

    /// What a file says, and what is wrong with it; empty: nothing.
    #[track_caller]
    fn check(text: &str, expect: Result<usize, &str>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        std::fs::write(&path, text).unwrap();
        let rights = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, rights).unwrap();
        let found = TicketKeys::read(&path).map(|keys| keys.all().len());
        assert_eq!(
            found.map_err(|fault| fault.cause),
            expect.map_err(str::to_owned)
        );
    }

    #[test]
    fn reads_keys_of_a_file() {
        let key = "QUFBQUFBQUFBQUFBQUFBQUJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJC";
        check(&format!("{key}\n"), Ok(1));
        check(&format!("# of all machines\n\n{key}\n  {key}  \n"), Ok(2));
        check("", Err("there is no key in the file"));
        check("QUFB\n", Err("line 1 is no key"));
        check(&format!("{key}\n{key}x\n"), Err("line 2 is no key"));
        let many = format!("{key}\n").repeat(17);
        check(&many, Err("there are more than 16 keys"));
    }
}
