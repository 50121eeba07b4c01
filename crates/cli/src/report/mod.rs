//! `milepost report`: logs read back, printed as a table, as JSON or as a page, once or as they grow.
//!
//! Takes flags, gives a plan to the report crate and its texts to the terminal. 0: done. 1: no line was
//! understood. 2: wrong use, or an input or output failed.

mod bar;
mod flags;
mod live;

use std::fs;
use std::sync::Arc;

use clap::ArgMatches;
use present::thousands;
use report::{Fault, Filter, Input, KeepTimeline, Plan, Tally};
use telemetry::history::HeldHistory;

use crate::inputs::title;
use crate::message::{self, Message};
use crate::{COULD_NOT, DONE, NO};
use bar::Bar;
pub(crate) use flags::command;
use flags::{Options, Page};

pub(crate) fn run(matches: &ArgMatches) -> i32 {
    let options = match flags::options(matches) {
        Ok(options) => options,
        Err(messages) => {
            message::say_all(&messages);
            return COULD_NOT;
        }
    };
    if options.is_followed {
        return live::run(&options);
    }
    // Faults are said after the bar is gone, or it would be drawn over them.
    let mut bar = Bar::new();
    let (tally, faults) = report::read(&options.inputs, &options.plan, &mut |progress| {
        bar.show(progress);
    });
    bar.clear();
    for fault in &faults {
        say_fault(fault);
    }
    // A report of nothing would hide the fault.
    if !faults.is_empty() && tally.lines_len() == 0 {
        return COULD_NOT;
    }
    let code = match &options.against {
        None => finish(&options, &tally),
        Some(other) => compare(&options, &tally, other),
    };
    // What could be read was printed; that something is missing outweighs that code.
    if faults.is_empty() { code } else { COULD_NOT }
}

/// The report, as JSON, of requests that a running server holds.
pub(crate) fn of_held(held: HeldHistory) -> String {
    let plan = Plan {
        pattern: None,
        filter: Filter::default(),
        by: None,
        slowest_len: 10,
        timeline: KeepTimeline::No,
    };
    let inputs = [Input::Held(Arc::new(held))];
    // What is in memory has no fault.
    let (tally, _) = report::read(&inputs, &plan, &mut |_| {});
    report::json(&tally)
}

/// Reads the other log and prints both side by side.
fn compare(options: &Options, before: &Tally, other: &Input) -> i32 {
    let (after, faults) = report::read(std::slice::from_ref(other), &options.plan, &mut |_| {});
    for fault in &faults {
        say_fault(fault);
    }
    if !faults.is_empty() && after.lines_len() == 0 {
        return COULD_NOT;
    }
    let code = say_doubts(before).max(say_doubts(&after));
    let (old, new) = (title(&options.inputs), other.name());
    let names = [old.as_str(), new.as_str()];
    let page = || report::compared_page(before, &after, names);
    let text = match options.is_json {
        true => report::compared_json(before, &after),
        false => report::compared_table(before, &after, names),
    };
    match (write_page(options, &text, page), faults.is_empty()) {
        (true, true) => code,
        _ => COULD_NOT,
    }
}

/// Prints the text, or the page in its place, and writes the page; whether that went well.
fn write_page(options: &Options, text: &str, page: impl Fn() -> String) -> bool {
    match &options.page {
        Some(Page::Stdout) => message::data(&page()),
        _ => message::data(text),
    }
    let Some(Page::File(path)) = &options.page else {
        return true;
    };
    match fs::write(path, page()) {
        Ok(()) => {
            Message::from_text(format!("wrote {}", path.display())).say();
            true
        }
        Err(error) => {
            Message::new(&format!("`{}`", path.display()), error).say();
            false
        }
    }
}

/// Prints the doubts about the reading, then the report.
fn finish(options: &Options, tally: &Tally) -> i32 {
    let code = say_doubts(tally);
    let text = match options.is_json {
        true => report::json(tally),
        false => report::table(tally),
    };
    let page = || report::page(tally, &title(&options.inputs));
    match write_page(options, &text, page) {
        true => code,
        false => COULD_NOT,
    }
}

/// Lines that do not count, and other doubts about the numbers.
fn say_doubts(tally: &Tally) -> i32 {
    for name in tally.cut_off_inputs() {
        Message::new(name, "the last line has no end and was left out").say();
    }
    if tally.has_unused_format() {
        Message::new(
            "`--format`",
            "no line has this format; the lines were read as what they are",
        )
        .with_hint(FORMAT_HINT)
        .say();
    }
    let (misread_len, first) = tally.misread();
    let Some(first) = first else {
        return DONE;
    };
    let lines_len = tally.lines_len();
    let text = format!(
        "{} of {} {} not understood; the first: {}:{}",
        thousands(misread_len),
        thousands(lines_len),
        if lines_len == 1 {
            "line was"
        } else {
            "lines were"
        },
        first.name,
        first.line,
    );
    let hint = "for lines of a template, pass its text with `--format`, as in `access_log_format`";
    let has_none = misread_len == lines_len;
    Message::from_text(text)
        .with_hint_maybe(has_none.then(|| hint.to_owned()))
        .say();
    if has_none { NO } else { DONE }
}

/// How to find what is wrong with a format.
const FORMAT_HINT: &str = "compare the text with the first line of the log; a named format's values are the last ones \
     of each line";

fn say_fault(fault: &Fault) {
    Message::new(&format!("`{}`", fault.name), &fault.cause).say();
}
