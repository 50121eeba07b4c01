//! How state is written for the program that takes this one's place: descriptors by their numbers, which stay what
//! they are through `exec`, and moments by their distance from now.

use std::fmt::Display;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A descriptor. Reading it takes it over: each is to be read once.
pub(crate) mod fd {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(fd: &impl AsFd, to: S) -> Result<S::Ok, S::Error> {
        fd.as_fd().as_raw_fd().serialize(to)
    }

    pub(crate) fn deserialize<'d, D, F>(from: D) -> Result<F, D::Error>
    where
        D: Deserializer<'d>,
        F: TryFrom<OwnedFd>,
        F::Error: Display,
    {
        let number = RawFd::deserialize(from)?;
        let taken = os::adopt_fd(number).map_err(D::Error::custom)?;
        F::try_from(taken).map_err(D::Error::custom)
    }
}

/// A moment, in milliseconds from now; one that has passed is negative.
pub(crate) mod moment {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(at: &Instant, to: S) -> Result<S::Ok, S::Error> {
        let now = Instant::now();
        let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let ahead = ms(at.saturating_duration_since(now));
        (ahead - ms(now.saturating_duration_since(*at))).serialize(to)
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Instant, D::Error> {
        let ms = i64::deserialize(from)?;
        let (now, away) = (Instant::now(), Duration::from_millis(ms.unsigned_abs()));
        let at = match ms < 0 {
            true => now.checked_sub(away),
            false => now.checked_add(away),
        };
        // The machine has not run for so long, or will not.
        Ok(at.unwrap_or(now))
    }
}
