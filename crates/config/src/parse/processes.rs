//! Serving processes: who they are, when they are replaced, who commands them.

use std::path::PathBuf;

use telemetry::Nanos;

use super::value::{self, Unit};
use super::{Hint, hinted, or_off, span_or_off};
use crate::options_table::{DAY, M, NO_BOUND, SECOND};
use crate::typed::ControlConfig;

/// A user's name or number, without a group.
pub(crate) fn user(text: &str) -> Result<String, Hint> {
    match text.split_once(':') {
        None => account(text),
        Some((user, "")) => hinted(format!("write `{user}`")),
        Some((user, group)) => hinted(format!("two settings: user `{user}`, group `{group}`")),
    }
}

/// Whether there is one is the system's to say; empty: none.
pub(crate) fn account(text: &str) -> Result<String, Hint> {
    // What the lines of /etc/passwd cannot hold.
    let is_good = |c: char| !(c.is_control() || c.is_whitespace() || matches!(c, ':' | ',' | '/'));
    match text {
        "off" => Ok(String::new()),
        "" => Err(None),
        name if !name.starts_with('-') && name.chars().all(is_good) => Ok(name.to_owned()),
        _ => Err(None),
    }
}

/// From a second to a day; 0 for `off`.
pub(crate) fn span_or_zero(text: &str) -> Result<Nanos, Hint> {
    Ok(span_or_off(text, SECOND..=DAY, NO_BOUND)?.unwrap_or_default())
}

/// Bits of a file's mode, in octal as `chmod` has them; `None` for `off`.
pub(crate) fn umask(text: &str) -> Result<Option<u32>, Hint> {
    match text {
        "off" => Ok(None),
        text => mode(text).map(Some).ok_or(None),
    }
}

/// From 0 to 0777, also as Python writes it (`0o660`).
pub(crate) fn mode(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    // `from_str_radix` takes a sign.
    let is_number = digits.bytes().all(|b| b.is_ascii_digit());
    let mode = u32::from_str_radix(digits, 8).ok()?;
    (is_number && mode <= 0o777).then_some(mode)
}

/// Resident memory. Fewer bytes than an interpreter has when it has done nothing are a unit that was left out.
pub(crate) fn resident(text: &str) -> Result<Option<u64>, Hint> {
    let unit_hint = |hint: Hint| match value::size(text) {
        Some(bytes @ 1..1024) => Some(format!("with a unit: `{bytes}M`")),
        _ => hint,
    };
    or_off(text, Unit::Size, 16 * M..=u64::MAX, NO_BOUND).map_err(unit_hint)
}

/// From 0.0 to 1.0, as a percentage.
pub(crate) fn share(text: &str) -> Result<f64, Hint> {
    value::percent(text).ok_or_else(|| {
        let is_count = value::count(text).is_some_and(|count| count <= 100);
        is_count.then(|| format!("a share, not a number of requests: `{}%`", text.trim()))
    })
}

/// Where commands are taken.
pub(crate) fn control(text: &str) -> Result<ControlConfig, Hint> {
    match text {
        "auto" => Ok(ControlConfig::Auto),
        "off" => Ok(ControlConfig::Off),
        "" => Err(None),
        file if file.ends_with('/') => hinted(format!("name a file: `{file}milepost.sock`")),
        file => match file.strip_prefix("unix:") {
            // `bind` has this prefix; a control socket is never anything else.
            Some(file) => hinted(format!("write `{file}`")),
            None => Ok(ControlConfig::At(PathBuf::from(file))),
        },
    }
}
