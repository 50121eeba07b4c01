//! The idle connections of one driver to the servers of one group.

use telemetry::{Nanos, Stamp};

use super::connection::UpstreamConnection;

/// By server: the one used last is used next, so that the others grow old.
pub(super) struct IdleConnections {
    servers: Vec<Vec<UpstreamConnection>>,
    /// Of one server.
    len_max: usize,
    timeout: Nanos,
}

impl IdleConnections {
    pub(super) fn new(servers: usize, len_max: usize, timeout: Nanos) -> Self {
        Self {
            servers: (0..servers).map(|_| Vec::new()).collect(),
            len_max,
            timeout,
        }
    }

    /// A connection to this server that has not ended.
    pub(super) fn take(&mut self, server: usize) -> Option<UpstreamConnection> {
        let idle = &mut self.servers[server];
        while let Some(connection) = idle.pop() {
            if !connection.is_dead() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection for another exchange.
    pub(super) fn put(&mut self, server: usize, mut connection: UpstreamConnection, now: Stamp) {
        connection.idle_since = now;
        let idle = &mut self.servers[server];
        if idle.len() < self.len_max {
            idle.push(connection);
        }
    }

    /// Lets go of those that have ended, or have been idle for too long.
    pub(super) fn close_old(&mut self, now: Stamp) {
        for idle in &mut self.servers {
            idle.retain(|one| now.since(one.idle_since) < self.timeout && !one.has_news());
        }
    }
}
