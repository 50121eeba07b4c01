//! The flags of fleets and what they mean.

use queueing::balancing::Rule;
use telemetry::Nanos;
use whatif::{Balance, Limits};

use super::super::flags::{Flags, WhatifOptions, span, whole};
use super::FleetVariant;
use crate::inputs::expect;

/// Rules by their names, those that need no key and no cookie: a log does not tell either.
pub(super) const BALANCES: [(&str, Balance); 9] = [
    ("central", Balance::Central),
    ("queue", Balance::By(Rule::Queue)),
    ("least-connections", Balance::By(Rule::LeastConnections)),
    ("two-choices", Balance::By(Rule::TwoChoices)),
    ("peak-ewma", Balance::By(Rule::PeakEwma)),
    ("prequal", Balance::By(Rule::Prequal)),
    ("round-robin", Balance::By(Rule::RoundRobin)),
    ("random", Balance::By(Rule::Random)),
    ("first", Balance::By(Rule::First)),
];
pub(super) const LIMITS: [(&str, Limits); 3] = [
    ("reported", Limits::Reported),
    ("learnt", Limits::Learnt),
    ("none", Limits::None),
];

const SERVERS_MAX: usize = 1_024;
const SLOTS_MAX: usize = 4_096;
const PROXIES_MAX: usize = 256;
const SLOWER_MAX: f64 = 10_000.0;

/// Several servers instead of one.
#[derive(Clone, Debug)]
pub(in super::super) struct FleetOptions {
    pub(super) servers: Vec<usize>,
    pub(super) slots: Option<u32>,
    balances: Vec<Balance>,
    limits: Vec<Limits>,
    proxies: Vec<usize>,
    pub(super) slow: Option<f64>,
    /// `None`: as the log says.
    pub(super) round_trip: Option<Nanos>,
    pub(super) report_delay: Nanos,
}

impl Flags<'_> {
    /// What the flags say of a fleet; `None` without `--servers`.
    pub(in super::super) fn fleet(&mut self) -> Option<FleetOptions> {
        let others = [
            "slots",
            "balance",
            "limits",
            "proxies",
            "slow-server",
            "round-trip",
            "report-delay",
        ];
        if !self.has("servers") {
            for flag in others
                .iter()
                .filter(|flag| self.has(flag))
                .collect::<Vec<_>>()
            {
                self.fault(&format!("--{flag}"), "belongs to `--servers`");
            }
            return None;
        }
        let slots = self.value("slots", |text| whole(text, 1..=SLOTS_MAX));
        Some(FleetOptions {
            servers: self.list("servers", |text| whole(text, 1..=SERVERS_MAX)),
            slots: slots.and_then(|slots| u32::try_from(slots).ok()),
            balances: self.list("balance", |text| named(text, &BALANCES)),
            limits: self.list("limits", |text| named(text, &LIMITS)),
            proxies: self.list("proxies", |text| whole(text, 1..=PROXIES_MAX)),
            slow: self.value("slow-server", slower),
            round_trip: self.value("round-trip", span),
            report_delay: self.or("report-delay", Nanos::ZERO, span),
        })
    }
}

fn named<T: Copy>(text: &str, all: &[(&str, T)]) -> Result<T, String> {
    let found = all.iter().find(|(name, _)| *name == text);
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let expected = names.join(", ");
    expect(found.map(|(_, one)| *one), &expected, text)
}

/// The name of one.
pub(super) fn name_of<T: PartialEq>(wanted: &T, all: &[(&'static str, T)]) -> &'static str {
    let found = all.iter().find(|(_, one)| one == wanted);
    found.map_or("", |(name, _)| name)
}

/// `10x`.
fn slower(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('x').and_then(|text| text.parse().ok());
    let number = number.filter(|number: &f64| (1.0..=SLOWER_MAX).contains(number));
    expect(number, "a factor from 1x to 10000x", text)
}

impl FleetOptions {
    /// Finds faults of flags in combination.
    pub(in super::super) fn check(&self, flags: &mut Flags<'_>, options: &WhatifOptions) {
        let faults = [
            ("--threads", !options.threads.is_empty()),
            ("--processes", !options.processes.is_empty()),
            ("--concurrency", !options.concurrencies.is_empty()),
            ("--to-thread", !options.to_threads.is_empty()),
            ("--pools", !options.pools.is_empty()),
            ("--controller", !options.controls.is_empty()),
            ("--objective", !options.objectives.is_empty()),
        ];
        for (flag, _) in faults.iter().filter(|(_, is_used)| *is_used) {
            flags.fault(flag, "is about one server; `--servers` has `--slots`");
        }
    }

    /// All combinations: by rate, then servers, proxies, limits and rules.
    pub(super) fn variants(&self, rates: &[f64]) -> Vec<FleetVariant> {
        let balances = match self.balances.as_slice() {
            [] => BALANCES.iter().map(|(_, balance)| *balance).collect(),
            named => named.to_vec(),
        };
        let limits = match self.limits.as_slice() {
            [] => &[Limits::Reported, Limits::None],
            named => named,
        };
        let proxies = match self.proxies.as_slice() {
            [] => &[1],
            named => named,
        };
        let mut variants: Vec<FleetVariant> = Vec::new();
        for rate in rates {
            for servers in &self.servers {
                for proxies in proxies {
                    for limits in limits {
                        variants.extend(balances.iter().map(|balance| FleetVariant {
                            servers: *servers,
                            proxies: *proxies,
                            balance: *balance,
                            limits: *limits,
                            rate: *rate,
                        }));
                    }
                }
            }
        }
        // The central queue knows all, whatever proxies do.
        let mut central: Vec<(f64, usize)> = Vec::new();
        variants.retain(|one| {
            let place = (one.rate, one.servers);
            let is_again = one.balance == Balance::Central && central.contains(&place);
            central.extend((one.balance == Balance::Central).then_some(place));
            !is_again
        });
        variants
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn understands_factors() {
        assert_eq!(slower("10x"), Ok(10.0));
        assert_eq!(slower("1.5x"), Ok(1.5));
        for wrong in ["10", "x10", "0.5x", "-3x", "nanx", "1e9x", ""] {
            assert!(slower(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn all_combinations_are_simulated_and_the_central_queue_once() {
        let options = FleetOptions {
            servers: vec![2, 4],
            slots: None,
            balances: vec![Balance::Central, Balance::By(Rule::Queue)],
            limits: Vec::new(),
            proxies: vec![1, 4],
            slow: None,
            round_trip: None,
            report_delay: Nanos::ZERO,
        };
        let variants = options.variants(&[1.0, 2.0]);
        let central = variants
            .iter()
            .filter(|one| one.balance == Balance::Central);
        assert_eq!((central.count(), variants.len()), (4, 4 + 16));
    }
}
