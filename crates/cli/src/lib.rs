//! The command: the only crate that reads argv and the environment, prints and exits.
//!
//! Takes the arguments and, from the wheel, a host that can load Python applications; gives the exit
//! code: 0 done, 1 the answer is no, 2 could not. Standard output is data, standard error is talk.
//! Knows no Python, and of the server only how to configure, open and run it.

#![forbid(unsafe_code)]

mod acme_client;
mod admin;
mod banner;
mod bench;
mod certificates;
mod check;
mod command;
mod control;
mod convert;
mod doctor;
mod environment;
mod help;
mod hooks;
mod host;
mod init;
mod inputs;
mod message;
mod process;
mod program;
mod progress;
mod reference;
mod report;
mod serve;
mod template;
mod top;
mod trust;
mod tune;
mod usage_errors;
mod whatif;

use std::ffi::OsString;

use clap::ArgMatches;

/// Why an application cannot be served.
pub use config::failure::Failure;
pub use host::{AppFacts, AppHost, Forked};
pub use program::{Keyword, KeywordArguments, KeywordValue, serve_arguments};

use command::Purpose;
use control::Verb;
use message::Message;

/// Could not.
pub(crate) const COULD_NOT: i32 = 2;
/// The answer is no.
pub(crate) const NO: i32 = 1;
/// Done.
pub(crate) const DONE: i32 = 0;

/// Runs one command to its end and gives the exit code. `args` begins with the program's own name;
/// without a `host` no Python application can be served.
pub fn run(args: Vec<OsString>, host: Option<&dyn AppHost>) -> i32 {
    let args = command::with_command(args);
    match command::command(Purpose::Run).try_get_matches_from(&args) {
        Ok(matches) => dispatch(&matches, host),
        Err(error) if usage_errors::is_answer(&error) => {
            message::page(&error.render().to_string());
            DONE
        }
        Err(error) => {
            message::say_all(&usage_errors::messages(error, args));
            COULD_NOT
        }
    }
}

fn dispatch(matches: &ArgMatches, host: Option<&dyn AppHost>) -> i32 {
    if let Some((name, matches)) = matches.subcommand()
        && let Some(verb) = Verb::named(name)
    {
        return control::run(verb, matches);
    }
    match matches.subcommand() {
        Some(("serve", matches)) => serve::run(matches, host),
        Some(("check", matches)) => check::run(matches, host),
        Some(("doctor", matches)) => doctor::run(matches),
        Some(("convert", matches)) => convert::run(matches, host),
        Some(("top", matches)) => top::run(matches),
        Some(("report", matches)) => report::run(matches),
        Some(("whatif", matches)) => whatif::run(matches),
        Some(("bench", matches)) => bench::run(matches),
        Some(("tune", matches)) => tune::run(matches, host),
        Some(("trust", matches)) => trust::run(matches),
        Some(("init", matches)) => init::run(matches, host),
        Some(("completions", matches)) => completions(matches),
        Some(("help", matches)) => help::run(matches),
        Some(("reference", matches)) => {
            let page = match matches.get_one::<String>("page").map(String::as_str) {
                Some("bench") => bench::page(),
                Some("man") => reference::manual(),
                Some("keywords") => reference::keywords(),
                Some("metrics") => reference::metrics(),
                _ => reference::page(),
            };
            message::data(&page);
            DONE
        }
        Some(("version", _)) => {
            message::data(&format!(
                "{}\n",
                command::version_line(host.map(AppHost::describe))
            ));
            DONE
        }
        _ => {
            message::data(&command::command(Purpose::Run).render_help().to_string());
            DONE
        }
    }
}

fn completions(matches: &ArgMatches) -> i32 {
    let Some(shell) = matches.get_one::<clap_complete::Shell>("shell") else {
        Message::new("completions", "no shell was named").say();
        return COULD_NOT;
    };
    message::data(&command::completions(*shell));
    DONE
}
