//! Answering on the driver: files, refusals, the status page.

use std::io::{self, IoSlice};

use measure::{Ending, Phases, Queued, Stamp};
use wire::{HeadView, ReplyFacts, ReplyFraming, ReplyPlan, RequestHead, Version};

use super::connection::{Connection, Step};
use super::refused::Refused;
use super::sending::{Outflow, Stop};
use crate::delivery::{self, Chain, Door, EndOfHead};
use crate::exchange::{Exchange, Id};
use crate::ledger::{Closing, Outcome};
use crate::rates::Limit;
use crate::reply::{Part, Reply, ReplyBody};
use crate::route::Router;
use crate::stats::Doing;

/// What an answer has to know of its exchange.
pub(super) struct About<'a> {
    pub(super) id: Id,
    /// `None` when the head was refused.
    pub(super) view: Option<HeadView<'a>>,
    /// What was received of a head that was refused.
    pub(super) line: &'a [u8],
    /// Index of the pool that it went through.
    pub(super) pool: Option<u16>,
    pub(super) phases: Phases,
    pub(super) route: u16,
    pub(super) request_bytes: u64,
    pub(super) ending: Ending,
    pub(super) cause: &'static str,
    pub(super) after: After,
}

/// What follows a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum After {
    /// The next request, if the client and the driver's mood allow it.
    Next,
    /// The end; the client gets time to read if it has sent more than was read.
    Leave,
    /// The end, once the client has had time to read: it is still sending.
    Linger,
    /// The end at once.
    Close,
}

/// A reply that the socket has not taken whole, with all that its end needs.
pub(super) struct Sending {
    pub(super) chain: Chain,
    pub(super) head: Option<RequestHead>,
    pub(super) line: Vec<u8>,
    pub(super) tail: Tail,
    pub(super) limit: Option<Box<Limit>>,
}

/// The part of an ended exchange that is the same whether its head is borrowed or owned.
#[derive(Clone, Copy)]
pub(super) struct Tail {
    pub(super) id: Id,
    /// Index of the pool that it went through.
    pub(super) pool: Option<u16>,
    pub(super) phases: Phases,
    /// What it found at its pool's queue.
    pub(super) queued: Queued,
    pub(super) route: u16,
    pub(super) request_bytes: u64,
    pub(super) status: u16,
    pub(super) head_bytes: u64,
    pub(super) sent_bytes: u64,
    pub(super) ending: Ending,
    pub(super) cause: &'static str,
    pub(super) after: After,
}

impl Connection {
    /// Refuses a head.
    pub(super) fn refuse_line(&mut self, line: &[u8], refused: Refused) -> Step {
        let request_bytes = line.len() as u64;
        let id = self.new_id(None);
        let about = self.refusal(id, (None, line), Router::NONE, request_bytes, refused);
        self.answer(&about, refused.reply()).unwrap_or(Step::Linger)
    }

    /// Refuses a request whose head is complete; its connection ends.
    pub(super) fn refuse(
        &mut self,
        id: Id,
        view: HeadView<'_>,
        route: u16,
        request_bytes: u64,
        refused: Refused,
    ) -> Step {
        let about = self.refusal(id, (Some(view), b""), route, request_bytes, refused);
        self.answer(&about, refused.reply()).unwrap_or(Step::Linger)
    }

    fn refusal<'a>(
        &self,
        id: Id,
        (view, line): (Option<HeadView<'a>>, &'a [u8]),
        route: u16,
        request_bytes: u64,
        refused: Refused,
    ) -> About<'a> {
        self.driver.stats().errors.add();
        About {
            id,
            view,
            line,
            pool: None,
            phases: self.inline_phases(measure::now()),
            route,
            request_bytes,
            ending: Ending::Refused,
            cause: refused.cause,
            after: After::Linger,
        }
    }

    /// Stamps of an exchange that is answered here, before its reply.
    pub(super) fn inline_phases(&self, now: Stamp) -> Phases {
        Phases {
            arrived: self.arrived,
            queued: now,
            started: now,
            ..Phases::default()
        }
    }

    /// Ends an exchange that gets no reply.
    pub(super) fn end_unanswered(
        &self,
        id: Id,
        head: Option<(HeadView<'_>, u64)>,
        line: &[u8],
        ending: Ending,
    ) {
        let now = measure::now();
        let phases = Phases {
            replied: now,
            delivered: now,
            ..self.inline_phases(now)
        };
        let request_bytes = head.map_or(line.len() as u64, |(_, bytes)| bytes);
        let tail = Tail::unanswered(id, phases, request_bytes, ending);
        self.driver.stats().errors.add();
        self.end(head.map(|(view, _)| view), line, &tail);
    }

    /// Answers with a complete reply, sent as far as the socket takes it. `None`: all is sent, and the
    /// next request may come.
    ///
    /// An error page takes the place of its body, where there is one for its status.
    pub(super) fn answer(&mut self, about: &About<'_>, reply: Reply) -> Option<Step> {
        let reply = self.driver.shared.pages.dress(reply, about.view);
        self.answer_as_is(about, reply)
    }

    /// As `answer`, with its own body whatever its status.
    pub(super) fn answer_as_is(&mut self, about: &About<'_>, reply: Reply) -> Option<Step> {
        let limit = self.limit(about.route, None);
        let plan = about.plan(&reply, self.driver.serving());
        let mut tail = Tail::new(about, reply.status);
        tail.phases.replied = measure::now();
        if tail.after == After::Next && !plan.keep_alive {
            tail.after = After::Leave;
        }
        let body = if plan.framing == ReplyFraming::NoBody {
            ReplyBody::Empty
        } else {
            reply.body
        };
        let mut desk = self.driver.desk.borrow_mut();
        desk.name_exchange(about.id, about.view);
        desk.out.clear();
        wire::write_status_line(&mut desk.out, reply.status);
        desk.out.extend_from_slice(&reply.lines);
        desk.end_head(&about.end_of_head(&plan), &tail.phases);
        tail.head_bytes = desk.out.len() as u64;
        let at_once = match limit {
            None => send_at_once(self.door(), &desk.out, &body),
            Some(_) => Ok(0),
        };
        let sent = match at_once {
            Ok(sent) => sent,
            Err(_) => {
                tail.give_up(Stop::peer_gone());
                drop(desk);
                return self.end_now(about, tail);
            }
        };
        tail.sent_bytes = sent;
        if sent == tail.head_bytes + body.bytes() {
            drop(desk);
            return self.end_now(about, tail);
        }
        let mut chain = Chain::default();
        chain.push_copy(&desk.out);
        chain.push_body(body);
        chain.advance(sent);
        drop(desk);
        let head = about.view.map(RequestHead::take);
        Some(Step::Send(Box::new(Sending {
            chain,
            head,
            line: about.line.to_vec(),
            tail,
            limit,
        })))
    }

    fn end_now(&mut self, about: &About<'_>, mut tail: Tail) -> Option<Step> {
        tail.phases.delivered = measure::now();
        self.idle_since = tail.phases.delivered;
        self.end(about.view, about.line, &tail);
        tail.after.step()
    }

    /// Sends the rest of a reply as the client takes it.
    pub(super) async fn send_rest(&mut self, mut sending: Box<Sending>) -> Step {
        let mut outflow = Outflow::new(self, sending.limit.take(), measure::now());
        self.now_doing(Doing::Sending, Stamp::NEVER);
        let stop = loop {
            if sending.chain.is_empty() {
                break None;
            }
            if let Err(stop) = self.send_some(&mut sending.chain, &mut outflow).await {
                break Some(stop);
            }
        };
        sending.tail.sent_bytes += outflow.sent;
        self.keep_limit(&mut outflow, None);
        if let Some(stop) = stop {
            self.count_stop(stop);
            sending.tail.give_up(stop);
            self.abandon();
            self.discard(std::mem::take(&mut sending.chain));
        }
        sending.tail.phases.delivered = measure::now();
        self.idle_since = sending.tail.phases.delivered;
        let view = sending.head.as_ref().map(RequestHead::view);
        self.end(view, &sending.line, &sending.tail);
        sending.tail.after.step().unwrap_or(Step::Receive)
    }

    /// Ends an exchange: the one place on a driver that does.
    pub(super) fn end(&self, view: Option<HeadView<'_>>, line: &[u8], tail: &Tail) {
        if tail.ending == Ending::Drained {
            self.driver.cut.set(self.driver.cut.get() + 1);
        }
        self.driver.ledger.close(&Closing {
            id: tail.id,
            pool: tail.pool,
            head: view,
            request_line: if view.is_none() {
                first_line(line)
            } else {
                b""
            },
            ends: &self.ends,
            phases: &tail.phases,
            queued: tail.queued,
            route: tail.route,
            driver: self.driver.index,
            request_bytes: tail.request_bytes,
            outcome: Outcome {
                status: tail.status,
                sent_bytes: tail.sent_bytes,
                head_bytes: tail.head_bytes,
                ending: tail.ending,
                cause: tail.cause,
            },
        });
    }
}

impl About<'_> {
    fn plan(&self, reply: &Reply, serving: bool) -> ReplyPlan {
        let keep_alive = self.view.is_some_and(|view| view.index.keep_alive);
        wire::plan_reply(&ReplyFacts {
            version: self.version(),
            method_is_head: self.view.is_some_and(|view| view.is_head()),
            status: reply.status,
            content_length: Some(reply.body.bytes()),
            keep_alive: keep_alive && serving && self.after == After::Next,
        })
    }

    fn end_of_head<'a>(&self, plan: &'a ReplyPlan) -> EndOfHead<'a> {
        let version = self.version();
        EndOfHead {
            plan,
            version,
            has_date: false,
            has_server: false,
            write_length: false,
        }
    }

    fn version(&self) -> Version {
        self.view.map_or(Version::Http11, |view| view.index.version)
    }
}

impl After {
    /// `None`: the next request.
    fn step(self) -> Option<Step> {
        match self {
            After::Next => None,
            After::Leave => Some(Step::Leave),
            After::Linger => Some(Step::Linger),
            After::Close => Some(Step::Close),
        }
    }
}

impl Tail {
    fn new(about: &About<'_>, status: u16) -> Self {
        Tail {
            id: about.id,
            pool: about.pool,
            phases: about.phases,
            queued: Queued::default(),
            route: about.route,
            request_bytes: about.request_bytes,
            status,
            head_bytes: 0,
            sent_bytes: 0,
            ending: about.ending,
            cause: about.cause,
            after: about.after,
        }
    }

    fn unanswered(id: Id, phases: Phases, request_bytes: u64, ending: Ending) -> Self {
        Tail {
            id,
            pool: None,
            phases,
            queued: Queued::default(),
            route: Router::NONE,
            request_bytes,
            status: 0,
            head_bytes: 0,
            sent_bytes: 0,
            ending,
            cause: "",
            after: After::Close,
        }
    }

    /// An exchange that is away, as it ends when it does not come back.
    pub(super) fn absent(exchange: &Exchange) -> Self {
        let (id, phases, bytes) = (exchange.id, exchange.phases, exchange.request_bytes);
        let unanswered = Tail::unanswered(id, phases, bytes, Ending::Drained);
        Tail {
            pool: Some(exchange.queue.pool),
            queued: exchange.queue.queued,
            route: exchange.route,
            ..unanswered
        }
    }

    fn give_up(&mut self, stop: Stop) {
        self.ending = stop.ending;
        self.cause = stop.cause;
        self.after = After::Close;
    }
}

/// Head and body in one call where the body is one buffer; gives the bytes taken. Anything else goes by
/// a chain.
fn send_at_once(door: &Door, head: &[u8], body: &ReplyBody) -> io::Result<u64> {
    let sent = match body {
        ReplyBody::Empty => delivery::send(door, &[IoSlice::new(head)]),
        ReplyBody::One(Part::Memory(data)) => {
            delivery::send(door, &[IoSlice::new(head), IoSlice::new(data)])
        }
        _ => Ok(0),
    };
    sent.map(|sent| sent as u64)
}

/// The first line of what was received, for the log: at most 256 bytes.
fn first_line(received: &[u8]) -> &[u8] {
    let head = &received[..received.len().min(256)];
    let end = memchr::memchr2(b'\r', b'\n', head).unwrap_or(head.len());
    &head[..end]
}
