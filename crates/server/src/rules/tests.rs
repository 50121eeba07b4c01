//! Rules against heads as they come from the wire.

use proptest::prelude::*;

use super::*;
use crate::tests::head;
use config::typed::{RedirectConfig as MeantRedirect, Rewrite};

fn pattern(from: &str) -> PathPattern {
    match from.strip_suffix('*') {
        Some(beginning) => PathPattern::Beginning(beginning.to_owned()),
        None => PathPattern::Exactly(from.to_owned()),
    }
}

fn redirect(from: &str, status: u16, to: &str) -> typed::RulesConfig {
    typed::RulesConfig {
        redirects: vec![MeantRedirect {
            except: Vec::new(),
            from: pattern(from),
            status,
            to: to.to_owned(),
        }],
        ..typed::RulesConfig::default()
    }
}

fn fixed(from: &str, status: u16, text: &str) -> typed::RulesConfig {
    typed::RulesConfig {
        replies: vec![FixedReply {
            from: pattern(from),
            status,
            text: text.to_owned(),
        }],
        ..typed::RulesConfig::default()
    }
}

fn rewrite(from: &str, to: &str) -> typed::RulesConfig {
    typed::RulesConfig {
        rewrites: vec![Rewrite {
            from: pattern(from),
            to: to.to_owned(),
        }],
        ..typed::RulesConfig::default()
    }
}

fn all(rules: impl IntoIterator<Item = typed::RulesConfig>) -> Rules {
    let mut sum = typed::RulesConfig::default();
    for rules in rules {
        sum.redirects.extend(rules.redirects);
        sum.replies.extend(rules.replies);
        sum.rewrites.extend(rules.rewrites);
    }
    Rules::new(&sum)
}

fn ask(rules: &Rules, method: &str, target: &str) -> RuleOutcome {
    let head = head(&format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
    rules.apply(head.view())
}

/// `301 /new`, `200 ok`, `403`, `-> /other` or nothing.
fn told(rules: &Rules, target: &str) -> String {
    match ask(rules, "GET", target) {
        RuleOutcome::Nothing => String::new(),
        RuleOutcome::Rewritten(target) => format!("-> {}", String::from_utf8(target).unwrap()),
        RuleOutcome::Bare(reply) => reply.status.to_string(),
        RuleOutcome::Reply(reply) => match line(&reply, "Location") {
            Some(location) => format!("{} {location}", reply.status),
            None => format!("{} {}", reply.status, text(&reply)),
        },
    }
}

fn check(rules: &typed::RulesConfig, cases: &[(&str, &str)]) {
    let rules = Rules::new(rules);
    for (target, expect) in cases {
        assert_eq!(told(&rules, target), *expect, "{target}");
    }
}

fn line(reply: &Reply, name: &str) -> Option<String> {
    let lines = String::from_utf8(reply.fields.as_bytes().to_vec()).unwrap();
    assert!(lines.is_empty() || lines.ends_with("\r\n"));
    lines
        .split("\r\n")
        .find_map(|line| line.strip_prefix(&format!("{name}: ")))
        .map(str::to_owned)
}

fn text(reply: &Reply) -> String {
    match &reply.body {
        ReplyBody::Empty => String::new(),
        ReplyBody::One(Part::Memory(data)) => String::from_utf8(data.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn no_rules_say_nothing() {
    let rules = Rules::new(&typed::RulesConfig::default());
    assert!(rules.is_empty());
    assert!(matches!(ask(&rules, "GET", "/"), RuleOutcome::Nothing));
}

#[test]
fn redirects_exact_paths_and_beginnings() {
    check(
        &redirect("/old", 301, "/new"),
        &[
            ("/old", "301 /new"),
            ("/old?a=1&b", "301 /new?a=1&b"),
            ("http://other/old", "301 /new"),
            ("/old/", ""),
            ("/older", ""),
            ("/Old", ""),
            ("/", ""),
        ],
    );
    check(
        &redirect("/old/*", 308, "https://h.example/new/*"),
        &[
            ("/old/a/b?c", "308 https://h.example/new/a/b?c"),
            ("/old/", "308 https://h.example/new/"),
            ("/old/a%2Fb", "308 https://h.example/new/a%2Fb"),
            ("/old", ""),
        ],
    );
    check(
        &redirect("/*", 302, "https://h.example*"),
        &[
            ("/", "302 https://h.example/"),
            ("/a", "302 https://h.example/a"),
            ("http://other", "302 https://h.example/"),
        ],
    );
}

#[test]
fn patterns_are_compared_decoded() {
    for from in ["/a b/é", "/a%20b/%C3%A9", "/a%20b/é"] {
        check(
            &fixed(from, 403, ""),
            &[
                ("/a%20b/%C3%A9", "403"),
                ("/a%20b/%c3%a9", "403"),
                ("/%61%20b/%C3%A9", "403"),
                ("/a+b/%C3%A9", ""),
            ],
        );
    }
    check(
        &fixed("/100%25", 403, ""),
        &[("/100%25", "403"), ("/100%2525", "")],
    );
}

/// All of these reach `/admin/...` in some application.
const SPELLINGS: &str = "
    /admin/x /%61dmin/x /%61%64%6D%69%6e/x /admin%2Fx /admin%2fx /%2fadmin%2fx //admin/x /%2Fadmin/x
    ///admin//x /./admin/x /%2e/admin/x /x/../admin/x /x/%2e%2e/admin/x /x/.%2E/admin/x
    /x%2F..%2Fadmin/x /x//..//admin/x /x//../admin/x /../admin/x /admin/../public
    /admin/x/../../admin/x
";

#[test]
fn a_closed_path_is_closed_however_it_is_spelt() {
    let rules = Rules::new(&fixed("/admin/*", 403, ""));
    for target in SPELLINGS.split_whitespace() {
        assert_eq!(told(&rules, target), "403", "{target}");
        let absolute = format!("http://h{target}?q=/public");
        assert_eq!(told(&rules, &absolute), "403", "{absolute}");
    }
    for target in [
        "/admins/x",
        "/admin",
        "/public?/admin/x",
        "/x/admin/x",
        "/%2561dmin/x",
    ] {
        assert_eq!(told(&rules, target), "", "{target}");
    }
}

#[test]
fn a_closed_path_stays_closed_behind_a_rewrite() {
    let rules = all([
        rewrite("/app/*", "/*"),
        rewrite("/admin/*", "/open/*"),
        fixed("/admin/*", 404, ""),
    ]);
    for target in [
        "/app/admin/x",
        "/app//admin/x",
        "/app/%61dmin%2Fx",
        "/app/y/../admin/x",
    ] {
        assert_eq!(told(&rules, target), "404", "{target}");
    }
    assert_eq!(told(&rules, "/app/open/x"), "-> /open/x");
    assert_eq!(told(&rules, "/admin/x"), "404");
}

#[test]
fn the_first_rule_counts_among_its_kind() {
    let kinds = || {
        [
            fixed("/a/*", 410, ""),
            fixed("/a/b", 403, ""),
            fixed("/c/d", 403, ""),
            fixed("/c/*", 410, ""),
            fixed("/c/d", 404, ""),
            rewrite("/a/*", "/z"),
            rewrite("/e/*", "/z/*"),
        ]
    };
    let rules = all(kinds());
    assert_eq!(told(&rules, "/a/b"), "410");
    assert_eq!(told(&rules, "/c/d"), "403");
    assert_eq!(told(&rules, "/c/e"), "410");
    assert_eq!(told(&rules, "/e/f"), "-> /z/f");
    let rules = all(kinds().into_iter().chain([redirect("/a/b", 303, "/r")]));
    assert_eq!(told(&rules, "/a/b"), "303 /r");
    assert_eq!(told(&rules, "/a/c"), "410");
}

#[test]
fn the_most_literal_reading_gives_the_rest() {
    check(
        &redirect("/old/*", 301, "/new/*"),
        &[
            ("/old/a//b", "301 /new/a//b"),
            ("/old/a/../b", "301 /new/a/../b"),
            ("//old/a//b", "301 /new/a/b"),
            ("/x/../old/a%2Fb", "301 /new/a%2Fb"),
        ],
    );
}

#[test]
fn rewrites_keep_the_query_unless_they_have_one() {
    check(
        &rewrite("/app/*", "/*"),
        &[
            ("/app/a?x=%20|", "-> /a?x=%20|"),
            ("/app/a?", "-> /a?"),
            ("/app/", "-> /"),
            ("/app//host/a", "-> /host/a"),
            ("/app/a%2Fb%3Fc%23d", "-> /a%2Fb%3Fc%23d"),
            ("http://h/app/a", "-> /a"),
        ],
    );
    check(
        &rewrite("/p/*", "/page?id=*"),
        &[
            ("/p/a&b=c?x=1", "-> /page?id=a%26b%3Dc"),
            ("/p/1", "-> /page?id=1"),
        ],
    );
    check(&rewrite("/x", "/y#z"), &[("/x", "-> /y%23z")]);
}

#[test]
fn the_server_as_a_whole_has_no_path() {
    let rules = all([fixed("*", 403, ""), fixed("/*", 403, "")]);
    assert!(matches!(ask(&rules, "OPTIONS", "*"), RuleOutcome::Nothing));
    assert!(matches!(ask(&rules, "OPTIONS", "/"), RuleOutcome::Bare(_)));
}

#[test]
fn replies_have_the_lines_that_their_status_allows() {
    const TYPE: &str = "Content-Type: text/plain; charset=utf-8\r\n";
    let check = |status: u16, given: &str, lines: &str, expect: &str| {
        let rules = Rules::new(&fixed("/x", status, given));
        for method in ["GET", "POST", "HEAD"] {
            let outcome = ask(&rules, method, "/x");
            // Only a refusal without a text of its own may get an error page.
            let is_bare = matches!(outcome, RuleOutcome::Bare(_));
            assert_eq!(is_bare, status >= 400 && given.is_empty(), "{status}");
            let (RuleOutcome::Reply(reply) | RuleOutcome::Bare(reply)) = outcome else {
                panic!("{status}");
            };
            assert_eq!(reply.status, status);
            assert_eq!(
                String::from_utf8_lossy(reply.fields.as_bytes()),
                lines,
                "{status} {method}"
            );
            assert_eq!(text(&reply), expect, "{status} {method}");
        }
    };
    for (status, given, expect) in [
        (200, "ok", "ok"),
        (200, "", ""),
        (200, "é\r\n", "é\r\n"),
        (403, "", "403 Forbidden\n"),
        (403, "go", "go"),
        (599, "", "599 \n"),
    ] {
        let lines = format!("{TYPE}Content-Length: {}\r\n", expect.len());
        check(status, given, &lines, expect);
    }
    let lines = format!("{TYPE}Content-Length: 23\r\nAllow: \r\n");
    check(405, "", &lines, "405 Method Not Allowed\n");
    check(204, "no", "", "");
    check(304, "no", "", "");
    check(205, "no", "Content-Length: 0\r\n", "");
}

#[test]
fn redirects_have_a_short_text_and_its_length() {
    let rules = Rules::new(&redirect("/x", 307, "/y"));
    let RuleOutcome::Reply(reply) = ask(&rules, "GET", "/x?q") else {
        panic!("it is no redirect");
    };
    assert_eq!(line(&reply, "Content-Length").as_deref(), Some("23"));
    assert_eq!(line(&reply, "Location").as_deref(), Some("/y?q"));
    assert_eq!(text(&reply), "307 Temporary Redirect\n");
}

const PATHS: &str = "/(/|\\.|%2[eEfF35]|%5[cC]|%[0-9a-f]{2}|[!$&-;=@-\\[\\]-~]|r|x){0,20}";

proptest! {
    #[test]
    fn a_rewritten_target_is_one_that_a_client_could_send(path in PATHS, query in "(\\?[!\"$-~]{0,6})?") {
        for to in ["/*", "/z/*", "/z?y=*", "*"] {
            let rules = Rules::new(&rewrite("/*", to));
            let target = told(&rules, &format!("{path}{query}"));
            let target = target.strip_prefix("-> ").expect("the rule takes all paths");
            prop_assert!(!target.starts_with("//"), "{target}");
            // Parses it; the second rule set has nothing to say.
            prop_assert_eq!(told(&Rules::default(), target), "");
        }
    }

    #[test]
    fn whoever_sees_a_closed_path_was_told(path in PATHS) {
        let rules = Rules::new(&fixed("/x/*", 403, ""));
        let decoded = path_variants::decoded(path.as_bytes());
        let text = String::from_utf8_lossy(&decoded).into_owned();
        // Other people's readers: what an application sees, and what it may make of it.
        let mut merged = text.clone();
        while merged.contains("//") {
            merged = merged.replace("//", "/");
        }
        let mut segments: Vec<&str> = Vec::new();
        for segment in merged.split('/').skip(1) {
            match segment {
                ".." => drop(segments.pop()),
                "." => {}
                segment => segments.push(segment),
            }
        }
        let resolved = format!("/{}", segments.join("/"));
        let is_seen = [&text, &merged, &resolved].iter().any(|path| path.starts_with("/x/"));
        if is_seen {
            prop_assert_eq!(told(&rules, &path), "403");
        }
    }
}
