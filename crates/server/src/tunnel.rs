//! Tunnels: connections that have become another protocol's, on their way from the task that has asked an upstream to
//! the driver that has the client.
//!
//! A tunnel holds no slot of its upstream: what its server does for it is no request, and may last for days. It has a
//! place of its own among the tunnels of its group.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use telemetry::Nanos;

use crate::exchange::Exchange;
use crate::response::ResponseHead;
use crate::upstream::UnwatchedConnection;

/// A tunnel behind its handshake. Its driver has the exchange from here on.
pub(crate) struct Tunnel {
    pub(crate) exchange: Box<Exchange>,
    pub(crate) upstream: UnwatchedConnection,
    /// The head of the response, where the client's protocol writes it.
    pub(crate) head: Option<ResponseHead>,
    /// What the client gets first: the head where it is bytes, and what has come behind that of the upstream.
    pub(crate) first: Vec<u8>,
    /// How long nothing may move.
    pub(crate) idle: Nanos,
    pub(crate) permit: TunnelPermit,
}

/// The places of one group of upstreams, of one process.
pub(crate) struct TunnelPlaces {
    open: AtomicUsize,
    max: usize,
}

/// A place of one tunnel, from the request for it to its end.
pub(crate) struct TunnelPermit(Arc<TunnelPlaces>);

impl TunnelPlaces {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            open: AtomicUsize::new(0),
            max,
        })
    }

    /// A place, if one is free.
    pub(crate) fn take(self: &Arc<Self>) -> Option<TunnelPermit> {
        let more = |open: usize| (open < self.max).then_some(open + 1);
        let taken = (self.open).fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| TunnelPermit(Arc::clone(self)))
    }
}

impl Drop for TunnelPermit {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_tunnels_than_places() {
        let places = TunnelPlaces::new(2);
        let first = places.take();
        let second = places.take();
        assert!(first.is_some() && second.is_some() && places.take().is_none());
        drop(first);
        let third = places.take();
        assert!(third.is_some() && places.take().is_none());
    }
}
