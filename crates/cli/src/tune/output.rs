//! What is printed: the table of tries, and the recommendation with its reason.
//!
//! Takes tries and a verdict, gives text.

use present::{NONE, Table, counted, digits, duration, number, share, thousands, wrapped};

use super::CONCURRENCY;
use super::choice::{
    Figures, LimitKind, RunnerKind, ServerSize, Speedup, TuneGoal, TuneTry, Verdict,
};
use super::flags::AimedAt;

/// What there is to say in the end.
#[derive(Clone, Debug)]
pub(super) struct TuneFinding<'f> {
    pub(super) kind: RunnerKind,
    pub(super) tries: &'f [TuneTry],
    pub(super) verdict: Verdict,
    pub(super) goal: TuneGoal,
    pub(super) aimed_at: AimedAt,
    pub(super) speedup: Speedup,
    /// Requests a second that the recommended size is predicted to answer within the objective.
    pub(super) rate_within: Option<f64>,
}

/// The tries, in their order.
pub(super) fn table(kind: RunnerKind, tries: &[TuneTry], aimed_at: AimedAt) -> String {
    let column = |cell: &dyn Fn(&TuneTry) -> String| tries.iter().map(cell).collect::<Vec<_>>();
    let ms = |ms: f64| duration(ms / 1e3);
    let predicted = |of: fn(&Figures) -> f64| {
        column(&|one| {
            one.predicted
                .as_ref()
                .map_or(NONE.to_owned(), |found| ms(of(found)))
        })
    };
    let mut table = Table::default();
    table.numbers("processes", column(&|one| one.size.processes.to_string()));
    if kind == RunnerKind::Threads {
        table.numbers("threads", column(&|one| one.size.threads.to_string()));
    }
    table
        .numbers("p50", column(&|one| ms(one.measured.p50_ms)))
        .numbers("p99", column(&|one| ms(one.measured.p99_ms)))
        .numbers("predicted p99", predicted(|figures| figures.p99_ms));
    if !["p50", "p99"].contains(&aimed_at.name) {
        table.numbers(aimed_at.name, column(&|one| ms(one.measured.aimed_ms)));
    }
    table
        .numbers("refused", column(&|one| share(one.refused)))
        .numbers("failed", column(&|one| share(one.measured.failed)))
        .numbers("requests/s", column(&|one| digits(one.per_second, 3, 1)))
        .numbers(
            "CPU",
            column(&|one| one.cpus.map_or(NONE.to_owned(), |cpus| digits(cpus, 2, 2))),
        );
    table.to_text()
}

/// `2 processes with 4 threads each`.
pub(super) fn named(size: ServerSize, kind: RunnerKind) -> String {
    let processes = match size.processes {
        1 => "1 process".to_owned(),
        len => format!("{} processes", thousands(len as u64)),
    };
    match kind {
        RunnerKind::EventLoop => processes,
        RunnerKind::Threads => {
            let threads = counted(size.threads as u64, "thread");
            let each = if size.processes == 1 { "" } else { " each" };
            format!("{processes} with {threads}{each}")
        }
    }
}

/// The recommendation and its reason.
pub(super) fn sentences(finding: &TuneFinding<'_>) -> String {
    let best = &finding.tries[finding.verdict.best];
    let mut text = String::new();
    if !finding.verdict.holds {
        text.push_str(&wrapped(&missed(finding, best)));
        text.push('\n');
    }
    let name = named(best.size, finding.kind);
    let what = match finding.verdict.holds {
        true => format!("Recommended: {name}."),
        false => format!("The best of those that were tried: {name}."),
    };
    text.push_str(&wrapped(&format!("{what} {}", reason(finding, best))));
    text.push('\n');
    if finding.kind == RunnerKind::EventLoop {
        text.push_str(&wrapped(&format!(
            "Each try had asgi_concurrency {CONCURRENCY}, the default: the server adjusts it to the load by itself. Beyond \
             the first number, requests begin only while the event loop keeps up."
        )));
        text.push('\n');
    }
    text
}

/// Why the goal is not met, and what would be.
fn missed(finding: &TuneFinding<'_>, best: &TuneTry) -> String {
    let at = format!("{} requests a second", number(best.rate));
    let aimed = duration(best.measured.aimed_ms / 1e3);
    let name = finding.aimed_at.name;
    let mut text = match (finding.goal, best.keeps_up()) {
        (TuneGoal::Below(below), true) => format!(
            "Objective not met: at {at}, the shortest {name} is {aimed}, and not {}.",
            duration(below / 1e3)
        ),
        (_, false) => format!(
            "No setting keeps up with {at}: the best answers {} a second.",
            number(best.per_second)
        ),
        (TuneGoal::Shortest, true) => format!("At {at}, the shortest {name} is {aimed}."),
    };
    if let (TuneGoal::Below(below), Some(within)) = (finding.goal, finding.rate_within) {
        text.push_str(&format!(
            " Predicted to keep {name} below {}: up to {} requests a second.",
            duration(below / 1e3),
            number(within)
        ));
    }
    text
}

fn reason(finding: &TuneFinding<'_>, best: &TuneTry) -> String {
    let Speedup { times, clients, .. } = finding.speedup;
    let most = finding.tries.iter().map(|one| one.size.threads).max();
    let has_larger = most.is_some_and(|threads| threads > best.size.threads);
    let compared = format!(
        "One process answers {} times as many requests a second for {} as for one",
        digits(times, 2, 1),
        counted(clients as u64, "client")
    );
    let is_loop = finding.kind == RunnerKind::EventLoop;
    match finding.speedup.limit() {
        LimitKind::Interpreter if is_loop => format!(
            "The interpreter is the limit: requests compute, and the event loop of a process runs one of them at a time. \
             {compared}. More processes add capacity as long as there are processors."
        ),
        LimitKind::Interpreter => format!(
            "The interpreter is the limit: requests compute, and one thread of a process computes at a time. {compared}. \
             More threads only wait for the interpreter; more processes add capacity as long as there are processors."
        ),
        LimitKind::Exclusive => format!(
            "Requests hold each other up without computing, by a lock of the application or something else that one of \
             them has at a time. {compared}. More threads only wait for it."
        ),
        LimitKind::Waiting => format!(
            "Requests mostly wait for something else, so {}. {compared}.{}",
            match is_loop {
                true => "an event loop has many of them under way",
                false => "each thread is one more request at a time",
            },
            match has_larger {
                true => " With more threads than these, this load is not answered faster.",
                false => "",
            }
        ),
        LimitKind::Both => format!(
            "Requests compute and wait. {compared}: threads help as long as the process has computing time left, then \
             processes do."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::flags::command;

    fn tries() -> Vec<TuneTry> {
        let one = |processes, threads, p99_ms, predicted: Option<f64>| TuneTry {
            size: ServerSize { processes, threads },
            measured: Figures {
                p50_ms: 10.0,
                p99_ms,
                aimed_ms: p99_ms,
                failed: 0.0,
            },
            predicted: predicted.map(|p99_ms| Figures {
                p99_ms,
                ..Figures::default()
            }),
            per_second: 1_234.0,
            rate: 1_234.0,
            kept: 1.0,
            refused: 0.0,
            cpus: Some(1.456),
        };
        vec![one(1, 32, 45.0, None), one(2, 4, 41.0, Some(40.0))]
    }

    fn p99() -> AimedAt {
        let matches = command().get_matches_from(["tune", "shop:app"]);
        crate::tune::flags::options(&matches)
            .expect("options")
            .aimed_at
    }

    /// In one line, as it was before it was wrapped.
    fn said(goal: TuneGoal, holds: bool, times: f64, rate_within: Option<f64>) -> String {
        said_of(RunnerKind::Threads, goal, holds, (times, rate_within))
    }

    fn said_of(
        kind: RunnerKind,
        goal: TuneGoal,
        holds: bool,
        (times, rate_within): (f64, Option<f64>),
    ) -> String {
        let tries = tries();
        sentences(&TuneFinding {
            kind,
            tries: &tries,
            verdict: Verdict { best: 1, holds },
            goal,
            aimed_at: p99(),
            speedup: Speedup {
                times,
                clients: 32,
                computing: 0.6 / times,
            },
            rate_within,
        })
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
    }

    #[test]
    fn shows_predictions_beside_measurements() {
        let text = table(RunnerKind::Threads, &tries(), p99());
        let expect = "\
processes  threads    p50    p99  predicted p99  refused  failed  requests/s  CPU
        1       32  10 ms  45 ms              –      0 %     0 %       1,234  1.5
        2        4  10 ms  41 ms          40 ms      0 %     0 %       1,234  1.5
";
        assert_eq!(text, expect);
    }

    #[test]
    fn gives_a_recommendation_with_its_reason() {
        let text = said(TuneGoal::Shortest, true, 1.04, None);
        assert!(
            text.starts_with(
                "Recommended: 2 processes with 4 threads each. The interpreter is the limit"
            ),
            "{text}"
        );
        let text = said(TuneGoal::Shortest, true, 26.0, None);
        assert!(
            text.contains(
                "each thread is one more request at a time. One process answers 26 times"
            ),
            "{text}"
        );
    }

    #[test]
    fn says_why_the_concurrency_of_an_event_loop_is_not_varied() {
        let of = |kind| said_of(kind, TuneGoal::Shortest, true, (26.0, None));
        let text = of(RunnerKind::EventLoop);
        assert!(
            text.contains(
                "Each try had asgi_concurrency 100:1000, the default: the server adjusts"
            ),
            "{text}"
        );
        assert!(!of(RunnerKind::Threads).contains("asgi_concurrency"));
    }

    #[test]
    fn says_what_is_out_of_reach_and_which_rate_is_not() {
        let text = said(TuneGoal::Below(20.0), false, 3.0, Some(612.3));
        assert!(text.starts_with("Objective not met: at 1,234 requests a second, the shortest p99 is 41 ms, and not 20 ms."), "{text}");
        assert!(
            text.contains("below 20 ms: up to 612 requests a second."),
            "{text}"
        );
        assert!(
            text.contains("The best of those that were tried: 2 processes"),
            "{text}"
        );
    }
}
