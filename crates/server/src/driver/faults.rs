//! Connections of tests, which lie in memory and which no acceptor accepts.

use std::net::Ipv4Addr;
use std::sync::Arc;

use smol_str::{SmolStr, ToSmolStr};

use super::handoff::{AcceptedConnection, Bound, ConnectionPermit, Opened};
use super::shared::Shared;
use crate::exchange::Ends;
use crate::proxies::Peer;
use crate::transport::AcceptedStream;
use crate::transport::memory;

impl Shared {
    /// Gives the least loaded driver a connection that lies in memory and whose buffers hold `bytes_max` bytes each;
    /// `None` when the driver has ended.
    pub(crate) fn connect_in_memory(self: &Arc<Self>, bytes_max: usize) -> Option<memory::Client> {
        let (end, client) = memory::pair(bytes_max);
        let local = Ipv4Addr::LOCALHOST;
        let peer = Peer::Ip(local.into());
        let ends = Ends {
            client_host: local.to_smolstr(),
            client_port: 0.to_smolstr(),
            peer_host: local.to_smolstr(),
            is_trusted: self.proxies.trust(peer),
            local_host: local.to_smolstr(),
            local_port: 0.to_smolstr(),
            host: None,
            prefix: SmolStr::default(),
            scheme: "http",
            tls: None,
            listener: 0,
        };
        let opened = Opened {
            ends: Arc::new(ends),
            peer,
            awaits_proxy_header: false,
            permit: ConnectionPermit::new(self, Bound::Passed)?,
            accepted: telemetry::now(),
        };
        let stream = AcceptedStream::Memory(end);
        let new = AcceptedConnection { stream, opened };
        new.give_to_least(0).then_some(client)
    }
}
