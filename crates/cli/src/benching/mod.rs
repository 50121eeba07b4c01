//! `milepost bench`: loads made of flags, run and shown.
//!
//! Takes flags, gives plans to the load generator, its tables to standard output, files where they are
//! wished, progress and messages to standard error. 0: done. 1: an assertion does not hold. 2: it could not
//! be done.

mod flags;

mod live;
mod one;

mod run;
mod sweep;

mod compare;

mod parts;
mod replay;

mod reference;

use clap::{ArgMatches, Command};
use loadgen::written::{Form, Key};

use crate::command::Purpose;
use crate::host::AppHost;

pub(crate) use reference::page;

const ABOUT: &str = "Load an HTTP server and measure what it does";

const LONG_ABOUT: &str = "\
Load an HTTP server and measure what it does: closed loads, rates with latency counted from the
time at which a request was to be sent, short-lived connections, mixes, recorded logs, and clients
that misbehave beside the measured ones. It watches itself, and says when not the server but the
generator or the host was the limit.";

const EXAMPLES: &str = "\
Examples:
  milepost bench http://127.0.0.1:8000/
  milepost bench -c 64 -d 30s --json run.json http://127.0.0.1:8000/
  milepost bench --rate 2000 --arrivals poisson --assert 'p99 < 5ms' http://127.0.0.1:8000/
  milepost bench --rate 100..2000:30s --html ramp.html http://127.0.0.1:8000/
  milepost bench -c 30000 --requests-per-connection 1 --close rst http://127.0.0.1:8000/
  milepost bench --search 'p99 < 20ms' http://127.0.0.1:8000/
  milepost bench --replay access.log.1.gz --replay-speed 10 http://127.0.0.1:8000/
  milepost bench --company 100:never-reads --company 50:trickles=1s http://127.0.0.1:8000/
  milepost bench sweep --connections 10..250:10 --repeat 5 http://127.0.0.1:8000/
  milepost bench sweep -c 10..250:60 --server '--static /=./public' --matrix drivers=1,2,10 /
  milepost bench run drivers-sweep
  milepost bench compare before.json after.json
  milepost bench --unix /run/shop.sock --admin-socket /run/shop.control http://localhost/

Times take ns, us, ms, s, m, h, d, and are seconds without; sizes take K, M, G (powers of 1024).
Exit: 0 done, 1 an assertion does not hold, 2 it could not be done or nothing was answered.";

/// The subcommand.
pub(crate) fn command(purpose: Purpose) -> Command {
    Command::new("bench")
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .after_help(EXAMPLES)
        .args_override_self(true)
        .args_conflicts_with_subcommands(true)
        .args(flags::args(purpose))
        .subcommand(sweep::command(purpose))
        .subcommand(run::command())
        .subcommand(compare::command())
}

/// Does it; `host` knows how this program is started again.
pub(crate) fn run(matches: &ArgMatches, host: Option<&dyn AppHost>) -> i32 {
    match matches.subcommand() {
        Some(("sweep", matches)) => sweep::run(matches, host),
        Some(("run", matches)) => {
            run::run(matches, &mut |experiment| sweep::measured(experiment, host))
        }
        Some(("compare", matches)) => compare::run(matches),
        _ => {
            let (wish, faults) = flags::wish(matches);
            one::run(wish, faults)
        }
    }
}

/// All flags without their dashes: what a slip of the fingers may have meant.
pub(crate) fn names() -> impl Iterator<Item = String> {
    let flags = flags::rows().filter(|key| key.form != Form::Argument);
    flags.map(Key::long)
}

/// What a flag of the subcommand wants.
pub(crate) fn expected(flag: &str) -> Option<String> {
    let key = flags::named(flag.trim_start_matches('-'))?;
    let form = format!("{}: {}", key.placeholder, key.help);
    (!key.placeholder.is_empty()).then_some(form)
}

/// Whether the subcommand has this flag.
pub(crate) fn has_flag(flag: &str) -> bool {
    flags::named(flag.trim_start_matches('-')).is_some()
}
