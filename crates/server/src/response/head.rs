//! What a thread keeps to write the head of a response: the date, the server's name, the id of the request and
//! the phases that have passed, as field lines.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use measure::{Nanos, Phases, Stamp};
use wire::{FieldLines, HeadView};

use super::writer::Declared;
use crate::config::meant::{Headers, RequestIds};
use crate::exchange::Id;

/// The server's own field lines.
pub(crate) struct ServerFields {
    server: Option<String>,
    server_timing: bool,
    id: Option<IdField>,
    date: [u8; 29],
    date_until: Stamp,
    /// Used again from response to response.
    timing: Vec<u8>,
}

/// The field with the id of the exchange that is being answered.
struct IdField {
    name: Vec<u8>,
    value: Vec<u8>,
}

impl ServerFields {
    pub(crate) fn new(headers: &Headers, ids: &RequestIds) -> Self {
        Self {
            server: (!headers.server.is_empty()).then(|| headers.server.clone()),
            server_timing: headers.server_timing,
            id: ids.header.as_deref().map(IdField::new),
            date: [0; 29],
            date_until: Stamp::ZERO,
            timing: Vec::new(),
        }
    }

    /// Whose response follows; `head` is `None` when it never became one.
    pub(crate) fn begin(&mut self, id: Id, head: Option<HeadView<'_>>) {
        if let Some(field) = &mut self.id {
            field.value.clear();
            field.value.extend_from_slice(&id.text(head));
        }
    }

    /// Appends the fields that the application has not given itself; `phases.replied` is the present.
    pub(crate) fn append(&mut self, lines: &mut FieldLines, declared: &Declared, phases: &Phases) {
        if self.server_timing {
            self.timing.clear();
            measure::timing::server_timing(phases, &mut self.timing);
            lines.push(b"Server-Timing", &self.timing);
        }
        if let Some(IdField { name, value }) = &self.id
            && lines.get(name).is_none()
        {
            lines.push(name, value);
        }
        if !declared.date {
            self.refresh_date(phases.replied);
            lines.push(b"Date", &self.date);
        }
        if let Some(server) = self.server.as_ref().filter(|_| !declared.server) {
            lines.push(b"Server", server.as_bytes());
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

impl IdField {
    /// `name` is in lower case; `x-request-id` is written as `X-Request-Id`.
    fn new(name: &str) -> Self {
        let mut name = name.as_bytes().to_vec();
        for word in name.split_mut(|byte| *byte == b'-') {
            word.iter_mut().take(1).for_each(u8::make_ascii_uppercase);
        }
        Self {
            name,
            value: Vec::new(),
        }
    }
}
