//! Text from outside, and lines of a limited width.
//!
//! Takes text, gives text that no terminal obeys and that ends no element of a page, cut or broken at a width.

/// Columns of a terminal that no line exceeds.
pub const WIDTH_MAX: usize = 100;
/// Where the text of a labelled line begins.
const INDENT: usize = 14;

/// Text from outside that no terminal obeys: what is not printable is `\xHH`, cut at `columns_max`.
pub fn harmless(text: impl AsRef<[u8]>, columns_max: usize) -> String {
    let mut shown = String::new();
    // A log may hold any bytes: what is no UTF-8 is shown byte by byte, and what follows it is text again.
    for chunk in text.as_ref().utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_harmful(character) {
                shown.push_str(&format!("\\x{:02x}", u32::from(character)));
            } else {
                shown.push(character);
            }
        }
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    if width(&shown) > columns_max {
        // One column is kept for the sign that says that something is missing.
        let mut left = columns_max.saturating_sub(1);
        let fits = |character: &char| {
            let wide = width_of(*character);
            let has_room = wide <= left;
            left = left.saturating_sub(wide);
            has_room
        };
        shown = shown.chars().take_while(fits).collect();
        shown.push('…');
    }
    shown
}

/// Control characters, and those that turn the direction of writing or have no width.
fn is_harmful(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Text from outside that ends neither an element nor an attribute, and drives no terminal.
pub fn escaped(text: impl AsRef<[u8]>, columns_max: usize) -> String {
    let mut out = String::new();
    for character in harmless(text, columns_max).chars() {
        match character {
            // Both quotes: texts stand in attributes as well, as the label of a chart does.
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// What stands in backticks, as code of a page; the text is escaped already.
pub(crate) fn coded(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    // An odd number of backticks belongs to no code: a command may have been cut within.
    if parts.len().is_multiple_of(2) {
        return text.to_owned();
    }
    let parts = parts.iter().enumerate();
    let parts = parts.map(|(index, part)| match index % 2 {
        0 => (*part).to_owned(),
        _ => format!("<code>{part}</code>"),
    });
    parts.collect()
}

/// Columns of a terminal that a text takes: two for the characters of East Asia and for pictures.
pub fn width(text: &str) -> usize {
    text.chars().map(width_of).sum()
}

fn width_of(character: char) -> usize {
    let is_wide = matches!(u32::from(character), 0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1faff | 0x2_0000..=0x3_fffd);
    1 + usize::from(is_wide)
}

/// `label         text`, with further lines below the text.
pub fn labelled(label: &str, text: &str) -> Vec<String> {
    let lines = broken(text, WIDTH_MAX - INDENT);
    // The label stands beside the first line alone.
    let heads = std::iter::once(label).chain(std::iter::repeat(""));
    let whole = heads.zip(lines).map(|(head, line)| {
        let missing = INDENT.saturating_sub(width(head)).max(1);
        format!("{head}{}{line}", " ".repeat(missing))
    });
    whole.collect()
}

/// Text in lines of at most [`WIDTH_MAX`] columns, joined; those after the first are indented.
pub fn wrapped(text: &str) -> String {
    const INDENTED: &str = "    ";
    broken(text, WIDTH_MAX - INDENTED.len()).join(&format!("\n{INDENTED}"))
}

/// Text in lines of at most `width_max`; at least one line. A word that is longer is cut.
pub fn broken(text: &str, width_max: usize) -> Vec<String> {
    assert!(width_max >= 2, "a line has room for the widest character");
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in words(text) {
        // Widths, not characters: a line of a terminal ends where its columns do.
        if !line.is_empty() && width(&line) + 1 + width(&word) <= width_max {
            line.push(' ');
            line.push_str(&word);
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        // A word that is wider than a line is cut wherever the line ends; what was on the line before is kept.
        for character in word.chars() {
            if width(&line) + width_of(character) > width_max {
                lines.push(std::mem::take(&mut line));
            }
            line.push(character);
        }
    }
    // An empty text is one empty line: a label without a text is still a line.
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// Words, and numbers with their units as one: `12` at the end of a line and `ms` on the next one are misread.
fn words(text: &str) -> Vec<String> {
    const UNITS: [&str; 10] = ["ns", "µs", "ms", "s", "%", "B", "KB", "MB", "GB", "TB"];
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match words.last_mut() {
            Some(last)
                if UNITS.contains(&word) && last.ends_with(|end: char| end.is_ascii_digit()) =>
            {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// A sentence, with a capital and its end.
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    let end = if text.ends_with(['.', ':']) { "" } else { "." };
    first.chain(letters).chain(end.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaks_at_words_and_cuts_what_is_too_long() {
        assert_eq!(broken("", 5), [""]);
        assert_eq!(broken("a bcdefghijk l", 5), ["a", "bcdef", "ghijk", "l"]);
        assert_eq!(broken("took 12 ms or", 7), ["took", "12 ms", "or"]);
        assert_eq!(broken("日本語", 4), ["日本", "語"]);
        assert_eq!(labelled("counts", "1"), ["counts        1"]);
    }

    #[test]
    fn obeys_no_text_from_outside() {
        assert_eq!(
            harmless(b"/a\x1b[2J\n\xff\xe2\x80\xae", 40),
            "/a\\x1b[2J\\x0a\\xff\\x202e"
        );
        assert_eq!(harmless("abcdef", 4), "abc…");
        assert_eq!(harmless("日本語", 4), "日…");
        assert_eq!(
            escaped("<b title='x'>&\"", 99),
            "&lt;b title=&#39;x&#39;&gt;&amp;&quot;"
        );
    }
}
