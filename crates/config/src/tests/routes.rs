//! Applications and the routes to them.

use super::super::typed::{App, Interface, Route};
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
        let pool = &config.pools[route.pool];
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
        m.toml:2: `route`: a route to nothing > name what answers: `app = "chat:app"` or `upstream = "api"`
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
