//! Setters about how files are found and described.
//!
//! Each takes one text and puts its meaning into the draft, or gives a hint. Pure.

use std::path::{Component, Path};

use globset::GlobBuilder;

use super::super::super::draft::{Draft, Fallback, Placed};
use super::super::super::meant::CacheRule;
use super::super::super::reading::Text;
use super::{Set, is_url_path};

pub(in super::super) fn add_fallback(draft: &mut Draft, text: &Text) -> Set {
    let (url, file) = text.text.split_once('=').ok_or_else(|| {
        let url = match text.text.trim_end_matches('/') {
            "" => "/",
            url => url,
        };
        Some(match url.starts_with('/') {
            true => format!("write `{url}=index.html`"),
            false => format!("of which folder? `/={url}` is that of the root"),
        })
    })?;
    if !is_url_path(url) {
        return Err((!url.starts_with('/'))
            .then(|| format!("the URL begins with a slash: `/{url}={file}`")));
    }
    if let Some(inner) = file.strip_prefix('/') {
        return Err(Some(format!(
            "the file is beneath the mounted folder: `{url}={inner}`"
        )));
    }
    let value = Fallback {
        url: url.trim_end_matches('/').to_owned(),
        file: beneath(file)?,
    };
    draft.fallbacks.push(Placed::new(value, text));
    Ok(())
}

/// A relative path that stays in its folder, and that the files beneath it would be served under.
fn beneath(file: &str) -> Result<String, Option<String>> {
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

pub(in super::super) fn add_cache_rule(draft: &mut Draft, text: &Text) -> Set {
    let written = text.text.as_str();
    let (glob, value) = written.split_once('=').ok_or_else(|| {
        let is_glob = written.contains(['/', '*', '.']);
        Some(match is_glob {
            true => format!("write `{written}=VALUE`, as `{written}=max-age=3600`"),
            false => format!("for every file: `**={written}`"),
        })
    })?;
    let (glob, value) = (glob.trim(), value.trim());
    if DIRECTIVES.contains(&glob.to_ascii_lowercase().as_str()) {
        return Err(Some(format!("for every file: `**={written}`")));
    }
    let rule = CacheRule {
        glob: glob_checked(glob)?,
        value: cache_value(value)?,
    };
    draft.cache_rules.push(Placed::new(rule, text));
    Ok(())
}

/// Directives with a value: what stands before the first `=` when the glob was forgotten.
const DIRECTIVES: [&str; 4] = [
    "max-age",
    "s-maxage",
    "stale-while-revalidate",
    "stale-if-error",
];

/// A glob over the whole path. One that does not begin with a slash is meant to match in every folder.
fn glob_checked(glob: &str) -> Result<String, Option<String>> {
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
fn cache_value(value: &str) -> Result<String, Option<String>> {
    // What follows a comma is a directive; one that looks like a glob was meant as the next rule.
    let strays = value.split(',').skip(1).map(str::trim);
    if let Some(stray) = strays
        .into_iter()
        .find(|part| part.starts_with(['/', '*']) && part.contains('='))
    {
        return Err(Some(format!(
            "`{stray}` is a rule of its own: rules are separated by `;` in the environment, by strings in TOML"
        )));
    }
    let is_good = |b: u8| b.is_ascii_graphic() || b == b' ';
    if value.is_empty() || !value.bytes().all(is_good) {
        return Err(None);
    }
    Ok(value.to_owned())
}
