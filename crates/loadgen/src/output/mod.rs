//! What people and programs see of a run.
//!
//! Takes outcomes, gives text: a table and a page for people, JSON for programs. Pure: no file, no clock, no terminal. Whatever comes from outside (addresses, labels, texts of remarks)
//! is made harmless for terminals and pages on its way.

mod curves;
mod facts;
mod page;
mod stored;
mod table;

use crate::distribution::Summary;
use crate::outcome::Times;

pub use page::page;
pub use stored::{json, read_json};
pub use table::{Tone, table};

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;

/// All distributions of a run by their names; `None`: this kind of load has none.
fn distributions(times: &Times) -> [(&'static str, Option<&Summary>); 7] {
    [
        ("latency", Some(&times.latency)),
        ("connect", Some(&times.connect)),
        ("first byte", Some(&times.first_byte)),
        ("last byte", Some(&times.last_byte)),
        ("cycle", Some(&times.cycle)),
        ("late", times.late.as_ref()),
        ("unread", times.unread.as_ref()),
    ]
}
