//! What was measured, how it is written down and read back: phases, clock, histograms, the record of an
//! exchange, lines of logs.
//!
//! Takes stamps and plain values, gives durations, quantiles, bytes and text. It must not do I/O,
//! start threads, or use another crate of this house; the only thing that it shares are the
//! atomics of [`Histogram`]. Whoever wants the time passes it in, except through [`RealClock`].

#![forbid(unsafe_code)]

mod calendar;
mod clock;
mod histogram;
mod nearest;
mod phases;
mod queued;
mod reading;
mod record;
mod text;
pub mod timing;

pub use calendar::{civil_from_unix, unix_from_civil};
pub use clock::{Clock, Nanos, RealClock, Stamp, VirtualClock, now};
pub use histogram::{Histogram, PhaseHistograms, Snapshot};
pub use nearest::nearest;
pub use phases::{Phases, Spans};
pub use queued::Queued;
pub use reading::{KnownQueued, KnownSpans, Line, LineForm, Pattern, PatternFault, Reader};
pub use record::{Ending, NO_POOL, Record};
pub use text::{
    Field, Form, Names, Part, Place, Style, Template, TemplateFault, Writer, json_text, made_id,
    push_time,
};
