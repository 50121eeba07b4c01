//! The options of Connection: which fields end at this connection beside those that always do.
//!
//! Takes values of Connection fields; gives whether one of them names a field, and what they say of the connection. The
//! number of names has a bound: each field of a head is compared with all of them.

use crate::fields::is_common_option;
use crate::reply_head::elements;

/// Names that are kept; an honest head has one or two.
const NAMED_LEN_MAX: usize = 16;

/// What the Connection fields of one head say together.
#[derive(Default)]
pub(super) struct ConnectionOptions<'a> {
    named: [&'a [u8]; NAMED_LEN_MAX],
    named_len: usize,
    /// The sender closes the connection.
    pub(super) close: bool,
    /// The sender of HTTP/1.0 does not.
    pub(super) keep_alive: bool,
}

/// Connection names more than 16 fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TooManyOptions;

impl<'a> ConnectionOptions<'a> {
    /// Takes note of one Connection field, RFC 9110 section 7.6.1.
    pub(super) fn note(&mut self, value: &'a [u8]) -> Result<(), TooManyOptions> {
        for option in elements(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            if is_common_option(option) || self.names(option) {
                continue;
            }
            *self.named.get_mut(self.named_len).ok_or(TooManyOptions)? = option;
            self.named_len += 1;
        }
        Ok(())
    }

    /// Whether an option names any field.
    pub(super) fn names_any(&self) -> bool {
        self.named_len > 0
    }

    /// Whether the field of this name, in any case, ends at this connection because an option says so.
    pub(super) fn names(&self, name: &[u8]) -> bool {
        let mut named = self.named[..self.named_len].iter();
        named.any(|option| option.eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_names_once_and_not_without_bound() {
        let mut options = ConnectionOptions::default();
        let value = "X-A, x-a,, Keep-Alive ,close, upgrade,TE, x-b, X-B";
        assert_eq!(options.note(value.as_bytes()), Ok(()));
        assert!(options.close && options.keep_alive);
        for (name, expect) in [("x-A", true), ("X-b", true), ("x-c", false), ("", false)] {
            assert_eq!(options.names(name.as_bytes()), expect, "{name}");
        }
        let many: Vec<String> = (0..NAMED_LEN_MAX).map(|n| format!("n{n}")).collect();
        let many = many.join(",");
        let mut options = ConnectionOptions::default();
        assert_eq!(options.note(many.as_bytes()), Ok(()));
        assert_eq!(options.note(many.as_bytes()), Ok(()));
        assert_eq!(options.note(b"one-more"), Err(TooManyOptions));
    }
}
