//! Laws beside the laws that were fitted to their requests.
//!
//! Each row makes the requests of one law, fits a law to them, and says whether the two are close.

use research::fitting::{Closeness, fit};
use telemetry::Nanos;
use whatif::{ArrivalProcess, Laws, Rate, Route, Service};

const PER_SECOND: f64 = 200.0;
const LASTS: Nanos = Nanos::from_secs(600);
/// Of the requests that are fitted, and of those that the fitted law makes.
const SEEDS: (u64, u64) = (1, 2);

/// Prints the table.
pub(crate) fn print() {
    println!("| made by | fitted | distance of run times | close |\n|---|---|---|---|");
    for (process, service) in laws() {
        let made = Laws {
            rates: vec![Rate::steady(PER_SECOND, LASTS)],
            process,
            routes: vec![Route::only(service)],
        };
        let requests: Vec<_> = made.arrivals(SEEDS.0).collect();
        let Some(fitted) = fit(&requests) else {
            println!("| {process:?}, {service:?} | none | | |");
            continue;
        };
        let is_close = Closeness::of(&requests, &fitted.laws, SEEDS.1).holds();
        println!(
            "| {process:?}, {service:?} | {:?}, {:?} | {:.3} | {is_close} |",
            fitted.laws.process, fitted.laws.routes[0].service, fitted.routes[0].distance
        );
    }
}

fn laws() -> [(ArrivalProcess, Service); 4] {
    let mean = Nanos::from_ms(20);
    let bursts = ArrivalProcess::Bursts {
        len_mean: 10.0,
        gap: Nanos::from_ms(1),
    };
    let pareto = Service::Pareto {
        least: Nanos::from_ms(5),
        most: Nanos::from_secs(10),
        tail: 1.2,
    };
    [
        (ArrivalProcess::Even, Service::Constant(mean)),
        (ArrivalProcess::Poisson, Service::Exponential { mean }),
        (bursts, Service::LogNormal { mean, cs2: 2.0 }),
        (ArrivalProcess::Poisson, pareto),
    ]
}
