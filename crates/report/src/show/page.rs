//! A tally as a page: one file that opens without a network.
//!
//! Takes a tally that has a timeline, gives HTML.

use present::{Page, bytes, duration, number, percent, thousands};

use super::charts::{distributions, over_time};
use super::columns::{self, PHASE_COLOURS, ROWS, named};
use super::table::{CPU_NOTE, PRECISION_NOTE, endings, held_text, others_note, shares};
use super::{event_loops, time, upstreams, waiting, zone};
use crate::tally::{PHASES, Tally};
use crate::verdict::verdict;

/// Pages in the first table; below all of them are there, each with its phases, if asked for.
const PAGES_LEN_MAX: usize = 25;

/// The page of everything; `title` names the logs.
pub fn page(tally: &Tally, title: &str) -> String {
    let all = tally.all();
    let waiting = tally.waiting();
    let mut page = Page::new(title);
    page.verdict(&sentences(&verdict(tally, &waiting)));
    head(tally, &mut page);
    if all.len > 0 {
        page.heading("Pages, by the time that they took together")
            .table(&columns::groups(tally, &tally.pages(), PAGES_LEN_MAX));
    }
    if all.has_phases() {
        page.heading("How long each phase took")
            .charts(&distributions(all));
    }
    // It is kept for the page alone: a tally for a terminal has none.
    if let Some(timeline) = tally.timeline() {
        let charts = over_time(tally, timeline);
        if !charts.is_empty() {
            let step = step_text(timeline.width_secs());
            page.heading(&format!("Over time, in steps of {step}"))
                .charts(&charts);
        }
    }
    event_loops::page(&tally.event_loops(), &mut page);
    upstreams::page(&tally.upstreams(), &mut page);
    waiting::page(&waiting, &mut page);
    slowest(tally, &mut page);
    phases(tally, &mut page);
    groups(tally, &mut page);
    foot(tally, &mut page);
    page.finish()
}

/// With their capitals and ends.
pub(super) fn sentences(texts: &[String]) -> Vec<String> {
    texts.iter().map(|text| present::sentence(text)).collect()
}

fn phases(tally: &Tally, page: &mut Page) {
    let all = tally.all();
    if !all.has_phases() {
        return;
    }
    page.heading("Phases, in milliseconds")
        .table(&columns::phases(all, &ROWS))
        .paragraph(&format!("{PRECISION_NOTE}."));
    if !all.cpu.is_empty() {
        page.paragraph(&format!("{CPU_NOTE}."));
    }
    if let Some(note) = tally.note() {
        page.paragraph(&format!("{}.", present::sentence(note)));
    }
}

fn head(tally: &Tally, page: &mut Page) {
    let all = tally.all();
    if let Some(span) = tally.held() {
        page.paragraph(&format!("{}.", present::sentence(&held_text(span))));
    }
    if let Some((first, last, offset)) = tally.time() {
        let (first, last) = (time(first, offset), time(last, offset));
        let rate = tally.per_second().map_or(String::new(), |rate| {
            format!(", {} requests a second", number(rate))
        });
        page.paragraph(&format!("{first} to {last} {}{rate}", zone(offset)));
    }
    let total = all.total();
    let found = &all.at_queue;
    // A card of something that the log does not contain would show a zero that nobody has measured.
    let known = |is_known: bool, text: String, name| is_known.then_some((text, name));
    let quantile = |q| duration(total.quantile_secs(q));
    let cards = [
        Some((thousands(all.len), "requests")),
        known(!total.is_empty(), quantile(0.5), "median of the total"),
        known(!total.is_empty(), quantile(0.99), "p99 of the total"),
        known(
            found.known_len > 0,
            percent(found.from_queue_len, found.known_len),
            "had to wait for a thread",
        ),
        Some((percent(all.classes[5], all.len), "5xx")),
        known(
            tally.endings().1 > 0,
            percent(all.incomplete_len, all.len),
            "incomplete",
        ),
    ];
    page.cards(cards.into_iter().flatten());
}

fn step_text(step_secs: u64) -> String {
    match step_secs {
        1 => "1 second".to_owned(),
        secs if secs < 600 => format!("{secs} seconds"),
        secs if secs < 7_200 => format!("{} minutes", number(secs as f64 / 60.0)),
        secs => format!("{} hours", number(secs as f64 / 3_600.0)),
    }
}

fn groups(tally: &Tally, page: &mut Page) {
    let Some(grouped) = tally.groups() else {
        return;
    };
    let by = grouped.by.name();
    page.heading(&format!("By {by}"))
        .table(&columns::groups(tally, &grouped, usize::MAX));
    if grouped.others.is_some() {
        page.paragraph(&others_note());
    }
    // Closed at first: hundreds of routes would hide what follows.
    for (name, group) in named(&grouped)
        .iter()
        .filter(|(_, group)| group.has_phases())
    {
        let summary = present::escaped(format!("{by} {name}"), 200);
        page.details(&summary, |page| {
            page.table(&columns::phases(group, &ROWS));
        });
    }
}

fn slowest(tally: &Tally, page: &mut Page) {
    if tally.slowest().is_empty() {
        return;
    }
    let keys = PHASES.iter().zip(PHASE_COLOURS);
    let keys: Vec<String> = keys.map(|(name, colour)| Page::key(colour, name)).collect();
    page.heading("The slowest requests")
        .html(&format!("<p>{}</p>\n", keys.join(" &emsp; ")))
        .table(&columns::slowest(tally.slowest()));
}

fn foot(tally: &Tally, page: &mut Page) {
    let all = tally.all();
    let mut text = format!("Statuses: {}.", shares(all));
    if all.body_len > 0 {
        text += &format!(" Bodies: {}.", bytes(all.body_bytes as f64));
    }
    page.html("<footer>").paragraph(&text);
    if tally.endings().1 > 0 {
        page.paragraph(&format!("Incomplete: {}.", endings(tally)));
    }
    // The first one is named, so that its form can be looked at.
    if let (misread_len @ 1.., Some(first)) = tally.misread() {
        page.paragraph(&format!(
            "{} of {} lines were not understood; the first: {}:{}.",
            thousands(misread_len),
            thousands(tally.lines_len()),
            first.name,
            first.line
        ));
    }
    page.html("</footer>\n");
}
