//! Chunk extensions: read to be skipped, and refused where they are malformed.
//!
//! Takes the bytes behind a chunk size one by one, gives the next state. It must not count them: the bound
//! belongs to the size line.

use crate::fields::{is_token, is_value};

/// Where in the extensions the next byte stands; RFC 9112 section 7.1.1.
///
/// ```text
/// chunk-ext = *( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )
///
///  ┌────────────────────────────────';'──────────────────────────────────┐
///  ▼                                                                     │
/// Name start ─token─► Name ─'='─► Value start ─token─► Value ─BWS─► Behind value
///                      │ BWS           │ '"'                             ▲
///                      ▼               ▼                                 │ BWS
///             Behind name ─'='─►    Quoted ◄─'\' and a byte─┘     ─'"'─► Closed
/// ```
///
/// The line may end behind a size, a name or a value. Whitespace may stand before and behind `;` and `=`
/// and nowhere else, so that a line that ends in whitespace is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChunkExtension {
    /// Whitespace behind a size or a value: only `;` may follow.
    BehindValue,
    /// Behind `;`.
    NameStart,
    Name,
    /// Whitespace behind a name.
    BehindName,
    /// Behind `=`.
    ValueStart,
    Value,
    /// Within a quoted value.
    Quoted,
    /// Behind a backslash in a quoted value.
    Escaped,
    /// Behind the closing quote.
    Closed,
}

impl ChunkExtension {
    /// The state that the first byte behind a size leads to.
    pub(crate) fn begin(byte: u8) -> Option<Self> {
        Self::Closed.step(byte)
    }

    /// The state behind one more byte; `None` where the grammar has no place for it.
    pub(crate) fn step(self, byte: u8) -> Option<Self> {
        let is_space = matches!(byte, b' ' | b'\t');
        Some(match (self, byte) {
            // A carriage return or a line feed is no `is_value`: a quoted string cannot span lines.
            (Self::Quoted, b'"') => Self::Closed,
            (Self::Quoted, b'\\') => Self::Escaped,
            (Self::Quoted | Self::Escaped, byte) if is_value(byte) => Self::Quoted,

            (Self::NameStart | Self::ValueStart, _) if is_space => self,
            (Self::NameStart | Self::Name, byte) if is_token(byte) => Self::Name,
            (Self::ValueStart | Self::Value, byte) if is_token(byte) => Self::Value,
            (Self::ValueStart, b'"') => Self::Quoted,

            (Self::Name | Self::BehindName, b'=') => Self::ValueStart,
            (Self::Name | Self::BehindName, b';') => Self::NameStart,
            (Self::Name | Self::BehindName, _) if is_space => Self::BehindName,
            (Self::Value | Self::Closed | Self::BehindValue, b';') => Self::NameStart,
            (Self::Value | Self::Closed | Self::BehindValue, _) if is_space => Self::BehindValue,
            _ => return None,
        })
    }

    /// Whether the line may end here.
    pub(crate) fn may_end(self) -> bool {
        matches!(self, Self::Name | Self::Value | Self::Closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether these bytes may stand between a chunk size and its line end.
    fn is_well_formed(text: &[u8]) -> bool {
        let Some((first, rest)) = text.split_first() else {
            return true;
        };
        let first = ChunkExtension::begin(*first);
        let last = rest
            .iter()
            .try_fold(first, |state, &byte| Some(state?.step(byte)));
        last.flatten().is_some_and(ChunkExtension::may_end)
    }

    fn check(text: &str, expect: bool) {
        assert_eq!(is_well_formed(text.as_bytes()), expect, "{text:?}");
    }

    #[test]
    fn takes_names_with_and_without_values() {
        for text in [
            "",
            ";a",
            ";a=b",
            ";a;b",
            ";a=b;c=d;e",
            ";a=\"\"",
            ";a=\"b;c=d,e\"",
            ";a=\"b\\\"c\\\\\"",
            ";a=\"\t \u{e9}\\\u{e9}\"",
            ";a=\"b\";c",
            ";!#$%&'*+-.^_`|~=!#$%&'*+-.^_`|~",
        ] {
            check(text, true);
        }
    }

    #[test]
    fn takes_whitespace_around_the_signs_and_nowhere_else() {
        for text in [
            " ;a",
            "\t; \ta",
            ";a ;b",
            ";a =b",
            ";a= \tb",
            "; a = \"b\" ; c",
        ] {
            check(text, true);
        }
        for text in [
            " ",
            "\t",
            ";a ",
            ";a=b ",
            ";a=\"b\"\t",
            ";a b",
            ";a=b c",
            ";a=\"b\" c",
            " a",
            ";a\x0b=b",
        ] {
            check(text, false);
        }
    }

    #[test]
    fn refuses_what_has_no_name_or_no_value() {
        for text in [
            ";", ";;", ";a;", ";;a", ";=b", "; =b", ";a=", ";a=;b", ";a==b", ";a=b;", ";a=b=c",
            "=b",
        ] {
            check(text, false);
        }
    }

    #[test]
    fn refuses_other_signs_and_unclosed_quotes() {
        for text in [
            ";a=b,c",
            ";a,b",
            ";\"a\"=b",
            ";a=\"",
            ";a=\"b",
            ";a=\"b\\\"",
            ";a=\"b\\",
            ";a=b\"c\"",
            ";a=\"b\"c",
            ";a=\"b\"\"c\"",
            ";a=\"\0\"",
            ";a=\"\\\r\"",
            ";a=\"\n\"",
            ";\u{e9}",
            "x",
            "\"a\"",
        ] {
            check(text, false);
        }
    }
}
