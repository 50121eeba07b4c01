//! Request rates: what the keys of `rate_limit` of a route mean.

use serde::Deserialize;
use telemetry::Nanos;

use super::{Hint, hinted, is_token, value};
use crate::options_table::{HOUR, SECOND};
use crate::tables::{Contradiction, Structure, keys};
use crate::typed::{RATE_FILL_MAX, RateKey, RateLimit};

/// Leading bits of addresses that tell clients apart, as `client_prefix_v4` and `client_prefix_v6` have them.
const PREFIX_V4: u8 = 32;
const PREFIX_V6: u8 = 64;

keys! {
    rate: one(rate_of) -> RequestRate, "requests in a time (as `10/s`, `600/m`)";
    burst: one(|text| bits_or_count(text, 1..=1_000_000)) -> u32, "a count from 1 to 1000000";
    by: one(key_of) -> CountedBy, "`client` or `header:NAME`";
    prefix_v4: one(|text| bits_or_count(text, 0..=32)) -> u32, "a count from 0 to 32";
    prefix_v6: one(|text| bits_or_count(text, 0..=128)) -> u32, "a count from 0 to 128";
}

/// `rate_limit`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RateLimitTable {
    #[serde(deserialize_with = "rate")]
    rate: RequestRate,
    #[serde(default, deserialize_with = "burst")]
    burst: Option<u32>,
    #[serde(default, deserialize_with = "by")]
    by: CountedBy,
    #[serde(default, deserialize_with = "prefix_v4")]
    prefix_v4: Option<u32>,
    #[serde(default, deserialize_with = "prefix_v6")]
    prefix_v6: Option<u32>,
}

/// So many requests in such a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestRate {
    count: u64,
    time: Nanos,
}

/// What tells requests apart that are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum CountedBy {
    #[default]
    Client,
    Header(String),
}

impl Structure for RateLimitTable {
    fn contradiction(&self) -> Option<Contradiction> {
        let RequestRate { count, time } = self.rate;
        let fills = u64::from(self.burst.unwrap_or(1)).saturating_mul(time.0 / count);
        if fills > RATE_FILL_MAX.0 {
            return Some(Contradiction {
                key: "burst",
                cause: "it would take more than 30 days until so many may come again".to_owned(),
                hint: "lower it, or raise `rate`".to_owned(),
            });
        }
        let key = match (self.prefix_v4, self.prefix_v6) {
            (Some(_), _) => "prefix_v4",
            (None, Some(_)) => "prefix_v6",
            (None, None) => return None,
        };
        (self.by != CountedBy::Client).then(|| Contradiction {
            key,
            cause: "requests are counted by a header".to_owned(),
            hint: "leave it out, or write `by = \"client\"`".to_owned(),
        })
    }
}

impl From<RateLimitTable> for RateLimit {
    fn from(table: RateLimitTable) -> Self {
        let RequestRate { count, time } = table.rate;
        // A second's worth at once: clients load a page with all that is in it.
        let of_second = (count * SECOND).div_ceil(time.0).clamp(1, 1_000_000);
        let bits = |bits: Option<u32>, usual| bits.map_or(usual, |bits| bits as u8);
        Self {
            interval: Nanos((time.0 / count).max(1)),
            burst: table.burst.unwrap_or(of_second as u32),
            by: match table.by {
                CountedBy::Header(name) => RateKey::Header(name),
                CountedBy::Client => RateKey::Client {
                    prefix_v4: bits(table.prefix_v4, PREFIX_V4),
                    prefix_v6: bits(table.prefix_v6, PREFIX_V6),
                },
            },
        }
    }
}

fn rate_of(text: &str) -> Result<RequestRate, Hint> {
    let Some((count, time)) = text.split_once('/') else {
        return match value::count(text.trim_end_matches("r/s")) {
            Some(count) => hinted(format!("in which time: `{count}/s` or `{count}/m`")),
            None => Err(None),
        };
    };
    let count = count.trim().trim_end_matches('r');
    let time = match time.trim() {
        "s" | "sec" | "second" => SECOND,
        "m" | "min" | "minute" => 60 * SECOND,
        "h" | "hour" => HOUR,
        _ => return hinted("the times are `s`, `m` and `h`, as `10/s`"),
    };
    match value::count(count) {
        Some(0) => hinted("to refuse all requests, write `[[respond]]` with a status"),
        Some(count @ 1..=1_000_000) => Ok(RequestRate {
            count,
            time: Nanos(time),
        }),
        _ => Err(None),
    }
}

fn key_of(text: &str) -> Result<CountedBy, Hint> {
    match text.split_once(':') {
        None if text == "client" => Ok(CountedBy::Client),
        None if text == "header" => hinted("name it: `header:X-Api-Key`"),
        Some(("header", name)) if is_token(name) => {
            Ok(CountedBy::Header(name.to_ascii_lowercase()))
        }
        _ => Err(super::did_you_mean(text, ["client"])),
    }
}

fn bits_or_count(text: &str, bounds: std::ops::RangeInclusive<u64>) -> Result<u32, Hint> {
    let number = value::count(text).filter(|number| bounds.contains(number));
    number.map(|number| number as u32).ok_or(None)
}
