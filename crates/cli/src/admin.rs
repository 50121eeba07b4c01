//! The process that answers what is asked about the server, until its supervisor ends it or is gone.

use std::sync::Arc;

use ::admin::Analysis;
use config::failure::Failure;
use telemetry::history::HeldHistory;

use crate::host::AppHost;
use crate::message;
use crate::process::{self, Begun};
use crate::{DONE, report, whatif};

/// Does what its order says, to the end.
pub(crate) fn run(begun: Begun, host: Option<&dyn AppHost>) -> i32 {
    process::run_helper(begun, host, "admin", answer)
}

fn answer(begun: Begun) -> i32 {
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
