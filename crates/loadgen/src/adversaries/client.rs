//! One misbehaving client, its group, and what is counted of them.

use std::os::fd::OwnedFd;

use telemetry::Stamp;

use super::behaviour::Behaviour;
use crate::distribution::{Distribution, Summary};
use crate::outcome::BadClientCounts;

/// One misbehaving client.
#[derive(Debug, Default)]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum ClientState {
    #[default]
    Waiting,
    Connecting,
    Sending,
    Established,
}

impl ClientState {
    /// Whether there is an established connection.
    pub(super) fn is_open(self) -> bool {
        matches!(self, ClientState::Sending | ClientState::Established)
    }
}

/// A group's clients together.
#[derive(Debug)]
pub(super) struct ClientGroup {
    pub(super) behaviour: Behaviour,
    /// But for those that are open and how long they lived.
    pub(super) counts: BadClientCounts,
    pub(super) lived: Distribution,
}

impl ClientGroup {
    pub(super) fn of(behaviour: Behaviour) -> ClientGroup {
        let counts = BadClientCounts {
            name: behaviour.name(),
            ..BadClientCounts::default()
        };
        ClientGroup {
            behaviour,
            counts,
            lived: Distribution::new(),
        }
    }

    pub(super) fn count(self, open: usize) -> BadClientCounts {
        BadClientCounts {
            open,
            lived: (!self.lived.is_empty()).then(|| Summary::from(&self.lived)),
            ..self.counts
        }
    }
}
