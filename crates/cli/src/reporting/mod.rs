//! `milepost report`: logs read back, printed as a table, as JSON or as a page, once or as they grow.
//!
//! Takes flags, gives a plan to the report crate and its texts to the terminal. 0: done. 1: there was no
//! line of an access log. 2: wrong use, or something could not be read or written.

mod bar;
mod flags;
mod live;

use std::fs;

use clap::ArgMatches;
use report::{Fault, Tally, thousands};

use crate::message::{self, Message};
use crate::{COULD_NOT, DONE, NO};
use bar::Bar;
use flags::{Page, Wish};
pub(crate) use flags::{command, has_flag};

pub(crate) fn run(matches: &ArgMatches) -> i32 {
    let wish = match flags::wish(matches) {
        Ok(wish) => wish,
        Err(messages) => {
            message::say_all(&messages);
            return COULD_NOT;
        }
    };
    if wish.is_followed {
        return live::run(&wish);
    }
    let mut bar = Bar::new();
    let (tally, faults) =
        report::read(&wish.inputs, &wish.plan, &mut |progress| bar.show(progress));
    bar.clear();
    for fault in &faults {
        say_fault(fault);
    }
    let code = finish(&wish, &tally);
    if faults.is_empty() { code } else { COULD_NOT }
}

/// Says what has to be said about the reading, prints what was wished.
fn finish(wish: &Wish, tally: &Tally) -> i32 {
    let code = say_doubts(tally);
    match &wish.page {
        Some(Page::Stdout) => message::data(&report::page(tally, &wish.title())),
        _ if wish.is_json => message::data(&report::json(tally)),
        _ => message::data(&report::table(tally)),
    }
    if let Some(Page::File(path)) = &wish.page
        && let Err(error) = fs::write(path, report::page(tally, &wish.title()))
    {
        Message::new(&format!("`{}`", path.display()), error).say();
        return COULD_NOT;
    }
    code
}

/// What was not counted, and why the numbers may not be all.
fn say_doubts(tally: &Tally) -> i32 {
    for name in tally.cut_off_inputs() {
        Message::new(name, "the last line has no end and was left out").say();
    }
    if tally.former_len() > 0 {
        let text = format!(
            "{} of {} lines have the phases by their former names, `accept` and `deliver`, which are not read",
            thousands(tally.former_len()),
            thousands(tally.lines_len()),
        );
        Message::from_text(text).with_hint(FORMER_NAMES).say();
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
    let hint = "lines of a template need `--format TEXT`, the text of their `access_log_format`";
    let has_none = misread_len == lines_len;
    Message::from_text(text)
        .with_hint_maybe(has_none.then(|| hint.to_owned()))
        .say();
    if has_none { NO } else { DONE }
}

/// What makes a log readable that was written when two phases had other names.
pub(crate) const FORMER_NAMES: &str =
    "`sed 's/ accept=/ receive=/; s/ deliver=/ send=/' OLD.log > NEW.log` renames them";

fn say_fault(fault: &Fault) {
    Message::new(&format!("`{}`", fault.name), &fault.cause).say();
}
