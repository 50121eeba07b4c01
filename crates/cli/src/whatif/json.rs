//! Answers for programs: one object, schema 1. The keys are documented in docs/guide/whatif.md.

use ::whatif::RunsOn;
use serde_json::{Value, json};

use super::log_facts::LogFacts;
use super::proposal::Proposal;
use super::remarks::dependence;
use super::{Findings, SearchResult};

/// The text, with a newline at its end.
pub(super) fn json(findings: &Findings) -> String {
    let present = &findings.present;
    let objectives: Vec<&str> = findings
        .objectives
        .iter()
        .map(|one| one.text.as_str())
        .collect();
    let remarks: Vec<String> = findings
        .remarks
        .iter()
        .cloned()
        // The table says it in a line of its own, which a program does not read.
        .chain(dependence(present))
        .collect();
    let value = json!({
        "schema": 1,
        "source": findings.title,
        "log": present.log.as_ref().map(|log| facts(log, findings)),
        "calibration": present.calibration,
        "verdict": verdict(findings),
        "answers": findings.answers,
        "objectives": objectives,
        "searches": findings.searches.iter().map(search).collect::<Vec<_>>(),
        "remarks": remarks,
    });
    format!("{value:#}\n")
}

/// The sentences, and what they propose.
fn verdict(findings: &Findings) -> Value {
    let proposal = findings.proposal.as_ref();
    let of_loop = findings.loop_proposal.as_ref();
    json!({
        "sentences": findings.verdict(),
        "threads": proposal.and_then(Proposal::threads),
        "pool": proposal.and_then(Proposal::apart).map(|apart| json!({
            "path": apart.path,
            "threads": apart.threads,
            "others_threads": apart.others_threads,
            "toml": apart.toml(),
        })),
        "processes": of_loop.and_then(|found| found.processes.as_ref()).map(|one| one.processes),
        "concurrency": of_loop.and_then(|found| found.concurrency.as_ref()).map(|one| one.size()),
        "to_thread": of_loop.and_then(|found| found.blocker.as_ref()).map(|(one, _)| &one.path),
    })
}

fn facts(log: &LogFacts, findings: &Findings) -> Value {
    let present = &findings.present.variant;
    let pools = present.pools.iter().map(|pool| {
        json!({
            "name": pool.name,
            "threads": pool.threads.to_string(),
            "event_loop": pool.runs_on == RunsOn::EventLoop,
        })
    });
    let seconds = |ns: u64| ns as f64 / 1e9;
    json!({
        "requests": log.requests,
        "refused": log.refused,
        "seconds": log.seconds,
        "per_second": log.per_second(),
        "correlation": log.correlation,
        "pools": pools.collect::<Vec<_>>(),
        "threads_from": log.threads_from.text(),
        "processes": present.processes,
        "event_loop": log.event_loop.as_ref().map(|own| json!({
            "concurrency": own.concurrency.to_string(),
            "concurrency_from": own.concurrency_from.text(),
            "inside_max": own.inside_max,
            "wake_seconds": seconds(own.costs.wake.0),
            "begin_seconds": seconds(own.costs.begin.0),
            "blocker": own.blocker.as_ref().map(|blocker| json!({
                "path": blocker.path,
                "mean_ms": blocker.mean_ms,
            })),
        })),
        "wake_seconds": seconds(log.costs.wake.0),
        "fetch_seconds": seconds(log.costs.fetch.0),
        "lock": log.lock.as_ref().map(|fit| json!({
            "slice_seconds": seconds(fit.lock.slice.0),
            "before_share": fit.lock.before,
            "computing_share": fit.computing_share,
            "waiting_share": fit.waiting_share,
        })),
        "sharing": log.fit.as_ref().map(|fit| json!({
            "depends": fit.depends(),
            "by_chance": fit.is_by_chance,
            "sigma": fit.sharing.sigma,
            "sigma_interval": [fit.sigma.0, fit.sigma.1],
            "kappa": fit.sharing.kappa,
            "kappa_interval": [fit.kappa.0, fit.kappa.1],
            "running_seen": fit.running_seen,
            "slowdown": fit.slowdown,
            "slowdown_interval": [fit.slowdown_interval.0, fit.slowdown_interval.1],
            "curve": fit.curve.iter().map(|point| json!({
                "running": point.running,
                "slowdown": point.slowdown,
                "requests": point.len,
            })).collect::<Vec<_>>(),
        })),
        "stalls": log.stalls.iter().map(|pause| json!({
            "at_seconds": seconds(pause.at.0),
            "lasts_seconds": seconds(pause.lasts.0),
        })).collect::<Vec<_>>(),
        "queue": log.has_waits.then_some(log.queue),
        "total": log.total,
    })
}

fn search(result: &SearchResult) -> Value {
    json!({
        "rate": result.rate,
        "processes": result.processes,
        "control": result.control,
        "threads_max": result.threads_max,
        "running_seen": result.running_seen,
        "found": result.search.found,
        "tried": result.search.tried,
    })
}
