//! Beginning: what a complete head leads to. A rule, a route, a reply on the spot, or a step that takes
//! longer.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use measure::{Ending, Nanos, Phases, Queued, Stamp};
use wire::{BodyFraming, HeadView, RequestHead};

use super::answer::{About, After};
use super::body::Incoming;
use super::connection::{Connection, Step};
use super::look::Looking;
use super::refused::Refused;
use crate::exchange::{Body, Exchange, Id, QueueFacts};
use crate::handler::files::Given;
use crate::reply::{Reply, ReplyBody};
use crate::request_start;
use crate::route::{Router, Target};
use crate::rules::Ruled;

/// What is known of a request besides its head.
pub(super) struct Request {
    pub(super) id: Id,
    pub(super) arrived: Stamp,
    pub(super) route: u16,
    /// The pool that is to run it.
    pub(super) queue: QueueFacts,
    pub(super) request_bytes: u64,
    /// The target that it goes on with, if a rule changed it.
    pub(super) rewritten: Option<Box<[u8]>>,
}

impl Connection {
    /// Begins an exchange whose head is complete. `None`: it is answered already.
    pub(super) fn begin(&mut self, view: HeadView<'_>, now: Stamp) -> Option<Step> {
        let driver = Rc::clone(&self.driver);
        let shared = &driver.shared;
        let id = self.new_id(Some(view));
        let rewritten = match shared.rules.look(view) {
            Ruled::Nothing => None,
            Ruled::Rewritten(target) => Some(target.into_boxed_slice()),
            Ruled::Reply(reply) => {
                let about = self.about(id, view, Router::RULES, now);
                return self.answer_as_is(&about, reply);
            }
            Ruled::Bare(reply) => return self.answer_with(id, view, Router::RULES, reply, now),
        };
        let path = rewritten.as_deref().map_or(view.path(), path_of);
        let target = shared.router.find(path);
        let route = Router::index(target);
        match target {
            Target::Pool => {
                let (pool, class) = shared.pool_of(view, path, &self.ends);
                let queue = QueueFacts {
                    pool,
                    class,
                    ..QueueFacts::default()
                };
                Some(self.begin_for_pool(id, view, (route, queue), rewritten))
            }
            Target::Files { mount, rest_from } => {
                let rest = &path[rest_from..];
                let about = self.about(id, view, route, now);
                let given = driver.files.borrow_mut().ask(mount, view, rest, now);
                match given {
                    Given::Ready(reply) => self.answer(&about, reply),
                    Given::Stale(reply, look) => {
                        driver.look_behind(look);
                        self.answer(&about, reply)
                    }
                    Given::Look(look) => Some(Step::Look(Box::new(Looking::new(look, &about)))),
                }
            }
            Target::Status => self.answer_with(id, view, route, driver.status_page(), now),
            Target::Server => self.answer_with(id, view, route, server_options(), now),
            Target::Nothing => {
                let reply = Refused::because(404, "no route").reply();
                self.answer_with(id, view, route, reply, now)
            }
        }
    }

    fn answer_with(
        &mut self,
        id: Id,
        view: HeadView<'_>,
        route: u16,
        reply: Reply,
        now: Stamp,
    ) -> Option<Step> {
        let about = self.about(id, view, route, now);
        self.answer(&about, reply)
    }

    /// A request that is answered here.
    fn about<'a>(&self, id: Id, view: HeadView<'a>, route: u16, now: Stamp) -> About<'a> {
        About {
            id,
            view: Some(view),
            line: b"",
            pool: None,
            phases: self.inline_phases(now),
            route,
            request_bytes: view.bytes.len() as u64,
            ending: Ending::Complete,
            cause: "",
            // Nobody will read its body: those bytes must not be taken for a request.
            after: if has_body(view) {
                After::Linger
            } else {
                After::Next
            },
        }
    }

    fn begin_for_pool(
        &mut self,
        id: Id,
        view: HeadView<'_>,
        (route, queue): (u16, QueueFacts),
        rewritten: Option<Box<[u8]>>,
    ) -> Step {
        let request = Request {
            id,
            arrived: self.arrived,
            route,
            queue,
            request_bytes: view.bytes.len() as u64,
            rewritten,
        };
        if !has_body(view) {
            let head = Arc::new(RequestHead::take(view));
            return Step::Pool(self.exchange(head, Body::Empty, request));
        }
        match Incoming::new(view, request, self.driver.config()) {
            Ok(incoming) => Step::Body(Box::new(incoming)),
            Err(refusal) => self.refuse(id, view, route, view.bytes.len() as u64, refusal.into()),
        }
    }

    /// A complete request, ready for the pool.
    pub(super) fn exchange(
        &self,
        head: Arc<RequestHead>,
        body: Body,
        request: Request,
    ) -> Box<Exchange> {
        let phases = Phases {
            arrived: request.arrived,
            queued: measure::now(),
            ..Phases::default()
        };
        let queue = QueueFacts {
            queued: Queued {
                before: self.before(head.view(), &phases),
                ..Queued::default()
            },
            ..request.queue
        };
        Box::new(Exchange {
            id: request.id,
            head,
            body,
            phases,
            queue,
            ends: Arc::clone(&self.ends),
            request_bytes: request.request_bytes,
            route: request.route,
            driver: self.driver.index,
            rewritten: request.rewritten,
        })
    }

    /// How long it had waited when it arrived, as a proxy in front says.
    fn before(&self, view: HeadView<'_>, phases: &Phases) -> Nanos {
        let told = self.driver.shared.request_starts.told(view, &self.ends);
        told.map_or(Nanos::ZERO, |started_ns| {
            let accept = phases.queued.since(phases.arrived);
            request_start::before(started_ns, unix_now_ns().saturating_sub(accept.0))
        })
    }
}

/// The wall clock; 0 before 1970.
fn unix_now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0))
}

fn has_body(view: HeadView<'_>) -> bool {
    !matches!(view.index.body, BodyFraming::None | BodyFraming::Length(0))
}

/// The path of an origin-form target.
fn path_of(target: &[u8]) -> &[u8] {
    let end = memchr::memchr(b'?', target).unwrap_or(target.len());
    &target[..end]
}

fn server_options() -> Reply {
    let lines = b"Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\nContent-Length: 0\r\n";
    Reply {
        status: 200,
        lines: Bytes::from_static(lines),
        body: ReplyBody::Empty,
    }
}
