//! What an exchange is called: its number, or the id that a trusted client gave it.
//!
//! Takes a number and perhaps a place in the head, gives text for the application, the reply and the logs.
//! Decides nobody's trust.

use std::ops::Deref;

use wire::HeadView;

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

impl Id {
    /// The id of the exchange with this number, which is unique in its process.
    pub fn made(seed: u64, number: u64) -> Self {
        Self {
            number,
            seed,
            field: None,
        }
    }

    /// The same, but called what the client called it in its header `name`, if that is there once and can
    /// be an id.
    pub fn or_given(self, head: HeadView<'_>, name: &str) -> Self {
        let is_named = |(found, _): &(&[u8], &[u8])| found.eq_ignore_ascii_case(name.as_bytes());
        let mut found = head
            .headers()
            .enumerate()
            .filter(|(_, field)| is_named(field));
        let (Some((index, (_, value))), None) = (found.next(), found.next()) else {
            return self;
        };
        let field = u16::try_from(index).ok().filter(|_| can_be_an_id(value));
        Self { field, ..self }
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
            let made = Id::made(1, 2);
            let id = made.or_given(head.view(), "x-request-id");
            let given = id.given(head.view()).map(String::from_utf8_lossy);
            assert_eq!(given.as_deref(), expect, "{lines:?}");
            let text = id.text(Some(head.view()));
            match expect {
                Some(expect) => assert_eq!(&*text, expect.as_bytes()),
                None => assert_eq!(text, made.text(None)),
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
