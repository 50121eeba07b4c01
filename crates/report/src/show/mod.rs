//! A tally as text: for a terminal, for a program, for a browser.
//!
//! Takes a tally, gives text; pure. Everything that came out of a log is made harmless for where it goes.

mod chart;
mod json;
mod page;
mod table;
mod text;
mod waiting;

pub use json::json;
pub use page::page;
pub use table::{interval_line, live, table};
pub use text::thousands;
pub(crate) use text::{harmless, hour_text};
