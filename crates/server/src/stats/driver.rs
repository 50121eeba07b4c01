//! One driver's counters, and what the words in them mean.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::counted::{Connections, DriverCounted, Timeouts};

/// One driver's counters. On cache lines of their own: another driver's are next to them.
#[derive(Default)]
#[repr(C, align(128))]
pub(crate) struct DriverStats {
    /// Connections accepted.
    pub(crate) accepted: Counter,
    /// Complete requests received.
    pub(crate) received: Counter,
    /// Requests whose body went to a file.
    pub(crate) spooled: Counter,
    /// Heads that arrived in more than one piece.
    pub(crate) partial: Counter,
    /// Requests refused for breaking the protocol or a limit, and connections that failed.
    pub(crate) errors: Counter,
    /// Connections refused because their client had too many.
    pub(crate) crowded_clients: Counter,
    /// Connections accepted and given to another driver of the process.
    pub(crate) handed_over: Counter,
    /// Connections that another driver of the process has accepted.
    pub(crate) taken_over: Counter,
    /// Connections accepted from the socket of a driver that did not come to it.
    pub(crate) rescued: Counter,
    /// Connections that arrived on the processor that the driver is pinned to; only where they are steered so.
    pub(crate) local_cpu: Counter,
    /// Connections that a deadline ended, by `Timeout`.
    timeouts: [Counter; Timeout::COUNT],
    /// The last heartbeat that the driver has answered.
    pub(crate) beat: AtomicU64,
    /// Open connections; at any time exact.
    pub(crate) open: AtomicU32,
    /// What the connections are doing, by `Doing`; a few hundred milliseconds old.
    pub(crate) doing: [AtomicU32; Doing::COUNT],
}

/// A counter with a single writing thread: no locked instruction is needed to add.
#[derive(Default)]
#[repr(transparent)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds one. Only the owning thread may call it.
    pub(crate) fn add(&self) {
        self.0
            .store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Adds one from whichever thread. For a counter that nobody adds to in the other way.
    pub(crate) fn add_from_any(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Which deadline ended a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timeout {
    /// Its head was not complete in time.
    Head,
    /// Its body came too slowly.
    Body,
    /// It took its reply too slowly.
    Send,
    /// It was idle for too long.
    Idle,
    /// It was idle, and others needed its place before its time was up.
    Crowded,
    /// Its response was cut: `reply_memory_max` was used up, and its client had taken nothing for longest.
    Memory,
}

impl Timeout {
    const COUNT: usize = 6;
}

/// What a connection is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Doing {
    /// Idle between requests, or new and silent.
    Idle,
    /// Receiving a head or a body into memory.
    Reading,
    /// Receiving a body into a file.
    Spooling,
    /// Its exchange waits for a pool thread or runs on one.
    Away,
    /// Its reply is being sent by the driver.
    Sending,
    /// Its last bytes are read and thrown away before it closes.
    Closing,
}

impl Doing {
    pub(crate) const COUNT: usize = 6;
}

impl DriverStats {
    pub(crate) fn timed_out(&self, timeout: Timeout) {
        self.timeouts[timeout as usize].add();
    }

    pub(super) fn counted(&self, index: usize) -> DriverCounted {
        DriverCounted {
            driver: index,
            accepted: self.accepted.count(),
            received: self.received.count(),
            spooled: self.spooled.count(),
            partial: self.partial.count(),
            errors: self.errors.count(),
            crowded_clients: self.crowded_clients.count(),
            handed_over: self.handed_over.count(),
            taken_over: self.taken_over.count(),
            rescued: self.rescued.count(),
            local_cpu: self.local_cpu.count(),
            beat: self.beat.load(Ordering::Relaxed),
            open: self.open.load(Ordering::Relaxed).into(),
            timeouts: self.timeouts_counted(),
            connections: self.connections_counted(),
        }
    }

    fn timeouts_counted(&self) -> Timeouts {
        let of = |timeout: Timeout| self.timeouts[timeout as usize].count();
        Timeouts {
            head: of(Timeout::Head),
            body: of(Timeout::Body),
            send: of(Timeout::Send),
            idle: of(Timeout::Idle),
            crowded: of(Timeout::Crowded),
            memory: of(Timeout::Memory),
        }
    }

    fn connections_counted(&self) -> Connections {
        let of = |doing: Doing| u64::from(self.doing[doing as usize].load(Ordering::Relaxed));
        Connections {
            idle: of(Doing::Idle),
            reading: of(Doing::Reading),
            spooling: of(Doing::Spooling),
            away: of(Doing::Away),
            sending: of(Doing::Sending),
            closing: of(Doing::Closing),
        }
    }
}
