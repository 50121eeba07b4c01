//! Words that mark unfinished work.
//!
//! Takes a text of any language, gives findings; pure. Macros that stand for missing code are clippy's.

use super::{Finding, scan};

/// Put together here, so that this file does not break its own rule.
const NOTES: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

/// Notes to oneself, in comments too.
pub(super) fn check_text(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for note in NOTES {
        for at in scan::words(text, note) {
            let said = format!("`{note}`: finish it, or write it down where work is planned");
            findings.push(Finding::fault(path, scan::line_of(text, at), "words", said));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[usize]) {
        let mut findings = Vec::new();
        check_text("a.rs", text, &mut findings);
        let lines: Vec<_> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, expect, "{text}");
    }

    #[test]
    fn finds_notes_and_missing_code() {
        check(&format!("//! A.\n// {}: later\n", NOTES[0]), &[2]);
        check(&format!("//! A.\n# {}\n", NOTES[1]), &[2]);
    }

    #[test]
    fn leaves_other_words_alone() {
        check(&format!("const {}_LIST: u8 = 1;\n", NOTES[0]), &[]);
    }
}
