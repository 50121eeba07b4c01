//! `milepost doctor`: which settings of this machine make the server slow, and what to set.
//!
//! Reads the configuration and the machine (`facts`), has `rules` judge them, and prints what they say. Changes nothing.

mod facts;
mod rules;

use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use config::{ConfigFault, Origin};
use present::Table;
use serde_json::json;

use crate::environment::CertificateFiles::HandedOver;
use crate::message::{self, Message};
use crate::{COULD_NOT, DONE, NO, environment};
use facts::{HostFacts, ServerPlan};
use rules::{Finding, Judgement};

const OUTCOME: &str = "\
Without --config, the defaults and the MILEPOST_ variables count. Nothing is changed.
A finding with the mark `look` may concern this server or other programs of the machine.
Exit code 0: nothing to change. 1: something is worth a change. 2: the configuration has faults.";

pub(crate) fn command() -> Command {
    Command::new("doctor")
        .about("Check this machine: limits and kernel settings that make the server slow")
        .arg(
            Arg::new("config")
                .long("config")
                .short('c')
                .value_name("FILE")
                .value_hint(ValueHint::FilePath)
                .help("Configuration file of the server [env: MILEPOST_CONFIG]"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print all findings as one JSON object"),
        )
        .after_help(OUTCOME)
}

/// 0: nothing to set. 1: there is. 2: the configuration could not be read.
pub(crate) fn run(matches: &ArgMatches) -> i32 {
    let read = environment::sources(matches)
        .and_then(|sources| environment::understood(&sources, HandedOver));
    let understood = match read {
        Ok(understood) => understood,
        Err(fault) => {
            fault.say();
            return COULD_NOT;
        }
    };
    // Without a configuration there is nothing to serve, which is no fault here.
    let has_file = environment::config_file(matches).is_some();
    let counts = |fault: &&ConfigFault| has_file || fault.origin != Origin::Whole;
    let faults = understood.faults.iter().filter(counts);
    let faults: Vec<Message> = faults.map(Message::from).collect();
    if !faults.is_empty() {
        message::say_all(&faults);
        return COULD_NOT;
    }
    let plan = ServerPlan::of(&understood.loaded.config);
    let findings = rules::judge(&HostFacts::read(Path::new("/")), &plan);
    message::data(&match matches.get_flag("json") {
        true => as_json(&findings),
        false => as_text(&findings),
    });
    match has_change(&findings) {
        true => NO,
        false => DONE,
    }
}

fn has_change(findings: &[Finding]) -> bool {
    let mut judgements = findings.iter().map(|one| one.judgement);
    judgements.any(|judgement| judgement == Judgement::Change)
}

fn as_json(findings: &[Finding]) -> String {
    let findings: Vec<_> = findings
        .iter()
        .map(|one| {
            json!({
                "name": one.name,
                "judgement": one.judgement.name(),
                "found": one.found,
                "why": one.why,
                "set": one.set,
            })
        })
        .collect();
    let text = serde_json::to_string_pretty(&json!({ "findings": findings }));
    text.expect("texts and lists of them can be written") + "\n"
}

/// A line for each finding, and a paragraph for each that asks for something.
fn as_text(findings: &[Finding]) -> String {
    let mut table = Table::default();
    table.text("", 8, findings.iter().map(|one| one.judgement.name()));
    table.text("check", 20, findings.iter().map(|one| one.name));
    table.text("found", 60, findings.iter().map(|one| one.found.clone()));
    let mut text = table.to_text();
    let asked: Vec<&Finding> = findings.iter().filter(|one| !one.why.is_empty()).collect();
    for one in &asked {
        text += &format!("\n{}: {}\n", one.name, one.why);
        if let Some(set) = &one.set {
            text += &format!("    {set}\n");
        }
    }
    if !has_change(findings) {
        text += "\nNothing to change.\n";
    }
    text
}
