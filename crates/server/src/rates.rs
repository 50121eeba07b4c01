//! Which bandwidth limit a reply is under.
//!
//! Takes the configured rates and a reply's route, gives a handle to the bucket that counts; the
//! arithmetic is `stage`'s, waiting is the sender's. It must not read a clock or hold its lock for more
//! than that arithmetic.
//!
//! The narrowest scope that is set decides alone: the reply's own rate, the connection's, the route's,
//! the pool's. `off` is set too: it lifts the limits of the wider scopes.

use std::sync::{Arc, Mutex};

use measure::Stamp;
use stage::Bucket;

use crate::config::meant;
use crate::config::meant::Rate;
use crate::route::Router;
use crate::sync::lock;

/// The bandwidth limits of a process.
pub(crate) struct Rates {
    /// Nothing is configured.
    is_empty: bool,
    connection: Option<Rate>,
    /// By the route's index; what is configured for the route, or for the pool behind it.
    routes: Vec<Option<Scope>>,
}

/// What was set for a scope that replies share.
enum Scope {
    Unlimited,
    Limited(Arc<Shared>),
}

struct Shared {
    chunk_bytes: u64,
    bucket: Mutex<Bucket>,
}

/// The limit of one reply, or of a connection as long as it keeps it.
pub(crate) struct Limit {
    source: Source,
}

enum Source {
    Own { chunk_bytes: u64, bucket: Bucket },
    Shared(Arc<Shared>),
}

impl Rates {
    /// `route_names`: the routes by their index, as `Router::names` gives them. A prefix that is no
    /// mount's limits nothing, except that the root is the application where no mount has it.
    pub(crate) fn new(rates: &meant::Rates, route_names: &[String]) -> Self {
        let mut routes: Vec<Option<Scope>> = route_names.iter().map(|_| None).collect();
        for (prefix, rate) in &rates.routes {
            if let Some(index) = route_of(prefix, route_names) {
                routes[index] = Some(Scope::new(*rate));
            }
        }
        // Behind the application's route there is the pool, and behind nothing else.
        if let Some(app) = routes.get_mut(usize::from(Router::APP)) {
            *app = app.take().or_else(|| rates.pool.map(Scope::new));
        }
        Self {
            is_empty: rates.connection.is_none() && routes.iter().all(Option::is_none),
            connection: rates.connection,
            routes,
        }
    }

    /// The limit of a reply of `route` (an index of `Router::index`); `None`: as fast as it goes.
    ///
    /// `own` is a rate that the reply has by itself, from the application. A limit of a reply's own or
    /// of its connection comes with a full bucket.
    #[inline]
    pub(crate) fn limit(&self, route: u16, own: Option<Rate>) -> Option<Limit> {
        if self.is_empty && own.is_none() {
            return None;
        }
        self.narrowest(route, own)
    }

    /// Whether replies of `route` have a limit, their own apart.
    #[inline]
    pub(crate) fn is_limited(&self, route: u16) -> bool {
        !self.is_empty && self.narrowest(route, None).is_some()
    }

    /// Whether a connection keeps its limit from one reply to the next.
    pub(crate) fn is_by_connection(&self) -> bool {
        matches!(self.connection, Some(Rate::BytesPerSec(_)))
    }

    fn narrowest(&self, route: u16, own: Option<Rate>) -> Option<Limit> {
        if let Some(rate) = own.or(self.connection) {
            return Limit::own(rate);
        }
        match self.routes.get(usize::from(route))?.as_ref()? {
            Scope::Unlimited => None,
            Scope::Limited(shared) => Some(Limit {
                source: Source::Shared(Arc::clone(shared)),
            }),
        }
    }
}

impl Scope {
    fn new(rate: Rate) -> Self {
        match rate {
            Rate::Unlimited => Self::Unlimited,
            Rate::BytesPerSec(rate) => Self::Limited(Arc::new(Shared {
                chunk_bytes: Bucket::chunk_for(rate),
                bucket: Mutex::new(Bucket::new(rate, Bucket::burst_for(rate))),
            })),
        }
    }
}

impl Limit {
    fn own(rate: Rate) -> Option<Self> {
        let Rate::BytesPerSec(rate) = rate else {
            return None;
        };
        Some(Self {
            source: Source::Own {
                chunk_bytes: Bucket::chunk_for(rate),
                bucket: Bucket::new(rate, Bucket::burst_for(rate)),
            },
        })
    }

    /// Reserves the next piece of a reply of which `want` bytes (at least 1) are to go: from when on it may
    /// be sent (`now`: at once), and its bytes, at least 1.
    pub(crate) fn reserve(&mut self, want: u64, now: Stamp) -> (Stamp, u64) {
        match &mut self.source {
            Source::Own {
                chunk_bytes,
                bucket,
            } => {
                let bytes = want.min(*chunk_bytes);
                (bucket.reserve(bytes, now), bytes)
            }
            Source::Shared(shared) => {
                let bytes = want.min(shared.chunk_bytes);
                (lock(&shared.bucket).reserve(bytes, now), bytes)
            }
        }
    }
}

/// The index of the route that has `prefix`; the root is the application's unless a mount has it.
fn route_of(prefix: &str, route_names: &[String]) -> Option<usize> {
    let name = match prefix.trim_end_matches('/') {
        "" => "/",
        prefix => prefix,
    };
    let mounts = route_names
        .iter()
        .enumerate()
        .skip(usize::from(Router::FILES));
    let found = mounts.into_iter().find(|(_, mount)| *mount == name);
    match found {
        Some((index, _)) => Some(index),
        None => (name == "/").then_some(usize::from(Router::APP)),
    }
}
