//! One route's counters: how long its exchanges took and how they ended.

use std::sync::atomic::{AtomicU64, Ordering};

use measure::{Ending, Histogram, PhaseHistograms, Spans};

use super::counted::{Distribution, RouteCounted, Seconds};

/// One route's exchanges.
#[derive(Default)]
#[repr(C, align(128))]
pub(crate) struct RouteStats {
    /// By hundreds of the status; index 0: no reply.
    statuses: [AtomicU64; 6],
    /// Exchanges that did not end complete.
    incomplete: AtomicU64,
    sent_bytes: AtomicU64,
    phases: PhaseHistograms,
}

/// A route's counters, to record into.
pub(crate) struct RouteRef<'a>(pub(super) &'a RouteStats);

impl RouteRef<'_> {
    pub(crate) fn record(&self, spans: &Spans, status: u16, ending: Ending, sent_bytes: u64) {
        let route = self.0;
        route.phases.record(spans);
        let class = usize::from(status / 100).min(5);
        route.statuses[class].fetch_add(1, Ordering::Relaxed);
        route.sent_bytes.fetch_add(sent_bytes, Ordering::Relaxed);
        if ending != Ending::Complete && ending != Ending::Refused {
            route.incomplete.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl RouteStats {
    /// Exchanges ended so far.
    pub(super) fn exchanges(&self) -> u64 {
        let statuses = self.statuses.iter();
        let counts = statuses.map(|count| count.load(Ordering::Relaxed));
        counts.fold(0, u64::saturating_add)
    }

    pub(super) fn counted(&self, name: &str) -> RouteCounted {
        let class = |class: usize| self.statuses[class].load(Ordering::Relaxed);
        let spread = |histogram: &Histogram| Distribution(histogram.snapshot());
        RouteCounted {
            route: name.to_owned(),
            none: class(0),
            informational: class(1),
            successful: class(2),
            redirection: class(3),
            client_error: class(4),
            server_error: class(5),
            incomplete: self.incomplete.load(Ordering::Relaxed),
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
            seconds: Seconds {
                receive: spread(&self.phases.receive),
                queue: spread(&self.phases.queue),
                run: spread(&self.phases.run),
                send: spread(&self.phases.send),
                total: spread(&self.phases.total),
                gil: spread(&self.phases.gil),
                cpu: spread(&self.phases.cpu),
            },
        }
    }
}
