//! Redirects, fixed replies, rewrites: their forms in every source, and what is wrong with them.

use super::super::meant::{FixedReply, PathPattern, Redirect, Rewrite, Rules};
use super::*;

fn rules(toml: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Rules {
    good(toml, environment, flags).config.rules
}

fn all_faults(flags: &[(&str, &str)]) -> Vec<String> {
    faults("app = 'a:b'", &[], flags)
}

fn exactly(path: &str) -> PathPattern {
    PathPattern::Exactly(path.to_owned())
}

fn beginning(path: &str) -> PathPattern {
    PathPattern::Beginning(path.to_owned())
}

fn redirect(from: PathPattern, status: u16, to: &str) -> Redirect {
    let to = to.to_owned();
    Redirect { from, status, to }
}

#[test]
fn reads_redirects_with_and_without_a_status() {
    let table = [
        ("/old=/new", redirect(exactly("/old"), 302, "/new")),
        ("/old=301:/new", redirect(exactly("/old"), 301, "/new")),
        (
            "/old/*=308:/new/*?from=old#top",
            redirect(beginning("/old/"), 308, "/new/*?from=old#top"),
        ),
        (
            "/*=307:https://shop.example:8443/*",
            redirect(beginning("/"), 307, "https://shop.example:8443/*"),
        ),
        (
            "/a=http://b.example/?x=1,2;y",
            redirect(exactly("/a"), 302, "http://b.example/?x=1,2;y"),
        ),
        ("/a = 303 : /b", redirect(exactly("/a"), 303, "/b")),
        ("/a=/b:c", redirect(exactly("/a"), 302, "/b:c")),
        ("/all/*=/one", redirect(beginning("/all/"), 302, "/one")),
    ];
    for (text, expect) in table {
        let found = rules("", &[], &[("redirect", text)]).redirects;
        assert_eq!(found, [expect], "{text}");
    }
}

#[test]
fn reads_replies_and_rewrites() {
    let flags = [
        ("reply", "/ping=200:pong, and: more = less"),
        ("reply", "/gone/*=410"),
        ("rewrite", "/v1/*=/api/*?version=1"),
    ];
    let found = rules("", &[], &flags);
    let reply = |from, status, text: &str| FixedReply {
        from,
        status,
        text: text.to_owned(),
    };
    let replies = [
        reply(exactly("/ping"), 200, "pong, and: more = less"),
        reply(beginning("/gone/"), 410, ""),
    ];
    assert_eq!(found.replies, replies);
    let to = "/api/*?version=1".to_owned();
    let from = beginning("/v1/");
    assert_eq!(found.rewrites, [Rewrite { from, to }]);
}

#[test]
fn keeps_their_order_in_every_form() {
    let froms = |rules: Rules| {
        let said = |one: Redirect| match one.from {
            PathPattern::Exactly(path) | PathPattern::Beginning(path) => path,
        };
        rules.redirects.into_iter().map(said).collect::<Vec<_>>()
    };
    let expect = ["/z", "/b", "/a/"];
    let table = "[redirect]\n'/z' = '/1,2'\n'/b' = '301:/3'\n'/a/*' = '/4/*'";
    assert_eq!(froms(rules(table, &[], &[])), expect);
    let list = "redirect = ['/z=/1,2', '/b=301:/3', '/a/*=/4/*']";
    assert_eq!(froms(rules(list, &[], &[])), expect);
    for env in [
        "/z=/1,2; /b=301:/3;/a/*=/4/*;",
        "/z=/1,2;3\n/b=301:/3\n\n  /a/*=/4/*\n",
    ] {
        let env = [("MILEPOST_REDIRECT", env)];
        assert_eq!(froms(rules("", &env, &[])), expect);
    }
    let numbers = rules("[reply]\n'/ping' = 204", &[], &[]).replies;
    assert_eq!(numbers[0].status, 204);
}

#[test]
fn keeps_a_semicolon_of_an_entry_that_ends_with_a_line_break() {
    let env = [("MILEPOST_REPLY", "/a=200:x; y, z\n")];
    assert_eq!(rules("", &env, &[]).replies[0].text, "x; y, z");
}

#[test]
fn refuses_redirects_with_what_was_meant() {
    check_fault(
        "redirect",
        "/old",
        "`--redirect`: expected FROM=TO or FROM=STATUS:TO (as `/old/*=301:/new/*`), found `/old` > write `/old=/new`",
    );
    check_fault("redirect", "/old /to", "> write `/old=/to`");
    check_fault("redirect", "/old -> /to", "> write `/old=/to`");
    check_fault(
        "redirect",
        "old=/new",
        "> a path begins with a slash: `/old`",
    );
    check_fault(
        "redirect",
        "http://a/b=/c",
        "> a path, without scheme and host",
    );
    check_fault(
        "redirect",
        "/a?b=/c",
        "> only the path counts: leave out the query",
    );
    check_fault(
        "redirect",
        "/old*=/new",
        "> `*` stands alone behind the last slash: `/old/*`",
    );
    check_fault("redirect", "/*/a=/new", "behind the last slash: `/*`");
    check_fault(
        "redirect",
        "/ä=/new",
        "> visible ASCII; other characters are written as `%20`",
    );
    check_fault("redirect", "/old=", "> where to? `/old=/new`");
    check_fault("redirect", "/old=301", "> where to? `/old=301:/new`");
    check_fault("redirect", "/old=301:", "> where to? `/old=/new`");
    check_fault(
        "redirect",
        "/old=200:/new",
        "> to serve another path without the client's knowing: `--rewrite /old=/new`",
    );
    check_fault(
        "redirect",
        "/old=304:/new",
        "> a redirect's status is 301 or 308 (for good), 302, 303 or 307",
    );
    check_fault("redirect", "/old=99999999:/new", "> a redirect's status is");
    check_fault(
        "redirect",
        "/old=new",
        "another site with `https://`: `/new`",
    );
    check_fault(
        "redirect",
        "/old=www.a.example",
        "> with a scheme: `https://www.a.example`",
    );
    check_fault(
        "redirect",
        "/old=//a.example",
        "> with a scheme: `https://a.example`",
    );
    check_fault(
        "redirect",
        "/old=https://",
        "> name the site: `https://www.example.org/`",
    );
    check_fault(
        "redirect",
        "/old/*=https://*/",
        "> clients would choose the host",
    );
    check_fault(
        "redirect",
        "/old/*=https://www.*.example/*",
        "> clients would choose the host",
    );
    check_fault(
        "redirect",
        "/old=javascript:alert(1)",
        "a path begins with a slash",
    );
    check_fault(
        "redirect",
        "/old=/new/*",
        "> `*` stands for what `*` matches: `/old/*=/new/*`",
    );
    check_fault(
        "redirect",
        "/old/*=/*/*",
        "> one `*` at most stands for the rest",
    );
    check_fault(
        "redirect",
        "/old=/a b",
        "> visible ASCII; other characters are written as `%20`",
    );
    check_fault("redirect", "/old=/a\r\nb", "found `/old=/a\\r\\nb`");
}

#[test]
fn refuses_replies_and_rewrites_with_what_was_meant() {
    check_fault("reply", "/ping", "found `/ping` > write `/ping=200:TEXT`");
    check_fault(
        "reply",
        "/ping=pong",
        "> the status comes first: `/ping=200:pong`",
    );
    check_fault("reply", "/ping=99", "> a status from 200 to 599");
    check_fault("reply", "/ping=101", "> a status from 200 to 599");
    check_fault("reply", "/a=301:/b", "> a redirect: `--redirect /a=301:/b`");
    check_fault(
        "reply",
        "/a=204:text",
        "> a reply with 204 has no body: `/a=204`",
    );
    check_fault("reply", "/a=200:x\u{7}", "found `/a=200:x\\u{7}`");
    check_fault("rewrite", "/a", "found `/a` > write `/a=/new`");
    check_fault(
        "rewrite",
        "/a=https://b/c",
        "> a rewrite stays on this server; to send clients elsewhere: `--redirect /a=https://b/c`",
    );
    check_fault(
        "rewrite",
        "/a=/b#c",
        "> a fragment (`#`) stays with the client",
    );
    check_fault("rewrite", "/a=b", "a path begins with a slash");
    check_fault("rewrite", "/a=/b/*", "`/a/*=/b/*`");
}

#[test]
fn finds_rules_that_are_never_reached() {
    let cases = [
        (("redirect", "/a/*=/x"), ("redirect", "/a/b=/y"), true),
        (("redirect", "/a/*=/x"), ("reply", "/a/b/*=404"), true),
        (("reply", "/a/*=404"), ("rewrite", "/a/b=/y"), true),
        (("redirect", "/a/b=/x"), ("redirect", "/a/*=/y"), false),
        (("redirect", "/a/*=/x"), ("reply", "/a=404"), false),
        (("redirect", "/a/b=/x"), ("reply", "/a/b/c=404"), false),
    ];
    for (first, second, is_fault) in cases {
        let found = all_faults(&[first, second]);
        assert_eq!(
            !found.is_empty(),
            is_fault,
            "{first:?} {second:?}: {found:?}"
        );
    }
    // In whatever order they were written, redirects are looked at first.
    let found = all_faults(&[("reply", "/a/b=404"), ("redirect", "/a/*=/x")]);
    assert_eq!(
        found,
        [
            "`--reply`: `/a/b` is never reached: `/a/*` stands before it > the first match counts, redirects before replies before rewrites"
        ]
    );
    // A rewrite may lead to a reply past the redirects.
    let past = [
        ("redirect", "/a/*=/x"),
        ("reply", "/a/b=404"),
        ("rewrite", "/c=/a/b"),
    ];
    assert_eq!(all_faults(&past), Vec::<String>::new());
    let found = all_faults(&[("rewrite", "/a=/b"), ("rewrite", "/a=/c")]);
    assert_eq!(
        found,
        ["`--rewrite`: `/a` has a rule already > leave one out"]
    );
}

#[test]
fn finds_redirects_that_never_end() {
    let ends = |texts: &[&str]| {
        let flags: Vec<_> = texts.iter().map(|text| ("redirect", *text)).collect();
        all_faults(&flags).is_empty()
    };
    assert!(!ends(&["/a=/a"]));
    assert!(!ends(&["/a=/a?x=1"]));
    assert!(!ends(&["/a=/b", "/b=/a"]));
    assert!(!ends(&["/a/*=/a/b/*"]));
    assert!(!ends(&["/a/*=/a/index.html"]));
    assert!(!ends(&["/*=/www/*"]));
    assert!(!ends(&["/a%2Fb=/a/b"]), "paths are compared decoded");
    assert!(!ends(&["/%61/*=/a/x%2f*"]));
    assert!(ends(&["/a%2525=/a%25", "/b%3Fc=/b?c"]));
    assert!(ends(&["/a=/b", "/b=/c", "/c=/d"]));
    assert!(ends(&["/a/*=/a"]));
    assert!(ends(&["/a/index.html=/b", "/a/*=/a/index.html"]));
    assert!(ends(&["/*=https://other.example/*"]));
    assert!(ends(&["/a/*=/*", "/b=/a"]));
    let found = all_faults(&[("redirect", "/a=/a")]);
    assert_eq!(
        found,
        [
            "`--redirect`: the redirect of `/a` never ends > what it leads to is redirected again, round in a circle"
        ]
    );
}
