//! Answers for programs: one object, schema 1. The keys are documented in docs/guide/whatif.md.

use serde_json::{Value, json};

use super::fitting::FittedFacts;
use super::present::LogFacts;
use super::{Searched, Told, dependence};

/// The text, with a newline at its end.
pub(super) fn json(told: &Told) -> String {
    let present = &told.present;
    let objectives: Vec<&str> = told
        .objectives
        .iter()
        .map(|one| one.text.as_str())
        .collect();
    let remarks: Vec<String> = told
        .remarks
        .iter()
        .cloned()
        .chain(dependence(present))
        .collect();
    let value = json!({
        "schema": 1,
        "source": told.title,
        "log": present.log.as_ref().map(|log| facts(log, told)),
        "calibration": present.calibration,
        "fitted": present.fitted.as_ref().map(fitted),
        "answers": told.answers,
        "objectives": objectives,
        "searches": told.searches.iter().map(search).collect::<Vec<_>>(),
        "remarks": remarks,
    });
    format!("{value:#}\n")
}

fn facts(log: &LogFacts, told: &Told) -> Value {
    let present = &told.present.variant;
    let pools = present
        .pools
        .iter()
        .map(|pool| json!({ "name": pool.name, "threads": pool.threads.to_string() }));
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
        "queue": log.queue,
        "total": log.total,
    })
}

fn fitted(fitted: &FittedFacts) -> Value {
    let routes = fitted.routes.iter().map(|route| {
        json!({
            "name": route.name,
            "run": route.run,
            "requests": route.requests,
            "distance": route.distance,
        })
    });
    let waits = fitted.waits.iter().map(|wait| {
        json!({
            "percentile": wait.percentile,
            "measured_ms": wait.measured_ms,
            "law_ms": wait.law_ms,
            "law_interval_ms": [wait.law_interval_ms.0, wait.law_interval_ms.1],
            "holds": wait.holds,
        })
    });
    json!({
        "law": fitted.text,
        "fits": fitted.fits(),
        "routes": routes.collect::<Vec<_>>(),
        "runs": fitted.beside.runs,
        "dispersion": fitted.beside.dispersion,
        "waits": waits.collect::<Vec<_>>(),
    })
}

fn search(searched: &Searched) -> Value {
    json!({
        "rate": searched.rate,
        "processes": searched.processes,
        "control": searched.control,
        "threads_max": searched.threads_max,
        "running_seen": searched.running_seen,
        "found": searched.search.found,
        "tried": searched.search.tried,
    })
}
