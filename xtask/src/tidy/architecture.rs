//! Every module of the shipped crates has its place in ARCHITECTURE.md.
//!
//! Takes the text of that page and all sources, gives findings; pure. A module is a file or a folder that the root of
//! a crate declares; its name stands in backticks in the section of its crate.

use std::collections::BTreeMap;

use super::Finding;
use super::source::Source;

pub(super) const PAGE: &str = "ARCHITECTURE.md";
/// What a section about the modules of a crate begins with: `### Modules of crates/NAME`.
const SECTION: &str = "### Modules of `";

pub(super) fn check(page: &str, sources: &[Source], findings: &mut Vec<Finding>) {
    let sections: BTreeMap<&str, &str> = page
        .split(SECTION)
        .skip(1)
        .filter_map(|section| section.split_once('`'))
        .collect();
    for (crate_name, module) in modules(sources) {
        let Some(section) = sections.get(crate_name) else {
            let text = format!("no section `{SECTION}{crate_name}``");
            findings.push(Finding::fault(PAGE, 1, "architecture", text));
            continue;
        };
        // `pool/{worker,threads}` and `pool` are both its line.
        let is_named = [
            format!("`{module}`"),
            format!("`{module}/"),
            format!("`{module} "),
        ]
        .iter()
        .any(|form| section.contains(form.as_str()));
        if !is_named {
            let text = format!("module `{module}` of `{crate_name}` has no line");
            findings.push(Finding::fault(PAGE, 1, "architecture", text));
        }
    }
}

/// Crate and name of each module that lies directly in a crate, in order and once.
fn modules(sources: &[Source]) -> Vec<(&str, &str)> {
    let mut modules: Vec<_> = sources
        .iter()
        .filter_map(|source| {
            let (name, rest) = source.path.strip_prefix("crates/")?.split_once("/src/")?;
            let module = rest.split('/').next()?.trim_end_matches(".rs");
            (!matches!(module, "lib" | "main" | "tests")).then_some((name, module))
        })
        .collect();
    modules.sort_unstable();
    modules.dedup();
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_modules_without_a_line() {
        let sources: Vec<_> = [
            "x/src/lib.rs",
            "x/src/a.rs",
            "x/src/b/mod.rs",
            "x/src/b/c.rs",
            "x/src/d.rs",
            "y/src/e.rs",
        ]
        .iter()
        .map(|path| Source::new(&format!("crates/{path}"), "//! A.\n"))
        .collect();
        let page = "# A\n### Modules of `x`\n| `a` | one |\n| `b/{c}` | two |\n";
        let mut findings = Vec::new();
        check(page, &sources, &mut findings);
        let texts: Vec<_> = findings
            .iter()
            .map(|finding| finding.text.as_str())
            .collect();
        assert_eq!(
            texts,
            [
                "module `d` of `x` has no line",
                "no section `### Modules of `y``"
            ]
        );
    }
}
