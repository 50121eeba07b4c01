//! Applications and the routes to them.

use super::super::typed::{
    App, FieldChanges, FieldTemplate, Interface, RateKey, RateLimit, Route, RouteTarget,
    StaticMount, TemplatePart,
};
use super::*;

const SEVERAL: &str = "
app = 'shop:app'
root_path = '/shop'
threads = '2:6'

[[pool]]
name = 'live'
queue_timeout = '2s'

[[route]]
path = '/ws/'
app = 'chat:app'
pool = 'live'

[[route]]
host = 'API.example.org'
app = 'api.v2:create()'
interface = 'wsgi'
root_path = '/v2'

[[route]]
path = '/ws/old'
app = 'chat:app'

[[route]]
host = '*.example.org'
path = '/events'
app = 'chat:app'
pool = 'live'
";

fn routes(config: &Config) -> String {
    let route = |route: &Route| {
        let pool = &config.pools[route.pool().expect("routes to pools")];
        let app = pool.runs.app().map(|app| config.apps[app].name());
        let app = app.expect("routes to applications");
        format!("{} {} {app}\n", route.name(), pool.name)
    };
    config.routes.iter().map(route).collect()
}

#[test]
fn a_route_has_an_application_in_a_pool_and_the_narrowest_comes_first() {
    let loaded = good(SEVERAL, &[], &[]);
    let config = &loaded.config;
    insta::assert_snapshot!(routes(config), @r"
    api.example.org/ api.v2 api.v2:create
    *.example.org/events live chat:app
    /ws/old chat chat:app
    /ws live chat:app
    / default shop:app
    ");
    assert_eq!(
        config.route_names()[4..],
        ["api.example.org/", "*.example.org/events", "/ws/old", "/ws"]
    );
    let pool = |name: &str| config.pools.iter().find(|pool| pool.name == name).unwrap();
    assert_eq!(
        (pool("api.v2").threads_min, pool("chat").threads_max),
        (2, 6)
    );
    assert_eq!(loaded.notes, Vec::<String>::new());
}

#[test]
fn an_application_is_loaded_once_for_all_of_its_routes() {
    let config = good(SEVERAL, &[], &[]).config;
    let facts = |app: &App| {
        (
            app.name(),
            app.factory,
            app.root_path.clone(),
            app.interface,
        )
    };
    let found: Vec<_> = config.apps.iter().map(facts).collect();
    let text = str::to_owned;
    assert_eq!(
        found,
        [
            (text("shop:app"), false, text("/shop"), Interface::Auto),
            (text("chat:app"), false, text(""), Interface::Auto),
            (text("api.v2:create"), true, text("/v2"), Interface::Wsgi),
        ]
    );
    // What differs makes another one of it.
    let toml = "app = 'shop:app'\n[[route]]\npath = '/a'\napp = 'shop:app'\n[[route]]\npath = '/b'\napp = 'shop:app'\nroot_path = '/b'";
    let config = good(toml, &[], &[]).config;
    insta::assert_snapshot!(routes(&config), @r"
    /a default shop:app
    /b shop shop:app
    / default shop:app
    ");
    assert_eq!(config.apps.len(), 2);
}

#[test]
fn the_same_requests_may_have_a_rule_in_each_application() {
    let toml = "
        pool = [{ name = 'live' }]
        route = [{ host = 'live.example', app = 'chat:app', pool = 'live' }]
        pool_rule = [{ pool = 'default', path = '/health', class = 'health' },
          { pool = 'live', path = '/health', class = 'health' }]
    ";
    let loaded = good(toml, &[], &[("app", "shop:app")]);
    assert_eq!(loaded.config.pool_rules.len(), 2);
    assert_eq!(loaded.notes, Vec::<String>::new());
}

#[test]
fn routes_are_enough_to_serve() {
    let toml = "# app = none\n[[route]]\npath = '/ws'\napp = 'chat:app'\n[[route]]\npath = '/api'\napp = 'api:app'";
    let config = good(toml, &[], &[]).config;
    insta::assert_snapshot!(routes(&config), @r"
    /api api api:app
    /ws default chat:app
    ");
    let whole = good("route = [{ app = 'chat:app' }]", &[], &[]).config;
    assert_eq!(whole.route_names(), ["none", "status", "app", "rules"]);
}

#[test]
fn names_of_pools_are_made_of_modules_and_stay_apart() {
    let long = "deep.".repeat(12);
    let toml = format!(
        "route = [{{ path = '/a', app = 'shop:a' }}, {{ path = '/b', app = 'shop:b' }}, \
         {{ path = '/c', app = '_private:app' }}, {{ path = '/d', app = '{long}a:app' }}, \
         {{ path = '/e', app = '{long}b:app' }}]"
    );
    let config = good(&toml, &[], &[("app", "main:app")]).config;
    let names: Vec<&str> = config.pools.iter().map(|pool| pool.name.as_str()).collect();
    let cut = "deep.deep.deep.deep.deep.deep.de";
    let numbered = "deep.deep.deep.deep.deep.deep.-2";
    assert_eq!(
        names,
        ["default", "shop", "shop-2", "app-_private", cut, numbered]
    );
}

#[test]
fn says_what_is_wrong_with_routes() {
    said! { r#"
    route = [{ path = '/a' }]
        m.toml:2: `route`: a route to nothing > name what answers: `app = "chat:app"`, `upstream = "api"` or `dir = "public"`
    route = [{ path = 'a', app = 'chat' }]
        m.toml:2: `route.path`: expected the beginning of a URL path (as `/ws`), found `a` > it begins with a slash: `/a`
    route = [{ path = '/a', app = 'chat.py' }]
        m.toml:2: `route.app`: expected an application (as `chat:app`), found `chat.py` > name the module, not its file: `chat`
    route = [{ path = '/a', app = 'chat', interface = 'asgi3' }]
        m.toml:2: `route.interface`: expected one of `auto`, `asgi`, `asgi2`, `wsgi`, found `asgi3` > did you mean `asgi`?
    route = [{ path = '/a', app = 'chat', host = 'a:1' }]
        m.toml:2: `route.host`: expected a host's name (as `shop.example`, or `*.example.com`), found `a:1` > the host without a port: `a`
    route = [{ path = '/a', app = 'chat', threads = 4 }]
        m.toml:2: `route.threads`: not a key of `[[route]]` > settings stand above all tables: `threads = ...`
    route = [{ app = 'chat' }]
        m.toml:2: `route`: the application of `app` has all requests that no route takes > give the route a `path` or a `host`, or leave out `app`
    route = [{ path = '/a', app = 'x' }, { path = '/a/', app = 'y' }]
        m.toml:2: `route`: there are two routes `/a` > leave out one of them
    static = '/a=pub'
    route = [{ path = '/a', app = 'x' }]
        m.toml:3: `route`: `/a` is the URL of a `static` folder > give each its own path
    route = [{ path = '/a', app = 'x', pool = 'y' }]
        m.toml:2: `route`: no pool `y` > make it: `[[pool]]`, `name = "y"`
    route = [{ path = '/a', app = 'x', pool = 'default' }]
        m.toml:2: `route`: pool `default` runs another application already > a pool runs one application: make another `[[pool]]`
    pool = [{ name = 'p' }]
    route = [{ path = '/a', app = 'x', pool = 'p' }, { path = '/b', app = 'y', pool = 'p' }]
        m.toml:3: `route`: pool `p` runs another application already > a pool runs one application: make another `[[pool]]`
    pool = [{ name = 'p' }]
    slow_pool = 'p'
    route = [{ path = '/a', app = 'x', pool = 'p' }]
        m.toml:3: `slow_pool`: slow_pool is `p`, which runs the application of a route > slow requests stay in their application: name a pool that no route names
    "# }
}

#[test]
fn a_route_may_ask_for_more_than_a_path_and_the_narrowest_comes_first() {
    let toml = "
        upstream = [{ name = 'a', servers = 'http://a' }, { name = 'b', servers = 'http://b' }]
        route = [
          { path = '/x', upstream = 'a' },
          { path = '/x', upstream = 'b', methods = ['GET', 'HEAD'] },
          { path = '/x', upstream = 'b', header = 'X-Beta' },
          { path = '/x', upstream = 'b', header = 'X-Beta: 2' },
          { path = '/x', upstream = 'b', from = ['10.0.0.0/8', '::1'] },
          { path = '/x', upstream = 'b', from = '10.0.0.0/24' },
          { upstream = 'b', methods = 'PURGE' },
        ]
        static = '/x/y=pub'
    ";
    let config = good(toml, &[], &[]).config;
    let route = |route: &Route| {
        let header = route.header.as_ref();
        let header = header.map(|(name, value)| format!(" {name}={value:?}"));
        let (methods, from) = (route.methods.join(","), &route.from);
        format!(
            "<{methods}> {from:?}{} {}",
            header.unwrap_or_default(),
            route.pool().expect("routes to pools")
        )
    };
    let found: Vec<String> = config.routes.iter().map(route).collect();
    insta::assert_snapshot!(found.join("\n"), @r#"
    <> [] x-beta=Some("2") 2
    <> [] x-beta=None 2
    <> [(10.0.0.0, 24)] 2
    <> [(10.0.0.0, 8), (::1, 128)] 2
    <GET,HEAD> [] 2
    <> [] 1
    <PURGE> [] 2
    <> [] 0
    "#);
    assert_eq!(
        config.route_names()[4..],
        ["/x/y", "/x", "/x#2", "/x#3", "/x#4", "/x#5", "/x#6", "/"]
    );
}

#[test]
fn no_two_routes_have_the_same_name() {
    let routes: String = ["/a", "/b", "/a", "/a", "/b"]
        .into_iter()
        .zip(["GET", "GET", "PUT", "POST", "PUT"])
        .map(|(path, methods)| {
            format!("[[route]]\npath = '{path}'\nmethods = '{methods}'\napp = 'a:b'\n")
        })
        .collect();
    let mut names = good(&routes, &[], &[]).config.route_names();
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all, "{names:?}");
    let a = names.iter().filter(|name| name.starts_with("/a"));
    assert_eq!(a.collect::<Vec<_>>(), ["/a", "/a#2", "/a#3"]);
}

#[test]
fn a_route_says_what_becomes_of_its_requests() {
    let toml = r#"
        [[upstream]]
        name = "a"
        servers = "http://a"
        [[upstream]]
        name = "auth"
        servers = "http://auth"
        [[route]]
        path = "/a"
        upstream = "a"
        strip = true
        body_max = "1M"
        request_timeout = "off"
        basic_auth = "users"
        forward_auth = { upstream = "auth", path = "/check?x", copy = ["Remote-User", "remote-user"] }
        rate_limit = { rate = "90/m", by = "header:X-Key" }
        [route.request_headers]
        remove = ["X-Debug", "Accept-Encoding"]
        [route.request_headers.set]
        X-Client = "{client} {{by}} {tls_client}"
        x-static = "yes"
        [route.response_headers]
        remove = "Server"
        set = { X-Id = "{request_id}" }
        [[route]]
        path = "/b"
        app = "b:app"
        rate_limit = { rate = "7/s", burst = 3, prefix_v4 = 24, prefix_v6 = 56 }
    "#;
    let loaded = good(toml, &[], &[]);
    assert_eq!(loaded.notes, Vec::<String>::new());
    let [a, b] = &loaded.config.routes[..] else {
        panic!("{:?}", loaded.config.routes);
    };
    let said = format!("{:?}", a.settings);
    let parts: Vec<&str> = said.split_inclusive("}, ").collect();
    insta::assert_snapshot!(parts.join("\n"), @r#"
    RouteSettings { strips_path: true, body_bytes_max: Some(1048576), request_timeout: Some(None), disconnect_cancel: None, streams_requests: None, request_headers: FieldChanges { removed: ["accept-encoding", "x-debug"], set: [("X-Client", FieldTemplate([Fact(Client), Text(" {by} "), Fact(TlsClient)])), ("x-static", FieldTemplate([Text("yes")]))] }, 
    response_headers: FieldChanges { removed: ["server"], set: [("X-Id", FieldTemplate([Fact(RequestId)]))] }, 
    basic_auth: Some("/srv/users"), forward_auth: Some(ForwardAuth { upstream: 1, path: "/check?x", copied: ["remote-user"] }), rate_limit: Some(RateLimit { interval: Nanos(666666666), burst: 2, by: Header("x-key") }) }
    "#);
    let limit = RateLimit {
        interval: telemetry::Nanos(1_000_000_000 / 7),
        burst: 3,
        by: RateKey::Client {
            prefix_v4: 24,
            prefix_v6: 56,
        },
    };
    assert_eq!(b.settings.rate_limit, Some(limit));
}

#[test]
fn changes_of_headers_replace_those_of_the_same_name() {
    let changes = FieldChanges {
        removed: vec!["x-debug".to_owned()],
        set: vec![(
            "X-Client".to_owned(),
            FieldTemplate(vec![TemplatePart::Text("a".to_owned())]),
        )],
    };
    for (name, expect) in [("X-DEBUG", true), ("x-client", true), ("x-clients", false)] {
        assert_eq!(changes.replaces(name.as_bytes()), expect, "{name}");
    }
}

#[test]
fn a_route_may_have_a_folder_beneath_its_host() {
    let toml = "
        app = 'shop:app'
        static = '/static=pub'
        route = [
          { host = 'a.example', dir = 'a', fallback = 'index.html' },
          { host = '*.example', path = '/files', dir = '/srv/b', methods = 'GET', basic_auth = 'users' },
        ]
    ";
    let config = good(toml, &[], &[]).config;
    let mounts: Vec<&StaticMount> = config.mounts().collect();
    let route = |route: &Route| match route.target {
        RouteTarget::Files(mount) => {
            let StaticMount {
                url, dir, fallback, ..
            } = mounts[mount];
            format!("{} {url:?} {} {fallback:?}", route.name(), dir.display())
        }
        RouteTarget::Pool(pool) => format!("{} {pool}", route.name()),
    };
    let found: Vec<String> = config.routes.iter().map(route).collect();
    insta::assert_snapshot!(found.join("\n"), @r#"
    a.example/ "" a Some("index.html")
    *.example/files "/files" /srv/b None
    / 0
    "#);
    let names = config.route_names();
    assert_eq!(names[4..], ["/static", "a.example/", "*.example/files"]);
}

#[test]
fn says_what_is_wrong_with_routes_to_files() {
    said! { r#"
    route = [{ path = '/a', dir = 'missing' }]
        m.toml:2: `route.dir`: folder `missing` cannot be read: no such file or directory > relative paths start at `/srv`
    route = [{ path = '/a', dir = 'pub', app = 'a:b' }]
        m.toml:2: `route.dir`: the route has `app` already > one of `app`, `upstream` and `dir`, and another `[[route]]` for the other
    route = [{ path = '/a', dir = 'pub', strip = true }]
        m.toml:2: `route.strip`: not a key of a route to files > leave it out: the route has a folder of files
    route = [{ path = '/a', dir = 'pub', pool = 'b' }]
        m.toml:2: `route.pool`: not a key of a route to files > leave it out: the route has a folder of files
    route = [{ path = '/a', dir = 'pub', fallback = '../b' }]
        m.toml:2: `route.fallback`: expected a file beneath the folder (as `index.html`), found `../b` > a file of the mounted folder, without `..`
    route = [{ path = '/a', dir = 'pub', request_headers = { remove = 'X-A' } }]
        m.toml:2: `route.request_headers`: not a key of a route to files > files need no headers of requests
    route = [{ path = '/a', app = 'a:b', fallback = 'index.html' }]
        m.toml:2: `route.fallback`: not a key of a route without files > leave it out: only a route with `dir` has files
    "# }
}

#[test]
fn says_which_headers_upstreams_never_get() {
    said! { r#"
    upstream = [{ name = 'a', servers = 'http://a' }]
    [[route]]
    path = '/a'
    upstream = 'a'
    forward_auth = { upstream = 'a', path = '/', copy = ['X-A', 'X_User', 'Proxy-Authorization'] }
    [route.request_headers]
    remove = ['X_A', 'Proxy-Authorization']
    [route.request_headers.set]
    X_Y = '1'
    Proxy = '1'
    Proxy-Authenticate = '1'
    Te = '1'
    'X.A' = '1'
    X-Forwarded-For = '{client}'
        m.toml:10: `route.request_headers.set.X_Y`: expected a header's name (as `X-Frame-Options`), found `X_Y` > upstreams get no header with `_`, which applications cannot tell from `-`: write `X-Y`
        m.toml:11: `route.request_headers.set.Proxy`: expected a header's name (as `X-Frame-Options`), found `Proxy` > upstreams never get `Proxy`
        m.toml:12: `route.request_headers.set.Proxy-Authenticate`: expected a header's name (as `X-Frame-Options`), found `Proxy-Authenticate` > upstreams never get `Proxy-Authenticate`
        m.toml:13: `route.request_headers.set.Te`: expected a header's name (as `X-Frame-Options`), found `Te` > `te` tells how a message is sent, and is the server's own
        m.toml:6: `route.forward_auth.copy`: expected a header's name (as `X-Frame-Options`), found `X_User` > upstreams get no header with `_`, which applications cannot tell from `-`: write `X-User`
    "# }
}

#[test]
fn says_what_is_wrong_with_the_settings_of_routes() {
    said! { r#"
    route = [{ path = '/a', app = 'a:b', methods = 'get', header = 'Host: a', from = 'unix' }]
        m.toml:2: `route.methods`: expected methods (as `["GET", "HEAD"]`), found `get` > methods are in upper case: `GET`
        m.toml:2: `route.header`: expected a header's name, or `NAME: VALUE`, found `Host: a` > hosts have a key of their own: `host`
        m.toml:2: `route.from`: expected addresses or networks (as `["10.0.0.0/8"]`), found `unix` > clients on unix sockets have no address, and fit no `from`
    route = [{ path = '/a', app = 'a:b', strip = true }]
        m.toml:2: `route.strip`: not a key of a route to an application > for an application the prefix moves to SCRIPT_NAME: `root_path`
    route = [{ path = '/a', app = 'a:b', interface = 'wsgi', disconnect_cancel = '1s' }]
        m.toml:2: `route.disconnect_cancel`: not a key of a route to a WSGI application > leave it out: a thread cannot be cancelled; `request_timeout` bounds its time
    route = [{ path = '/a', app = 'a:b', request_timeout = '1s' }]
        m.toml:2: `route.request_timeout`: not a key of a route to an application > the `[[pool]]` of the application has one
    route = [{ path = '/a', app = 'a:b', request_headers = { remove = 'X-A' } }]
        m.toml:2: `route.request_headers`: not a key of a route to an application > applications see the headers of clients as they are
    upstream = [{ name = 'a', servers = 'http://a' }]
    route = [{ path = '/', upstream = 'a', strip = true, methods = 'GET' }]
        m.toml:3: `route.strip`: there is nothing to remove > name the beginning of the path: `path = "/api"`
    [[route]]
    path = '/a'
    app = 'a:b'
    [route.response_headers]
    remove = ['Content-Length', 'X-A: b']
    sett = { X-A = 'b' }
    [route.response_headers.set]
    Connection = 'close'
    X-A = '{client}'
    x-a = '{request_ip}'
    X-B = '{host'
    X-C = 'a}'
    X-D = ''
    X-E = 3
    X-F = "a\r\nX-G: b"
    X-H = 'a'
    x-h = 'b'
        m.toml:6: `route.response_headers.remove`: expected a header's name (as `X-Frame-Options`), found `Content-Length` > `content-length` tells how a message is sent, and is the server's own
        m.toml:7: `route.response_headers.sett`: unknown key > did you mean `set`?
        m.toml:9: `route.response_headers.set.Connection`: expected a header's name (as `X-Frame-Options`), found `Connection` > `connection` tells how a message is sent, and is the server's own
        m.toml:10: `route.response_headers.set.X-A`: expected a header's value (as `{client}`), found `{client}` > no `client`: there are `request_id`, `host`, `scheme`, `method`, `path`, `queue_ms`
        m.toml:11: `route.response_headers.set.x-a`: expected a header's value (as `{client}`), found `{request_ip}` > did you mean `request_id`?
        m.toml:12: `route.response_headers.set.X-B`: expected a header's value (as `{client}`), found `{host` > braces stand around a name; write `{{` and `}}` for them alone
        m.toml:13: `route.response_headers.set.X-C`: expected a header's value (as `{client}`), found `a}` > braces stand around a name; write `{{` and `}}` for them alone
        m.toml:14: `route.response_headers.set.X-D`: expected a header's value (as `{client}`), found `` > to remove a header, write `remove`
        m.toml:15: `route.response_headers.set.X-E`: expected a text in quotation marks, found `another type`
        m.toml:16: `route.response_headers.set.X-F`: expected a header's value (as `{client}`), found `a\r\nX-G: b` > visible ASCII and spaces
        m.toml:18: `route.response_headers.set.x-h`: the header is set already
    route = [{ path = '/a', app = 'a:b', rate_limit = { rate = '10', burst = 0, by = 'ip' } }]
        m.toml:2: `route.rate_limit.rate`: expected requests in a time (as `10/s`, `600/m`), found `10` > in which time: `10/s` or `10/m`
        m.toml:2: `route.rate_limit.burst`: expected a count from 1 to 1000000, found `0`
        m.toml:2: `route.rate_limit.by`: expected `client` or `header:NAME`, found `ip`
    route = [{ path = '/a', app = 'a:b', rate_limit = { rate = '0/s', prefix_v4 = 33 } }]
        m.toml:2: `route.rate_limit.rate`: expected requests in a time (as `10/s`, `600/m`), found `0/s` > to refuse all requests, write `[[respond]]` with a status
        m.toml:2: `route.rate_limit.prefix_v4`: expected a count from 0 to 32, found `33`
    route = [{ path = '/a', app = 'a:b', rate_limit = { rate = '10/week', by = 'header', key = 1 } }]
        m.toml:2: `route.rate_limit.rate`: expected requests in a time (as `10/s`, `600/m`), found `10/week` > the times are `s`, `m` and `h`, as `10/s`
        m.toml:2: `route.rate_limit.by`: expected `client` or `header:NAME`, found `header` > name it: `header:X-Api-Key`
        m.toml:2: `route.rate_limit.key`: unknown key > the keys are `rate`, `burst`, `by`, `prefix_v4`, `prefix_v6`
    route = [{ path = '/a', app = 'a:b', rate_limit = { rate = '10r/s', by = 'header:X-Key', prefix_v6 = 48 } }]
        m.toml:2: `route.rate_limit.prefix_v6`: requests are counted by a header > leave it out, or write `by = "client"`
    route = [{ path = '/a', app = 'a:b', rate_limit = '10/s' }]
        m.toml:2: `route.rate_limit`: expected a table, found `a value without keys` > as in `rate_limit = { KEY = ... }`
    route = [{ path = '/a', app = 'a:b', forward_auth = { path = 'check' } }]
        m.toml:2: `route.forward_auth.path`: expected a path (as `/check`), found `check` > it begins with a slash: `/check`
        m.toml:2: `route.forward_auth`: `upstream` is missing > as in | [[route]] | path = "/ws" | app = "chat:app"
    route = [{ path = '/a', app = 'a:b', forward_auth = { upstream = 'auth', path = '/check' } }]
        m.toml:2: `route.forward_auth.upstream`: no upstream `auth` > make it: `[[upstream]]`, `name = "auth"`
    route = [{ path = '/a', app = 'a:b', basic_auth = 'missing', body_max = '1MB', request_timeout = 0 }]
        m.toml:2: `route.body_max`: expected a size (as `64K`, `10M`, `1GiB`), found `1MB` > units are powers of 1024: `1M`
        m.toml:2: `route.request_timeout`: expected a duration from 1ms to 24h (as `60s`), or `off`, found `0` > write `off` for none
    route = [{ path = '/a', app = 'a:b', basic_auth = 'missing' }]
        m.toml:2: `route.basic_auth`: file `missing` cannot be read: no such file or directory > relative paths start at `/srv`
    "# }
}

#[test]
fn a_burst_comes_again_within_thirty_days() {
    said! { r#"
    route = [{ path = '/a', app = 'a:b', rate_limit = { rate = '1/h', burst = 721 } }]
        m.toml:2: `route.rate_limit.burst`: it would take more than 30 days until so many may come again > lower it, or raise `rate`
    "# }
}
