//! `--law fitted`: laws in place of the log's own requests, and how well they do.
//!
//! Takes the present of a log, puts the requests of a fitted law into it, gives the law as `--law` takes it and
//! what it is worth. The law that is simulated is the one that is written, so that it can be given back.

use measure::Nanos;
use whatif::Laws;
use whatif::asking::{Basis, ErrorMax, Requests, Times, Variant, answer, on_all_cores};
use whatif::fitting::{
    Beside, DispersionPair, Fitted, Fitting, Moments, PercentilePair, REQUESTS_LEN_MIN, fit,
};

use super::flags::{FittedWish, Wish};
use super::present::Present;
use super::reading::Read;
use super::{law, table};
use crate::message::Message;

/// A fitted law, and what it is worth.
#[derive(Debug)]
pub(super) struct FittedFacts {
    /// As `--law` takes it.
    pub(super) text: String,
    pub(super) routes: Vec<RouteFacts>,
    pub(super) moments: Moments,
    pub(super) beside: Beside,
    /// Waits of the present by law; none where nothing was measured.
    pub(super) waits: Vec<Wait>,
    /// What the log's own requests have, and those of the law do not.
    pub(super) lacks: Vec<&'static str>,
}

/// A law of run times.
#[derive(Debug)]
pub(super) struct RouteFacts {
    /// The busiest route that has it.
    pub(super) name: String,
    pub(super) run: String,
    pub(super) requests: u64,
    pub(super) distance: Option<f64>,
    distance_max: f64,
}

/// A percentile of the waits of the present, by law drawn [`DRAWS_LEN`] times.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Wait {
    pub(super) percentile: u8,
    pub(super) measured_ms: f64,
    /// In the middle of all draws.
    pub(super) law_ms: f64,
    /// The smallest and the largest of all draws: what chance does.
    pub(super) law_interval_ms: (f64, f64),
    /// Whether what was measured may well be one more draw.
    pub(super) holds: bool,
}

/// One draw may be lucky: so many show what chance does.
pub(super) const DRAWS_LEN: usize = 7;

/// Fits laws to the log of a present and puts them in its place.
///
/// # Errors
/// There are too few requests, or too many by law.
pub(super) fn replace(
    present: &mut Present,
    wish: &Wish,
    asked: FittedWish,
    read: &Read,
) -> Result<(), Message> {
    let (Requests::Recorded(workload), Some(log)) = (&present.basis.requests, &present.log) else {
        return Ok(());
    };
    let moments = match read.recording.is_by_second() {
        true => Moments::Seconds,
        false => Moments::Exact,
    };
    let pools = read.routes.pools();
    let (now, separated) = (read.routes.now(&pools), read.routes.separated(&pools));
    let both = now.iter().zip(&separated);
    let apart: Vec<usize> = both
        .map(|(now, then)| now * (pools.len() + wish.pools.len()) + then)
        .collect();
    let fitting = Fitting {
        moments,
        apart: &apart,
        run: wish.run,
    };
    let fitted = fit(workload, &fitting).ok_or_else(too_few)?;
    let written = |lasts: Option<Nanos>| {
        let text = law::text(&fitted.laws, lasts);
        let laws = law::laws(&text);
        laws.map(|laws| (text, laws))
            .map_err(|cause| Message::new("`--law fitted`", cause))
    };
    let (_, laws) = written(None)?;
    let beside = Beside::of(workload, &laws, moments, wish.seed);
    let stalls = (!log.stalls.is_empty()).then_some("stalls of the whole server");
    let lacks = stalls.into_iter().collect();
    let measured = log.queue;
    let basis = &mut present.basis;
    basis.requests = Requests::Made(laws);
    basis.pool_of_route = by_law(&fitted, &now);
    let waits = match present.calibration.is_some() {
        true => waits(basis, &present.variant, &measured, wish.error_max),
        false => Vec::new(),
    };
    let (text, laws) = written(asked.lasts)?;
    basis.pool_of_route = by_law(&fitted, &separated);
    let routes = routes(&fitted, &laws, read);
    basis.requests = Requests::Made(laws);
    present.fitted = Some(FittedFacts {
        text,
        routes,
        moments,
        beside,
        waits,
        lacks,
    });
    Ok(())
}

fn too_few() -> Message {
    let cause = format!("expected a log of at least {REQUESTS_LEN_MIN} requests");
    Message::new("`--law fitted`", cause).with_hint("without it the log's own are simulated")
}

/// The pool of each route of a law, from those of the log's routes.
fn by_law(fitted: &Fitted, pool_of_route: &[usize]) -> Vec<usize> {
    let pool = |route: u16| pool_of_route.get(usize::from(route)).copied().unwrap_or(0);
    let routes = fitted.routes.iter();
    routes.map(|route| pool(route.log_route)).collect()
}

fn routes(fitted: &Fitted, laws: &Laws, read: &Read) -> Vec<RouteFacts> {
    let pairs = fitted.routes.iter().zip(&laws.routes);
    pairs
        .map(|(from, route)| RouteFacts {
            name: read.routes.name(from.log_route),
            run: law::service_text(&route.service),
            requests: from.requests,
            distance: from.distance,
            distance_max: from.distance_max(),
        })
        .collect()
}

type Quantile = fn(&Times) -> f64;

/// The present by law, with one seed after another.
fn waits(basis: &Basis, present: &Variant, measured: &Times, error_max: ErrorMax) -> Vec<Wait> {
    let draws: Vec<Times> = on_all_cores(DRAWS_LEN, &|index| {
        let basis = Basis {
            seed: basis.seed.wrapping_add(index as u64),
            ..basis.clone()
        };
        answer(&basis, &basis.requests, present).queue
    });
    let wait = |(percentile, of): (u8, Quantile)| {
        let mut found: Vec<f64> = draws.iter().map(of).collect();
        found.sort_unstable_by(f64::total_cmp);
        let (least, most) = (found[0], found[DRAWS_LEN - 1]);
        let measured_ms = of(measured);
        let near = (error_max.share * measured_ms).max(error_max.span.as_secs_f64() * 1e3);
        Wait {
            percentile,
            measured_ms,
            law_ms: found[DRAWS_LEN / 2],
            law_interval_ms: (least, most),
            holds: (least - near..=most + near).contains(&measured_ms),
        }
    };
    let percentiles: [(u8, Quantile); 3] = [
        (50, |times| times.p50_ms),
        (95, |times| times.p95_ms),
        (99, |times| times.p99_ms),
    ];
    percentiles.map(wait).to_vec()
}

impl RouteFacts {
    fn fits(&self) -> bool {
        let far = |distance| distance > self.distance_max;
        !self.distance.is_some_and(far)
    }
}

impl FittedFacts {
    /// Whether it is as near as laws have to be, and its waits may be those of the log.
    pub(super) fn fits(&self) -> bool {
        self.beside.holds()
            && self.routes.iter().all(RouteFacts::fits)
            && self.waits.iter().all(|wait| wait.holds)
    }

    /// What whoever believes the law has to know.
    pub(super) fn remarks(&self) -> Vec<String> {
        let far = self.routes.iter().filter(|route| !route.fits());
        let mut remarks: Vec<String> = far.map(far_run).collect();
        let runs = self.beside.runs.iter().filter(|pair| !pair.holds);
        remarks.extend(runs.map(far_percentile));
        let dispersion = self.beside.dispersion.iter().filter(|pair| !pair.holds);
        remarks.extend(dispersion.map(far_dispersion));
        if self.moments == Moments::Seconds {
            remarks.push(
                "`poisson` is a guess: the log does not tell how requests are spread within a second"
                    .to_owned(),
            );
        }
        let lacks = self.lacks.iter();
        remarks
            .extend(lacks.map(|what| format!("the law knows nothing of {what}, and the log does")));
        if self.waits.iter().any(|wait| !wait.holds) {
            remarks.push(
                "THE LAW LOSES WHAT THE WAITS OF THE LOG HANG ON: its answers are not about this server; \
                 without `--law fitted` the log's own requests are simulated"
                    .to_owned(),
            );
        }
        remarks
    }
}

fn far_run(route: &RouteFacts) -> String {
    format!(
        "NO LAW OF RUN TIMES FITS `{}`: `{}` is the nearest, at a distance of {:.3}, expected up to \
         {:.3}",
        route.name,
        route.run,
        route.distance.unwrap_or_default(),
        route.distance_max
    )
}

fn far_percentile(pair: &PercentilePair) -> String {
    format!(
        "THE LAW OF RUN TIMES DOES NOT FIT: its p{} is {} ms and not {}",
        pair.percentile,
        table::ms(pair.law_ms),
        table::ms(pair.log_ms)
    )
}

fn far_dispersion(pair: &DispersionPair) -> String {
    let how = match pair.log > pair.law {
        true => "less evenly",
        false => "more evenly",
    };
    format!(
        "THE LAW OF ARRIVALS DOES NOT FIT: within {} s requests come {how} than by law, with an index of \
         dispersion of {:.2} and not {:.2}",
        pair.window_seconds, pair.log, pair.law
    )
}
