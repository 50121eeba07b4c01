//! Users and their passwords: the file of `basic_auth`.
//!
//! Takes the text of the file once, at start-up, then names and passwords; says whether they belong together. A check
//! costs a tenth of a second of processor time, because that is what bcrypt is for: no driver does it. Who was right
//! once is remembered as long as the process lives, as a hash under a key of the process's own: browsers send their
//! password with each request.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;

use http::BasicCredentials;

use crate::sync::lock;

/// `$2y$10$`
const COST_BYTES: usize = 7;
/// Greatest number of credentials that are remembered; then all are forgotten.
const REMEMBERED_MAX: usize = 4096;
/// Salt and hash of no password.
const NO_PASSWORD: &str = "abcdefghijklmnopqrstuuW7hhbR9cGm9i3gXnB3bbR6tqf8uP1yG";

/// The users of one file.
pub(crate) struct Users {
    /// Hashes by name.
    hashes: HashMap<Vec<u8>, String>,
    /// That of an unknown user, of the usual cost: its check takes as long, or names could be found by the clock.
    no_hash: String,
    keys: [RandomState; 2],
    /// Credentials that were right.
    remembered: Mutex<HashSet<[u64; 2]>>,
}

impl Users {
    /// Reads `name:hash` lines; empty lines and those of a `#` are left out.
    ///
    /// # Errors
    /// The line's number and what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, (usize, &'static str)> {
        let mut hashes = HashMap::new();
        let mut no_hash = String::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let fault = |cause| (index + 1, cause);
            let (name, hash) = line
                .split_once(':')
                .ok_or_else(|| fault("no `NAME:HASH`"))?;
            if !is_bcrypt(hash) {
                return Err(fault("not a bcrypt hash"));
            }
            no_hash = format!("{}{NO_PASSWORD}", &hash[..COST_BYTES]);
            let earlier = hashes.insert(name.as_bytes().to_vec(), hash.to_owned());
            if earlier.is_some() {
                return Err(fault("a user with two passwords"));
            }
        }
        match hashes.is_empty() {
            true => Err((1, "no user")),
            false => Ok(Self {
                hashes,
                no_hash,
                keys: [RandomState::new(), RandomState::new()],
                remembered: Mutex::default(),
            }),
        }
    }

    /// Whether these were right before.
    pub(crate) fn remembers(&self, credentials: &BasicCredentials) -> bool {
        lock(&self.remembered).contains(&self.key(credentials))
    }

    /// Whether the password is the user's; takes its time.
    pub(crate) fn check(&self, credentials: &BasicCredentials) -> bool {
        let hash = self.hashes.get(credentials.user());
        let against = hash.unwrap_or(&self.no_hash);
        let is_right = bcrypt::verify(credentials.password(), against).unwrap_or(false);
        if !is_right || hash.is_none() {
            return false;
        }
        let key = self.key(credentials);
        let mut remembered = lock(&self.remembered);
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(key);
        true
    }

    /// 128 bits under two keys that nobody outside knows: nobody finds other credentials with the same ones.
    fn key(&self, credentials: &BasicCredentials) -> [u64; 2] {
        let both = (credentials.user(), credentials.password());
        [0, 1].map(|index| self.keys[index].hash_one(both))
    }
}

/// `$2y$10$` and 53 letters; `$2x$` is what a faulty version once made.
fn is_bcrypt(hash: &str) -> bool {
    let parts: Vec<&str> = hash.split('$').collect();
    let ["", version, cost, rest] = parts[..] else {
        return false;
    };
    let is_cost = cost.len() == 2 && matches!(cost.parse(), Ok(4_u8..=31));
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'/';
    matches!(version, "2a" | "2b" | "2y")
        && is_cost
        && rest.len() == 53
        && rest.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::with_head;

    fn credentials(base64: &str) -> BasicCredentials {
        let request = format!("GET h/ Authorization: Basic {base64}");
        with_head(&request, BasicCredentials::of).expect("the test's own credentials")
    }

    /// `ann:secret`, `ann:wrong`, `bob:secret`.
    const ANN: &str = "YW5uOnNlY3JldA==";
    const WRONG: &str = "YW5uOndyb25n";
    const BOB: &str = "Ym9iOnNlY3JldA==";

    fn users() -> Users {
        // The least cost, because tests wait for it.
        let hash = bcrypt::hash_with_salt(b"secret", 4, *b"0123456789abcdef").expect("a hash");
        let hash = hash.format_for_version(bcrypt::Version::TwoY);
        Users::parse(&format!("# staff\n\nann:{hash}\n"))
            .unwrap_or_else(|fault| panic!("{fault:?}"))
    }

    #[test]
    fn a_password_belongs_to_its_user_and_is_remembered() {
        let users = users();
        for (base64, expect) in [(ANN, true), (WRONG, false), (BOB, false)] {
            let credentials = credentials(base64);
            assert!(!users.remembers(&credentials), "{credentials:?}");
            assert_eq!(users.check(&credentials), expect, "{credentials:?}");
            assert_eq!(users.remembers(&credentials), expect, "{credentials:?}");
        }
    }

    #[test]
    fn memory_of_credentials_has_a_bound() {
        let users = users();
        for number in 0..REMEMBERED_MAX as u64 {
            lock(&users.remembered).insert([number, number]);
        }
        assert!(users.check(&credentials(ANN)));
        assert_eq!(lock(&users.remembered).len(), 1);
    }

    #[test]
    fn an_unknown_user_is_checked_against_a_hash_of_the_usual_cost() {
        let users = users();
        let own = users.hashes.values().next().expect("a user");
        assert_eq!(own[..COST_BYTES], users.no_hash[..COST_BYTES]);
        assert!(is_bcrypt(&users.no_hash));
        assert_eq!(bcrypt::verify(b"secret", &users.no_hash).ok(), Some(false));
    }

    #[test]
    fn says_which_line_of_a_file_is_wrong() {
        let check = |text: &str, expect: (usize, &str)| {
            assert_eq!(Users::parse(text).err(), Some(expect), "{text}");
        };
        let hash = format!("$2y$05${}", "a".repeat(53));
        check("", (1, "no user"));
        check("# a\n\nann\n", (3, "no `NAME:HASH`"));
        check("ann:{SHA}abc", (1, "not a bcrypt hash"));
        check("ann:$apr1$a$b", (1, "not a bcrypt hash"));
        check(&format!("ann:{hash}x"), (1, "not a bcrypt hash"));
        check(
            &format!("ann:{}", hash.replace("2y", "2x")),
            (1, "not a bcrypt hash"),
        );
        check(
            &format!("ann:{}", hash.replace("05", "32")),
            (1, "not a bcrypt hash"),
        );
        check(
            &format!("ann:{hash}\nann:{hash}"),
            (2, "a user with two passwords"),
        );
        assert!(Users::parse(&format!("ann:{hash}\r\nbob:{hash}\r\n")).is_ok());
    }
}
