//! Connections of tests, which lie in memory and which no acceptor accepts.

use std::net::Ipv4Addr;
use std::sync::Arc;

use smol_str::ToSmolStr;

use super::handoff::{AcceptedConnection, Bound, ConnectionPermit, Opened};
use super::shared::Shared;
use crate::exchange::Ends;
use crate::protocol::Protocol;
use crate::transport::{AcceptedStream, memory};

impl Shared {
    /// Gives the least loaded driver a connection that lies in memory and whose buffers hold `bytes_max` bytes each;
    /// `None` when the driver has ended.
    pub(crate) fn connect_in_memory(
        self: &Arc<Self>,
        protocol: Protocol,
        bytes_max: usize,
    ) -> Option<memory::Client> {
        let (end, client) = memory::pair(protocol, bytes_max);
        let local = Ipv4Addr::LOCALHOST;
        let ends = Ends {
            peer_host: local.to_smolstr(),
            peer_port: 0.to_smolstr(),
            local_host: local.to_smolstr(),
            local_port: 0.to_smolstr(),
            scheme: "http",
            listener: 0,
        };
        let opened = Opened {
            ends: Arc::new(ends),
            trusts_ids: self.ids.are_trusted_of(Some(local.into())),
            permit: ConnectionPermit::new(self, Bound::Passed)?,
            accepted: telemetry::now(),
        };
        let stream = AcceptedStream::Memory(end);
        let new = AcceptedConnection { stream, opened };
        new.give_to_least(0).then_some(client)
    }
}
