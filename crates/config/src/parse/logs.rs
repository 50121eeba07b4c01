//! Logs: where lines go, which ones, their form, when files are renewed.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::Deserialize;
use telemetry::{Nanos, Template};

use super::value::{self, Unit};
use super::{Hint, did_you_mean, hinted, one_of, or_off, quoted, smaller_first, span_or_off};
use crate::nearest;
use crate::options_table::{K, SECOND, YEAR};
use crate::tables::{Contradiction, Structure, keys};
use crate::typed::{ErrorLogForm, Level, Levels, LogForm, LogTarget};

/// What an access log is.
pub(crate) const ACCESS_LOG: &str =
    "a target (as `access.log`, `-`, `stderr`, `syslog:local0`), `auto` or `off`";
/// What an error log is.
pub(crate) const ERROR_LOG: &str =
    "a target (as `error.log`, `-`, `stderr`, `syslog:local0`), or `off`";
/// The forms of error logs by their names.
pub(crate) const ERROR_FORMS: [(&str, ErrorLogForm); 2] =
    [("text", ErrorLogForm::Text), ("json", ErrorLogForm::Json)];
/// An access log with a filter.
pub(crate) const ACCESS_LOG_TABLE: &str = "\
[[access_log]]
to = \"slow.log\"
format = \"json\"
status = [\"5xx\", 404]
slower = \"1s\"";
/// An error log of some levels.
pub(crate) const ERROR_LOG_TABLE: &str = "\
[[error_log]]
to = \"error.log\"
format = \"json\"
level = \"warning\"";
/// What a form is.
pub(crate) const FORM: &str =
    "`phases`, `combined`, `common`, `json`, `naviserver`, or a text with `{field}`s";
/// The forms that have names.
pub(crate) const FORM_NAMES: &[&str] = &["phases", "combined", "common", "json", "naviserver"];

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
keys! {
    to: one(target_of_table) -> LogTarget, "a target (as `access.log`, `-`, `stderr`, `syslog:local0`)";
    format: one(form) -> LogForm, FORM;
    error_format: one(|text| one_of(text, ERROR_FORMS)) -> ErrorLogForm, "`text` or `json`";
    routes: many(route) -> Vec<String>, "names of routes (as `app`, `[\"app\", \"/static\"]`)";
    statuses: many(status) -> Vec<RangeInclusive<u16>>, "statuses (as `404`, `[\"5xx\", \"400-499\"]`, `none`)";
    slower: one(|text| value::duration(text).ok_or(None)) -> Nanos, "a duration (as `500ms`, `1s`)";
    level: one(level_of) -> Level, "one of `error`, `warning`, `info`";
}

/// `[[access_log]]`: a log of the requests that fit all its keys.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccessLogTable {
    #[serde(deserialize_with = "to")]
    pub to: LogTarget,
    /// `None`: that of all which name none.
    #[serde(default, deserialize_with = "format")]
    pub format: Option<LogForm>,
    #[serde(default, deserialize_with = "routes")]
    pub route: Vec<String>,
    #[serde(default, deserialize_with = "statuses")]
    pub status: Vec<RangeInclusive<u16>>,
    #[serde(default, deserialize_with = "slower")]
    pub slower: Nanos,
    /// Only if `to` is a terminal: `auto`.
    #[serde(skip)]
    pub is_for_terminal: bool,
}

/// `[[error_log]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ErrorLogTable {
    #[serde(deserialize_with = "to")]
    pub to: LogTarget,
    /// `None`: that of all which name none.
    #[serde(default, deserialize_with = "error_format")]
    pub format: Option<ErrorLogForm>,
    /// This one and the worse.
    #[serde(default, deserialize_with = "level")]
    level: Option<Level>,
    /// This one alone.
    #[serde(default, deserialize_with = "level")]
    only: Option<Level>,
}

impl From<LogTarget> for AccessLogTable {
    fn from(to: LogTarget) -> Self {
        let (format, slower) = (None, Nanos(0));
        let (route, status) = (Vec::new(), Vec::new());
        Self {
            to,
            format,
            route,
            status,
            slower,
            is_for_terminal: false,
        }
    }
}

impl AccessLogTable {
    /// What a text means; nothing for `off`.
    pub(crate) fn from_text(text: &str) -> Result<Option<Self>, Hint> {
        match text {
            "auto" => Ok(Some(Self::auto())),
            text => Ok(target(text, ACCESS_LOG_TABLE)?.map(Self::from)),
        }
    }

    /// Standard output if it is a terminal.
    pub(crate) fn auto() -> Self {
        Self {
            is_for_terminal: true,
            ..Self::from(LogTarget::Stdout)
        }
    }
}

impl From<LogTarget> for ErrorLogTable {
    fn from(to: LogTarget) -> Self {
        let (format, level, only) = (None, None, None);
        Self {
            to,
            format,
            level,
            only,
        }
    }
}

impl ErrorLogTable {
    /// What a text means; nothing for `off`.
    pub(crate) fn from_text(text: &str) -> Result<Option<Self>, Hint> {
        Ok(target(text, ERROR_LOG_TABLE)?.map(Self::from))
    }

    /// The levels of its lines; `least` and worse where none is named.
    pub(crate) fn levels(&self, least: Level) -> Levels {
        let from = Levels::From(self.level.unwrap_or(least));
        self.only.map_or(from, Levels::Only)
    }
}

impl Structure for AccessLogTable {}

impl Structure for ErrorLogTable {
    fn contradiction(&self) -> Option<Contradiction> {
        (self.level.is_some() && self.only.is_some()).then(|| Contradiction {
            key: "only",
            cause: "`level` is this one and the worse, `only` this one alone".to_owned(),
            hint: "leave one out".to_owned(),
        })
    }
}

/// Old files are this large at least: a smaller number is one without its unit.
pub(crate) fn rotate_size(text: &str) -> Result<Option<u64>, Hint> {
    let unit_hint = |hint: Hint| match value::size(text) {
        Some(bytes @ 1..) => Some(format!("`{bytes}M` would be more")),
        _ => hint,
    };
    or_off(text, Unit::Size, 4 * K..=u64::MAX, "for never").map_err(unit_hint)
}

/// How many old files are kept.
pub(crate) fn keep_len(text: &str) -> Result<Option<usize>, Hint> {
    let count = or_off(text, Unit::Count, 1..=1_000_000, "to keep all of them")?;
    Ok(count.map(|count| count as usize))
}

/// From a second, because old files are named by it; `zero` is as for [`or_off`].
pub(crate) fn interval(text: &str, zero: &str) -> Result<Option<Nanos>, Hint> {
    let hint = match text {
        "hourly" => "write `1h`",
        "daily" => "write `1d`",
        "weekly" => "write `7d`",
        _ => return span_or_off(text, SECOND..=YEAR, zero),
    };
    Err(Some(hint.to_owned()))
}

/// Where lines go; nothing for `off`. `table` is where options belong.
pub(crate) fn target(text: &str, table: &str) -> Result<Option<LogTarget>, Hint> {
    let target = match text {
        "off" => return Ok(None),
        "" | "on" | "true" | "yes" => {
            return hinted("name a file, or `-` for standard output");
        }
        "no" | "none" | "false" => return hinted("write `off`"),
        text if has_options(text) => {
            return hinted(format!(
                "options stand in the configuration file (`--config`), in a table:\n{table}"
            ));
        }
        "-" | "stdout" => LogTarget::Stdout,
        "stderr" => LogTarget::Stderr,
        "journal" | "journald" => return Err(Some(JOURNAL_HINT.to_owned())),
        "syslog" => LogTarget::Syslog(DAEMON),
        text if text.starts_with("syslog:") => LogTarget::Syslog(facility(&text[7..])?),
        folder if folder.ends_with('/') => {
            return hinted(format!("name a file: `{folder}milepost.log`"));
        }
        // A file may have such a name, but it would damage each message that names it.
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
    // A target with spaces is a file's name, unless a word behind the first is an option's.
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
        None => format!("no facility `{name}`: there are {}", quoted(FACILITIES)),
    }))
}

/// The form of an access log's lines.
pub(crate) fn form(text: &str) -> Result<LogForm, Hint> {
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
        // The templates of gunicorn and nginx.
        text if text.contains("%(") || text.contains('$') => {
            return hinted("fields stand in braces, as `{peer} {status} {total}`");
        }
        text => {
            let all = || {
                format!(
                    "the forms are {}, or a text with `{{field}}`s",
                    quoted(FORM_NAMES)
                )
            };
            return Err(did_you_mean(text, FORM_NAMES.iter().copied()).or_else(|| Some(all())));
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
        Some((first, last)) if first > last => Err(smaller_first(first, last, '-')),
        Some((first, last)) if first >= 100 && last <= 599 => Ok(first..=last),
        Some(_) => hinted("statuses are from 100 to 599"),
        None => Err(None),
    }
}

fn level_of(text: &str) -> Result<Level, Hint> {
    let levels = [
        ("error", Level::Error),
        ("warning", Level::Warning),
        ("info", Level::Info),
    ];
    one_of(text, levels)
}
