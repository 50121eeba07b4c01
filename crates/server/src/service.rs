//! The service: what happens between a complete head and a backend. Rules, routes, pools.
//!
//! Takes a head and the ends of its connection, gives a disposition that borrows neither. Pure: it knows no
//! protocol, no socket and no clock.

use std::sync::Arc;

use stage::Class;
use wire::HeadView;

use crate::allot::Allot;
use crate::config::meant::Config;
use crate::exchange::Ends;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::route::{Router, Target};
use crate::rules::{Ruled, Rules};
use crate::slow::Slow;

/// The rules and routes of one process.
pub(crate) struct Service {
    rules: Option<Rules>,
    router: Router,
    allot: Allot,
    /// Where a pool takes the routes that are slow.
    slow: Option<Arc<Slow>>,
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
    /// A file below a mount; `rest_from`: where in the path the mount's prefix ends.
    Files { mount: usize, rest_from: usize },
    /// A worker of a pool.
    Pool { pool: u16, class: Class },
}

impl Service {
    pub(crate) fn new(config: &Config, has_app: bool, slow: Option<Arc<Slow>>) -> Self {
        Self {
            rules: Some(Rules::new(&config.rules)).filter(|rules| !rules.is_empty()),
            router: Router::new(config, has_app),
            allot: Allot::new(config),
            slow,
        }
    }

    /// What becomes of a request with this head.
    pub(crate) fn dispatch(&self, head: HeadView<'_>, ends: &Ends) -> Disposition {
        if let Some(refusal) = Refusal::unserved(head, ends, &self.router) {
            return Disposition {
                route: Router::NONE,
                rewritten: None,
                backend: Backend::Refuse(refusal),
            };
        }
        let ruled = self
            .rules
            .as_ref()
            .map_or(Ruled::Nothing, |rules| rules.look(head));
        let rewritten = match ruled {
            Ruled::Nothing => None,
            Ruled::Rewritten(target) => Some(target.into_boxed_slice()),
            Ruled::Reply(reply) => return by_rule(Backend::RespondAsIs(reply)),
            Ruled::Bare(reply) => return by_rule(Backend::Respond(reply)),
        };
        let path = path(head, rewritten.as_deref());
        let target = self.router.find(path);
        let backend = match target {
            Target::Pool => self.pool(head, path, ends),
            Target::Files { mount, rest_from } => Backend::Files { mount, rest_from },
            Target::Status => Backend::Status,
            Target::Server => Backend::Respond(Reply::options()),
            Target::Nothing => Backend::Respond(Refusal::because(404, "no route").reply()),
        };
        Disposition {
            route: Router::index(target),
            rewritten,
            backend,
        }
    }

    /// Which pool runs a request that the application is to answer, and how much it matters. Routes that are
    /// slow have a pool of their own, unless a rule has placed them.
    fn pool(&self, head: HeadView<'_>, path: &[u8], ends: &Ends) -> Backend {
        let (pool, class) = self.allot.find(head, path, ends);
        let slow = self
            .slow
            .as_ref()
            .filter(|slow| pool == 0 && class != Class::Health && slow.has(head.method(), path));
        let pool = slow.map_or(pool, |slow| slow.pool());
        Backend::Pool { pool, class }
    }
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
