//! What a thread keeps at hand to write replies: a buffer for heads, the date, the server's name,
//! and on pool threads encoders.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use measure::{Nanos, Phases, Stamp};
use wire::{HeadEnd, HeadView, ReplyPlan, Version};

use super::coding::{self, Accepted};
use super::press::Press;
use crate::config::meant::{Compression, Headers, RequestIds};
use crate::exchange::Id;

/// Tools of one thread.
pub(crate) struct Desk {
    /// The head being written; reused from reply to reply.
    pub(crate) out: Vec<u8>,
    server: Option<String>,
    server_timing: bool,
    id_line: Option<IdLine>,
    date: [u8; 29],
    date_until: Stamp,
    /// `None` where nothing is compressed.
    pub(super) bench: Option<Box<Bench>>,
}

/// What compressing takes.
pub(super) struct Bench {
    pub(super) config: Compression,
    pub(super) press: Press,
    /// Any bytes: a head on its way to another.
    pub(super) scratch: Vec<u8>,
}

/// The line with the id of the exchange that is being answered.
struct IdLine {
    /// Finished; reused from reply to reply.
    line: Vec<u8>,
    /// Length of the name in it.
    name_bytes: usize,
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
            id_line: None,
            date: [0; 29],
            date_until: Stamp::ZERO,
            bench: None,
        }
    }

    /// The same with the ids of exchanges in their replies, if a header is configured for them.
    pub(crate) fn naming(mut self, config: &RequestIds) -> Self {
        self.id_line = config.header.as_deref().map(IdLine::new);
        self
    }

    /// The same for a thread that compresses replies, if codings are configured.
    pub(crate) fn compressing(mut self, config: &Compression) -> Self {
        self.bench = (!config.codings.is_empty()).then(|| {
            Box::new(Bench {
                config: config.clone(),
                press: Press::new(config),
                scratch: Vec::new(),
            })
        });
        self
    }

    /// What a request accepts; `None` when nothing is compressed anyway.
    pub(crate) fn accepted(&self, head: HeadView<'_>) -> Option<Accepted> {
        let bench = self.bench.as_ref()?;
        Some(Accepted::read(head, &bench.config))
    }

    /// Whose reply follows; `head` is `None` when it never became one.
    pub(crate) fn name_exchange(&mut self, id: Id, head: Option<HeadView<'_>>) {
        if let Some(IdLine { line, name_bytes }) = &mut self.id_line {
            line.truncate(*name_bytes);
            line.extend_from_slice(b": ");
            line.extend_from_slice(&id.text(head));
            line.extend_from_slice(b"\r\n");
        }
    }

    /// Ends the head in `out`; `phases.replied` is the present.
    pub(crate) fn end_head(&mut self, end: &EndOfHead<'_>, phases: &Phases) {
        if self.server_timing {
            self.write_timing(phases);
        }
        self.write_id();
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

    /// An application may have given an id of its own.
    fn write_id(&mut self) {
        if let Some(IdLine { line, name_bytes }) = &self.id_line {
            let is_it = |(name, _): (&[u8], _)| name.eq_ignore_ascii_case(&line[..*name_bytes]);
            if !coding::lines(&self.out).any(is_it) {
                self.out.extend_from_slice(line);
            }
        }
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

impl IdLine {
    /// `name` is in lower case; `x-request-id` is written as `X-Request-Id`.
    fn new(name: &str) -> Self {
        let mut line = name.as_bytes().to_vec();
        for word in line.split_mut(|byte| *byte == b'-') {
            word.iter_mut().take(1).for_each(u8::make_ascii_uppercase);
        }
        let name_bytes = line.len();
        Self { line, name_bytes }
    }
}
