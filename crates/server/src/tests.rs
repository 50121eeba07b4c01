//! What tests of several modules have in common: heads, and exchanges made of them.

use std::sync::Arc;

use config::typed::Spool;
use http::{HeadIndex, HeadStep, HeadView, Limits, RequestHead};
use telemetry::Stamp;

use crate::blocking_pool::BlockingPool;
use crate::exchange::{Body, Ends, Exchange, ExchangeRecord, Id};
use crate::response::ReplyMemory;
use crate::spool::SpoolDir;

/// A head that is complete.
pub(crate) fn head(text: &str) -> RequestHead {
    let bytes = text.as_bytes();
    let mut index = HeadIndex::new();
    let step = index.parse(bytes, &mut 0, &Limits::default());
    assert_eq!(step, Ok(HeadStep::Complete), "{text:?}");
    let index = &index;
    RequestHead::take(HeadView { bytes, index })
}

/// `METHOD HOST/PATH`, with a header behind a space.
pub(crate) fn with_head<T>(request: &str, f: impl FnOnce(HeadView<'_>) -> T) -> T {
    let mut words = request.splitn(3, ' ');
    let method = words.next().unwrap();
    let url = words.next().unwrap();
    let (host, path) = url.split_at(url.find('/').unwrap());
    let header = words
        .next()
        .map_or(String::new(), |line| format!("{line}\r\n"));
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{header}\r\n");
    f(self::head(&head).view())
}

/// The ends of a connection with `peer_host`.
pub(crate) fn ends(peer_host: &str) -> Ends {
    Ends {
        client_host: peer_host.into(),
        client_port: "1".into(),
        peer_host: peer_host.into(),
        is_trusted: false,
        local_host: "127.0.0.1".into(),
        local_port: "8000".into(),
        host: None,
        prefix: "".into(),
        scheme: "http",
        tls: None,
        listener: 0,
    }
}

/// An exchange without a body, with the id 0.
pub(crate) fn exchange(text: &str) -> Exchange {
    Exchange {
        head: Arc::new(head(text)),
        rewritten: None,
        body: Body::Empty,
        streamed: None,
        ends: Arc::new(ends("")),
        permit: None,
        record: ExchangeRecord::new(Id::made(0, 0), 0, Stamp::ZERO),
    }
}

/// The usual folder for unnamed files.
pub(crate) fn spool_dir() -> SpoolDir {
    SpoolDir::new(&Spool::default().dir, Box::leak(Box::default()))
}

/// Memory for 100 bytes of replies.
pub(crate) fn memory() -> Arc<ReplyMemory> {
    let threads = BlockingPool::start("test-spool", 0).unwrap();
    ReplyMemory::new(100, spool_dir(), threads)
}
