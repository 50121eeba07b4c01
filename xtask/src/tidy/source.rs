//! A Rust file as the rules see it.
//!
//! Takes path and text once; gives the views that rules ask for.

use super::scan;

/// One Rust file.
pub(super) struct Source {
    /// Relative to the checkout, with slashes.
    pub(super) path: String,
    /// As it is.
    pub(super) text: String,
    /// Without comments and literals.
    pub(super) code: String,
    /// Without tests either.
    pub(super) production: String,
    /// The strings and characters of the production code alone.
    pub(super) strings: String,
}

impl Source {
    pub(super) fn new(path: &str, text: &str) -> Source {
        let code = scan::blank_literals(text);
        let (production, strings) = if is_test_path(path) {
            (String::new(), String::new())
        } else {
            (
                scan::blank_tests(&code),
                scan::blank_tests_in(&scan::blank_all_but_strings(text), &code),
            )
        };
        Source {
            path: path.to_owned(),
            text: text.to_owned(),
            code,
            production,
            strings,
        }
    }

    /// Lines that are not tests.
    pub(super) fn production_lines_len(&self) -> usize {
        if is_test_path(&self.path) {
            return 0;
        }
        let is_test = |(code, production): (&str, &str)| {
            !code.trim().is_empty() && production.trim().is_empty()
        };
        let tests_len = self
            .code
            .lines()
            .zip(self.production.lines())
            .filter(|lines| is_test(*lines))
            .count();
        self.text.lines().count() - tests_len
    }

    /// Lines of code alone: neither tests, nor comments, nor blank lines. A line of a string counts.
    pub(super) fn code_lines_len(&self) -> usize {
        if is_test_path(&self.path) {
            return 0;
        }
        let uncommented = scan::blank_comments(&self.text);
        scan::blank_tests_in(&uncommented, &self.code)
            .lines()
            .filter(|line| !line.trim().is_empty())
            .count()
    }

    /// Line number of a position in any of the views.
    pub(super) fn line_of(&self, at: usize) -> usize {
        scan::line_of(&self.text, at)
    }
}

/// Files of tests alone: a module called `tests`, and what cargo keeps in `tests`.
fn is_test_path(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/") || path.starts_with("tests/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_lines_without_tests() {
        let text = "//! a\n\nfn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
        assert_eq!(
            Source::new("crates/a/src/a.rs", text).production_lines_len(),
            4
        );
        assert_eq!(
            Source::new("crates/a/src/tests.rs", text).production_lines_len(),
            0
        );
    }
    #[test]
    fn counts_lines_of_code_alone() {
        let text = "//! a\n\n// b\nfn a() {\n    /* c\n    d */ \"e\n\n    // f\"\n}\n\
                    #[cfg(test)]\nmod tests {\n    fn b() { \"\n//\n\" }\n}\n";
        // `fn a() {`, the first and the last line of the string, `}`.
        assert_eq!(Source::new("crates/a/src/a.rs", text).code_lines_len(), 4);
        assert_eq!(Source::new("crates/a/tests/a.rs", text).code_lines_len(), 0);
    }
}
