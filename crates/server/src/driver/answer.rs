//! Answering on the driver: files, refusals, the status page, and the rest of what a socket did not take
//! at once.

use std::io::{self, IoSlice};

use measure::{Ending, Phases, Stamp};
use wire::{HeadView, ReplyFacts, ReplyFraming, ReplyPlan, RequestHead, Version};

use super::connection::{Connection, Step, Woken};
use super::refused::Refused;
use crate::delivery::{self, Chain, Door, EndOfHead, Progress};
use crate::exchange::Exchange;
use crate::ledger::{Closing, Outcome};
use crate::reply::{Part, Reply, ReplyBody};
use crate::route::Router;
use crate::stats::Doing;

/// Sends of one reply in a turn, before the other connections get theirs.
const SENDS_A_TURN: usize = 8;

/// What an answer has to know of its exchange.
pub(super) struct About<'a> {
    /// `None` when the head was refused.
    pub(super) view: Option<HeadView<'a>>,
    /// What was received of a head that was refused.
    pub(super) line: &'a [u8],
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
}

/// The part of an ended exchange that is the same whether its head is borrowed or owned.
#[derive(Clone, Copy)]
pub(super) struct Tail {
    pub(super) phases: Phases,
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
        let about = self.refusal(None, line, Router::NONE, request_bytes, refused);
        self.answer(&about, refused.reply()).unwrap_or(Step::Linger)
    }

    /// Refuses a request whose head is complete; its connection ends.
    pub(super) fn refuse(
        &mut self,
        view: HeadView<'_>,
        route: u16,
        request_bytes: u64,
        refused: Refused,
    ) -> Step {
        let about = self.refusal(Some(view), b"", route, request_bytes, refused);
        self.answer(&about, refused.reply()).unwrap_or(Step::Linger)
    }

    fn refusal<'a>(
        &self,
        view: Option<HeadView<'a>>,
        line: &'a [u8],
        route: u16,
        request_bytes: u64,
        refused: Refused,
    ) -> About<'a> {
        self.driver.stats().errors.add();
        About {
            view,
            line,
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
        let tail = Tail::unanswered(phases, request_bytes, ending);
        self.driver.stats().errors.add();
        self.end(head.map(|(view, _)| view), line, &tail);
    }

    /// Answers with a complete reply, sent as far as the socket takes it. `None`: all is sent, and the
    /// next request may come.
    pub(super) fn answer(&mut self, about: &About<'_>, reply: Reply) -> Option<Step> {
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
        desk.out.clear();
        wire::write_status_line(&mut desk.out, reply.status);
        desk.out.extend_from_slice(&reply.lines);
        desk.end_head(&about.end_of_head(&plan), &tail.phases);
        tail.head_bytes = desk.out.len() as u64;
        let sent = match send_at_once(self.door(), &desk.out, &body) {
            Ok(sent) => sent,
            Err(_) => {
                tail.give_up(Ending::PeerGone);
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
        })))
    }

    fn end_now(&mut self, about: &About<'_>, mut tail: Tail) -> Option<Step> {
        tail.phases.delivered = measure::now();
        self.idle_since = tail.phases.delivered;
        self.end(about.view, about.line, &tail);
        tail.after.step()
    }

    /// Sends the rest of a reply as the socket takes it.
    pub(super) async fn send_rest(&mut self, mut sending: Box<Sending>) -> Step {
        let timeout = self.driver.config().timeouts.send;
        self.deadline_in(Doing::Sending, timeout);
        let stop = loop {
            match self.send_turn(&mut sending) {
                Ok(Progress::Done) => break None,
                Ok(Progress::More) => tokio::task::yield_now().await,
                Ok(Progress::Blocked) => {
                    if let Err(woken) = self.writable().await {
                        break Some(woken.ending());
                    }
                }
                Err(ending) => break Some(ending),
            }
        };
        if let Some(ending) = stop {
            sending.tail.give_up(ending);
            self.abandon();
        }
        sending.tail.phases.delivered = measure::now();
        let view = sending.head.as_ref().map(RequestHead::view);
        self.end(view, &sending.line, &sending.tail);
        sending.tail.after.step().unwrap_or(Step::Receive)
    }

    fn send_turn(&self, sending: &mut Sending) -> Result<Progress, Ending> {
        let (progress, sent) = self.send_chain(&mut sending.chain)?;
        sending.tail.sent_bytes += sent;
        Ok(progress)
    }

    /// A turn's worth of sends; renews the deadline when the client took something.
    pub(super) fn send_chain(&self, chain: &mut Chain) -> Result<(Progress, u64), Ending> {
        let mut sent_in_all = 0;
        let mut progress = Progress::More;
        for _ in 0..SENDS_A_TURN {
            let (now, sent) = chain
                .send(self.door())
                .map_err(|error| send_fault(&error))?;
            progress = now;
            sent_in_all += sent;
            if progress != Progress::More {
                break;
            }
        }
        let now = measure::now();
        self.driver.flush_due(now);
        if sent_in_all > 0 {
            self.now_doing(Doing::Sending, now.plus(self.driver.config().timeouts.send));
        }
        if progress == Progress::Blocked {
            self.is_full();
        }
        Ok((progress, sent_in_all))
    }

    /// Ends an exchange: the one place on a driver that does.
    pub(super) fn end(&self, view: Option<HeadView<'_>>, line: &[u8], tail: &Tail) {
        if tail.ending == Ending::Drained {
            self.driver.cut.set(self.driver.cut.get() + 1);
        }
        self.driver.ledger.close(&Closing {
            head: view,
            request_line: if view.is_none() {
                first_line(line)
            } else {
                b""
            },
            ends: &self.ends,
            phases: &tail.phases,
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
            phases: about.phases,
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

    fn unanswered(phases: Phases, request_bytes: u64, ending: Ending) -> Self {
        Tail {
            phases,
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
        let unanswered = Tail::unanswered(exchange.phases, exchange.request_bytes, Ending::Drained);
        Tail {
            route: exchange.route,
            ..unanswered
        }
    }

    fn give_up(&mut self, ending: Ending) {
        self.ending = ending;
        self.after = After::Close;
    }
}

impl Woken {
    /// How an exchange ends whose reply was being sent.
    pub(super) fn ending(self) -> Ending {
        match self {
            Woken::Deadline => Ending::SendTimeout,
            Woken::Cut => Ending::Drained,
            Woken::Draining | Woken::End | Woken::Failed => Ending::PeerGone,
        }
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

fn send_fault(error: &io::Error) -> Ending {
    match error.kind() {
        // The file became shorter while it was sent: what was announced cannot be kept.
        io::ErrorKind::UnexpectedEof => Ending::Cut,
        _ => Ending::PeerGone,
    }
}

/// The first line of what was received, for the log: at most 256 bytes.
fn first_line(received: &[u8]) -> &[u8] {
    let head = &received[..received.len().min(256)];
    let end = memchr::memchr2(b'\r', b'\n', head).unwrap_or(head.len());
    &head[..end]
}
