//! What people and programs see of a run.
//!
//! Takes outcomes, gives text: a table for people, one page, a line for a terminal, pictures; JSON, CSV and
//! HDR logs for programs. Pure: no file, no clock, no terminal. Whatever comes from outside (addresses,
//! labels, texts of remarks) is made harmless for terminals and pages on its way.

mod columns;
mod curves;
mod intervals;
mod live;
mod page;
pub mod picture;
mod rows;
mod stored;
mod table;
mod text;

pub use columns::wrapped;
pub use intervals::hdr_log;
pub use live::{LiveFacts, live};
pub use page::page;
pub use rows::{csv, series_csv};
pub use stored::{json, read_json};
pub use table::{Tone, table};
pub use text::{short_seconds, thousands};

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;
