//! Edges between the crates, as their manifests state them.
//!
//! Takes a manifest, gives findings; pure. Reads just the part of TOML that our manifests use: tables of
//! dependencies with one dependency a line.

use super::Finding;
use super::table::{CRATES, CrateRule, Others};

pub(super) fn check(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let Some(name) = path
        .strip_prefix("crates/")
        .and_then(|rest| rest.strip_suffix("/Cargo.toml"))
    else {
        return;
    };
    let Some(rule) = CRATES.iter().find(|rule| rule.name == name) else {
        let said = format!(
            "crate `{name}` has no line in xtask/src/tidy/table.rs: a crate must forbid something"
        );
        findings.push(Finding::fault(path, 1, "crate", said));
        return;
    };
    for dependency in dependencies(text) {
        if let Some(said) = objection(rule, &dependency) {
            findings.push(Finding::fault(path, dependency.line, "crate", said));
        }
    }
}

/// One line of a table of dependencies.
#[derive(Debug, PartialEq, Eq)]
struct Dependency {
    line: usize,
    name: String,
    table: Table,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    /// Of the crate itself, or of its build script.
    Product,
    /// Of its tests and examples.
    Dev,
}

fn objection(rule: &CrateRule, dependency: &Dependency) -> Option<String> {
    let name = dependency.name.as_str();
    if CRATES
        .iter()
        .any(|other| other.name == name || other.package == name)
    {
        let is_allowed = rule
            .ours
            .iter()
            .any(|ours| *ours == name || package_of(ours) == name);
        return (!is_allowed)
            .then(|| format!("`{}` may not use `{name}`: {}", rule.name, rule.forbids));
    }
    let is_allowed = match rule.others {
        _ if dependency.table == Table::Dev => true,
        Others::Only(names) => names.contains(&name),
        Others::AllBut(names) => !names.contains(&name),
    };
    (!is_allowed).then(|| {
        format!(
            "`{}` may not depend on `{name}`: {}",
            rule.name, rule.forbids
        )
    })
}

fn package_of(name: &str) -> &'static str {
    CRATES
        .iter()
        .find(|rule| rule.name == name)
        .map_or("", |rule| rule.package)
}

fn dependencies(text: &str) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut table = None;
    for (line, content) in (1..).zip(text.lines().map(str::trim)) {
        if let Some(header) = content.strip_prefix('[') {
            let header = header.trim_end_matches(']');
            table = table_of(header);
            // `[dependencies.name]`
            if let Some((rest, name)) = header.rsplit_once("dependencies.") {
                let table = if rest.ends_with("dev-") {
                    Table::Dev
                } else {
                    Table::Product
                };
                found.push(Dependency {
                    line,
                    name: name.to_owned(),
                    table,
                });
            }
        } else if let (Some(table), Some((key, value))) = (table, content.split_once('='))
            && !content.starts_with('#')
        {
            found.push(Dependency {
                line,
                name: dependency_name(key, value),
                table,
            });
        }
    }
    found
}

fn table_of(header: &str) -> Option<Table> {
    match header.rsplit_once('.').map_or(header, |(_, last)| last) {
        "dependencies" | "build-dependencies" => Some(Table::Product),
        "dev-dependencies" => Some(Table::Dev),
        _ => None,
    }
}

/// The package that is meant, whatever name it is used by.
fn dependency_name(key: &str, value: &str) -> String {
    let renamed = value
        .split_once("package")
        .and_then(|(_, rest)| rest.split('"').nth(1));
    let name = renamed.unwrap_or_else(|| key.trim().split('.').next().unwrap_or(""));
    name.trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, text: &str, expect: &[usize]) {
        let mut findings = Vec::new();
        super::check(&format!("crates/{name}/Cargo.toml"), text, &mut findings);
        let lines: Vec<_> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, expect, "{findings:?}");
    }

    #[test]
    fn reads_every_form_of_a_dependency() {
        let text = "[package]\nname = \"a\"\n[dependencies]\nb.workspace = true\n# c = \"1\"\nd = { package = \"e\", version = \"1\" }\n\
                    [target.'cfg(loom)'.dependencies]\nloom = \"0.7\"\n[dev-dependencies]\nf = \"1\"\n[dependencies.g]\nversion = \"1\"\n\
                    [features]\nh = []\n";
        let names: Vec<_> = dependencies(text)
            .into_iter()
            .map(|found| (found.line, found.name, found.table))
            .collect();
        let expect = [
            (4, "b", Table::Product),
            (6, "e", Table::Product),
            (8, "loom", Table::Product),
            (10, "f", Table::Dev),
            (11, "g", Table::Product),
        ];
        assert_eq!(
            names,
            expect.map(|(line, name, table)| (line, name.to_owned(), table))
        );
    }

    #[test]
    fn keeps_crates_apart() {
        check(
            "http",
            "[dependencies]\nhttparse.workspace = true\nmemchr.workspace = true\n",
            &[],
        );
        check("http", "[dependencies]\ntelemetry.workspace = true\n", &[2]);
        check(
            "http",
            "[dependencies]\nx = { package = \"milepost-telemetry\", path = \"../telemetry\" }\n",
            &[2],
        );
        check("http", "[dependencies]\ntokio = \"1\"\n", &[2]);
        check(
            "queueing",
            "[dependencies]\ntelemetry.workspace = true\n[dev-dependencies]\nproptest = \"1\"\n",
            &[],
        );
        check(
            "queueing",
            "[dev-dependencies]\nserver.workspace = true\n",
            &[2],
        );
        check(
            "server",
            "[dependencies]\nwire.workspace = true\npyo3 = \"0.28\"\n",
            &[3],
        );
        check(
            "server",
            "[dependencies]\nmilepost-python = { path = \"../python\" }\n",
            &[2],
        );
        check("nosuch", "[dependencies]\n", &[1]);
    }
}
