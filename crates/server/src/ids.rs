//! Ids of exchanges: a number that never comes twice in a process, or the id that a trusted client gave.
//!
//! Takes addresses of accepted connections and heads, gives ids and their text for the application, the reply and
//! the logs. Each driver counts for itself; nothing is shared between them but what never changes.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::ops::Deref;
use std::time::{SystemTime, UNIX_EPOCH};

use wire::HeadView;

use crate::config::meant::RequestIds;
use crate::networks::Networks;

/// Bits of a number that count; those above them are the driver's index. At a million exchanges a second
/// they last 285 years.
const COUNT_BITS: u32 = 53;
/// Longest id that a client may give.
const GIVEN_BYTES_MAX: usize = 128;

/// Names one exchange, for the whole of its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Id {
    number: u64,
    /// Tells the numbers of this process from those of others.
    seed: u64,
    /// Which field of the head holds the id that a trusted client gave.
    field: Option<u16>,
}

/// The text of an id: visible ASCII, at most 128 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdText<'a> {
    /// Made of the number: 16 hexadecimal digits.
    Made([u8; 16]),
    /// As a trusted client gave it.
    Given(&'a [u8]),
}

/// What all drivers know of ids.
pub(crate) struct Ids {
    header: Option<String>,
    trust: Networks,
    seed: u64,
}

/// Whether the ids that a connection's client gives count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trust {
    /// They do.
    Taken,
    /// Ids are made.
    Refused,
}

/// The numbers of one driver.
pub(crate) struct Numbers(Cell<u64>);

impl Ids {
    pub(crate) fn new(config: &RequestIds) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ns = now.map_or(0, |now| now.as_nanos());
        Self {
            header: config.header.clone(),
            trust: Networks::new(&config.trust),
            // Differs from process to process and from start to start: of the kernel's random bytes, which the
            // keys of the hash are, and of the time.
            seed: RandomState::new().hash_one((std::process::id(), now_ns)),
        }
    }

    /// What the made ids of this process are mixed with.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether the ids of a client count; one on a unix socket has no address.
    pub(crate) fn trust(&self, peer: Option<IpAddr>) -> Trust {
        if self.header.is_some() && peer.is_none_or(|peer| self.trust.has(peer)) {
            Trust::Taken
        } else {
            Trust::Refused
        }
    }

    /// The id of the exchange with this number; `head` is `None` when it never became one.
    pub(crate) fn id(&self, number: u64, trust: Trust, head: Option<HeadView<'_>>) -> Id {
        let field = match (trust, head, &self.header) {
            (Trust::Taken, Some(head), Some(header)) => field_of_id(head, header),
            _ => None,
        };
        Id {
            field,
            ..Id::made(self.seed, number)
        }
    }
}

impl Numbers {
    /// The numbers of the driver with this index, at most 2,047.
    pub(crate) fn of_driver(index: u16) -> Self {
        Self(Cell::new(u64::from(index) << COUNT_BITS))
    }

    pub(crate) fn next(&self) -> u64 {
        self.0.replace(self.0.get() + 1)
    }
}

impl Id {
    /// The id of the exchange with this number, which is unique in its process.
    pub fn made(seed: u64, number: u64) -> Self {
        Self {
            number,
            seed,
            field: None,
        }
    }

    /// Number of the exchange, unique in its process.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What the client called it, if that counts. `head` is its own.
    pub fn given<'a>(&self, head: HeadView<'a>) -> Option<&'a [u8]> {
        let (_, value) = head.headers().nth(usize::from(self.field?))?;
        Some(value)
    }

    /// The text by which people find it; `head` is its own, `None` when it never became one.
    pub fn text<'a>(&self, head: Option<HeadView<'a>>) -> IdText<'a> {
        match head.and_then(|head| self.given(head)) {
            Some(given) => IdText::Given(given),
            None => IdText::Made(measure::made_id(self.seed, self.number)),
        }
    }
}

impl Deref for IdText<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            IdText::Made(digits) => digits,
            IdText::Given(given) => given,
        }
    }
}

/// Index of the field `name`, if that is there once and its value can be an id.
fn field_of_id(head: HeadView<'_>, name: &str) -> Option<u16> {
    let headers = head.headers().zip(0_u16..);
    let mut found = headers.filter(|((field, _), _)| field.eq_ignore_ascii_case(name.as_bytes()));
    match (found.next(), found.next()) {
        (Some(((_, value), index)), None) if can_be_an_id(value) => Some(index),
        _ => None,
    }
}

/// Ids go into logs, replies and other systems: nothing that ends a word, a quotation or a mark there, so that
/// an id is found again under the very text that was given.
fn can_be_an_id(value: &[u8]) -> bool {
    let is_fit = |byte: &u8| byte.is_ascii_graphic() && !b"\"'\\,[]".contains(byte);
    (1..=GIVEN_BYTES_MAX).contains(&value.len()) && value.iter().all(is_fit)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use wire::{HeadIndex, HeadStep, Limits, RequestHead};

    use super::*;

    fn ids(trust: &[(&str, u8)]) -> Ids {
        let network = |(ip, prefix): &(&str, u8)| (ip.parse().unwrap(), *prefix);
        Ids::new(&RequestIds {
            header: Some("x-request-id".to_owned()),
            trust: trust.iter().map(network).collect(),
        })
    }

    #[test]
    fn trusts_the_networks_it_is_told_and_unix_sockets() {
        let check = |trust: &[(&str, u8)], peer: &str, expect: Trust| {
            let found = ids(trust).trust(Some(peer.parse().unwrap()));
            assert_eq!(found, expect, "{trust:?} {peer}");
        };
        use Trust::{Refused, Taken};
        check(&[], "127.0.0.1", Refused);
        check(&[("127.0.0.1", 32)], "127.0.0.1", Taken);
        check(&[("127.0.0.1", 32)], "127.0.0.2", Refused);
        check(&[("10.1.2.3", 8)], "10.200.0.1", Taken);
        check(&[("10.1.2.3", 8)], "11.0.0.1", Refused);
        check(&[("10.0.0.0", 8)], "::ffff:10.9.9.9", Taken);
        check(&[("::ffff:10.0.0.0", 104)], "10.9.9.9", Taken);
        check(&[("0.0.0.0", 0)], "203.0.113.9", Taken);
        check(&[("0.0.0.0", 0)], "2001:db8::1", Refused);
        check(&[("2001:db8::", 32), ("::1", 128)], "2001:db8:9::1", Taken);
        check(&[("2001:db8::", 32), ("::1", 128)], "::1", Taken);
        check(&[("2001:db8::", 32), ("::1", 128)], "2001:db9::1", Refused);
        check(&[("::", 0)], "2001:db8::1", Taken);
        assert_eq!(ids(&[]).trust(None), Taken);
        assert_eq!(Ids::new(&RequestIds::default()).trust(None), Refused);
    }

    #[test]
    fn drivers_never_give_the_same_number() {
        let drivers = [0, 1, 1_023].map(Numbers::of_driver);
        let numbers = drivers
            .iter()
            .flat_map(|driver| (0..1_000).map(|_| driver.next()));
        let distinct: HashSet<u64> = numbers.collect();
        assert_eq!(distinct.len(), 3_000);
    }

    #[test]
    fn every_start_has_a_seed_of_its_own() {
        assert_ne!(ids(&[]).seed(), ids(&[]).seed());
    }

    fn head(lines: &str) -> RequestHead {
        let bytes = format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
        let mut index = HeadIndex::new();
        let step = index.parse(bytes.as_bytes(), &mut 0, &Limits::default());
        assert!(matches!(step, Ok(HeadStep::Complete)), "{lines:?}");
        RequestHead::take(HeadView {
            bytes: bytes.as_bytes(),
            index: &index,
        })
    }

    #[test]
    fn takes_what_a_client_gave_once_and_in_form() {
        let check = |lines: &str, expect: Option<&str>| {
            let head = head(lines);
            let id = ids(&[]).id(2, Trust::Taken, Some(head.view()));
            let given = id.given(head.view()).map(String::from_utf8_lossy);
            assert_eq!(given.as_deref(), expect, "{lines:?}");
            let text = id.text(Some(head.view()));
            match expect {
                Some(expect) => assert_eq!(&*text, expect.as_bytes()),
                None => assert_eq!(text, id.text(None)),
            }
        };
        let long = |bytes: usize| format!("X-Request-Id: {}\r\n", "a".repeat(bytes));
        check("", None);
        check("X-Request-Id: a-1\r\n", Some("a-1"));
        check("A: b\r\nx-REQUEST-id:   ~!z   \r\nC: d\r\n", Some("~!z"));
        check("X-Request-Id:\r\n", None);
        check("X-Request-Id: a\r\nX-Request-Id: a\r\n", None);
        check("X-Request-Id: a\r\nx-request-id:\r\n", None);
        check("X_Request_Id: a\r\n", None);
        check(&long(128), Some(&"a".repeat(128)));
        check(&long(129), None);
        for odd in [
            "a b", "a\tb", "a,b", "a\"b", "a'b", "a\\b", "[a", "a]", "\u{e9}",
        ] {
            check(&format!("X-Request-Id: {odd}\r\n"), None);
        }
    }

    #[test]
    fn no_other_byte_than_visible_ones_can_be_in_an_id() {
        for byte in 0..=255_u8 {
            let fits = (0x21..=0x7e).contains(&byte) && !b"\"'\\,[]".contains(&byte);
            assert_eq!(can_be_an_id(&[b'a', byte]), fits, "{byte:#x}");
        }
    }

    #[test]
    fn made_texts_differ_and_are_hexadecimal() {
        let mut seen = HashSet::new();
        for driver in 0..4_u64 {
            for count in 0..10_000 {
                let text = Id::made(7, driver << 53 | count).text(None);
                assert!(text.iter().all(u8::is_ascii_hexdigit), "{text:?}");
                assert!(seen.insert(text.to_vec()), "{text:?}");
            }
        }
    }
}
