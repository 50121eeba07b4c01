//! `xtask tidy`: the rules of this project that neither the compiler nor clippy knows.
//!
//! Takes the checkout, gives faults with file, line and rule on stdout, a closing count, and exit 1 when
//! there is a fault. The rules are functions from a source or a manifest to faults and read nothing
//! themselves; this file does the reading.

mod modules;
mod table;

mod architecture;
mod line_ends;
mod names;
mod packages;
mod purity;
mod shape;
mod words;

mod scan;
mod source;
mod tree;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use self::source::Source;

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    Fault,
    Warning,
}

/// A rule that is broken somewhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    weight: Weight,
    rule: &'static str,
    text: String,
}

impl Finding {
    fn fault(path: &str, line: usize, rule: &'static str, text: impl Into<String>) -> Finding {
        Finding {
            path: path.to_owned(),
            line,
            weight: Weight::Fault,
            rule,
            text: text.into(),
        }
    }

    fn warning(path: &str, line: usize, rule: &'static str, text: impl Into<String>) -> Finding {
        Finding {
            weight: Weight::Warning,
            ..Finding::fault(path, line, rule, text)
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let weight = match self.weight {
            Weight::Fault => "",
            Weight::Warning => "warning: ",
        };
        write!(
            f,
            "{}:{}: {weight}{}: {}",
            self.path, self.line, self.rule, self.text
        )
    }
}

/// Checks the checkout at `root`, prints what it found.
///
/// # Errors
/// Something cannot be read, or there is nothing.
pub(crate) fn run(root: &Path) -> Result<ExitCode, String> {
    let texts = tree::read(root)?;
    // A tool that was built in a checkout which is gone would find everything in order.
    if texts.is_empty() {
        return Err(format!("{}: there is nothing to check", root.display()));
    }
    let findings = check(&texts);
    for finding in &findings {
        println!("{finding}");
    }
    let faults_len = findings
        .iter()
        .filter(|finding| finding.weight == Weight::Fault)
        .count();
    let warnings_len = findings.len() - faults_len;
    println!(
        "tidy: {} files, {faults_len} faults, {warnings_len} warnings",
        texts.len()
    );
    Ok(if faults_len == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Lines of code in a Rust file, without tests, comments and blank lines.
pub(crate) fn code_lines_len(path: &str, text: &str) -> usize {
    Source::new(path, text).code_lines_len()
}

/// All findings in `texts` (path relative to the checkout, content), by file and line.
fn check(texts: &[(String, String)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut sources = Vec::new();
    let mut page = "";
    for (path, text) in texts {
        words::check_text(path, text, &mut findings);
        if path.ends_with(".rs") {
            sources.push(Source::new(path, text));
        } else if path == architecture::PAGE {
            page = text.as_str();
        } else if path.ends_with("Cargo.toml") {
            packages::check(path, text, &mut findings);
        }
    }
    for source in &sources {
        shape::check(source, &mut findings);
        purity::check(source, &mut findings);
    }
    line_ends::check(&sources, &mut findings);
    names::check(&sources, &mut findings);
    modules::check(&sources, &mut findings);
    architecture::check(page, &sources, &mut findings);
    findings.sort();
    findings.dedup();
    findings
}
