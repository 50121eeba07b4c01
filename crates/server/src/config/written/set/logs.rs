//! Setters of logs: where lines go, which ones, their form, when files are renewed.
//!
//! Each takes one text and puts its meaning into the draft, or gives a hint. Pure.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use measure::{Nanos, Template};

use super::super::super::draft::{AccessEntry, Draft, Placed, Wished};
use super::super::super::entry::Entry;
use super::super::super::meant::{
    ErrorLog, Level, Levels, LogCompression, LogFilter, LogForm, LogOverflow, LogTarget,
};
use super::super::super::nearest;
use super::super::super::reading::Text;
use super::super::super::value;
use super::{Set, named, options};

type Hint = Option<String>;

/// Options of an access log.
pub(in super::super) const ACCESS_KEYS: &[&str] = &["format", "route", "status", "slower"];
/// Options of an error log.
pub(in super::super) const ERROR_KEYS: &[&str] = &["level", "only"];
/// What an access log is.
pub(in super::super) const ACCESS_LOG: &str =
    "TARGET [KEY=VALUE]... (as `access.log`, or `slow.log format=json slower=1s`), or `off`";
/// What an error log is.
pub(in super::super) const ERROR_LOG: &str =
    "TARGET [level=LEVEL] (as `stderr`, or `error.log level=warning`), or `off`";
/// What a form is.
pub(in super::super) const FORM: &str =
    "`phases`, `combined`, `common`, `json`, `naviserver`, or a text with `{field}`s";
/// The forms that have names.
pub(in super::super) const FORM_NAMES: &[&str] =
    &["phases", "combined", "common", "json", "naviserver"];
/// Compressions of old files, and none.
pub(in super::super) const COMPRESSIONS: &[&str] = &["off", "gzip", "zstd"];

/// Names of syslog's facilities by their numbers (RFC 5424 section 6.2.1).
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp", "ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];
/// That of `syslog` alone.
const DAEMON: u8 = 3;
const LEVELS: [(&str, Level); 3] = [
    ("error", Level::Error),
    ("warning", Level::Warning),
    ("info", Level::Info),
];
/// Smaller files are rather a unit that was left out.
const ROTATE_BYTES_MIN: u64 = 4 << 10;
/// Old files are named by the second.
const ROTATE_EVERY_MIN: Nanos = Nanos(1_000_000_000);
const YEAR: Nanos = Nanos(366 * 24 * 3_600_000_000_000);

pub(in super::super) fn add_access_log(draft: &mut Draft, text: &Text) -> Set {
    let entry = parsed(&text.text, ACCESS_KEYS)?;
    let Some(target) = target(&entry)? else {
        draft.access_logs.push(Placed::new(Wished::Off, text));
        return Ok(());
    };
    let mut log = AccessEntry {
        target,
        form: None,
        filter: LogFilter::default(),
    };
    for (key, value) in &entry.options {
        match key.as_str() {
            "format" => log.form = Some(form(value)?),
            "route" => log.filter.routes = routes(value)?,
            "status" => log.filter.statuses = statuses(value)?,
            _ => log.filter.slower_than = slower(value)?,
        }
    }
    draft.access_logs.push(Placed::new(Wished::This(log), text));
    Ok(())
}

pub(in super::super) fn add_error_log(draft: &mut Draft, text: &Text) -> Set {
    let entry = parsed(&text.text, ERROR_KEYS)?;
    let Some(target) = target(&entry)? else {
        draft.error_logs.push(Placed::new(Wished::Off, text));
        return Ok(());
    };
    let levels = match &entry.options[..] {
        [] => Levels::From(Level::Info),
        [(key, value)] if key == "level" => Levels::From(level(value)?),
        [(_, value)] => Levels::Only(level(value)?),
        _ => {
            let hint = "`level=` is this one and the worse, `only=` this one alone: leave one out";
            return Err(Some(hint.to_owned()));
        }
    };
    let log = ErrorLog { target, levels };
    draft.error_logs.push(Placed::new(Wished::This(log), text));
    Ok(())
}

pub(in super::super) fn log_form(draft: &mut Draft, text: &str) -> Set {
    draft.log_form = Some(form(text)?);
    Ok(())
}

pub(in super::super) fn log_overflow(draft: &mut Draft, index: usize) {
    draft.config.logs.overflow = [LogOverflow::Drop, LogOverflow::Wait][index];
}

pub(in super::super) fn log_rotate_size(draft: &mut Draft, text: &str) -> Set {
    draft.config.logs.rotation.bytes = match (text, value::size(text)) {
        ("off", _) => None,
        (_, Some(bytes @ ROTATE_BYTES_MIN..)) => Some(bytes),
        (_, Some(0)) => return Err(Some("write `off` for never".to_owned())),
        (_, Some(bytes)) => return Err(Some(format!("`{bytes}M` would be more"))),
        _ => return Err(value::size_hint(text)),
    };
    Ok(())
}

pub(in super::super) fn log_rotate_every(draft: &mut Draft, text: &str) -> Set {
    draft.config.logs.rotation.every = span(text, "never")?;
    Ok(())
}

pub(in super::super) fn log_keep(draft: &mut Draft, text: &str) -> Set {
    draft.config.logs.rotation.keep_len = match (text, value::count(text)) {
        ("off", _) => None,
        (_, Some(count @ 1..=1_000_000)) => Some(count as usize),
        (_, Some(0)) => return Err(Some("write `off` to keep all of them".to_owned())),
        _ => return Err(None),
    };
    Ok(())
}

pub(in super::super) fn log_keep_age(draft: &mut Draft, text: &str) -> Set {
    draft.config.logs.rotation.keep_age = span(text, "any age")?;
    Ok(())
}

pub(in super::super) fn log_compress(draft: &mut Draft, index: usize) {
    draft.config.logs.rotation.compress =
        [None, Some(LogCompression::Gzip), Some(LogCompression::Zstd)][index];
}

/// A duration that can be off, which `none` puts into words.
fn span(text: &str, none: &str) -> Result<Option<Nanos>, Hint> {
    match (text, value::duration(text)) {
        ("off", _) => Ok(None),
        (_, Some(span)) if (ROTATE_EVERY_MIN..=YEAR).contains(&span) => Ok(Some(span)),
        (_, Some(Nanos(0))) => Err(Some(format!("write `off` for {none}"))),
        ("hourly", _) => Err(Some("write `1h`".to_owned())),
        ("daily", _) => Err(Some("write `1d`".to_owned())),
        ("weekly", _) => Err(Some("write `7d`".to_owned())),
        _ => Err(None),
    }
}

/// An entry whose options are known, each once.
fn parsed(text: &str, keys: &[&'static str]) -> Result<Entry, Hint> {
    let entry = options(text, keys)?;
    // What looks like an option in the first place is a target that was left out.
    match entry.lead.split_once('=') {
        Some((key, _)) if keys.contains(&key) => {
            Err(Some(format!("where to comes first: `- {text}`")))
        }
        _ => Ok(entry),
    }
}

/// Where lines go; nothing for `off`.
fn target(entry: &Entry) -> Result<Option<LogTarget>, Hint> {
    let target = match entry.lead.as_str() {
        "off" if entry.options.is_empty() => return Ok(None),
        "off" => return Err(Some("`off` has no options".to_owned())),
        "" | "on" | "true" | "yes" => {
            return Err(Some("name a file, or `-` for standard output".to_owned()));
        }
        "no" | "none" | "false" => return Err(Some("write `off`".to_owned())),
        "-" | "stdout" => LogTarget::Stdout,
        "stderr" => LogTarget::Stderr,
        "journald" => LogTarget::Journald,
        "syslog" => LogTarget::Syslog(DAEMON),
        lead if lead.starts_with("syslog:") => LogTarget::Syslog(facility(&lead[7..])?),
        folder if folder.ends_with('/') => {
            return Err(Some(format!("name a file: `{folder}milepost.log`")));
        }
        file if file.contains(char::is_control) => return Err(None),
        file => LogTarget::File(PathBuf::from(file)),
    };
    Ok(Some(target))
}

/// A facility's number.
fn facility(name: &str) -> Result<u8, Hint> {
    let by_name = FACILITIES.iter().position(|facility| *facility == name);
    let by_number = || value::count(name).map(|number| number as usize);
    let number = by_name
        .or_else(by_number)
        .filter(|number| *number < FACILITIES.len());
    if let Some(number) = number {
        return Ok(number as u8);
    }
    Err(Some(match nearest(name, FACILITIES) {
        Some(near) => format!("no facility `{name}`: did you mean `syslog:{near}`?"),
        None => format!("no facility `{name}`: there are {}", named(&FACILITIES)),
    }))
}

fn form(text: &str) -> Result<LogForm, Hint> {
    Ok(match text {
        "phases" => LogForm::Phases,
        "combined" => LogForm::Combined,
        "common" => LogForm::Common,
        "json" => LogForm::Json,
        "naviserver" => LogForm::NaviServer,
        text if text.contains('{') => match Template::parse(text) {
            Ok(_) => LogForm::Template(text.to_owned()),
            Err(fault) => return Err(Some(fault.to_string())),
        },
        text if text.contains("%(") || text.contains('$') => {
            return Err(Some(
                "fields stand in braces, as `{peer} {status} {total}`".to_owned(),
            ));
        }
        text => {
            let near = nearest(text, FORM_NAMES.iter().copied());
            return Err(Some(match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!(
                    "the forms are {}, or a text with `{{field}}`s",
                    named(FORM_NAMES)
                ),
            }));
        }
    })
}

/// Names of routes; whether there are such is asked later.
fn routes(text: &str) -> Result<Vec<String>, Hint> {
    let names: Vec<String> = text.split(',').map(route).collect();
    match names.iter().any(String::is_empty) {
        true => Err(Some(
            "`route` names routes, as `app` or `/static`, with commas between".to_owned(),
        )),
        false => Ok(names),
    }
}

/// A mount's route has no slash at its end, but for the root.
fn route(name: &str) -> String {
    let name = name.trim();
    match name.trim_end_matches('/') {
        "" if !name.is_empty() => "/".to_owned(),
        name => name.to_owned(),
    }
}

/// Statuses; `none` is that of an exchange without a reply.
fn statuses(text: &str) -> Result<Vec<RangeInclusive<u16>>, Hint> {
    text.split(',').map(|part| status(part.trim())).collect()
}

fn status(text: &str) -> Result<RangeInclusive<u16>, Hint> {
    if text == "none" {
        return Ok(0..=0);
    }
    match value::statuses(text) {
        Some((first, last)) if first > last => Err(Some(format!(
            "the smaller number comes first: `{last}-{first}`"
        ))),
        Some((first, last)) if first >= 100 && last <= 599 => Ok(first..=last),
        Some(_) => Err(Some("statuses are from 100 to 599".to_owned())),
        None => Err(Some(
            "`status` is as `404`, `5xx`, `400-499`, or `none`, with commas between".to_owned(),
        )),
    }
}

fn slower(text: &str) -> Result<Nanos, Hint> {
    value::duration(text)
        .ok_or_else(|| Some("`slower` is a duration, as `500ms` or `1s`".to_owned()))
}

fn level(text: &str) -> Result<Level, Hint> {
    let level = LEVELS.iter().find(|(name, _)| *name == text);
    level.map(|(_, level)| *level).ok_or_else(|| {
        let names = LEVELS.map(|(name, _)| name);
        Some(format!("no level `{text}`: there are {}", named(&names)))
    })
}
