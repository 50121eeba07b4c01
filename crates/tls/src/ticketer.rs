//! Session tickets with keys that come from outside: the name of the key, and the state of the session sealed with it.
//!
//! A ticket of an unknown key, or of a configuration that asks something else of its clients, opens nothing: the client
//! makes a full handshake.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::server::ProducesTickets;

use crate::client_auth::ClientAuthId;
use crate::crypto::Aead;
use crate::ticket_keys::{NAME_BYTES, TURN_SECS, TicketKeys};

/// The keys of a process, for all its configurations, replaced whole. The lock is held for the time of one clone.
#[derive(Clone, Default)]
pub struct SharedTicketKeys(Arc<Mutex<Arc<Vec<TicketCipher>>>>);

struct TicketCipher {
    name: [u8; NAME_BYTES],
    aead: Aead,
}

/// The tickets of one configuration.
pub(crate) struct Ticketer {
    keys: SharedTicketKeys,
    client_auth: ClientAuthId,
}

impl SharedTicketKeys {
    /// From now on these keys count, also for connections that are open.
    pub fn replace(&self, keys: &TicketKeys) {
        let ciphers = keys.all().iter().filter_map(|key| {
            Some(TicketCipher {
                name: key.name,
                aead: Aead::new(&key.secret)?,
            })
        });
        let ciphers = Arc::new(ciphers.collect());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = ciphers;
    }

    fn load(&self) -> Arc<Vec<TicketCipher>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Ticketer {
    pub(crate) fn new(keys: SharedTicketKeys, client_auth: ClientAuthId) -> Self {
        Self { keys, client_auth }
    }

    /// What a ticket is bound to beside its key.
    fn about(&self, name: &[u8; NAME_BYTES]) -> Vec<u8> {
        [name, self.client_auth.as_bytes().as_slice()].concat()
    }
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        !self.keys.load().is_empty()
    }

    fn lifetime(&self) -> u32 {
        TURN_SECS as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let keys = self.keys.load();
        let key = keys.first()?;
        let sealed = key.aead.seal(plain, &self.about(&key.name))?;
        Some([key.name.as_slice(), &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, sealed) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let keys = self.keys.load();
        // Names are no secret: comparing them may take as long as it likes.
        let key = keys.iter().find(|key| key.name == *name)?;
        key.aead.open(sealed, &self.about(name))
    }
}

impl fmt::Debug for Ticketer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticketer")
    }
}

impl fmt::Debug for SharedTicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedTicketKeys")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ticket_keys::TicketKeyRing;

    fn ticketer(keys: &TicketKeys) -> Ticketer {
        let shared = SharedTicketKeys::default();
        shared.replace(keys);
        Ticketer::new(shared, ClientAuthId::of(None))
    }

    #[test]
    fn opens_the_tickets_of_other_processes_through_turns() {
        let mut ring = TicketKeyRing::new(0).unwrap();
        let (here, there) = (ticketer(&ring.keys()), ticketer(&ring.keys()));
        let ticket = here.encrypt(b"session").unwrap();
        assert_eq!(there.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        // One process has the turned keys a moment before the other.
        ring.turn(TURN_SECS);
        here.keys.replace(&ring.keys());
        let newer = here.encrypt(b"newer").unwrap();
        assert_eq!(there.decrypt(&newer).as_deref(), Some(&b"newer"[..]));
        assert_eq!(here.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        ring.turn(2 * TURN_SECS);
        here.keys.replace(&ring.keys());
        assert_eq!(here.decrypt(&ticket), None);
    }

    #[test]
    fn opens_nothing_that_was_changed_anywhere() {
        let keys = TicketKeyRing::new(0).unwrap().keys();
        let ticketer = ticketer(&keys);
        let ticket = ticketer.encrypt(b"session").unwrap();
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(ticketer.decrypt(&changed), None, "byte {at}");
            assert_eq!(ticketer.decrypt(&ticket[..at]), None, "{at} bytes");
        }
    }

    #[test]
    fn opens_no_ticket_of_other_client_demands() {
        let keys = TicketKeyRing::new(0).unwrap().keys();
        let open = ticketer(&keys);
        let other = Ticketer {
            keys: open.keys.clone(),
            client_auth: ClientAuthId::of(Some(&crate::client_auth::tests::some())),
        };
        let ticket = open.encrypt(b"session").unwrap();
        assert_eq!(other.decrypt(&ticket), None);
        assert_eq!(open.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
    }

    #[test]
    fn gives_no_ticket_without_keys() {
        let ticketer = ticketer(&TicketKeys::default());
        assert!(!ticketer.enabled());
        assert_eq!(ticketer.encrypt(b"session"), None);
    }
}
