//! Wrong use of the command line: clap's errors in the form of our messages, with the nearest known name.
//!
//! Takes an error and gives a message. Prints nothing.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Command, Error};
use config::nearest;
use config::options_table::{FlagForm, SETTINGS, Setting, setting};

use crate::command::{Purpose, command};
use crate::message::Message;
use crate::{bench, report, whatif};

/// `--help` and `--version` come as errors too.
pub(crate) fn is_answer(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    )
}

/// All unknown flags at once, with what else is wrong then; for any other wrong use its message. `words` are those of
/// the command line that is wrong.
pub(crate) fn messages(error: Error, mut words: Vec<OsString>) -> Vec<Message> {
    let is_for_flag = unknown(&error).is_some_and(|word| word.starts_with('-'));
    if error.kind() == ErrorKind::UnknownArgument
        && !is_for_flag
        && let Some(message) = value_of_switch(&words)
    {
        return vec![message];
    }
    let mut messages = vec![message(&error)];
    let mut error = error;
    // The parser stops at the first.
    while is_for_flag
        && let Some(word) = unknown(&error)
        && remove(&mut words, &word)
    {
        match command(Purpose::Run).try_get_matches_from(&words) {
            Err(next) => {
                // Else it is the value of a flag that was left out, perhaps.
                let said = message(&next);
                let is_flag = unknown(&next).is_some_and(|word| word.starts_with('-'));
                if is_flag && !messages.contains(&said) {
                    messages.push(said);
                }
                error = next;
            }
            Ok(matches) => {
                messages.extend(refused(&matches));
                break;
            }
        }
    }
    messages
}

/// The flag that is unknown, or the argument that is one too many.
fn unknown(error: &Error) -> Option<String> {
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) => Some(word.clone()),
        _ => None,
    }
}

/// Takes the word away, a flag with the value that is attached to it.
fn remove(words: &mut Vec<OsString>, unknown: &str) -> bool {
    let is_it = |word: &OsString| {
        let word = word.to_string_lossy();
        let is_letter = unknown.starts_with('-') && !unknown.starts_with("--");
        word.strip_prefix(unknown)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('=') || is_letter)
    };
    let place = words.iter().rposition(is_it);
    place.map(|place| words.remove(place)).is_some()
}

/// `--factory true`: the second word is taken for an application.
fn value_of_switch(words: &[OsString]) -> Option<Message> {
    words.windows(2).find_map(|pair| {
        let (flag, value) = (pair[0].to_str()?, pair[1].to_str()?);
        let setting = setting(&flag.strip_prefix("--")?.replace('-', "_"))?;
        if setting.form() != FlagForm::Switch {
            return None;
        }
        let hint = match value {
            "true" => format!("write `{flag}` or `{flag}=true`"),
            "false" => format!("write `{flag}=false`"),
            _ => return None,
        };
        Some(Message::new(&format!("`{value}`"), "one argument too many").with_hint(hint))
    })
}

/// Flags of other servers that are refused, without a corrected line: it would lack what is unknown.
fn refused(matches: &ArgMatches) -> Vec<Message> {
    let Some(("serve" | "check", matches)) = matches.subcommand() else {
        return Vec::new();
    };
    let faults = config::refused_flags(&crate::command::flags(matches));
    let message = |fault: &config::ConfigFault| Message::from_text(fault.to_string());
    faults.iter().map(message).collect()
}

/// The message for a wrong use.
pub(crate) fn message(error: &Error) -> Message {
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(" "),
        _ => String::new(),
    };
    let arg = word(ContextKind::InvalidArg);
    match error.kind() {
        ErrorKind::ArgumentConflict if !word(ContextKind::InvalidSubcommand).is_empty() => {
            // A second URL, which clap takes for a command.
            surplus_argument(&word(ContextKind::InvalidSubcommand), error)
        }
        ErrorKind::InvalidSubcommand => unknown_command(&word(ContextKind::InvalidSubcommand)),
        ErrorKind::UnknownArgument if arg.starts_with('-') => unknown_flag(&arg, error),
        ErrorKind::UnknownArgument => surplus_argument(&arg, error),
        ErrorKind::InvalidValue if word(ContextKind::InvalidValue).is_empty() => {
            missing_value(&arg)
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => wrong_value(
            &arg,
            &word(ContextKind::InvalidValue),
            &word(ContextKind::ValidValue),
        ),
        ErrorKind::MissingRequiredArgument => {
            let name = arg.trim_matches(['<', '>', '.']);
            let example = match name {
                "SHELL" => "`milepost completions bash`",
                "FILE" if used(error, &command(Purpose::Run)).1 == "milepost convert" => {
                    "`milepost convert gunicorn.conf.py`"
                }
                _ => "`milepost bench compare before.json after.json`",
            };
            Message::new(&format!("`{name}`"), "is missing").with_hint(example)
        }
        ErrorKind::InvalidUtf8 => Message::new("command line", "an argument is not UTF-8"),
        _ => Message::new("command line", first_line(error)).with_hint("see `milepost --help`"),
    }
}

fn unknown_command(word: &str) -> Message {
    let command = command(Purpose::Run);
    let names = || command.get_subcommands().map(clap::Command::get_name);
    let hint = match nearest(word, names()) {
        _ if is_module(word) => {
            format!("`milepost serve {word}` serves the module `{word}`")
        }
        Some(near) => format!("did you mean `milepost {near}`?"),
        None if word.contains("://") => format!("to load a server: `milepost bench {word}`"),
        None => format!(
            "the commands are {}",
            names().collect::<Vec<_>>().join(", ")
        ),
    };
    Message::new(&format!("`{word}`"), "unknown command").with_hint(hint)
}

/// Whether the working folder holds a module or a package of this name.
fn is_module(name: &str) -> bool {
    let is_name =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    let path = PathBuf::from(name.replace('.', "/"));
    name.split('.').all(is_name)
        && (path.with_extension("py").is_file() || path.join("__init__.py").is_file())
}

fn unknown_flag(flag: &str, error: &Error) -> Message {
    let message = Message::new(&format!("`{flag}`"), "unknown flag");
    let mut root = command(Purpose::Run);
    root.build();
    let (used, path) = used(error, &root);
    let word = flag.trim_start_matches('-').replace('-', "_");
    let is_served = ["serve", "check"].contains(&used.get_name());
    let hint = respelt(flag, &word)
        .filter(|_| is_served)
        .or_else(|| belongs(flag, used, &root))
        .or_else(|| {
            negated(&word)
                .filter(|_| is_served)
                .map(|near| did_you_mean(&near))
        })
        .or_else(|| Some(did_you_mean(&as_flag(nearest(&word, own_flags(used))?))));
    message.with_hint(hint.unwrap_or_else(|| format!("`{path} --help` lists all flags")))
}

fn did_you_mean(flag: &str) -> String {
    format!("did you mean `{flag}`?")
}

/// A setting in another spelling, or one that is a table.
fn respelt(flag: &str, word: &str) -> Option<String> {
    let setting = setting(word).filter(|_| flag.starts_with("--"))?;
    match setting.in_flags() {
        true => Some(did_you_mean(&setting.flag())),
        false => setting.table_hint(),
    }
}

/// A flag that another command has, and this one has nothing of that name.
fn belongs(flag: &str, used: &Command, root: &Command) -> Option<String> {
    let name = flag.strip_prefix("--")?;
    let mut others = root
        .get_subcommands()
        .filter(|other| other.get_name() != used.get_name());
    let other = others.find(|other| own_flags(other).any(|long| long == name))?;
    let other = other.get_name();
    Some(format!(
        "it belongs to a command: `milepost {other} {flag} ...`"
    ))
}

/// Names of all flags of a command, without those of other servers.
fn own_flags(command: &Command) -> impl Iterator<Item = &str> {
    let own = command.get_arguments().filter(|arg| !arg.is_hide_set());
    own.flat_map(|arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        arg.get_long().into_iter().chain(aliases)
    })
}

/// `--no-nodelay` is how others switch off.
fn negated(word: &str) -> Option<String> {
    let setting = setting(word.strip_prefix("no_")?)?;
    let off = match setting.choices().is_empty() {
        true => "off",
        false => "false",
    };
    Some(format!("{}={off}", setting.flag()))
}

fn as_flag(key: &str) -> String {
    format!("--{}", key.replace('_', "-"))
}

/// The command that was used, and how it is called.
fn used<'r>(error: &Error, root: &'r Command) -> (&'r Command, String) {
    let usage = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string(),
        _ => String::new(),
    };
    let (mut command, mut path) = (root, "milepost".to_owned());
    let words = usage.split_whitespace();
    for word in words.skip_while(|word| *word != "milepost").skip(1) {
        let Some(next) = command.find_subcommand(word) else {
            break;
        };
        command = next;
        path = format!("{path} {word}");
    }
    (command, path)
}

fn surplus_argument(word: &str, error: &Error) -> Message {
    let root = command(Purpose::Run);
    let (_, path) = used(error, &root);
    let quotes = "a flag's value with spaces needs quotes";
    let hint = match path.as_str() {
        "milepost bench" => format!("one URL is asked; {quotes}"),
        "milepost serve" | "milepost check" => format!("one application is served; {quotes}"),
        path => format!("`{path} --help` shows what it takes"),
    };
    Message::new(&format!("`{word}`"), "one argument too many").with_hint(hint)
}

fn missing_value(arg: &str) -> Message {
    let flag = arg.split([' ', '=', '[']).next().unwrap_or(arg);
    let setting = SETTINGS.iter().find(|setting| setting.flag() == flag);
    let message = Message::new(&format!("`{flag}`"), "a value is missing");
    let expected = setting
        .map(Setting::expected)
        .or_else(|| expected_by(&report::command(), flag))
        .or_else(|| expected_by(&bench::command(Purpose::Run), flag))
        .or_else(|| expected_by(&whatif::command(), flag));
    message.with_hint_maybe(expected.map(|expected| format!("expected {expected}")))
}

/// What a flag of this subcommand wants.
fn expected_by(command: &Command, flag: &str) -> Option<String> {
    let name = flag.trim_start_matches('-');
    let arg = command
        .get_arguments()
        .find(|arg| arg.get_long() == Some(name))?;
    if name == "pid" {
        return Some("the process id of a server".to_owned());
    }
    let value = arg.get_value_names()?.first()?;
    Some(format!("{value}: {}", arg.get_help()?))
}

fn wrong_value(arg: &str, found: &str, valid: &str) -> Message {
    let name = arg
        .split(' ')
        .next()
        .unwrap_or(arg)
        .trim_matches(['<', '>']);
    let expected = format!("one of {}", valid.replace(' ', ", "));
    let near = nearest(found, valid.split(' '));
    Message::new(
        &format!("`{name}`"),
        format!("expected {expected}, found `{found}`"),
    )
    .with_hint_maybe(near.map(|near| format!("did you mean `{near}`?")))
}

fn first_line(error: &Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of use, each with its message behind `=>`.
    #[track_caller]
    fn check(cases: &str) {
        let cases: Vec<&str> = cases
            .lines()
            .map(str::trim)
            .filter(|case| !case.is_empty())
            .collect();
        let found = cases.iter().map(|case| {
            let (line, _) = case.split_once(" => ").expect("a line and its message");
            let words = std::iter::once("milepost").chain(line.split_whitespace());
            let error = command(Purpose::Run)
                .try_get_matches_from(words)
                .expect_err(line);
            let text = message(&error)
                .text()
                .trim_end()
                .replace("\nhint: ", " > ")
                .replace('\n', " | ");
            format!(
                "{line} => {}",
                text.strip_prefix("milepost: ").unwrap_or(&text)
            )
        });
        assert_eq!(found.collect::<Vec<_>>().join("\n"), cases.join("\n"));
    }

    macro_rules! said {
        { $cases:literal } => {
            check($cases)
        };
    }

    #[test]
    fn shows_the_table_of_a_setting_without_a_flag() {
        said! { r#"
        serve --redirect /a=/b shop:app => `--redirect`: unknown flag > it stands in the configuration file (`--config`), as a table: | [[redirect]] | from = "/old/*" | to = "/new/*" | status = 301
        "# }
    }

    #[test]
    fn names_what_was_probably_meant() {
        said! { r"
        srve a:b => `srve`: unknown command > did you mean `milepost serve`?
        zzz => `zzz`: unknown command > the commands are serve, check, doctor, convert, init, trust, stop, reload, reopen, upgrade, scale, status, top, report, whatif, bench, tune, completions, reference, help, version
        serve --acept-batch 3 => `--acept-batch`: unknown flag > did you mean `--accept-batch`?
        serve --max-conections=3 => `--max-conections`: unknown flag > did you mean `--max-connections`?
        status --watch => `--watch`: unknown flag > `milepost status --help` lists all flags
        report --bogus => `--bogus`: unknown flag > `milepost report --help` lists all flags
        stop -x => `-x`: unknown flag > `milepost stop --help` lists all flags
        serve --admin-sokcet x => `--admin-sokcet`: unknown flag > `milepost serve --help` lists all flags
        report --timeout 3 => `--timeout`: unknown flag > it belongs to a command: `milepost bench --timeout ...`
        whatif --objectiv x => `--objectiv`: unknown flag > did you mean `--objective`?
        serve --objective x => `--objective`: unknown flag > it belongs to a command: `milepost whatif --objective ...`
        serve --no-nodelay => `--no-nodelay`: unknown flag > did you mean `--nodelay=false`?
        serve --no-error-log => `--no-error-log`: unknown flag > did you mean `--error-log=off`?
        serve --quux => `--quux`: unknown flag > `milepost serve --help` lists all flags
        serve -x => `-x`: unknown flag > `milepost serve --help` lists all flags
        serve --accept_batch 3 => `--accept_batch`: unknown flag > did you mean `--accept-batch`?
        bench --quux http://h/ => `--quux`: unknown flag > `milepost bench --help` lists all flags
        bench compare => `FILE`: is missing > `milepost bench compare before.json after.json`
        completions bsh => `SHELL`: expected one of bash, elvish, fish, powershell, zsh, found `bsh` > did you mean `bash`?
        " }
    }

    #[test]
    fn says_what_is_missing_or_too_much() {
        said! { r"
        serve --threads => `--threads`: a value is missing > expected MIN:MAX or one number, from 1 to 4096
        serve a:b c:d => `c:d`: one argument too many > one application is served; a flag's value with spaces needs quotes
        bench http://a/ b => `b`: one argument too many > one URL is asked; a flag's value with spaces needs quotes
        bench --rat 5 => `--rat`: unknown flag > did you mean `--rate`?
        http://a/ => `http://a/`: unknown command > to load a server: `milepost bench http://a/`
        serve --connect-rate 5 => `--connect-rate`: unknown flag > it belongs to a command: `milepost bench --connect-rate ...`
        completions => `SHELL`: is missing > `milepost completions bash`
        version --bind => `--bind`: unknown flag > it belongs to a command: `milepost serve --bind ...`
        " }
    }

    #[test]
    fn lets_help_and_version_be_answers() {
        for line in "--help|-h|--version|-V|serve --help|check -h".split('|') {
            let words = std::iter::once("milepost").chain(line.split_whitespace());
            let found = command(Purpose::Run).try_get_matches_from(words);
            assert!(is_answer(&found.expect_err(line)), "{line}");
        }
    }
}
