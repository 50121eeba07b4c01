//! Words that mark unfinished work.
//!
//! Takes a text of any language, or a Rust source; gives findings; pure.

use super::source::Source;
use super::{Finding, scan};

/// Put together here, so that this file does not break its own rule.
const NOTES: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];
const MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// Notes to oneself, in comments too.
pub(super) fn check_text(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for note in NOTES {
        for at in scan::words(text, note) {
            let said = format!("`{note}`: finish it, or write it down where work is planned");
            findings.push(Finding::fault(path, scan::line_of(text, at), "words", said));
        }
    }
}

/// Macros that stand for missing code, and tests that do not run.
pub(super) fn check_code(source: &Source, findings: &mut Vec<Finding>) {
    for name in MACROS {
        for at in scan::words(&source.code, name) {
            if source.code[at + name.len()..].starts_with('!') {
                let said = format!("`{name}!` stands for missing code");
                findings.push(Finding::fault(
                    &source.path,
                    source.line_of(at),
                    "words",
                    said,
                ));
            }
        }
    }
    for (at, _) in source.code.match_indices("#[ignore") {
        let said = "an ignored test proves nothing: repair it or take it out";
        findings.push(Finding::fault(
            &source.path,
            source.line_of(at),
            "words",
            said,
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[usize]) {
        let mut findings = Vec::new();
        check_text("a.rs", text, &mut findings);
        check_code(&Source::new("a.rs", text), &mut findings);
        let lines: Vec<_> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, expect, "{text}");
    }

    #[test]
    fn finds_notes_and_missing_code() {
        check(&format!("//! A.\n// {}: later\n", NOTES[0]), &[2]);
        check(&format!("//! A.\n# {}\n", NOTES[1]), &[2]);
        check("fn a() {\n    todo!()\n}\n", &[2]);
        check("fn a() { unimplemented!(\"b\") }\n", &[1]);
        check(
            "\n#[ignore]\nfn a() {}\n#[ignore = \"slow\"]\nfn b() {}\n",
            &[2, 4],
        );
    }

    #[test]
    fn leaves_other_words_alone() {
        check("fn todo() {} // todo!() and #[ignore]\n", &[]);
        check(&format!("const {}_LIST: u8 = 1;\n", NOTES[0]), &[]);
    }
}
