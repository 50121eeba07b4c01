//! The service: what happens between a complete head and a backend. Rules, routes, pools.
//!
//! Takes a head and the ends of its connection, gives a disposition that borrows neither. A path belongs to the
//! status page first, then to the route of its host and the longest prefix, be it a folder's or an application's. Pure: it knows no protocol, no
//! socket and no clock.

use std::sync::Arc;

use files::{Reply, ReplyBody};
use http::{FieldLines, HeadView, Method, Scheme};
use queueing::Class;

use crate::challenges::ChallengeAnswers;
use crate::exchange::Ends;
use crate::https_redirect::HttpsRedirector;
use crate::normal_path::NormalPath;
use crate::pool_rules::PoolSelector;
use crate::refusal::Refusal;
use crate::request_test::{ClientAddress, RequestTest};
use crate::rules::{RuleOutcome, Rules};
use crate::slow::Slow;
use config::typed::{Config, Route, RouteTarget};

/// Methods that files and the server's own pages have.
const READING: &str = "GET, HEAD";
/// Methods that are passed to the application; any other is, too, but a list has an end.
const ALL_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// The rules and routes of one process.
pub(crate) struct Service {
    rules: Option<Rules>,
    /// Where requests over plain HTTP are redirected.
    https: Option<HttpsRedirector>,
    router: Router,
    /// Where there are rules of pools.
    selector: Option<PoolSelector>,
    /// Where a pool takes the routes that are slow.
    slow: Option<Arc<Slow>>,
    challenges: Arc<ChallengeAnswers>,
}

/// What becomes of a request.
pub(crate) struct Disposition {
    /// Index of the route that takes it.
    pub(crate) route: u16,
    /// The target that it is for, if a rule has changed it, or its path was not in the normal form.
    pub(crate) rewritten: Option<Box<[u8]>>,
    /// What its backend gets in the place of that target, where the route strips its path.
    pub(crate) stripped: Option<Box<[u8]>>,
    pub(crate) backend: Backend,
}

impl Disposition {
    /// The target that the route was found by, in origin form: what a rule and the normal form have made of the path of
    /// `head`, all of it, and the query.
    pub(crate) fn routed_target(&self, head: HeadView<'_>) -> Box<[u8]> {
        let rewritten = self.rewritten.as_deref();
        target(path(head, rewritten), query(head, rewritten))
    }
}

/// What answers a request.
pub(crate) enum Backend {
    /// None: the request is refused, and its connection ends.
    Refuse(Refusal),
    /// This response.
    Respond(Reply),
    /// This response, with its own body whatever its status: no error page takes its place.
    RespondAsIs(Reply),
    /// The counters of the process.
    Status,
    /// What somebody who asks for it is to know of the process.
    Probe(Probe),
    /// A file below a mount; `rest_from`: where in the path the mount's prefix ends.
    Files { mount: usize, rest_from: usize },
    /// A worker of a pool.
    Pool { pool: u16, class: Class },
}

/// What a probe asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Probe {
    /// Whether the process lives.
    Health,
    /// Whether it can serve requests.
    Ready,
    /// How much it has to do.
    Load,
}

/// Where a request goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    /// A folder of files: index of its route and of its mount. `rest_from`: where in the path its prefix ends.
    Files {
        route: u16,
        mount: usize,
        rest_from: usize,
    },
    /// An application or an upstream: index of its route and of its pool. `from`: where in the path what it gets
    /// begins.
    Pool { route: u16, pool: u16, from: usize },
    /// The counters as JSON.
    Status,
    /// `OPTIONS *`: the server as a whole is meant (RFC 9110 section 9.3.7).
    Server,
    /// Nothing is configured for it.
    Nothing,
}

/// The routes of one process.
pub(crate) struct Router {
    status_path: Option<String>,
    /// None where nothing is configured, so that other requests cost no look.
    probes: Vec<(String, Probe)>,
    /// Prefix and mount, the longest prefix first.
    prefixes: Vec<(String, usize)>,
    /// Those of `[[route]]`, in the order in which they are looked at.
    routes: Vec<RouteEntry>,
    passes_trace: bool,
    /// Whether a path decides which route takes a request, or who may send it.
    has_paths: bool,
}

/// A route to an application, an upstream or a folder.
struct RouteEntry {
    path: Vec<u8>,
    /// `None`: the path is enough.
    test: Option<RequestTest>,
    target: RouteTarget,
    /// The upstream gets the path without that of the route.
    strips_path: bool,
    /// Index of its name in `Config::route_names`.
    index: u16,
}

impl Service {
    pub(crate) fn new(
        config: &Config,
        slow: Option<Arc<Slow>>,
        challenges: Arc<ChallengeAnswers>,
    ) -> Self {
        Self {
            challenges,
            rules: Some(Rules::new(&config.rules)).filter(|rules| !rules.is_empty()),
            https: HttpsRedirector::new(config),
            router: Router::new(config),
            selector: PoolSelector::new(config),
            slow,
        }
    }

    /// What becomes of a request with this head.
    pub(crate) fn dispatch(&self, head: HeadView<'_>, ends: &Ends) -> Disposition {
        if let Some(refusal) = self.unserved(head, ends) {
            return Disposition {
                route: Router::NONE,
                rewritten: None,
                stripped: None,
                backend: Backend::Refuse(refusal),
            };
        }
        // Before the rules: an authority is not to be redirected with everything else.
        if let Some(reply) = self.challenges.reply(head.path()) {
            return Disposition {
                route: Router::STATUS,
                rewritten: None,
                stripped: None,
                backend: Backend::RespondAsIs(reply),
            };
        }
        // Before the rules: a probe is not to be redirected with everything else.
        if let Some(probe) = self.router.probe(head.path()) {
            return Disposition {
                route: Router::STATUS,
                rewritten: None,
                stripped: None,
                backend: Backend::Probe(probe),
            };
        }
        if let Some(https) = &self.https
            && !self.router.is_status(head.path())
            && let Some(reply) = https.reply(head, ends)
        {
            return by_rule(Backend::Respond(reply));
        }
        let ruled = self
            .rules
            .as_ref()
            .map_or(RuleOutcome::Nothing, |rules| rules.apply(head));
        let rewritten = match ruled {
            RuleOutcome::Nothing => None,
            RuleOutcome::Rewritten(target) => Some(target.into_boxed_slice()),
            RuleOutcome::Reply(reply) => return by_rule(Backend::RespondAsIs(reply)),
            RuleOutcome::Bare(reply) => return by_rule(Backend::Respond(reply)),
        };
        self.routed(head, rewritten, ends)
    }

    /// What becomes of a request that no rule answers.
    fn routed(&self, head: HeadView<'_>, rewritten: Option<Box<[u8]>>, ends: &Ends) -> Disposition {
        let (rewritten, had_dots) = match self.router.normal_path(head, rewritten.as_deref()) {
            NormalPath::AsSent => (rewritten, false),
            NormalPath::Changed { path, had_dots } => {
                let query = query(head, rewritten.as_deref());
                (Some(target(&path, query)), had_dots)
            }
            NormalPath::AboveRoot => {
                let refusal = Refusal::because(400, "the path leads above the root");
                return Disposition {
                    route: Router::NONE,
                    rewritten: None,
                    stripped: None,
                    backend: Backend::Refuse(refusal),
                };
            }
        };
        let path = path(head, rewritten.as_deref());
        let found = self.router.find(head, path, ends);
        let mut stripped = None;
        let backend = match found {
            Target::Pool { pool, from, .. } => {
                if from > 0 {
                    let query = query(head, rewritten.as_deref());
                    stripped = Some(target(&path[from..], query));
                }
                self.pool(pool, head, path, ends)
            }
            Target::Files { .. } if had_dots => {
                let cause = "dot segments in the path of a file";
                Backend::Respond(Refusal::because(404, cause).reply())
            }
            Target::Files {
                mount, rest_from, ..
            } => Backend::Files { mount, rest_from },
            Target::Status => Backend::Status,
            Target::Server => Backend::Respond(options()),
            Target::Nothing => Backend::Respond(self.router.unrouted(head, path, ends)),
        };
        Disposition {
            route: Router::index(found),
            rewritten,
            stripped,
            backend,
        }
    }

    /// Why a request is refused before any rule or route is looked for, if it is.
    fn unserved(&self, head: HeadView<'_>, ends: &Ends) -> Option<Refusal> {
        // RFC 9110 section 7.4: an origin that was not reached over a secured connection must not be taken
        // for one that was.
        if head.index.scheme == Some(Scheme::Https) && ends.scheme != "https" {
            return Some(Refusal::MISDIRECTED);
        }
        if head.index.method == Method::Trace && !self.router.takes_trace(head, ends) {
            return Some(Refusal {
                allow: Some(self.router.allowed(head, ends)),
                ..Refusal::because(405, "method TRACE")
            });
        }
        None
    }

    /// Which pool runs a request that an application is to answer, and how much it matters: that of its route, unless
    /// a rule names another one of the same application. Requests to the first pool that are
    /// slow have a pool of their own, unless a rule has placed them.
    fn pool(&self, own: u16, head: HeadView<'_>, path: &[u8], ends: &Ends) -> Backend {
        let (pool, class) = match &self.selector {
            Some(selector) => selector.find(own, head, path, ends),
            None => (own, Class::Normal),
        };
        let slow = self
            .slow
            .as_ref()
            .filter(|slow| pool == 0 && class != Class::Health && slow.has(head.method(), path));
        let pool = slow.map_or(pool, |slow| slow.pool());
        Backend::Pool { pool, class }
    }
}

impl Router {
    /// Index, in the log's names, of the route of a refused request.
    pub(crate) const NONE: u16 = 0;
    const STATUS: u16 = 1;
    /// Index of the application's route.
    pub(crate) const APP: u16 = 2;
    /// Index of the route of replies of rules.
    pub(crate) const RULES: u16 = 3;
    /// Index of the first mount's route; the others follow.
    pub(crate) const FILES: u16 = 4;

    fn new(config: &Config) -> Self {
        let urls = config.statics.iter().map(|mount| mount.url.clone());
        let mut prefixes: Vec<(String, usize)> = urls.zip(0..).collect();
        prefixes.sort_by_key(|(url, _)| std::cmp::Reverse(url.len()));
        let health = config.health_path.clone();
        let ready = config.ready_path.clone();
        let load = config.load_path.clone();
        let probes = (health.map(|path| (path, Probe::Health)).into_iter())
            .chain(ready.map(|path| (path, Probe::Ready)))
            .chain(load.map(|path| (path, Probe::Load)))
            .collect();
        let routes = config.numbered_routes();
        let routes = routes.map(|(index, route)| RouteEntry::new(route, index));
        let routes: Vec<RouteEntry> = routes.collect();
        let mut settings = config.routes.iter().map(|route| &route.settings);
        let has_paths = routes.iter().any(|route| !route.path.is_empty())
            || prefixes.iter().any(|(url, _)| !url.is_empty())
            || settings.any(|settings| settings.forward_auth.is_some());
        Self {
            status_path: config.status_path.clone(),
            probes,
            prefixes,
            routes,
            passes_trace: config.trace_requests,
            has_paths,
        }
    }

    /// The path that routes are matched with, and that `forward_auth` is about. Where neither has to do with paths there is
    /// nothing to pass by, and applications get them as they were sent.
    fn normal_path(&self, head: HeadView<'_>, rewritten: Option<&[u8]>) -> NormalPath {
        let path = path(head, rewritten);
        match self.has_paths && path.starts_with(b"/") {
            true => NormalPath::of(path),
            false => NormalPath::AsSent,
        }
    }

    /// The response to a request that no route takes: 405 where another method would have had a route.
    fn unrouted(&self, head: HeadView<'_>, path: &[u8], ends: &Ends) -> Reply {
        let client = ClientAddress::default();
        let fitting = self.routes.iter();
        let fitting = fitting.filter(|route| route.fits_but_for_method(head, path, ends, &client));
        let mut allowed: Vec<&[u8]> = Vec::new();
        for method in fitting.flat_map(RouteEntry::methods) {
            if !allowed.contains(&method) {
                allowed.push(method);
            }
        }
        match allowed.is_empty() {
            true => Refusal::because(404, "no route").reply(),
            // RFC 9110 section 15.5.6: a 405 names the methods that there are.
            false => Reply::refusal_with(405, |fields| {
                fields.push(b"Allow", &allowed.join(&b", "[..]));
            }),
        }
    }

    /// What a request of this path asks for, if it is a probe.
    fn probe(&self, path: &[u8]) -> Option<Probe> {
        let found = self.probes.iter().find(|(own, _)| own.as_bytes() == path);
        found.map(|(_, probe)| *probe)
    }

    /// Whether TRACE requests of a path are answered (RFC 9110 section 9.3.8): by the application, where it is
    /// asked to.
    fn takes_trace(&self, head: HeadView<'_>, ends: &Ends) -> bool {
        let path = head.path();
        let is_app = || matches!(self.find(head, path, ends), Target::Pool { .. });
        self.passes_trace && self.probe(path).is_none() && is_app()
    }

    /// The methods of a path, for the field Allow.
    fn allowed(&self, head: HeadView<'_>, ends: &Ends) -> &'static str {
        match self.find(head, head.path(), ends) {
            Target::Files { .. } | Target::Status => READING,
            Target::Pool { .. } | Target::Server => ALL_METHODS,
            Target::Nothing => "",
        }
    }

    /// Index of its name in `Config::route_names`.
    fn index(target: Target) -> u16 {
        match target {
            Target::Nothing | Target::Server => Self::NONE,
            Target::Status => Self::STATUS,
            Target::Pool { route, .. } | Target::Files { route, .. } => route,
        }
    }

    fn is_status(&self, path: &[u8]) -> bool {
        let status = self.status_path.as_ref();
        status.is_some_and(|status| status.as_bytes() == path)
    }

    fn find(&self, head: HeadView<'_>, path: &[u8], ends: &Ends) -> Target {
        if path == b"*" {
            return Target::Server;
        }
        if self.is_status(path) {
            return Target::Status;
        }
        let found = self
            .prefixes
            .iter()
            .find(|(url, _)| is_below(path, url.as_bytes()));
        let client = ClientAddress::default();
        let mut routes = self.routes.iter();
        let route = routes.find(|route| route.fits(head, path, ends, &client));
        match (found, route) {
            (Some((url, mount)), route)
                if route.is_none_or(|route| route.path.len() < url.len()) =>
            {
                Target::Files {
                    route: Self::FILES + short(*mount),
                    mount: *mount,
                    rest_from: url.len(),
                }
            }
            (_, Some(route)) => route.target(),
            (_, None) => Target::Nothing,
        }
    }
}

impl RouteEntry {
    fn new(route: &Route, index: u16) -> Self {
        let (host, header) = (route.host.as_deref(), route.header.as_ref());
        let test = RequestTest::new(&route.methods, host, header, &route.from);
        Self {
            path: route.path.clone().into_bytes(),
            test: Some(test).filter(|test| !test.is_empty()),
            target: route.target,
            strips_path: route.settings.strips_path,
            index,
        }
    }

    fn fits(&self, head: HeadView<'_>, path: &[u8], ends: &Ends, client: &ClientAddress) -> bool {
        let mut test = self.test.iter();
        is_below(path, &self.path) && test.all(|test| test.fits(head, ends, client))
    }

    fn target(&self) -> Target {
        let (route, path_bytes) = (self.index, self.path.len());
        match self.target {
            RouteTarget::Files(mount) => Target::Files {
                route,
                mount,
                rest_from: path_bytes,
            },
            RouteTarget::Pool(pool) => Target::Pool {
                route,
                pool: short(pool),
                from: if self.strips_path { path_bytes } else { 0 },
            },
        }
    }

    /// Whether it would take the request with another method.
    fn fits_but_for_method(
        &self,
        head: HeadView<'_>,
        path: &[u8],
        ends: &Ends,
        client: &ClientAddress,
    ) -> bool {
        let mut test = self.test.iter();
        is_below(path, &self.path) && test.all(|test| test.fits_but_for_method(head, ends, client))
    }

    /// The methods that it takes; none: all.
    fn methods(&self) -> impl Iterator<Item = &[u8]> {
        self.test.iter().flat_map(RequestTest::methods)
    }
}

/// The number of mounts, routes and pools is checked.
fn short(index: usize) -> u16 {
    u16::try_from(index).expect("fewer than 65,000 of each")
}

/// The byte behind the prefix is looked at first: it rules most mounts out. The root has nothing to compare,
/// and the C library's comparison, which nothing else on this way calls, is not in the processor's cache.
fn is_below(path: &[u8], url: &[u8]) -> bool {
    let Some(rest) = path.get(url.len()..) else {
        return false;
    };
    (rest.is_empty() || rest[0] == b'/') && (url.is_empty() || path.starts_with(url))
}

/// The path that a request is for, not decoded.
pub(crate) fn path<'a>(head: HeadView<'a>, rewritten: Option<&'a [u8]>) -> &'a [u8] {
    match rewritten {
        Some(target) => {
            let end = memchr::memchr(b'?', target).unwrap_or(target.len());
            &target[..end]
        }
        None => head.path(),
    }
}

/// The query that a request is for, without its `?`.
fn query<'a>(head: HeadView<'a>, rewritten: Option<&'a [u8]>) -> Option<&'a [u8]> {
    match rewritten {
        Some(target) => target.get(path(head, rewritten).len() + 1..),
        None => head.query(),
    }
}

/// A target in origin form: it begins with a slash, also where nothing is left of a path.
fn target(path: &[u8], query: Option<&[u8]>) -> Box<[u8]> {
    let mut target = Vec::with_capacity(1 + path.len() + query.map_or(0, |query| 1 + query.len()));
    if path.first() != Some(&b'/') {
        target.push(b'/');
    }
    target.extend_from_slice(path);
    if let Some(query) = query {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    target.into_boxed_slice()
}

fn by_rule(backend: Backend) -> Disposition {
    Disposition {
        route: Router::RULES,
        rewritten: None,
        stripped: None,
        backend,
    }
}

/// What the server as a whole allows (RFC 9110 section 9.3.7).
fn options() -> Reply {
    let mut fields = FieldLines::new();
    fields.push(b"Allow", ALL_METHODS.as_bytes());
    fields.push_decimal(b"Content-Length", 0);
    Reply {
        status: 200,
        fields: fields.freeze(),
        body: ReplyBody::Empty,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::typed::{PoolConfig, Route, StaticMount};

    use crate::tests::{ends, with_head};

    fn config() -> Config {
        let mount = |url: &str| StaticMount {
            url: url.to_owned(),
            dir: "/".into(),
            index: "index.html".to_owned(),
            fallback: None,
        };
        Config {
            statics: vec![mount("/static"), mount("/static/big")],
            status_path: Some("/-/status".to_owned()),
            ..Config::default()
        }
    }

    fn route(host: Option<&str>, path: &str, pool: usize) -> Route {
        Route {
            host: host.map(str::to_owned),
            path: path.to_owned(),
            target: RouteTarget::Pool(pool),
            ..Route::default()
        }
    }

    /// What the log calls the target, and its pool.
    fn find(config: &Config, url: &str) -> (String, Option<u16>) {
        let target = with_head(&format!("GET {url}"), |head| {
            Router::new(config).find(head, head.path(), &ends(""))
        });
        let name = config.route_names()[usize::from(Router::index(target))].clone();
        match target {
            Target::Pool { pool, .. } => (name, Some(pool)),
            _ => (name, None),
        }
    }

    #[track_caller]
    fn check(config: &Config, expected: &[(&str, &str, Option<u16>)]) {
        for (url, name, pool) in expected {
            assert_eq!(find(config, url), ((*name).to_owned(), *pool), "{url}");
        }
    }

    #[test]
    fn takes_the_longest_prefix_at_a_segment() {
        let with_app = Config {
            routes: vec![Route::default()],
            ..config()
        };
        check(
            &with_app,
            &[
                ("h/static", "/static", None),
                ("h/static/a.css", "/static", None),
                ("h/static/big/a", "/static/big", None),
                ("h/static/bigger", "/static", None),
                ("h/statics", "app", Some(0)),
                ("h/", "app", Some(0)),
                ("h/-/status", "status", None),
                ("h/-/status/x", "app", Some(0)),
            ],
        );
        let rest_from = with_head("GET h/static/big/a", |head| {
            Router::new(&with_app).find(head, head.path(), &ends(""))
        });
        assert_eq!(
            rest_from,
            Target::Files {
                route: 5,
                mount: 1,
                rest_from: 11
            }
        );
        check(
            &config(),
            &[("h/", "none", None), ("h/static", "/static", None)],
        );
    }

    #[test]
    fn takes_the_route_of_the_host_and_then_the_longest_path() {
        // In the order that a check gives them.
        let config = Config {
            routes: vec![
                route(Some("api.example"), "/v1", 2),
                route(Some("api.example"), "", 1),
                route(Some("*.example"), "", 4),
                route(None, "/static/live", 3),
                route(None, "/ws", 3),
                route(None, "", 0),
            ],
            pools: vec![PoolConfig::default(); 5],
            ..config()
        };
        check(
            &config,
            &[
                ("api.example/v1/x", "api.example/v1", Some(2)),
                ("API.example:8000/v1", "api.example/v1", Some(2)),
                ("api.example/v10", "api.example/", Some(1)),
                ("api.example/ws", "api.example/", Some(1)),
                ("www.example/ws", "*.example/", Some(4)),
                ("example/ws", "/ws", Some(3)),
                ("example/ws/", "/ws", Some(3)),
                ("example/wsx", "app", Some(0)),
                // A folder is there for all hosts; the longer path counts.
                ("api.example/static/x", "/static", None),
                ("h/static/live/x", "/static/live", Some(3)),
            ],
        );
    }

    #[test]
    fn takes_a_route_only_where_all_of_it_fits() {
        let narrowed = |pool, narrow: fn(&mut Route)| {
            let mut route = route(None, "/x", pool);
            narrow(&mut route);
            route
        };
        // In the order that a check gives them.
        let config = Config {
            routes: vec![
                narrowed(1, |route| {
                    route.header = Some(("x-beta".into(), Some("2".into())));
                }),
                narrowed(2, |route| route.header = Some(("x-beta".into(), None))),
                narrowed(3, |route| route.from = vec![([10, 0, 0, 0].into(), 8)]),
                narrowed(4, |route| route.methods = vec!["PUT".into(), "POST".into()]),
                route(None, "", 0),
            ],
            ..config()
        };
        let router = Router::new(&config);
        for (request, client, expect) in [
            ("GET h/x X-Beta: 2", "", 1),
            ("GET h/x x-beta: 3", "", 2),
            ("PUT h/x/y", "10.1.2.3", 3),
            ("PUT h/x/y", "11.1.2.3", 4),
            ("GET h/x/y", "11.1.2.3", 0),
            ("PUT h/xy", "10.1.2.3", 0),
        ] {
            let target = with_head(request, |head| {
                router.find(head, head.path(), &ends(client))
            });
            let found = match target {
                Target::Pool { pool, .. } => pool,
                target => panic!("{target:?}"),
            };
            assert_eq!(found, expect, "{request} {client}");
        }
    }

    #[test]
    fn a_method_that_no_route_has_is_a_405() {
        let with_methods = |host, path, methods: &[&str]| Route {
            methods: methods.iter().map(|method| (*method).to_owned()).collect(),
            ..route(host, path, 0)
        };
        let mut config = Config {
            routes: vec![
                with_methods(Some("api.example"), "/x", &["DELETE"]),
                with_methods(None, "/x/y", &["PUT", "GET"]),
                with_methods(None, "/x", &["GET", "HEAD"]),
            ],
            ..Config::default()
        };
        let check = |config: &Config, request: &str, expect: Option<(u16, &str)>| {
            let service = Service::new(config, None, Arc::default());
            let backend = with_head(request, |head| service.dispatch(head, &ends("")).backend);
            let found = match backend {
                Backend::Respond(reply) => {
                    let mut lines = reply.fields.iter();
                    let allow = lines.find(|(name, _)| *name == b"Allow");
                    let allow = allow.map_or("", |(_, value)| str::from_utf8(value).unwrap());
                    Some((reply.status, allow.to_owned()))
                }
                _ => None,
            };
            let expect = expect.map(|(status, allow)| (status, allow.to_owned()));
            assert_eq!(found, expect, "{request}");
        };
        check(&config, "GET h/x", None);
        check(&config, "POST h/x", Some((405, "GET, HEAD")));
        check(&config, "POST h/x/y", Some((405, "PUT, GET, HEAD")));
        check(
            &config,
            "PUT api.example/x",
            Some((405, "DELETE, GET, HEAD")),
        );
        check(&config, "DELETE api.example/x", None);
        check(&config, "DELETE h/x", Some((405, "GET, HEAD")));
        check(&config, "POST h/y", Some((404, "")));
        config.routes.push(route(None, "", 0));
        check(&config, "POST h/x", None);
    }

    #[test]
    fn routes_are_matched_with_the_normal_path_and_upstreams_get_it() {
        let mut api = route(None, "/api", 1);
        api.settings.strips_path = true;
        let of = |statics| Config {
            statics,
            routes: vec![api.clone(), route(None, "/admin", 2), route(None, "", 0)],
            pools: vec![PoolConfig::default(); 3],
            ..Config::default()
        };
        let check = |config: &Config, path: &str, expect: (Option<u16>, &str)| {
            let service = Service::new(config, None, Arc::default());
            let found = with_head(&format!("GET h{path}"), |head| {
                let found = service.dispatch(head, &ends(""));
                let pool = match found.backend {
                    Backend::Pool { pool, .. } => Some(pool),
                    _ => None,
                };
                let target = found.stripped.or(found.rewritten);
                let target = target.as_deref().unwrap_or(head.target());
                (pool, String::from_utf8(target.to_vec()).unwrap())
            });
            assert_eq!(found, (expect.0, expect.1.to_owned()), "{path}");
        };
        let routes = of(Vec::new());
        check(&routes, "/api/../admin?a=/../", (Some(2), "/admin?a=/../"));
        check(&routes, "/api/%2e%2e/admin", (Some(2), "/admin"));
        check(&routes, "/%61dmin/x", (Some(2), "/admin/x"));
        check(&routes, "/api/./x/../y?", (Some(1), "/y?"));
        check(&routes, "/x/../api", (Some(1), "/"));
        check(&routes, "/admin/..%2fx", (Some(2), "/admin/..%2fx"));
        check(&routes, "/admin/../x//y;z", (Some(0), "/x//y;z"));
        check(&routes, "/api/../..", (None, "/api/../.."));
        // Files have no path with dots, whatever it leads to.
        let with_files = of(config().statics);
        check(&with_files, "/x/../static/a", (None, "/static/a"));
        let alone = Config {
            routes: vec![route(None, "", 0)],
            ..Config::default()
        };
        check(&alone, "/a/../b", (Some(0), "/a/../b"));
    }

    #[test]
    fn a_route_strips_its_path_from_what_an_upstream_gets() {
        let mut api = route(None, "/api", 1);
        api.settings.strips_path = true;
        let mut config = Config {
            routes: vec![api, route(None, "", 0)],
            pools: vec![PoolConfig::default(); 2],
            ..Config::default()
        };
        let check = |config: &Config, request: &str, expect: Option<&str>| {
            let service = Service::new(config, None, Arc::default());
            let found = with_head(request, |head| service.dispatch(head, &ends("")).stripped);
            assert_eq!(found.as_deref(), expect.map(str::as_bytes), "{request}");
        };
        check(&config, "GET h/api/v1/x?a=/api/", Some("/v1/x?a=/api/"));
        check(&config, "GET h/api", Some("/"));
        check(&config, "GET h/api/", Some("/"));
        check(&config, "GET h/api?", Some("/?"));
        check(&config, "GET h/api//x", Some("//x"));
        check(&config, "GET h/apis/x", None);
        check(&config, "GET h/", None);
        let rewrite = |to: &str| config::typed::Rewrite {
            from: config::typed::PathPattern::Beginning("/old/".to_owned()),
            to: to.to_owned(),
        };
        config.rules.rewrites = vec![rewrite("/api/new/*")];
        check(&config, "GET h/old/x?b", Some("/new/x?b"));
        config.rules.rewrites = vec![rewrite("/api?from=*")];
        check(&config, "GET h/old/x", Some("/?from=x"));
    }

    #[test]
    fn a_server_that_judges_requests_hears_the_path_that_their_route_was_found_by() {
        let mut api = route(None, "/api", 1);
        api.settings.strips_path = true;
        let mut config = Config {
            routes: vec![api, route(None, "", 0)],
            pools: vec![PoolConfig::default(); 2],
            ..Config::default()
        };
        config.rules.rewrites = vec![config::typed::Rewrite {
            from: config::typed::PathPattern::Beginning("/old/".to_owned()),
            to: "/api/new/*".to_owned(),
        }];
        let check = |config: &Config, request: &str, expect: &str| {
            let service = Service::new(config, None, Arc::default());
            let found = with_head(request, |head| {
                service.dispatch(head, &ends("")).routed_target(head)
            });
            assert_eq!(str::from_utf8(&found), Ok(expect), "{request}");
        };
        check(&config, "GET h/x?a=/../", "/x?a=/../");
        check(&config, "GET h/public/../admin", "/admin");
        check(&config, "GET h/public/%2e%2e/%61dmin?", "/admin?");
        check(&config, "GET h/api/v1?x", "/api/v1?x");
        check(&config, "GET h/old/%78", "/api/new/x");
        // Without a path in any route, what is judged by the path is reason enough to have one form of it.
        config.routes = vec![route(None, "", 0)];
        config.rules.rewrites.clear();
        check(&config, "GET h/public/../admin", "/public/../admin");
        config.routes[0].settings.forward_auth = Some(config::typed::ForwardAuth {
            upstream: 0,
            path: "/".to_owned(),
            copied: Vec::new(),
        });
        check(&config, "GET h/public/../admin", "/admin");
    }
}
