//! What came out of fleets: for a terminal, a program, a browser.

use std::fmt::Write as _;

use present::{Axis, Chart, Line, Page, Scale, Table, counted, share};
use serde_json::{Value, json};
use whatif::{Balance, Limits};

use super::super::table::ms;
use super::options::{BALANCES, LIMITS, name_of};
use super::{FleetAnswer, FleetFindings};

/// From this share of their time on servers have no time left for waits to end.
const FULL: f64 = 0.98;
/// Lines of a chart that can be told apart.
const LINES_MAX: usize = 8;

/// The text.
pub(super) fn text(findings: &FleetFindings) -> String {
    let mut out = String::new();
    for sentence in verdict(findings) {
        for line in present::broken(&sentence, present::WIDTH_MAX) {
            let _ = writeln!(out, "{line}");
        }
    }
    for remark in remarks(findings) {
        let _ = writeln!(out, "note: {remark}");
    }
    format!("{out}\n{}", table(findings).to_text())
}

/// The answer: what the servers are, and which rule is best.
fn verdict(findings: &FleetFindings) -> Vec<String> {
    let mut lines = Vec::new();
    let slow = findings.slow.map_or(String::new(), |slower| {
        format!(", the last one {slower} times slower")
    });
    lines.push(format!(
        "{}: servers with {} each{slow}.",
        findings.title,
        counted(findings.slots.into(), "slot")
    ));
    let real = || {
        let answers = findings.answers.iter();
        answers.filter(|answer| answer.variant.balance != Balance::Central)
    };
    let by_p99 =
        |one: &&FleetAnswer, other: &&FleetAnswer| one.total.p99_ms.total_cmp(&other.total.p99_ms);
    if let (Some(best), Some(worst)) = (real().min_by(by_p99), real().max_by(by_p99))
        && worst.total.p99_ms > best.total.p99_ms
    {
        lines.push(format!(
            "p99 from arrival to end is {} ms with {} and {} ms with {}.",
            ms(best.total.p99_ms),
            described(best),
            ms(worst.total.p99_ms),
            described(worst)
        ));
    }
    lines
}

fn described(answer: &FleetAnswer) -> String {
    let variant = &answer.variant;
    let of = |len: usize, noun| counted(len as u64, noun);
    let mut text = format!("`{}`", name_of(&variant.balance, &BALANCES));
    if variant.balance != Balance::Central {
        text += match variant.limits {
            Limits::Reported => " within reported slots",
            Limits::Learnt => " within learnt slots",
            Limits::None => " without a limit",
        };
    }
    let _ = write!(text, " ({}", of(variant.servers, "server"));
    if variant.proxies > 1 {
        let _ = write!(
            text,
            ", {}",
            of(variant.proxies, "proxy").replace("proxys", "proxies")
        );
    }
    if variant.rate != 1.0 {
        let _ = write!(text, ", x{}", variant.rate);
    }
    text + ")"
}

fn remarks(findings: &FleetFindings) -> Vec<String> {
    let mut remarks = findings.remarks.clone();
    if findings.answers.iter().any(|answer| answer.busy >= FULL) {
        remarks.push(
            "some of these fleets are busy all the time: their queues grow for as long as requests come, and none is \
             refused here"
                .to_owned(),
        );
    }
    remarks
}

fn table(findings: &FleetFindings) -> Table {
    let answers = &findings.answers;
    let mut table = Table::default();
    table.text(
        "rule",
        20,
        answers
            .iter()
            .map(|one| name_of(&one.variant.balance, &BALANCES)),
    );
    let limits = |one: &FleetAnswer| match one.variant.balance {
        Balance::Central => "",
        Balance::By(_) => name_of(&one.variant.limits, &LIMITS),
    };
    table.text("slots", 10, answers.iter().map(limits));
    type Cell = fn(&FleetAnswer) -> String;
    let varying: [(&str, Cell); 3] = [
        ("servers", |one| one.variant.servers.to_string()),
        ("proxies", |one| one.variant.proxies.to_string()),
        ("rate", |one| format!("x{}", one.variant.rate)),
    ];
    for (head, cell) in varying {
        let cells: Vec<String> = answers.iter().map(cell).collect();
        if cells.iter().any(|cell| *cell != cells[0]) {
            table.numbers(head, cells);
        }
    }
    let times: [(&str, Cell); 6] = [
        ("p50", |one| ms(one.queue.p50_ms)),
        ("p95", |one| ms(one.queue.p95_ms)),
        ("p99", |one| ms(one.queue.p99_ms)),
        ("p50", |one| ms(one.total.p50_ms)),
        ("p99", |one| ms(one.total.p99_ms)),
        ("p99.9", |one| ms(one.total.p99_9_ms)),
    ];
    for (name, times) in ["queue ms", "total ms"].into_iter().zip(times.chunks(3)) {
        for (head, cell) in times {
            table.numbers(head, answers.iter().map(cell));
        }
        table.group(name, times.len());
    }
    table.numbers("within 1 s", answers.iter().map(|one| share(one.good)));
    table.numbers("busy", answers.iter().map(|one| share(one.busy)));
    if findings.slow.is_some() {
        table.numbers(
            "to the slow one",
            answers.iter().map(|one| share(one.last_share())),
        );
    }
    table
}

/// The text, with a newline at its end.
pub(super) fn json(findings: &FleetFindings) -> String {
    let answers: Vec<Value> = findings
        .answers
        .iter()
        .map(|one| {
            json!({
                "balance": name_of(&one.variant.balance, &BALANCES),
                "limits": name_of(&one.variant.limits, &LIMITS),
                "servers": one.variant.servers,
                "proxies": one.variant.proxies,
                "rate": one.variant.rate,
                "queue": one.queue,
                "total": one.total,
                "busy": one.busy,
                "within_1s": one.good,
                "shares": one.shares,
            })
        })
        .collect();
    let value = json!({
        "schema": 1,
        "source": findings.title,
        "fleet": {
            "slots": findings.slots,
            "slow_server": findings.slow,
            "round_trip_seconds": findings.round_trip.as_secs_f64(),
            "report_delay_seconds": findings.report_delay.as_secs_f64(),
        },
        "verdict": { "sentences": verdict(findings) },
        "answers": answers,
        "remarks": remarks(findings),
    });
    format!("{value:#}\n")
}

/// The page.
pub(super) fn page(findings: &FleetFindings) -> String {
    let mut page = Page::new(&format!("What if: {}", findings.title));
    page.verdict(&verdict(findings));
    for remark in remarks(findings) {
        page.remark("doubtful", "", &remark);
    }
    page.heading("Predictions").charts([&chart(findings)]);
    page.table(&table(findings));
    page.finish()
}

/// Total times by quantile.
fn chart(findings: &FleetFindings) -> Chart {
    let line = |answer: &FleetAnswer| Line {
        name: described(answer),
        points: answer.quantiles.clone(),
        ..Line::default()
    };
    let mut lines: Vec<Line> = findings.answers.iter().map(line).collect();
    lines.truncate(LINES_MAX);
    Chart::of(
        "From arrival to end",
        ["requests", "time"],
        Scale::of(Axis::Nines, Axis::Durations),
        lines,
    )
}
