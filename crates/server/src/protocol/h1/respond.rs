//! Answering on the driver: files, refusals, the status page.

use measure::{Ending, Stamp};
use wire::{HeadView, RequestHead, Version};

use super::send::SendMonitor;
use super::{H1, Progress, Step};
use crate::exchange::ExchangeRecord;
use crate::exchange::stream::After;
use crate::handler::files::Look;
use crate::rates::Limit;
use crate::recorder::Received;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::response::{Destination, Encoding, Parts, RequestFacts, Rest};
use crate::stats::Doing;

/// What follows a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Then {
    /// The next request, if the client and the driver's state allow it.
    Next,
    /// The end; the client gets time to read if it has sent more than was read.
    Leave,
    /// The end, once the client has had time to read: it is still sending.
    Linger,
    /// The end at once.
    Close,
}

/// A response that the socket has not taken whole, with all that its end needs.
pub(super) struct Sending {
    parts: Parts,
    head: Option<RequestHead>,
    beginning: Vec<u8>,
    record: ExchangeRecord,
    then: Then,
    limit: Option<Box<Limit>>,
}

/// A request for a file that nobody has looked at lately.
pub(super) struct Lookup {
    look: Box<Look>,
    record: ExchangeRecord,
    head: RequestHead,
    then: Then,
}

impl H1 {
    /// Refuses a head that is not complete, or never will be.
    pub(super) fn refuse_beginning(&mut self, beginning: &[u8], refusal: Refusal) -> Step {
        let mut record = self.connection.record(None, self.arrived);
        record.request_bytes = beginning.len() as u64;
        self.refuse(record, Received::Beginning(beginning), refusal)
    }

    /// Refuses a client that has sent nothing while others need its place. It is not waited for: its request
    /// may be under way, but nothing here would read it.
    pub(super) fn refuse_silent(&mut self) -> Step {
        let record = self.connection.record(None, self.arrived);
        let received = Received::Beginning(b"");
        self.refuse_then(record, received, Refusal::CROWDED, Then::Leave)
    }

    /// Refuses a request; its connection ends.
    pub(super) fn refuse(
        &mut self,
        record: ExchangeRecord,
        received: Received<'_>,
        refusal: Refusal,
    ) -> Step {
        self.refuse_then(record, received, refusal, Then::Linger)
    }

    fn refuse_then(
        &mut self,
        mut record: ExchangeRecord,
        received: Received<'_>,
        refusal: Refusal,
        then: Then,
    ) -> Step {
        self.connection.driver.stats().errors.add();
        record.pool = None;
        record.begin_inline(measure::now());
        record.end_as(Ending::Refused, refusal.cause);
        match self.respond(record, received, then, refusal.reply()) {
            Progress::Next(step) => step,
            Progress::Answered | Progress::NeedInput => Step::Close,
        }
    }

    /// Answers with a complete response, sent as far as the socket takes it. An error page takes the place of its
    /// body, where there is one for its status.
    pub(super) fn respond(
        &mut self,
        record: ExchangeRecord,
        received: Received<'_>,
        then: Then,
        reply: Reply,
    ) -> Progress {
        let reply = self.connection.with_error_page(reply, received.head());
        self.respond_as_is(record, received, then, reply)
    }

    /// As `respond`, with its own body whatever its status.
    pub(super) fn respond_as_is(
        &mut self,
        mut record: ExchangeRecord,
        received: Received<'_>,
        mut then: Then,
        reply: Reply,
    ) -> Progress {
        let limit = self.limit(record.route, None);
        let direct = self
            .connection
            .transport
            .direct()
            .filter(|_| limit.is_none());
        let to = Destination {
            stream: None,
            direct: direct.cloned(),
            is_limited: false,
            encoding: Encoding::Http1,
        };
        let request = self.facts(&record, received.head(), then);
        let head = received.head();
        let ended = self.connection.write(&mut record, head, request, to, reply);
        match (ended.after, then) {
            _ if record.ending == Ending::PeerGone => then = Then::Close,
            (After::Close | After::Reset, Then::Next) => then = Then::Leave,
            _ => {}
        }
        match ended.rest {
            Rest::Here(parts, _) if record.ending != Ending::PeerGone => {
                Progress::Next(Step::Send(Box::new(Sending {
                    parts,
                    head: received.head().map(RequestHead::take),
                    beginning: match received {
                        Received::Head(_) => Vec::new(),
                        Received::Beginning(bytes) => bytes.to_vec(),
                    },
                    record,
                    then,
                    limit,
                })))
            }
            _ => {
                self.idle_since = record.phases.sent;
                self.connection.end(&record, received);
                then.progress()
            }
        }
    }

    fn facts(
        &self,
        record: &ExchangeRecord,
        head: Option<HeadView<'_>>,
        then: Then,
    ) -> RequestFacts {
        let keep_alive = head.is_some_and(|head| head.index.keep_alive);
        RequestFacts {
            version: head.map_or(Version::Http11, |head| head.index.version),
            is_head: head.is_some_and(|head| head.is_head()),
            keep_alive: keep_alive && self.connection.driver.serving() && then == Then::Next,
            phases: record.phases,
            accepted: None,
        }
    }

    /// Sends the rest of a response as the client takes it.
    pub(super) async fn send_rest(&mut self, mut sending: Box<Sending>) -> Step {
        let began = measure::now();
        let mut monitor = SendMonitor::new(&self.connection, sending.limit.take(), began);
        self.connection.now_doing(Doing::Sending, Stamp::NEVER);
        let stop = loop {
            if sending.parts.is_empty() {
                break None;
            }
            if let Err(stop) = self.send_some(&mut sending.parts, &mut monitor).await {
                break Some(stop);
            }
        };
        let Sending {
            parts,
            head,
            beginning,
            mut record,
            mut then,
            ..
        } = *sending;
        record.sent_bytes += monitor.sent;
        self.keep_limit(&mut monitor, None);
        if let Some(stop) = stop {
            self.connection.count_stop(stop);
            record.end_as(stop.ending, stop.cause);
            then = Then::Close;
            self.connection.transport.reset_on_close();
            self.connection.driver.discard(parts);
        }
        record.phases.sent = measure::now();
        self.idle_since = record.phases.sent;
        let received = match &head {
            Some(head) => Received::Head(head.view()),
            None => Received::Beginning(&beginning),
        };
        self.connection.end(&record, received);
        match then.progress() {
            Progress::Next(step) => step,
            Progress::Answered | Progress::NeedInput => Step::Receive,
        }
    }

    /// Has a file looked up and answers.
    pub(super) async fn look_up(&mut self, lookup: Box<Lookup>) -> Step {
        let Lookup {
            look,
            record,
            head,
            then,
        } = *lookup;
        // Storage has its own time: no deadline of the client's is running.
        self.connection.now_doing(Doing::Sending, Stamp::NEVER);
        let driver = self.connection.driver.clone();
        let looked = driver.wait_for_look(look);
        let looked = self.connection.unless_cut(looked).await;
        let received = Received::Head(head.view());
        let reply = match looked {
            Some(Ok(looked)) => driver.files.borrow().reply(&looked, head.view()),
            Some(Err(_)) => Refusal::because(500, "looking the file up failed").reply(),
            None => {
                self.connection
                    .end_unanswered(record, received, Ending::Drained);
                return Step::Close;
            }
        };
        match self.respond(record, received, then, reply) {
            Progress::Next(step) => step,
            Progress::Answered | Progress::NeedInput => Step::Receive,
        }
    }
}

impl Lookup {
    pub(super) fn new(
        look: Box<Look>,
        record: ExchangeRecord,
        head: RequestHead,
        then: Then,
    ) -> Self {
        Self {
            look,
            record,
            head,
            then,
        }
    }
}

impl Then {
    fn progress(self) -> Progress {
        match self {
            Then::Next => Progress::Answered,
            Then::Leave => Progress::Next(Step::Leave),
            Then::Linger => Progress::Next(Step::Linger),
            Then::Close => Progress::Next(Step::Close),
        }
    }
}
