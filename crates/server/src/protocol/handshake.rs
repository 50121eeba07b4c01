//! Handshake: TLS is agreed on before the first byte of a protocol.
//!
//! Takes a connection that was just accepted, gives it back with plaintext on it, or ends it. The time is bounded from
//! the accept on. The facts become those of the connection.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, ready};

use ::tls::{Alpn, HandshakeFacts, SessionFault};
use http::{FieldLines, ReplyFraming, ReplyPlan, Version};
use telemetry::{Nanos, Stamp};

use super::{Connection, LINGER_BYTES_MAX, Woken};
use crate::driver::LineFull;
use crate::exchange::{Ends, TlsFacts};
use crate::pool::Meter;
use crate::proxies::Notice;
use crate::transport::{HandshakeFault, TlsStream, Transport};
use telemetry::counters::{Doing, Timeout};

/// What a client gets that speaks HTTP without TLS.
const PLAIN_ANSWER: &str = "This address speaks HTTPS: the URL begins with https://\n";

/// Why there is no connection.
enum HandshakeEnd {
    Deadline,
    Cut,
    /// Too many others wait for their step.
    LineFull,
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
        let made = match Box::pin(self.receive_preface()).await {
            Ok(is_ready) => Box::pin(self.handshake(is_ready)).await,
            Err(end) => Err(end),
        };
        match made {
            // A certificate authority has seen what it came for (RFC 8737 section 3).
            Ok(facts) if facts.alpn == Some(Alpn::AcmeTls1) => None,
            Ok(facts) => {
                let stats = self.driver.stats();
                match facts.is_resumed {
                    true => stats.handshakes_resumed.add(),
                    false => stats.handshakes.add(),
                }
                let now = telemetry::now();
                let took = now.since(self.opened.accepted);
                self.opened.ends = Arc::new(Ends {
                    // Whatever a proxy has said in front of it.
                    scheme: "https",
                    tls: Some(Arc::new(TlsFacts::new(facts, now, took))),
                    ..(*self.opened.ends).clone()
                });
                self.now_idle(now, now.plus(self.driver.config().timeouts.head));
                Some(now)
            }
            Err(end) => {
                Box::pin(self.fail_handshake(end)).await;
                None
            }
        }
    }

    /// Receives a PROXY protocol header in front of the handshake, where there has to be one. Whether a step of the
    /// handshake can be made with what came behind it.
    async fn receive_preface(&mut self) -> Result<bool, HandshakeEnd> {
        while self.opened.awaits_proxy_header {
            let input = poll_fn(|context| {
                if let Some(end) = self.handshake_end() {
                    return Poll::Ready(Err(end));
                }
                let input = ready!(self.tls_stream().poll_preface(context));
                Poll::Ready(input.map_err(HandshakeEnd::Fault))
            });
            let input = input.await?;
            match self.take_proxy_header(&input) {
                Ok(None) => {}
                Ok(Some(bytes)) => {
                    let skipped = self.tls_stream().skip_preface(bytes);
                    return skipped.map_err(HandshakeEnd::Fault);
                }
                Err(_) => return Err(HandshakeEnd::Cut),
            }
        }
        Ok(false)
    }

    fn tls_stream(&self) -> &TlsStream {
        match &self.transport {
            Transport::Tls(stream) => stream,
            _ => unreachable!("only TLS begins with a handshake"),
        }
    }

    /// `is_ready`: a step can be made with what has come.
    async fn handshake(&self, mut is_ready: bool) -> Result<HandshakeFacts, HandshakeEnd> {
        let stream = self.tls_stream();
        loop {
            if !std::mem::take(&mut is_ready) {
                self.handshake_input(stream).await?;
            }
            self.wait_for_turn().await?;
            let began = telemetry::now();
            // Not the same on a busy machine. Its two system calls take 1 us, a step takes 100 us and more.
            let mut meter = Meter::start();
            let stepped = stream.step_handshake();
            let Nanos(cpu_ns) = meter.lap();
            let took = telemetry::now().since(began);
            self.driver.handshakes.spend(took);
            self.driver.stats().handshake_cpu_ns.add_many(cpu_ns);
            if let Some(facts) = stepped? {
                return Ok(facts);
            }
        }
    }

    /// Waits until a step may be made, within the time of the handshake.
    async fn wait_for_turn(&self) -> Result<(), HandshakeEnd> {
        let mut turn = pin!(self.driver.handshakes.enter());
        poll_fn(|context| {
            if let Some(end) = self.handshake_end() {
                return Poll::Ready(Err(end));
            }
            let entered = turn.as_mut().poll(context);
            entered.map_err(|LineFull| HandshakeEnd::LineFull)
        })
        .await
    }

    /// Why the handshake is not to be waited for any longer, if that is so.
    fn handshake_end(&self) -> Option<HandshakeEnd> {
        match self.take_fired() {
            Some(Woken::Deadline) => Some(HandshakeEnd::Deadline),
            Some(Woken::Cut) => Some(HandshakeEnd::Cut),
            _ => None,
        }
    }

    /// Waits until a step of the handshake can be made.
    async fn handshake_input(&self, stream: &TlsStream) -> Result<(), HandshakeEnd> {
        poll_fn(|context| {
            if let Some(end) = self.handshake_end() {
                return Poll::Ready(Err(end));
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
            HandshakeEnd::LineFull => stats.handshakes_refused.add(),
            HandshakeEnd::Fault(fault) => {
                stats.handshakes_failed.add();
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
        let stream = self.tls_stream();
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
