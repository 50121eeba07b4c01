//! The exchange: one request and all that is known of it. It travels by move and is never shared.
//!
//! Takes its head and body from a protocol, its stamps from the threads that it passes, and ends in exactly one
//! log record. `ownership` says whether the driver or a worker may write its response, `stream` is what both
//! share of it. Touches no socket.

pub(crate) mod ownership;
pub(crate) mod stream;

use std::fs::File;
use std::ops::Deref;
use std::sync::Arc;

use measure::{Ending, Phases, Queued, Stamp};
use smol_str::SmolStr;
use wire::{HeadView, RequestHead};

use crate::spool::Spoolers;

pub use crate::ids::{Id, IdText};

/// One complete request on its way to a worker.
pub struct Exchange {
    /// Method, target, headers. Shared with the driver, which logs the exchange when a deadline passes before
    /// its response.
    pub head: Arc<RequestHead>,
    /// What a rule put in the place of the head's target: in origin form, visible ASCII. The head stays as
    /// it was sent, for the log.
    pub rewritten: Option<Box<[u8]>>,
    /// The whole body: an application never sees an incomplete one.
    pub body: Body,
    /// Both ends of the connection.
    pub ends: Arc<Ends>,
    /// All else that is known of it.
    pub record: ExchangeRecord,
}

/// What is known of an exchange beside its head, its body and its ends; the recorder makes the log line of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExchangeRecord {
    /// What it is called.
    pub id: Id,
    /// Stamps that have passed.
    pub phases: Phases,
    /// Index of the pool that it goes through; `None` for what a driver answers.
    pub pool: Option<u16>,
    /// How much it matters in that pool.
    pub class: stage::Class,
    /// What it found when it came to its pool's queue.
    pub queued: Queued,
    /// Index of the route that took it.
    pub route: u16,
    /// Index of the driver that received it.
    pub driver: u16,
    /// Bytes of head and body received.
    pub request_bytes: u64,
    /// Status of the response; 0 when there was none.
    pub status: u16,
    /// Bytes of the response's head.
    pub head_bytes: u64,
    /// Bytes that the kernel took, head included.
    pub sent_bytes: u64,
    /// How it ended.
    pub ending: Ending,
    /// Why, when it was refused or cut.
    pub cause: &'static str,
}

impl ExchangeRecord {
    /// Of a request that has arrived, and that nothing else is known of.
    pub fn new(id: Id, driver: u16, arrived: Stamp) -> Self {
        Self {
            id,
            phases: Phases {
                arrived,
                ..Phases::default()
            },
            driver,
            ending: Ending::Complete,
            ..Self::default()
        }
    }

    /// A driver answers it at `now`: it waits for no worker.
    pub(crate) fn begin_inline(&mut self, now: Stamp) {
        self.phases.queued = now;
        self.phases.started = now;
    }

    /// It ends so, whatever was known of its end before.
    pub(crate) fn end_as(&mut self, ending: Ending, cause: &'static str) {
        self.ending = ending;
        self.cause = cause;
    }

    /// Its response was handed over and is out at `now`, if it was not before.
    pub(crate) fn end_at(&mut self, now: Stamp) {
        self.phases.replied = now;
        self.phases.sent = now;
    }
}

impl Exchange {
    /// Method and target as sent but for its query, and its id, for people: queries have passwords in them,
    /// and no setting of the access log hides them in an error log.
    pub fn name(&self) -> String {
        name(self.record.id, self.head())
    }

    /// The text of its id.
    pub fn request_id(&self) -> IdText<'_> {
        self.record.id.text(Some(self.head()))
    }

    /// A borrowed look at the head, with the target as sent: which resource is meant, `path` and `query`
    /// tell.
    pub fn head(&self) -> HeadView<'_> {
        self.head.view()
    }

    /// The target that a handler is to answer for, not decoded: as sent, unless it was rewritten.
    pub fn target(&self) -> &[u8] {
        let rewritten = self.rewritten.as_deref();
        rewritten.unwrap_or_else(|| self.head().target())
    }

    /// The path of that target, not decoded; `*` in `OPTIONS *`.
    pub fn path(&self) -> &[u8] {
        match &self.rewritten {
            Some(target) => &target[..path_bytes(target)],
            None => self.head().path(),
        }
    }

    /// The query of that target without its `?`, not decoded.
    pub fn query(&self) -> Option<&[u8]> {
        match &self.rewritten {
            Some(target) => target.get(path_bytes(target) + 1..),
            None => self.head().query(),
        }
    }
}

/// As `Exchange::name`, for one that has not become an exchange.
pub(crate) fn name(id: Id, head: HeadView<'_>) -> String {
    let id = id.text(Some(head));
    let target = &head.target()[..path_bytes(head.target())];
    let [method, target, id] = [head.method(), target, &*id].map(String::from_utf8_lossy);
    format!("{method} {target} [id {id}]")
}

fn path_bytes(target: &[u8]) -> usize {
    memchr::memchr(b'?', target).unwrap_or(target.len())
}

/// A complete request body.
#[derive(Debug, Default)]
pub enum Body {
    /// No body was announced.
    #[default]
    Empty,
    /// At most `readahead` bytes.
    Memory(Vec<u8>),
    /// An unnamed file of `bytes` bytes; read it by offset, its own cursor means nothing.
    File {
        /// Open for reading and writing.
        file: BodyFile,
        /// Length of the body.
        bytes: u64,
    },
}

/// The unnamed file of a body. Whichever thread drops it, closing it waits for the disk on a thread that may.
#[derive(Debug)]
pub struct BodyFile {
    file: Option<File>,
    spoolers: Option<Spoolers>,
}

impl BodyFile {
    pub(crate) fn new(file: File, spoolers: &Spoolers) -> Self {
        Self {
            file: Some(file),
            spoolers: Some(spoolers.clone()),
        }
    }
}

/// A file that the dropping thread closes itself.
impl From<File> for BodyFile {
    fn from(file: File) -> Self {
        Self {
            file: Some(file),
            spoolers: None,
        }
    }
}

impl Deref for BodyFile {
    type Target = File;

    fn deref(&self) -> &File {
        self.file.as_ref().expect("only its drop takes it out")
    }
}

impl Drop for BodyFile {
    fn drop(&mut self) {
        if let (Some(file), Some(spoolers)) = (self.file.take(), &self.spoolers) {
            spoolers.discard(file);
        }
    }
}

impl Body {
    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Body::Empty => 0,
            Body::Memory(data) => data.len() as u64,
            Body::File { bytes, .. } => *bytes,
        }
    }
}

/// Both ends of a connection, as text because that is how applications and logs want them. Addresses are
/// short: they lie in the value itself, and ten thousand idle connections do not scatter those of the active
/// ones over the heap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ends {
    /// Client's address without port; `unix:` for a unix socket.
    pub peer_host: SmolStr,
    /// Client's port; empty for a unix socket.
    pub peer_port: SmolStr,
    /// The address that the client connected to; the path for a unix socket.
    pub local_host: SmolStr,
    /// The port that the client connected to; empty for a unix socket.
    pub local_port: SmolStr,
    /// `http` for now.
    pub scheme: &'static str,
    /// Index of the listening address, stable for the life of the process.
    pub listener: u16,
}

#[cfg(test)]
mod tests {
    use wire::{HeadIndex, HeadStep, Limits};

    use super::*;

    fn exchange(target: &str, rewritten: Option<&str>) -> Exchange {
        let head = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        let mut index = HeadIndex::new();
        let step = index.parse(head.as_bytes(), &mut 0, &Limits::default());
        assert!(matches!(step, Ok(HeadStep::Complete)), "{target}");
        let ends = Ends {
            peer_host: SmolStr::default(),
            peer_port: SmolStr::default(),
            local_host: SmolStr::default(),
            local_port: SmolStr::default(),
            scheme: "http",
            listener: 0,
        };
        Exchange {
            head: Arc::new(RequestHead::take(HeadView {
                bytes: head.as_bytes(),
                index: &index,
            })),
            rewritten: rewritten.map(|target| target.as_bytes().into()),
            body: Body::Empty,
            ends: Arc::new(ends),
            record: ExchangeRecord::new(Id::made(0, 0), 0, Stamp::ZERO),
        }
    }

    #[test]
    fn a_rewritten_target_takes_the_place_of_the_one_sent() {
        let check = |rewritten, path: &str, query: Option<&str>| {
            let exchange = exchange("http://h/sent?s", rewritten);
            assert_eq!(exchange.path(), path.as_bytes());
            assert_eq!(exchange.query(), query.map(str::as_bytes));
            assert_eq!(
                exchange.target(),
                rewritten.unwrap_or("http://h/sent?s").as_bytes()
            );
            assert_eq!(exchange.name(), "GET http://h/sent [id 0000000000000000]");
        };
        check(None, "/sent", Some("s"));
        check(Some("/new"), "/new", None);
        check(Some("/new?"), "/new", Some(""));
        check(Some("/new?a?b"), "/new", Some("a?b"));
    }
}
