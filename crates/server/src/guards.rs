//! Guards of routes: how often the requests of a client may come, who may send them, how large they may be,
//! and whether their bodies pass while they arrive.
//!
//! Made once of the configuration, shared by all drivers; asked once the route of a request is known, before its body
//! is read. A route without such settings has no guard, and a server without guards looks at nothing.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use config::failure::StartFault;
use config::typed::{Config, ForwardAuth, RateKey, RateLimit, Route, RouteSettings};
use http::{BasicCredentials, HeadView};
use ipc::stats::SharedRates;
use ipnet::IpNet;
use nix::time::{ClockId, clock_gettime};
use queueing::RequestRate;
use telemetry::Nanos;

use crate::blocking_pool::BlockingPool;
use crate::exchange::Ends;
use crate::refusal::Refusal;
use crate::users::Users;

/// Passwords that may wait for their check; more are refused, because a check is dear and its wish is not.
const CHECKS_WAITING_MAX: usize = 64;

/// The guards of one process.
pub(crate) struct Guards {
    /// By the route's index; empty where there are none.
    by_route: Vec<Option<RouteGuard>>,
    /// Checks passwords; without a thread where no route has users.
    checkers: BlockingPool,
}

/// What a route asks of its requests.
pub(crate) struct RouteGuard {
    rate: Option<RateGuard>,
    users: Option<Arc<Users>>,
    forward_auth: Option<Arc<ForwardAuth>>,
    body_bytes_max: Option<u64>,
    request_timeout: Option<Option<Nanos>>,
    streams_requests: Option<bool>,
}

struct RateGuard {
    rate: RequestRate,
    by: RateKey,
    /// Of all processes, also of those before a reload.
    buckets: Arc<SharedRates>,
    /// What tells its keys from those of other limits, and what clients cannot know: they must not choose which of them
    /// share a place.
    hasher: DefaultHasher,
}

/// What becomes of a request, as far as its credentials go.
pub(crate) enum UserVerdict {
    /// No user is asked for.
    Open,
    /// The password was right.
    Known,
    Refused(Refusal),
    /// The password has to be checked.
    Unchecked(PasswordCheck),
}

/// What has to be found out before a request may pass.
pub(crate) enum Check {
    /// Whether its password is right.
    Password(PasswordCheck),
    /// What the server of `forward_auth` says.
    ForwardAuth {
        auth: Arc<ForwardAuth>,
        /// What the request is for, as its route was found by it.
        target: Box<[u8]>,
    },
}

/// A password that has to be checked.
pub(crate) struct PasswordCheck {
    users: Arc<Users>,
    credentials: BasicCredentials,
}

impl Guards {
    /// Reads the files of users.
    ///
    /// # Errors
    /// A file that cannot be used; or there is no thread.
    pub(crate) fn open(config: &Config, buckets: SharedRates) -> Result<Self, StartFault> {
        let buckets = Arc::new(buckets);
        let mut by_route = Vec::new();
        let mut files: Vec<(&PathBuf, Arc<Users>)> = Vec::new();
        for (index, route) in config.numbered_routes() {
            let settings = &route.settings;
            let users = match &settings.basic_auth {
                None => None,
                Some(file) => Some(users_of(file, &mut files)?),
            };
            let rate = settings.rate_limit.as_ref();
            let rate = rate.map(|limit| RateGuard::new(route, limit, &buckets));
            let Some(guard) = RouteGuard::new(settings, rate, users) else {
                continue;
            };
            let index = usize::from(index);
            if by_route.len() <= index {
                by_route.resize_with(index + 1, || None);
            }
            by_route[index] = Some(guard);
        }
        let threads = usize::from(!files.is_empty());
        let checkers = BlockingPool::start("mp-users", threads)
            .map_err(|error| StartFault::of_io("cannot start a thread", &error))?;
        Ok(Self { by_route, checkers })
    }

    /// That of a route, by its index.
    #[inline]
    pub(crate) fn of(&self, route: u16) -> Option<&RouteGuard> {
        self.by_route.get(usize::from(route))?.as_ref()
    }

    /// Most bytes of a body of this route, where others may have `usual`.
    pub(crate) fn body_bytes_max(&self, route: u16, usual: u64) -> u64 {
        let own = self.of(route).and_then(|guard| guard.body_bytes_max);
        own.unwrap_or(usual)
    }

    /// How long a request of this route may run, where others may run for `usual`.
    pub(crate) fn request_timeout(&self, route: u16, usual: Option<Nanos>) -> Option<Nanos> {
        let own = self.of(route).and_then(|guard| guard.request_timeout);
        own.unwrap_or(usual)
    }

    /// Whether bodies of this route pass while they arrive, where others do so as `usual` says.
    pub(crate) fn streams_requests(&self, route: u16, usual: bool) -> bool {
        let own = self.of(route).and_then(|guard| guard.streams_requests);
        own.unwrap_or(usual)
    }

    /// Why a password cannot be checked now, if that is so.
    pub(crate) fn crowded(&self) -> Option<Refusal> {
        let is_crowded = self.checkers.waiting_len() >= CHECKS_WAITING_MAX;
        is_crowded.then_some(Refusal::PASSWORDS_CROWDED)
    }

    /// Whether the password is right.
    ///
    /// # Errors
    /// The check panicked.
    pub(crate) async fn check(&self, check: PasswordCheck) -> io::Result<bool> {
        let task = move || check.users.check(&check.credentials);
        self.checkers.run(task).await
    }
}

impl RouteGuard {
    fn new(
        settings: &RouteSettings,
        rate: Option<RateGuard>,
        users: Option<Arc<Users>>,
    ) -> Option<Self> {
        let guard = Self {
            rate,
            users,
            forward_auth: settings.forward_auth.clone().map(Arc::new),
            body_bytes_max: settings.body_bytes_max,
            request_timeout: settings.request_timeout,
            streams_requests: settings.streams_requests,
        };
        let asks = guard.rate.is_some() || guard.users.is_some() || guard.forward_auth.is_some();
        let bounds = guard.body_bytes_max.is_some() || guard.request_timeout.is_some();
        (asks || bounds || guard.streams_requests.is_some()).then_some(guard)
    }

    /// Why a request comes too early, if it does.
    pub(crate) fn too_early(&self, head: HeadView<'_>, ends: &Ends) -> Option<Refusal> {
        let rate = self.rate.as_ref()?;
        let wait = rate.take(head, ends, now_us()).err()?;
        // Rounded up: who comes back a moment too early is refused again.
        let secs = wait.0.div_ceil(1_000_000_000).max(1);
        Some(Refusal {
            retry_after_secs: Some(u32::try_from(secs).unwrap_or(u32::MAX)),
            ..Refusal::TOO_OFTEN
        })
    }

    /// The server that is to be asked about requests.
    pub(crate) fn forward_auth(&self) -> Option<&Arc<ForwardAuth>> {
        self.forward_auth.as_ref()
    }

    /// Whether the user of a request is one of the route's.
    pub(crate) fn verdict(&self, head: HeadView<'_>) -> UserVerdict {
        let Some(users) = &self.users else {
            return UserVerdict::Open;
        };
        match BasicCredentials::of(head) {
            None => UserVerdict::Refused(Refusal::NO_CREDENTIALS),
            Some(credentials) if users.remembers(&credentials) => UserVerdict::Known,
            Some(credentials) => UserVerdict::Unchecked(PasswordCheck {
                users: Arc::clone(users),
                credentials,
            }),
        }
    }
}

impl RateGuard {
    fn new(route: &Route, limit: &RateLimit, buckets: &Arc<SharedRates>) -> Self {
        let mut hasher = DefaultHasher::new();
        buckets.seed().hash(&mut hasher);
        // All that tells routes apart: each has buckets of its own, and after a reload the same ones.
        (&route.host, &route.path, &route.methods).hash(&mut hasher);
        (&route.header, &route.from, limit.interval, limit.burst).hash(&mut hasher);
        Self {
            rate: RequestRate::new(limit.interval, limit.burst),
            by: limit.by.clone(),
            buckets: Arc::clone(buckets),
            hasher,
        }
    }

    fn take(&self, head: HeadView<'_>, ends: &Ends, now_us: u64) -> Result<(), Nanos> {
        let mut hasher = self.hasher.clone();
        match &self.by {
            RateKey::Client {
                prefix_v4,
                prefix_v6,
            } => network(ends, (*prefix_v4, *prefix_v6)).hash(&mut hasher),
            RateKey::Header(name) => {
                let is_its =
                    |(field, _): &(&[u8], &[u8])| field.eq_ignore_ascii_case(name.as_bytes());
                let value = head.headers().find(is_its).map(|(_, value)| value);
                value.hash(&mut hasher);
            }
        }
        let take = |full_at_us| self.rate.take(full_at_us, now_us);
        self.buckets.take(hasher.finish(), now_us, take)
    }
}

/// The present on the clock that processes share.
fn now_us() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the machine has this clock");
    (now.tv_sec() as u64) * 1_000_000 + (now.tv_nsec() as u64) / 1_000
}

/// The network that a client belongs to; clients on unix sockets have none, and count together.
fn network(ends: &Ends, (prefix_v4, prefix_v6): (u8, u8)) -> Option<IpNet> {
    let ip: std::net::IpAddr = ends.client_host.parse().ok()?;
    let ip = ip.to_canonical();
    let prefix = if ip.is_ipv4() {
        prefix_v4.min(32)
    } else {
        prefix_v6.min(128)
    };
    IpNet::new(ip, prefix).ok().map(|network| network.trunc())
}

/// The users of a file, which is read once for all of its routes.
fn users_of<'c>(
    file: &'c PathBuf,
    files: &mut Vec<(&'c PathBuf, Arc<Users>)>,
) -> Result<Arc<Users>, StartFault> {
    if let Some((_, users)) = files.iter().find(|(other, _)| *other == file) {
        return Ok(Arc::clone(users));
    }
    let users = Arc::new(read_users(file)?);
    files.push((file, Arc::clone(&users)));
    Ok(users)
}

fn read_users(file: &Path) -> Result<Users, StartFault> {
    let what = format!("users `{}`", file.display());
    let text = fs::read_to_string(file).map_err(|error| StartFault::of_io(&what, &error))?;
    Users::parse(&text).map_err(|(line, cause)| {
        StartFault::new(format!("{what}, line {line}"), cause)
            .with_hint("`htpasswd -B FILE NAME` writes lines of users with bcrypt hashes")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{ends, with_head};

    const SECOND: u64 = 1_000_000_000;

    fn buckets() -> SharedRates {
        SharedRates::private().expect("there is memory")
    }

    fn guard(by: RateKey) -> RouteGuard {
        let settings = RouteSettings {
            rate_limit: Some(RateLimit {
                interval: Nanos(3 * SECOND / 2),
                burst: 1,
                by,
            }),
            ..RouteSettings::default()
        };
        let buckets = Arc::new(buckets());
        let limit = settings.rate_limit.as_ref();
        let rate =
            limit.map(|limit| RateGuard::new(&config::typed::Route::default(), limit, &buckets));
        RouteGuard::new(&settings, rate, None).expect("there is a limit")
    }

    /// Requests with their clients one after the other, and the seconds of their `Retry-After`; 0: they pass.
    fn check(by: RateKey, requests: &[(&str, &str, u32)]) {
        let guard = guard(by);
        for (client, header, expect) in requests {
            let request = format!("GET h/ {header}");
            let refusal = with_head(&request, |head| guard.too_early(head, &ends(client)));
            let found = refusal.and_then(|refusal| refusal.retry_after_secs);
            assert_eq!(found.unwrap_or(0), *expect, "{client} {header}");
            assert!(refusal.is_none_or(|refusal| refusal.status == 429));
        }
    }

    #[test]
    fn clients_of_a_network_have_one_rate() {
        let by = RateKey::Client {
            prefix_v4: 24,
            prefix_v6: 64,
        };
        check(
            by,
            &[
                ("192.0.2.1", "", 0),
                ("192.0.2.9", "", 2),
                ("::ffff:192.0.2.7", "", 2),
                ("192.0.3.1", "", 0),
                ("2001:db8::1", "", 0),
                ("2001:db8::2:2", "", 2),
                ("2001:db8:0:1::1", "", 0),
                ("unix:", "", 0),
                ("unix:", "", 2),
            ],
        );
    }

    #[test]
    fn values_of_a_header_have_one_rate_each() {
        check(
            RateKey::Header("x-key".to_owned()),
            &[
                ("192.0.2.1", "X-Key: a", 0),
                ("192.0.2.2", "x-key: a", 2),
                ("192.0.2.2", "X-Key: b", 0),
                ("192.0.2.2", "X-Keys: b", 0),
                ("192.0.2.2", "", 2),
            ],
        );
    }

    #[test]
    fn a_route_without_such_settings_has_no_guard() {
        let settings = RouteSettings {
            strips_path: true,
            ..RouteSettings::default()
        };
        assert!(RouteGuard::new(&settings, None, None).is_none());
        let config = Config {
            routes: vec![config::typed::Route {
                settings,
                ..Default::default()
            }],
            ..Config::default()
        };
        let guards = Guards::open(&config, buckets()).expect("nothing to open");
        assert!(guards.by_route.is_empty() && guards.checkers.is_empty());
        assert_eq!(guards.body_bytes_max(2, 7), 7);
        assert_eq!(guards.request_timeout(2, Some(Nanos(7))), Some(Nanos(7)));
    }

    #[test]
    fn bounds_of_a_route_replace_the_usual_ones() {
        let of = |path: &str, settings| config::typed::Route {
            path: path.to_owned(),
            settings,
            ..Default::default()
        };
        let settings = RouteSettings {
            body_bytes_max: Some(3),
            request_timeout: Some(None),
            ..RouteSettings::default()
        };
        let config = Config {
            routes: vec![of("/a", RouteSettings::default()), of("/b", settings)],
            ..Config::default()
        };
        let guards = Guards::open(&config, buckets()).expect("nothing to open");
        let bounds = |route| {
            let timeout = guards.request_timeout(route, Some(Nanos(7)));
            (guards.body_bytes_max(route, 7), timeout)
        };
        assert_eq!(config.route_names()[4..], ["/a", "/b"]);
        assert_eq!(bounds(4), (7, Some(Nanos(7))));
        assert_eq!(bounds(5), (3, None));
    }
}
