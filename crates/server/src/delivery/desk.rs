//! What a thread keeps at hand to write replies: a buffer for heads, the date, the server's name.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use measure::{Nanos, Phases, Stamp};
use wire::{HeadEnd, ReplyPlan, Version};

use crate::config::meant::Headers;

/// Tools of one thread.
pub(crate) struct Desk {
    /// The head being written; reused from reply to reply.
    pub(crate) out: Vec<u8>,
    server: Option<String>,
    server_timing: bool,
    date: [u8; 29],
    date_until: Stamp,
}

/// How a head ends.
pub(crate) struct EndOfHead<'a> {
    pub(crate) plan: &'a ReplyPlan,
    pub(crate) version: Version,
    /// The handler wrote these itself.
    pub(crate) has_date: bool,
    pub(crate) has_server: bool,
    pub(crate) write_length: bool,
}

impl Desk {
    pub(crate) fn new(headers: &Headers) -> Self {
        let server = (!headers.server.is_empty()).then(|| headers.server.clone());
        Self {
            out: Vec::with_capacity(1024),
            server,
            server_timing: headers.server_timing,
            date: [0; 29],
            date_until: Stamp::ZERO,
        }
    }

    /// Ends the head in `out`; `phases.replied` is the present.
    pub(crate) fn end_head(&mut self, end: &EndOfHead<'_>, phases: &Phases) {
        if self.server_timing {
            self.write_timing(phases);
        }
        self.refresh_date(phases.replied);
        wire::end_head(
            &mut self.out,
            &HeadEnd {
                plan: end.plan,
                version: end.version,
                date: (!end.has_date).then_some(&self.date),
                server: if end.has_server {
                    None
                } else {
                    self.server.as_deref()
                },
                write_length: end.write_length,
            },
        );
    }

    /// Appends a `Server-Timing` line with the phases that have passed.
    fn write_timing(&mut self, phases: &Phases) {
        self.out.extend_from_slice(b"Server-Timing: ");
        measure::timing::server_timing(phases, &mut self.out);
        self.out.extend_from_slice(b"\r\n");
    }

    /// The wall clock is read once a second, just after its second began.
    fn refresh_date(&mut self, now: Stamp) {
        if now < self.date_until {
            return;
        }
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        self.date = wire::date::format(wall.as_secs());
        let rest_ns = 1_000_000_000 - u64::from(wall.subsec_nanos());
        self.date_until = now.plus(Nanos(rest_ns));
    }
}
