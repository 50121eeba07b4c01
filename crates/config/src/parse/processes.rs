//! Setters about serving processes: how many, who they are, when they are replaced, who commands them.
//!
//! Each takes one text and puts its meaning into the draft, or gives a hint. Pure.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use telemetry::Nanos;

use super::super::super::builder::{Draft, Placed};
use super::super::super::reading::SettingText;
use super::super::super::typed::{ControlConfig, PROCESSES_MAX, Steering};
use super::super::super::value;
use super::{Set, folder};

const COUNT_MAX: u64 = PROCESSES_MAX as u64;
const SECOND: Nanos = Nanos(1_000_000_000);
const DAY: u64 = 24 * 3_600_000_000_000;
/// Fewer bytes than an interpreter has when it has done nothing are a unit that was left out.
const RESIDENT_BYTES_MIN: u64 = 16 << 20;

pub(in super::super) fn processes(draft: &mut Draft, text: &str) -> Set {
    draft.processes = match value::count(text) {
        Some(count @ 1..=COUNT_MAX) => Some(count as usize),
        None if text == "auto" => None,
        _ => return Err(None),
    };
    Ok(())
}

pub(in super::super) fn user(draft: &mut Draft, text: &str) -> Set {
    if let Some((user, group)) = text.split_once(':') {
        return Err(Some(match group.is_empty() {
            true => format!("write `{user}`"),
            false => format!("two settings: user `{user}`, group `{group}`"),
        }));
    }
    draft.config.processes.user = account(text)?;
    Ok(())
}

pub(in super::super) fn group(draft: &mut Draft, text: &str) -> Set {
    draft.config.processes.group = account(text)?;
    Ok(())
}

/// Whether there is one is the system's to say; empty: none.
fn account(text: &str) -> Result<String, Option<String>> {
    // What the lines of /etc/passwd cannot hold.
    let is_good = |c: char| !(c.is_control() || c.is_whitespace() || matches!(c, ':' | ',' | '/'));
    match text {
        "off" => Ok(String::new()),
        name if !name.is_empty() && !name.starts_with('-') && name.chars().all(is_good) => {
            Ok(name.to_owned())
        }
        _ => Err(None),
    }
}

pub(in super::super) fn start_timeout(draft: &mut Draft, text: &str) -> Set {
    draft.config.processes.start_timeout = span_or_off(text, 1)?.unwrap_or(Nanos(0));
    Ok(())
}

pub(in super::super) fn heartbeat_timeout(draft: &mut Draft, text: &str) -> Set {
    draft.config.processes.heartbeat_timeout = span_or_off(text, 1)?.unwrap_or(Nanos(0));
    Ok(())
}

pub(in super::super) fn process_requests_max(draft: &mut Draft, text: &str) -> Set {
    draft.config.processes.recycling.requests_max = match (text, value::count(text)) {
        ("off", _) => None,
        (_, Some(0)) => return Err(no_bound()),
        (_, Some(count)) => Some(count),
        _ => return Err(None),
    };
    Ok(())
}

pub(in super::super) fn process_age_max(draft: &mut Draft, text: &str) -> Set {
    draft.config.processes.recycling.age_max = span_or_off(text, 366)?;
    Ok(())
}

pub(in super::super) fn process_resident_max(draft: &mut Draft, text: &str) -> Set {
    draft.config.processes.recycling.resident_bytes_max = match (text, value::size(text)) {
        ("off", _) => None,
        (_, Some(0)) => return Err(no_bound()),
        (_, Some(bytes @ RESIDENT_BYTES_MIN..)) => Some(bytes),
        (_, Some(bytes @ ..1024)) => return Err(Some(format!("with a unit: `{bytes}M`"))),
        (_, Some(_)) => return Err(None),
        _ => return Err(value::size_hint(text)),
    };
    Ok(())
}

pub(in super::super) fn recycle_jitter(draft: &mut Draft, text: &str) -> Set {
    draft.config.processes.recycling.jitter = value::percent(text).ok_or_else(|| {
        let is_count = value::count(text).is_some_and(|count| count <= 100);
        is_count.then(|| format!("a share, not a number of requests: `{}%`", text.trim()))
    })?;
    Ok(())
}

pub(in super::super) fn add_reload_dir(draft: &mut Draft, text: &SettingText) -> Set {
    let dir = folder(&text.text)?;
    draft.reload_dirs.push(Placed::new(dir, &text.origin));
    Ok(())
}

pub(in super::super) fn control(draft: &mut Draft, text: &str) -> Set {
    draft.config.processes.control = match text {
        "auto" => ControlConfig::Auto,
        "off" => ControlConfig::Off,
        "" => return Err(None),
        file if file.ends_with('/') => {
            return Err(Some(format!("name a file: `{file}milepost.sock`")));
        }
        file if file.starts_with("unix:") => {
            return Err(Some(format!("write `{}`", &file["unix:".len()..])));
        }
        file => ControlConfig::At(PathBuf::from(file)),
    };
    Ok(())
}

pub(in super::super) fn steering(draft: &mut Draft, index: usize) {
    draft.config.listen.steering = [Steering::Hash, Steering::Cpu][index];
}

/// A duration from a second to so many days, or `off`.
fn span_or_off(text: &str, days_max: u64) -> Result<Option<Nanos>, Option<String>> {
    let range: RangeInclusive<Nanos> = SECOND..=Nanos(days_max * DAY);
    match (text, value::duration(text)) {
        ("off", _) => Ok(None),
        (_, Some(Nanos(0))) => Err(no_bound()),
        (_, Some(span)) if range.contains(&span) => Ok(Some(span)),
        _ => Err(None),
    }
}

fn no_bound() -> Option<String> {
    Some("write `off` for no bound".to_owned())
}
