//! What proxies in front say of a connection and of its requests: PROXY protocol headers, the ends of a request, the
//! places of clients that a proxy names.
//!
//! Takes bytes and heads of one connection; asks `proxies` whom to believe. Tells the error log of what is not
//! believed, at most once in a while.

use std::sync::Arc;

use http::{HeadView, ProxiedEnds, ProxyHeader, ProxyHeaderFault};
use logging::Level;
use telemetry::Stamp;

use super::Connection;
use crate::exchange::{Ends, Permit, host_and_port};
use crate::proxies::{Notice, Peer};
use crate::refusal::Refusal;

/// A connection that does not begin as it has to.
pub(super) struct NoProxyHeader {
    /// What its client is told; `None`: nothing, because nobody who spoke is known.
    pub(super) refusal: Option<Refusal>,
}

impl Connection {
    /// Reads the PROXY protocol header in front of the first request, where there has to be one. Gives its bytes;
    /// `None`: more have to come.
    pub(super) fn take_proxy_header(
        &mut self,
        input: &[u8],
    ) -> Result<Option<usize>, NoProxyHeader> {
        if !self.opened.awaits_proxy_header {
            return Ok(Some(0));
        }
        match http::proxy_header(input) {
            Ok(ProxyHeader::Partial) => Ok(None),
            Ok(ProxyHeader::Complete { bytes, ends }) => {
                self.opened.awaits_proxy_header = false;
                if let Some(ends) = ends {
                    self.set_ends(&ends)?;
                }
                Ok(Some(bytes))
            }
            Err(fault) => {
                self.notice(Notice::FaultyProxyHeader, || {
                    let (peer, fault) = (self.peer_name(), fault.text());
                    format!("{peer} is one of `proxy_protocol_from`, but {fault}: closed")
                });
                self.driver.stats().errors.add();
                Err(NoProxyHeader { refusal: None })
            }
        }
    }

    /// The connection is that of the client which its header names; that client is trusted as if it had connected.
    fn set_ends(&mut self, said: &ProxiedEnds) -> Result<(), NoProxyHeader> {
        let shared = &self.driver.shared;
        let (client_host, client_port) = host_and_port(said.client);
        let (local_host, local_port) = host_and_port(said.local);
        let ip = said.client.ip();
        let is_trusted = shared.proxies.trust(Peer::Ip(ip));
        self.opened.ends = Arc::new(Ends {
            client_host,
            client_port,
            local_host,
            local_port,
            is_trusted,
            scheme: if said.is_tls { "https" } else { "http" },
            ..(*self.opened.ends).clone()
        });
        if !is_trusted && self.opened.permit.count_client(ip).is_err() {
            self.driver.stats().crowded_clients.add();
            let refusal = Some(Refusal::CLIENT_CROWDED);
            return Err(NoProxyHeader { refusal });
        }
        Ok(())
    }

    /// Both ends of a request: those of its connection, unless a trusted proxy describes others.
    #[inline]
    pub(super) fn ends_of(&self, head: HeadView<'_>) -> Arc<Ends> {
        let ends = &self.opened.ends;
        let mut last = self.last_client.borrow_mut();
        let (ends, fault) = self.driver.shared.proxies.ends_of(head, ends, &mut last);
        if let Some(fault) = fault {
            self.notice(Notice::FaultyChain, || {
                let (peer, fault) = (self.peer_name(), fault.text());
                format!("forwarded headers of {peer}: {fault}; what is left of it is not believed")
            });
        }
        ends
    }

    /// A place for one more request of a client that a proxy names. Tells the error log of clients that send
    /// forwarding headers and are no proxies.
    #[inline]
    pub(super) fn count_request(
        &self,
        head: HeadView<'_>,
        ends: &Ends,
        now: Stamp,
    ) -> Result<Option<Permit>, Refusal> {
        let shared = &self.driver.shared;
        if !ends.is_trusted {
            if shared.proxies.is_notable_stranger(head, now) {
                self.tell_of_stranger();
            }
            return Ok(None);
        }
        // The place of the request before, if this driver has answered it, must be free by now.
        let is_own = || ends.client_host == self.opened.ends.client_host;
        if !shared.client_limit.is_on() || is_own() {
            return Ok(None);
        }
        let Ok(ip) = ends.client_host.parse() else {
            return Ok(None);
        };
        shared
            .client_limit
            .acquire(ip)
            .map(Some)
            .map_err(|exceeded| {
                let (key, count) = (exceeded.key, exceeded.count);
                self.notice(Notice::Crowded, || {
                    format!("client {key} has {count} requests under way: more are refused")
                });
                self.driver.stats().crowded_clients.add();
                Refusal::CLIENT_CROWDED
            })
    }

    /// A refused beginning that is a PROXY protocol header of a peer that may not send one.
    pub(super) fn tell_of_proxy_header(&self, bytes: &[u8]) {
        let is_header = !matches!(
            http::proxy_header(bytes),
            Err(ProxyHeaderFault::Absent) | Ok(ProxyHeader::Partial)
        );
        if is_header {
            self.notice(Notice::StrangerSpeaksProxy, || {
                format!(
                    "{} sends a PROXY protocol header and gets 400; if it is your proxy, add it to `proxy_protocol_from`",
                    self.peer_name()
                )
            });
        }
    }

    fn tell_of_stranger(&self) {
        let setting = match self.opened.peer {
            Peer::Ip(_) => "trusted_proxies",
            _ => "trusted_proxy_groups",
        };
        let text = format!(
            "{} sends X-Forwarded headers, which are not believed; if it is your proxy, add it to `{setting}`",
            self.peer_name()
        );
        self.driver.shared.log.error(Level::Warning, &text);
    }

    /// A connection of HTTP/2 is closed because of what its client sends.
    pub(super) fn tell_of_odd_work(&self, kind: &str) {
        self.notice(Notice::OddWork, || {
            let peer = self.peer_name();
            format!("{peer} makes HTTP/2 work that serves no request (at last {kind}): closed")
        });
    }

    /// The text is made only where the log is to hear of it: a peer can cause it with each request.
    pub(super) fn notice(&self, notice: Notice, text: impl FnOnce() -> String) {
        let shared = &self.driver.shared;
        if shared.proxies.is_due(notice, telemetry::now()) {
            shared.log.error(Level::Warning, &text());
        }
    }

    /// The other end of the connection, for the error log.
    pub(super) fn peer_name(&self) -> String {
        match self.opened.peer {
            Peer::Ip(ip) => ip.to_canonical().to_string(),
            Peer::Process { user, group } => {
                format!("a process of user {user} and group {group} on a unix socket")
            }
            Peer::Unknown => "a process on a unix socket".to_owned(),
        }
    }
}
