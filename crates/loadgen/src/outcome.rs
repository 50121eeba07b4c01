//! What a run has found: the numbers that are shown, stored and compared.
//!
//! Plain values that serde writes and reads; [`Outcome`] with [`SCHEMA`] is the file of `--json`. Units are
//! in the names. A field is never given another meaning under the same number of the schema.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::distribution::Summary;
use crate::plan::{Closing, Leg, Profile, Protocol, Timestamps};

/// The form of [`Outcome`]; it grows when a field changes its meaning or goes.
pub const SCHEMA: u32 = 2;

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of the program that ran it.
    pub milepost: String,
    /// What was asked for.
    pub asked: Asked,
    /// When it began to count, milliseconds since 1970 UTC.
    pub began_unix_ms: u64,
    /// Counted time.
    pub seconds: f64,
    /// What was counted.
    pub counts: Counts,
    /// How long everything took.
    pub times: Times,
    /// Second by second.
    pub series: Vec<Second>,
    /// The generator's own side.
    pub generator: Generator,
    /// The server's, if it was watched.
    pub server: Option<ServerUse>,
    /// Counters of the host's network that grew during the run, by name: `TcpExt.ListenOverflows`.
    pub kernel: BTreeMap<String, u64>,
    /// What misbehaving clients did.
    pub bad_clients: Vec<BadClientCounts>,
    /// What has to be known about these numbers, the worst first.
    pub remarks: Vec<Remark>,
}

/// What was asked for, as far as results differ by it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// The target.
    pub url: String,
    /// What people call this run; empty: nothing.
    pub label: String,
    /// `closed`, `open, constant`, `open, poisson`, `recorded`, `burst`.
    pub load: String,
    /// Requests a second, of an open load; of a ramp its end.
    pub rate: Option<f64>,
    /// Steps and ramps of that rate, the warm-up included; empty: it stays the same.
    #[serde(default)]
    pub rate_legs: Vec<AskedLeg>,
    /// Connections at most.
    pub connections: usize,
    /// What was spoken over them.
    #[serde(default)]
    pub protocol: Protocol,
    /// Requests in flight on each; with HTTP/2 streams.
    pub in_flight: usize,
    /// Requests before a connection is closed; `None`: it is kept.
    pub requests_each: Option<u64>,
    /// Who ends connections.
    pub closing: Closing,
    /// When replies counted as arrived.
    #[serde(default)]
    pub timestamps: Timestamps,
    /// Threads of the generator.
    pub threads: usize,
    /// Kinds of requests by name.
    pub requests: Vec<String>,
    /// Time to wait for a reply.
    pub timeout_s: f64,
}

/// A step or a ramp: from one number straight to another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AskedLeg {
    /// At its beginning.
    pub from: f64,
    /// At its end; of a step the same.
    pub to: f64,
    /// How long it takes.
    pub lasts_s: f64,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests with the right reply.
    pub answered: u64,
    /// Of a load by the clock, right replies that came within the counted time: those of requests that were due
    /// in it may come later, and say nothing of how many the server answers a second. `None`: all of them.
    #[serde(default)]
    pub answered_within: Option<u64>,
    /// Others, by why.
    pub failures: Failures,
    /// Right replies and failures that were under way while the generator itself stood still: they are
    /// in the numbers above, and in no distribution.
    pub disturbed: u64,
    /// Requests that were due (by the clock of an open load) and had not been sent at the end.
    pub unsent: u64,
    /// Requests that were sent and not answered at the end, when that was no failure.
    pub unfinished: u64,
    /// How long the oldest of them had been under way by then.
    #[serde(default)]
    pub unfinished_longest_us: f64,
    /// Connections established.
    pub connections: u64,
    /// Kept connections that the server ended between two requests: opened again, no failure.
    pub ended_idle: u64,
    /// Connections that the server was to end and did not (`--close server`).
    pub left_open: u64,
    /// Of them with a resumed TLS session.
    pub resumed: u64,
    /// Of HTTP/2, requests that a GOAWAY said were not processed: they were sent again on another connection.
    #[serde(default)]
    pub resent: u64,
    /// Of HTTP/2, streams that the server has reset, by the name of the code: `REFUSED_STREAM`. They have failed.
    #[serde(default)]
    pub resets: BTreeMap<String, u64>,
    /// Of HTTP/2, connections that the server has ended by GOAWAY, by the name of the code.
    #[serde(default)]
    pub goaways: BTreeMap<String, u64>,
    /// Of HTTP/2, the fewest streams that the server's settings allowed on a connection at once.
    #[serde(default)]
    pub streams_max: Option<u64>,
    /// Bytes of replies, heads included.
    pub read_bytes: u64,
    /// Bytes of requests.
    pub sent_bytes: u64,
    /// Replies by status.
    pub statuses: BTreeMap<u16, u64>,
}

/// The reasons for which a request has no right reply, each with its counter.
macro_rules! failures {
    ($($(#[$why:meta])* $failure:ident $counter:ident $name:literal,)*) => {
        /// Why a request has no right reply.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Failure { $($(#[$why])* $failure,)* }

        /// Requests without the right reply, by why. None is tried again.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Failures { $($(#[$why])* pub $counter: u64,)* }

        impl Failures {
            /// Of any kind.
            pub fn sum(&self) -> u64 {
                0 $(+ self.$counter)*
            }

            /// Each kind with its name.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($name, self.$counter)),*].into_iter()
            }

            /// Counts one.
            pub(crate) fn count(&mut self, why: Failure) {
                *match why { $(Failure::$failure => &mut self.$counter,)* } += 1;
            }

            /// Counts those of `other` as well.
            pub(crate) fn add(&mut self, other: &Failures) {
                $(self.$counter += other.$counter;)*
            }
        }
    };
}

failures! {
    /// The connection was refused or could not be made in time.
    Connect connect "connect",
    /// The connection was reset or ended before a byte of the reply.
    Reset reset "reset",
    /// The reply was not complete in time.
    Timeout timeout "timeout",
    /// The reply ended before its end, or was no HTTP.
    Short short "short",
    /// Another status.
    Status status "wrong status",
    /// Another length or another checksum.
    Body body "wrong body",
    /// Nothing that the server did: no port, no descriptor, no memory on this side.
    Local local "local",
}

impl AskedLeg {
    /// Those of a profile.
    pub fn all(profile: &Profile) -> Vec<AskedLeg> {
        let asked = |leg: &Leg| AskedLeg {
            from: leg.from,
            to: leg.to,
            lasts_s: leg.lasts.as_secs_f64(),
        };
        profile.legs().iter().map(asked).collect()
    }

    /// As flags say them: `10..60:2s,60:5s`; empty: there are none.
    pub fn written(legs: &[AskedLeg]) -> String {
        let text = |AskedLeg { from, to, lasts_s }: &AskedLeg| match from == to {
            true => format!("{from}:{lasts_s}s"),
            false => format!("{from}..{to}:{lasts_s}s"),
        };
        legs.iter().map(text).collect::<Vec<_>>().join(",")
    }
}

impl Counts {
    /// Requests that ended, in any way.
    pub fn ended(&self) -> u64 {
        self.answered + self.failures.sum()
    }

    /// Right replies that came within the counted time.
    pub fn within(&self) -> u64 {
        self.answered_within.unwrap_or(self.answered)
    }
}

/// How long everything took, each with its own beginning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// The one to quote. Closed loads: from sending a request to the last byte of its reply. Open ones: from
    /// the time at which it was to be sent.
    pub latency: Summary,
    /// From the beginning of a connection to its being established (with TLS: to the end of the handshake).
    pub connect: Summary,
    /// From sending to the first byte of the reply.
    pub first_byte: Summary,
    /// From sending to the last byte.
    pub last_byte: Summary,
    /// The whole turn of a request: from the end of the one before (or the beginning of its connection) to its
    /// own end. In a closed load requests a second × the mean of this is what is in flight.
    pub cycle: Summary,
    /// How long a request of an open load that was due, and for which a connection was free, waited for the
    /// generator itself.
    pub late: Option<Summary>,
    /// With the kernel's timestamps: how long a reply that had arrived waited for the generator to read its
    /// last byte. It is in no other time but `cycle`.
    #[serde(default)]
    pub unread: Option<Summary>,
}

/// One second of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Since the run began to count; negative: warming up.
    pub at_s: i64,
    /// Right replies.
    pub answered: u64,
    /// Other ends.
    pub failed: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Median latency of those that ended in it.
    pub p50_us: f64,
    /// 99 %.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// The generator's own side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// Each thread.
    pub threads: Vec<ThreadUse>,
    /// Processor time of all of them for a request that ended.
    pub cpu_us_per_request: f64,
    /// Resident memory of this process at the end.
    pub resident_bytes: u64,
    /// The same when all connections were open, or after the first second.
    pub resident_early_bytes: u64,
    /// How long the generator stood still, in sum.
    pub stalled_s: f64,
    /// Processor time of everybody but generator and server, of all processors' time.
    pub foreign_cpu_share: f64,
}

/// A thread of the generator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadUse {
    /// Processor time of wall time, 0 to 1.
    pub cpu_share: f64,
    /// Processor time.
    pub cpu_s: f64,
    /// Of it outside the kernel.
    pub user_s: f64,
    /// Time ready to run without a processor.
    pub waited_s: f64,
    /// Context switches that it did not want.
    pub involuntary_switches: u64,
}

/// The server's side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerUse {
    /// Processes at the end.
    pub processes: usize,
    /// Processor time of all of them for a request that ended.
    pub cpu_us_per_request: f64,
    /// Processor time of wall time; 2.0: two processors.
    pub cpu_share: f64,
    /// Resident memory of all at the end.
    pub resident_bytes: u64,
    /// Context switches for a request.
    pub switches_per_request: f64,
}

/// What a group of misbehaving clients did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BadClientCounts {
    /// What they did, in words.
    pub name: String,
    /// Open at the end.
    pub open: usize,
    /// Connections made.
    pub made: u64,
    /// Connections that the server ended.
    pub ended: u64,
    /// How long those lived that the server ended.
    pub lived: Option<Summary>,
    /// Bytes read.
    pub read_bytes: u64,
}

/// What has to be known about the numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remark {
    /// How bad it is.
    pub weight: Weight,
    /// A stable word for programs: `generator-limited`, `stalled`, `late`, `ports`.
    pub word: String,
    /// A sentence for people, with the remedy where there is one.
    pub text: String,
}

/// How bad a remark is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// The latencies or rates are not the server's.
    Invalid,
    /// They may be partly not.
    Doubtful,
    /// Worth knowing.
    Note,
}

impl Remark {
    /// A remark; the text has the remedy where there is one.
    pub fn new(weight: Weight, word: &str, text: String) -> Remark {
        Remark {
            weight,
            word: word.to_owned(),
            text,
        }
    }
}

impl Outcome {
    /// Right replies in a second of the counted time.
    pub fn per_second(&self) -> f64 {
        // A run without any time has no rate, not even an endless one, which JSON has no number for.
        match self.seconds > 0.0 {
            true => self.counts.within() as f64 / self.seconds,
            false => 0.0,
        }
    }

    /// Requests in flight on a connection at most: as many as were asked for and the server allowed.
    pub fn in_flight_max(&self) -> u64 {
        let asked = self.asked.in_flight as u64;
        self.counts
            .streams_max
            .map_or(asked, |allowed| allowed.min(asked))
    }

    /// Whether the numbers are the server's.
    pub fn is_valid(&self) -> bool {
        let mut weights = self.remarks.iter().map(|remark| remark.weight);
        weights.all(|weight| weight != Weight::Invalid)
    }
}
