//! Wrong use of the command line: clap's errors in the form of our messages, with the nearest known name.
//!
//! Takes an error and gives a message. Prints nothing.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};
use config::nearest;
use config::options_table::{SETTINGS, Setting, Spelling, migration_hint, setting};

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
        Some(near) => format!("did you mean `milepost {near}`?"),
        None if word.contains("://") => format!("to load a server: `milepost bench {word}`"),
        None if word.contains(':') => format!("to serve an application: `milepost serve {word}`"),
        None => format!(
            "the commands are {}",
            names().collect::<Vec<_>>().join(", ")
        ),
    };
    Message::new(&format!("`{word}`"), "unknown command").with_hint(hint)
}

fn unknown_flag(flag: &str, error: &Error) -> Message {
    let message = Message::new(&format!("`{flag}`"), "unknown flag");
    let word = flag.trim_start_matches('-').replace('-', "_");
    if let Some(hint) = served_otherwise(flag, &word, error) {
        return message.with_hint(hint);
    }
    if let Some(hint) = bench::former(flag).filter(|_| is_of_bench(error)) {
        return message.with_hint(hint);
    }
    let (report, whatif) = (report::command(), whatif::command());
    let bench = bench::command(Purpose::Run);
    let others = SETTINGS
        .iter()
        .flat_map(|setting| setting.aliases.iter().copied());
    let known = SETTINGS
        .iter()
        .filter(|setting| setting.in_flags())
        .map(|setting| setting.key)
        .chain(others)
        .chain(["help", "version"])
        .chain(bench.get_arguments().filter_map(clap::Arg::get_long))
        .chain(report.get_arguments().filter_map(clap::Arg::get_long))
        .chain(whatif.get_arguments().filter_map(clap::Arg::get_long));
    let others = [
        ("report", report::has_flag(&report, flag)),
        ("whatif", report::has_flag(&whatif, flag)),
        ("bench", report::has_flag(&bench, flag)),
    ];
    let of_command = |usage: String| format!("it belongs to a command: `milepost {usage} ...`");
    let hint = match (setting(&word), others.iter().find(|(_, has)| *has)) {
        // Known after all, only not by this command.
        (Some(setting), _) if setting.in_flags() => of_command(format!("serve {}", setting.flag())),
        (Some(setting), _) => setting.table_hint().unwrap_or_default(),
        (None, Some((command, _))) => of_command(format!("{command} {flag}")),
        (None, None) => match negated(&word).or_else(|| nearest(&word, known).map(as_flag)) {
            Some(near) => format!("did you mean `{near}`?"),
            None if is_of_bench(error) => "`milepost bench --help` lists all flags".to_owned(),
            None => "`milepost serve --help` lists all flags".to_owned(),
        },
    };
    message.with_hint(hint)
}

/// Of a command that takes settings: a flag that other servers have, or a setting in another spelling. It
/// comes before flags of our other commands, where the same name means something else.
fn served_otherwise(flag: &str, word: &str, error: &Error) -> Option<String> {
    if !["serve", "check"].iter().any(|name| is_of(name, error)) {
        return None;
    }
    let is_letter = !flag.starts_with("--");
    migration_hint(if is_letter { flag } else { word }, Spelling::Flag).or_else(|| {
        let setting = setting(word).filter(|_| !is_letter)?;
        match setting.in_flags() {
            true => Some(format!("did you mean `{}`?", setting.flag())),
            false => setting.table_hint(),
        }
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

fn is_of_bench(error: &Error) -> bool {
    is_of("bench", error)
}

/// Whether it was this command that was used.
fn is_of(command: &str, error: &Error) -> bool {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else {
        return false;
    };
    usage.to_string().contains(&format!("milepost {command}"))
}

fn surplus_argument(word: &str, error: &Error) -> Message {
    let hint = match is_of_bench(error) {
        true => "one URL is asked; a flag's value with spaces needs quotes",
        false => "one application is served; a flag's value with spaces needs quotes",
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
    fn names_what_other_servers_call_otherwise() {
        said! { r#"
        serve --timeout 30 shop:app => `--timeout`: unknown flag > here it is `--request-timeout`: the client gets 504 and the process goes on; off by default
        check --timeout=30 shop:app => `--timeout`: unknown flag > here it is `--request-timeout`: the client gets 504 and the process goes on; off by default
        serve -t 30 shop:app => `-t`: unknown flag > here it is `--request-timeout`: the client gets 504 and the process goes on; off by default
        serve --harakiri 30 => `--harakiri`: unknown flag > here it is `--request-timeout`: the client gets 504 and the process goes on; off by default
        serve --limit-request-field_size 8190 => `--limit-request-field_size`: unknown flag > did you mean `--header-bytes-max`?
        serve -k gthread shop:app => `-k`: unknown flag > there is one kind of worker, with `threads`: leave it out
        serve --worker-class=gevent => `--worker-class`: unknown flag > there is one kind of worker, with `threads`: leave it out
        serve --certfile a.pem => `--certfile`: unknown flag > there is no TLS and no HTTP/2: put a proxy that has them in front, as nginx
        serve shop:app -D => `-D`: unknown flag > it stays in the foreground: run it under systemd, in a container, or with `&`
        serve --log-level warning => `--log-level`: unknown flag > here it is `--error-log`: the level stands in a table: `[[error_log]]`, `to = "stderr"`, `level = "warning"`
        serve --http :80 => `--http`: unknown flag > here it is `--bind`: HTTP is spoken there
        serve --pidfile f => `--pidfile`: unknown flag > here it is `--pid-file`
        report --timeout 3 => `--timeout`: unknown flag > it belongs to a command: `milepost bench --timeout ...`
        bench --company 5:idle http://h/ => `--company`: unknown flag > its name is `--bad-clients` now
        bench --certfile a.pem http://h/ => `--certfile`: unknown flag > `milepost bench --help` lists all flags
        "# }
    }

    #[test]
    fn shows_the_table_of_a_setting_without_a_flag() {
        said! { r#"
        serve --redirect /a=/b shop:app => `--redirect`: unknown flag > it stands in the configuration file (`--config`), as a table: | [[redirect]] | from = "/old/*" | to = "/new/*" | status = 301
        serve --reply /ping=200:pong => `--reply`: unknown flag > its name is `respond` now: it stands in the configuration file (`--config`), as a table: | [[respond]] | path = "/ping" | status = 200 | text = "pong"
        serve --readahead 1M => `--readahead`: unknown flag > its name is `--body-memory-max` now
        "# }
    }

    #[test]
    fn names_what_was_probably_meant() {
        said! { r"
        srve a:b => `srve`: unknown command > did you mean `milepost serve`?
        shop:app => `shop:app`: unknown command > to serve an application: `milepost serve shop:app`
        zzz => `zzz`: unknown command > the commands are serve, check, init, stop, reload, reopen, upgrade, scale, status, report, whatif, bench, completions, reference, help, version
        serve --acept-batch 3 => `--acept-batch`: unknown flag > did you mean `--accept-batch`?
        serve --max-conections=3 => `--max-conections`: unknown flag > did you mean `--max-connections`?
        whatif --objectiv x => `--objectiv`: unknown flag > did you mean `--objective`?
        serve --objective x => `--objective`: unknown flag > it belongs to a command: `milepost whatif --objective ...`
        serve --no-nodelay => `--no-nodelay`: unknown flag > did you mean `--nodelay=false`?
        serve --no-access-log => `--no-access-log`: unknown flag > did you mean `--access-log=off`?
        serve --quux => `--quux`: unknown flag > `milepost serve --help` lists all flags
        serve -x => `-x`: unknown flag > `milepost serve --help` lists all flags
        serve --accept_batch 3 => `--accept_batch`: unknown flag > did you mean `--accept-batch`?
        bench --quux http://h/ => `--quux`: unknown flag > `milepost bench --help` lists all flags
        bench compare => `FILE`: is missing > `milepost bench compare before.json after.json`
        --bind :80 => `--bind`: unknown flag > it belongs to a command: `milepost serve --bind ...`
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
