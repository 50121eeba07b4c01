//! Tables about how files are found and described: what their keys mean.

use std::path::{Component, Path};

use globset::GlobBuilder;
use serde::Deserialize;

use super::{Hint, hinted, url_of};
use crate::tables::{Structure, keys};
use crate::typed::CacheRule;

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
fn beneath(file: &str) -> Result<String, Hint> {
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
