//! The logs that a command is to read, as they are named on the command line.
//!
//! Takes clap's matches, gives inputs. Opens nothing, and asks only whether standard input is a terminal.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::ArgMatches;
use report::Input;

use crate::message::Message;

/// The files of `LOG`, `-` for standard input, which is also what is read when none is named. `missing` is the
/// hint where that is a terminal, which nobody types logs into; `None`: it is no fault.
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, Command, value_parser};

    fn check(line: &[&str], expect: &[Input], fault: &str) {
        let log = Arg::new("log")
            .num_args(0..)
            .value_parser(value_parser!(PathBuf));
        let words = std::iter::once("test").chain(line.iter().copied());
        let matches = Command::new("test").arg(log).get_matches_from(words);
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
