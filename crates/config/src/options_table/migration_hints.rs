//! Settings that have another name here, or none: those of other servers, and our own former ones.
//!
//! Takes a name as gunicorn, uWSGI, uvicorn or granian know it, and a value; gives what there is in its place. Names
//! that are simply accepted everywhere are aliases in the table of settings, not here. Pure.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::{ENVIRONMENT_PREFIX, flag, setting};

/// A line for each; the file says how it is written.
const HINTS: &str = include_str!("migration_hints.txt");

/// What there is in the place of such a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replacement {
    /// A setting that means the same, or a part of one.
    Taken(Target),
    /// Nothing is needed: why.
    Needless(&'static str),
    /// Another setting that has to be chosen on purpose.
    Instead(Target),
    /// Nothing: why, and what to do.
    Nothing(&'static str),
    /// A setting that once had this name.
    Renamed(&'static str),
}

/// A setting, or a part of one (`bind.port`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub key: &'static str,
    /// The value in place of the one that was given, which `{}` stands for; empty: the one that was given.
    value: &'static str,
    /// What is different about it; may be empty.
    pub note: &'static str,
}

/// One line of the file.
#[derive(Debug)]
struct HintLine {
    names: Vec<HintName>,
    instead: Replacement,
}

/// `name`, `name=` or `name=VALUE`
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HintName {
    name: &'static str,
    /// `None`: a switch. Empty: any value.
    values: Option<&'static str>,
}

/// Whether a flag of another server has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignValue {
    /// A switch.
    Never,
    /// Behind `=` only.
    Optional,
    /// Behind `=`, or as the next word.
    Always,
}

/// How the reader of a hint would write a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// `request_timeout`
    Key,
    /// `MILEPOST_REQUEST_TIMEOUT`
    Variable,
}

static LINES: LazyLock<Vec<HintLine>> = LazyLock::new(|| {
    let lines = HINTS.lines();
    let written = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    written.map(HintLine::read).collect()
});

impl HintLine {
    fn read(line: &'static str) -> Self {
        // No sentence has one of the signs with a space on both sides.
        let cut = |sign: &str| line.split_once(sign);
        let (names, instead) = if let Some((names, target)) = cut(" !> ") {
            (names, Replacement::Instead(Target::read(target)))
        } else if let Some((names, target)) = cut(" -> ") {
            (names, Replacement::Taken(Target::read(target)))
        } else if let Some((names, key)) = cut(" => ") {
            (names, Replacement::Renamed(key))
        } else if let Some((names, why)) = cut(" ~ ") {
            (names, Replacement::Needless(why))
        } else {
            let (names, why) = cut(" : ").expect("a line of the file has one of five signs");
            (names, Replacement::Nothing(why))
        };
        let name = |text: &'static str| match text.split_once('=') {
            Some((name, values)) => HintName {
                name,
                values: Some(values),
            },
            None => HintName {
                name: text,
                values: None,
            },
        };
        let names = names.split(' ').map(name).collect();
        Self { names, instead }
    }
}

impl HintName {
    fn fits(&self, value: &str) -> bool {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        match self.values {
            None | Some("") => true,
            Some("NUMBER") => is_number(value),
            Some("MODULE") => !is_number(value) && value.contains(['.', ':']),
            Some("ADDRESS") => is_number(value.rsplit(':').next().unwrap_or(value)),
            Some("PERCENT") => value.contains("%("),
            Some(values) => values.split('|').any(|one| one == value),
        }
    }
}

impl Target {
    fn read(text: &'static str) -> Self {
        let (target, note) = text.split_once(": ").unwrap_or((text, ""));
        let (key, value) = target.split_once('=').unwrap_or((target, ""));
        Self { key, value, note }
    }

    /// The setting with the value that was given.
    pub(crate) fn same(key: &'static str) -> Self {
        let (value, note) = ("", "");
        Self { key, value, note }
    }

    /// The text of the setting for a value that was given.
    pub(crate) fn text(&self, given: &str) -> String {
        match self.value {
            "" => given.to_owned(),
            value => value.replace("{}", given),
        }
    }
}

/// What there is in the place of a flag or a key with this value; `None`: not known here.
pub(crate) fn replacement(name: &str, value: &str) -> Option<Replacement> {
    let fits = |line: &&HintLine| {
        let mut names = line.names.iter();
        names.any(|known| known.name == name && known.fits(value))
    };
    LINES.iter().find(fits).map(|line| line.instead)
}

/// All flags of other servers that this one has not, each once: the key, or for one letter the letter behind a
/// dash, and whether it has a value.
pub fn foreign_flags() -> BTreeMap<&'static str, ForeignValue> {
    let mut flags = BTreeMap::new();
    let names = LINES.iter().flat_map(|line| &line.names);
    for known in names.filter(|known| setting(known.name).is_none()) {
        let value = match known.values {
            None => ForeignValue::Never,
            Some("true") => ForeignValue::Optional,
            Some(_) => ForeignValue::Always,
        };
        // The line with `true` comes first.
        flags.entry(known.name).or_insert(value);
    }
    flags
}

/// The key of a setting with this name or alias, or the name as the file has it; `None`: known to neither.
pub fn known_flag(name: &str) -> Option<&'static str> {
    let own = setting(name);
    let names = || LINES.iter().flat_map(|line| &line.names);
    let foreign = || names().find(|known| known.name == name);
    own.map(|setting| setting.key)
        .or_else(|| foreign().map(|known| known.name))
}

/// The hint for such a name, a key or a flag of one letter with its dash; `None`: not known.
pub fn migration_hint(name: &str, spelling: Spelling) -> Option<String> {
    let has = |line: &&HintLine, is_whole: bool| {
        let mut names = line.names.iter();
        names.any(|known| {
            known.name == name && (!is_whole || known.values.is_none_or(str::is_empty))
        })
    };
    // What is said of any value, else of the first that is named.
    let line = LINES.iter().find(|line| has(line, true));
    let line = line.or_else(|| LINES.iter().find(|line| has(line, false)))?;
    Some(match line.instead {
        Replacement::Nothing(text) => text.to_owned(),
        Replacement::Needless(why) => format!("leave it out: {why}"),
        Replacement::Renamed(key) => match setting(key).filter(|setting| !setting.in_flags()) {
            Some(table) if spelling == Spelling::Variable => {
                let hint = table.table_hint().unwrap_or_default();
                format!("its name is `{key}` now: {hint}")
            }
            _ => format!("its name is `{}` now", spelt(key, spelling)),
        },
        Replacement::Taken(target) | Replacement::Instead(target) => {
            let key = target.key.split('.').next().unwrap_or(target.key);
            let key = match key {
                "jitter" => "recycle_jitter",
                "log" => "access_log_format",
                key => key,
            };
            let said = format!("here it is `{}`", spelt(key, spelling));
            match target.note {
                "" => said,
                note => format!("{said}: {note}"),
            }
        }
    })
}

fn spelt(key: &str, spelling: Spelling) -> String {
    match spelling {
        Spelling::Key => key.to_owned(),
        Spelling::Variable => format!("{ENVIRONMENT_PREFIX}{}", key.to_ascii_uppercase()),
    }
}

/// A name of the file as it is written on a command line.
pub(crate) fn flag_of(name: &str) -> String {
    match name.starts_with('-') {
        true => name.to_owned(),
        false => flag(name),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::SETTINGS;
    use super::*;

    const PARTS: [&str; 9] = [
        "app.mount",
        "app.module",
        "app.file",
        "app.callable",
        "bind.host",
        "bind.port",
        "bind.mode",
        "jitter.requests",
        "log.format",
    ];

    #[test]
    fn names_settings_that_there_are_in_place_of_those_that_are_not() {
        let shorts: Vec<String> = SETTINGS
            .iter()
            .filter_map(|setting| Some(format!("-{}", setting.short?)))
            .collect();
        let mut seen = BTreeSet::new();
        for line in LINES.iter() {
            for known in &line.names {
                assert!(seen.insert(*known), "`{known:?}` is there twice");
                // A name of ours may be here with some values only, which mean something else there.
                let is_any = known.values.is_none_or(str::is_empty);
                // By its key: the alias that was written is not known any more.
                let is_ours =
                    setting(known.name).is_some_and(|own| is_any || own.key != known.name);
                assert!(
                    !is_ours && !shorts.contains(&known.name.to_owned()),
                    "{known:?}"
                );
            }
            let key = match line.instead {
                Replacement::Taken(target) | Replacement::Instead(target) => target.key,
                Replacement::Renamed(key) => key,
                Replacement::Needless(_) | Replacement::Nothing(_) => continue,
            };
            let is_key = setting(key).is_some_and(|setting| setting.key == key);
            assert!(is_key || PARTS.contains(&key), "{key}");
        }
    }

    #[test]
    fn is_a_flag_with_a_value_or_a_switch_but_not_both() {
        for known in LINES.iter().flat_map(|line| &line.names) {
            let is_switch = foreign_flags().get(known.name) == Some(&ForeignValue::Never);
            assert!(!is_switch || known.values.is_none(), "{known:?}");
        }
    }

    #[test]
    fn spells_a_setting_as_its_reader_would() {
        let check = |name, spelling, expect: Option<&str>| {
            assert_eq!(migration_hint(name, spelling).as_deref(), expect, "{name}");
        };
        check("pidfile", Spelling::Key, Some("here it is `pid_file`"));
        let variable = Some("here it is `MILEPOST_PID_FILE`");
        check("pidfile", Spelling::Variable, variable);
        check("backlog", Spelling::Key, None);
        check("reply", Spelling::Key, Some("its name is `respond` now"));
        check("port", Spelling::Key, Some("here it is `bind`"));
    }

    #[test]
    fn chooses_by_the_value() {
        let taken = |name, value: &str| match replacement(name, value) {
            Some(Replacement::Taken(target)) => format!("{} {}", target.key, target.text(value)),
            Some(Replacement::Instead(target)) => {
                format!("! {} {}", target.key, target.text(value))
            }
            other => format!("{other:?}")
                .split('(')
                .next()
                .unwrap_or_default()
                .to_owned(),
        };
        let cases = [
            ("timeout", "0", "request_timeout off"),
            ("timeout", "30", "request_timeout 30"),
            ("http", ":9090", "bind :9090"),
            ("http", "httptools", "Some"),
            ("http", "x.sock", "bind unix:x.sock"),
            ("socket", "x.sock", "! bind unix:x.sock"),
            ("-p", "4", "processes 4"),
            ("-p", "run.pid", "pid_file run.pid"),
            ("processes", "first.wsgi", "! app first.wsgi"),
            ("processes", "4", "None"),
            ("reload_on_rss", "200", "process_resident_max 200M"),
        ];
        for (name, value, expect) in cases {
            assert_eq!(taken(name, value), expect, "{name}={value}");
        }
    }
}
