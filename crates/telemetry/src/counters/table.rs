//! Tables of numbers. Each number is listed once: it is a counter in memory that processes share, a number of a
//! snapshot, which adds up and is written as JSON, and a metric.

/// `numbers! { Counters => Snapshot { kind name as "metric", … } + { further fields of the counters } }`.
///
/// When snapshots add up, a `sum` and a `gauge` are added, and of a `most` the greatest counts. Of a process that has
/// ended only each `sum` is left. The metric is called by the prefix of its table and `metric`, or the name where none
/// is given; one that is empty is written with labels, or not at all: see `exposition`. In brackets stands what serde is to know.
macro_rules! numbers {
    (@add most, $ours:expr, $theirs:expr) => { $ours = $ours.max($theirs) };
    (@add $kind:ident, $ours:expr, $theirs:expr) => { $ours = $ours.saturating_add($theirs) };
    (@forget sum, $ours:expr) => {};
    (@forget $kind:ident, $ours:expr) => { $ours = 0 };
    (@kind sum) => { MetricKind::Counter };
    (@kind $kind:ident) => { MetricKind::Gauge };
    (@metric $name:ident) => { stringify!($name) };
    (@metric $name:ident $metric:literal) => { $metric };
    (
        $(#[$of_counters:meta])* $counters:ident =>
        $(#[$of_snapshot:meta])* $snapshot:ident {
            $($(#[doc = $doc:literal])* $kind:ident $name:ident $(as $metric:literal)? $([$serde:meta])?,)+
        }
        $(+ { $($further:tt)* })?
    ) => {
        $(#[$of_counters])*
        #[derive(Default)]
        #[repr(C, align(128))]
        pub struct $counters {
            $($(#[doc = $doc])* pub $name: Counter,)+
            $($($further)*)?
        }

        $(#[$of_snapshot])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $snapshot {
            $($(#[doc = $doc])* $(#[$serde])? pub $name: u64,)+
        }

        impl $counters {
            /// All of them as they are now.
            pub fn numbers(&self) -> $snapshot {
                $snapshot { $($name: self.$name.count(),)+ }
            }
        }

        impl $snapshot {
            pub(in crate::counters) fn add(&mut self, other: &Self) {
                $(numbers!(@add $kind, self.$name, other.$name);)+
            }

            pub(in crate::counters) fn forget_gauges(&mut self) {
                $(numbers!(@forget $kind, self.$name);)+
            }

            /// What the numbers are as metrics, in the order of `values`.
            pub(in crate::counters) const METRICS: &'static [TableMetric] = &[
                $(TableMetric {
                    name: numbers!(@metric $name $($metric)?),
                    kind: numbers!(@kind $kind),
                    help: concat!($($doc),+),
                },)+
            ];

            pub(in crate::counters) fn values(&self) -> [u64; Self::METRICS.len()] {
                [$(self.$name,)+]
            }
        }
    };
}

/// `kinds! { Kind => Counts { Variant name, … } }`: an enum, and how many there are of each of its variants.
macro_rules! kinds {
    (
        $(#[$of_kind:meta])* $kind:ident =>
        $(#[$of_counts:meta])* $counts:ident {
            $($(#[doc = $doc:literal])* $variant:ident $name:ident,)+
        }
    ) => {
        $(#[$of_kind])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $kind { $($(#[doc = $doc])* $variant,)+ }

        $(#[$of_counts])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $counts { $($(#[doc = $doc])* pub $name: u64,)+ }

        impl $kind {
            /// How many there are.
            pub const COUNT: usize = [$($kind::$variant,)+].len();
        }

        impl $counts {
            pub(in crate::counters) fn of(counters: &[Counter; $kind::COUNT]) -> Self {
                Self { $($name: counters[$kind::$variant as usize].count(),)+ }
            }

            pub(in crate::counters) fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.saturating_add(other.$name);)+
            }

            pub(in crate::counters) const NAMES: [&'static str; $kind::COUNT] = [$(stringify!($name),)+];

            pub(in crate::counters) fn values(&self) -> [u64; $kind::COUNT] {
                [$(self.$name,)+]
            }
        }
    };
}

pub(super) use {kinds, numbers};
