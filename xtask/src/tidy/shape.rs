//! Shape of a file: how long it is and how it opens.
//!
//! Takes a source, gives findings; pure.

use super::Finding;
use super::source::Source;
use super::table::LONG_FILES;

const LINES_LEN_WARN: usize = 600;
const LINES_LEN_MAX: usize = 1000;

pub(super) fn check(source: &Source, findings: &mut Vec<Finding>) {
    check_length(source, findings);
    if !source.text.starts_with("//!") {
        let text = "the file does not open with `//!`: what it is, takes, gives, must not touch";
        findings.push(Finding::fault(&source.path, 1, "opening", text));
    }
}

fn check_length(source: &Source, findings: &mut Vec<Finding>) {
    if LONG_FILES.iter().any(|(path, _)| *path == source.path) {
        return;
    }
    let len = source.production_lines_len();
    if len > LINES_LEN_MAX {
        let text = format!("{len} lines without tests, {LINES_LEN_MAX} allowed: split it by noun");
        findings.push(Finding::fault(&source.path, 1, "length", text));
    } else if len > LINES_LEN_WARN {
        let text = format!("{len} lines without tests: split it by noun before {LINES_LEN_MAX}");
        findings.push(Finding::warning(&source.path, 1, "length", text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str, expect: &[(usize, &str)]) {
        let mut findings = Vec::new();
        super::check(&Source::new(path, text), &mut findings);
        let got: Vec<_> = findings
            .iter()
            .map(|finding| (finding.line, finding.rule))
            .collect();
        assert_eq!(got, expect, "{path}");
    }

    #[test]
    fn demands_an_opening() {
        check("crates/http/src/a.rs", "//! A.\nfn a() {}\n", &[]);
        check(
            "crates/http/src/a.rs",
            "// A.\nfn a() {}\n",
            &[(1, "opening")],
        );
        check("crates/http/src/a.rs", "", &[(1, "opening")]);
    }

    #[test]
    fn warns_of_long_files_and_refuses_longer_ones() {
        let text = |len: usize| format!("//! A.\n{}", "fn a() {}\n".repeat(len - 1));
        check("crates/http/src/a.rs", &text(600), &[]);
        check("crates/http/src/a.rs", &text(601), &[(1, "length")]);
        check("crates/http/src/a.rs", &text(1001), &[(1, "length")]);
        check("crates/http/src/tests.rs", &text(1001), &[]);
        check(LONG_FILES[0].0, &text(1001), &[]);
    }
}
