//! Just enough of Rust's grammar to look at code without being misled by comments and strings.
//!
//! Takes text, gives text of the same length with the same lines, in which what does not count is blank:
//! positions and line numbers stay true.

/// `text` with comments, strings and characters blanked.
pub(super) fn blank_literals(text: &str) -> String {
    blank_those(text, |_| true)
}

/// `text` with comments blanked; strings and characters stay.
pub(super) fn blank_comments(text: &str) -> String {
    blank_those(text, |literal| {
        literal.starts_with(b"//") || literal.starts_with(b"/*")
    })
}

fn blank_those(text: &str, is_blanked: impl Fn(&[u8]) -> bool) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        if is_blanked(&bytes[at..end]) {
            blank(&mut out[at..end]);
        }
        at = end.max(at + 1);
    }
    String::from_utf8(out).expect("whole literals are blanked, so no character is cut")
}

/// `text` with everything blanked but strings and characters.
pub(super) fn blank_all_but_strings(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        if end == at || bytes[at] == b'/' {
            blank(&mut out[at..end.max(at + 1)]);
        }
        at = end.max(at + 1);
    }
    String::from_utf8(out)
        .expect("what is blanked are whole literals and single bytes between them")
}

/// `code` (already without literals) with everything blanked that only tests compile.
pub(super) fn blank_tests(code: &str) -> String {
    blank_tests_in(code, code)
}

/// `view`, another view of the same text as `code`, with everything blanked that only tests compile.
pub(super) fn blank_tests_in(view: &str, code: &str) -> String {
    let mut out = view.as_bytes().to_vec();
    for marker in ["#[cfg(test)]", "#[cfg(all(test"] {
        for (start, _) in code.match_indices(marker) {
            let end = item_end(code.as_bytes(), start);
            blank(&mut out[start..end]);
        }
    }
    String::from_utf8(out).expect("items end at ASCII characters")
}

/// Where the item that starts at `start` ends: behind its block, or its semicolon if it has none.
pub(super) fn item_end(code: &[u8], start: usize) -> usize {
    let mut depth = 0usize;
    for (offset, byte) in code[start..].iter().enumerate() {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && *byte == b'}' {
                    return start + offset + 1;
                }
            }
            b';' if depth == 0 => return start + offset + 1,
            _ => {}
        }
    }
    code.len()
}

/// Number of the line that `at` is on, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

/// Where `word` stands by itself in `text`.
pub(super) fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_part =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let bytes = text.as_bytes();
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| {
            let before = at.checked_sub(1).and_then(|before| bytes.get(before));
            !is_part(before) && !is_part(bytes.get(at + word.len()))
        })
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

/// Where the comment or literal that starts at `at` ends; `at` itself when none does.
fn literal_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    match rest {
        [b'/', b'/', ..] => {
            at + rest
                .iter()
                .position(|byte| *byte == b'\n')
                .unwrap_or(rest.len())
        }
        [b'/', b'*', ..] => at + block_comment_bytes(rest),
        [b'"', ..] => at + quoted_bytes(rest, b'"'),
        [b'\'', b'\\', ..] => at + quoted_bytes(rest, b'\''),
        [b'\'', ..] => at + character_bytes(rest),
        [b'r', b'"' | b'#', ..] if !is_in_word(bytes, at) => at + raw_string_bytes(rest),
        _ => at,
    }
}

fn block_comment_bytes(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] if depth == 1 => return at + 2,
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    rest.len()
}

fn quoted_bytes(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `'x'` is a character, `'x` a lifetime.
fn character_bytes(rest: &[u8]) -> usize {
    let bytes = match rest.get(1) {
        Some(0xf0..) => 4,
        Some(0xe0..) => 3,
        Some(0xc0..) => 2,
        _ => 1,
    };
    if rest.get(1 + bytes) == Some(&b'\'') {
        bytes + 2
    } else {
        0
    }
}

fn raw_string_bytes(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let mut closing = vec![b'"'];
    closing.resize(1 + hashes, b'#');
    let body = &rest[2 + hashes..];
    let end = body
        .windows(closing.len())
        .position(|window| window == closing);
    end.map_or(rest.len(), |end| 2 + hashes + end + closing.len())
}

/// Whether `at` continues a word; the prefixes of byte and C strings do not count as one.
fn is_in_word(bytes: &[u8], at: usize) -> bool {
    let is_part = |at: usize| bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_';
    match at {
        0 => false,
        1 => is_part(0) && !matches!(bytes[0], b'b' | b'c'),
        _ => is_part(at - 1) && (!matches!(bytes[at - 1], b'b' | b'c') || is_part(at - 2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `expect` with one blank for each run of them.
    fn check(text: &str, expect: &str) {
        let blanked = blank_literals(text);
        assert_eq!(blanked.len(), text.len(), "{text}");
        assert_eq!(blanked.lines().count(), text.lines().count(), "{text}");
        assert_eq!(
            blanked.split_whitespace().collect::<Vec<_>>().join(" "),
            expect,
            "{text}"
        );
    }

    #[test]
    fn blanks_comments_and_literals() {
        check("a // b\nc", "a c");
        check("a /* b /* c */ d */ e", "a e");
        check("f( \"x \\\" // y\" ) + 1", "f( ) + 1");
        check("r\"a\\\" + r#\"b\"c\"# + br\"d\"", "+ + b");
        check(
            "'a' + '\\'' + '\"' + '\u{fc}' + b'\\\\' + c",
            "+ + + + b + c",
        );
        check("\"a\nb\" c", "c");
        check("/// unsafe\nfn f() {}", "fn f() {}");
        check("\"open", "");
        check("", "");
    }

    #[test]
    fn leaves_literals_where_comments_alone_are_blanked() {
        let text = "f(\"// a\"); // b\n/* c */ 'd'";
        assert_eq!(blank_comments(text), "f(\"// a\");     \n        'd'");
    }

    #[test]
    fn leaves_lifetimes_and_raw_names() {
        check(
            "fn f<'a>(x: &'a str) -> &'static str {}",
            "fn f<'a>(x: &'a str) -> &'static str {}",
        );
        check("r#type + for_r#\"x\"", "r#type + for_r#");
    }

    #[test]
    fn blanks_what_only_tests_compile() {
        let code = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { {} }\n}\nfn c() {}\n";
        let without_tests = |code| blank_tests(code);
        let production = without_tests(code);
        assert_eq!(production.lines().count(), code.lines().count());
        assert_eq!(
            production.split_whitespace().collect::<Vec<_>>(),
            ["fn", "a()", "{}", "fn", "c()", "{}"]
        );
        assert_eq!(
            without_tests("#[cfg(test)]\nmod tests;\nfn a() {}").trim(),
            "fn a() {}"
        );
        assert_eq!(
            without_tests("#[cfg(test)]\nuse a::{b, c};\nfn a() {}").trim(),
            ";\nfn a() {}"
        );
    }

    #[test]
    fn finds_whole_words() {
        assert_eq!(words("ab b ab_b b.b", "b").collect::<Vec<_>>(), [3, 10, 12]);
        assert_eq!(line_of("a\nb\nc", 4), 3);
    }
}
