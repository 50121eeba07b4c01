//! Setters about fair shares: bandwidth limits, connections of one client.
//!
//! Each takes one text and puts its meaning into the draft, or gives a hint. Pure.

use super::super::super::draft::{Draft, Placed, RouteRate};
use super::super::super::meant::Rate;
use super::super::super::reading::Text;
use super::super::super::value;
use super::{Set, is_url_path};

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

pub(in super::super) fn add_route_rate(draft: &mut Draft, text: &Text) -> Set {
    let written = text.text.as_str();
    let Some((url, limit)) = written.split_once('=') else {
        let hint = match written.starts_with('/') {
            true => format!("write `{written}=1M`, or `{written}=off`"),
            false => format!("of which route? `/={written}` is the application's"),
        };
        return Err(Some(hint));
    };
    if !is_url_path(url) {
        return Err((!url.starts_with('/'))
            .then(|| format!("the URL begins with a slash: `/{url}={limit}`")));
    }
    let value = RouteRate {
        url: url.trim_end_matches('/').to_owned(),
        rate: rate(limit)?,
    };
    draft.rate_routes.push(Placed::new(value, text));
    Ok(())
}

fn rate(text: &str) -> Result<Rate, Option<String>> {
    match (text.trim(), value::per_second(text)) {
        ("off", _) => Ok(Rate::Unlimited),
        (_, Some(0)) | ("unlimited" | "none" | "no" | "false" | "-1", None) => {
            Err(Some("write `off` for no limit".to_owned()))
        }
        (_, Some(bytes)) => Ok(Rate::BytesPerSec(bytes)),
        _ => Err(value::rate_hint(text)),
    }
}
