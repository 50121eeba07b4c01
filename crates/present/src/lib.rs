//! What `report`, `whatif` and `bench` show: numbers as text, tables, charts and pages, in one form for all of them.
//!
//! Takes values, gives text for a terminal, or HTML and SVG that need no network. Text from outside (addresses, labels,
//! lines of a log) is made harmless on its way: no terminal obeys it, and no page runs it. Pure: no file, no clock, no
//! terminal; a caller prints.

#![forbid(unsafe_code)]

mod chart;
mod number;
mod page;
mod table;
mod text;
mod time;

pub use chart::{Axis, BAD, Bar, Chart, Line, Look, Mark, Scale};
pub use number::{
    NONE, bytes, column_share, counted, digits, duration, fitted, number, percent, progress, share,
    thousands,
};
pub use page::Page;
pub use table::{Table, facts};
pub use text::{WIDTH_MAX, broken, escaped, harmless, labelled, sentence, width, wrapped};
pub use time::{date_time, hour_text};
