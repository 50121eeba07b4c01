//! The idle connections of one driver to the servers of one group.

use std::sync::Arc;

use telemetry::{Nanos, Stamp};

use super::connection::UpstreamConnection;
use super::group::Endpoint;

/// By address: the one used last is used next, so that the others grow old.
pub(super) struct IdleConnections {
    endpoints: Vec<(Arc<Endpoint>, Vec<UpstreamConnection>)>,
    /// Of one address.
    len_max: usize,
    timeout: Nanos,
}

impl IdleConnections {
    pub(super) fn new(len_max: usize, timeout: Nanos) -> Self {
        Self {
            endpoints: Vec::new(),
            len_max,
            timeout,
        }
    }

    /// A connection to this address that has not been idle for too long and has not ended, as far as the runtime has
    /// heard: what has ended since the driver slept last may be met by a request that may be sent once more
    /// (`may_meet_end`), and not by another one.
    pub(super) fn take(
        &mut self,
        endpoint: &Arc<Endpoint>,
        now: Stamp,
        may_meet_end: bool,
    ) -> Option<UpstreamConnection> {
        let timeout = self.timeout;
        let idle = self.of(endpoint)?;
        while let Some(mut connection) = idle.pop() {
            // The looks of `close_old` are a quarter of a second apart, and later where the driver is held up.
            let is_old = now.since(connection.idle_since) >= timeout;
            let has_ended = match may_meet_end {
                true => connection.has_news(),
                false => connection.is_dead(),
            };
            if !is_old && !has_ended {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection for another exchange.
    pub(super) fn put(
        &mut self,
        endpoint: Arc<Endpoint>,
        mut connection: UpstreamConnection,
        now: Stamp,
    ) {
        connection.idle_since = now;
        let len_max = self.len_max;
        match self.of(&endpoint) {
            Some(idle) if idle.len() < len_max => idle.push(connection),
            Some(_) => {}
            None => self.endpoints.push((endpoint, vec![connection])),
        }
    }

    /// Few addresses: a look at each is quicker than a table.
    fn of(&mut self, endpoint: &Arc<Endpoint>) -> Option<&mut Vec<UpstreamConnection>> {
        let mut endpoints = self.endpoints.iter_mut();
        let found = endpoints.find(|(known, _)| Arc::ptr_eq(known, endpoint));
        found.map(|(_, idle)| idle)
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
    }

    /// Lets go of those that have ended, or have been idle for too long.
    pub(super) fn close_old(&mut self, now: Stamp) {
        for (_, idle) in &mut self.endpoints {
            idle.retain_mut(|one| now.since(one.idle_since) < self.timeout && !one.has_news());
        }
        self.endpoints.retain(|(_, idle)| !idle.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tokio::net::UnixListener;

    use super::super::group::EndpointAddress;
    use super::*;

    #[test]
    fn a_connection_that_was_idle_for_too_long_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let endpoint = Arc::new(Endpoint {
            server: 0,
            at: EndpointAddress::Unix(PathBuf::from("test")),
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = UnixListener::bind(&path).unwrap();
            let mut idle = IdleConnections::new(4, Nanos::from_secs(2));
            let put = Stamp(1_000_000_000);
            for (secs, expect) in [(1, true), (2, false), (3_600, false)] {
                let connection = UpstreamConnection::unix(&path).await.unwrap();
                let _server = listener.accept().await.unwrap();
                idle.put(Arc::clone(&endpoint), connection, put);
                let now = put.plus(Nanos::from_secs(secs));
                let found = idle.take(&endpoint, now, true);
                assert_eq!(found.is_some(), expect, "after {secs} s");
            }
        });
    }
}
