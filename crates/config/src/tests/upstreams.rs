//! Upstreams and the routes to them.

use super::super::typed::{
    Balance, HashKey, PoolRuns, ServerAddress, Upstream, UpstreamProtocol, UpstreamServer,
};
use super::*;

const WHOLE: &str = "
app = 'shop:app'
queue_timeout = '20s'
request_timeout = '50s'

[[pool]]
name = 'slow'

[[upstream]]
name = 'api'
servers = ['http://127.0.0.1:9001', 'http://[::1]:9002/', 'unix:/run/app.sock', 'https://A.example:8443']
slots = 8
queue_timeout = '2s'
send_proxy = true

[[upstream]]
name = 'search'
protocol = 'http2'
balance = 'hash'
hash_by = 'header:X-Shard'
slots_max = 100
connect_timeout = '1s'
response_timeout = '90s'
idle_timeout = '20s'
idle_max = 3
stream_requests = true
tunnel_idle = '2h'
tunnels_max = 5
queue_len_max = 77
request_timeout = 'off'
retries = 1
retry_budget = '20%'
retry_status = [502, 503]
slow_start = '5s'
eject_after = 'off'
eject_time = '7s'
check = '/health?deep=1'
check_interval = '4s'
check_rise = 1
check_fall = 5
check_timeout = '3s'
resolve_every = '60s'
tls_ca = 'ca.pem'
tls_name = 'search.internal'
tls_cert = 'front.pem'
trust_reports = false
proxy_status = true
[[upstream.server]]
url = 'https://one'
slots = 4
weight = 3
[[upstream.server]]
url = 'http://two'
backup = true

[[route]]
path = '/api'
upstream = 'api'
[[route]]
host = 'search.example'
upstream = 'search'
";

/// Its servers as they are written, with what differs from the usual.
fn servers(upstream: &Upstream) -> String {
    let server = |server: &UpstreamServer| {
        let slots = server.slots.map(|slots| format!(" slots {slots}"));
        let weight = (server.weight != 1).then(|| format!(" weight {}", server.weight));
        let backup = if server.is_backup { " backup" } else { "" };
        let (slots, weight) = (slots.unwrap_or_default(), weight.unwrap_or_default());
        format!("{server}{slots}{weight}{backup}")
    };
    let servers: Vec<String> = upstream.servers.iter().map(server).collect();
    servers.join(", ")
}

/// Routes with their upstreams.
fn routes(config: &Config) -> String {
    let route = |route: &super::super::typed::Route| {
        let index = route.pool().expect("routes to pools");
        let pool = &config.pools[index];
        match pool.runs {
            PoolRuns::App(_) => format!("{} app\n", route.name()),
            PoolRuns::Upstream(upstream) => {
                let upstream = &config.upstreams[upstream];
                assert_eq!((&upstream.name, upstream.pool), (&pool.name, index));
                format!("{} {}: {}\n", route.name(), pool.name, servers(upstream))
            }
        }
    };
    config.routes.iter().map(route).collect()
}

#[test]
fn an_upstream_has_servers_and_a_pool_of_its_name() {
    let loaded = good(WHOLE, &[], &[]);
    let config = &loaded.config;
    insta::assert_snapshot!(routes(config), @r"
    search.example/ search: https://one:443 slots 4 weight 3, http://two:80 backup
    /api api: http://127.0.0.1:9001 slots 8, http://[::1]:9002 slots 8, unix:/run/app.sock slots 8, https://a.example:8443 slots 8
    / app
    ");
    let pools: Vec<_> = config
        .pools
        .iter()
        .map(|pool| {
            (
                pool.name.as_str(),
                pool.runs,
                pool.threads_max,
                pool.queue_len_max,
                pool.queue_timeout.0 / 1_000_000_000,
                pool.request_timeout
                    .map(|timeout| timeout.0 / 1_000_000_000),
            )
        })
        .collect();
    assert_eq!(
        pools,
        [
            ("default", PoolRuns::App(0), 4, 1024, 20, Some(50)),
            ("slow", PoolRuns::App(0), 4, 1024, 20, Some(50)),
            ("api", PoolRuns::Upstream(0), 1, 1024, 2, Some(50)),
            ("search", PoolRuns::Upstream(1), 1, 77, 20, None),
        ]
    );
    assert_eq!(
        loaded.notes,
        ["pool `slow` gets no requests: no pool_rule and no route names it"]
    );
    let unix = &config.upstreams[0].servers[2].address;
    assert_eq!(*unix, ServerAddress::Unix("/run/app.sock".into()));
}

#[test]
fn each_setting_of_an_upstream_gets_to_its_field() {
    let config = good(WHOLE, &[], &[]).config;
    let [api, search] = &config.upstreams[..] else {
        panic!("{:?}", config.upstreams);
    };
    assert_eq!(search.protocol, UpstreamProtocol::Http2);
    let shard = HashKey::Header("x-shard".to_owned());
    assert_eq!(search.balance, Balance::Hash(shard));
    // Every other field differs from its default, so that none has been left out.
    let fields = |upstream: &Upstream| {
        let text = format!("{upstream:?}");
        let parts = text.split([',', '}']);
        let parts = parts.map(|part| {
            part.rsplit('{')
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned()
        });
        parts.filter(|part| part.contains(": ")).collect::<Vec<_>>()
    };
    let of_servers = [
        "host",
        "port",
        "address",
        "has_tls",
        "slots:",
        "weight",
        "is_backup",
    ];
    let kept = |line: &&String| !of_servers.iter().any(|field| line.starts_with(field));
    let defaults = fields(&Upstream::default());
    let same: Vec<_> = fields(search)
        .into_iter()
        .filter(|line| defaults.contains(line))
        .filter(|line| kept(&line))
        .collect();
    // HTTP/2 has no such header.
    assert_eq!(same, ["is_verified: true", "sends_proxy_header: false"]);
    insta::assert_snapshot!(format!("{:?} {:?}", search.check, search.tls), @r#"Some(HealthCheck { path: "/health?deep=1", interval: Nanos(4000000000), rise: 1, fall: 5, timeout: Nanos(3000000000) }) UpstreamTls { ca: Some("/srv/ca.pem"), name: Some("search.internal"), is_verified: true, client: Some(ClientIdentity { cert: "/srv/front.pem", key: "/srv/front.pem" }) }"#);
    let meant = Upstream {
        name: api.name.clone(),
        pool: api.pool,
        servers: api.servers.clone(),
        sends_proxy_header: true,
        ..Upstream::default()
    };
    assert_eq!(*api, meant);
}

#[test]
fn flags_make_upstreams_and_their_routes() {
    let toml = "# app = none\n[[pool]]\nname = 'proxy-a-b'\n[[upstream]]\nname = 'other'\nservers = 'http://o'\n\
                [[route]]\npath = '/o'\nupstream = 'other'";
    let flags = [
        ("proxy", "/a/b/=http://one,http://two"),
        ("proxy", "unix:x.sock"),
        ("proxy", "/a/b=http://three:81"),
        ("proxy", "/a-b=http://four"),
    ];
    insta::assert_snapshot!(routes(&good(toml, &[], &flags).config), @r"
    /a/b proxy-a-b-2: http://one:80, http://two:80, http://three:81
    /a-b proxy-a-b-3: http://four:80
    /o other: http://o:80
    / proxy: unix:/srv/x.sock
    ");
    let table =
        "# app = none\n[proxy]\n'/' = 'http://one'\n'/api' = ['http://two', 'http://three']";
    insta::assert_snapshot!(routes(&good(table, &[], &[]).config), @r"
    /api proxy-api: http://two:80, http://three:80
    / proxy: http://one:80
    ");
    let variable = [("MILEPOST_PROXY", "/api=http://two,http://three  http://one")];
    assert_eq!(
        routes(&good(table, &[], &[]).config),
        routes(&good("# app = none", &variable, &[]).config)
    );
}

#[test]
fn rules_of_balancing_have_the_names_of_the_field() {
    let check = |keys: &str, expect: Balance| {
        let toml = format!("upstream = [{{ name = 'a', servers = 'http://a', {keys} }}]");
        let config = good(&toml, &[], &[]).config;
        assert_eq!(config.upstreams[0].balance, expect, "{keys}");
    };
    check("balance = 'queue'", Balance::Queue);
    check("balance = 'least-connections'", Balance::LeastConnections);
    check("balance = 'two-choices'", Balance::TwoChoices);
    check("balance = 'peak-ewma'", Balance::PeakEwma);
    check("balance = 'prequal'", Balance::Prequal);
    check("balance = 'round-robin'", Balance::RoundRobin);
    check("balance = 'random'", Balance::Random);
    check("balance = 'first'", Balance::First);
    let sticky = |cookie: &str| Balance::Sticky {
        cookie: cookie.to_owned(),
    };
    check("balance = 'sticky'", sticky("milepost-server"));
    check("balance = 'sticky', sticky_cookie = 'srv'", sticky("srv"));
    let hash = |key| Balance::Hash(key);
    check(
        "balance = 'hash', hash_by = 'client'",
        hash(HashKey::Client),
    );
    check("balance = 'hash', hash_by = 'path'", hash(HashKey::Path));
    let cart = HashKey::Cookie("Cart".to_owned());
    check("balance = 'hash', hash_by = 'cookie:Cart'", hash(cart));
}

#[test]
fn says_what_is_in_vain() {
    let toml = "upstream = [{ name = 'a', servers = 'https://a', tls_verify = false }]\n\
                pool_rule = [{ pool = 'a', path = '/x', class = 'high' }]";
    assert_eq!(
        good(toml, &[], &[]).notes,
        [
            "upstream `a` takes any certificate (tls_verify): who is on the way can read and change all of it",
            "upstream `a` gets no requests: no route names it",
        ]
    );
}

#[test]
fn says_what_is_wrong_with_servers() {
    said! { r#"
    --proxy=/api => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `/api` > write `/api=URL`
    --proxy=api=http://a => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `api=http://a` > the path begins with a slash: `/api=http://a`
    --proxy=localhost:9000 => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `localhost:9000` > a URL begins with its scheme: `http://localhost:9000`
    --proxy=/api=9000 => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `/api=9000` > a URL has a host: `http://127.0.0.1:9000`
    --proxy=/api= => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `/api=`
    --proxy=http://a/v1 => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `http://a/v1` > a server has no path: `http://a`; a `[[route]]` has a `path`
    --proxy=https://a?b => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `https://a?b` > a server has no path: `https://a`; a `[[route]]` has a `path`
    --proxy=ftp://a => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `ftp://a` > the schemes are `http` and `https`, and `unix:` with a path
    --proxy=h2c://a => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `h2c://a` > write `http://a` and `protocol = "http2"`
    --proxy=grpcs://a => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `grpcs://a` > write `https://a` and `protocol = "http2"`
    --proxy=ws://a => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `ws://a` > WebSocket needs no scheme of its own: `http://a`
    --proxy=http://unix:/run/a.sock => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `http://unix:/run/a.sock` > write `unix:/run/a.sock`
    --proxy=unix: => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `unix:` > name the socket: `unix:/run/app.sock`
    --proxy=unix:/run/a.sock:/v1 => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `unix:/run/a.sock:/v1` > a server has no path: `unix:/run/a.sock`; a `[[route]]` has a `path`
    --proxy=/run/a.sock => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `/run/a.sock` > a unix socket is `unix:/run/a.sock`
    --proxy=http://user:word@a:80 => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `http://user:word@a:80` > no user and no password, which would stand in logs: `http://a:80`
    --proxy=http://a:0 => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `http://a:0` > ports are numbers from 1 to 65535
    --proxy=http://a:65536 => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `http://a:65536` > ports are numbers from 1 to 65535
    --proxy=http://a:b => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `http://a:b` > ports are numbers from 1 to 65535
    --proxy=http://::1:80 => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `http://::1:80` > IPv6 addresses stand in brackets, as `http://[::1]:9000`
    --proxy=http://[::1 => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `http://[::1`
    --proxy=http://[a]:80 => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `http://[a]:80`
    --proxy=http://:80 => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `http://:80` > name a host, as `http://127.0.0.1:9000`
    --proxy=http:// => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `http://` > name a host, as `http://127.0.0.1:9000`
    --proxy=http://1.2.3 => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `http://1.2.3`
    --proxy=http://a_b..c d => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `http://a_b..c d`
    --proxy=http://a,http://b:x => expected PATH=URL or URL (as `/api=http://127.0.0.1:9000`), found `http://a,http://b:x` > ports are numbers from 1 to 65535
    "# }
}

#[test]
fn says_what_is_wrong_with_upstreams() {
    said! { r#"
    upstream = 'http://a'
        m.toml:2: `upstream`: expected a table, found `a TOML string` > as in | [[upstream]] | name = "api" | servers = ["http://127.0.0.1:9001", "http://127.0.0.1:9002"]
    [[upstream]]
    servers = 'http://a'
        m.toml:2: `upstream`: `name` is missing > as in | [[upstream]] | name = "api" | servers = ["http://127.0.0.1:9001", "http://127.0.0.1:9002"]
    upstream = [{ name = 'a' }]
        m.toml:2: `upstream`: an upstream without servers > name them: `servers = ["http://127.0.0.1:9001"]`
    upstream = [{ name = '1', servers = 'http://a' }]
        m.toml:2: `upstream.name`: expected an upstream's name (as `api`), found `1` > a name begins with a letter and has at most 32 letters, digits and `-_.`
    upstream = [{ name = 'default', servers = 'http://a' }]
        m.toml:2: `upstream.name`: there is a pool `default` > an upstream has a queue of its name: give it another one
    upstream = [{ name = 'a', servers = 'http://a' }, { name = 'a', servers = 'http://b' }]
        m.toml:2: `upstream.name`: there are two upstreams `a` > give each upstream its own name
    pool = [{ name = 'a' }]
    upstream = [{ name = 'a', servers = 'http://a' }]
        m.toml:3: `upstream.name`: there is a pool `a` > an upstream has a queue of its name: give it another one
    upstream = [{ name = 'a', servers = [] }]
        m.toml:2: `upstream.servers`: expected a server's URL (as `http://127.0.0.1:9000`, `unix:/run/app.sock`), found `[]`
    upstream = [{ name = 'a', servers = ['http://a', 'b'] }]
        m.toml:2: `upstream.servers`: expected a server's URL (as `http://127.0.0.1:9000`, `unix:/run/app.sock`), found `b` > a URL begins with its scheme: `http://b`
    upstream = [{ name = 'a', servers = ['http://a', 'http://A:80/'] }]
        m.toml:2: `upstream.servers`: `a:80` is there twice > name each server once; `weight` gives one of them more
    upstream = [{ name = 'a', servers = 'http://a', server = [{ url = 'http://b' }] }]
        m.toml:2: `upstream`: there are `servers` and `[[upstream.server]]` > write all of them as `[[upstream.server]]`, with `url`
    [[upstream]]
    name = 'a'
    [[upstream.server]]
    url = 'http://a'
    weight = 0
    [[upstream.server]]
    ulr = 'http://b'
    [[upstream.server]]
    url = 'http://c'
    slots = 0
    weights = 3
    idle_timeout = '3s'
        m.toml:6: `upstream.server.weight`: expected a count from 1 to 256, found `0` > a server without requests: leave it out, or write `backup = true`
        m.toml:8: `upstream.server.ulr`: unknown key > did you mean `url`?
        m.toml:7: `upstream.server`: `url` is missing > as in | [[upstream]] | name = "api" | servers = ["http://127.0.0.1:9001", "http://127.0.0.1:9002"]
        m.toml:11: `upstream.server.slots`: expected a count from 1 to 100000, found `0`
        m.toml:12: `upstream.server.weights`: unknown key > did you mean `weight`?
        m.toml:13: `upstream.server.idle_timeout`: not a key of `[[upstream.server]]` > settings stand above all tables: `idle_timeout = ...`
    upstream = [{ name = 'a', server = [{ url = 'http://a', backup = true }] }]
        m.toml:2: `upstream`: all servers are backups > a backup stands in for others: leave out `backup` at one of them at least
    upstream = [{ name = 'a', server = 'http://a' }]
        m.toml:2: `upstream.server`: expected a table, found `a value without keys` > as in `server = { KEY = ... }`
    "# }
}

#[test]
fn says_which_settings_of_an_upstream_do_not_fit() {
    said! { r#"
    upstream = [{ name = 'a', servers = 'http://a', balance = 'ip_hash', protocol = 'h2', eject_after = 0 }]
        m.toml:2: `upstream.balance`: expected one of `queue`, `least-connections`, `two-choices`, `peak-ewma`, `prequal`, `round-robin`, `random`, `first`, `hash`, `sticky`, found `ip_hash` > here it is `hash`, with `hash_by = "client"`
        m.toml:2: `upstream.protocol`: expected one of `http1`, `http2`, found `h2` > write `http2`
        m.toml:2: `upstream.eject_after`: expected a count from 1 to 1000, or `off`, found `0` > write `off` for never
    upstream = [{ name = 'a', servers = 'http://a', balance = 'hash' }]
        m.toml:2: `upstream.balance`: `hash` goes by nothing > name what a server is chosen by: `hash_by = "client"`
    upstream = [{ name = 'a', servers = 'http://a', hash_by = 'client' }]
        m.toml:2: `upstream.hash_by`: the rule is not `hash` > write `balance = "hash"`
    upstream = [{ name = 'a', servers = 'http://a', balance = 'hash', hash_by = 'header' }]
        m.toml:2: `upstream.hash_by`: expected `client`, `path`, `header:NAME` or `cookie:NAME`, found `header` > name it: `header:NAME`
    upstream = [{ name = 'a', servers = 'http://a', sticky_cookie = 'x' }]
        m.toml:2: `upstream.sticky_cookie`: the rule is not `sticky` > write `balance = "sticky"`
    upstream = [{ name = 'a', servers = 'http://a', check = 'health', retry_status = 200, retry_budget = 0.1 }]
        m.toml:2: `upstream.check`: expected a path (as `/health`), found `health` > it begins with a slash: `/health`
        m.toml:2: `upstream.retry_status`: expected statuses from 400 to 599 (as `[502, 503]`), found `200`
        m.toml:2: `upstream.retry_budget`: expected a share in percent (as `10%`), found `0.1`
    upstream = [{ name = 'a', servers = 'http://a', check_fall = 3 }]
        m.toml:2: `upstream.check_fall`: there is no `check` > name a path: `check = "/health"`
    upstream = [{ name = 'a', servers = 'http://a', slots = 8, slots_max = 4 }]
        m.toml:2: `upstream.slots`: slots is larger than slots_max > `slots` alone is enough: nothing is learnt
    upstream = [{ name = 'a', servers = 'http://a', queue_timeout = '1ms', time_out = '1s' }]
        m.toml:2: `upstream.time_out`: unknown key > the keys are `name`, `servers`, `server`, `protocol`, `balance`, `hash_by`, `sticky_cookie`, `slots`, `slots_max`, `connect_timeout`, `response_timeout`, `idle_timeout`, `idle_max`, `stream_requests`, `tunnel_idle`, `tunnels_max`, `queue_len_max`, `queue_timeout`, `request_timeout`, `retries`, `retry_budget`, `retry_status`, `slow_start`, `eject_after`, `eject_time`, `check`, `check_interval`, `check_rise`, `check_fall`, `check_timeout`, `resolve_every`, `send_proxy`, `tls_ca`, `tls_name`, `tls_verify`, `tls_cert`, `tls_key`, `trust_reports`, `proxy_status`
    upstream = [{ name = 'a', servers = 'http://a', tls_name = 'b' }]
        m.toml:2: `upstream.tls_name`: tls_name has no effect: no server has TLS > write `https://` in the server's URL
    upstream = [{ name = 'a', servers = 'https://a', tls_key = 'a.key' }]
        m.toml:2: `upstream.tls_key`: there is no `tls_cert` > name the certificate as well: `tls_cert`
    upstream = [{ name = 'a', servers = 'http://a', protocol = 'http2', send_proxy = true }]
        m.toml:2: `upstream.send_proxy`: one connection of HTTP/2 has the requests of many clients > leave it out, or write `protocol = "http1"`
    upstream = [{ name = 'a', servers = 'https://a', tls_ca = 'a.pem', tls_verify = false }]
        m.toml:2: `upstream.tls_ca`: no certificate is checked by it > leave out `tls_verify`, or `tls_ca`
    upstream = [{ name = 'a', servers = 'https://a', tls_ca = 'missing', tls_name = '*.b' }]
        m.toml:2: `upstream.tls_name`: expected a server's name (as `shop.example`), found `*.b` > a name of one server: a certificate for `*.shop.example` is good for it
    upstream = [{ name = 'a', servers = 'https://a', tls_ca = 'missing', tls_cert = 'folder' }]
        m.toml:2: `upstream.tls_ca`: file `missing` cannot be read: no such file or directory > relative paths start at `/srv`
        m.toml:2: `upstream.tls_cert`: file `folder` cannot be read: is a directory > name the file, not its folder
    "# }
}

#[test]
fn says_what_is_wrong_with_routes_to_upstreams() {
    said! { r#"
    route = [{ path = '/a' }]
        m.toml:2: `route`: a route to nothing > name what answers: `app = "chat:app"`, `upstream = "api"` or `dir = "public"`
    route = [{ path = '/a', upstream = 'api' }]
        m.toml:2: `route.upstream`: no upstream `api` > make it: `[[upstream]]`, `name = "api"`
    upstream = [{ name = 'api', servers = 'http://a' }]
    route = [{ path = '/a', upstream = 'app' }]
        m.toml:3: `route.upstream`: no upstream `app` > did you mean `api`?
    upstream = [{ name = 'api', servers = 'http://a' }]
    route = [{ path = '/a', upstream = 'api', app = 'a:b' }]
        m.toml:3: `route.upstream`: the route has `app` already > one of `app`, `upstream` and `dir`, and another `[[route]]` for the other
    upstream = [{ name = 'api', servers = 'http://a' }]
    [[route]]
    path = '/a'
    upstream = 'api'
    root_path = '/a'
        m.toml:6: `route.root_path`: not a key of a route to an upstream > leave it out: it is about applications, and the route has an upstream
    upstream = [{ name = 'api', servers = 'http://a' }]
    route = [{ path = '/a', upstream = 'api' }, { path = '/b', app = 'a:b', pool = 'api' }]
        m.toml:3: `route`: pool `api` is the queue of an upstream > make another `[[pool]]`, or write `upstream = "api"`
    upstream = [{ name = 'api', servers = 'http://a' }]
    route = [{ path = '/a', upstream = 'api' }, { path = '/a/', app = 'a:b' }]
        m.toml:3: `route`: there are two routes `/a` > leave out one of them
    upstream = [{ name = 'api', servers = 'http://a' }]
    route = [{ upstream = 'api' }]
        m.toml:3: `route`: the application of `app` has all requests that no route takes > give the route a `path` or a `host`, or leave out `app`
    static = '/a=pub'
    upstream = [{ name = 'api', servers = 'http://a' }]
    route = [{ path = '/a', upstream = 'api' }]
        m.toml:4: `route`: `/a` is the URL of a `static` folder > give each its own path
    slow_pool = 'api'
    upstream = [{ name = 'api', servers = 'http://a' }]
    route = [{ path = '/a', upstream = 'api' }]
        m.toml:2: `slow_pool`: slow_pool is `api`, an upstream > slow requests stay in their application: name a pool that no route names
    "# }
}
