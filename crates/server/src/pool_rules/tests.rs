//! Rules against heads as they come from the wire, one by one and beside a matcher that is too simple to
//! be wrong.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::tests::{ends, with_head};
use config::typed::{PoolConfig, PoolRuns};

/// `POOL KEY=VALUE...`, in the rules' own words.
fn rule(text: &str) -> PoolRule {
    let mut words = text.split(' ');
    let mut rule = PoolRule {
        pool: words.next().unwrap().parse().unwrap(),
        ..PoolRule::default()
    };
    for word in words {
        let (key, value) = word.split_once('=').unwrap();
        match key {
            "path" => rule.path = Some(value.to_owned()),
            "host" => rule.host = Some(value.to_owned()),
            "method" => rule.methods = value.split(',').map(str::to_owned).collect(),
            "header" => {
                let (name, value) = value
                    .split_once(':')
                    .map_or((value, None), |(name, value)| {
                        (name, Some(value.to_owned()))
                    });
                rule.header = Some((name.to_owned(), value));
            }
            "from" => {
                let (ip, bits) = value.split_once('/').unwrap();
                rule.from.push((ip.parse().unwrap(), bits.parse().unwrap()));
            }
            "class" => rule.class = Class::Low,
            key => panic!("{key}"),
        }
    }
    rule
}

fn selector(rules: &[&str]) -> Option<PoolSelector> {
    PoolSelector::new(&Config {
        pool_rules: rules.iter().map(|text| rule(text)).collect(),
        pools: vec![PoolConfig::default(); 100],
        ..Config::default()
    })
}

fn find(rules: &Option<PoolSelector>, view: HeadView<'_>, path: &[u8], peer: &str) -> (u16, Class) {
    let found = rules
        .as_ref()
        .map(|rules| rules.find(0, view, path, &ends(peer)));
    found.unwrap_or_default()
}

#[track_caller]
fn check_from(rules: &[&str], peer: &str, request: &str, expect: u16) {
    let (pool, _) = with_head(request, |view| {
        find(&selector(rules), view, view.path(), peer)
    });
    assert_eq!(pool, expect, "{rules:?} {peer} {request}");
}

#[track_caller]
fn check(rules: &[&str], request: &str, expect: u16) {
    check_from(rules, "192.0.2.1", request, expect);
}

#[test]
fn gives_everything_to_the_first_pool_without_rules() {
    check(&[], "GET h/", 0);
    check(&["1 path=/a"], "GET h/b", 0);
}

#[test]
fn passes_over_rules_whose_pools_run_another_application() {
    let mut rules = selector(&["1 path=/a/**", "2 path=/**"]).unwrap();
    rules.runs[2] = PoolRuns::App(1);
    rules.runs[3] = PoolRuns::App(1);
    for (own, path, expect) in [
        (0, "h/a/b", 1),
        (0, "h/b", 0),
        (3, "h/a/b", 2),
        (3, "h/b", 2),
    ] {
        let found = with_head(&format!("GET {path}"), |view| {
            rules.find(own, view, view.path(), &ends("")).0
        });
        assert_eq!(found, expect, "{own} {path}");
    }
}

/// A rule, what it takes, and what it does not take.
const RULES: &str = "
    path=/a           | h/a h/a?b                                     | h/a/ h/A
    path=/a/**        | h/a/b/c h/a/                                  | h/a h/ab
    path=/**          | h/                                            |
    path=/a/*         | h/a/b                                         | h/a/b/c
    path=/**/*.pdf    | h/x.pdf h/a/b/x.pdf                           |
    path=/{a,b}/x     | h/b/x                                         |
    path=/v[12]       | h/v2                                          | h/v3
    path=/a[          |                                               | h/a[
    host=shop.example | shop.example/ SHOP.example:8000/ shop.example./ | a.shop.example/
    host=*.example    | a.b.example:1/                                | example/ example./ notexample/
    host=[::1]        | [::1]:80/                                     | [::2]:80/
";

#[test]
fn compares_paths_by_globs_and_hosts_without_port_case_and_last_dot() {
    for row in RULES.trim().lines() {
        let columns: Vec<&str> = row.split('|').collect();
        let rule = format!("1 {}", columns[0].trim());
        for (urls, expect) in [(columns[1], 1), (columns[2], 0)] {
            for url in urls.split_whitespace() {
                check(&[&rule], &format!("GET {url}"), expect);
            }
        }
    }
}

#[test]
fn looks_at_the_path_that_the_router_saw() {
    let rules = selector(&["1 path=/sent", "2 path=/rewritten"]);
    let found = with_head("GET h/sent", |view| find(&rules, view, b"/rewritten", ""));
    assert_eq!(found, (2, Class::Normal));
}

#[test]
fn compares_methods_headers_and_networks() {
    check(&["1 method=GET,POST"], "POST h/", 1);
    check(&["1 method=GET"], "HEAD h/", 0);
    check(&["1 method=GET"], "get h/", 0);
    check(&["1 header=x-batch"], "GET h/ X-Batch: no", 1);
    check(&["1 header=x-batch:yes"], "GET h/ X-Batch: yes", 1);
    check(&["1 header=x-batch:yes"], "GET h/ X-Batch: no", 0);
    check(
        &["1 header=x-batch:yes"],
        "GET h/ X-Batch: a\r\nX-BATCH: yes",
        1,
    );
    check(&["1 header=x-batch"], "GET h/", 0);
    check_from(&["1 from=10.0.0.0/8"], "10.9.9.9", "GET h/", 1);
    check_from(&["1 from=10.0.0.0/8"], "11.0.0.1", "GET h/", 0);
    check_from(
        &["1 from=fd00::/8 from=10.0.0.0/8"],
        "10.0.0.1",
        "GET h/",
        1,
    );
    check_from(&["1 from=0.0.0.0/0"], "unix:", "GET h/", 0);
}

#[test]
fn all_that_a_rule_names_must_fit() {
    let rules = ["1 path=/a/** method=POST host=h header=x"];
    check(&rules, "POST h/a/b X: 1", 1);
    check(&rules, "GET h/a/b X: 1", 0);
    check(&rules, "POST g/a/b X: 1", 0);
    check(&rules, "POST h/b X: 1", 0);
    check(&rules, "POST h/a/b Y: 1", 0);
}

#[test]
fn takes_the_narrowest_rule_wherever_it_stands() {
    // Each is narrower than the one before it.
    let order = [
        "1 method=GET",
        "2 from=0.0.0.0/0",
        "3 from=10.0.0.0/8",
        "4 header=x",
        "5 header=x:1",
        "6 host=*.example",
        "7 host=*.shop.example",
        "8 host=a.shop.example",
        "9 path=/**",
        "10 path=/**/export",
        "11 path=/api/**",
        "12 path=/api/*/export",
        "13 path=/api/v1/**",
        "14 path=/api/v1/export",
        "15 path=/api/v1/export method=GET",
    ];
    let request = "GET a.shop.example/api/v1/export X: 1";
    for len in 1..=order.len() {
        let expect = len as u16;
        let mut rules = order[..len].to_vec();
        check_from(&rules, "10.0.0.1", request, expect);
        rules.reverse();
        check_from(&rules, "10.0.0.1", request, expect);
        rules.rotate_left(len / 2);
        check_from(&rules, "10.0.0.1", request, expect);
    }
}

#[test]
fn takes_the_first_of_equally_narrow_rules() {
    check(&["1 method=GET", "2 method=GET,POST"], "GET h/", 1);
    check(&["2 method=GET,POST", "1 method=GET"], "GET h/", 2);
    check(&["1 path=/a", "2 path=/a"], "GET h/a", 1);
    check(&["1 path=/*/a", "2 path=/b/*"], "GET h/b/a", 2);
}

#[test]
fn a_broader_rule_counts_where_the_narrower_does_not_fit() {
    let rules = ["1 path=/a method=POST", "2 path=/**", "3 path=/a/**"];
    check(&rules, "POST h/a", 1);
    check(&rules, "GET h/a", 2);
    check(&rules, "GET h/a/b", 3);
}

#[test]
fn gives_the_class_with_the_pool() {
    let rules = selector(&["1 path=/a class=low", "0 path=/b class=low"]);
    let found = |request: &str| with_head(request, |view| find(&rules, view, view.path(), ""));
    assert_eq!(found("GET h/a"), (1, Class::Low));
    assert_eq!(found("GET h/b"), (0, Class::Low));
    assert_eq!(found("GET h/c"), (0, Class::Normal));
}

/// A request in parts, as the simple matcher wants it.
#[derive(Debug)]
struct Parts {
    method: &'static str,
    path: &'static str,
    host: &'static str,
    header: Option<&'static str>,
    peer: &'static str,
}

fn fits_simply(rule: &PoolRule, parts: &Parts) -> bool {
    let path = rule.path.as_ref().is_none_or(|glob| {
        let glob = GlobBuilder::new(glob).literal_separator(true).build();
        glob.unwrap().compile_matcher().is_match(parts.path)
    });
    let host = rule
        .host
        .as_ref()
        .is_none_or(|host| match host.strip_prefix('*') {
            Some(end) => parts.host.ends_with(end),
            None => parts.host == host,
        });
    let header = rule.header.as_ref().is_none_or(|(_, value)| {
        let sent = parts.header;
        sent.is_some_and(|sent| value.as_ref().is_none_or(|value| value == sent))
    });
    let from = rule.from.is_empty()
        || (rule.from.iter()).any(|(_, bits)| *bits == 0 || parts.peer.starts_with("10."));
    let method = rule.methods.is_empty() || rule.methods.iter().any(|one| one == parts.method);
    path && host && header && from && method
}

/// Whether `a` is strictly narrower than `b`, in the words of the room's first lines.
fn is_narrower(a: &PoolRule, b: &PoolRule) -> bool {
    let wildcard = |rule: &PoolRule| rule.path.as_ref().and_then(|path| path.find('*'));
    let is_literal = |rule: &PoolRule| rule.path.is_some() && wildcard(rule).is_none();
    let before = |rule: &PoolRule| {
        let path_bytes = rule.path.as_ref().map_or(0, String::len);
        wildcard(rule).unwrap_or(path_bytes)
    };
    let behind = |rule: &PoolRule| {
        let path = rule.path.as_deref().unwrap_or("");
        let end = &path[wildcard(rule).unwrap_or(path.len())..];
        match end {
            "**" | "" => 0,
            end => 1 + end.trim_matches('*').len(),
        }
    };
    let host = |rule: &PoolRule| {
        let host = rule.host.as_deref();
        host.map(|host| (!host.starts_with('*'), host.len()))
    };
    let header = |rule: &PoolRule| rule.header.as_ref().map(|(_, value)| value.is_some());
    let from = |rule: &PoolRule| rule.from.iter().map(|(_, bits)| *bits).min();
    is_literal(a)
        .cmp(&is_literal(b))
        .then(before(a).cmp(&before(b)))
        .then(behind(a).cmp(&behind(b)))
        .then(host(a).cmp(&host(b)))
        .then(header(a).cmp(&header(b)))
        .then(from(a).cmp(&from(b)))
        .then((!a.methods.is_empty()).cmp(&!b.methods.is_empty()))
        .is_gt()
}

const PATHS: [&str; 8] = [
    "/", "/a", "/a/", "/a/b", "/a/b/c", "/ab", "/b/x.pdf", "/a/x.pdf",
];
const GLOBS: [&str; 9] = [
    "/**",
    "/a",
    "/a/**",
    "/a/b",
    "/a/b/**",
    "/a/*",
    "/*/b",
    "/**/*.pdf",
    "/a/*/c",
];
const WORDS: [&str; 8] = [
    "method=GET",
    "method=GET,POST",
    "host=*.example",
    "host=shop.example",
    "header=x",
    "header=x:1",
    "from=10.0.0.0/8",
    "from=0.0.0.0/0",
];

proptest! {
    #[test]
    fn agrees_with_a_matcher_that_tries_every_rule(
        written in proptest::collection::vec(
            (proptest::option::of(select(GLOBS.to_vec())), subsequence(WORDS.to_vec(), 0..4)),
            0..12,
        ),
        method in select(vec!["GET", "POST", "PUT"]),
        path in select(PATHS.to_vec()),
        host in select(vec!["shop.example", "a.shop.example", "example", "other"]),
        header in select(vec![None, Some("1"), Some("2")]),
        peer in select(vec!["10.1.2.3", "192.0.2.1"]),
    ) {
        let texts: Vec<String> = written.iter().enumerate().map(|(index, (path, words))| {
            let path = path.map_or(String::new(), |path| format!(" path={path}"));
            let words: String = words.iter().map(|word| format!(" {word}")).collect();
            // Later words of the same key win, but networks gather: one of them is enough here.
            format!("{}{path}{words}", index + 1)
        }).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let rules: Vec<PoolRule> = texts.iter().map(|text| rule(text)).collect();
        let parts = Parts { method, path, host, header, peer };
        let mut best: Option<&PoolRule> = None;
        for rule in rules.iter().filter(|rule| fits_simply(rule, &parts)) {
            if best.is_none_or(|best| is_narrower(rule, best)) {
                best = Some(rule);
            }
        }
        let header = header.map_or(String::new(), |value| format!(" X: {value}"));
        let request = format!("{method} {host}{path}{header}");
        let (pool, _) = with_head(&request, |view| {
            find(&selector(&texts), view, view.path(), peer)
        });
        let expect = best.map_or(0, |rule| rule.pool as u16);
        prop_assert_eq!(pool, expect, "{:?} {:?}", texts, parts);
    }
}
