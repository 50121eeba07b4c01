//! Handshake: TLS is agreed on before the first byte of a protocol.
//!
//! Takes a connection that was just accepted, gives it back with plaintext on it, or ends it. The time is bounded from
//! the accept on. The facts become those of the connection.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, ready};

use ::tls::SessionFault;
use http::{FieldLines, ReplyFraming, ReplyPlan, Version};
use telemetry::Stamp;

use super::{Connection, LINGER_BYTES_MAX, Woken};
use crate::exchange::Ends;
use crate::proxies::Notice;
use crate::transport::{HandshakeFault, TlsStream, Transport};
use ipc::stats::{Doing, Timeout};

/// What a client gets that speaks HTTP without TLS.
const PLAIN_ANSWER: &str = "This address speaks HTTPS: the URL begins with https://\n";

/// Why there is no connection.
enum HandshakeEnd {
    Deadline,
    Cut,
    Fault(HandshakeFault),
}

impl Connection {
    /// Makes the handshake, where there has to be one. Gives since when the client may send requests; `None`: there is
    /// no connection.
    pub(super) async fn establish(&mut self) -> Option<Stamp> {
        if !self.transport.is_handshaking() {
            return Some(self.opened.accepted);
        }
        let timeout = self.driver.config().timeouts.tls_handshake;
        self.now_doing(Doing::Handshaking, self.opened.accepted.plus(timeout));
        match Box::pin(self.handshake()).await {
            Ok(()) => {
                self.opened.ends = Arc::new(Ends {
                    tls: self.transport.handshake_facts(),
                    ..(*self.opened.ends).clone()
                });
                let now = telemetry::now();
                self.now_idle(now, now.plus(self.driver.config().timeouts.head));
                Some(now)
            }
            Err(end) => {
                Box::pin(self.fail_handshake(end)).await;
                None
            }
        }
    }

    async fn handshake(&self) -> Result<(), HandshakeEnd> {
        let Transport::Tls(stream) = &self.transport else {
            return Ok(());
        };
        loop {
            self.handshake_input(stream).await?;
            if stream.step_handshake()? {
                return Ok(());
            }
        }
    }

    /// Waits until a step of the handshake can be made.
    async fn handshake_input(&self, stream: &TlsStream) -> Result<(), HandshakeEnd> {
        poll_fn(|context| {
            match self.take_fired() {
                Some(Woken::Deadline) => return Poll::Ready(Err(HandshakeEnd::Deadline)),
                Some(Woken::Cut) => return Poll::Ready(Err(HandshakeEnd::Cut)),
                _ => {}
            }
            let input = ready!(stream.poll_handshake_input(context));
            Poll::Ready(input.map_err(HandshakeEnd::Fault))
        })
        .await
    }

    /// Counts a handshake that has failed, and tells the error log.
    async fn fail_handshake(&self, end: HandshakeEnd) {
        let stats = self.driver.stats();
        match end {
            HandshakeEnd::Cut => {}
            HandshakeEnd::Deadline => stats.timed_out(Timeout::Handshake),
            HandshakeEnd::Fault(fault) => {
                stats.errors.add();
                match fault {
                    HandshakeFault::Gone => {}
                    HandshakeFault::Tls(fault) => self.tell_of_handshake(&fault),
                    HandshakeFault::NotTls(first) => {
                        self.notice(Notice::PlainOnTls, || {
                            let peer = self.peer_name();
                            format!("{peer} speaks no TLS on an address that does")
                        });
                        // A method begins with a letter (RFC 9110 section 9.1); nothing else would understand.
                        if first.is_ascii_alphabetic() {
                            self.answer_plainly().await;
                        }
                    }
                }
            }
        }
    }

    fn tell_of_handshake(&self, fault: &SessionFault) {
        self.notice(Notice::FailedHandshake, || {
            let name = match &fault.server_name {
                Some(name) => format!(" for `{name}`"),
                None => String::new(),
            };
            let peer = self.peer_name();
            format!("TLS handshake with {peer}{name} failed: {fault}")
        });
    }

    /// Answers a client that speaks HTTP without TLS, and gives it time to read that.
    async fn answer_plainly(&self) {
        let Transport::Tls(stream) = &self.transport else {
            return;
        };
        stream.answer_plainly(&plain_answer());
        let linger = self.driver.config().timeouts.linger;
        self.now_doing(Doing::Closing, telemetry::now().plus(linger));
        let mut bytes = 0;
        while bytes < LINGER_BYTES_MAX {
            let more = poll_fn(|context| match self.take_fired() {
                Some(Woken::Deadline | Woken::Cut) => Poll::Ready(0),
                _ => stream.poll_discard(context).map(|read| read.unwrap_or(0)),
            });
            match more.await {
                0 => return,
                more => bytes += more,
            }
        }
    }

    /// Whether a beginning that is no request is that of a TLS connection, which the error log hears of: no answer would
    /// be understood.
    pub(super) fn is_tls(&self, bytes: &[u8]) -> bool {
        let is_tls = self.opened.ends.tls.is_none() && ::tls::is_client_hello(bytes);
        if is_tls {
            self.driver.stats().errors.add();
            self.notice(Notice::TlsOnPlain, || {
                format!(
                    "{} speaks TLS on an address without TLS: closed",
                    self.peer_name()
                )
            });
        }
        is_tls
    }
}

impl From<HandshakeFault> for HandshakeEnd {
    fn from(fault: HandshakeFault) -> Self {
        Self::Fault(fault)
    }
}

/// 400, whole.
fn plain_answer() -> Vec<u8> {
    let mut fields = FieldLines::new();
    fields.push(b"Content-Type", b"text/plain; charset=utf-8");
    fields.push_decimal(b"Content-Length", PLAIN_ANSWER.len() as u64);
    let plan = ReplyPlan {
        framing: ReplyFraming::Length(PLAIN_ANSWER.len() as u64),
        keep_alive: false,
    };
    let mut out = Vec::new();
    http::write_status_line(&mut out, 400);
    out.extend_from_slice(fields.as_bytes());
    http::end_head(&mut out, &plan, Version::Http11, None);
    out.extend_from_slice(PLAIN_ANSWER.as_bytes());
    out
}
