//! Texts and tables as values: what a setting's text means, and the keys of settings that are tables in TOML.
//!
//! Each function takes one text and gives its meaning; its error is a hint, where there is one: what was expected
//! is said by the setting's row or key. Puts nothing anywhere. Pure.

pub(crate) mod acme;
pub(crate) mod asgi;
pub(crate) mod bind;
pub(crate) mod clients;
pub(crate) mod files;
pub(crate) mod headers;
mod hooks;
pub(crate) mod logs;
pub(crate) mod pools;
pub(crate) mod processes;
pub(crate) mod proxies;
pub(crate) mod rates;
pub(crate) mod routes;
pub(crate) mod rules;
pub(crate) mod tls;
pub(crate) mod traces;
pub(crate) mod upstreams;
pub(crate) mod value;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use telemetry::Nanos;

use crate::builder::{AppName, Cpus, StaticEntry};
use crate::typed::AdminBind;
use bind::BindText;
use value::Unit;

pub(crate) use asgi::concurrency;
pub(crate) use clients::{count_or_off, rate, request_id_header};
pub(crate) use files::{codings, media_types};
pub(crate) use hooks::hook;
pub(crate) use logs::{form, interval, keep_len, rotate_size};
pub(crate) use pools::{overload_timeout, reserve, run_time, slow_pool, threads};
pub(crate) use processes::{account, control, resident, share, span_or_zero, umask, user};
pub(crate) use proxies::{forwarded_headers, groups, peers};
pub(crate) use upstreams::proxy;

/// What should have been written instead, where that can be said.
pub(crate) type Hint = Option<String>;

/// No meaning, with a hint.
fn hinted<T>(hint: impl Into<String>) -> Result<T, Hint> {
    Err(Some(hint.into()))
}

/// The application, as `module:attribute`.
pub(crate) fn app(text: &str) -> Result<Option<AppName>, Hint> {
    let (module, attribute) = text.split_once(':').unwrap_or((text, ""));
    // A path is what uWSGI and Flask take: its module can be named.
    if module.rsplit('/').next() == Some("manage.py") {
        return hinted(
            "`manage.py` is no application: name the project's `wsgi` module, as `mysite.wsgi`",
        );
    }
    if module.contains('/') || module.ends_with(".py") {
        let name = module.trim_end_matches(".py").trim_start_matches("./");
        let name = name.replace('/', ".");
        let attribute = match attribute {
            "" => String::new(),
            attribute => format!(":{attribute}"),
        };
        return hinted(format!(
            "name the module, not its file: `{name}{attribute}`"
        ));
    }
    if let Some((factory, arguments)) = attribute.split_once('(')
        && !arguments.starts_with(')')
    {
        return hinted(format!(
            "a factory takes no arguments: write `{module}:{factory}()`, and let it read the environment"
        ));
    }
    let (attribute, called) = match attribute.strip_suffix("()") {
        Some(attribute) => (attribute, true),
        None => (attribute, false),
    };
    let is_left_out = attribute.is_empty() && !text.ends_with(':') && !called;
    if !is_dotted_name(module) || !(is_left_out || is_dotted_name(attribute)) {
        return Err(None);
    }
    Ok(Some(AppName {
        module: module.to_owned(),
        attribute: attribute.to_owned(),
        called,
    }))
}

fn is_dotted_name(text: &str) -> bool {
    text.split('.').all(|part| {
        !part.is_empty()
            && !part.starts_with(|c: char| c.is_ascii_digit())
            && part.chars().all(|c| c == '_' || c.is_alphanumeric())
    })
}

/// SCRIPT_NAME without a slash at its end; empty for none.
pub(crate) fn root_path(text: &str) -> Result<String, Hint> {
    match text.trim_end_matches('/') {
        "" => Ok(String::new()),
        path => url_of(path),
    }
}

/// Visible ASCII from a slash on, without a query and a fragment.
fn is_url_path(text: &str) -> bool {
    let is_good = |b: u8| b.is_ascii_graphic() && b != b'?' && b != b'#';
    text.starts_with('/') && text.bytes().all(is_good)
}

/// A URL path that something is mounted under, without a slash at its end; empty for the root.
fn url_of(text: &str) -> Result<String, Hint> {
    match is_url_path(text) {
        true => Ok(text.trim_end_matches('/').to_owned()),
        false if text.starts_with('/') => Err(None),
        false => hinted(format!("it begins with a slash: `/{text}`")),
    }
}

/// A folder and the URL that it is mounted under, as `/url=dir`.
pub(crate) fn mount(text: &str) -> Result<StaticEntry, Hint> {
    let Some((url, dir)) = text.split_once('=') else {
        // Docker and other servers write `/url:dir`; a folder alone is the other frequent slip.
        return Err(Some(match text.split_once(':') {
            Some((url, dir)) if is_url_path(url) && !dir.is_empty() => {
                format!("write `{url}={dir}`")
            }
            _ if is_url_path(text) && !text.contains('.') => format!("write `{text}=DIR`"),
            _ => format!("write `/static={text}`"),
        }));
    };
    if !is_url_path(url) {
        let hint = || format!("the URL begins with a slash: `/{url}={dir}`");
        return Err((!url.starts_with('/')).then(hint));
    }
    Ok(StaticEntry {
        url: url.trim_end_matches('/').to_owned(),
        dir: folder(dir)?,
    })
}

/// An environment variable; the system's calls allow everything else.
pub(crate) fn env(text: &str) -> Result<(String, String), Hint> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !text.contains('\0') => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err(None),
    }
}

/// A file; whether there is one is another question.
pub(crate) fn file(text: &str) -> Result<PathBuf, Hint> {
    match text.is_empty() || text.ends_with('/') {
        true => hinted("name a file"),
        false => Ok(PathBuf::from(text)),
    }
}

/// A file's name without folders.
pub(crate) fn file_name(text: &str) -> Result<String, Hint> {
    match text.is_empty() || text.contains('/') {
        true => Err(None),
        false => Ok(text.to_owned()),
    }
}

/// An address to listen on, with its text.
pub(crate) fn address(text: &str) -> Result<BindText, Hint> {
    bind::parse_text(text)
}

/// A count from 1; `None` for `auto`.
pub(crate) fn count_or_auto(text: &str, max: u64) -> Result<Option<usize>, Hint> {
    match value::count(text) {
        Some(count) if (1..=max).contains(&count) => Ok(Some(count as usize)),
        None if text == "auto" => Ok(None),
        _ => Err(None),
    }
}

/// Which processors drivers are pinned to.
pub(crate) fn cpus(text: &str) -> Result<Cpus, Hint> {
    /// CPU_SETSIZE of glibc.
    const CPU_HIGHEST: usize = 1023;
    Ok(match text {
        "off" => Cpus::Unpinned,
        "auto" => Cpus::All,
        list => Cpus::These(value::cpus(list, CPU_HIGHEST).ok_or(None)?),
    })
}

/// The value of `Server`; empty for none.
pub(crate) fn server_header(text: &str) -> Result<String, Hint> {
    match text {
        "off" => Ok(String::new()),
        _ if text.bytes().all(|b| b.is_ascii_graphic() || b == b' ') => Ok(text.trim().to_owned()),
        _ => Err(None),
    }
}

/// Where the server answers itself.
pub(crate) fn own_path(text: &str) -> Result<Option<String>, Hint> {
    match text {
        "off" => Ok(None),
        path if is_url_path(path) => Ok(Some(path.to_owned())),
        _ => Err(None),
    }
}

/// The file that holds the process id.
pub(crate) fn pid_file(text: &str) -> Result<Option<PathBuf>, Hint> {
    match text {
        "off" => Ok(None),
        "" => Err(None),
        file if file.ends_with('/') => hinted(format!("name a file: `{file}milepost.pid`")),
        file => Ok(Some(PathBuf::from(file))),
    }
}

/// Where the state of the server can be asked for.
pub(crate) fn admin_bind(text: &str) -> Result<Option<AdminBind>, Hint> {
    if text == "off" {
        return Ok(None);
    }
    if let Some(file) = text.strip_prefix("unix:") {
        return match file.is_empty() || file.ends_with('/') {
            true => hinted("name a file: `unix:/run/milepost/admin.sock`"),
            false => Ok(Some(AdminBind::Unix(PathBuf::from(file)))),
        };
    }
    match text.parse() {
        Ok(address) => Ok(Some(AdminBind::Tcp(address))),
        Err(_) => match text.strip_prefix("localhost:").or(text.strip_prefix(':')) {
            Some(port) => hinted(format!("write `127.0.0.1:{port}`")),
            None if text.parse::<u16>().is_ok() => hinted(format!("write `127.0.0.1:{text}`")),
            None => Err(None),
        },
    }
}

/// Where a StatsD server listens.
pub(crate) fn statsd(text: &str) -> Result<Option<SocketAddr>, Hint> {
    if text == "off" {
        return Ok(None);
    }
    // The usual name for this machine; others would have to be resolved.
    let port = text.strip_prefix("localhost:");
    let text = port.map_or(text.to_owned(), |port| format!("127.0.0.1:{port}"));
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() > 0 => Ok(Some(address)),
        Ok(_) => Err(None),
        Err(_) => match text.strip_prefix(':') {
            Some(port) => hinted(format!("write `127.0.0.1:{port}`")),
            None if text.parse::<u16>().is_ok() => hinted(format!("write `127.0.0.1:{text}`")),
            None => Err(None),
        },
    }
}

/// What the names of metrics begin with. A dot at its end is not needed.
pub(crate) fn statsd_prefix(text: &str) -> Result<String, Hint> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    match !name.is_empty() && name.bytes().all(is_fit) {
        true => Ok(name.to_owned()),
        false => Err(None),
    }
}

/// A folder; whether there is one is asked later.
pub(crate) fn folder(text: &str) -> Result<PathBuf, Hint> {
    match text.is_empty() {
        true => hinted("name a folder"),
        false => Ok(PathBuf::from(text)),
    }
}

/// A number within bounds; `None` for `off`. `zero` says what people mean by 0, as "for none".
pub(crate) fn or_off(
    text: &str,
    unit: Unit,
    bounds: RangeInclusive<u64>,
    zero: &str,
) -> Result<Option<u64>, Hint> {
    if text == "off" {
        return Ok(None);
    }
    match unit.number(text)? {
        // Elsewhere 0 is "no bound", which is the opposite of what it says: nobody has to guess.
        0 => hinted(format!("write `off` {zero}")),
        number if bounds.contains(&number) => Ok(Some(number)),
        _ => Err(None),
    }
}

/// The same for a duration.
pub(crate) fn span_or_off(
    text: &str,
    bounds: RangeInclusive<u64>,
    zero: &str,
) -> Result<Option<Nanos>, Hint> {
    Ok(or_off(text, Unit::Duration, bounds, zero)?.map(Nanos))
}

/// A token of RFC 9110 section 5.6.2: a header's name, a method.
fn is_token(text: &str) -> bool {
    let is_good = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(is_good)
}

/// The value of a name; the hint is the nearest name.
fn one_of<T: Copy, const N: usize>(text: &str, known: [(&'static str, T); N]) -> Result<T, Hint> {
    match known.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Ok(*value),
        None => Err(did_you_mean(text, known.map(|(name, _)| name))),
    }
}

/// The nearest of some names as a hint.
pub(crate) fn did_you_mean<'n>(
    text: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Option<String> {
    let near = crate::nearest(text, names)?;
    Some(format!("did you mean `{near}`?"))
}

/// "`a`, `b`"
pub(crate) fn quoted<T: std::fmt::Display>(names: impl IntoIterator<Item = T>) -> String {
    let names = names.into_iter().map(|name| format!("`{name}`"));
    names.collect::<Vec<_>>().join(", ")
}

/// The hint for numbers in the wrong order.
fn smaller_first(least: impl std::fmt::Display, most: impl std::fmt::Display, sign: char) -> Hint {
    Some(format!(
        "the smaller number comes first: `{most}{sign}{least}`"
    ))
}
