//! Serving from a program: keyword arguments, whose names are those of the settings, become the command line of
//! `milepost serve`, which is also how each of its processes is started.
//!
//! Takes names and values as texts; gives the command line, and every fault at once instead of printing it.

use std::ffi::OsString;

use config::failure::Failure;
use config::nearest;
use config::options_table::{FlagForm, SETTINGS, Setting, Spelling, migration_hint, setting};

use crate::command::{self, Purpose};
use crate::host::AppHost;
use crate::{serve, usage_errors};

/// A keyword argument.
#[derive(Clone, Debug)]
pub struct Keyword {
    /// Key of a setting, or an alias.
    pub name: String,
    /// Its value.
    pub value: KeywordValue,
}

/// What a keyword argument may hold.
#[derive(Clone, Debug)]
pub enum KeywordValue {
    /// One text, number or switch, as its flag takes it.
    One(String),
    /// Several.
    Many(Vec<String>),
    /// A name with a value each, as `static` and `hooks` take them.
    Pairs(Vec<(String, String)>),
    /// Something else, of a type with this name.
    Other(String),
}

/// A command line made of keyword arguments.
#[derive(Clone, Debug)]
pub struct KeywordArguments {
    /// The words after the program's name.
    pub words: Vec<OsString>,
    faults: Vec<Failure>,
}

impl KeywordArguments {
    /// For an application, or for none.
    pub fn new(app: Option<String>, keywords: &[Keyword]) -> Self {
        let mut words = vec!["serve".to_owned()];
        words.extend(app);
        let mut faults = Vec::new();
        for keyword in keywords {
            match flags(keyword) {
                Ok(flags) => words.extend(flags),
                Err(fault) => faults.push(fault),
            }
        }
        Self {
            words: words.into_iter().map(OsString::from).collect(),
            faults,
        }
    }
}

/// Serves until it is told to stop, and gives the exit code. `host` starts processes by the words of `arguments`.
///
/// # Errors
/// Everything that is wrong with the settings; then nothing was started.
pub fn serve_arguments(
    arguments: &KeywordArguments,
    host: Option<&dyn AppHost>,
) -> Result<i32, Vec<Failure>> {
    let words = std::iter::once(OsString::from("milepost")).chain(arguments.words.iter().cloned());
    let matches = command::command(Purpose::Run).try_get_matches_from(words);
    let matches = matches.map_err(|error| vec![Failure::from(usage_errors::message(&error))])?;
    let (_, matches) = matches.subcommand().expect("the first word is `serve`");
    if arguments.faults.is_empty() {
        return serve::from_program(matches, host);
    }
    let more = serve::faults(matches);
    Err(arguments.faults.iter().cloned().chain(more).collect())
}

/// The flags of one keyword argument.
fn flags(keyword: &Keyword) -> Result<Vec<String>, Failure> {
    let name = keyword.name.as_str();
    let fault = |cause: &str| Failure::new(format!("`{name}`: {cause}"));
    let Some(setting) = setting(name) else {
        // A name of another server is answered by its name here, and only else by a similar spelling.
        let hint = migration_hint(name, Spelling::Key).or_else(|| {
            let keys = SETTINGS.iter().map(|setting| setting.key);
            nearest(name, keys).map(|near| format!("did you mean `{near}`?"))
        });
        let failure = fault("unknown setting");
        return Err(Failure { hint, ..failure });
    };
    if !setting.in_flags() {
        let cause = "a setting of several parts is no keyword argument";
        let hint = setting.table_hint().unwrap_or_default();
        return Err(fault(cause).with_hint(hint.replace("`--config`", "`config=`")));
    }
    let one = |value: &str| flag(setting, value);
    let is_list = setting.form() == FlagForm::Repeated;
    match &keyword.value {
        KeywordValue::One(value) => Ok(vec![one(value)]),
        KeywordValue::Many(values) if is_list => {
            Ok(values.iter().map(|value| one(value)).collect())
        }
        KeywordValue::Many(values) if setting.is_joined() => Ok(vec![one(&values.join(","))]),
        KeywordValue::Pairs(pairs) if setting.has_pairs() => Ok(pairs
            .iter()
            .map(|(name, value)| one(&format!("{name}={value}")))
            .collect()),
        KeywordValue::Many(_) => Err(unexpected(setting, name, "a list")),
        KeywordValue::Pairs(_) => Err(unexpected(setting, name, "a dictionary")),
        KeywordValue::Other(kind) => Err(unexpected(
            setting,
            name,
            &format!("an object of type `{kind}`"),
        )),
    }
}

/// With `=`, because a value may begin with a dash.
fn flag(setting: &Setting, value: &str) -> String {
    match setting.form() {
        FlagForm::Argument => value.to_owned(),
        FlagForm::Once | FlagForm::Repeated | FlagForm::Switch => {
            format!("{}={value}", setting.flag())
        }
    }
}

fn unexpected(setting: &Setting, name: &str, found: &str) -> Failure {
    Failure::new(format!(
        "`{name}`: expected {}, found {found}",
        setting.expected()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyword(name: &str, value: KeywordValue) -> Keyword {
        Keyword {
            name: name.to_owned(),
            value,
        }
    }

    #[test]
    fn writes_the_flags_that_a_user_would() {
        let texts = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
        let keywords = [
            keyword("bind", KeywordValue::Many(texts(&[":1", ":2"]))),
            keyword("workers", KeywordValue::One("2".into())),
            keyword("preload", KeywordValue::One("true".into())),
            keyword(
                "static",
                KeywordValue::Pairs(vec![("/s".into(), "dir".into())]),
            ),
            keyword(
                "static_encodings",
                KeywordValue::Many(texts(&["br", "gzip"])),
            ),
        ];
        let made = KeywordArguments::new(Some("shop:app".into()), &keywords);
        assert_eq!(made.faults, []);
        let expect = "serve shop:app --bind=:1 --bind=:2 --processes=2 --preload=true --static=/s=dir \
                      --static-encodings=br,gzip";
        let words: Vec<_> = expect.split_whitespace().map(OsString::from).collect();
        assert_eq!(made.words, words);
    }

    #[test]
    fn says_what_is_wrong_with_a_keyword() {
        let check = |name: &str, value: KeywordValue, cause: &str, hint: &str| {
            let fault = flags(&keyword(name, value)).unwrap_err();
            assert!(fault.message.contains(cause), "{}", fault.message);
            let said = fault.hint.unwrap_or_default();
            assert!(said.contains(hint), "{said}");
        };
        let one = || KeywordValue::One("3".into());
        check("thraeds", one(), "unknown setting", "`threads`");
        check("redirect", one(), "several parts", "`config=`");
        let list = KeywordValue::Many(vec!["3".into()]);
        check("backlog", list, "found a list", "");
        let other = KeywordValue::Other("set".into());
        check("threads", other, "type `set`", "");
        let pairs = KeywordValue::Pairs(Vec::new());
        check("bind", pairs, "a dictionary", "");
    }
}
