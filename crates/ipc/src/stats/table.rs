//! Tables of numbers. Each number is listed once: it is a counter in memory that processes share, and a number of a
//! snapshot, which adds up and is written as JSON.

/// `numbers! { Counters => Snapshot { kind name, … } + { further fields of the counters } }`.
///
/// When snapshots add up, a `sum` and a `gauge` are added, and of a `most` the greatest counts. Of a process that has
/// ended only each `sum` is left. In brackets stands what serde is to know.
macro_rules! numbers {
    (@add most, $ours:expr, $theirs:expr) => { $ours = $ours.max($theirs) };
    (@add $kind:ident, $ours:expr, $theirs:expr) => { $ours = $ours.saturating_add($theirs) };
    (@forget sum, $ours:expr) => {};
    (@forget $kind:ident, $ours:expr) => { $ours = 0 };
    (
        $(#[$of_counters:meta])* $counters:ident =>
        $(#[$of_snapshot:meta])* $snapshot:ident {
            $($(#[doc = $doc:literal])* $kind:ident $name:ident $([$serde:meta])?,)+
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
            fn numbers(&self) -> $snapshot {
                $snapshot { $($name: self.$name.count(),)+ }
            }
        }

        impl $snapshot {
            pub(super) fn add(&mut self, other: &Self) {
                $(numbers!(@add $kind, self.$name, other.$name);)+
            }

            pub(super) fn forget_gauges(&mut self) {
                $(numbers!(@forget $kind, self.$name);)+
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
            fn of(counters: &[Counter; $kind::COUNT]) -> Self {
                Self { $($name: counters[$kind::$variant as usize].count(),)+ }
            }

            pub(super) fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.saturating_add(other.$name);)+
            }
        }
    };
}

pub(super) use {kinds, numbers};
