//! Fields that a request gets on its way to an upstream: when it came, what it is called, and what its route says.

use std::time::{SystemTime, UNIX_EPOCH};

use config::typed::FieldChanges;
use http::upstream::is_forwarding;
use telemetry::Stamp;

use crate::exchange::{Exchange, TRACEPARENT};
use crate::field_template::RequestFacts;

/// The fields of one request, each name once.
pub(super) struct RequestFields<'a>(Vec<(&'a [u8], Vec<u8>)>);

impl<'a> RequestFields<'a> {
    /// Those of an exchange at `now`. `copied`: what the head has from the server of `forward_auth`; `id_name`: the header
    /// that names a request's id, where one is configured; `changes`: those of its route.
    pub(super) fn of(
        exchange: &Exchange,
        copied: &'a [String],
        id_name: Option<&'a str>,
        changes: Option<&'a FieldChanges>,
        now: Stamp,
    ) -> Self {
        let mut fields = RequestFields(Vec::with_capacity(2));
        let (head, ends) = (exchange.head(), &*exchange.ends);
        // A trusted proxy in front has seen the request before.
        if !(ends.is_trusted && head.header("x-request-start").is_some()) {
            fields.push(b"X-Request-Start", started(exchange, now));
        }
        // Of the head, an upstream gets none of these, because a client may have sent them.
        let is_removed = |name| changes.is_some_and(|changes| changes.removed.contains(name));
        let copied = copied.iter().filter(|name| !is_removed(name));
        for name in copied
            .map(String::as_bytes)
            .filter(|name| is_forwarding(name))
        {
            let lines = head.headers();
            let lines = lines.filter(|(found, _)| found.eq_ignore_ascii_case(name));
            let values: Vec<&[u8]> = lines.map(|(_, value)| value).collect();
            if !values.is_empty() {
                fields.push(name, values.join(&b", "[..]));
            }
        }
        if let Some(name) = id_name {
            fields.push(name.as_bytes(), exchange.request_id().to_vec());
        }
        if let Some(trace) = exchange.trace() {
            fields.push(TRACEPARENT, trace.upstream_header().to_vec());
        }
        let facts = RequestFacts {
            head,
            record: &exchange.record,
            ends: Some(ends),
        };
        for (name, value) in changes.map_or_else(Vec::new, |changes| facts.set(changes)) {
            fields.push(name, value);
        }
        fields
    }

    /// A later field takes the place of an earlier one.
    fn push(&mut self, name: &'a [u8], value: Vec<u8>) {
        self.0.retain(|(set, _)| !set.eq_ignore_ascii_case(name));
        self.0.push((name, value));
    }

    /// Names and values.
    pub(super) fn set(&self) -> Vec<(&[u8], &[u8])> {
        let fields = self.0.iter();
        fields.map(|(name, value)| (*name, &value[..])).collect()
    }
}

/// When the request came, in the form that servers of Python applications understand: microseconds since 1970.
fn started(exchange: &Exchange, now: Stamp) -> Vec<u8> {
    let ago = now.since(exchange.record.phases.arrived);
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_us = since_1970.map_or(0, |now| now.as_micros() as u64);
    format!("t={}", now_us.saturating_sub(ago.0 / 1_000)).into_bytes()
}
