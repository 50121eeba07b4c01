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

    /// A connection to this address that has not ended, as far as the runtime has heard: what has ended since the driver
    /// slept last may be met by a request that may be sent once more (`may_meet_end`), and not by another one.
    pub(super) fn take(
        &mut self,
        endpoint: &Arc<Endpoint>,
        may_meet_end: bool,
    ) -> Option<UpstreamConnection> {
        let idle = self.of(endpoint)?;
        while let Some(mut connection) = idle.pop() {
            let has_ended = match may_meet_end {
                true => connection.has_news(),
                false => connection.is_dead(),
            };
            if !has_ended {
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

    /// Lets go of those that have ended, or have been idle for too long.
    pub(super) fn close_old(&mut self, now: Stamp) {
        for (_, idle) in &mut self.endpoints {
            idle.retain_mut(|one| now.since(one.idle_since) < self.timeout && !one.has_news());
        }
        self.endpoints.retain(|(_, idle)| !idle.is_empty());
    }
}
