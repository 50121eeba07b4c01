//! Setters of the rows that understand more than a number: texts and tables into parts of the draft.
//!
//! Each takes a text and puts its meaning into the draft, or gives a hint where there is one; a table is a
//! type that serde reads, as `tables` says. Pure.

mod codings;
mod files;
mod logs;
mod pools;
mod processes;
mod request_ids;
mod rules;
mod shares;

use std::path::PathBuf;

use telemetry::Nanos;

use super::super::bind;
use super::super::builder::{AppName, Cpus, Draft, Placed, StaticEntry};
use super::super::reading::SettingText;
use super::super::value;
use super::Hint;

pub(super) use codings::{compress, compress_types, static_encodings};
pub(super) use files::CacheRuleTable;
pub(crate) use files::FallbackTable;
pub(super) use logs::{
    ACCESS_LOG_TABLE, AccessLogTable, COMPRESSIONS, ERROR_LOG_TABLE, ErrorLogTable, FORM,
    FORM_NAMES, LOG, add_access_log, add_error_log, log_compress, log_form, log_keep, log_keep_age,
    log_overflow, log_rotate_every, log_rotate_size,
};
pub(crate) use pools::PoolTable;
pub(super) use pools::{
    PoolRuleTable, RESERVE, health_reserve, request_timeout, slow_pool, slow_request,
};
pub(super) use processes::{
    add_reload_dir, control, group, heartbeat_timeout, process_age_max, process_requests_max,
    process_resident_max, processes, recycle_jitter, start_timeout, steering, user,
};
pub(super) use request_ids::{add_request_start_from, add_trust, request_id_header};
pub(super) use rules::{ErrorPageTable, RedirectTable, RespondTable, RewriteTable};
pub(crate) use shares::RouteRateTable;
pub(super) use shares::{RATE, client_connections_max, rate_connection, rate_pool};

/// The error is a hint, where there is one.
type Set = Result<(), Hint>;

pub(super) fn app(draft: &mut Draft, text: &str) -> Set {
    let (module, attribute) = text.split_once(':').unwrap_or((text, ""));
    if module.contains('/') || module.ends_with(".py") {
        let name = module
            .trim_end_matches(".py")
            .trim_start_matches("./")
            .replace('/', ".");
        let attribute = if attribute.is_empty() {
            "app"
        } else {
            attribute
        };
        return Err(Some(format!(
            "name the module, not its file: `{name}:{attribute}`"
        )));
    }
    let (attribute, called) = match attribute.strip_suffix("()") {
        Some(attribute) => (attribute, true),
        None => (attribute, false),
    };
    let attribute_is_good =
        (attribute.is_empty() && !text.ends_with(':') && !called) || is_dotted_name(attribute);
    if !is_dotted_name(module) || !attribute_is_good {
        return Err(None);
    }
    draft.app = Some(AppName {
        module: module.to_owned(),
        attribute: attribute.to_owned(),
        called,
    });
    Ok(())
}

fn is_dotted_name(text: &str) -> bool {
    text.split('.').all(|part| {
        !part.is_empty()
            && !part.starts_with(|c: char| c.is_ascii_digit())
            && part.chars().all(|c| c == '_' || c.is_alphanumeric())
    })
}

pub(super) fn root_path(draft: &mut Draft, text: &str) -> Set {
    let path = text.trim_end_matches('/');
    if path.is_empty() || is_url_path(path) {
        path.clone_into(&mut draft.root_path);
        return Ok(());
    }
    Err((!path.starts_with('/')).then(|| format!("it begins with a slash: `/{path}`")))
}

/// Visible ASCII from a slash on, without a query and a fragment.
fn is_url_path(text: &str) -> bool {
    text.starts_with('/')
        && text
            .bytes()
            .all(|b| b.is_ascii_graphic() && b != b'?' && b != b'#')
}

/// A URL path that something is mounted under, without a slash at its end; empty for the root.
fn url_of(text: &str) -> Result<String, Hint> {
    match is_url_path(text) {
        true => Ok(text.trim_end_matches('/').to_owned()),
        false if text.starts_with('/') => Err(None),
        false => Err(Some(format!("it begins with a slash: `/{text}`"))),
    }
}

pub(super) fn add_static(draft: &mut Draft, text: &SettingText) -> Set {
    let Some((url, dir)) = text.text.split_once('=') else {
        let is_url = is_url_path(&text.text) && !text.text.contains('.');
        let whole = if is_url {
            format!("{}=DIR", text.text)
        } else {
            format!("/static={}", text.text)
        };
        return Err(Some(format!("write `{whole}`")));
    };
    if !is_url_path(url) {
        return Err(
            (!url.starts_with('/')).then(|| format!("the URL begins with a slash: `/{url}={dir}`"))
        );
    }
    let mount = StaticEntry {
        url: url.trim_end_matches('/').to_owned(),
        dir: folder(dir)?,
    };
    draft.statics.push(Placed::new(mount, &text.origin));
    Ok(())
}

pub(super) fn static_index(draft: &mut Draft, text: &str) -> Set {
    if text.is_empty() || text.contains('/') {
        return Err(None);
    }
    text.clone_into(&mut draft.static_index);
    Ok(())
}

pub(super) fn add_bind(draft: &mut Draft, text: &SettingText) -> Set {
    let value = (bind::parse(&text.text)?, text.text.clone());
    draft.binds.push(Placed::new(value, &text.origin));
    Ok(())
}

pub(super) fn drivers(draft: &mut Draft, text: &str) -> Set {
    draft.drivers = match value::count(text) {
        Some(count @ 1..=256) => Some(count as usize),
        None if text == "auto" => None,
        _ => return Err(None),
    };
    Ok(())
}

pub(super) fn driver_cpus(draft: &mut Draft, text: &str) -> Set {
    /// CPU_SETSIZE of glibc.
    const CPU_HIGHEST: usize = 1023;
    draft.cpus = match text {
        "off" => Cpus::Unpinned,
        "auto" => Cpus::All,
        list => Cpus::These(value::cpus(list, CPU_HIGHEST).ok_or(None)?),
    };
    Ok(())
}

pub(super) fn defer_accept(draft: &mut Draft, span: Nanos) {
    draft.config.listen.defer_accept_secs = span.0.div_ceil(1_000_000_000) as u32;
}

pub(super) fn server_header(draft: &mut Draft, text: &str) -> Set {
    if !text.bytes().all(|b| b.is_ascii_graphic() || b == b' ') {
        return Err(None);
    }
    draft.config.headers.server = if text == "off" {
        String::new()
    } else {
        text.trim().to_owned()
    };
    Ok(())
}

pub(super) fn status_path(draft: &mut Draft, text: &str) -> Set {
    draft.config.status_path = match text {
        "off" => None,
        path if is_url_path(path) => Some(path.to_owned()),
        _ => return Err(None),
    };
    Ok(())
}

pub(super) fn pid_file(draft: &mut Draft, text: &str) -> Set {
    draft.config.pid_file = match text {
        "off" => None,
        "" => return Err(None),
        file if file.ends_with('/') => {
            return Err(Some(format!("name a file: `{file}milepost.pid`")));
        }
        file => Some(PathBuf::from(file)),
    };
    Ok(())
}

pub(super) fn folder(text: &str) -> Result<PathBuf, Hint> {
    if text.is_empty() {
        Err(Some("name a folder".to_owned()))
    } else {
        Ok(PathBuf::from(text))
    }
}

/// A token of RFC 9110 section 5.6.2: a header's name, a method.
fn is_token(text: &str) -> bool {
    let is_good = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(is_good)
}

/// "`a`, `b`"
fn named(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
