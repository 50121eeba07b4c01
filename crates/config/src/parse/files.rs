//! How files are found and described, content codings, and media types that are worth compressing.

use std::path::{Component, Path};

use globset::GlobBuilder;
use serde::Deserialize;

use super::{Hint, did_you_mean, hinted, url_of};
use crate::tables::{Structure, keys};
use crate::typed::{CacheRule, Coding};

const CODINGS: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

keys! {
    fallback_url: one(url_of) -> String, "the URL path of a `static` (as `/`)";
    fallback_file: one(beneath) -> String, "a file beneath the mounted folder (as `index.html`)";
    cache_path: one(glob_checked) -> String, "a glob over paths (as `/static/**` or `*.css`)";
    cache_value: one(field_value) -> String, "a value of Cache-Control (as `max-age=3600`)";
}

/// `[[static_fallback]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FallbackTable {
    /// As a mount's.
    #[serde(deserialize_with = "fallback_url")]
    pub url: String,
    /// Beneath the mount's folder.
    #[serde(deserialize_with = "fallback_file")]
    pub file: String,
}

impl Structure for FallbackTable {}
impl Structure for CacheRule {}

/// A relative path that stays in its folder, and that the files beneath it would be served under.
pub(super) fn beneath(file: &str) -> Result<String, Hint> {
    if let Some(inner) = file.strip_prefix('/') {
        return hinted(format!("the file is beneath the mounted folder: `{inner}`"));
    }
    let mut names = Vec::new();
    for component in Path::new(file).components() {
        match component {
            Component::CurDir => {}
            Component::Normal(name) => names.push(name.to_str().ok_or(None)?),
            _ => {
                return hinted("a file of the mounted folder, without `..`");
            }
        }
    }
    if names.is_empty() || file.ends_with('/') || file.contains('\0') {
        return hinted("name a file of the mounted folder");
    }
    // What a request could not ask for must not become reachable by a fallback.
    if names.iter().any(|name| name.starts_with('.')) {
        return hinted("files and folders whose names begin with a dot are not served");
    }
    Ok(names.join("/"))
}

/// A glob over the whole path. One that does not begin with a slash is meant to match in every folder.
fn glob_checked(glob: &str) -> Result<String, Hint> {
    if glob.is_empty() {
        return hinted("for every file: `**`");
    }
    let whole = match glob.starts_with('/') {
        true => glob.to_owned(),
        // As `.gitignore` has it, where `*.css` is meant for every folder.
        false => format!("/**/{glob}"),
    };
    is_glob(&whole, glob)?;
    Ok(whole)
}

/// Whether `whole` is a glob; `written` is what a user knows of it.
pub(super) fn is_glob(whole: &str, written: &str) -> Result<(), Hint> {
    let built = GlobBuilder::new(whole).literal_separator(true).build();
    let hint = |fault: globset::Error| Some(format!("`{written}` is not a glob: {}", fault.kind()));
    built.map(drop).map_err(hint)
}

/// A field value of visible ASCII (RFC 9110 section 5.5).
fn field_value(value: &str) -> Result<String, Hint> {
    let is_good = |b: u8| b.is_ascii_graphic() || b == b' ';
    match !value.is_empty() && value.bytes().all(is_good) {
        true => Ok(value.to_owned()),
        false => Err(None),
    }
}

/// Names of codings in the order of preference. An empty list in TOML is one that names none.
pub(crate) fn codings(text: &str) -> Result<Vec<Coding>, Hint> {
    let mut codings = Vec::new();
    if text.is_empty() || text == "off" {
        return Ok(codings);
    }
    for name in text.split(',').map(str::trim) {
        let known = CODINGS.into_iter().find(|coding| coding.name() == name);
        let coding = known.ok_or_else(|| coding_hint(name))?;
        if codings.contains(&coding) {
            return hinted(format!("`{name}` is there twice"));
        }
        codings.push(coding);
    }
    Ok(codings)
}

fn coding_hint(name: &str) -> Hint {
    let lower = name.to_ascii_lowercase();
    let hint = match lower.as_str() {
        "true" | "yes" | "on" | "1" | "auto" | "all" => {
            "name the codings, the preferred first: `br,zstd,gzip`"
        }
        "false" | "no" | "0" | "none" | "identity" => "write `off`",
        "off" => "`off` stands alone",
        "brotli" => "did you mean `br`?",
        "zst" | "zstandard" => "did you mean `zstd`?",
        "gz" | "x-gzip" => "did you mean `gzip`?",
        "deflate" => "`deflate` means two things to clients; `gzip` is the same size",
        _ => return did_you_mean(&lower, CODINGS.map(Coding::name)),
    };
    Some(hint.to_owned())
}

/// Media types in lower case, as `text/html` or `text/*` (RFC 9110 section 8.3.1).
pub(crate) fn media_types(text: &str) -> Result<Vec<String>, Hint> {
    text.split(',')
        .map(|text| media_type(text.trim()))
        .collect()
}

fn media_type(text: &str) -> Result<String, Hint> {
    if let Some((media_type, _)) = text.split_once(';') {
        let media_type = media_type.trim();
        return hinted(format!(
            "without parameters: `{media_type}` stands for all of them"
        ));
    }
    let (kind, of_kind) = text.split_once('/').ok_or(None)?;
    if kind == "*" {
        return hinted("name what is worth compressing: pictures and films are compressed already");
    }
    // A token may have a `*`, which means something here.
    let is_token = |text: &str| super::is_token(text) && !text.contains('*');
    match is_token(kind) && (of_kind == "*" || is_token(of_kind)) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(None),
    }
}
