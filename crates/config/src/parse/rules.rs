//! Tables of redirects, rewrites, fixed responses and error pages: what their keys mean. Pure.

use std::path::PathBuf;

use serde::Deserialize;

use super::super::super::builder::{Draft, Placed};
use super::super::super::tables::{Contradiction, SettingTable, Structure, keys};
use super::super::super::typed::{ErrorPage, FixedReply, PathPattern, RedirectConfig, Rewrite};
use super::super::super::value;
use super::{Hint, is_url_path};

/// What a redirect without a status answers with: it is not remembered by anybody.
const REDIRECT_STATUS: u16 = 302;
/// The statuses that move a client elsewhere (RFC 9110 section 15.4).
const REDIRECT_STATUSES: [u16; 5] = [301, 302, 303, 307, 308];
const ESCAPES: &str = "visible ASCII; other characters are written as `%20`";

keys! {
    from: one(pattern) -> PathPattern, "a path, or the beginning of paths (as `/old/*`)";
    redirect_to: one(redirect_target) -> String, "a path or an absolute URL (as `/new/*`)";
    redirect_status: one(redirect_status_of) -> u16, "a redirect's status (as `301`)";
    rewrite_to: one(rewrite_target) -> String, "a path (as `/api/*`)";
    reply_status: one(reply_status_of) -> u16, "a status from 200 to 599";
    reply_text: one(text_of) -> String, "a text";
    page_status: one(statuses_of) -> (u16, u16), "a status, a class or a range (as `404`, `5xx`, `400-499`)";
    page_file: one(file_of) -> PathBuf, "a file";
}

/// `[[redirect]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct RedirectTable {
    #[serde(deserialize_with = "from")]
    from: PathPattern,
    #[serde(deserialize_with = "redirect_to")]
    to: String,
    #[serde(default, deserialize_with = "redirect_status")]
    status: Option<u16>,
}

/// `[[rewrite]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct RewriteTable {
    #[serde(deserialize_with = "from")]
    from: PathPattern,
    #[serde(deserialize_with = "rewrite_to")]
    to: String,
}

/// `[[respond]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct RespondTable {
    #[serde(deserialize_with = "from")]
    path: PathPattern,
    #[serde(deserialize_with = "reply_status")]
    status: u16,
    #[serde(default, deserialize_with = "reply_text")]
    text: String,
}

/// `[[error_page]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct ErrorPageTable {
    #[serde(deserialize_with = "page_status")]
    status: (u16, u16),
    #[serde(deserialize_with = "page_file")]
    file: PathBuf,
}

impl Structure for RedirectTable {
    fn put(self, draft: &mut Draft, table: &SettingTable) -> Result<(), Contradiction> {
        check_star(&self.from, &self.to)?;
        let value = RedirectConfig {
            from: self.from,
            to: self.to,
            status: self.status.unwrap_or(REDIRECT_STATUS),
        };
        draft.redirects.push(Placed::new(value, &table.origin));
        Ok(())
    }
}

impl Structure for RewriteTable {
    fn put(self, draft: &mut Draft, table: &SettingTable) -> Result<(), Contradiction> {
        check_star(&self.from, &self.to)?;
        let RewriteTable { from, to } = self;
        let value = Rewrite { from, to };
        draft.rewrites.push(Placed::new(value, &table.origin));
        Ok(())
    }
}

impl Structure for RespondTable {
    fn put(self, draft: &mut Draft, table: &SettingTable) -> Result<(), Contradiction> {
        // RFC 9110 sections 15.3.5, 15.3.6 and 15.4.5
        if matches!(self.status, 204 | 205 | 304) && !self.text.is_empty() {
            return Err(Contradiction {
                key: "text",
                cause: format!("a response with {} has no body", self.status),
                hint: Some("leave it out".to_owned()),
            });
        }
        let value = FixedReply {
            from: self.path,
            status: self.status,
            text: self.text,
        };
        draft.replies.push(Placed::new(value, &table.origin));
        Ok(())
    }
}

impl Structure for ErrorPageTable {
    fn put(self, draft: &mut Draft, table: &SettingTable) -> Result<(), Contradiction> {
        let (status_min, status_max) = self.status;
        let value = ErrorPage {
            status_min,
            status_max,
            file: self.file,
        };
        draft.error_pages.push(Placed::new(value, &table.origin));
        Ok(())
    }
}

fn redirect_target(to: &str) -> Result<String, Hint> {
    let site = ["http://", "https://"]
        .iter()
        .find_map(|scheme| to.strip_prefix(scheme));
    match site.map(|site| site.split(['/', '?', '#']).next().unwrap_or_default()) {
        None => begins_as_path(to)?,
        Some("") => return Err(Some("name the site: `https://www.example.org/`".to_owned())),
        Some(host) if host.contains('*') => {
            let hint = "clients would choose the host: `*` stands behind it, as `https://host/*`";
            return Err(Some(hint.to_owned()));
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
        return Err(Some(
            "a rewrite stays on this server; `[[redirect]]` sends clients elsewhere".to_owned(),
        ));
    }
    begins_as_path(to)?;
    if to.contains('#') {
        return Err(Some(
            "a fragment (`#`) stays with the client: leave it out".to_owned(),
        ));
    }
    target(to)
}

fn reply_status_of(text: &str) -> Result<u16, Hint> {
    let status = value::status(text).filter(|status| (200..=599).contains(status));
    match status {
        Some(status) if REDIRECT_STATUSES.contains(&status) => {
            Err(Some("a redirect is a table `[[redirect]]`".to_owned()))
        }
        status => status.ok_or(None),
    }
}

fn text_of(text: &str) -> Result<String, Hint> {
    match text.contains(|c: char| c.is_control() && c != '\n' && c != '\t') {
        true => Err(Some("a text has no control characters".to_owned())),
        false => Ok(text.to_owned()),
    }
}

fn file_of(text: &str) -> Result<PathBuf, Hint> {
    match text.is_empty() {
        true => Err(Some("name a file".to_owned())),
        false => Ok(PathBuf::from(text)),
    }
}

fn pattern(from: &str) -> Result<PathPattern, Hint> {
    if from.contains("://") {
        return Err(Some("a path, without scheme and host".to_owned()));
    }
    if !from.starts_with('/') {
        return Err(Some(format!("a path begins with a slash: `/{from}`")));
    }
    if from.contains(['?', '#']) {
        return Err(Some("only the path counts: leave out the query".to_owned()));
    }
    let (beginning, is_beginning) = match from.strip_suffix('*') {
        Some(beginning) => (beginning, true),
        None => (from, false),
    };
    if beginning.contains('*') || (is_beginning && !beginning.ends_with('/')) {
        let folder = from.split('*').next().unwrap_or_default();
        return Err(Some(format!(
            "`*` stands alone behind the last slash: `{}/*`",
            folder.trim_end_matches('/')
        )));
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
        return Err(Some("one `*` at most stands for the rest".to_owned()));
    }
    if !to.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Some(ESCAPES.to_owned()));
    }
    Ok(to.to_owned())
}

/// What the rest of a path could be put into must have one.
fn check_star(from: &PathPattern, to: &str) -> Result<(), Contradiction> {
    match from {
        PathPattern::Exactly(path) if to.contains('*') => Err(Contradiction {
            key: "to",
            cause: format!("`{to}` has a `*`, and `{path}` has none"),
            hint: Some(format!(
                "`*` stands for what `*` matches: `from = \"{}/*\"`",
                path.trim_end_matches('/')
            )),
        }),
        _ => Ok(()),
    }
}

fn statuses_of(text: &str) -> Result<(u16, u16), Hint> {
    let (first, last) = value::statuses(text).ok_or(None)?;
    if first > last {
        return Err(Some(format!(
            "the smaller number comes first: `{last}-{first}`"
        )));
    }
    if first < 400 || last > 599 {
        return Err(Some(
            "pages are for the statuses from 400 to 599".to_owned(),
        ));
    }
    Ok((first, last))
}
