//! Conditional requests: what a head's `If-` fields say of the current validators.
//!
//! Takes a head and the validators, gives a verdict; pure. The order is that of RFC 9110 section 13.2.2,
//! and the fields of section 13.1. The content exists and the method is GET or HEAD: the caller saw to it.
//!
//! ```text
//! If-Match ──absent──► If-Unmodified-Since ──true or absent──► If-None-Match ──absent──► If-Modified-Since ─► Proceed
//!    │ false                  │ false                             │ false                    │ false
//!    └──────────► Failed (412) ◄──────┘                           └───► NotModified (304) ◄──┘
//! ```

use http::HeadView;

use super::cached_file::Validators;

/// What becomes of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConditionResult {
    /// No condition stands against it.
    Proceed,
    /// 304
    NotModified,
    /// 412
    Failed,
}

/// Weighs the conditions of a GET or HEAD, `If-Range` apart.
pub(super) fn judge(head: HeadView<'_>, current: &Validators) -> ConditionResult {
    let is_meant = any_tag(head, "if-match", |tag| tag.is_strongly(&current.etag))
        // RFC 9110 section 13.1.4: a field that is no date is ignored.
        .or_else(|| {
            single_date(head, "if-unmodified-since").map(|date| current.modified_unix_secs <= date)
        });
    // RFC 9110 section 13.2.2: what guards against a lost update comes before what saves a transfer.
    if is_meant == Some(false) {
        return ConditionResult::Failed;
    }
    match any_tag(head, "if-none-match", |tag| tag.is_weakly(&current.etag)) {
        Some(true) => ConditionResult::NotModified,
        Some(false) => ConditionResult::Proceed,
        None => match single_date(head, "if-modified-since") {
            Some(date) if current.modified_unix_secs <= date => ConditionResult::NotModified,
            _ => ConditionResult::Proceed,
        },
    }
}

/// RFC 9110 section 13.1.5: whether `If-Range`, when there is one, lets `Range` count.
pub(super) fn allows_range(head: HeadView<'_>, current: &Validators) -> bool {
    if !has(head, "if-range") {
        return true;
    }
    let Some(value) = single(head, "if-range") else {
        return false;
    };
    match split_tag(value) {
        Some((tag, [])) => tag.is_strongly(&current.etag),
        Some(_) => false,
        // A date counts when it is exactly ours. Whether it was strong, the client has to know (the same section
        // forbids it to send one that was not): we do not see the date of the reply that it comes from.
        None => http::date::parse(value) == Some(current.modified_unix_secs),
    }
}

/// The value of a field that may be there once; `None` when it is absent or repeated.
pub(super) fn single<'a>(head: HeadView<'a>, name: &str) -> Option<&'a [u8]> {
    let mut values = all(head, name);
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value),
        _ => None,
    }
}

fn all<'a>(head: HeadView<'a>, name: &str) -> impl Iterator<Item = &'a [u8]> {
    head.headers()
        .filter(move |(field, _)| field.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, value)| value)
}

fn has(head: HeadView<'_>, name: &str) -> bool {
    all(head, name).next().is_some()
}

fn single_date(head: HeadView<'_>, name: &str) -> Option<u64> {
    single(head, name).and_then(http::date::parse)
}

/// An entity tag: RFC 9110 section 8.8.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag<'a> {
    strength: Strength,
    /// With its quotes.
    opaque: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strength {
    Strong,
    Weak,
}

impl Tag<'_> {
    /// RFC 9110 section 8.8.3.2; our own tag is always strong.
    fn is_strongly(self, current: &str) -> bool {
        self.strength == Strength::Strong && self.opaque == current.as_bytes()
    }

    fn is_weakly(self, current: &str) -> bool {
        self.opaque == current.as_bytes()
    }
}

/// Whether the lists of all fields called `name` hold `*` or a tag that `matches`; `None` without such a field.
fn any_tag(head: HeadView<'_>, name: &str, matches: impl Fn(Tag<'_>) -> bool) -> Option<bool> {
    let mut seen = None;
    for value in all(head, name) {
        // What cannot be read matches nothing: a list ends where it breaks the grammar.
        let found = value == b"*" || tags(value).any(&matches);
        seen = Some(seen.unwrap_or(false) | found);
    }
    seen
}

fn tags(value: &[u8]) -> impl Iterator<Item = Tag<'_>> {
    let mut rest = value;
    std::iter::from_fn(move || {
        while let Some((b' ' | b'\t' | b',', after)) = rest.split_first() {
            rest = after;
        }
        let (tag, after) = split_tag(rest)?;
        // RFC 9110 section 5.6.1: elements are parted by commas.
        let after = after.trim_ascii_start();
        rest = if after.first() == Some(&b',') {
            after
        } else {
            &[]
        };
        Some(tag)
    })
}

/// The tag that `value` starts with, and what follows it.
fn split_tag(value: &[u8]) -> Option<(Tag<'_>, &[u8])> {
    let (strength, quoted) = match value.strip_prefix(b"W/") {
        Some(quoted) => (Strength::Weak, quoted),
        None => (Strength::Strong, value),
    };
    let inner = quoted.strip_prefix(b"\"")?;
    let end = memchr::memchr(b'"', inner)?;
    let is_tag = inner[..end]
        .iter()
        .all(|byte| matches!(byte, 0x21 | 0x23..=0x7e | 0x80..));
    if !is_tag {
        return None;
    }
    let (opaque, after) = quoted.split_at(end + 2);
    Some((Tag { strength, opaque }, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests;

    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn with_head<T>(fields: &str, lookup: impl FnOnce(HeadView<'_>) -> T) -> T {
        let fields = fields
            .replace("BEFORE", BEFORE)
            .replace("MODIFIED", MODIFIED)
            .replace("AFTER", AFTER);
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        tests::with_head(&text, lookup)
    }

    fn current() -> Validators {
        Validators {
            etag: "\"x\"".to_owned(),
            modified_unix_secs: 784_111_777,
        }
    }

    /// What is decided of a request with these fields; ` / ` stands between two of them.
    const TABLE: &str = r#"
        Proceed     |
        Proceed     | If-Match: "x"
        Proceed     | If-Match: *
        Proceed     | If-Match: "y", "x"
        Proceed     | If-Match: "y" / If-Match: "x"
        Failed      | If-Match: W/"x"
        Failed      | If-Match: "y"
        Failed      | If-Match: x
        Failed      | If-Match:
        Proceed     | If-Unmodified-Since: MODIFIED
        Proceed     | If-Unmodified-Since: AFTER
        Proceed     | If-Unmodified-Since: yesterday
        Proceed     | If-Unmodified-Since: BEFORE / If-Unmodified-Since: BEFORE
        Proceed     | If-Match: "x" / If-Unmodified-Since: BEFORE
        Failed      | If-Unmodified-Since: BEFORE
        Failed      | If-Unmodified-Since: AFTER / If-Match: "y"
        NotModified | If-None-Match: "x"
        NotModified | If-None-Match: W/"x"
        NotModified | If-None-Match: *
        NotModified | If-None-Match: "y", W/"z" ,TAB"x"
        NotModified | If-None-Match: , ,"x",
        NotModified | If-None-Match: "a,b","x"
        NotModified | If-None-Match: "y" / If-None-Match: "x"
        Proceed     | If-None-Match: "y"
        Proceed     | If-None-Match: "X"
        Proceed     | If-None-Match: x
        Proceed     | If-None-Match: w/"x"
        Proceed     | If-None-Match: "y" "x"
        Proceed     | If-None-Match: "y, "x"
        Proceed     | If-None-Match: "x
        Proceed     | If-None-Match: "y z", "x"
        NotModified | If-Modified-Since: MODIFIED
        NotModified | If-Modified-Since: AFTER
        NotModified | If-Modified-Since: BEFORE / If-None-Match: "x"
        Proceed     | If-Modified-Since: BEFORE
        Proceed     | If-Modified-Since: 784111777
        Proceed     | If-Modified-Since: AFTER / If-None-Match: "y"
        Failed      | If-None-Match: "x" / If-Match: "y"
        Failed      | If-None-Match: "x" / If-Unmodified-Since: BEFORE
        NotModified | If-None-Match: "x" / If-Match: "x"
        NotModified | If-Modified-Since: AFTER / If-Unmodified-Since: AFTER
    "#;

    #[test]
    fn weighs_conditions_in_the_order_of_rfc_9110() {
        for row in TABLE.trim().lines() {
            let (expect, fields) = row.split_once('|').unwrap();
            let fields = fields.trim().replace("TAB", "\t").replace(" / ", "\r\n") + "\r\n";
            let found = with_head(fields.trim_start(), |head| judge(head, &current()));
            assert_eq!(format!("{found:?}"), expect.trim(), "{row}");
        }
    }

    #[test]
    fn weighs_if_range_strongly() {
        for (fields, expect) in [
            ("", true),
            ("If-Range: \"x\"\r\n", true),
            ("If-Range: MODIFIED\r\n", true),
            ("If-Range: W/\"x\"\r\n", false),
            ("If-Range: \"y\"\r\n", false),
            ("If-Range: \"x\", \"y\"\r\n", false),
            ("If-Range: *\r\n", false),
            ("If-Range: x\r\n", false),
            ("If-Range: BEFORE\r\n", false),
            ("If-Range: AFTER\r\n", false),
            ("If-Range: \"x\"\r\nIf-Range: \"x\"\r\n", false),
        ] {
            assert_eq!(
                with_head(fields, |head| allows_range(head, &current())),
                expect,
                "{fields}"
            );
        }
    }
}
