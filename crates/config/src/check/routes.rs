//! Do applications and their routes hold together? Each application once, each route one that can be reached, and a pool
//! for each that runs no other application.

use std::cmp::Reverse;

use super::Check;
use super::pools::filled;
use crate::builder::{AppName, Draft, Placed};
use crate::parse::pools::{NAME_BYTES_MAX, PoolTable};
use crate::parse::routes::RouteTable;
use crate::typed::{App, Interface, PoolConfig, PoolRuns, Route};

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
        for Placed { value, .. } in &draft.routes {
            let app = self.app_of(draft, value);
            if !apps.contains(&app) {
                apps.push(app);
            }
        }
        apps
    }

    fn app_of(&self, draft: &Draft, route: &RouteTable) -> App {
        self.app(draft, &route.app, &route.root_path, route.interface)
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
    pub(super) fn routes(
        &mut self,
        draft: &Draft,
        apps: &[App],
        pools: &mut Vec<PoolConfig>,
    ) -> Vec<Route> {
        // The pool of each application; the first one has that of all other requests.
        let mut own: Vec<Option<usize>> =
            (0..apps.len()).map(|app| (app == 0).then_some(0)).collect();
        let mut named: Vec<usize> = vec![0];
        let mut routes: Vec<Route> = Vec::new();
        if draft.app.is_some() {
            routes.push(Route {
                host: None,
                path: String::new(),
                pool: 0,
            });
        }
        for Placed { value, origin } in &draft.routes {
            let sought = self.app_of(draft, value);
            let app = apps.iter().position(|app| *app == sought);
            let app = app.expect("the applications of routes are among all");
            let pool = match &value.pool {
                Some(name) => {
                    let Some(pool) = self.pool_index(name, origin, pools) else {
                        continue;
                    };
                    if named.contains(&pool) && pools[pool].runs != PoolRuns::App(app) {
                        let text = format!("pool `{name}` runs another application already");
                        self.statement(
                            origin,
                            text,
                            "a pool runs one application: make another `[[pool]]`",
                        );
                    }
                    named.push(pool);
                    pools[pool].runs = PoolRuns::App(app);
                    pool
                }
                None => *own[app].get_or_insert_with(|| {
                    pools.push(own_pool(app, &sought, pools));
                    pools.len() - 1
                }),
            };
            let route = Route {
                host: value.host.clone(),
                path: value.path.clone(),
                pool,
            };
            self.route_is_reached(draft, origin, &route, &routes);
            routes.push(route);
        }
        // Stable, though no two are alike.
        routes.sort_by_key(|route| {
            (
                Reverse(narrowness(route.host.as_deref())),
                Reverse(route.path.len()),
            )
        });
        routes
    }

    fn route_is_reached(
        &mut self,
        draft: &Draft,
        origin: &crate::fault::Origin,
        route: &Route,
        others: &[Route],
    ) {
        let name = route.name();
        let is_same = |other: &Route| other.host == route.host && other.path == route.path;
        if others.iter().any(is_same) {
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
        if route.host.is_none() && mounts.any(|mount| mount.value.url == route.path) {
            let text = format!("`{name}` is the URL of a `static` folder");
            self.statement(origin, text, "give each its own path");
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
    let numbered = (1_usize..).map(|number| {
        let suffix = if number == 1 {
            String::new()
        } else {
            format!("-{number}")
        };
        let kept = name.len().min(NAME_BYTES_MAX - suffix.len());
        format!("{}{suffix}", &name[..kept])
    });
    let mut free = numbered.skip_while(|name| is_taken(name));
    let table = PoolTable {
        name: free.next().expect("there are more numbers than pools"),
        ..PoolTable::default()
    };
    PoolConfig {
        runs: PoolRuns::App(app),
        ..filled(&table, &pools[0], (0, 0))
    }
}

/// How narrow a condition on the host is; the greater, the narrower. No host has more than 255 bytes (RFC 1035 section
/// 2.3.4).
fn narrowness(host: Option<&str>) -> usize {
    match host {
        None => 0,
        Some(host) if host.starts_with('*') => host.len(),
        Some(host) => 256 + host.len(),
    }
}
