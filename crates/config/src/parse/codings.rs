//! Content codings, and media types that are worth compressing.

use super::{Hint, did_you_mean, hinted};
use crate::typed::Coding;

const CODINGS: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

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
