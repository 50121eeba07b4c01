//! Connections of tests, which lie in memory and which no acceptor accepts.

use std::net::Ipv4Addr;
use std::sync::Arc;

use smol_str::ToSmolStr;

use super::handoff::{AcceptedConnection, AcceptedStream, Bound, ConnectionPermit};
use super::shared::Shared;
use crate::exchange::Ends;
use crate::protocol::Protocol;
use crate::transport::memory;

impl Shared {
    /// Gives the least loaded driver a connection that lies in memory and whose buffers hold `bytes_max` bytes each;
    /// `None` when the driver has ended.
    pub(crate) fn connect_in_memory(
        self: &Arc<Self>,
        protocol: Protocol,
        bytes_max: usize,
    ) -> Option<memory::Client> {
        let (end, client) = memory::pair(bytes_max);
        let local = Ipv4Addr::LOCALHOST;
        let ends = Ends {
            peer_host: local.to_smolstr(),
            peer_port: 0.to_smolstr(),
            local_host: local.to_smolstr(),
            local_port: 0.to_smolstr(),
            scheme: "http",
            listener: 0,
        };
        let new = AcceptedConnection {
            transport: AcceptedStream::Memory(end, protocol),
            ends: Arc::new(ends),
            trust: self.ids.trust(Some(local.into())),
            permit: ConnectionPermit::new(self, Bound::Passed)?,
            accepted: telemetry::now(),
        };
        new.give_to_least(0).then_some(client)
    }
}
