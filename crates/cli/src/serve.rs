//! `milepost serve`: configuration, application, listening, the start-up block, and the run to its end.
//!
//! Every fault before the run is one clear message and exit code 2, with nothing left behind.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::ArgMatches;
use server::config::Loaded;
use server::config::meant::{App, Config};
use server::handler::Handler;
use server::{Ended, House, StartFault};

use crate::host::{AppFacts, AppHost};
use crate::message::{self, Message};
use crate::start_block::{self, Facts};
use crate::{COULD_NOT, surroundings};

/// Time for the interpreter to end, even when draining has used up its own.
const LEAVING_MIN: Duration = Duration::from_secs(1);

/// Serves until it is told to stop.
pub(crate) fn run(matches: &ArgMatches, host: Option<&dyn AppHost>) -> i32 {
    match open(matches, host) {
        Ok(house) => keep(house, host),
        Err(messages) => {
            message::say_all(&messages);
            COULD_NOT
        }
    }
}

/// Loads the application; without a host, says how to get one.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn load_app(
    app: &App,
    config: &Config,
    host: Option<&dyn AppHost>,
) -> Result<Arc<dyn Handler>, Message> {
    let Some(host) = host else {
        let cause = "this binary has no Python";
        let hint = "install the wheel (`pip install milepost`), or serve files with `--static`";
        return Err(
            Message::new(&format!("`{}`", start_block::app_name(app)), cause).with_hint(hint),
        );
    };
    let facts = AppFacts {
        multithread: config.pool.threads_max > 1,
        multiprocess: config.processes.count > 1,
    };
    host.load(app, &facts).map_err(Message::from)
}

fn open(matches: &ArgMatches, host: Option<&dyn AppHost>) -> Result<House, Vec<Message>> {
    let sources = surroundings::sources(matches).map_err(|fault| vec![fault])?;
    let understood = surroundings::understood(&sources).map_err(|fault| vec![fault])?;
    if !understood.faults.is_empty() {
        return Err(understood.faults.iter().map(Message::from).collect());
    }
    let Loaded { config, notes } = understood.loaded;
    surroundings::raise_open_files(server::config::open_files_needed(&config));
    let handler = match &config.app {
        Some(app) => Some(load_app(app, &config, host).map_err(|fault| vec![fault])?),
        None => None,
    };
    let house = House::open(config.clone(), handler).map_err(|fault| vec![start_fault(&fault)])?;
    let facts = Facts {
        config: &config,
        listening: &house.listening(),
        python: host.map(AppHost::describe),
        pid: std::process::id(),
        notes: &notes,
    };
    message::talk(&start_block::text(&facts));
    Ok(house)
}

/// Runs the house, away from the interpreter where there is one.
fn keep(house: House, host: Option<&dyn AppHost>) -> i32 {
    let mut house = Some(house);
    let mut body = move || house.take().map_or(COULD_NOT, to_the_end);
    match host {
        Some(host) => host.detached(&mut body),
        None => body(),
    }
}

fn to_the_end(house: House) -> i32 {
    match house.run() {
        Ok(ended) if ended.stuck_threads > 0 => {
            let text = format!(
                "{} still in the application: left without waiting",
                ended.stuck_threads
            );
            Message::new("pool threads", text).say();
            // An orderly end would take the interpreter away under their feet.
            std::process::exit(ended.exit_code)
        }
        Ok(ended) => {
            leave_within(ended);
            ended.exit_code
        }
        Err(fault) => {
            start_fault(&fault).say();
            COULD_NOT
        }
    }
}

/// What the interpreter does at its end, such as waiting for threads that the application started, must
/// not take longer than what is left of the drain time.
fn leave_within(ended: Ended) {
    let time = ended.time_left.max(LEAVING_MIN);
    let leave = move || {
        thread::sleep(time);
        let text = "still running at the end of `drain_timeout`: left without waiting";
        Message::new("threads of the application", text).say();
        std::process::exit(ended.exit_code);
    };
    // Without the thread the process ends whenever the interpreter does.
    let _ = thread::Builder::new()
        .name("mp-leaving".to_owned())
        .spawn(leave);
}

fn start_fault(fault: &StartFault) -> Message {
    Message::from_text(fault.to_string()).with_hint_maybe(fault.hint().map(str::to_owned))
}
