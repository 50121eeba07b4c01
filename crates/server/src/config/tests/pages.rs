//! Files, codings and pages: fallbacks, cache rules, compression, error pages.

use super::super::meant::Coding;
use super::*;

fn with_folder<'f>(key: &'f str, text: &'f str) -> [(&'f str, &'f str); 2] {
    [("static", "/app=pub"), (key, text)]
}

/// The first fault of one flag beside a folder at `/app`.
#[track_caller]
fn check(key: &str, text: &str, expect: &str) {
    let found = faults("", &[], &with_folder(key, text));
    assert!(
        found.first().is_some_and(|first| first.contains(expect)),
        "{key} {text}: {found:?}"
    );
}

#[test]
fn gives_folders_their_fallbacks() {
    let flags = [
        ("static", "/b=pub"),
        ("static", "/app=pub"),
        ("static_fallback", "/app/=./shell/index.html"),
    ];
    let statics = good("", &[], &flags).config.statics;
    let found = statics.iter().map(|mount| mount.fallback.as_deref());
    assert_eq!(found.collect::<Vec<_>>(), [Some("shell/index.html"), None]);
    let toml = "static = ['/app=pub']\n[static_fallback]\n'/app' = 'a.html'";
    let statics = good(toml, &[], &[]).config.statics;
    assert_eq!(statics[0].fallback.as_deref(), Some("a.html"));
}

#[test]
fn refuses_fallbacks_that_no_folder_can_have() {
    check("static_fallback", "/app", "> write `/app=index.html`");
    check("static_fallback", "/", "> write `/=index.html`");
    check(
        "static_fallback",
        "a.html",
        "> of which folder? `/=a.html` is that of the root",
    );
    check(
        "static_fallback",
        "app=a",
        "> the URL begins with a slash: `/app=a`",
    );
    check(
        "static_fallback",
        "/app=/a.html",
        "> the file is beneath the mounted folder: `/app=a.html`",
    );
    check(
        "static_fallback",
        "/app=../a.html",
        "> a file of the mounted folder, without `..`",
    );
    check("static_fallback", "/app=a/../../b", "without `..`");
    check(
        "static_fallback",
        "/app=",
        "> name a file of the mounted folder",
    );
    check(
        "static_fallback",
        "/app=a/",
        "> name a file of the mounted folder",
    );
    check(
        "static_fallback",
        "/app=.git/x",
        "begin with a dot are not served",
    );
    check(
        "static_fallback",
        "/ap=a.html",
        "`--static-fallback`: no folder is mounted at `/ap` > did you mean `/app`?",
    );
    check(
        "static_fallback",
        "/=a.html",
        "no folder is mounted at `/` > folders are mounted at `/app`",
    );
    check(
        "static_fallback",
        "/app=missing",
        "file `pub/missing` cannot be read: no such file or directory",
    );
    let twice = [
        ("static", "/app=pub"),
        ("static_fallback", "/app=a"),
        ("static_fallback", "/app/=b"),
    ];
    assert_eq!(
        faults("", &[], &twice),
        ["`--static-fallback`: `/app` has a fallback already > give each folder one"]
    );
}

#[test]
fn roots_globs_and_keeps_their_order() {
    let rules = |toml: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]| {
        let rules = good(toml, environment, flags)
            .config
            .file_serving
            .cache_control;
        let pair = |rule: super::super::meant::CacheRule| (rule.glob, rule.value);
        rules.into_iter().map(pair).collect::<Vec<_>>()
    };
    let pair = |glob: &str, value: &str| (glob.to_owned(), value.to_owned());
    let expect = [
        pair("/s/**", "public, max-age=31536000, immutable"),
        pair("/**/*.{css,js}", "no-cache"),
    ];
    let texts = [
        "/s/**=public, max-age=31536000, immutable",
        "*.{css,js} = no-cache",
    ];
    let flags = texts.map(|text| ("cache_control", text));
    assert_eq!(rules("", &[], &flags), expect);
    for separator in [";", "\n"] {
        let text = texts.join(separator);
        assert_eq!(rules("", &[("MILEPOST_CACHE_CONTROL", &text)], &[]), expect);
    }
    let toml = "[cache_control]\n'/s/**' = 'public, max-age=31536000, immutable'\n'*.{css,js}' = 'no-cache'";
    assert_eq!(rules(toml, &[], &[]), expect);
}

#[test]
fn refuses_bad_globs_and_values() {
    check(
        "cache_control",
        "no-store",
        "> for every file: `**=no-store`",
    );
    check(
        "cache_control",
        "max-age=60",
        "> for every file: `**=max-age=60`",
    );
    check(
        "cache_control",
        "*.css",
        "> write `*.css=VALUE`, as `*.css=max-age=3600`",
    );
    check("cache_control", "=no-store", "> for every file: `**`");
    check(
        "cache_control",
        "/[a=no-store",
        "> `/[a` is not a glob: unclosed character class",
    );
    check(
        "cache_control",
        "/{a=no-store",
        "> `/{a` is not a glob: unclosed alternate group",
    );
    check("cache_control", "/a=", "expected GLOB=VALUE");
    check(
        "cache_control",
        "/a=x\r\nSet-Cookie: y",
        "found `/a=x\\r\\nSet-Cookie: y`",
    );
    let env = [("MILEPOST_CACHE_CONTROL", "*.css=no-cache,*.js=no-store")];
    let found = faults("app = 'a:b'", &env, &[]);
    assert!(
        found[0].contains("> `*.js=no-store` is a rule of its own: rules are separated by `;`"),
        "{found:?}"
    );
    let twice = [("cache_control", "*.js=a"), ("cache_control", "/**/*.js=b")];
    let found = faults("app = 'a:b'", &[], &twice);
    assert!(
        found[0].contains("`/**/*.js` has a rule already"),
        "{found:?}"
    );
}

#[test]
fn reads_lists_of_codings() {
    let codings = |toml: &str, text| {
        let flags: &[_] = match text {
            "" => &[],
            text => &[("compress", text)],
        };
        good(toml, &[], flags).config.compression.codings
    };
    assert_eq!(codings("", ""), []);
    assert_eq!(codings("", "zstd, gzip"), [Coding::Zstd, Coding::Gzip]);
    assert_eq!(
        codings("compress = ['br', 'gzip']", ""),
        [Coding::Brotli, Coding::Gzip]
    );
    assert_eq!(codings("compress = 'br,gzip'", "off"), []);
    assert_eq!(codings("compress = []", ""), []);
    let env = [("MILEPOST_STATIC_ENCODINGS", "off")];
    assert_eq!(good("", &env, &[]).config.file_serving.encodings, []);
}

#[test]
fn says_what_was_meant_by_a_coding() {
    check(
        "compress",
        "on",
        "`--compress`: expected some of `br`, `zstd`, `gzip`, the preferred first, or `off`, found `on` > name the codings, the preferred first: `br,zstd,gzip`",
    );
    let found = faults("app = 'a:b'\ncompress = true", &[], &[]);
    assert!(found[0].starts_with("m.toml:2: `compress`: "), "{found:?}");
    assert!(found[0].contains("> name the codings"), "{found:?}");
    check("compress", "false", "> write `off`");
    check("compress", "none", "> write `off`");
    check("compress", "gzip,off", "> `off` stands alone");
    check("compress", "brotli", "> did you mean `br`?");
    check("compress", "gz", "> did you mean `gzip`?");
    check("compress", "gizp", "> did you mean `gzip`?");
    check("compress", "deflate", "`gzip` is the same size");
    check("compress", "br,br", "> `br` is there twice");
    check("compress", "br,", "found `br,`");
    check("compress_level_gzip", "10", "a count from 1 to 9");
    check("compress_level_br", "12", "a count from 0 to 11");
    check("compress_level_zstd", "0", "a count from 1 to 19");
}

#[test]
fn reads_media_types_in_lower_case() {
    let flags = [("compress_types", "Text/HTML, application/*")];
    let types = good("", &[], &flags).config.compression.types;
    assert_eq!(types, ["text/html", "application/*"]);
    let toml = "compress_types = ['text/css', 'image/svg+xml']";
    let types = good(toml, &[], &[]).config.compression.types;
    assert_eq!(types, ["text/css", "image/svg+xml"]);
    check(
        "compress_types",
        "text/html; charset=utf-8",
        "> without parameters: `text/html` stands for all of them",
    );
    check("compress_types", "*/*", "> name what is worth compressing");
    check(
        "compress_types",
        "text",
        "media types (as `text/*,application/json`)",
    );
    check("compress_types", "text/", "found `text/`");
    check("compress_types", "", "found ``");
}

#[test]
fn puts_the_narrowest_page_first() {
    let flags = [
        ("error_page", "5xx=a.html"),
        ("error_page", "400-404=b.html"),
        ("error_page", "404=c.html"),
        ("error_page", "400-599=d.html"),
    ];
    let pages = good("", &[], &flags).config.error_pages;
    let found: Vec<_> = pages
        .iter()
        .map(|page| (page.status_min, page.status_max, page.file.to_str()))
        .collect();
    let expect = [
        (404, 404, Some("c.html")),
        (400, 404, Some("b.html")),
        (500, 599, Some("a.html")),
        (400, 599, Some("d.html")),
    ];
    assert_eq!(found, expect);
    let toml = "[error_page]\n404 = 'c.html'\n5XX = 'a.txt'";
    assert_eq!(good(toml, &[], &[]).config.error_pages.len(), 2);
}

#[test]
fn refuses_pages_that_cannot_be_shown() {
    check("error_page", "404.html", "> write `404=FILE`");
    check(
        "error_page",
        "200=a.html",
        "> pages are for the statuses from 400 to 599",
    );
    check("error_page", "3xx=a.html", "from 400 to 599");
    check("error_page", "500-600=a.html", "from 400 to 599");
    check(
        "error_page",
        "499-400=a.html",
        "> the smaller number comes first: `400-499`",
    );
    check("error_page", "x=a.html", "expected STATUS=FILE");
    check("error_page", "99999xx=a.html", "expected STATUS=FILE");
    check("error_page", "404=", "> name a file");
    check(
        "error_page",
        "404=missing",
        "`--error-page`: file `missing` cannot be read: no such file or directory > relative paths start at `/srv`",
    );
    check(
        "error_page",
        "404=folder",
        "> name the file, not its folder",
    );
    check(
        "error_page",
        "404=huge",
        "file `huge` has 1048577 bytes > a page has at most 1048576",
    );
    check(
        "error_page",
        "404=page",
        "the name of `page` does not tell its media type > give it an ending that browsers show, as `.html`",
    );
    let twice = [
        ("error_page", "404=a.html"),
        ("error_page", "404-404=b.html"),
    ];
    assert_eq!(
        faults("app = 'a:b'", &[], &twice),
        ["`--error-page`: 404 has a page already > leave one out"]
    );
}
