//! Modules of the server and the edges between them.
//!
//! Takes all sources, gives a finding for every path from one module into another that the table does not
//! allow, and for every line of the table that no code needs. `super::` chains are followed as `crate::`
//! paths are; tests are free.

use std::collections::{BTreeMap, BTreeSet};

use super::source::Source;
use super::table::{CONNECTORS, EDGES, VOCABULARY};
use super::{Finding, scan};

const SERVER: &str = "crates/server/src/";
const TABLE: &str = "xtask/src/tidy/table.rs";

pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let modules: BTreeSet<String> = sources
        .iter()
        .filter_map(|source| module_of(&source.path)?.into_iter().next())
        .collect();
    let mut used = BTreeSet::new();
    for source in sources {
        for (line, from, to) in edges(source, &modules) {
            used.insert((from.clone(), to.clone()));
            if !is_allowed(&from, &to) {
                let text = format!(
                    "module `{from}` uses module `{to}`; only connecting modules do ({TABLE})"
                );
                findings.push(Finding::fault(&source.path, line, "edge", text));
            }
        }
    }
    // A checkout without a server has no use for the table.
    for (from, to, _) in EDGES.iter().filter(|_| !modules.is_empty()) {
        if !used.contains(&((*from).to_owned(), (*to).to_owned())) {
            let text = format!("edge `{from}` to `{to}` is allowed and not used: take it out");
            findings.push(Finding::warning(TABLE, 1, "edge", text));
        }
    }
}

fn is_allowed(from: &str, to: &str) -> bool {
    if VOCABULARY.contains(&from) {
        return VOCABULARY.contains(&to) || EDGES.iter().any(|(a, b, _)| (*a, *b) == (from, to));
    }
    VOCABULARY.contains(&to)
        || (CONNECTORS.contains(&from) && to != "lib")
        || EDGES.iter().any(|(a, b, _)| (*a, *b) == (from, to))
}

/// The edges that leave the module of `source`, with their line.
fn edges(source: &Source, modules: &BTreeSet<String>) -> Vec<(usize, String, String)> {
    let Some(module) = module_of(&source.path) else {
        return Vec::new();
    };
    let from = module_in(&module, modules);
    let mut edges = BTreeMap::new();
    let mut note = |at: usize, path: &[String]| {
        let to = module_in(path, modules);
        if to != from && !path.is_empty() {
            edges.entry((source.line_of(at), to)).or_insert(());
        }
    };
    let code = &source.production;
    for at in scan::words(code, "crate") {
        for path in paths_at(code, at).iter().filter(|path| path.len() > 1) {
            note(at, &path[1..]);
        }
    }
    for at in scan::words(code, "super").filter(|at| !code[..*at].trim_end().ends_with("::")) {
        let here: Vec<String> = module
            .iter()
            .cloned()
            .chain(modules_around(code, at))
            .collect();
        for path in paths_at(code, at) {
            let ups = path.iter().take_while(|part| *part == "super").count();
            let base = &here[..here.len().saturating_sub(ups)];
            note(at, &[base, &path[ups..]].concat());
        }
    }
    edges
        .into_keys()
        .map(|(line, to)| (line, from.clone(), to))
        .collect()
}

/// `crates/server/src/log/writer.rs` is `log`, `writer`; the crate's root is empty.
fn module_of(path: &str) -> Option<Vec<String>> {
    let path = path.strip_prefix(SERVER)?.strip_suffix(".rs")?;
    let mut parts: Vec<String> = path.split('/').map(str::to_owned).collect();
    if matches!(
        parts.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        parts.pop();
    }
    Some(parts)
}

/// The module that a path within the crate leads into.
fn module_in(path: &[String], modules: &BTreeSet<String>) -> String {
    match path.first() {
        Some(first) if modules.contains(first) => first.clone(),
        _ => "lib".to_owned(),
    }
}

/// Names of the modules written around `at`, outermost first.
fn modules_around(code: &str, at: usize) -> Vec<String> {
    let mut names = Vec::new();
    for start in scan::words(&code[..at], "mod") {
        let after = code[start + 3..].trim_start();
        let (name, rest) = split_name(after);
        if rest.trim_start().starts_with('{') && scan::item_end(code.as_bytes(), start) > at {
            names.push(name.to_owned());
        }
    }
    names
}

/// The paths of the `use` tree, or the one path, that starts with the word at `at`.
pub(super) fn paths_at(code: &str, at: usize) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    read_tree(&code[at..], &mut Vec::new(), &mut paths);
    paths
}

/// Reads one tree behind `prefix`, gives what follows it.
fn read_tree<'a>(code: &'a str, prefix: &mut Vec<String>, paths: &mut Vec<Vec<String>>) -> &'a str {
    let code = code.trim_start();
    if let Some(mut rest) = code.strip_prefix('{') {
        loop {
            rest = rest.trim_start().trim_start_matches(',').trim_start();
            let before = rest.len();
            if rest.is_empty() || rest.starts_with('}') {
                return rest.get(1..).unwrap_or("");
            }
            rest = read_tree(rest, prefix, paths);
            if rest.len() == before {
                return rest;
            }
        }
    }
    let (name, rest) = split_name(code);
    if name.is_empty() {
        paths.push(prefix.clone());
        return rest.strip_prefix('*').unwrap_or(rest);
    }
    prefix.push(name.to_owned());
    let rest = match rest.trim_start().strip_prefix("::") {
        Some(deeper) => read_tree(deeper, prefix, paths),
        None => {
            paths.push(prefix.clone());
            skip_renaming(rest)
        }
    };
    prefix.pop();
    rest
}

fn skip_renaming(rest: &str) -> &str {
    match rest.trim_start().strip_prefix("as ") {
        Some(renamed) => split_name(renamed.trim_start()).1,
        None => rest,
    }
}

fn split_name(code: &str) -> (&str, &str) {
    let end = code
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(code.len());
    code.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(code: &str) -> Vec<String> {
        paths_at(code, 0)
            .iter()
            .map(|path| path.join("::"))
            .collect()
    }

    fn check(path: &str, text: &str, expect: &[&str]) {
        let modules = ["pool", "log", "route", "handler", "config"]
            .map(str::to_owned)
            .into();
        let edges = edges(&Source::new(&format!("{SERVER}{path}"), text), &modules);
        let got: Vec<_> = edges
            .iter()
            .map(|(line, from, to)| format!("{line} {from} {to}"))
            .collect();
        assert_eq!(got, expect, "{text}");
    }

    #[test]
    fn reads_trees_of_paths() {
        assert_eq!(paths("crate::a::b;"), ["crate::a::b"]);
        assert_eq!(
            paths("crate::{a, b::{c, d as e}, f::*};"),
            ["crate::a", "crate::b::c", "crate::b::d", "crate::f"]
        );
        assert_eq!(paths("crate::a::B::<C>::new()"), ["crate::a::B"]);
        assert_eq!(paths("crate) fn"), ["crate"]);
        assert_eq!(paths("crate::{"), Vec::<String>::new());
    }

    #[test]
    fn finds_edges_by_use_and_by_path() {
        check("route.rs", "use crate::pool::Worker;", &["1 route pool"]);
        check(
            "route.rs",
            "\nuse crate::{log::Pen, pool};",
            &["2 route log", "2 route pool"],
        );
        check(
            "route.rs",
            "fn a() {\n    crate::log::say(crate::route::b)\n}",
            &["2 route log"],
        );
        check("route.rs", "use crate::Thing;", &["1 route lib"]);
        check(
            "log/writer.rs",
            "use super::Pen; use super::super::pool::Worker;",
            &["1 log pool"],
        );
        check(
            "log/mod.rs",
            "use super::pool::Worker; use self::writer::Writer;",
            &["1 log pool"],
        );
        check("lib.rs", "use crate::pool::Pool;", &["1 lib pool"]);
    }

    #[test]
    fn sees_no_edge_in_tests_comments_and_inner_modules() {
        check(
            "route.rs",
            "// crate::pool\npub(crate) fn a() {}\n#[cfg(test)]\nmod tests { use crate::pool; }",
            &[],
        );
        check(
            "route.rs",
            "mod inner { use super::Router; use super::super::pool::Worker; }",
            &["1 route pool"],
        );
        check(
            "handler/files/page.rs",
            "use super::kind::ContentType;",
            &[],
        );
        check("log/tests.rs", "use crate::pool::Worker;", &[]);
    }

    #[test]
    fn vocabulary_uses_only_vocabulary() {
        assert!(is_allowed("route", "config"));
        assert!(is_allowed("pool", "log"));
        assert!(!is_allowed("config", "pool"));
        assert!(!is_allowed("route", "pool"));
        assert!(!is_allowed("pool", "lib"));
    }
}
