//! Field lines of a reply or a request: `Name: value\r\n`, one behind the other, finished and checked.
//!
//! Takes names and values, gives bytes that HTTP/1 copies whole and that any other protocol iterates. It is
//! the only place that writes a line end behind a field, so that no producer can let one field become two.
//! It must not know which fields there are, nor what they mean.
//!
//! Every [`FieldLines`] and every [`SharedFields`] holds whole lines and nothing else: a name that is a
//! token, a colon, a space, a value without CR, LF and NUL, and CRLF.

use std::fmt;

use bytes::Bytes;
use memchr::memchr;

use crate::bytes::{DECIMAL_BYTES_MAX, is_field_name, is_field_value, trim, write_decimal};

/// What separates name and value.
const SEPARATOR: &[u8] = b": ";
/// What ends a line.
const LINE_END: &[u8] = b"\r\n";
/// Bytes of a line beside its name and its value.
const FRAME_BYTES: usize = SEPARATOR.len() + LINE_END.len();

/// Field lines that are being written; reusable by [`clear`](FieldLines::clear).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FieldLines(Vec<u8>);

/// Finished field lines, cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SharedFields(Bytes);

/// Finished field lines of any owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FieldsRef<'a>(&'a [u8]);

/// The part of a field that cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvalidField {
    /// The name is no token, RFC 9110 section 5.6.2.
    Name,
    /// The value holds a control character, RFC 9110 section 5.5.
    Value,
}

impl FieldLines {
    /// No lines.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// No lines, and room for `bytes` bytes of them.
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Appends a line of the server's own. Bytes from outside go through [`FieldLines::try_push`].
    ///
    /// # Panics
    /// When `name` is no token, or `value` holds CR, LF or NUL.
    #[inline]
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        self.push_parts(name, &[value]);
    }

    /// Appends a line of the server's own whose value is `parts`, one behind the other.
    ///
    /// # Panics
    /// As [`FieldLines::push`].
    pub fn push_parts(&mut self, name: &[u8], parts: &[&[u8]]) {
        let value_bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.begin(name, value_bytes);
        for part in parts {
            assert!(is_one_line(part), "a field's value must be one line");
            self.0.extend_from_slice(part);
        }
        self.0.extend_from_slice(LINE_END);
    }

    /// Appends a line of the server's own whose value is a number.
    ///
    /// # Panics
    /// When `name` is no token.
    pub fn push_decimal(&mut self, name: &[u8], value: u64) {
        self.begin(name, DECIMAL_BYTES_MAX);
        write_decimal(&mut self.0, value);
        self.0.extend_from_slice(LINE_END);
    }

    /// Appends a line whose name and value may be anything.
    ///
    /// # Errors
    /// What of them cannot stand in a field; nothing has been appended then.
    #[inline]
    pub fn try_push(&mut self, name: &[u8], value: &[u8]) -> Result<(), InvalidField> {
        if !is_field_name(name) {
            return Err(InvalidField::Name);
        }
        if !is_field_value(value) {
            return Err(InvalidField::Value);
        }
        self.0.reserve(name.len() + value.len() + FRAME_BYTES);
        self.0.extend_from_slice(name);
        self.0.extend_from_slice(SEPARATOR);
        self.0.extend_from_slice(value);
        self.0.extend_from_slice(LINE_END);
        Ok(())
    }

    /// Appends all lines of `other`.
    pub fn append<'a>(&mut self, other: impl Into<FieldsRef<'a>>) {
        self.0.extend_from_slice(other.into().0);
    }

    /// Takes every line of `name` out, and appends one with this value; a line of the server's own.
    ///
    /// # Panics
    /// As [`FieldLines::push`].
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        self.retain(|known, _| !known.eq_ignore_ascii_case(name));
        self.push(name, value);
    }

    /// Keeps the lines for whose name and value `keep` gives true, in their order.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) {
        let mut kept = 0;
        let mut start = 0;
        while let Some(line) = first_line(&self.0[start..]) {
            let bytes = line.bytes;
            if keep(line.name, line.value) {
                // Until a line is left out, each one stands where it belongs.
                if kept != start {
                    self.0.copy_within(start..start + bytes, kept);
                }
                kept += bytes;
            }
            start += bytes;
        }
        self.0.truncate(kept);
    }

    /// Names and values in their order, without the whitespace around values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        FieldsRef(&self.0).iter()
    }

    /// The value of the first field of this name, in any case.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        FieldsRef(&self.0).get(name)
    }

    /// The lines as HTTP/1 sends them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether there is no line.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes all lines out; their memory stays.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Ends the writing. The memory is cut to size: some of these are kept as long as the process.
    pub fn freeze(self) -> SharedFields {
        SharedFields(Bytes::from(self.0.into_boxed_slice()))
    }

    fn begin(&mut self, name: &[u8], value_bytes: usize) {
        assert!(is_field_name(name), "a field's name must be a token");
        self.0.reserve(name.len() + value_bytes + FRAME_BYTES);
        self.0.extend_from_slice(name);
        self.0.extend_from_slice(SEPARATOR);
    }
}

impl SharedFields {
    /// Names and values in their order, without the whitespace around values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        FieldsRef(&self.0).iter()
    }

    /// The value of the first field of this name, in any case.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        FieldsRef(&self.0).get(name)
    }

    /// The lines behind the first `len`, in the same memory.
    pub fn skip(&self, len: usize) -> SharedFields {
        let mut start = 0;
        for _ in 0..len {
            start += first_line(&self.0[start..]).map_or(0, |line| line.bytes);
        }
        SharedFields(self.0.slice(start..))
    }

    /// The lines as HTTP/1 sends them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether there is no line.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> FieldsRef<'a> {
    /// Names and values in their order, without the whitespace around values.
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let line = first_line(rest)?;
            rest = &rest[line.bytes..];
            Some((line.name, line.value))
        })
    }

    /// The value of the first field of this name, in any case.
    pub fn get(self, name: &[u8]) -> Option<&'a [u8]> {
        self.iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The lines as HTTP/1 sends them.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl<'a> From<&'a FieldLines> for FieldsRef<'a> {
    fn from(lines: &'a FieldLines) -> Self {
        Self(&lines.0)
    }
}

impl<'a> From<&'a SharedFields> for FieldsRef<'a> {
    fn from(lines: &'a SharedFields) -> Self {
        Self(&lines.0)
    }
}

impl fmt::Debug for FieldLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FieldsRef(&self.0).fmt(f)
    }
}

impl fmt::Debug for SharedFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FieldsRef(&self.0).fmt(f)
    }
}

impl fmt::Debug for FieldsRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes);
        let fields = self.iter().map(|(name, value)| (text(name), text(value)));
        f.debug_list().entries(fields).finish()
    }
}

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InvalidField::Name => "a field's name must be a token of RFC 9110 section 5.6.2",
            InvalidField::Value => "a field's value must not contain control characters",
        })
    }
}

impl std::error::Error for InvalidField {}

struct Line<'a> {
    name: &'a [u8],
    value: &'a [u8],
    /// Length of the whole.
    bytes: usize,
}

/// The first of `lines`, which are finished.
fn first_line(lines: &[u8]) -> Option<Line<'_>> {
    // No name holds a colon, no value a line feed: the first of each is ours.
    let colon = memchr(b':', lines)?;
    let value_start = colon + SEPARATOR.len();
    let line_feed = value_start + memchr(b'\n', &lines[value_start..])?;
    let bytes = line_feed + 1;
    Some(Line {
        name: &lines[..colon],
        value: trim(&lines[value_start..bytes - LINE_END.len()]),
        bytes,
    })
}

/// Whether `value` can neither end its line nor, as NUL does in some recipients, itself.
fn is_one_line(value: &[u8]) -> bool {
    // Without a branch per byte, so that the compiler makes vectors of it.
    !value.iter().fold(false, |bad, &byte| {
        bad | (byte == b'\r') | (byte == b'\n') | (byte == 0)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(fields: &[(&str, &str)]) -> FieldLines {
        let mut lines = FieldLines::new();
        for (name, value) in fields {
            lines.push(name.as_bytes(), value.as_bytes());
        }
        lines
    }

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn writes_one_line_a_field() {
        let check = |write: fn(&mut FieldLines), expect: &str| {
            let mut lines = FieldLines::with_capacity(7);
            write(&mut lines);
            assert_eq!(text(lines.as_bytes()), expect);
            assert_eq!(text(lines.freeze().as_bytes()), expect);
        };
        check(|_| {}, "");
        check(|lines| lines.push(b"A", b"b"), "A: b\r\n");
        check(|lines| lines.push(b"A", b""), "A: \r\n");
        check(
            |lines| lines.push_parts(b"A", &[b"b", b"", b"; c"]),
            "A: b; c\r\n",
        );
        check(|lines| lines.push_parts(b"A", &[]), "A: \r\n");
        check(|lines| lines.push_decimal(b"A", 0), "A: 0\r\n");
        check(
            |lines| lines.push_decimal(b"A", u64::MAX),
            "A: 18446744073709551615\r\n",
        );
        check(
            |lines| {
                lines.push(b"A", b"b");
                lines.clear();
                assert!(lines.is_empty());
                lines.push(b"C", b"d\te \xc3\xa9");
            },
            "C: d\te \u{e9}\r\n",
        );
    }

    #[test]
    fn appends_the_lines_of_others() {
        let mut all = lines(&[("A", "a")]);
        all.append(&lines(&[("B", "b")]));
        all.append(&lines(&[("C", "c")]).freeze());
        all.append(&SharedFields::default());
        assert_eq!(text(all.as_bytes()), "A: a\r\nB: b\r\nC: c\r\n");
    }

    #[test]
    fn reads_names_in_any_case_and_values_without_their_whitespace() {
        let lines = lines(&[("Vary", "a"), ("X", "\t b : c "), ("vary", "d"), ("E", " ")]);
        let check = |name: &str, expect: Option<&str>| {
            assert_eq!(lines.get(name.as_bytes()).map(text), expect, "{name}");
            let shared = lines.clone().freeze();
            assert_eq!(shared.get(name.as_bytes()).map(text), expect, "{name}");
        };
        check("VARY", Some("a"));
        check("x", Some("b : c"));
        check("e", Some(""));
        check("b", None);
        check("", None);
        let values: Vec<_> = lines.iter().map(|(_, value)| text(value)).collect();
        assert_eq!(values, ["a", "b : c", "d", ""]);
    }

    #[test]
    fn replaces_every_line_of_a_name() {
        let check = |fields: &[(&str, &str)], expect: &str| {
            let mut lines = lines(fields);
            lines.set(b"Vary", b"new");
            assert_eq!(text(lines.as_bytes()), expect);
        };
        check(&[], "Vary: new\r\n");
        check(&[("Vary", "a")], "Vary: new\r\n");
        check(&[("Varied", "a")], "Varied: a\r\nVary: new\r\n");
        check(
            &[("vary", "a"), ("B", "b"), ("VARY", "c"), ("D", "d")],
            "B: b\r\nD: d\r\nVary: new\r\n",
        );
    }

    #[test]
    fn keeps_the_lines_behind_the_first() {
        let lines = lines(&[("A", "a"), ("B", "b"), ("C", "c")]).freeze();
        for (len, expect) in [
            (0, "A: a\r\nB: b\r\nC: c\r\n"),
            (2, "C: c\r\n"),
            (3, ""),
            (4, ""),
        ] {
            assert_eq!(text(lines.skip(len).as_bytes()), expect, "{len}");
            // A cached reply is cloned for each request: its bytes are not.
            let same = lines.skip(len).clone();
            assert!(
                lines
                    .as_bytes()
                    .as_ptr_range()
                    .contains(&same.as_bytes().as_ptr())
                    || len > 2
            );
        }
    }

    #[test]
    fn refuses_what_is_no_field() {
        let check = |name: &[u8], value: &[u8], expect: Result<(), InvalidField>| {
            let mut lines = lines(&[("A", "a")]);
            assert_eq!(lines.try_push(name, value), expect, "{name:?}: {value:?}");
            if expect.is_err() {
                assert_eq!(lines.as_bytes(), b"A: a\r\n");
            }
        };
        check(b"B", b"", Ok(()));
        check(b"!#$%&'*+-.^_`|~09AZaz", b"\tb \x80\xff", Ok(()));
        for name in [&b""[..], b"B ", b" B", b"B:", b"B\r\nC", b"B\0", b"\xe9"] {
            check(name, b"b", Err(InvalidField::Name));
        }
        for value in [
            &b"b\r\nC: c"[..],
            b"b\n",
            b"b\r",
            b"\0",
            b"\x7f",
            b"\x1b[0m",
        ] {
            check(b"B", value, Err(InvalidField::Value));
        }
    }

    #[test]
    fn a_field_of_the_servers_own_that_is_none_is_a_bug() {
        let is_refused = |name: &'static [u8], value: &'static [u8]| {
            std::panic::catch_unwind(|| FieldLines::new().push(name, value)).is_err()
        };
        for (name, value) in [
            (&b""[..], &b"b"[..]),
            (b"A B", b"b"),
            (b"A:", b"b"),
            (b"A\n", b"b"),
            (b"A", b"b\r"),
            (b"A", b"b\nC: c"),
            (b"A", b"\0"),
        ] {
            assert!(is_refused(name, value), "{name:?}: {value:?}");
        }
    }

    /// Bytes among which those are frequent that could make another line.
    fn sharp_bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            4 => prop::sample::select(&b"aZ0-"[..]),
            2 => prop::sample::select(&b"\r\n\0:\t "[..]),
            1 => any::<u8>(),
        ];
        prop::collection::vec(byte, 0..12)
    }

    fn fields() -> impl Strategy<Value = Vec<(String, String)>> {
        prop::collection::vec(("[a-cA-C!-]{1,3}", "[\t -~]{0,9}"), 0..12)
    }

    fn written(fields: &[(String, String)]) -> FieldLines {
        let mut lines = FieldLines::new();
        for (name, value) in fields {
            lines.push(name.as_bytes(), value.as_bytes());
        }
        lines
    }

    proptest! {
        #[test]
        fn what_is_pushed_is_what_is_read(fields in fields()) {
            let lines = written(&fields);
            let expect: Vec<_> = fields
                .iter()
                .map(|(name, value)| (name.as_bytes(), trim(value.as_bytes())))
                .collect();
            prop_assert_eq!(lines.iter().collect::<Vec<_>>(), expect);
        }

        #[test]
        fn nothing_pushed_makes_another_line(
            tries in prop::collection::vec((sharp_bytes(), sharp_bytes()), 0..12),
        ) {
            let mut lines = FieldLines::new();
            let mut taken = Vec::new();
            for (name, value) in &tries {
                let before = lines.as_bytes().len();
                if lines.try_push(name, value).is_ok() {
                    taken.push((name.as_slice(), trim(value)));
                } else {
                    prop_assert_eq!(lines.as_bytes().len(), before);
                }
            }
            // Read by a parser that is not ours.
            let block = [lines.as_bytes(), b"\r\n"].concat();
            let mut headers = [httparse::EMPTY_HEADER; 16];
            let parsed = httparse::parse_headers(&block, &mut headers);
            let Ok(httparse::Status::Complete((bytes, found))) = parsed else {
                return Err(TestCaseError::fail(format!("{parsed:?}")));
            };
            prop_assert_eq!(bytes, block.len());
            let found: Vec<_> = found
                .iter()
                .map(|header| (header.name.as_bytes(), header.value))
                .collect();
            prop_assert_eq!(&found, &taken);
            prop_assert_eq!(lines.iter().collect::<Vec<_>>(), taken);
        }

        #[test]
        fn retains_what_is_wanted_in_its_order(fields in fields(), keep in any::<[bool; 12]>()) {
            let mut lines = written(&fields);
            let mut at = 0;
            lines.retain(|name, value| {
                assert_eq!((name, value), (fields[at].0.as_bytes(), trim(fields[at].1.as_bytes())));
                at += 1;
                keep[at - 1]
            });
            prop_assert_eq!(at, fields.len());
            let kept: Vec<_> = fields
                .iter()
                .zip(keep)
                .filter(|(_, keep)| *keep)
                .map(|(field, _)| field.clone())
                .collect();
            prop_assert_eq!(lines, written(&kept));
        }
    }
}
