//! What one client, one route or one connection may take from the others.

use serde::Deserialize;

use super::value::{self, Unit};
use super::{Hint, hinted, or_off, url_of};
use crate::options_table::NO_BOUND;
use crate::tables::{Structure, keys};
use crate::typed::Rate;

/// What a rate is.
pub(crate) const RATE: &str = "bytes a second (as `500K`, `10M`), or `off`";

keys! {
    route_url: one(url_of) -> String, "a URL path (as `/static`), `/` for the application";
    route_rate: one(rate) -> Rate, RATE;
}

/// `[[rate_route]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteRateTable {
    /// As a mount's; empty for the application as well.
    #[serde(deserialize_with = "route_url")]
    pub url: String,
    #[serde(deserialize_with = "route_rate")]
    pub rate: Rate,
}

impl Structure for RouteRateTable {}

/// Connections of one client; `None`: no bound.
pub(crate) fn client_connections(text: &str) -> Result<Option<usize>, Hint> {
    let count = or_off(text, Unit::Count, 1..=10_000_000, NO_BOUND)?;
    Ok(count.map(|count| count as usize))
}

/// A bandwidth limit.
pub(crate) fn rate(text: &str) -> Result<Rate, Hint> {
    match (text.trim(), value::per_second(text)) {
        ("off", _) => Ok(Rate::Unlimited),
        (_, Some(0)) | ("unlimited" | "none" | "no" | "false" | "-1", None) => {
            hinted("write `off` for no limit")
        }
        (_, Some(bytes)) => Ok(Rate::BytesPerSec(bytes)),
        _ => Err(value::rate_hint(text)),
    }
}
