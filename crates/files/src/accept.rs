//! What a client says of media types: Accept, RFC 9110 section 12.5.1.
//!
//! Takes a head, answers the two questions that this module has; pure. Members that are malformed are
//! ignored, each by itself, and parameters other than the weight are not looked at.

use http::HeadView;

/// Whether the client names HTML, as browsers do when they go to a page and not when they load a part of
/// one. `*/*` names nothing.
pub fn names_html(head: HeadView<'_>) -> bool {
    members(head).any(|(range, weight)| weight > 0 && range.eq_ignore_ascii_case(b"text/html"))
}

/// Whether the client would rather have JSON than HTML.
pub(super) fn prefers_json(head: HeadView<'_>) -> bool {
    let json = preference(head, b"application", b"json");
    json.0 > 0 && json > preference(head, b"text", b"html")
}

/// Weight in thousandths, and how exactly the client named the type: what it named more exactly comes first among
/// equals.
fn preference(head: HeadView<'_>, kind: &[u8], subtype: &[u8]) -> (u16, u8) {
    members(head)
        .filter_map(|(range, weight)| {
            let slash = memchr::memchr(b'/', range)?;
            let (major, minor) = (&range[..slash], &range[slash + 1..]);
            let exactness = match (major, minor) {
                (b"*", b"*") => 1,
                _ if !major.eq_ignore_ascii_case(kind) => return None,
                (_, b"*") => 2,
                _ => minor.eq_ignore_ascii_case(subtype).then_some(3)?,
            };
            Some((weight, exactness))
        })
        // RFC 9110 section 12.5.1: the most specific range that a type is in has precedence, whatever its weight.
        .max_by_key(|(_, exactness)| *exactness)
        .unwrap_or_default()
}

/// Media ranges and their weights.
fn members(head: HeadView<'_>) -> impl Iterator<Item = (&[u8], u16)> {
    head.headers()
        .filter(|(name, _)| name.eq_ignore_ascii_case(b"accept"))
        .flat_map(|(_, value)| value.split(|byte| *byte == b','))
        .filter_map(member)
}

fn member(text: &[u8]) -> Option<(&[u8], u16)> {
    let mut parts = text.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let range = parts.next()?;
    let mut weight = 1000;
    for part in parts {
        if let [b'q' | b'Q', b'=', value @ ..] = part {
            weight = http::quality(value)?;
        }
    }
    Some((range, weight))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::with_head;
    use super::*;

    fn check(value: &str, is_html_named: bool, is_json_preferred: bool) {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\nAccept: {value}\r\n\r\n");
        with_head(&text, |head| {
            assert_eq!(names_html(head), is_html_named, "{value}");
            assert_eq!(prefers_json(head), is_json_preferred, "{value}");
        });
    }

    #[test]
    fn tells_pages_from_parts_and_people_from_programs() {
        check(
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            true,
            false,
        );
        check("*/*", false, false);
        check("", false, false);
        check("image/avif,image/webp,*/*;q=0.8", false, false);
        check("application/json", false, true);
        check("APPLICATION/JSON", false, true);
        check("application/json, text/plain, */*", false, true);
        check("application/json;q=0.5, text/html", true, false);
        check("application/json, text/html", true, false);
        check("application/json, text/html;q=0.9", true, true);
        check("application/*, text/*;q=0.9", false, true);
        check("text/html;q=0, */*", false, true);
        check(
            "text/html;level=1;q=0.4, application/json;q=0.5",
            true,
            true,
        );
        check("application/json;q=0", false, false);
        check("application/json;q=2, */*;q=0.1", false, false);
        check("text/html;q=x", false, false);
        check("text", false, false);
        check("text/htmlx, json", false, false);
    }

    #[test]
    fn reads_all_lines_and_does_without() {
        let text = "GET / HTTP/1.1\r\nHost: a\r\nAccept: */*\r\nACCEPT: application/json\r\n\r\n";
        assert!(with_head(text, prefers_json));
        let text = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert!(!with_head(text, prefers_json) && !with_head(text, names_html));
    }

    proptest! {
        #[test]
        fn no_weight_is_above_one(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert!(member(&text).is_none_or(|(_, weight)| weight <= 1000));
        }
    }
}
