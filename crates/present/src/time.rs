//! Times of day on a log's own clock.
//!
//! Takes seconds since 1970, an offset already added, gives text.

use telemetry::civil_from_unix;

/// `2026-11-21 12:07:39`
pub fn date_time(second: u64) -> String {
    let [year, month, day, hour, minute, second] = civil_from_unix(second);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// The hour of this number since 1970: `2026-11-21 12:00`.
pub fn hour_text(hour: u64) -> String {
    // A log may name any hour: what would overflow as seconds is the last hour there is.
    let mut text = date_time(hour.min(u64::MAX / 3_600) * 3_600);
    text.truncate(text.len() - ":00".len());
    text
}
