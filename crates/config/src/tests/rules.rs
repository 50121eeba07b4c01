//! Redirects, fixed responses, rewrites: their tables, and what is wrong with them.

use super::super::typed::RulesConfig;
use super::*;

fn rules(toml: &str) -> RulesConfig {
    good(toml, &[], &[]).config.rules
}

/// A redirect from one path to another for each pair.
fn redirects(pairs: &[(&str, &str)]) -> String {
    let table = |(from, to): &(&str, &str)| format!("{{ from = '{from}', to = '{to}' }}");
    let tables: Vec<String> = pairs.iter().map(table).collect();
    format!("redirect = [{}]\n", tables.join(", "))
}

#[test]
fn reads_redirects_responses_and_rewrites_in_their_order() {
    let toml = "
        [[redirect]]
        from = '/old'
        to = '/new'
        [[redirect]]
        from = '/old/*'
        to = '/new/*?from=old#top'
        status = 308
        [[redirect]]
        from = '/a'
        to = 'https://shop.example:8443/?x=1,2;y'
        status = '301'
        [[respond]]
        path = '/ping'
        status = 200
        text = 'pong, and: more = less'
        [[respond]]
        path = '/gone/*'
        status = 410
        [[rewrite]]
        from = '/v1/*'
        to = '/api/*?version=1'
    ";
    insta::assert_snapshot!(format!("{:?}", rules(toml)), @r#"RulesConfig { redirects: [RedirectConfig { from: Exactly("/old"), to: "/new", status: 302, except: [] }, RedirectConfig { from: Beginning("/old/"), to: "/new/*?from=old#top", status: 308, except: [] }, RedirectConfig { from: Exactly("/a"), to: "https://shop.example:8443/?x=1,2;y", status: 301, except: [] }], replies: [FixedReply { from: Exactly("/ping"), status: 200, text: "pong, and: more = less" }, FixedReply { from: Beginning("/gone/"), status: 410, text: "" }], rewrites: [Rewrite { from: Beginning("/v1/"), to: "/api/*?version=1" }] }"#);
    let inline = redirects(&[("/z", "/1"), ("/b", "/3"), ("/a/*", "/4/*")]);
    assert_eq!(rules(&inline).redirects.len(), 3);
    assert_eq!(
        rules("[respond]\npath = '/ping'\nstatus = 204")
            .replies
            .len(),
        1
    );
}

#[test]
fn refuses_redirects_with_what_was_meant() {
    said! { r#"
    redirect = [{ from = 'old', to = '/new' }]
        m.toml:2: `redirect.from`: expected a path, or the beginning of paths (as `/old/*`), found `old` > a path begins with a slash: `/old`
    redirect = [{ from = 'http://a/b', to = '/c' }]
        m.toml:2: `redirect.from`: expected a path, or the beginning of paths (as `/old/*`), found `http://a/b` > a path, without scheme and host
    redirect = [{ from = '/a?b', to = '/c' }]
        m.toml:2: `redirect.from`: expected a path, or the beginning of paths (as `/old/*`), found `/a?b` > only the path counts: leave out the query
    redirect = [{ from = '/old*', to = '/new' }]
        m.toml:2: `redirect.from`: expected a path, or the beginning of paths (as `/old/*`), found `/old*` > `*` stands alone behind the last slash: `/old/*`
    redirect = [{ from = '/*/a', to = '/new' }]
        m.toml:2: `redirect.from`: expected a path, or the beginning of paths (as `/old/*`), found `/*/a` > `*` stands alone behind the last slash: `/*`
    redirect = [{ from = '/ä', to = '/new' }]
        m.toml:2: `redirect.from`: expected a path, or the beginning of paths (as `/old/*`), found `/ä` > visible ASCII; other characters are written as `%20`
    redirect = [{ from = '/old', to = '' }]
        m.toml:2: `redirect.to`: expected a path or an absolute URL (as `/new/*`), found `` > name a path, as `/new`
    redirect = [{ from = '/old', to = 'new' }]
        m.toml:2: `redirect.to`: expected a path or an absolute URL (as `/new/*`), found `new` > a path begins with a slash, another site with `https://`: `/new`
    redirect = [{ from = '/old', to = 'www.a.example' }]
        m.toml:2: `redirect.to`: expected a path or an absolute URL (as `/new/*`), found `www.a.example` > with a scheme: `https://www.a.example`
    redirect = [{ from = '/old', to = '//a.example' }]
        m.toml:2: `redirect.to`: expected a path or an absolute URL (as `/new/*`), found `//a.example` > with a scheme: `https://a.example`
    redirect = [{ from = '/old', to = 'https://' }]
        m.toml:2: `redirect.to`: expected a path or an absolute URL (as `/new/*`), found `https://` > name the site: `https://www.example.org/`
    redirect = [{ from = '/old/*', to = 'https://*/' }]
        m.toml:2: `redirect.to`: expected a path or an absolute URL (as `/new/*`), found `https://*/` > clients would choose the host: `*` stands behind it, as `https://host/*`
    redirect = [{ from = '/old/*', to = 'https://www.*.example/*' }]
        m.toml:2: `redirect.to`: expected a path or an absolute URL (as `/new/*`), found `https://www.*.example/*` > clients would choose the host: `*` stands behind it, as `https://host/*`
    redirect = [{ from = '/old', to = 'javascript:alert(1)' }]
        m.toml:2: `redirect.to`: expected a path or an absolute URL (as `/new/*`), found `javascript:alert(1)` > a path begins with a slash, another site with `https://`: `/javascript:alert(1)`
    redirect = [{ from = '/old', to = '/new/*' }]
        m.toml:2: `redirect.to`: `/new/*` has a `*`, and `/old` has none > `*` stands for what `*` matches: `from = "/old/*"`
    redirect = [{ from = '/old/*', to = '/*/*' }]
        m.toml:2: `redirect.to`: expected a path or an absolute URL (as `/new/*`), found `/*/*` > one `*` at most stands for the rest
    redirect = [{ from = '/old', to = '/a b' }]
        m.toml:2: `redirect.to`: expected a path or an absolute URL (as `/new/*`), found `/a b` > visible ASCII; other characters are written as `%20`
    "# }
    said! { r#"
    [[redirect]]
    from = '/old'
    to = '/new'
    status = 200
        m.toml:5: `redirect.status`: expected a redirect's status (as `301`), found `200` > `[[rewrite]]` serves another path without the client's knowing
    [[redirect]]
    from = '/old'
    to = '/new'
    status = 304
        m.toml:5: `redirect.status`: expected a redirect's status (as `301`), found `304` > a redirect's status is 301 or 308 (for good), 302, 303 or 307
    [[redirect]]
    from = '/old'
    to = '/new'
    status = 99999999
        m.toml:5: `redirect.status`: expected a redirect's status (as `301`), found `99999999` > a redirect's status is 301 or 308 (for good), 302, 303 or 307
    [[redirect]]
    from = '/old'
    to = "/a\r\nb"
        m.toml:4: `redirect.to`: expected a path or an absolute URL (as `/new/*`), found `/a\r\nb` > visible ASCII; other characters are written as `%20`
    "# }
}

#[test]
fn tells_every_fault_of_a_table_with_its_line_and_key() {
    said! { r#"
    [[redirect]]
    form = '/old'
    to = 'new'
    status = 200
    colour = 1
    backlog = 7
        m.toml:3: `redirect.form`: unknown key > did you mean `from`?
        m.toml:4: `redirect.to`: expected a path or an absolute URL (as `/new/*`), found `new` > a path begins with a slash, another site with `https://`: `/new`
        m.toml:5: `redirect.status`: expected a redirect's status (as `301`), found `200` > `[[rewrite]]` serves another path without the client's knowing
        m.toml:6: `redirect.colour`: unknown key > the keys are `from`, `to`, `status`, `except`
        m.toml:7: `redirect.backlog`: not a key of `[[redirect]]` > settings stand above all tables: `backlog = ...`
        m.toml:2: `redirect`: `from` is missing > as in | [[redirect]] | from = "/old/*" | to = "/new/*" | status = 301
    [[redirect]]
    to = '/new'
        m.toml:2: `redirect`: `from` is missing > as in | [[redirect]] | from = "/old/*" | to = "/new/*" | status = 301
    [[redirect]]
    from = ['/a']
    to = { a = 1 }
        m.toml:3: `redirect.from`: expected a path, or the beginning of paths (as `/old/*`), found `a TOML table or array`
        m.toml:4: `redirect.to`: expected a path or an absolute URL (as `/new/*`), found `a TOML table or array`
    redirect = '/old=/new'
        m.toml:2: `redirect`: expected a table, found `a TOML string` > as in | [[redirect]] | from = "/old/*" | to = "/new/*" | status = 301
    redirect = [{ from = '/a', to = '/b' },
      '/old=/new']
        m.toml:2: `redirect`: expected a table, found `a TOML array` > as in | [[redirect]] | from = "/old/*" | to = "/new/*" | status = 301
    [redirect]
    '/old' = '/new'
        m.toml:3: `redirect./old`: unknown key > the keys are `from`, `to`, `status`, `except`
        m.toml:2: `redirect`: `from` is missing > as in | [[redirect]] | from = "/old/*" | to = "/new/*" | status = 301
    [[reply]]
    path = '/a'
        m.toml:2: `reply`: unknown setting > its name is `respond` now
    "# }
}

#[test]
fn refuses_text_forms_in_flags_and_variables() {
    let env = [("MILEPOST_REDIRECT", "/a=/b"), ("MILEPOST_REPLY", "/a=200")];
    let found = faults("app = 'a:b'", &env, &[]).join("\n");
    insta::assert_snapshot!(found, @r#"
    `MILEPOST_REDIRECT`: there is no variable for a setting of several parts > it stands in the configuration file (`--config`), as a table: | [[redirect]] | from = "/old/*" | to = "/new/*" | status = 301
    `MILEPOST_REPLY`: unknown setting > its name is `respond` now: it stands in the configuration file (`--config`), as a table: | [[respond]] | path = "/ping" | status = 200 | text = "pong"
    "#);
}

#[test]
fn refuses_responses_and_rewrites_with_what_was_meant() {
    said! { r#"
    respond = { path = '/ping', status = 'pong' }
        m.toml:2: `respond.status`: expected a status from 200 to 599, found `pong`
    respond = { path = '/ping', status = 99 }
        m.toml:2: `respond.status`: expected a status from 200 to 599, found `99`
    respond = { path = '/ping', status = 101 }
        m.toml:2: `respond.status`: expected a status from 200 to 599, found `101`
    respond = { path = '/a', status = 301 }
        m.toml:2: `respond.status`: expected a status from 200 to 599, found `301` > a redirect is a table `[[redirect]]`
    respond = { path = '/a', status = 204, text = 'text' }
        m.toml:2: `respond.text`: a response with 204 has no body > leave it out
    respond = { path = '/a', status = 200, text = "x\u0007" }
        m.toml:2: `respond.text`: expected a text, found `x\u{7}` > a text has no control characters
    rewrite = { from = '/a', to = 'https://b/c' }
        m.toml:2: `rewrite.to`: expected a path (as `/api/*`), found `https://b/c` > a rewrite stays on this server; `[[redirect]]` sends clients elsewhere
    rewrite = { from = '/a', to = '/b#c' }
        m.toml:2: `rewrite.to`: expected a path (as `/api/*`), found `/b#c` > a fragment (`#`) stays with the client: leave it out
    rewrite = { from = '/a', to = 'b' }
        m.toml:2: `rewrite.to`: expected a path (as `/api/*`), found `b` > a path begins with a slash, another site with `https://`: `/b`
    rewrite = { from = '/a', to = '/b/*' }
        m.toml:2: `rewrite.to`: `/b/*` has a `*`, and `/a` has none > `*` stands for what `*` matches: `from = "/a/*"`
    "# }
}

#[test]
fn finds_rules_that_are_never_reached() {
    let redirect = |from: &str| format!("[[redirect]]\nfrom = '{from}'\nto = '/x'\n");
    let respond = |from: &str| format!("[[respond]]\npath = '{from}'\nstatus = 404\n");
    let rewrite = |from: &str| format!("[[rewrite]]\nfrom = '{from}'\nto = '/y'\n");
    let found =
        |tables: [String; 2]| faults(&format!("app = 'a:b'\n{}", tables.concat()), &[], &[]);
    for fine in [
        [redirect("/a/b"), redirect("/a/*")],
        [redirect("/a/*"), respond("/a")],
        [redirect("/a/b"), respond("/a/b/c")],
    ] {
        assert_eq!(found(fine), Vec::<String>::new());
    }
    let never = [
        [redirect("/a/*"), redirect("/a/b")],
        [redirect("/a/*"), respond("/a/b/*")],
        [respond("/a/*"), rewrite("/a/b")],
        // In whatever order they stand, redirects come first.
        [respond("/a/b"), redirect("/a/*")],
        [rewrite("/a"), rewrite("/a")],
    ];
    let all: Vec<String> = never.into_iter().flat_map(found).collect();
    insta::assert_snapshot!(all.join("\n"), @r"
    m.toml:5: `redirect`: `/a/b` is never reached: `/a/*` stands before it > the first match counts, redirects before replies before rewrites
    m.toml:5: `respond`: `/a/b/*` is never reached: `/a/*` stands before it > the first match counts, redirects before replies before rewrites
    m.toml:5: `rewrite`: `/a/b` is never reached: `/a/*` stands before it > the first match counts, redirects before replies before rewrites
    m.toml:2: `respond`: `/a/b` is never reached: `/a/*` stands before it > the first match counts, redirects before replies before rewrites
    m.toml:5: `rewrite`: `/a` has a rule already > leave one out
    ");
    // A rewrite may lead to a response past the redirects.
    let past = format!(
        "{}{}[[rewrite]]\nfrom = '/c'\nto = '/a/b'",
        redirect("/a/*"),
        respond("/a/b")
    );
    assert_eq!(rules(&past).rewrites.len(), 1);
}

#[test]
fn finds_redirects_that_never_end() {
    let ends = |pairs: &[(&str, &str)]| {
        let toml = format!("app = 'a:b'\n{}", redirects(pairs));
        faults(&toml, &[], &[]).is_empty()
    };
    assert!(!ends(&[("/a", "/a")]));
    assert!(!ends(&[("/a", "/a?x=1")]));
    assert!(!ends(&[("/a", "/b"), ("/b", "/a")]));
    assert!(!ends(&[("/a/*", "/a/b/*")]));
    assert!(!ends(&[("/a/*", "/a/index.html")]));
    assert!(!ends(&[("/*", "/www/*")]));
    assert!(!ends(&[("/a%2Fb", "/a/b")]), "paths are compared decoded");
    assert!(!ends(&[("/%61/*", "/a/x%2f*")]));
    assert!(ends(&[("/a%2525", "/a%25"), ("/b%3Fc", "/b?c")]));
    assert!(ends(&[("/a", "/b"), ("/b", "/c"), ("/c", "/d")]));
    assert!(ends(&[("/a/*", "/a")]));
    assert!(ends(&[("/a/index.html", "/b"), ("/a/*", "/a/index.html")]));
    assert!(ends(&[("/*", "https://other.example/*")]));
    assert!(ends(&[("/a/*", "/*"), ("/b", "/a")]));
    said! { r"
    redirect = [{ from = '/a', to = '/a' }]
        m.toml:2: `redirect`: the redirect of `/a` never ends > what it leads to is redirected again, round in a circle
    " }
}
