//! Tables about how files are found and described: what their keys mean. Pure.

use std::path::{Component, Path};

use globset::GlobBuilder;
use serde::Deserialize;

use super::super::super::builder::{Draft, Placed};
use super::super::super::tables::{Contradiction, SettingTable, Structure, keys};
use super::super::super::typed::CacheRule;
use super::{Hint, url_of};

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

/// `[[cache_control]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct CacheRuleTable {
    #[serde(deserialize_with = "cache_path")]
    path: String,
    #[serde(deserialize_with = "cache_value")]
    value: String,
}

impl Structure for FallbackTable {
    fn put(self, draft: &mut Draft, table: &SettingTable) -> Result<(), Contradiction> {
        draft.fallbacks.push(Placed::new(self, &table.origin));
        Ok(())
    }
}

impl Structure for CacheRuleTable {
    fn put(self, draft: &mut Draft, table: &SettingTable) -> Result<(), Contradiction> {
        let CacheRuleTable { path: glob, value } = self;
        let value = CacheRule { glob, value };
        draft.cache_rules.push(Placed::new(value, &table.origin));
        Ok(())
    }
}

/// A relative path that stays in its folder, and that the files beneath it would be served under.
fn beneath(file: &str) -> Result<String, Hint> {
    if let Some(inner) = file.strip_prefix('/') {
        return Err(Some(format!(
            "the file is beneath the mounted folder: `{inner}`"
        )));
    }
    let mut names = Vec::new();
    for component in Path::new(file).components() {
        match component {
            Component::CurDir => {}
            Component::Normal(name) => names.push(name.to_str().ok_or(None)?),
            _ => {
                return Err(Some(
                    "a file of the mounted folder, without `..`".to_owned(),
                ));
            }
        }
    }
    if names.is_empty() || file.ends_with('/') || file.contains('\0') {
        return Err(Some("name a file of the mounted folder".to_owned()));
    }
    if names.iter().any(|name| name.starts_with('.')) {
        let hint = "files and folders whose names begin with a dot are not served";
        return Err(Some(hint.to_owned()));
    }
    Ok(names.join("/"))
}

/// A glob over the whole path. One that does not begin with a slash is meant to match in every folder.
fn glob_checked(glob: &str) -> Result<String, Hint> {
    if glob.is_empty() {
        return Err(Some("for every file: `**`".to_owned()));
    }
    let whole = if glob.starts_with('/') {
        glob.to_owned()
    } else {
        format!("/**/{glob}")
    };
    match GlobBuilder::new(&whole).literal_separator(true).build() {
        Ok(_) => Ok(whole),
        Err(error) => Err(Some(format!("`{glob}` is not a glob: {}", error.kind()))),
    }
}

/// A field value of visible ASCII (RFC 9110 section 5.5).
fn field_value(value: &str) -> Result<String, Hint> {
    let is_good = |b: u8| b.is_ascii_graphic() || b == b' ';
    match !value.is_empty() && value.bytes().all(is_good) {
        true => Ok(value.to_owned()),
        false => Err(None),
    }
}
