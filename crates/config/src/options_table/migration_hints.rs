//! Settings that have another name here, or none: those of other servers, and our own former ones.
//!
//! Takes a name as gunicorn, uWSGI, uvicorn or granian know it, gives the setting or a sentence. Names that
//! are simply accepted are aliases in the table of settings, not here. Pure.

use super::{ENVIRONMENT_PREFIX, flag, setting};

/// A line for each; the file says how it is written.
const HINTS: &str = include_str!("migration_hints.txt");

/// What is there in the place of such a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replacement {
    /// A setting, and what is different about it; may be empty.
    Setting(&'static str, &'static str),
    /// No setting: why, and what to do.
    Nothing(&'static str),
    /// A setting that once had this name.
    Renamed(&'static str),
}

use Replacement::{Nothing, Renamed, Setting};

/// How the reader of a hint would write a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// `--request-timeout`
    Flag,
    /// `request_timeout`
    Key,
    /// `MILEPOST_REQUEST_TIMEOUT`
    Variable,
}

/// All names, and what there is in their place.
fn hints() -> impl Iterator<Item = (&'static str, Replacement)> {
    let lines = HINTS.lines();
    let written = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    written.map(|line| {
        let cut = |sign: &str| line.split_once(sign);
        // No sentence has one of the signs with a space on both sides.
        if let Some((names, text)) = cut(" : ") {
            return (names, Nothing(text));
        }
        if let Some((names, key)) = cut(" => ") {
            return (names, Renamed(key));
        }
        let (names, setting) = cut(" -> ").expect("a line of the file has one of three signs");
        let (key, note) = setting.split_once(": ").unwrap_or((setting, ""));
        (names, Setting(key, note))
    })
}

/// The hint for such a name, a key or a flag of one letter with its dash; `None`: not known.
pub fn migration_hint(name: &str, spelling: Spelling) -> Option<String> {
    let (_, instead) = hints().find(|(names, _)| names.split(' ').any(|known| known == name))?;
    if let Setting(key, _) | Renamed(key) = instead {
        assert!(
            setting(key).is_some(),
            "a hint names `{key}`, which is no setting"
        );
    }
    Some(match instead {
        Nothing(text) => text.to_owned(),
        Renamed(key) => match setting(key).filter(|setting| !setting.in_flags()) {
            Some(table) if spelling != Spelling::Key => {
                let hint = table.table_hint().unwrap_or_default();
                format!("its name is `{key}` now: {hint}")
            }
            _ => format!("its name is `{}` now", spelt(key, spelling)),
        },
        Setting(key, "") => format!("here it is `{}`", spelt(key, spelling)),
        Setting(key, note) => format!("here it is `{}`: {note}", spelt(key, spelling)),
    })
}

fn spelt(key: &str, spelling: Spelling) -> String {
    match spelling {
        Spelling::Flag => flag(key),
        Spelling::Key => key.to_owned(),
        Spelling::Variable => format!("{ENVIRONMENT_PREFIX}{}", key.to_ascii_uppercase()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::SETTINGS;
    use super::*;

    #[test]
    fn names_settings_that_there_are_in_place_of_those_that_are_not() {
        let shorts: Vec<String> = SETTINGS
            .iter()
            .filter_map(|setting| Some(format!("-{}", setting.short?)))
            .collect();
        let mut seen = BTreeSet::new();
        for (names, instead) in hints() {
            for name in names.split(' ') {
                assert!(seen.insert(name), "`{name}` is there twice");
                let is_ours = setting(name).is_some() || shorts.contains(&name.to_owned());
                assert!(!is_ours, "`{name}` is ours");
            }
            if let Setting(key, _) | Renamed(key) = instead {
                let known = setting(key).map(|setting| setting.key);
                assert_eq!(known, Some(key));
            }
        }
    }

    #[test]
    fn spells_a_setting_as_its_reader_would() {
        let check = |name, spelling, expect: Option<&str>| {
            assert_eq!(migration_hint(name, spelling).as_deref(), expect);
        };
        check("pidfile", Spelling::Flag, Some("here it is `--pid-file`"));
        check("pidfile", Spelling::Key, Some("here it is `pid_file`"));
        let variable = Some("here it is `MILEPOST_PID_FILE`");
        check("pidfile", Spelling::Variable, variable);
        let both = Some("of gunicorn it is `--pid-file`, of uWSGI `--processes`");
        check("-p", Spelling::Flag, both);
        check("backlog", Spelling::Key, None);
        let renamed = Some("its name is `--body-memory-max` now");
        check("readahead", Spelling::Flag, renamed);
        check("reply", Spelling::Key, Some("its name is `respond` now"));
    }
}
