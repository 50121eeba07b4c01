//! Pure crates name nothing impure.
//!
//! Takes a source of a pure crate, gives findings; pure itself. Tests are free: they may need a thread to
//! show what two of them do. Manifests are looked at in `packages`.

use super::source::Source;
use super::table::{CLOCK_FILES, PURE_CRATES};
use super::{Finding, scan};

/// Parts of std with the world behind them.
const WORLDLY: [&str; 6] = ["net", "fs", "thread", "process", "env", "os"];
/// Plain values that live in a worldly module.
const VALUES: [&str; 6] = [
    "IpAddr",
    "Ipv4Addr",
    "Ipv6Addr",
    "SocketAddr",
    "SocketAddrV4",
    "SocketAddrV6",
];
const CLOCKS: [&str; 2] = ["SystemTime", "Instant"];

pub(super) fn check(source: &Source, findings: &mut Vec<Finding>) {
    let is_pure = |name: &&str| source.path.starts_with(&format!("crates/{name}/src/"));
    let Some(name) = PURE_CRATES.iter().find(|name| is_pure(name)) else {
        return;
    };
    let mut found = |at: usize, what: &str| {
        let text = format!("`{what}` in `{name}`, a crate without I/O, threads and clock");
        findings.push(Finding::fault(
            &source.path,
            source.line_of(at),
            "purity",
            text,
        ));
    };
    for at in scan::words(&source.production, "std") {
        for path in super::modules::paths_at(&source.production, at) {
            if is_worldly(&path) {
                found(at, &path.join("::"));
            }
        }
    }
    for at in scan::words(&source.production, "tokio") {
        found(at, "tokio");
    }
    if CLOCK_FILES.contains(&source.path.as_str()) {
        return;
    }
    for clock in CLOCKS {
        for at in scan::words(&source.production, clock) {
            found(at, clock);
        }
    }
}

fn is_worldly(path: &[String]) -> bool {
    let part = |index: usize| path.get(index).map(String::as_str);
    part(1).is_some_and(|module| WORLDLY.contains(&module))
        && !part(2).is_some_and(|item| VALUES.contains(&item))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str, expect: &[&str]) {
        let mut findings = Vec::new();
        super::check(&Source::new(path, text), &mut findings);
        let got: Vec<_> = findings
            .iter()
            .map(|finding| finding.text.split('`').nth(1).unwrap())
            .collect();
        assert_eq!(got, expect, "{text}");
    }

    #[test]
    fn finds_the_world_in_pure_crates() {
        check(
            "crates/http/src/a.rs",
            "use std::fs::File;",
            &["std::fs::File"],
        );
        check(
            "crates/http/src/a.rs",
            "use std::{fmt, net::TcpStream, fs};",
            &["std::net::TcpStream", "std::fs"],
        );
        check(
            "crates/queueing/src/a.rs",
            "fn a() { std::thread::sleep(b) }",
            &["std::thread::sleep"],
        );
        check(
            "crates/queueing/src/a.rs",
            "use std::time::Instant;",
            &["Instant"],
        );
        check(
            "crates/http/src/a.rs",
            "use tokio::net::TcpStream;",
            &["tokio"],
        );
    }

    #[test]
    fn leaves_values_tests_and_other_crates_alone() {
        check(
            "crates/http/src/a.rs",
            "fn a() { b.parse::<std::net::Ipv6Addr>() }",
            &[],
        );
        check(
            "crates/http/src/a.rs",
            "// std::fs\n#[cfg(test)]\nmod tests { use std::fs; }",
            &[],
        );
        check("crates/http/examples/a.rs", "use std::time::Instant;", &[]);
        check("crates/server/src/a.rs", "use std::fs;", &[]);
        check(
            "crates/telemetry/src/time.rs",
            "use std::time::Instant;",
            &[],
        );
        check(
            "crates/http/src/a.rs",
            "use std::time::Duration; use std::sync::Arc;",
            &[],
        );
    }
}
