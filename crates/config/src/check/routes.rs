//! Do applications and routes hold together? Each application once, each route one that can be reached, a pool for
//! each that runs no other application, and a folder for each that has files.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

use super::Check;
use super::pools::filled;
use crate::builder::{AppName, Draft, KeyedTable, Placed, free_name};
use crate::fault::Origin;
use crate::parse::did_you_mean;
use crate::parse::pools::PoolTable;
use crate::parse::routes::RouteTable;
use crate::typed::{
    App, Config, ForwardAuth, Interface, PoolConfig, PoolRuns, Route, RouteSettings, RouteTarget,
    StaticMount,
};

impl Check<'_> {
    /// All applications, each once.
    pub(super) fn apps(&mut self, draft: &Draft) -> Vec<App> {
        if draft.has_app() {
            self.folder(&draft.origin("app_dir"), &draft.app_dir);
        }
        let mut apps: Vec<App> = Vec::new();
        if let Some(name) = &draft.app {
            apps.push(self.app(draft, name, &draft.root_path, draft.interface));
        }
        for route in &draft.routes {
            let app = self.app_of(draft, &route.value);
            apps.extend(app.filter(|app| !apps.contains(app)));
        }
        apps
    }

    fn app_of(&self, draft: &Draft, route: &RouteTable) -> Option<App> {
        let name = route.app.as_ref()?;
        Some(self.app(draft, name, &route.root_path, route.interface))
    }

    fn app(&self, draft: &Draft, name: &AppName, root_path: &str, interface: Interface) -> App {
        let is_own = draft.app.as_ref() == Some(name);
        App {
            module: name.module.clone(),
            attribute: name.attribute.clone(),
            factory: name.called || is_own && draft.factory,
            app_dir: self.absolute(&draft.app_dir),
            root_path: root_path.to_owned(),
            env: Placed::values(&draft.env),
            interface,
        }
    }

    /// All routes, in the order in which they are looked at. An application without a pool gets one.
    pub(super) fn routes(&mut self, draft: &Draft, config: &mut Config) -> Vec<Route> {
        let mut app_pools = AppPools::new(config.apps.len());
        let mut routes: Vec<Route> = Vec::new();
        // Those of the same host and path, by their places among all.
        let mut alike: HashMap<(Option<String>, String), Vec<usize>> = HashMap::new();
        if draft.app.is_some() {
            // Everything, to the first pool.
            routes.push(Route::default());
            alike.entry((None, String::new())).or_default().push(0);
        }
        for table in &draft.routes {
            let target = match (&table.value.upstream, &table.value.dir) {
                (Some(name), _) => self.upstream_pool(name, table, config),
                (None, Some(dir)) => Some(self.route_folder(draft, dir, table, config)),
                (None, None) => self.app_pool(draft, table, config, &mut app_pools),
            };
            let Some(target) = target else {
                continue;
            };
            let settings = self.route_settings(table, config);
            let route = Route {
                host: table.value.host.clone(),
                path: table.value.path.clone(),
                methods: table.value.methods.clone(),
                header: table.value.header.clone(),
                from: table.value.from.clone(),
                target,
                settings,
            };
            let place = (route.host.clone(), route.path.clone());
            let others = alike.entry(place).or_default();
            let mut known = others.iter().map(|other| &routes[*other]);
            let is_double = known.any(|other| other.fits_alike(&route));
            self.route_is_reached(draft, table.table(), &route, is_double);
            others.push(routes.len());
            routes.push(route);
        }
        // Stable: of those that are equally narrow, the first that was written counts.
        routes.sort_by_key(|route| Reverse(narrowness(route)));
        routes
    }

    fn route_settings(&mut self, table: &KeyedTable<RouteTable>, config: &Config) -> RouteSettings {
        let value = &table.value;
        if let Some(file) = &value.basic_auth {
            self.file(&table.origin(&["basic_auth"]), file);
        }
        let forward_auth = value.forward_auth.as_ref().and_then(|auth| {
            let origin = auth.origin(&["upstream"]);
            let upstream = self.upstream_index(&auth.value.upstream, &origin, config)?;
            let mut copied = auth.value.copy.clone();
            copied.sort();
            copied.dedup();
            Some(ForwardAuth {
                upstream,
                path: auth.value.path.clone(),
                copied,
            })
        });
        RouteSettings {
            strips_path: value.strip,
            body_bytes_max: value.body_max,
            request_timeout: value.request_timeout,
            disconnect_cancel: value.disconnect_cancel,
            streams_requests: value.stream_requests,
            request_headers: value.request_headers.clone(),
            response_headers: value.response_headers.clone(),
            // The working folder of a later reload may be another one.
            basic_auth: value.basic_auth.as_ref().map(|file| self.absolute(file)),
            forward_auth,
            rate_limit: value.rate_limit.clone(),
        }
    }

    /// The folder of a route, as one more mount.
    fn route_folder(
        &mut self,
        draft: &Draft,
        dir: &Path,
        table: &KeyedTable<RouteTable>,
        config: &mut Config,
    ) -> RouteTarget {
        let value = &table.value;
        self.folder(&table.origin(&["dir"]), dir);
        if let Some(file) = &value.fallback {
            self.file(&table.origin(&["fallback"]), &dir.join(file));
        }
        config.route_folders.push(StaticMount {
            url: value.path.clone(),
            dir: dir.to_owned(),
            index: draft.static_index.clone(),
            fallback: value.fallback.clone(),
        });
        RouteTarget::Files(config.mounts().count() - 1)
    }

    /// The pool of an upstream that a route names.
    fn upstream_pool(
        &mut self,
        name: &str,
        table: &KeyedTable<RouteTable>,
        config: &Config,
    ) -> Option<RouteTarget> {
        let upstream = self.upstream_index(name, &table.origin(&["upstream"]), config)?;
        Some(RouteTarget::Pool(config.upstreams[upstream].pool))
    }

    fn upstream_index(&mut self, name: &str, origin: &Origin, config: &Config) -> Option<usize> {
        let upstreams = &config.upstreams;
        let index = upstreams.iter().position(|upstream| upstream.name == name);
        if index.is_some() {
            return index;
        }
        let names = upstreams.iter().map(|upstream| upstream.name.as_str());
        let hint = did_you_mean(name, names)
            .unwrap_or_else(|| format!("make it: `[[upstream]]`, `name = \"{name}\"`"));
        let text = format!("no upstream `{name}`");
        self.statement(origin, text, hint);
        None
    }

    /// The pool of a route to an application.
    fn app_pool(
        &mut self,
        draft: &Draft,
        table: &KeyedTable<RouteTable>,
        config: &mut Config,
        app_pools: &mut AppPools,
    ) -> Option<RouteTarget> {
        let sought = self.app_of(draft, &table.value)?;
        let app = config.apps.iter().position(|app| *app == sought);
        let app = app.expect("the applications of routes are among all");
        let pools = &mut config.pools;
        let Some(name) = &table.value.pool else {
            let pool = *app_pools.own[app].get_or_insert_with(|| {
                pools.push(own_pool(app, &sought, pools));
                pools.len() - 1
            });
            return Some(RouteTarget::Pool(pool));
        };
        let pool = self.pool_index(name, table.table(), pools)?;
        let runs = PoolRuns::App(app);
        match pools[pool].runs {
            PoolRuns::Upstream(_) => {
                let text = format!("pool `{name}` is the queue of an upstream");
                let hint = format!("make another `[[pool]]`, or write `upstream = \"{name}\"`");
                self.statement(table.table(), text, hint);
                return None;
            }
            other if app_pools.named.contains(&pool) && other != runs => {
                let text = format!("pool `{name}` runs another application already");
                let hint = "a pool runs one application: make another `[[pool]]`";
                self.statement(table.table(), text, hint);
            }
            PoolRuns::App(_) => {}
        }
        app_pools.named.push(pool);
        pools[pool].runs = runs;
        Some(RouteTarget::Pool(pool))
    }

    fn route_is_reached(&mut self, draft: &Draft, origin: &Origin, route: &Route, is_double: bool) {
        let name = route.name();
        if is_double {
            let (text, hint) = match route.takes_all() && draft.app.is_some() {
                true => (
                    "the application of `app` has all requests that no route takes".to_owned(),
                    "give the route a `path` or a `host`, or leave out `app`",
                ),
                false => (
                    format!("there are two routes `{name}`"),
                    "leave out one of them",
                ),
            };
            self.statement(origin, text, hint);
        }
        let mut mounts = draft.statics.iter();
        let has_place_alone = Route::default().fits_alike(&Route {
            path: String::new(),
            ..route.clone()
        });
        if has_place_alone && mounts.any(|mount| mount.value.url == route.path) {
            let text = format!("`{name}` is the URL of a `static` folder");
            self.statement(origin, text, "give each its own path");
        }
    }
}

/// The pools of applications, as routes name them.
struct AppPools {
    /// That of each application for routes that name none; the first one has that of all other requests.
    own: Vec<Option<usize>>,
    /// Those that belong to an application.
    named: Vec<usize>,
}

impl AppPools {
    fn new(apps_len: usize) -> Self {
        Self {
            own: (0..apps_len).map(|app| (app == 0).then_some(0)).collect(),
            named: vec![0],
        }
    }
}

/// The pool of an application that names none, with the bounds of the first one.
fn own_pool(app: usize, of: &App, pools: &[PoolConfig]) -> PoolConfig {
    let is_good = |letter: &char| letter.is_ascii_alphanumeric() || "-_.".contains(*letter);
    let name: String = of.module.chars().filter(is_good).collect();
    let name = match name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        true => name,
        false => format!("app-{name}"),
    };
    let is_taken = |name: &str| pools.iter().any(|pool| pool.name == name);
    let table = PoolTable {
        name: free_name(&name, is_taken),
        ..PoolTable::default()
    };
    PoolConfig {
        runs: PoolRuns::App(app),
        ..filled(&table, &pools[0], (0, 0))
    }
}

/// How narrow a route is; the greater, the narrower: by its host, then its path, its header, its networks, its methods.
fn narrowness(route: &Route) -> (usize, usize, u8, usize, bool) {
    // No host has more than 255 bytes (RFC 1035 section 2.3.4).
    let host = match route.host.as_deref() {
        None => 0,
        Some(host) if host.starts_with('*') => host.len(),
        Some(host) => 256 + host.len(),
    };
    let header = match &route.header {
        None => 0,
        Some((_, None)) => 1,
        Some((_, Some(_))) => 2,
    };
    // The widest of them counts, an IPv4 address as the IPv6 one that it has.
    let bits = |(ip, bits): &(IpAddr, u8)| usize::from(*bits) + if ip.is_ipv4() { 97 } else { 1 };
    let network = route.from.iter().map(bits).min().unwrap_or(0);
    (
        host,
        route.path.len(),
        header,
        network,
        !route.methods.is_empty(),
    )
}
