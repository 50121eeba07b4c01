//! Setters of logs: where lines go, which ones, their form, when files are renewed.
//!
//! Each takes one text or table and puts its meaning into the draft, or gives a hint. Pure.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::Deserialize;
use telemetry::{Nanos, Template};

use super::super::super::builder::{AccessEntry, Draft, Placed, Wished};
use super::super::super::nearest;
use super::super::super::reading::SettingText;
use super::super::super::tables::{Contradiction, SettingTable, Structure, keys};
use super::super::super::typed::{
    ErrorLog, Level, Levels, LogFilter, LogForm, LogOverflow, LogTarget,
};
use super::super::super::value;
use super::{Hint, Set, named};

/// What an access log or an error log is.
pub(in super::super) const LOG: &str =
    "a target (as `access.log`, `-`, `stderr`, `syslog:local0`), or `off`";
/// An access log with a filter.
pub(in super::super) const ACCESS_LOG_TABLE: &str = "\
[[access_log]]
to = \"slow.log\"
format = \"json\"
status = [\"5xx\", 404]
slower = \"1s\"";
/// An error log of some levels.
pub(in super::super) const ERROR_LOG_TABLE: &str = "\
[[error_log]]
to = \"error.log\"
level = \"warning\"";
/// What a form is.
pub(in super::super) const FORM: &str =
    "`phases`, `combined`, `common`, `json`, `naviserver`, or a text with `{field}`s";
/// The forms that have names.
pub(in super::super) const FORM_NAMES: &[&str] =
    &["phases", "combined", "common", "json", "naviserver"];
/// Compressions of old files, and none.
pub(in super::super) const COMPRESSIONS: &[&str] = &["off", "gzip"];

/// Names of syslog's facilities by their numbers (RFC 5424 section 6.2.1).
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp", "ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];
/// The journal is no target: systemd connects the streams of its services with it.
const JOURNAL_HINT: &str = "log to `-` or `stderr`: systemd writes both streams of a service to the journal; \
                            a file of this name is `./journal`";
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

keys! {
    to: one(target_of_table) -> LogTarget, "a target (as `access.log`, `-`, `stderr`, `syslog:local0`)";
    format: one(form) -> LogForm, FORM;
    routes: many(route) -> Vec<String>, "names of routes (as `app`, `[\"app\", \"/static\"]`)";
    statuses: many(status) -> Vec<RangeInclusive<u16>>, "statuses (as `404`, `[\"5xx\", \"400-499\"]`, `none`)";
    slower: one(|text| value::duration(text).ok_or(None)) -> Nanos, "a duration (as `500ms`, `1s`)";
    level: one(level_of) -> Level, "one of `error`, `warning`, `info`";
}

/// `[[access_log]]`: a log of the requests that fit all its keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct AccessLogTable {
    #[serde(deserialize_with = "to")]
    to: LogTarget,
    #[serde(default, deserialize_with = "format")]
    format: Option<LogForm>,
    #[serde(default, deserialize_with = "routes")]
    route: Vec<String>,
    #[serde(default, deserialize_with = "statuses")]
    status: Vec<RangeInclusive<u16>>,
    #[serde(default, deserialize_with = "slower")]
    slower: Option<Nanos>,
}

/// `[[error_log]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct ErrorLogTable {
    #[serde(deserialize_with = "to")]
    to: LogTarget,
    /// This one and the worse.
    #[serde(default, deserialize_with = "level")]
    level: Option<Level>,
    /// This one alone.
    #[serde(default, deserialize_with = "level")]
    only: Option<Level>,
}

impl Structure for AccessLogTable {
    fn put(self, draft: &mut Draft, table: &SettingTable) -> Result<(), Contradiction> {
        let log = AccessEntry {
            target: self.to,
            form: self.format,
            filter: LogFilter {
                routes: self.route,
                statuses: self.status,
                slower_than: self.slower.unwrap_or_default(),
            },
        };
        draft
            .access_logs
            .push(Placed::new(Wished::This(log), &table.origin));
        Ok(())
    }
}

impl Structure for ErrorLogTable {
    fn put(self, draft: &mut Draft, table: &SettingTable) -> Result<(), Contradiction> {
        let levels = match (self.level, self.only) {
            (None, None) => Levels::From(Level::Info),
            (Some(level), None) => Levels::From(level),
            (None, Some(only)) => Levels::Only(only),
            (Some(_), Some(_)) => {
                return Err(Contradiction {
                    key: "only",
                    cause: "`level` is this one and the worse, `only` this one alone".to_owned(),
                    hint: Some("leave one out".to_owned()),
                });
            }
        };
        let target = self.to;
        let log = ErrorLog { target, levels };
        draft
            .error_logs
            .push(Placed::new(Wished::This(log), &table.origin));
        Ok(())
    }
}

pub(in super::super) fn add_access_log(draft: &mut Draft, text: &SettingText) -> Set {
    let target = target(&text.text, ACCESS_LOG_TABLE)?;
    let log = target.map_or(Wished::Off, |target| {
        Wished::This(AccessEntry {
            target,
            form: None,
            filter: LogFilter::default(),
        })
    });
    draft.access_logs.push(Placed::new(log, &text.origin));
    Ok(())
}

pub(in super::super) fn add_error_log(draft: &mut Draft, text: &SettingText) -> Set {
    let target = target(&text.text, ERROR_LOG_TABLE)?;
    let log = target.map_or(Wished::Off, |target| {
        let levels = Levels::From(Level::Info);
        Wished::This(ErrorLog { target, levels })
    });
    draft.error_logs.push(Placed::new(log, &text.origin));
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
    draft.config.logs.rotation.compress = COMPRESSIONS[index] == "gzip";
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

/// Where lines go; nothing for `off`. `table` is where options belong.
fn target(text: &str, table: &str) -> Result<Option<LogTarget>, Hint> {
    let target = match text {
        "off" => return Ok(None),
        "" | "on" | "true" | "yes" => {
            return Err(Some("name a file, or `-` for standard output".to_owned()));
        }
        "no" | "none" | "false" => return Err(Some("write `off`".to_owned())),
        text if has_options(text) => {
            return Err(Some(format!(
                "options stand in the configuration file (`--config`), in a table:\n{table}"
            )));
        }
        "-" | "stdout" => LogTarget::Stdout,
        "stderr" => LogTarget::Stderr,
        "journal" | "journald" => return Err(Some(JOURNAL_HINT.to_owned())),
        "syslog" => LogTarget::Syslog(DAEMON),
        text if text.starts_with("syslog:") => LogTarget::Syslog(facility(&text[7..])?),
        folder if folder.ends_with('/') => {
            return Err(Some(format!("name a file: `{folder}milepost.log`")));
        }
        file if file.contains(char::is_control) => return Err(None),
        file => LogTarget::File(PathBuf::from(file)),
    };
    Ok(Some(target))
}

/// `off` is the absence of all tables.
fn target_of_table(text: &str) -> Result<LogTarget, Hint> {
    target(text, ACCESS_LOG_TABLE)?.ok_or_else(|| Some("leave out the table".to_owned()))
}

/// Options behind a target, as they could once be written: a file's name that looks like that is a slip.
fn has_options(text: &str) -> bool {
    const OPTIONS: [&str; 6] = ["format", "route", "status", "slower", "level", "only"];
    let mut words = text.split_whitespace().skip(1);
    words.any(|word| OPTIONS.contains(&word.split('=').next().unwrap_or_default()))
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

/// A route's name; whether there is such a route is asked later. A mount's has no slash at its end, but for
/// the root.
fn route(name: &str) -> Result<String, Hint> {
    match (name.trim_end_matches('/'), name) {
        ("", "") => Err(None),
        ("", _) => Ok("/".to_owned()),
        (name, _) => Ok(name.to_owned()),
    }
}

/// Statuses; `none` is that of an exchange without a reply.
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
        None => Err(None),
    }
}

fn level_of(text: &str) -> Result<Level, Hint> {
    let level = LEVELS.iter().find(|(name, _)| *name == text);
    let near = || nearest(text, LEVELS.map(|(name, _)| name));
    level
        .map(|(_, level)| *level)
        .ok_or_else(|| near().map(|near| format!("did you mean `{near}`?")))
}
