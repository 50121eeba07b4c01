//! `milepost check`: everything that `serve` would find out before listening, all faults at once.
//!
//! Imports the application, binds nothing, starts nothing.

use clap::ArgMatches;

use crate::environment::CertificateFiles::Checked;
use crate::hooks::Hooks;
use crate::host::AppHost;
use crate::message::{self, Message};
use crate::{COULD_NOT, DONE, NO, acme_client, banner, certificates, environment, process, serve};

/// 0: the configuration is good. 1: it is not. 2: it could not be read.
pub(crate) fn run(matches: &ArgMatches, host: Option<&dyn AppHost>) -> i32 {
    let read = environment::sources(matches)
        .and_then(|sources| environment::understood(&sources, Checked));
    let understood = match read {
        Ok(understood) => understood,
        Err(fault) => {
            fault.say();
            return COULD_NOT;
        }
    };
    let config = &understood.loaded.config;
    let mut messages: Vec<Message> = understood.all_faults().map(Message::from).collect();
    if let Some(acme) = config.acme.as_ref().filter(|_| messages.is_empty()) {
        messages.extend(acme_client::roots_fault(acme));
    }
    let mut event_loops = Vec::new();
    // Imported even if there are faults: all of them are said at once.
    match serve::load_apps(config, host) {
        Ok(handlers) => {
            event_loops = process::event_loop_names(&handlers);
            messages.extend(Hooks::new(config, host).find().err().map(Message::from));
        }
        Err(message) => messages.push(message),
    }
    if messages.is_empty() {
        let python = host.map(AppHost::describe);
        let certificates = certificates::read(&config.tls).whole().unwrap_or_default();
        let mut notes = understood.loaded.notes.clone();
        notes.extend(certificates::warnings(&certificates));
        message::data(&banner::summary(
            config,
            &certificates::lines(&certificates),
            python.as_deref(),
            &event_loops,
            &notes,
        ));
        return DONE;
    }
    message::say_all(&messages);
    let faults = if messages.len() == 1 {
        "1 fault"
    } else {
        &format!("{} faults", messages.len())
    };
    message::talk(&format!("milepost: check: {faults}\n"));
    NO
}
