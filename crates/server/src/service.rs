//! The service: what happens between a complete head and a backend. Rules, routes, pools.
//!
//! Takes a head and the ends of its connection, gives a disposition that borrows neither. A path belongs to the
//! status page first, then to the longest static prefix, then to the application. Pure: it knows no protocol, no
//! socket and no clock.

use std::sync::Arc;

use files::{Reply, ReplyBody};
use http::{FieldLines, HeadView, Method, Scheme};
use queueing::Class;

use crate::challenges::ChallengeAnswers;
use crate::exchange::Ends;
use crate::https_redirect::HttpsRedirector;
use crate::pool_rules::PoolSelector;
use crate::refusal::Refusal;
use crate::rules::{RuleOutcome, Rules};
use crate::slow::Slow;
use config::typed::Config;

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
    /// The target that it is for, if a rule has changed it.
    pub(crate) rewritten: Option<Box<[u8]>>,
    pub(crate) backend: Backend,
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
}

/// Where a request goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    /// A folder of files. `rest_from`: where in the path its prefix ends.
    Files { mount: usize, rest_from: usize },
    /// The pool that runs the application.
    Pool,
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
    has_app: bool,
    passes_trace: bool,
}

impl Service {
    pub(crate) fn new(
        config: &Config,
        has_app: bool,
        slow: Option<Arc<Slow>>,
        challenges: Arc<ChallengeAnswers>,
    ) -> Self {
        Self {
            challenges,
            rules: Some(Rules::new(&config.rules)).filter(|rules| !rules.is_empty()),
            https: HttpsRedirector::new(config),
            router: Router::new(config, has_app),
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
                backend: Backend::Refuse(refusal),
            };
        }
        // Before the rules: an authority is not to be redirected with everything else.
        if let Some(reply) = self.challenges.reply(head.path()) {
            return Disposition {
                route: Router::STATUS,
                rewritten: None,
                backend: Backend::RespondAsIs(reply),
            };
        }
        // Before the rules: a probe is not to be redirected with everything else.
        if let Some(probe) = self.router.probe(head.path()) {
            return Disposition {
                route: Router::STATUS,
                rewritten: None,
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
        let path = path(head, rewritten.as_deref());
        let target = self.router.find(path);
        let backend = match target {
            Target::Pool => self.pool(head, path, ends),
            Target::Files { mount, rest_from } => Backend::Files { mount, rest_from },
            Target::Status => Backend::Status,
            Target::Server => Backend::Respond(options()),
            Target::Nothing => Backend::Respond(Refusal::because(404, "no route").reply()),
        };
        Disposition {
            route: Router::index(target),
            rewritten,
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
        if head.index.method == Method::Trace && !self.router.takes_trace(head.path()) {
            return Some(Refusal {
                allow: Some(self.router.allowed(head.path())),
                ..Refusal::because(405, "method TRACE")
            });
        }
        None
    }

    /// Which pool runs a request that the application is to answer, and how much it matters. Routes that are
    /// slow have a pool of their own, unless a rule has placed them.
    fn pool(&self, head: HeadView<'_>, path: &[u8], ends: &Ends) -> Backend {
        let (pool, class) = match &self.selector {
            Some(selector) => selector.find(head, path, ends),
            None => (0, Class::Normal),
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

    fn new(config: &Config, has_app: bool) -> Self {
        let urls = config.statics.iter().map(|mount| mount.url.clone());
        let mut prefixes: Vec<(String, usize)> = urls.zip(0..).collect();
        prefixes.sort_by_key(|(url, _)| std::cmp::Reverse(url.len()));
        let health = config.health_path.clone();
        let ready = config.ready_path.clone();
        let probes = (health.map(|path| (path, Probe::Health)).into_iter())
            .chain(ready.map(|path| (path, Probe::Ready)))
            .collect();
        Self {
            status_path: config.status_path.clone(),
            probes,
            prefixes,
            has_app,
            passes_trace: config.trace_requests,
        }
    }

    /// What a request of this path asks for, if it is a probe.
    fn probe(&self, path: &[u8]) -> Option<Probe> {
        let found = self.probes.iter().find(|(own, _)| own.as_bytes() == path);
        found.map(|(_, probe)| *probe)
    }

    /// Whether TRACE requests of a path are answered (RFC 9110 section 9.3.8): by the application, where it is
    /// asked to.
    fn takes_trace(&self, path: &[u8]) -> bool {
        self.passes_trace && self.probe(path).is_none() && self.find(path) == Target::Pool
    }

    /// The methods of a path, for the field Allow.
    fn allowed(&self, path: &[u8]) -> &'static str {
        match self.find(path) {
            Target::Files { .. } | Target::Status => READING,
            Target::Pool | Target::Server => ALL_METHODS,
            Target::Nothing => "",
        }
    }

    /// Index of its name in `Config::route_names`.
    fn index(target: Target) -> u16 {
        match target {
            Target::Nothing | Target::Server => Self::NONE,
            Target::Status => Self::STATUS,
            Target::Pool => Self::APP,
            Target::Files { mount, .. } => {
                Self::FILES + u16::try_from(mount).expect("fewer than 65,000 mounts are checked")
            }
        }
    }

    fn is_status(&self, path: &[u8]) -> bool {
        let status = self.status_path.as_ref();
        status.is_some_and(|status| status.as_bytes() == path)
    }

    fn find(&self, path: &[u8]) -> Target {
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
        match found {
            Some((url, mount)) => Target::Files {
                mount: *mount,
                rest_from: url.len(),
            },
            None if self.has_app => Target::Pool,
            None => Target::Nothing,
        }
    }
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

fn by_rule(backend: Backend) -> Disposition {
    Disposition {
        route: Router::RULES,
        rewritten: None,
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
    use config::typed::StaticMount;

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

    #[test]
    fn takes_the_longest_prefix_at_a_segment() {
        let files = |mount, rest_from| Target::Files { mount, rest_from };
        for (path, expect) in [
            ("/static", files(0, 7)),
            ("/static/a.css", files(0, 7)),
            ("/static/big/a", files(1, 11)),
            ("/static/bigger", files(0, 7)),
            ("/statics", Target::Pool),
            ("/", Target::Pool),
            ("*", Target::Server),
            ("/-/status", Target::Status),
            ("/-/status/x", Target::Pool),
        ] {
            let found = Router::new(&config(), true).find(path.as_bytes());
            assert_eq!(found, expect, "{path}");
        }
    }
}
