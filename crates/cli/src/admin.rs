//! The process that answers what is asked about the server, until its supervisor ends it or is gone.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ::admin::Analysis;
use config::failure::{Failure, plain};
use signal_hook::consts::{SIGINT, SIGTERM};
use telemetry::history::HeldHistory;

use crate::host::AppHost;
use crate::message;
use crate::process::{self, Begun};
use crate::{DONE, environment, report, whatif};

/// Descriptors that it has open at most: connections, answers, what a runtime and an interpreter need.
const OPEN_FILES: u64 = 256;

/// Does what its order says, to the end.
pub(crate) fn run(begun: Begun, host: Option<&dyn AppHost>) -> i32 {
    let mut begun = Some(begun);
    let mut body = move || begun.take().map_or(DONE, answer);
    match host {
        Some(host) => host.detached(&mut body),
        None => body(),
    }
}

fn answer(begun: Begun) -> i32 {
    environment::raise_open_files(OPEN_FILES);
    // A terminal and a service manager signal the whole group: it answers until the supervisor says that it is over.
    for signal in [SIGINT, SIGTERM] {
        let ignored = Arc::new(AtomicBool::new(false));
        if let Err(error) = signal_hook::flag::register(signal, ignored) {
            message::talk(&format!("milepost: admin: {}\n", plain(&error)));
        }
    }
    let channel = Arc::new(begun.channel);
    let warn = |text: &str| message::talk(&format!("milepost: {text}\n"));
    match ::admin::run(&begun.config.admin, &channel, warn, analyse) {
        Ok(()) => DONE,
        Err(fault) => process::fail(&channel, &Failure::from(&fault)),
    }
}

/// What is made of the last requests for the page.
fn analyse(analysis: Analysis, held: HeldHistory) -> Result<String, String> {
    if held.is_empty() {
        return Err("no request has ended in this time".to_owned());
    }
    let made = match analysis {
        Analysis::Report => Ok(report::of_held(held)),
        Analysis::Whatif => whatif::of_held(held),
    };
    made.map_err(|messages| {
        let texts: Vec<String> = messages.iter().map(|one| one.text()).collect();
        texts.concat().trim_end().to_owned()
    })
}
