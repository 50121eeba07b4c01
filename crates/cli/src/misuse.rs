//! Misuse of the command line: clap's errors in the form of our messages, with the nearest known name.
//!
//! Takes an error and gives a message. Prints nothing.

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use server::config::nearest;
use server::config::written::{SETTINGS, Setting, setting};

use crate::command::{Purpose, command};
use crate::message::Message;

/// `--help` and `--version` come as errors too.
pub(crate) fn is_answer(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    )
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
        ErrorKind::InvalidSubcommand => unknown_command(&word(ContextKind::InvalidSubcommand)),
        ErrorKind::UnknownArgument if arg.starts_with('-') => unknown_flag(&arg),
        ErrorKind::UnknownArgument => surplus_argument(&arg),
        ErrorKind::InvalidValue if word(ContextKind::InvalidValue).is_empty() => {
            missing_value(&arg)
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => wrong_value(
            &arg,
            &word(ContextKind::InvalidValue),
            &word(ContextKind::ValidValue),
        ),
        ErrorKind::MissingRequiredArgument => {
            Message::new(&format!("`{}`", arg.trim_matches(['<', '>'])), "is missing")
                .with_hint("`milepost completions bash`")
        }
        ErrorKind::InvalidUtf8 => Message::new("command line", "an argument is not UTF-8"),
        _ => Message::new("command line", first_line(error)).with_hint("see `milepost --help`"),
    }
}

fn unknown_command(word: &str) -> Message {
    let command = command(Purpose::Run);
    let near = nearest(word, command.get_subcommands().map(clap::Command::get_name));
    let hint = match near {
        Some(near) => format!("did you mean `milepost {near}`?"),
        None if word.contains(':') => format!("to serve an application: `milepost serve {word}`"),
        None => {
            let names: Vec<&str> = command
                .get_subcommands()
                .map(clap::Command::get_name)
                .collect();
            format!("the commands are {}", names.join(", "))
        }
    };
    Message::new(&format!("`{word}`"), "unknown command").with_hint(hint)
}

fn unknown_flag(flag: &str) -> Message {
    let message = Message::new(&format!("`{flag}`"), "unknown flag");
    let word = flag.trim_start_matches('-').replace('-', "_");
    let others = SETTINGS
        .iter()
        .flat_map(|setting| setting.aliases.iter().copied());
    let known = SETTINGS
        .iter()
        .map(|setting| setting.key)
        .chain(others)
        .chain(["help", "version"]);
    let hint = match setting(&word) {
        // Known after all, only not by this command.
        Some(setting) => format!(
            "it belongs to a command: `milepost serve {} ...`",
            setting.flag()
        ),
        None => match negated(&word).or_else(|| nearest(&word, known).map(as_flag)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`milepost serve --help` lists all flags".to_owned(),
        },
    };
    message.with_hint(hint)
}

/// `--no-nodelay` is how others switch off.
fn negated(word: &str) -> Option<String> {
    let setting = setting(word.strip_prefix("no_")?)?;
    Some(format!(
        "{}={}",
        setting.flag(),
        if setting.choices().is_empty() {
            "off"
        } else {
            "false"
        }
    ))
}

fn as_flag(key: &str) -> String {
    format!("--{}", key.replace('_', "-"))
}

fn surplus_argument(word: &str) -> Message {
    Message::new(&format!("`{word}`"), "one argument too many")
        .with_hint("one application is served; a flag's value with spaces needs quotes")
}

fn missing_value(arg: &str) -> Message {
    let flag = arg.split([' ', '=', '[']).next().unwrap_or(arg);
    let known: Option<&Setting> = SETTINGS.iter().find(|setting| setting.flag() == flag);
    let message = Message::new(&format!("`{flag}`"), "a value is missing");
    message.with_hint_maybe(known.map(|setting| format!("expected {}", setting.expected())))
}

fn wrong_value(arg: &str, found: &str, valid: &str) -> Message {
    let name = arg.trim_matches(['<', '>']);
    let expected = if valid.is_empty() {
        "another value".to_owned()
    } else {
        format!("one of {valid}")
    };
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
