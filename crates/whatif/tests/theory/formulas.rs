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
