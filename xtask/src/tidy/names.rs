//! Names: a type's is its own in its crate, a thread's is its module's, and a withdrawn one does not come back.
//!
//! Takes all sources, gives findings; pure. Tests are free.

use std::collections::BTreeMap;

use super::source::Source;
use super::table::{THREADS, WITHDRAWN};
use super::{Finding, scan};

/// Words that begin the definition of a type.
const DEFINITIONS: [&str; 4] = ["struct", "enum", "trait", "union"];

/// What the names of all threads of ours begin with.
const THREAD_PREFIX: &str = "mp-";

pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    check_types(sources, findings);
    check_threads(sources, findings);
    for source in sources.iter().filter(|source| crate_of(source).is_some()) {
        check_words(source, findings);
    }
}

/// The folder of the crate that a shipped source belongs to.
fn crate_of(source: &Source) -> Option<&str> {
    let (name, rest) = source.path.strip_prefix("crates/")?.split_once('/')?;
    rest.starts_with("src/").then_some(name)
}

/// A reader who has met a name once knows it.
fn check_types(sources: &[Source], findings: &mut Vec<Finding>) {
    let mut first: BTreeMap<(&str, &str), &Source> = BTreeMap::new();
    for source in sources {
        let Some(crate_name) = crate_of(source) else {
            continue;
        };
        for (at, name) in types(&source.production) {
            if let Some(other) = first.insert((crate_name, name), source) {
                let text = format!("`{name}` is a type of {} too", other.path);
                let line = source.line_of(at);
                findings.push(Finding::fault(&source.path, line, "type-name", text));
            }
        }
    }
}

/// Types that are defined in `code`, with where.
fn types(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for word in DEFINITIONS {
        for at in scan::words(code, word) {
            let rest = &code[at + word.len()..];
            let name = name_at(rest.trim_start());
            if rest.starts_with(char::is_whitespace)
                && name.starts_with(|first: char| first.is_ascii_uppercase())
            {
                found.push((at, name));
            }
        }
    }
    found.sort_unstable();
    found
}

fn name_at(code: &str) -> &str {
    let end = code.find(|c: char| !c.is_alphanumeric() && c != '_');
    &code[..end.unwrap_or(code.len())]
}

/// An identifier counts whatever its case, and as a part of a longer one: `UsherDesk`, `usher_desk`.
fn check_words(source: &Source, findings: &mut Vec<Finding>) {
    let code = &source.production;
    let mut at = 0;
    while at < code.len() {
        let Some(start) = code[at..].find(|c: char| c.is_ascii_alphabetic() || c == '_') else {
            return;
        };
        let name = name_at(&code[at + start..]);
        for part in parts(name) {
            if let Some((word, instead)) = WITHDRAWN.iter().find(|(word, _)| *word == part) {
                let text = format!("`{name}`: `{word}` is withdrawn, write {instead}");
                let line = source.line_of(at + start);
                findings.push(Finding::fault(&source.path, line, "withdrawn", text));
            }
        }
        at += start + name.len().max(1);
    }
}

/// Who sees a thread in `ps -L` finds its code by its name: `mp-log-access` is in `log/access.rs`.
fn check_threads(sources: &[Source], findings: &mut Vec<Finding>) {
    let shipped = || sources.iter().filter(|source| crate_of(source).is_some());
    let modules: Vec<String> = shipped()
        .map(|source| words_of_path(&source.path))
        .collect();
    for source in shipped() {
        for (at, _) in source.strings.match_indices(THREAD_PREFIX) {
            let rest = &source.strings[at + THREAD_PREFIX.len()..];
            let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '-');
            let name = rest[..end.unwrap_or(rest.len())].trim_end_matches('-');
            let is_module = |words: &String| words.ends_with(&format!("-{name}"));
            // `mp-{pool}-{number}` is named by who configures the pool.
            let is_known = name.is_empty()
                || modules.iter().any(is_module)
                || THREADS.iter().any(|(thread, _)| *thread == name);
            if !is_known {
                let text = format!("no module is called after the thread `{THREAD_PREFIX}{name}`");
                let line = source.line_of(at);
                findings.push(Finding::fault(&source.path, line, "thread", text));
            }
        }
    }
}

/// `crates-x-src-log-access` of `crates/x/src/log/access.rs`.
fn words_of_path(path: &str) -> String {
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    path.replace(['/', '_'], "-")
}

/// The words of an identifier, in lower case.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if c == '_' || (c.is_ascii_uppercase() && was_lower) {
            parts.push(String::new());
        }
        was_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
        if c != '_' {
            let last = parts.last_mut().expect("there is always one");
            last.push(c.to_ascii_lowercase());
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(texts: &[(&str, &str)], expect: &[(&str, usize)]) {
        let sources: Vec<_> = texts
            .iter()
            .map(|(path, text)| Source::new(path, text))
            .collect();
        let mut findings = Vec::new();
        super::check(&sources, &mut findings);
        let got: Vec<_> = findings
            .iter()
            .map(|finding| (finding.rule, finding.line))
            .collect();
        assert_eq!(got, expect, "{findings:?}");
    }

    #[test]
    fn a_type_name_is_used_once_in_a_crate() {
        let a = ("crates/x/src/a.rs", "struct Line;\nenum Other {}\n");
        check(
            &[a, ("crates/x/src/b.rs", "\npub(crate) trait Line {}\n")],
            &[("type-name", 2)],
        );
        check(&[a, ("crates/y/src/b.rs", "struct Line;\n")], &[]);
        check(&[a, ("crates/x/tests/b.rs", "struct Line;\n")], &[]);
        check(
            &[
                a,
                (
                    "crates/x/src/b.rs",
                    "// struct Line\nfn constructor() {}\n#[cfg(test)]\nmod t { struct Line; }\n",
                ),
            ],
            &[],
        );
    }

    #[test]
    fn a_withdrawn_word_does_not_come_back() {
        let path = "crates/x/src/a.rs";
        check(
            &[(path, "fn a(ush: u8) {\n    usher_of();\n}\n")],
            &[("withdrawn", 2)],
        );
        check(&[(path, "struct SharedUsher;\n")], &[("withdrawn", 1)]);
        check(&[(path, "// usher\nfn crusher() { \"usher\"; }\n")], &[]);
        check(&[("xtask/src/a.rs", "fn usher() {}\n")], &[]);
    }

    #[test]
    fn a_thread_is_called_after_its_module() {
        let named = "fn a() { start(\"mp-log-access\"); start(\"mp-access\"); }\n";
        check(&[("crates/x/src/log/access.rs", named)], &[]);
        let started = ("crates/x/src/log/mod.rs", named);
        check(&[started, ("crates/x/src/log/access.rs", "")], &[]);
        check(&[started], &[("thread", 1), ("thread", 1)]);
        let numbered =
            "fn a() { format!(\"mp-driver-{index}\"); format!(\"mp-{pool}-{number}\"); }\n";
        check(&[("crates/x/src/driver/mod.rs", numbered)], &[]);
        check(&[("crates/x/src/pool.rs", numbered)], &[("thread", 1)]);
    }
}
