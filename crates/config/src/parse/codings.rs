//! Setters about content codings and what is worth compressing.
//!
//! Each takes one text with commas and puts its meaning into the draft, or gives a hint. Pure.

use super::super::super::builder::Draft;
use super::super::super::nearest;
use super::super::super::typed::Coding;
use super::Set;

const CODINGS: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

pub(in super::super) fn static_encodings(draft: &mut Draft, text: &str) -> Set {
    draft.config.file_serving.encodings = codings(text)?;
    Ok(())
}

pub(in super::super) fn compress(draft: &mut Draft, text: &str) -> Set {
    draft.config.compression.codings = codings(text)?;
    Ok(())
}

/// Names of codings in the order of preference. An empty list in TOML is one that names none.
fn codings(text: &str) -> Result<Vec<Coding>, Option<String>> {
    let mut codings = Vec::new();
    if text.is_empty() || text == "off" {
        return Ok(codings);
    }
    for name in text.split(',').map(str::trim) {
        let known = CODINGS.into_iter().find(|coding| coding.name() == name);
        let coding = known.ok_or_else(|| coding_hint(name))?;
        if codings.contains(&coding) {
            return Err(Some(format!("`{name}` is there twice")));
        }
        codings.push(coding);
    }
    Ok(codings)
}

fn coding_hint(name: &str) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    let hint = match lower.as_str() {
        "true" | "yes" | "on" | "1" | "auto" | "all" => {
            "name the codings, the preferred first: `br,zstd,gzip`".to_owned()
        }
        "false" | "no" | "0" | "none" | "identity" => "write `off`".to_owned(),
        "off" => "`off` stands alone".to_owned(),
        "brotli" => "did you mean `br`?".to_owned(),
        "zst" | "zstandard" => "did you mean `zstd`?".to_owned(),
        "gz" | "x-gzip" => "did you mean `gzip`?".to_owned(),
        "deflate" => "`deflate` means two things to clients; `gzip` is the same size".to_owned(),
        _ => {
            let near = nearest(&lower, CODINGS.map(Coding::name))?;
            format!("did you mean `{near}`?")
        }
    };
    Some(hint)
}

pub(in super::super) fn compress_types(draft: &mut Draft, text: &str) -> Set {
    let types: Result<Vec<String>, _> = text
        .split(',')
        .map(|media_type| media_type_checked(media_type.trim()))
        .collect();
    draft.config.compression.types = types?;
    Ok(())
}

/// `text/html` or `text/*`, in lower case (RFC 9110 section 8.3.1).
fn media_type_checked(text: &str) -> Result<String, Option<String>> {
    if let Some((media_type, _)) = text.split_once(';') {
        let media_type = media_type.trim();
        return Err(Some(format!(
            "without parameters: `{media_type}` stands for all of them"
        )));
    }
    let (kind, of_kind) = text.split_once('/').ok_or(None)?;
    if kind == "*" {
        let hint = "name what is worth compressing: pictures and films are compressed already";
        return Err(Some(hint.to_owned()));
    }
    if !is_token(kind) || !(of_kind == "*" || is_token(of_kind)) {
        return Err(None);
    }
    Ok(text.to_ascii_lowercase())
}

/// A token of RFC 9110 section 5.6.2, without the `*` that means something here.
fn is_token(text: &str) -> bool {
    let is_good = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(is_good)
}
