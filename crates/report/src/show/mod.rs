//! A tally as text: for a terminal, for a program, for a browser.
//!
//! Takes a tally, gives text; pure. The same tables stand on a terminal and on a page.

mod charts;
mod columns;
mod compared;
mod event_loops;
mod json;
mod page;
mod table;
mod upstreams;
mod waiting;

pub use compared::{compared_json, compared_page, compared_table};
pub use json::json;
pub use page::page;
pub use table::{interval_line, live, table};

use crate::filter::local_ns;

/// Seconds as milliseconds, with four digits that say something and no place beyond the microseconds of a log.
fn ms(seconds: f64) -> String {
    present::digits(1e3 * seconds, 4, 3)
}

/// `2026-11-21 12:07:39` on the log's own clock.
fn time(wall_ns: u64, utc_offset_secs: i32) -> String {
    present::date_time(local_ns(wall_ns, utc_offset_secs) / 1_000_000_000)
}

/// `+0100`
fn zone(utc_offset_secs: i32) -> String {
    let sign = if utc_offset_secs < 0 { '-' } else { '+' };
    // The sign is written apart: half an hour west of Greenwich is -0030.
    let minutes = utc_offset_secs.unsigned_abs() / 60;
    format!("{sign}{:02}{:02}", minutes / 60, minutes % 60)
}
