//! What theory says of waits, to hold the simulation and predictions against.
//!
//! Takes servers and load, gives probabilities and waits; all waits are in units of the mean run time. It
//! must not know settings or outcomes.

/// Requests that come by chance at servers of one kind with one queue in front, oldest first.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Load {
    /// Threads; at least 1.
    pub(crate) servers: usize,
    /// Requests a second times their mean run time in seconds: how many servers are at work in the mean.
    pub(crate) offered: f64,
}

impl Load {
    /// The share of time in which a server is at work; with 1 and more, queues grow without end.
    pub(crate) fn utilisation(&self) -> f64 {
        self.offered / self.servers as f64
    }

    /// The probability that a request waits when run times are exponential (Erlang 1917, formula C); 1 at
    /// and beyond capacity.
    pub(crate) fn wait_probability(&self) -> f64 {
        if self.utilisation() >= 1.0 {
            return 1.0;
        }
        // Formula B by its recursion, which overflows for no number of servers.
        let blocked = (1..=self.servers).fold(1.0, |blocked, servers| {
            let carried = self.offered * blocked;
            carried / (servers as f64 + carried)
        });
        blocked / (1.0 - self.utilisation() * (1.0 - blocked))
    }

    /// The mean wait of all requests when run times are exponential; infinite at and beyond capacity.
    pub(crate) fn wait_mean(&self) -> f64 {
        let spare = self.servers as f64 - self.offered;
        if spare <= 0.0 {
            return f64::INFINITY;
        }
        self.wait_probability() / spare
    }

    /// The wait that the share `q` of all requests does not exceed when run times are exponential; infinite
    /// at and beyond capacity.
    pub(crate) fn wait_quantile(&self, q: f64) -> f64 {
        let spare = self.servers as f64 - self.offered;
        if spare <= 0.0 {
            return f64::INFINITY;
        }
        ((self.wait_probability() / (1.0 - q)).ln() / spare).max(0.0)
    }

    /// The mean wait with any law of run times and of times between arrivals, of which the variances over
    /// the squares of their means are given (Allen 1990, after Cunneen).
    ///
    /// Exact for exponential run times and arrivals by chance, and for one server and arrivals by chance
    /// (Pollaczek 1930, Khinchine 1932); an approximation otherwise, too high for many servers and uneven
    /// run times, too low for arrivals in pages.
    pub(crate) fn wait_mean_uneven(&self, arrivals_cs2: f64, service_cs2: f64) -> f64 {
        self.wait_mean() * (arrivals_cs2 + service_cs2) / 2.0
    }
}

/// One server, arrivals by chance, all run times equal: the exact distribution of waits.
#[derive(Clone, Debug)]
pub(crate) struct EqualRuns {
    load: f64,
    /// Probabilities that at most so many requests are there, the one at work included.
    at_most: Vec<f64>,
}

impl EqualRuns {
    /// For a load (requests a second times run time) from 0 to below 1; `None` beyond. Waits up to `longest`
    /// run times can be asked for.
    pub(crate) fn new(load: f64, longest: usize) -> Option<EqualRuns> {
        if !(0.0..1.0).contains(&load) {
            return None;
        }
        let len = longest + 2;
        let arrive = poisson_tails(load, len);
        let none_arrive = (-load).exp();
        let mut probable = vec![1.0 - load];
        // Up over a level as often as down over it: a sum of positive terms, so nothing cancels out.
        for level in 1..=len {
            let between = (1..level).map(|from| probable[from] * arrive[level - from + 1]);
            let up = probable[0] * arrive[level] + between.sum::<f64>();
            probable.push(up / none_arrive);
        }
        let at_most = probable.iter().scan(0.0, |sum, probability| {
            *sum += probability;
            Some(*sum)
        });
        Some(EqualRuns {
            load,
            at_most: at_most.collect(),
        })
    }

    /// The mean wait.
    pub(crate) fn wait_mean(&self) -> f64 {
        self.load / (2.0 * (1.0 - self.load))
    }

    /// The probability that a wait is at most `wait`; `None` beyond the longest (Franx 2001, for one server).
    pub(crate) fn wait_at_most(&self, wait: f64) -> Option<f64> {
        let whole = wait.floor() as usize;
        if whole + 2 >= self.at_most.len() {
            return None;
        }
        let arrive = self.load * (whole as f64 + 1.0 - wait);
        let mut term = (-arrive).exp();
        let mut sum = 0.0;
        for came in 0..=whole {
            sum += term * self.at_most[whole - came + 1];
            term *= arrive / (came as f64 + 1.0);
        }
        Some(sum)
    }
}

/// The probabilities that at least 0, 1, … `len` requests come in one run time.
fn poisson_tails(load: f64, len: usize) -> Vec<f64> {
    // Terms beyond twice the length are far below the smallest number that counts.
    let terms = (0..2 * len + 40).scan((-load).exp(), |term, came| {
        let probability = *term;
        *term *= load / (came as f64 + 1.0);
        Some(probability)
    });
    let terms: Vec<f64> = terms.collect();
    let mut tails = vec![0.0; terms.len() + 1];
    for (index, term) in terms.iter().enumerate().rev() {
        tails[index] = tails[index + 1] + term;
    }
    tails.truncate(len + 1);
    tails
}

fn near(found: f64, expect: f64, what: &str) {
    let error = (found - expect).abs();
    assert!(
        error <= 1e-4 * expect.max(1.0),
        "{what}: {found} for {expect}"
    );
}

#[test]
fn waits_at_exponential_servers_are_those_of_the_books() {
    let check = |servers, offered, wait_mean| {
        let load = Load { servers, offered };
        near(load.wait_mean(), wait_mean, &format!("{load:?}"));
    };
    // One server: load / (1 - load). Two: load² / (1 - load²) with the load of each.
    check(1, 0.5, 1.0);
    check(1, 0.9, 9.0);
    check(2, 1.6, 0.64 / 0.36);
    check(5, 4.0, 0.5541);
    check(10, 8.0, 0.2046);
    let full = Load {
        servers: 3,
        offered: 3.0,
    };
    assert_eq!(
        (full.wait_mean(), full.wait_probability()),
        (f64::INFINITY, 1.0)
    );
    near(
        Load {
            servers: 1,
            offered: 0.7,
        }
        .wait_probability(),
        0.7,
        "one server",
    );
    near(
        Load {
            servers: 2,
            offered: 1.0,
        }
        .wait_probability(),
        1.0 / 3.0,
        "two servers",
    );
    let many = Load {
        servers: 2_000,
        offered: 1_900.0,
    };
    assert!((0.0..0.1).contains(&many.wait_probability()));
}

#[test]
fn quantiles_begin_with_those_who_do_not_wait() {
    let load = Load {
        servers: 1,
        offered: 0.5,
    };
    assert_eq!(load.wait_quantile(0.5), 0.0);
    near(
        load.wait_quantile(0.95),
        2.0 * 10f64.ln(),
        "exponential tail",
    );
    assert_eq!(
        Load {
            servers: 1,
            offered: 1.0
        }
        .wait_quantile(0.5),
        f64::INFINITY
    );
}

#[test]
fn even_runs_halve_the_wait_at_one_server() {
    let load = Load {
        servers: 1,
        offered: 0.8,
    };
    near(load.wait_mean_uneven(1.0, 0.0), 2.0, "even");
    near(
        load.wait_mean_uneven(1.0, 1.0),
        load.wait_mean(),
        "exponential",
    );
    near(
        EqualRuns::new(0.8, 10).map_or(0.0, |runs| runs.wait_mean()),
        2.0,
        "exact",
    );
    assert!(EqualRuns::new(1.0, 10).is_none());
}

#[test]
fn the_distribution_of_equal_runs_has_its_own_mean() {
    for load in [0.1, 0.5, 0.8, 0.95] {
        let runs = EqualRuns::new(load, 400).expect("below capacity");
        near(runs.wait_at_most(0.0).unwrap_or(0.0), 1.0 - load, "at once");
        // The mean is the integral of the tail.
        let steps = 400 * 50;
        let tail = |step: usize| 1.0 - runs.wait_at_most((step as f64 + 0.5) / 50.0).unwrap_or(1.0);
        let mean = (0..steps).map(tail).sum::<f64>() / 50.0;
        assert!(
            (mean / runs.wait_mean() - 1.0).abs() < 1e-3,
            "{load}: {mean}"
        );
        assert_eq!(runs.wait_at_most(401.0), None);
    }
}
