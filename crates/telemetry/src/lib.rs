//! What was measured, how it is written down and read back: phases, clock, histograms, the record of an
//! exchange, lines of logs.
//!
//! Takes stamps and plain values, gives durations, quantiles, bytes and text. It must not do I/O,
//! start threads, or use another crate of ours; the only thing that it shares are the
//! atomics of [`Histogram`] and of `counters`. Whoever wants the time passes it in, except through [`now`].

#![forbid(unsafe_code)]

mod auth_facts;
mod calendar;
pub mod counters;
mod endpoint_load;
mod histogram;
pub mod history;
mod loop_facts;
mod nearest;
mod path;
mod percentile;
mod phases;
mod reading;
mod record;
mod stream_facts;
mod text;
mod time;
pub mod timing;
mod tls_record;
mod trace;
mod upstream_facts;
mod websocket_facts;

pub use auth_facts::{AuthFacts, AuthFailure};
pub use calendar::{civil_from_unix, unix_from_civil};
pub use endpoint_load::{EndpointLoad, ToldLoad, push_own_phases};
pub use histogram::Histogram;
pub use loop_facts::LoopFacts;
pub use nearest::nearest;
pub use path::{folded_segment, push_folded};
pub use percentile::{nearest_rank, share_of_rank};
pub use phases::{PerPhase, PhaseHistograms, Phases, Spans};
pub use reading::{
    KnownLoop, KnownQueued, KnownSpans, KnownUpstream, KnownWebSocket, Line, LineForm, Pattern,
    PatternFault, Reader,
};
pub use record::{Ending, NO_POOL, Queued, Record, made_id, made_number};
pub use stream_facts::{ResetBy, StreamFacts};
pub use text::{
    Field, Form, Names, Part, Place, SpanWriter, Style, Template, TemplateFault, Writer, json_text,
    push_time,
};
pub use time::{Nanos, Snapshot, Stamp, machine_now, now};
pub use tls_record::TlsRecord;
pub use trace::{Sampler, TRACEPARENT_BYTES, TraceContext, TraceParent};
pub use upstream_facts::{UpstreamFacts, UpstreamPhases};
pub use websocket_facts::WebSocketFacts;

#[cfg(test)]
mod tests {
    /// A table of cases: what stands at the margin is an input, what is indented below it is what `said` makes of it.
    #[track_caller]
    pub(crate) fn check_cases(cases: &str, said: impl Fn(&str) -> String) {
        let inputs = cases
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with(' '));
        let found: String = inputs
            .map(|input| format!("{input}\n    {}\n", said(input)))
            .collect();
        assert_eq!(found, cases.trim_start_matches('\n'), "\n{found}");
    }
}
