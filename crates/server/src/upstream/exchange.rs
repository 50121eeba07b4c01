//! One exchange at an upstream: its tries, one after the other, until a response has come or may come no more.
//!
//! A request is sent again only where nothing can be done twice: it never left, or it is idempotent (RFC 9110 section
//! 9.2.2) and no byte of a response has come. What has reached the client is never replaced.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use config::typed::ServerAddress;
use http::Method;
use http::upstream::{ForwardingChain, ForwardingFields, HostField, UpstreamRequest};
use tokio::time::timeout;

use super::DriverUpstream;
use super::connection::UpstreamConnection;
use super::fault::{UpstreamFault, of_connect};
use super::group::UpstreamSlot;
use super::relay::{Relay, Relayed};
use super::request::RequestBody;
use super::run::UpstreamRun;
use crate::driver::Driver;
use crate::exchange::Exchange;
use crate::pool::Assignment;

/// A try that gave no whole response.
pub(super) struct FailedTry {
    pub(super) fault: UpstreamFault,
    /// Bytes of the request that have left, as far as is known.
    pub(super) sent_bytes: u64,
    /// A byte of a response has come.
    pub(super) has_response: bool,
}

/// Has an upstream answer an exchange. The response is written, but for its end.
pub(super) async fn run(
    driver: &Rc<Driver>,
    own: &DriverUpstream,
    running: &UpstreamRun,
    assignment: &mut Assignment,
    slot: &mut UpstreamSlot,
) -> Result<(), UpstreamFault> {
    let body = RequestBody::take(&mut assignment.exchange);
    let settings = &own.group.settings;
    let mut tried = Vec::new();
    let mut retries_left = settings.retries;
    // A connection that waits may have ended by the time that a request comes to it; a new one has not.
    let mut fresh = false;
    loop {
        let member = slot.member;
        let idle = match fresh {
            true => None,
            false => own.idle.borrow_mut().take(member),
        };
        let is_reused = idle.is_some();
        let failed = match connect(own, member, idle).await {
            Ok(connection) => {
                let head = request_head(own, member, &body, assignment)?;
                let relay = Relay::new(driver, own, running, connection, head, &body, assignment);
                match relay.run().await {
                    Ok(Relayed::Kept(connection)) => {
                        let mut idle = own.idle.borrow_mut();
                        idle.put(member, connection, telemetry::now());
                        return Ok(());
                    }
                    Ok(Relayed::Ended) => return Ok(()),
                    Err(failed) => failed,
                }
            }
            Err(fault) => FailedTry {
                fault,
                sent_bytes: 0,
                has_response: false,
            },
        };
        if retries_left == 0 || !may_repeat(&failed, &assignment.exchange, &body) {
            return Err(failed.fault);
        }
        retries_left -= 1;
        if is_reused {
            fresh = true;
            continue;
        }
        tried.push(member);
        let Some(other) = own.group.take_slot(telemetry::now(), &tried) else {
            return Err(failed.fault);
        };
        *slot = other;
    }
}

/// The head of the request as this server gets it.
fn request_head(
    own: &DriverUpstream,
    member: usize,
    body: &RequestBody,
    assignment: &Assignment,
) -> Result<Vec<u8>, UpstreamFault> {
    let exchange = &*assignment.exchange;
    let (head, ends) = (exchange.head(), &*exchange.ends);
    let upstream = own.group.server(member).address.to_string();
    let host = ends.host.as_deref().map_or(&b""[..], str::as_bytes);
    let host = match host.is_empty() {
        true => head.authority().unwrap_or_default(),
        false => host,
    };
    let request = UpstreamRequest {
        head,
        rewritten: exchange.rewritten.as_deref(),
        host: HostField::Client {
            otherwise: upstream.as_bytes(),
        },
        framing: body.framing(head.index.body),
        forwarding: ForwardingFields {
            chain: match ends.is_trusted {
                true => ForwardingChain::Appended,
                false => ForwardingChain::Replaced,
            },
            client: ends.client_host.as_bytes(),
            peer: ends.peer_host.as_bytes(),
            scheme: ends.scheme.as_bytes(),
            host,
            prefix: ends.prefix.as_bytes(),
        },
        set: &[],
        removed: &[],
        upgrade: None,
    };
    let mut written = Vec::new();
    request
        .write(&mut written)
        .map_err(UpstreamFault::Unwritable)?;
    Ok(written)
}

/// Whether a request may be sent again: nothing that it asks for can be done twice.
fn may_repeat(failed: &FailedTry, exchange: &Exchange, body: &RequestBody) -> bool {
    if failed.has_response || failed.fault == UpstreamFault::Body {
        return false;
    }
    if failed.sent_bytes == 0 {
        return true;
    }
    let is_whole = !matches!(body, RequestBody::Stream { .. });
    let is_lost = failed.fault == UpstreamFault::Closed;
    is_lost && is_whole && is_idempotent(exchange)
}

/// RFC 9110 section 9.2.2; `Idempotency-Key` says it of other requests.
fn is_idempotent(exchange: &Exchange) -> bool {
    let head = exchange.head();
    matches!(
        head.index.method,
        Method::Get | Method::Head | Method::Options | Method::Trace | Method::Put | Method::Delete
    ) || head.header("idempotency-key").is_some()
}

/// A connection to a server: the idle one, or a new one.
async fn connect(
    own: &DriverUpstream,
    member: usize,
    idle: Option<UpstreamConnection>,
) -> Result<UpstreamConnection, UpstreamFault> {
    if let Some(connection) = idle {
        return Ok(connection);
    }
    let longest = Duration::from_nanos(own.group.settings.connect_timeout.0);
    let connected = timeout(longest, connect_to(&own.group.server(member).address)).await;
    match connected {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => Err(of_connect(&error)),
        Err(_) => Err(UpstreamFault::ConnectTimeout),
    }
}

async fn connect_to(address: &ServerAddress) -> io::Result<UpstreamConnection> {
    match address {
        ServerAddress::Unix(path) => UpstreamConnection::unix(path).await,
        ServerAddress::Tcp { host, port } => {
            let ip = host.parse().map_err(io::Error::other)?;
            UpstreamConnection::tcp(std::net::SocketAddr::new(ip, *port)).await
        }
    }
}
