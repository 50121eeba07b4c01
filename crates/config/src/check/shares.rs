//! Do fair shares hold together? Routes that there are, limits that can have an effect.

use super::Check;
use crate::builder::{Draft, KeyedTable, Placed};
use crate::parse::routes::RouteTable;
use crate::parse::{did_you_mean, quoted};
use crate::typed::Rate;

/// Fewer bytes a second are rather a unit that was left out.
const RATE_USUAL_MIN: u64 = 1 << 10;

impl Check<'_> {
    /// Limits of routes, each of one that there is.
    pub(super) fn rate_routes(&mut self, draft: &Draft) -> Vec<(String, Rate)> {
        let mut routes: Vec<(String, Rate)> = Vec::new();
        for Placed { value, origin } in &draft.rate_routes {
            let url = said(&value.url);
            let is_app = value.url.is_empty() && draft.app.is_some();
            let is_route = |route: &KeyedTable<RouteTable>| {
                route.value.host.is_none() && route.value.path == value.url
            };
            let has_app = is_app || draft.routes.iter().any(is_route);
            if !has_app && !is_mounted(draft, &value.url) {
                let hint = mount_hint(draft, &value.url);
                self.statement(origin, format!("no route `{url}`"), hint);
            }
            if routes.iter().any(|(other, _)| *other == value.url) {
                let text = format!("`{url}` has a rate already");
                self.statement(origin, text, "give each route one rate");
            }
            routes.push((value.url.clone(), value.rate));
        }
        routes
    }

    /// What is set in vain, or probably without its unit, is worth a word.
    pub(super) fn shares(&mut self, draft: &Draft) {
        let rates = &draft.config.rates;
        let mut all = vec![
            ("rate_connection", rates.connection),
            ("rate_pool", rates.pool),
        ];
        let of_routes = draft.rate_routes.iter();
        all.extend(of_routes.map(|route| ("rate_route", Some(route.value.rate))));
        for (key, rate) in all {
            // A note and no fault: a test may want a slow server.
            if let Some(Rate::BytesPerSec(bytes @ ..RATE_USUAL_MIN)) = rate {
                self.note(format!(
                    "{key} is {bytes} bytes a second: `{bytes}K` and `{bytes}M` would be more"
                ));
            }
        }
        let written = |keys: [&'static str; 2]| {
            let keys = keys.into_iter();
            keys.filter(|key| draft.is_written(key))
        };
        if rates.connection.is_some() {
            for key in written(["rate_route", "rate_pool"]) {
                self.vain(key, "rate_connection is set, and counts alone");
            }
        }
        if draft.config.listen.client_connections_max.is_none() {
            for key in written(["client_prefix_v4", "client_prefix_v6"]) {
                self.vain(key, "client_connections_max is off");
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
    let urls = draft.statics.iter().map(|mount| said(&mount.value.url));
    let urls: Vec<String> = urls.map(str::to_owned).collect();
    match urls.is_empty() {
        true => format!("mount a folder there: `--static {}=DIR`", said(url)),
        false => nearest_or_all(url, &urls, "folders are mounted at"),
    }
}

/// The nearest of some names and URLs, or all of them behind the text.
pub(super) fn nearest_or_all(name: &str, known: &[String], all: &str) -> String {
    // Everything short is near to the root.
    let names = known.iter().map(String::as_str).filter(|name| *name != "/");
    did_you_mean(name, names).unwrap_or_else(|| format!("{all} {}", quoted(known)))
}
