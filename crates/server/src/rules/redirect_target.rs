//! Where a rule leads: the target of a redirect or of a rewrite, with a place for the rest of the path.
//!
//! Takes what the configuration says once, then the rest and the query of each request; appends a target.
//! Pure. Whatever a client sends, it cannot leave the place that the star has: the scheme and authority
//! are fixed before, slashes at the front are not doubled, and every byte that could end a part is escaped.

use super::path_variants::PathRest;

/// A target as configured.
#[derive(Debug)]
pub(super) struct RedirectTarget {
    /// Scheme and authority (`https://example.org`); empty for a path.
    base: Vec<u8>,
    /// Begins with a slash.
    path: TargetText,
    /// Its own query; `None`: the query of the request is kept.
    query: Option<TargetText>,
    fragment: Option<TargetText>,
}

/// A part of a target.
#[derive(Debug)]
struct TargetText {
    before: Vec<u8>,
    /// What follows the rest; `None` when the rest does not stand here.
    after: Option<Vec<u8>>,
}

/// What may stand unescaped beside letters, digits and `-._~`.
#[derive(Clone, Copy)]
enum Component {
    /// All that a path may have, RFC 3986 section 3.3.
    Path,
    /// A value in a query, or a fragment that scripts take apart: nothing that separates.
    Value,
}

impl RedirectTarget {
    /// Reads the target of a redirect: a path, or a URL with scheme and authority. Anything else is taken
    /// for a path without its slash. A star within an authority is no place for the rest, because clients
    /// would choose the host; at its end a slash comes before the rest.
    pub(super) fn of_redirect(to: &str, has_rest: bool) -> RedirectTarget {
        let (main, fragment) = split(to, '#');
        let authority_end = authority_end(main);
        let base = &main[..authority_end];
        let path_from = match base.strip_suffix('*') {
            Some(base) if has_rest && !base.ends_with('/') => base.len(),
            _ => authority_end,
        };
        let (path, query) = split(&main[path_from..], '?');
        let mut has_rest = has_rest;
        RedirectTarget {
            base: escaped(&main[..path_from]),
            path: TargetText::new(&with_slash(path), &mut has_rest),
            query: query.map(|query| TargetText::new(query, &mut has_rest)),
            fragment: fragment.map(|fragment| TargetText::new(fragment, &mut has_rest)),
        }
    }

    /// Reads the target of a rewrite: a path, which may have a query.
    pub(super) fn of_rewrite(to: &str, has_rest: bool) -> RedirectTarget {
        let (path, query) = split(to, '?');
        let mut has_rest = has_rest;
        RedirectTarget {
            base: Vec::new(),
            path: TargetText::new(&with_slash(path), &mut has_rest),
            query: query.map(|query| TargetText::new(query, &mut has_rest)),
            fragment: None,
        }
    }

    /// Appends the target for a request with this rest and query: visible ASCII alone.
    pub(super) fn write(&self, out: &mut Vec<u8>, rest: PathRest<'_>, query: Option<&[u8]>) {
        out.extend_from_slice(&self.base);
        let path_from = out.len();
        self.path.write(out, rest, Component::Path);
        if self.base.is_empty() {
            leave_one_slash(out, path_from);
        }
        match (&self.query, query) {
            (Some(own), _) => {
                out.push(b'?');
                own.write(out, rest, Component::Value);
            }
            (None, Some(query)) => {
                out.push(b'?');
                out.extend_from_slice(query);
            }
            (None, None) => {}
        }
        if let Some(fragment) = &self.fragment {
            out.push(b'#');
            fragment.write(out, rest, Component::Value);
        }
    }
}

impl TargetText {
    /// The rest stands where the first star does; `has_rest` says whether there is one that has no place yet.
    fn new(text: &str, has_rest: &mut bool) -> TargetText {
        let halves = text.split_once('*').filter(|_| *has_rest);
        *has_rest &= halves.is_none();
        TargetText {
            before: escaped(halves.map_or(text, |(before, _)| before)),
            after: halves.map(|(_, after)| escaped(after)),
        }
    }

    fn write(&self, out: &mut Vec<u8>, rest: PathRest<'_>, component: Component) {
        out.extend_from_slice(&self.before);
        if let Some(after) = &self.after {
            for (byte, was_escaped) in rest.decoded_bytes() {
                // An escape that was sent stands for data: bare, the byte might separate.
                if is_unreserved(byte) || (component.has(byte) && !was_escaped) {
                    out.push(byte);
                } else {
                    push_escape(out, byte);
                }
            }
            out.extend_from_slice(after);
        }
    }
}

impl Component {
    fn has(self, byte: u8) -> bool {
        match self {
            Component::Path => b"/!$&'()*+,;=:@".contains(&byte),
            Component::Value => byte == b'/',
        }
    }
}

fn split(text: &str, mark: char) -> (&str, Option<&str>) {
    match text.split_once(mark) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

/// Length of `scheme://authority` or `//authority`; 0 for a path. An empty authority is none: browsers
/// would go on to the path to find one.
fn authority_end(to: &str) -> usize {
    let Some((before, after)) = to.split_once("//") else {
        return 0;
    };
    let authority_bytes = after.find(['/', '?']).unwrap_or(after.len());
    let is_next = before.is_empty() || before.strip_suffix(':').is_some_and(is_scheme);
    match authority_bytes {
        bytes if bytes > 0 && is_next => before.len() + 2 + bytes,
        _ => 0,
    }
}

/// RFC 3986 section 3.1.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text
            .chars()
            .all(|mark| mark.is_ascii_alphanumeric() || "+-.".contains(mark))
}

fn with_slash(path: &str) -> String {
    match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/{path}"),
    }
}

/// A second slash at the front of a path would begin an authority, RFC 3986 section 4.2.
fn leave_one_slash(out: &mut Vec<u8>, from: usize) {
    let slashes = out[from..].iter().take_while(|byte| **byte == b'/').count();
    out.drain(from + 1..from + slashes.max(1));
}

/// What the configuration says, with escapes for what cannot stand in a URL. A `%` that begins no escape
/// means itself.
fn escaped(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        let is_good = match byte {
            b'%' => {
                let digits = bytes.get(at + 1..at + 3);
                digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
            }
            // Browsers read a backslash as a slash.
            b'"' | b'#' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => false,
            byte => byte.is_ascii_graphic(),
        };
        if is_good {
            out.push(*byte);
        } else {
            push_escape(&mut out, *byte);
        }
    }
    out
}

/// RFC 3986 section 2.3: an escape of one of these means the same as the byte.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn push_escape(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
    out.extend_from_slice(&[b'%', DIGITS[high], DIGITS[low]]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rules::path_variants::PathVariants;

    fn compose(target: &RedirectTarget, rest: &str, query: Option<&str>) -> String {
        let path = format!("/{rest}");
        let variants = PathVariants::of(path.as_bytes());
        let mut out = Vec::new();
        let rest = variants.as_slice()[0].rest(1);
        target.write(&mut out, rest, query.map(str::as_bytes));
        String::from_utf8(out).unwrap()
    }

    #[track_caller]
    fn check(to: &str, rest: &str, query: Option<&str>, expect: &str) {
        let target = RedirectTarget::of_redirect(to, true);
        assert_eq!(compose(&target, rest, query), expect, "{to} {rest}");
    }

    /// Where to, the rest of the path, the query (`-`: none), and the location; headings without columns.
    const TABLE: &str = r#"
        The rest comes where the star is.
        /new/* | a/b | - | /new/a/b
        /new/*.html | a | - | /new/a.html
        /new | a | - | /new
        /new/*/* | a | - | /new/a/*
        https://h.example/x/* | a | - | https://h.example/x/a
        https://h.example:81 | a | - | https://h.example:81/
        //h.example/* | a | - | //h.example/a
        /find?q=* | a&b=c+d | - | /find?q=a%26b%3Dc%2Bd
        /app#/* | a | - | /app#/a
        The query is the request's unless there is one.
        /new/* | a | x=1 | /new/a?x=1
        /new/* | a | | /new/a?
        /new/*?y | a | x=1 | /new/a?y
        /new/*? | a | x=1 | /new/a?
        /new#f | a | x=1 | /new?x=1#f
        /new?y#f?z | a | x=1 | /new?y#f?z
        https://h?y | a | x=1 | https://h/?y
        Escapes that mean something stay.
        /new/* | a%2Fb%2fc | - | /new/a%2Fb%2Fc
        /new/* | %61%7E%2D | - | /new/a~-
        /new/* | a%3Bb;c%2Bd+e | - | /new/a%3Bb;c%2Bd+e
        /new/* | %C3%A9%20%25 | - | /new/%C3%A9%20%25
        /new/* | %zz% | - | /new/%25zz%25
        A rest does not leave the site.
        /* | /evil.example | - | /evil.example
        /* | ///evil.example/x | - | /evil.example/x
        /* | \evil.example | - | /%5Cevil.example
        /* | /\evil.example | - | /%5Cevil.example
        /* | %5Cevil.example | - | /%5Cevil.example
        /* | %2Fevil.example | - | /%2Fevil.example
        /* | %09/evil.example | - | /%09/evil.example
        * | https://evil.example | - | /https://evil.example
        * | javascript:alert(1) | - | /javascript:alert(1)
        /* | @evil.example | - | /@evil.example
        A rest does not choose the host.
        https://h.example* | .evil.example | - | https://h.example/.evil.example
        https://h.example* | @evil.example | - | https://h.example/@evil.example
        https://h.example* | :81 | - | https://h.example/:81
        https://*.example/ | evil.example/ | - | https://*.example/
        https://*/ | evil.example | - | https://*/
        https://* | evil.example | - | https://*/
        https:///* | evil.example | - | /https:///evil.example
        ///* | evil.example | - | /evil.example
        //* | evil.example | - | //*/
        https://h\* | x | - | https://h%5C/x
        A rest adds no line.
        /* | %0D%0ASet-Cookie:%20a=1 | - | /%0D%0ASet-Cookie:%20a=1
        /x?y=* | %0d%0a%00%ff" | - | /x?y=%0D%0A%00%FF%22
        What the configuration wrote plainly is escaped.
        /ü b/*?q="ä"&100% | a | - | /%C3%BC%20b/a?q=%22%C3%A4%22&100%25
        /a%20b%2fc | | - | /a%20b%2fc
    "#;

    #[test]
    fn composes_locations() {
        for row in TABLE.trim().lines() {
            let columns: Vec<&str> = row.split('|').map(str::trim).collect();
            match columns[..] {
                [to, rest, query, expect] => {
                    check(to, rest, Some(query).filter(|query| *query != "-"), expect);
                }
                _ => assert!(row.ends_with('.'), "{row}"),
            }
        }
        check("/a\r\nX: y", "", None, "/a%0D%0AX:%20y");
    }

    #[test]
    fn without_a_rest_a_star_is_a_star() {
        let target = RedirectTarget::of_redirect("/new/*", false);
        assert_eq!(compose(&target, "a", None), "/new/*");
        let target = RedirectTarget::of_redirect("https://h.example*", false);
        assert_eq!(compose(&target, "a", None), "https://h.example*/");
    }

    #[test]
    fn a_rewrite_is_a_path_whatever_it_looks_like() {
        let check = |to: &str, rest: &str, expect: &str| {
            let target = RedirectTarget::of_rewrite(to, true);
            assert_eq!(compose(&target, rest, Some("x=\"1\"")), expect, "{to}");
        };
        check("/*", "/a", "/a?x=\"1\"");
        check("/i?p=*", "a/b", "/i?p=a/b");
        check("/a#b", "", "/a%23b?x=\"1\"");
        check("http://h/*", "a", "/http://h/a?x=\"1\"");
    }

    const HOSTILE: &str = "(/|\\\\|\\.|%0[dDaA9]|%00|%2[fFeE35]|%5[cC]|%[89a-f][0-9a-f]|%|[!-~]|@|:|evil\\.example){0,16}";

    proptest! {
        #[test]
        fn stays_on_the_authority_and_in_one_line(
            rest in HOSTILE,
            query in proptest::option::of("[!-\"$-~]{0,8}"),
            to in prop_oneof![
                Just("/*"), Just("*"), Just("/new*"), Just("/new/*/x?y=*"), Just("/x?y=*"), Just("/x#*"),
                Just("https://h.example*"), Just("https://h.example/*"), Just("https://h.example?*"),
            ],
        ) {
            let target = RedirectTarget::of_redirect(to, true);
            let location = compose(&target, &rest, query.as_deref());
            prop_assert!(location.bytes().all(|byte| byte.is_ascii_graphic()), "{location}");
            match to.starts_with("https:") {
                true => {
                    let after = location.strip_prefix("https://h.example");
                    prop_assert!(after.is_some_and(|after| after.starts_with('/')), "{location}");
                }
                false => {
                    prop_assert!(location.starts_with('/'), "{location}");
                    prop_assert!(!location[1..].starts_with(['/', '\\']), "{location}");
                }
            }
            let path = location.split(['?', '#']).next().unwrap();
            prop_assert!(!path.contains('\\'), "{location}");
        }

        #[test]
        fn means_the_same_path(rest in HOSTILE) {
            let target = RedirectTarget::of_redirect("/new/*", true);
            // What stands behind a `?` or `#` belongs to no path; a head's path has neither.
            let rest = rest.replace(['?', '#'], "");
            let path = compose(&target, &rest, None);
            let decoded = |text: &str| super::super::path_variants::decoded(text.as_bytes());
            prop_assert_eq!(decoded(&path), decoded(&format!("/new/{rest}")));
        }
    }
}
