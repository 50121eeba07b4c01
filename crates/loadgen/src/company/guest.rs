//! One misbehaving client, its group, and what is counted of them.

use std::os::fd::OwnedFd;

use measure::Stamp;

use super::manner::Manner;
use crate::distribution::{Distribution, Summary};
use crate::outcome::CompanyCount;

/// What a party did.
#[derive(Debug, Default)]
pub(super) struct Counted {
    /// In the plan's order.
    pub(super) groups: Vec<CompanyCount>,
    /// How often the thread was woken.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "what company costs is counted by tests")
    )]
    pub(super) wakes: u64,
}

/// One misbehaving client.
#[derive(Debug)]
pub(super) struct Guest {
    /// Index of its group.
    pub(super) group: u32,
    pub(super) stage: Stage,
    /// `None` exactly while it is [`Stage::Waiting`].
    pub(super) socket: Option<OwnedFd>,
    /// When its connection was established.
    pub(super) since: Stamp,
    /// Bytes that it has sent.
    pub(super) sent: usize,
    /// Bytes that it may read now, with their fraction.
    pub(super) allowance: f64,
}

/// How far a guest is; see the picture in `round`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Waiting,
    Connecting,
    Sending,
    Seated,
}

/// A group's clients together.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) manner: Manner,
    pub(super) made: u64,
    pub(super) ended: u64,
    pub(super) read_bytes: u64,
    pub(super) lived: Distribution,
}

impl Guest {
    pub(super) fn of(group: u32) -> Guest {
        Guest {
            group,
            stage: Stage::Waiting,
            socket: None,
            since: Stamp::ZERO,
            sent: 0,
            allowance: 0.0,
        }
    }
}

impl Group {
    pub(super) fn of(manner: Manner) -> Group {
        Group {
            manner,
            made: 0,
            ended: 0,
            read_bytes: 0,
            lived: Distribution::new(),
        }
    }

    pub(super) fn count(&self, open: usize) -> CompanyCount {
        CompanyCount {
            name: self.manner.name(),
            open,
            made: self.made,
            ended: self.ended,
            lived: (!self.lived.is_empty()).then(|| Summary::from(&self.lived)),
            read_bytes: self.read_bytes,
        }
    }
}
