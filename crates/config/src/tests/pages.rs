//! Files, codings and pages: fallbacks, cache rules, compression, error pages.

use super::super::typed::Coding;
use super::*;

#[test]
fn gives_folders_their_fallbacks() {
    let toml = "static = ['/b=pub', '/app=pub']\n\
                static_fallback = [{ url = '/app/', file = './shell/index.html' }]";
    let statics = good(toml, &[], &[]).config.statics;
    let found = statics.iter().map(|mount| mount.fallback.as_deref());
    assert_eq!(found.collect::<Vec<_>>(), [Some("shell/index.html"), None]);
}

#[test]
fn refuses_fallbacks_that_no_folder_can_have() {
    let fallback = |url: &str, file: &str| {
        format!("static = '/app=pub'\nstatic_fallback = [{{ url = '{url}', file = '{file}' }}]")
    };
    let texts = [
        fallback("app", "a"),
        fallback("/app", "/a.html"),
        fallback("/app", "../a.html"),
        fallback("/app", "a/../../b"),
        fallback("/app", ""),
        fallback("/app", "a/"),
        fallback("/app", ".git/x"),
        fallback("/ap", "a.html"),
        fallback("/", "a.html"),
        fallback("/app", "missing"),
        "static = '/app=pub'\nstatic_fallback = [{ url = '/app', file = 'a' },\n  { url = '/app/', file = 'b' }]"
            .to_owned(),
    ];
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    insta::assert_snapshot!(toml_refusals(&texts), @r"
    static = '/app=pub'
    static_fallback = [{ url = 'app', file = 'a' }]
        m.toml:3: `static_fallback.url`: expected the URL path of a `static` (as `/`), found `app` > it begins with a slash: `/app`
    static = '/app=pub'
    static_fallback = [{ url = '/app', file = '/a.html' }]
        m.toml:3: `static_fallback.file`: expected a file beneath the mounted folder (as `index.html`), found `/a.html` > the file is beneath the mounted folder: `a.html`
    static = '/app=pub'
    static_fallback = [{ url = '/app', file = '../a.html' }]
        m.toml:3: `static_fallback.file`: expected a file beneath the mounted folder (as `index.html`), found `../a.html` > a file of the mounted folder, without `..`
    static = '/app=pub'
    static_fallback = [{ url = '/app', file = 'a/../../b' }]
        m.toml:3: `static_fallback.file`: expected a file beneath the mounted folder (as `index.html`), found `a/../../b` > a file of the mounted folder, without `..`
    static = '/app=pub'
    static_fallback = [{ url = '/app', file = '' }]
        m.toml:3: `static_fallback.file`: expected a file beneath the mounted folder (as `index.html`), found `` > name a file of the mounted folder
    static = '/app=pub'
    static_fallback = [{ url = '/app', file = 'a/' }]
        m.toml:3: `static_fallback.file`: expected a file beneath the mounted folder (as `index.html`), found `a/` > name a file of the mounted folder
    static = '/app=pub'
    static_fallback = [{ url = '/app', file = '.git/x' }]
        m.toml:3: `static_fallback.file`: expected a file beneath the mounted folder (as `index.html`), found `.git/x` > files and folders whose names begin with a dot are not served
    static = '/app=pub'
    static_fallback = [{ url = '/ap', file = 'a.html' }]
        m.toml:3: `static_fallback`: no folder is mounted at `/ap` > did you mean `/app`?
    static = '/app=pub'
    static_fallback = [{ url = '/', file = 'a.html' }]
        m.toml:3: `static_fallback`: no folder is mounted at `/` > folders are mounted at `/app`
    static = '/app=pub'
    static_fallback = [{ url = '/app', file = 'missing' }]
        m.toml:3: `static_fallback`: file `pub/missing` cannot be read: no such file or directory > relative paths start at `/srv`
    static = '/app=pub'
    static_fallback = [{ url = '/app', file = 'a' },
      { url = '/app/', file = 'b' }]
        m.toml:4: `static_fallback`: `/app` has a fallback already > give each folder one
    ");
}

#[test]
fn roots_globs_and_keeps_their_order() {
    let toml = "
        [[cache_control]]
        path = '/s/**'
        value = 'public, max-age=31536000, immutable'
        [[cache_control]]
        path = '*.{css,js}'
        value = 'no-cache'
    ";
    let rules = good(toml, &[], &[]).config.file_serving.cache_control;
    insta::assert_snapshot!(listed(&rules), @r#"
    CacheRule { glob: "/s/**", value: "public, max-age=31536000, immutable" }
    CacheRule { glob: "/**/*.{css,js}", value: "no-cache" }
    "#);
}

#[test]
fn refuses_bad_globs_and_values() {
    insta::assert_snapshot!(toml_refusals(&[
        "cache_control = [{ path = '', value = 'no-store' }]",
        "cache_control = [{ path = '/[a', value = 'no-store' }]",
        "cache_control = [{ path = '/{a', value = '' }]",
        r#"cache_control = [{ path = '/a', value = "x\r\nSet-Cookie: y" }]"#,
        "cache_control = [{ path = '*.js', value = 'a' },\n  { path = '/**/*.js', value = 'b' }]",
        "[cache_control]\n'*.css' = 'no-cache'",
    ]), @r#"
    cache_control = [{ path = '', value = 'no-store' }]
        m.toml:2: `cache_control.path`: expected a glob over paths (as `/static/**` or `*.css`), found `` > for every file: `**`
    cache_control = [{ path = '/[a', value = 'no-store' }]
        m.toml:2: `cache_control.path`: expected a glob over paths (as `/static/**` or `*.css`), found `/[a` > `/[a` is not a glob: unclosed character class; missing ']'
    cache_control = [{ path = '/{a', value = '' }]
        m.toml:2: `cache_control.path`: expected a glob over paths (as `/static/**` or `*.css`), found `/{a` > `/{a` is not a glob: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)
        m.toml:2: `cache_control.value`: expected a value of Cache-Control (as `max-age=3600`), found ``
    cache_control = [{ path = '/a', value = "x\r\nSet-Cookie: y" }]
        m.toml:2: `cache_control.value`: expected a value of Cache-Control (as `max-age=3600`), found `x\r\nSet-Cookie: y`
    cache_control = [{ path = '*.js', value = 'a' },
      { path = '/**/*.js', value = 'b' }]
        m.toml:3: `cache_control`: `/**/*.js` has a rule already > the first match counts: leave one out
    [cache_control]
    '*.css' = 'no-cache'
        m.toml:3: `cache_control.*.css`: unknown key > the keys are `path`, `value`
        m.toml:2: `cache_control`: `path` is missing > as in | [[cache_control]] | path = "/static/**" | value = "max-age=3600"
    "#);
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
    insta::assert_snapshot!(refusals(&[
        ("compress", "on"),
        ("compress", "false"),
        ("compress", "none"),
        ("compress", "gzip,off"),
        ("compress", "brotli"),
        ("compress", "gz"),
        ("compress", "gizp"),
        ("compress", "deflate"),
        ("compress", "br,br"),
        ("compress", "br,"),
        ("compress_level_gzip", "10"),
        ("compress_level_br", "12"),
        ("compress_level_zstd", "0"),
    ]), @r#"
    "on": `--compress`: expected some of `br`, `zstd`, `gzip`, the preferred first, or `off`, found `on` > name the codings, the preferred first: `br,zstd,gzip`
    "false": `--compress`: expected some of `br`, `zstd`, `gzip`, the preferred first, or `off`, found `false` > write `off`
    "none": `--compress`: expected some of `br`, `zstd`, `gzip`, the preferred first, or `off`, found `none` > write `off`
    "gzip,off": `--compress`: expected some of `br`, `zstd`, `gzip`, the preferred first, or `off`, found `gzip,off` > `off` stands alone
    "brotli": `--compress`: expected some of `br`, `zstd`, `gzip`, the preferred first, or `off`, found `brotli` > did you mean `br`?
    "gz": `--compress`: expected some of `br`, `zstd`, `gzip`, the preferred first, or `off`, found `gz` > did you mean `gzip`?
    "gizp": `--compress`: expected some of `br`, `zstd`, `gzip`, the preferred first, or `off`, found `gizp` > did you mean `gzip`?
    "deflate": `--compress`: expected some of `br`, `zstd`, `gzip`, the preferred first, or `off`, found `deflate` > `deflate` means two things to clients; `gzip` is the same size
    "br,br": `--compress`: expected some of `br`, `zstd`, `gzip`, the preferred first, or `off`, found `br,br` > `br` is there twice
    "br,": `--compress`: expected some of `br`, `zstd`, `gzip`, the preferred first, or `off`, found `br,`
    "10": `--compress-level-gzip`: expected a count from 1 to 9, found `10`
    "12": `--compress-level-br`: expected a count from 0 to 11, found `12`
    "0": `--compress-level-zstd`: expected a count from 1 to 19, found `0`
    "#);
    insta::assert_snapshot!(toml_refusals(&["compress = true"]), @r"
    compress = true
        m.toml:2: `compress`: expected some of `br`, `zstd`, `gzip`, the preferred first, or `off`, found `true` > name the codings, the preferred first: `br,zstd,gzip`
    ");
}

#[test]
fn reads_media_types_in_lower_case() {
    let flags = [("compress_types", "Text/HTML, application/*")];
    let types = good("", &[], &flags).config.compression.types;
    assert_eq!(types, ["text/html", "application/*"]);
    let toml = "compress_types = ['text/css', 'image/svg+xml']";
    let types = good(toml, &[], &[]).config.compression.types;
    assert_eq!(types, ["text/css", "image/svg+xml"]);
    insta::assert_snapshot!(refusals(&[
        ("compress_types", "text/html; charset=utf-8"),
        ("compress_types", "*/*"),
        ("compress_types", "text"),
        ("compress_types", "text/"),
        ("compress_types", ""),
    ]), @r#"
    "text/html; charset=utf-8": `--compress-types`: expected media types (as `text/*,application/json`), found `text/html; charset=utf-8` > without parameters: `text/html` stands for all of them
    "*/*": `--compress-types`: expected media types (as `text/*,application/json`), found `*/*` > name what is worth compressing: pictures and films are compressed already
    "text": `--compress-types`: expected media types (as `text/*,application/json`), found `text`
    "text/": `--compress-types`: expected media types (as `text/*,application/json`), found `text/`
    "": `--compress-types`: expected media types (as `text/*,application/json`), found ``
    "#);
}

#[test]
fn puts_the_narrowest_page_first() {
    let toml = "error_page = [{ status = '5XX', file = 'a.html' }, { status = '400-404', file = 'b.html' },\n\
                { status = 404, file = 'c.html' }, { status = '400-599', file = 'd.html' }]";
    let pages = good(toml, &[], &[]).config.error_pages;
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
}

#[test]
fn refuses_pages_that_cannot_be_shown() {
    let page = |(status, file): (&str, &str)| {
        format!("error_page = [{{ status = '{status}', file = '{file}' }}]")
    };
    let texts = [
        ("200", "a.html"),
        ("3xx", "a.html"),
        ("500-600", "a.html"),
        ("499-400", "a.html"),
        ("x", "a.html"),
        ("99999xx", "a.html"),
        ("404", ""),
        ("404", "missing"),
        ("404", "folder"),
        ("404", "huge"),
        ("404", "page"),
    ]
    .map(page);
    let mut texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    texts.push("error_page = [{ status = 404, file = 'a.html' },\n  { status = '404-404', file = 'b.html' }]");
    texts.push("[error_page]\n404 = '404.html'");
    insta::assert_snapshot!(toml_refusals(&texts), @r#"
    error_page = [{ status = '200', file = 'a.html' }]
        m.toml:2: `error_page.status`: expected a status, a class or a range (as `404`, `5xx`, `400-499`), found `200` > pages are for the statuses from 400 to 599
    error_page = [{ status = '3xx', file = 'a.html' }]
        m.toml:2: `error_page.status`: expected a status, a class or a range (as `404`, `5xx`, `400-499`), found `3xx` > pages are for the statuses from 400 to 599
    error_page = [{ status = '500-600', file = 'a.html' }]
        m.toml:2: `error_page.status`: expected a status, a class or a range (as `404`, `5xx`, `400-499`), found `500-600` > pages are for the statuses from 400 to 599
    error_page = [{ status = '499-400', file = 'a.html' }]
        m.toml:2: `error_page.status`: expected a status, a class or a range (as `404`, `5xx`, `400-499`), found `499-400` > the smaller number comes first: `400-499`
    error_page = [{ status = 'x', file = 'a.html' }]
        m.toml:2: `error_page.status`: expected a status, a class or a range (as `404`, `5xx`, `400-499`), found `x`
    error_page = [{ status = '99999xx', file = 'a.html' }]
        m.toml:2: `error_page.status`: expected a status, a class or a range (as `404`, `5xx`, `400-499`), found `99999xx`
    error_page = [{ status = '404', file = '' }]
        m.toml:2: `error_page.file`: expected a file, found `` > name a file
    error_page = [{ status = '404', file = 'missing' }]
        m.toml:2: `error_page`: file `missing` cannot be read: no such file or directory > relative paths start at `/srv`
    error_page = [{ status = '404', file = 'folder' }]
        m.toml:2: `error_page`: file `folder` cannot be read: is a directory > name the file, not its folder
    error_page = [{ status = '404', file = 'huge' }]
        m.toml:2: `error_page`: file `huge` has 1048577 bytes > a page has at most 1048576
    error_page = [{ status = '404', file = 'page' }]
        m.toml:2: `error_page`: the name of `page` does not tell its media type > give it an ending that browsers show, as `.html`
    error_page = [{ status = 404, file = 'a.html' },
      { status = '404-404', file = 'b.html' }]
        m.toml:3: `error_page`: 404 has a page already > leave one out
    [error_page]
    404 = '404.html'
        m.toml:3: `error_page.404`: unknown key > the keys are `status`, `file`
        m.toml:2: `error_page`: `status` is missing > as in | [[error_page]] | status = 404 | file = "404.html"
    "#);
}
