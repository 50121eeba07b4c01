//! How ASGI applications run.

use super::{Hint, smaller_first, value};
use crate::typed::Concurrency;

/// What a number of requests inside an event loop is.
pub(crate) const CONCURRENCY: &str = "MIN:MAX or one number, from 1 to 100000";

const CONCURRENCY_MAX: u64 = 100_000;

/// Requests inside an event loop. One number stands for both.
pub(crate) fn concurrency(text: &str) -> Result<Concurrency, Hint> {
    let (min, max) = value::range(text).ok_or(None)?;
    if min > max {
        return Err(smaller_first(min, max, ':'));
    }
    let is_good = |count: u64| (1..=CONCURRENCY_MAX).contains(&count);
    match is_good(min) && is_good(max) {
        true => Ok(Concurrency {
            min: min as usize,
            max: max as usize,
        }),
        false => Err(None),
    }
}
