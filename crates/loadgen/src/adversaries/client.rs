//! One misbehaving client, its group, and what is counted of them.

use std::os::fd::OwnedFd;

use telemetry::Stamp;

use super::behaviour::Behaviour;
use crate::distribution::{Distribution, Summary};
use crate::outcome::BadClientCounts;

/// What the clients did.
#[derive(Debug, Default)]
pub(super) struct AdversaryCounts {
    /// In the plan's order.
    pub(super) groups: Vec<BadClientCounts>,
    /// How often the thread was woken.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "the cost of the thread is counted by tests")
    )]
    pub(super) wakes: u64,
}

/// One misbehaving client.
#[derive(Debug)]
pub(super) struct BadClient {
    /// Index of its group.
    pub(super) group: u32,
    pub(super) state: ClientState,
    /// `None` exactly while it is [`ClientState::Waiting`].
    pub(super) socket: Option<OwnedFd>,
    /// When its connection was established.
    pub(super) since: Stamp,
    /// Bytes that it has sent.
    pub(super) sent: usize,
    /// Bytes that it may read now, with their fraction.
    pub(super) allowance: f64,
}

/// How far a client is; see the picture in `event_loop`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ClientState {
    Waiting,
    Connecting,
    Sending,
    Established,
}

/// A group's clients together.
#[derive(Debug)]
pub(super) struct ClientGroup {
    pub(super) behaviour: Behaviour,
    pub(super) made: u64,
    pub(super) ended: u64,
    pub(super) read_bytes: u64,
    pub(super) lived: Distribution,
}

impl BadClient {
    pub(super) fn of(group: u32) -> BadClient {
        BadClient {
            group,
            state: ClientState::Waiting,
            socket: None,
            since: Stamp::ZERO,
            sent: 0,
            allowance: 0.0,
        }
    }
}

impl ClientGroup {
    pub(super) fn of(behaviour: Behaviour) -> ClientGroup {
        ClientGroup {
            behaviour,
            made: 0,
            ended: 0,
            read_bytes: 0,
            lived: Distribution::new(),
        }
    }

    pub(super) fn count(&self, open: usize) -> BadClientCounts {
        BadClientCounts {
            name: self.behaviour.name(),
            open,
            made: self.made,
            ended: self.ended,
            lived: (!self.lived.is_empty()).then(|| Summary::from(&self.lived)),
            read_bytes: self.read_bytes,
        }
    }
}
