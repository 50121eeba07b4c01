//! Do fair shares hold together? Routes that there are, limits that can have an effect.

use super::super::builder::{Draft, Placed};
use super::super::fault::Origin;
use super::super::nearest;
use super::super::typed::Rate;
use super::Check;

/// Fewer bytes a second are rather a unit that was left out.
const RATE_USUAL_MIN: u64 = 1 << 10;

impl Check<'_> {
    /// Limits of routes, each of one that there is.
    pub(super) fn rate_routes(&mut self, draft: &Draft) -> Vec<(String, Rate)> {
        let mut routes: Vec<(String, Rate)> = Vec::new();
        for Placed { value, origin } in &draft.rate_routes {
            let url = said(&value.url);
            let is_app = value.url.is_empty() && draft.app.is_some();
            if !is_app && !is_mounted(draft, &value.url) {
                let hint = mount_hint(draft, &value.url);
                self.statement(origin.clone(), format!("no route `{url}`"), &hint);
            }
            if routes.iter().any(|(other, _)| *other == value.url) {
                let text = format!("`{url}` has a rate already");
                self.statement(origin.clone(), text, "give each route one rate");
            }
            routes.push((value.url.clone(), value.rate));
        }
        routes
    }

    /// What is set in vain, or probably without its unit, is worth a word.
    pub(super) fn shares(&mut self, draft: &Draft) {
        let rates = &draft.config.rates;
        let of_routes = draft.rate_routes.iter().map(|route| Some(route.value.rate));
        for (key, rate) in [
            ("rate_connection", rates.connection),
            ("rate_pool", rates.pool),
        ]
        .into_iter()
        .chain(of_routes.map(|rate| ("rate_route", rate)))
        {
            if let Some(Rate::BytesPerSec(bytes @ ..RATE_USUAL_MIN)) = rate {
                self.notes.push(format!(
                    "{key} is {bytes} bytes a second: `{bytes}K` and `{bytes}M` would be more"
                ));
            }
        }
        let is_written = |key: &str| draft.origin(key) != Origin::Whole;
        if draft.config.rates.connection.is_some() {
            for key in ["rate_route", "rate_pool"] {
                if is_written(key) {
                    self.notes.push(format!(
                        "{key} has no effect: rate_connection is set, and counts alone"
                    ));
                }
            }
        }
        if draft.config.listen.client_connections_max.is_none() {
            for key in ["client_prefix_v4", "client_prefix_v6"] {
                if is_written(key) {
                    self.notes.push(format!(
                        "{key} has no effect: client_connections_max is off"
                    ));
                }
            }
        }
    }
}

/// A mount's URL as people write it.
pub(super) fn said(url: &str) -> &str {
    if url.is_empty() { "/" } else { url }
}

pub(super) fn is_mounted(draft: &Draft, url: &str) -> bool {
    draft.statics.iter().any(|mount| mount.value.url == url)
}

/// What to write instead of a URL that no folder is mounted under.
pub(super) fn mount_hint(draft: &Draft, url: &str) -> String {
    let urls = || draft.statics.iter().map(|mount| said(&mount.value.url));
    // Everything short is near to the root.
    if let Some(near) = nearest(url, urls().filter(|known| *known != "/")) {
        return format!("did you mean `{near}`?");
    }
    let urls: Vec<String> = urls().map(|url| format!("`{url}`")).collect();
    match urls.is_empty() {
        true => format!("mount a folder there: `--static {}=DIR`", said(url)),
        false => format!("folders are mounted at {}", urls.join(", ")),
    }
}
