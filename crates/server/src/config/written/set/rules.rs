//! Setters of redirects, rewrites, fixed replies and error pages.
//!
//! Each takes one text and puts its meaning into the draft, or gives a hint. Pure.

use std::path::PathBuf;

use super::super::super::draft::{Draft, Placed};
use super::super::super::meant::{ErrorPage, FixedReply, PathPattern, Redirect, Rewrite};
use super::super::super::reading::Text;
use super::super::super::value;
use super::{Set, is_url_path};

/// What a redirect without a status answers with: it is not remembered by anybody.
const REDIRECT_STATUS: u16 = 302;
/// The statuses that move a client elsewhere (RFC 9110 section 15.4).
const REDIRECT_STATUSES: [u16; 5] = [301, 302, 303, 307, 308];
const ESCAPES: &str = "visible ASCII; other characters are written as `%20`";

pub(in super::super) fn add_redirect(draft: &mut Draft, text: &Text) -> Set {
    let (from, rest) = parts(&text.text, "/new")?;
    let pattern = pattern(from)?;
    let (status, to) = match rest.split_once(':') {
        Some((number, to)) if is_number(number.trim()) => {
            let (number, to) = (number.trim(), to.trim());
            (redirect_status(from, number, to)?, to)
        }
        None if is_number(rest) => return Err(Some(format!("where to? `{from}={rest}:/new`"))),
        _ => (REDIRECT_STATUS, rest),
    };
    let site = ["http://", "https://"]
        .iter()
        .find_map(|scheme| to.strip_prefix(scheme));
    match site.map(|site| site.split(['/', '?', '#']).next().unwrap_or_default()) {
        None => begins_as_path(from, to)?,
        Some("") => return Err(Some("name the site: `https://www.example.org/`".to_owned())),
        Some(host) if host.contains('*') => {
            let hint = "clients would choose the host: `*` stands behind it, as `https://host/*`";
            return Err(Some(hint.to_owned()));
        }
        Some(_) => {}
    }
    let value = Redirect {
        to: target(from, to)?,
        from: pattern,
        status,
    };
    draft.redirects.push(Placed::new(value, text));
    Ok(())
}

fn redirect_status(from: &str, number: &str, to: &str) -> Result<u16, Option<String>> {
    let status = number.parse().ok();
    status
        .filter(|status| REDIRECT_STATUSES.contains(status))
        .ok_or_else(|| {
            let hint = match number {
                "200" => format!(
                    "to serve another path without the client's knowing: `--rewrite {from}={to}`"
                ),
                _ => "a redirect's status is 301 or 308 (for good), 302, 303 or 307".to_owned(),
            };
            Some(hint)
        })
}

pub(in super::super) fn add_rewrite(draft: &mut Draft, text: &Text) -> Set {
    let (from, to) = parts(&text.text, "/new")?;
    let pattern = pattern(from)?;
    if to.contains("://") {
        return Err(Some(format!(
            "a rewrite stays on this server; to send clients elsewhere: `--redirect {from}={to}`"
        )));
    }
    begins_as_path(from, to)?;
    if to.contains('#') {
        return Err(Some(
            "a fragment (`#`) stays with the client: leave it out".to_owned(),
        ));
    }
    let value = Rewrite {
        to: target(from, to)?,
        from: pattern,
    };
    draft.rewrites.push(Placed::new(value, text));
    Ok(())
}

pub(in super::super) fn add_reply(draft: &mut Draft, text: &Text) -> Set {
    let (from, rest) = parts(&text.text, "200:TEXT")?;
    let pattern = pattern(from)?;
    let (number, body) = rest.split_once(':').unwrap_or((rest, ""));
    if !is_number(number) {
        return Err(Some(format!("the status comes first: `{from}=200:{rest}`")));
    }
    let status = number
        .parse()
        .ok()
        .filter(|status| (200..=599).contains(status));
    let status: u16 = status.ok_or_else(|| Some("a status from 200 to 599".to_owned()))?;
    if REDIRECT_STATUSES.contains(&status) {
        let to = if body.is_empty() { "/new" } else { body };
        return Err(Some(format!(
            "a redirect: `--redirect {from}={status}:{to}`"
        )));
    }
    // RFC 9110 sections 15.3.5, 15.3.6 and 15.4.5
    if matches!(status, 204 | 205 | 304) && !body.is_empty() {
        return Err(Some(format!(
            "a reply with {status} has no body: `{from}={status}`"
        )));
    }
    if body.contains(|c: char| c.is_control() && c != '\n' && c != '\t') {
        return Err(None);
    }
    let value = FixedReply {
        from: pattern,
        status,
        text: body.to_owned(),
    };
    draft.replies.push(Placed::new(value, text));
    Ok(())
}

/// What stands before and behind the first `=`; `example` is what could stand behind it.
fn parts<'t>(text: &'t str, example: &str) -> Result<(&'t str, &'t str), Option<String>> {
    if let Some((from, rest)) = text.split_once('=') {
        return Ok((from.trim(), rest.trim()));
    }
    let from_and_to = text.split_once("->").or_else(|| text.split_once(' '));
    let whole = match from_and_to {
        Some((from, to)) => format!("{}={}", from.trim(), to.trim_start_matches("->").trim()),
        None => format!("{text}={example}"),
    };
    Err(Some(format!("write `{whole}`")))
}

fn pattern(from: &str) -> Result<PathPattern, Option<String>> {
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

fn begins_as_path(from: &str, to: &str) -> Set {
    let hint = match to {
        "" => format!("where to? `{from}=/new`"),
        // A browser reads what follows two slashes as a host.
        _ if to.starts_with("//") => format!("with a scheme: `https:{to}`"),
        _ if to.starts_with('/') => return Ok(()),
        _ if to.starts_with("www.") => format!("with a scheme: `https://{to}`"),
        _ => format!("a path begins with a slash, another site with `https://`: `/{to}`"),
    };
    Err(Some(hint))
}

/// Where a rule leads to. What the rest of the path could be put into must have one.
fn target(from: &str, to: &str) -> Result<String, Option<String>> {
    let stars = to.matches('*').count();
    if stars > 1 {
        return Err(Some("one `*` at most stands for the rest".to_owned()));
    }
    if stars == 1 && !from.ends_with('*') {
        return Err(Some(format!(
            "`*` stands for what `*` matches: `{}/*={to}`",
            from.trim_end_matches('/')
        )));
    }
    if !to.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Some(ESCAPES.to_owned()));
    }
    Ok(to.to_owned())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

pub(in super::super) fn add_error_page(draft: &mut Draft, text: &Text) -> Set {
    let (statuses, file) = text
        .text
        .split_once('=')
        .ok_or_else(|| Some("write `404=FILE`".to_owned()))?;
    let (status_min, status_max) = statuses_of(statuses.trim())?;
    if file.is_empty() {
        return Err(Some("name a file".to_owned()));
    }
    let value = ErrorPage {
        status_min,
        status_max,
        file: PathBuf::from(file),
    };
    draft.error_pages.push(Placed::new(value, text));
    Ok(())
}

fn statuses_of(text: &str) -> Result<(u16, u16), Option<String>> {
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
