//! Setters about fair shares: bandwidth limits, connections of one client.
//!
//! Each takes one text or table and puts its meaning into the draft, or gives a hint. Pure.

use serde::Deserialize;

use super::super::super::builder::{Draft, Placed};
use super::super::super::tables::{Contradiction, SettingTable, Structure, keys};
use super::super::super::typed::Rate;
use super::super::super::value;
use super::{Hint, Set, url_of};

/// What a rate is.
pub(in super::super) const RATE: &str = "bytes a second (as `500K`, `10M`), or `off`";

pub(in super::super) fn client_connections_max(draft: &mut Draft, text: &str) -> Set {
    draft.config.listen.client_connections_max = match (text, value::count(text)) {
        ("off", _) => None,
        (_, Some(count @ 1..=10_000_000)) => Some(count as usize),
        (_, Some(0)) => return Err(Some("write `off` for no bound".to_owned())),
        _ => return Err(None),
    };
    Ok(())
}

pub(in super::super) fn rate_connection(draft: &mut Draft, text: &str) -> Set {
    draft.config.rates.connection = Some(rate(text)?);
    Ok(())
}

pub(in super::super) fn rate_pool(draft: &mut Draft, text: &str) -> Set {
    draft.config.rates.pool = Some(rate(text)?);
    Ok(())
}

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

impl Structure for RouteRateTable {
    fn put(self, draft: &mut Draft, table: &SettingTable) -> Result<(), Contradiction> {
        draft.rate_routes.push(Placed::new(self, &table.origin));
        Ok(())
    }
}

fn rate(text: &str) -> Result<Rate, Hint> {
    match (text.trim(), value::per_second(text)) {
        ("off", _) => Ok(Rate::Unlimited),
        (_, Some(0)) | ("unlimited" | "none" | "no" | "false" | "-1", None) => {
            Err(Some("write `off` for no limit".to_owned()))
        }
        (_, Some(bytes)) => Ok(Rate::BytesPerSec(bytes)),
        _ => Err(value::rate_hint(text)),
    }
}
