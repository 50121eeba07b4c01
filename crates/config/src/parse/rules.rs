//! Redirects, rewrites, fixed responses and error pages: what the keys of their tables mean.

use std::path::PathBuf;

use serde::Deserialize;

use super::{Hint, hinted, is_url_path, smaller_first, value};
use crate::tables::{Contradiction, Structure, keys};
use crate::typed::{FixedReply, PathPattern, RedirectConfig, Rewrite};

/// The statuses that move a client elsewhere (RFC 9110 section 15.4).
const REDIRECT_STATUSES: [u16; 5] = [301, 302, 303, 307, 308];
const ESCAPES: &str = "visible ASCII; other characters are written as `%20`";

keys! {
    from: one(pattern) -> PathPattern, "a path, or the beginning of paths (as `/old/*`)";
    except: many(pattern) -> Vec<PathPattern>, "paths, or beginnings of paths (as `[\"/.well-known/*\"]`)";
    redirect_to: one(redirect_target) -> String, "a path or an absolute URL (as `/new/*`)";
    redirect_status: one(redirect_status_of) -> u16, "a redirect's status (as `301`)";
    rewrite_to: one(rewrite_target) -> String, "a path (as `/api/*`)";
    reply_status: one(reply_status_of) -> u16, "a status from 200 to 599";
    reply_text: one(text_of) -> String, "a text";
    page_status: one(statuses_of) -> (u16, u16), "a status, a class or a range (as `404`, `5xx`, `400-499`)";
    page_file: one(file_of) -> PathBuf, "a file";
}

/// `[[error_page]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ErrorPageTable {
    /// First and last.
    #[serde(deserialize_with = "page_status")]
    pub status: (u16, u16),
    #[serde(deserialize_with = "page_file")]
    pub file: PathBuf,
}

impl Structure for ErrorPageTable {}

impl Structure for RedirectConfig {
    fn contradiction(&self) -> Option<Contradiction> {
        if matches!(self.from, PathPattern::Exactly(_)) && !self.except.is_empty() {
            return Some(Contradiction {
                key: "except",
                cause: "`from` is one path, which has no exceptions".to_owned(),
                hint: "leave it out, or end `from` with `/*`".to_owned(),
            });
        }
        stray_star(&self.from, &self.to)
    }
}

impl Structure for Rewrite {
    fn contradiction(&self) -> Option<Contradiction> {
        stray_star(&self.from, &self.to)
    }
}

impl Structure for FixedReply {
    fn contradiction(&self) -> Option<Contradiction> {
        // RFC 9110 sections 15.3.5, 15.3.6 and 15.4.5
        let has_no_body = matches!(self.status, 204 | 205 | 304);
        (has_no_body && !self.text.is_empty()).then(|| Contradiction {
            key: "text",
            cause: format!("a response with {} has no body", self.status),
            hint: "leave it out".to_owned(),
        })
    }
}

/// What a redirect without a status answers with: it is not remembered by anybody.
pub(crate) fn redirect_status_default() -> u16 {
    302
}

fn redirect_target(to: &str) -> Result<String, Hint> {
    let site = ["http://", "https://"]
        .iter()
        .find_map(|scheme| to.strip_prefix(scheme));
    match site.map(|site| site.split(['/', '?', '#']).next().unwrap_or_default()) {
        None => begins_as_path(to)?,
        Some("") => return hinted("name the site: `https://www.example.org/`"),
        // The star is a part of the request's path: in the place of a host it would send clients wherever a link says
        // (an open redirect).
        Some(host) if host.contains('*') => {
            return hinted(
                "clients would choose the host: `*` stands behind it, as `https://host/*`",
            );
        }
        Some(_) => {}
    }
    target(to)
}

fn redirect_status_of(text: &str) -> Result<u16, Hint> {
    let status = value::status(text);
    status
        .filter(|status| REDIRECT_STATUSES.contains(status))
        .ok_or_else(|| {
            let hint = match text {
                "200" => "`[[rewrite]]` serves another path without the client's knowing",
                _ => "a redirect's status is 301 or 308 (for good), 302, 303 or 307",
            };
            Some(hint.to_owned())
        })
}

fn rewrite_target(to: &str) -> Result<String, Hint> {
    if to.contains("://") {
        return hinted("a rewrite stays on this server; `[[redirect]]` sends clients elsewhere");
    }
    begins_as_path(to)?;
    if to.contains('#') {
        return hinted("a fragment (`#`) stays with the client: leave it out");
    }
    target(to)
}

fn reply_status_of(text: &str) -> Result<u16, Hint> {
    let status = value::status(text).filter(|status| (200..=599).contains(status));
    match status {
        Some(status) if REDIRECT_STATUSES.contains(&status) => {
            hinted("a redirect is a table `[[redirect]]`")
        }
        status => status.ok_or(None),
    }
}

fn text_of(text: &str) -> Result<String, Hint> {
    match text.contains(|c: char| c.is_control() && c != '\n' && c != '\t') {
        true => hinted("a text has no control characters"),
        false => Ok(text.to_owned()),
    }
}

fn file_of(text: &str) -> Result<PathBuf, Hint> {
    match text.is_empty() {
        true => hinted("name a file"),
        false => Ok(PathBuf::from(text)),
    }
}

fn pattern(from: &str) -> Result<PathPattern, Hint> {
    if from.contains("://") {
        return hinted("a path, without scheme and host");
    }
    if !from.starts_with('/') {
        return hinted(format!("a path begins with a slash: `/{from}`"));
    }
    if from.contains(['?', '#']) {
        return hinted("only the path counts: leave out the query");
    }
    let (beginning, is_beginning) = match from.strip_suffix('*') {
        Some(beginning) => (beginning, true),
        None => (from, false),
    };
    // `/shop*` would take `/shopping` as well, which is seldom meant.
    if beginning.contains('*') || (is_beginning && !beginning.ends_with('/')) {
        let folder = from.split('*').next().unwrap_or_default();
        let folder = folder.trim_end_matches('/');
        return hinted(format!(
            "`*` stands alone behind the last slash: `{folder}/*`"
        ));
    }
    match (is_url_path(beginning), is_beginning) {
        (false, _) => Err(Some(ESCAPES.to_owned())),
        (true, true) => Ok(PathPattern::Beginning(beginning.to_owned())),
        (true, false) => Ok(PathPattern::Exactly(beginning.to_owned())),
    }
}

fn begins_as_path(to: &str) -> Result<(), Hint> {
    let hint = match to {
        "" => "name a path, as `/new`".to_owned(),
        // A browser reads what follows two slashes as a host.
        _ if to.starts_with("//") => format!("with a scheme: `https:{to}`"),
        _ if to.starts_with('/') => return Ok(()),
        _ if to.starts_with("www.") => format!("with a scheme: `https://{to}`"),
        _ => format!("a path begins with a slash, another site with `https://`: `/{to}`"),
    };
    Err(Some(hint))
}

fn target(to: &str) -> Result<String, Hint> {
    if to.matches('*').count() > 1 {
        return hinted("one `*` at most stands for the rest");
    }
    if !to.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Some(ESCAPES.to_owned()));
    }
    Ok(to.to_owned())
}

/// A `*` in a target of what has none: there is no rest of a path to put there.
fn stray_star(from: &PathPattern, to: &str) -> Option<Contradiction> {
    let PathPattern::Exactly(path) = from else {
        return None;
    };
    let folder = path.trim_end_matches('/');
    to.contains('*').then(|| Contradiction {
        key: "to",
        cause: format!("`{to}` has a `*`, and `{path}` has none"),
        hint: format!("`*` stands for what `*` matches: `from = \"{folder}/*\"`"),
    })
}

fn statuses_of(text: &str) -> Result<(u16, u16), Hint> {
    let (first, last) = value::statuses(text).ok_or(None)?;
    if first > last {
        return Err(smaller_first(first, last, '-'));
    }
    if first < 400 || last > 599 {
        return hinted("pages are for the statuses from 400 to 599");
    }
    Ok((first, last))
}
