//! Entries with options, as `slow.log format=json slower=1s`: a text, then words of the form KEY=VALUE.
//!
//! Takes one text apart and puts one together; also finds where one entry of several ends. A first text
//! or a value with spaces stands in quotes, `"` or `'`; within them `\` in front of the quote or of a `\`
//! takes it literally. A quote in the middle of a word is a letter as any other. Pure.

use std::borrow::Cow;

/// One entry taken apart; nothing of it is understood yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// What stands first.
    pub lead: String,
    /// Keys and values in the order written.
    pub options: Vec<(String, String)>,
}

/// Takes an entry apart.
///
/// # Errors
/// What to write instead.
pub(super) fn parse(text: &str) -> Result<Entry, String> {
    let (lead, mut rest) = value(text.trim_start())?;
    let mut options = Vec::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return Ok(Entry { lead, options });
        }
        let key_end = rest.find(|c: char| c == '=' || c.is_whitespace());
        let Some((key, behind)) = key_end.and_then(|end| {
            let behind = rest[end..].strip_prefix('=')?;
            Some((&rest[..end], behind))
        }) else {
            let word = rest.split_whitespace().next().unwrap_or_default();
            return Err(format!(
                "`{word}` is no KEY=VALUE; a text with spaces stands in quotes"
            ));
        };
        let (value, behind) = value(behind)?;
        options.push((key.to_owned(), value));
        rest = behind;
    }
}

/// The text as [`parse`] reads it back as one.
pub(super) fn quoted(text: &str) -> Cow<'_, str> {
    let is_plain =
        !text.is_empty() && !text.starts_with(is_quote) && !text.contains(char::is_whitespace);
    if is_plain {
        return Cow::Borrowed(text);
    }
    let escaped = text.replace('\\', r"\\").replace('"', r#"\""#);
    Cow::Owned(format!("\"{escaped}\""))
}

/// Several entries: one on each line where there are lines, and else separated by `;` outside of quotes.
/// What is empty is none: how blocks of lines end.
pub(super) fn split(text: &str) -> Vec<&str> {
    let parts = match text.contains('\n') {
        true => text.split('\n').collect(),
        false => at_semicolons(text),
    };
    let trimmed = parts.into_iter().map(str::trim);
    trimmed.filter(|part| !part.is_empty()).collect()
}

fn at_semicolons(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut open = None;
    let mut is_escaped = false;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match open {
            Some(_) if is_escaped => is_escaped = false,
            Some(_) if c == '\\' => is_escaped = true,
            Some(quote) if c == quote => open = None,
            Some(_) => {}
            None if c == ';' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            None => {
                let may_open = before.is_whitespace() || matches!(before, '=' | ';');
                open = (may_open && is_quote(c)).then_some(c);
            }
        }
        before = c;
    }
    parts.push(&text[start..]);
    parts
}

/// The value that a text begins with, and what stands behind it.
fn value(text: &str) -> Result<(String, &str), String> {
    let Some(quote) = text.chars().next().filter(|c| is_quote(*c)) else {
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        return Ok((text[..end].to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == quote {
            let rest = &text[at + 1..];
            if rest.starts_with(|c: char| !c.is_whitespace()) {
                return Err(format!(
                    "within the quotes a quote is `\\{quote}`; behind them stands a space"
                ));
            }
            return Ok((value, rest));
        }
        let literal = chars.next_if(|(_, next)| c == '\\' && (*next == quote || *next == '\\'));
        value.push(literal.map_or(c, |(_, next)| next));
    }
    Err(format!("a quote `{quote}` is opened and not closed"))
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, lead: &str, options: &[(&str, &str)]) {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let expect = Entry {
            lead: lead.to_owned(),
            options: options.iter().map(pair).collect(),
        };
        assert_eq!(parse(text), Ok(expect), "{text}");
    }

    #[track_caller]
    fn check_fault(text: &str, expect: &str) {
        let fault = parse(text).expect_err(text);
        assert!(fault.contains(expect), "{text}: {fault}");
    }

    #[test]
    fn takes_words_and_quoted_texts_apart() {
        check("", "", &[]);
        check(" a.log ", "a.log", &[]);
        check(
            "- format=json  slower=1s",
            "-",
            &[("format", "json"), ("slower", "1s")],
        );
        check("'my log' x=", "my log", &[("x", "")]);
        check("a=b c=d=e", "a=b", &[("c", "d=e")]);
        check(
            r#"- format="{time} {peer}" x=y"#,
            "-",
            &[("format", "{time} {peer}"), ("x", "y")],
        );
    }

    #[test]
    fn takes_escaped_quotes_literally_and_other_backslashes_as_they_are() {
        check(
            r#"- a="say \"x\" \\ \d 'y'" b='"{request}" \''"#,
            "-",
            &[("a", r#"say "x" \ \d 'y'"#), ("b", r#""{request}" '"#)],
        );
        check("it's.log a=b'c", "it's.log", &[("a", "b'c")]);
        check(r"a\b c=\", r"a\b", &[("c", r"\")]);
    }

    #[test]
    fn says_what_is_wrong_with_an_entry() {
        check_fault("my log", "`log` is no KEY=VALUE");
        check_fault("a log b=c", "`log` is no KEY=VALUE");
        check_fault("- format=\"a b", "`\"` is opened and not closed");
        check_fault("'", "`'` is opened and not closed");
        check_fault(r#"- a="\"#, "not closed");
        check_fault(r#"- a="b"c"#, "behind them stands a space");
    }

    #[test]
    fn reads_back_what_it_quotes() {
        for text in [
            "",
            "a",
            "a b",
            "a\nb",
            "\"",
            "'a'",
            r"\",
            r#"a \" b"#,
            "ü ß",
            "a;b",
            "x'y",
            r"\ ",
        ] {
            let entry = format!("{} k={}", quoted(text), quoted(text));
            check(&entry, text, &[("k", text)]);
            // Two of them can be told apart, but for line breaks, which separate by themselves.
            if !text.contains('\n') && !text.contains(';') {
                let both = format!("{entry};{entry}");
                assert_eq!(split(&both), [&entry, &entry], "{text}");
            }
        }
    }

    #[test]
    fn separates_by_lines_or_by_semicolons_outside_of_quotes() {
        assert_eq!(split("a;b c=d ; "), ["a", "b c=d"]);
        assert_eq!(split("a;b\n\nc\n"), ["a;b", "c"]);
        assert_eq!(split(r#"a f="x;\";y";'b;c'"#), [r#"a f="x;\";y""#, "'b;c'"]);
        assert_eq!(split("it's;b"), ["it's", "b"]);
        assert_eq!(split(" "), Vec::<&str>::new());
    }

    proptest! {
        #[test]
        fn reads_back_whatever_it_quotes(lead in any::<String>(), value in "[ab \"'\\\\;=\n]*") {
            let text = format!("{} k={} l={}", quoted(&lead), quoted(&value), quoted(&lead));
            let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
            let options = vec![pair("k", &value), pair("l", &lead)];
            prop_assert_eq!(parse(&text), Ok(Entry { lead, options }));
        }

        #[test]
        fn takes_any_text(text in "[ab \"'\\\\;=\n]*") {
            let entries = split(&text);
            prop_assert!(entries.iter().all(|entry| !entry.is_empty()));
            for entry in entries {
                let _ = parse(entry);
            }
        }
    }
}
