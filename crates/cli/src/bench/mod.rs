//! `milepost bench`: runs of the load generator, from flags to results.
//!
//! Takes flags, gives plans to the load generator; tables go to standard output, results to the files of their flags,
//! progress and messages to standard error. 0: done. 1: an assertion does not hold. 2: it could not be done.

mod flags;

mod live;
mod runs;

mod sweep;

mod compare;

mod replay;

mod reference;

use clap::{ArgMatches, Command};

use crate::command::Purpose;

pub(crate) use live::Stop;
pub(crate) use reference::page;
pub(crate) use replay::Disk;
pub(crate) use runs::{message as fault_message, watched};

const ABOUT: &str = "Load an HTTP server and measure what it does";

const LONG_ABOUT: &str = "\
Load an HTTP server and measure what it does: closed loads, rates with latency counted from the
time at which a request was due, short-lived connections, mixes, recorded logs, and misbehaving
clients beside the measured ones. The result says when the generator or the host was the limit,
not the server.";

const EXAMPLES: &str = "\
Examples:
  milepost bench http://127.0.0.1:8000/
  milepost bench -c 64 -d 30s --json run.json http://127.0.0.1:8000/
  milepost bench --rate 2000 --arrivals poisson --assert 'p99 < 5ms' http://127.0.0.1:8000/
  milepost bench --rate 100..2000:30s --html ramp.html http://127.0.0.1:8000/
  milepost bench -c 30000 --requests-per-connection 1 --close rst http://127.0.0.1:8000/
  milepost bench --search 'p99 < 20ms' http://127.0.0.1:8000/
  milepost bench --replay access.log.1.gz --replay-speed 10 http://127.0.0.1:8000/
  milepost bench --bad-clients 100:never-reads --bad-clients 50:trickles=1s http://127.0.0.1:8000/
  milepost bench sweep --connections 10..250:10 --repeat 5 http://127.0.0.1:8000/
  milepost bench compare before.json after.json
  milepost bench --unix /run/shop.sock --admin-socket /run/shop.control http://localhost/

Times are seconds, or take ns, us, ms, s, m, h, d; sizes take K, M, G (powers of 1024).
Exit: 0 done, 1 an assertion fails, 2 the run was impossible or nothing was answered.";

/// The subcommand.
pub(crate) fn command(purpose: Purpose) -> Command {
    Command::new("bench")
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .after_help(EXAMPLES)
        .args_override_self(true)
        .args_conflicts_with_subcommands(true)
        .args(flags::args(flags::rows(), purpose))
        .subcommand(sweep::command(purpose))
        .subcommand(compare::command())
}

/// Runs the subcommand and gives the exit code.
pub(crate) fn run(matches: &ArgMatches) -> i32 {
    match matches.subcommand() {
        Some(("sweep", matches)) => sweep::run(matches),
        Some(("compare", matches)) => compare::run(matches),
        _ => {
            let (options, faults) = flags::options(matches);
            runs::run(options, faults)
        }
    }
}
