//! What the commands that read logs have in common: their inputs, templates and values of flags.
//!
//! Takes clap's matches, gives inputs and values, or faults. Opens nothing, and asks only whether standard input is
//! a terminal.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use report::Input;
use telemetry::Pattern;

use crate::message::Message;

/// The files of `LOG`; `-`, or no name, is standard input. `missing` is the hint if standard input is a terminal,
/// which sends no log; `None`: it is no fault.
pub(crate) fn inputs(
    matches: &ArgMatches,
    missing: Option<&str>,
    faults: &mut Vec<Message>,
) -> Vec<Input> {
    let named = matches.get_many::<PathBuf>("log").into_iter().flatten();
    let mut inputs: Vec<Input> = named
        .map(|path| match path.as_os_str() == "-" {
            true => Input::Stdin,
            false => Input::File(path.clone()),
        })
        .collect();
    if inputs.is_empty() {
        inputs.push(Input::Stdin);
        if let Some(hint) = missing
            // Without this the command would wait for a log that nobody types.
            && io::stdin().is_terminal()
        {
            faults.push(Message::new("`LOG`", "is missing").with_hint(hint));
        }
    }
    let stdins = inputs.iter().filter(|input| **input == Input::Stdin);
    if stdins.count() > 1 {
        faults.push(Message::new("`-`", "standard input can be read once only"));
    }
    inputs
}

/// A command about logs with the flags of `table`, one a line: name, placeholder and help. `-` in the place of the
/// placeholder is a switch, a `+` behind it a flag that may be repeated, and a line that begins with `#` a heading. `NAMES` in a help are those of formats.
pub(crate) fn with_flags(name: &'static str, table: &'static str) -> Command {
    let log = Arg::new("log")
        .value_name("LOG")
        .help("Files, `-` for standard input")
        .value_parser(clap::value_parser!(PathBuf))
        .value_hint(ValueHint::FilePath)
        .num_args(0..);
    let mut command = Command::new(name).args_override_self(true).arg(log);
    for line in table.lines().filter(|line| !line.is_empty()) {
        if let Some(heading) = line.strip_prefix("# ") {
            command = command.next_help_heading(heading);
            continue;
        }
        let mut columns = line.splitn(3, ' ');
        let [flag, placeholder, help] = [(); 3].map(|()| columns.next().unwrap_or(""));
        assert!(
            !help.is_empty(),
            "a flag has a name, a placeholder and a help: {line}"
        );
        let help = help.replace("NAMES", Pattern::NAMES);
        let arg = Arg::new(flag).long(flag).help(help);
        command = command.arg(match (placeholder, placeholder.strip_suffix('+')) {
            ("-", _) => arg.action(ArgAction::SetTrue),
            (_, Some(repeated)) => arg.value_name(repeated).action(ArgAction::Append),
            ("FILE", None) => arg.value_name(placeholder).value_hint(ValueHint::FilePath),
            // `-3` is a wrong number, not an unknown flag.
            _ => arg.value_name(placeholder).allow_negative_numbers(true),
        });
    }
    command
}

/// The pattern of a template's lines.
pub(crate) fn pattern(text: &str) -> Result<Pattern, String> {
    Pattern::parse(text).map_err(|fault| fault.to_string())
}

/// The value of a flag; `None` without the flag, or with a fault.
pub(crate) fn value<T>(
    matches: &ArgMatches,
    name: &str,
    faults: &mut Vec<Message>,
    understand: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    let flag = format!("`--{}`", name.replace('_', "-"));
    understand(matches.get_one::<String>(name)?)
        .map_err(|cause| faults.push(Message::new(&flag, cause)))
        .ok()
}

/// What was found in `text`, or that something else was expected.
pub(crate) fn expect<T>(found: Option<T>, expected: &str, text: &str) -> Result<T, String> {
    found.ok_or_else(|| format!("expected {expected}, found `{text}`"))
}

/// One name for all inputs, for headings.
pub(crate) fn title(inputs: &[Input]) -> String {
    let names: Vec<String> = inputs.iter().map(Input::name).collect();
    match names.as_slice() {
        [one] => one.clone(),
        [first, .., last] => format!("{first} to {last}, {} logs", names.len()),
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &[&str], expect: &[Input], fault: &str) {
        let words = std::iter::once("test").chain(line.iter().copied());
        let matches = with_flags("test", "").get_matches_from(words);
        let mut faults = Vec::new();
        assert_eq!(inputs(&matches, None, &mut faults), expect);
        let texts: Vec<String> = faults.iter().map(Message::text).collect();
        assert_eq!(texts.is_empty(), fault.is_empty(), "{texts:?}");
        assert!(texts.concat().contains(fault), "{texts:?}");
    }

    #[test]
    fn standard_input_is_read_once_and_where_nothing_is_named() {
        let file = |name: &str| Input::File(PathBuf::from(name));
        check(&[], &[Input::Stdin], "");
        check(&["a", "-"], &[file("a"), Input::Stdin], "");
        check(
            &["-", "-"],
            &[Input::Stdin, Input::Stdin],
            "can be read once only",
        );
    }
}
