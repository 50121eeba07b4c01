//! Headers that routes set and remove, with what their values may say of a request; and the keys of `forward_auth`.

use serde::Deserialize;

use super::pools::pool_name;
use super::{Hint, did_you_mean, hinted, is_token, quoted};
use crate::fault::{ConfigFault, unexpected};
use crate::parse::upstreams::check_path;
use crate::tables::{SettingTable, Structure, keys, read, taken};
use crate::typed::{FieldChanges, FieldTemplate, RequestFact, TemplatePart};

const NAME: &str = "a header's name (as `X-Frame-Options`)";
const VALUE: &str = "a header's value (as `{client}`)";
/// Headers that tell where a message ends or that are about one connection (RFC 9110 section 7.6.1): whoever changed
/// them would break messages. The proxy writes them itself.
const FRAMING: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "host",
];
/// What the head of a response can say: it is written where the connection is not known.
const OF_RESPONSES: [RequestFact; 6] = [
    RequestFact::RequestId,
    RequestFact::Host,
    RequestFact::Scheme,
    RequestFact::Method,
    RequestFact::Path,
    RequestFact::QueueMs,
];

keys! {
    removed: many(field_name) -> Vec<String>, NAME;
    copied: many(request_field_name) -> Vec<String>, NAME;
    upstream: one(pool_name) -> String, "an upstream's name (as `auth`)";
    path: one(check_path) -> String, "a path (as `/check`)";
}

/// `request_headers` and `response_headers`, without what is set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FieldChangesTable {
    #[serde(default, deserialize_with = "removed")]
    remove: Vec<String>,
    /// Read apart: its keys are names of headers.
    #[serde(default, rename = "set", deserialize_with = "taken")]
    _set: (),
}

/// `forward_auth`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForwardAuthTable {
    #[serde(deserialize_with = "upstream")]
    pub upstream: String,
    #[serde(deserialize_with = "path")]
    pub path: String,
    #[serde(default, deserialize_with = "copied")]
    pub copy: Vec<String>,
}

impl Structure for FieldChangesTable {}

impl Structure for ForwardAuthTable {}

/// Headers on their way to an upstream.
pub(crate) fn request_headers(table: &SettingTable, faults: &mut Vec<ConfigFault>) -> FieldChanges {
    let all = RequestFact::NAMED.map(|(_, fact)| fact);
    changes(table, request_field_name, &all, faults)
}

/// Headers of responses.
pub(crate) fn response_headers(
    table: &SettingTable,
    faults: &mut Vec<ConfigFault>,
) -> FieldChanges {
    changes(table, field_name, &OF_RESPONSES, faults)
}

fn changes(
    table: &SettingTable,
    name: fn(&str) -> Result<String, Hint>,
    facts: &[RequestFact],
    faults: &mut Vec<ConfigFault>,
) -> FieldChanges {
    let mut own = table.clone();
    let of_set = own.take_table("set", faults);
    let mut removed = read::<FieldChangesTable>(&own, faults)
        .unwrap_or_default()
        .remove;
    removed.sort();
    removed.dedup();
    let mut changes = FieldChanges {
        removed,
        set: Vec::new(),
    };
    let of_set = of_set.iter();
    for (table, place) in
        of_set.flat_map(|table| table.keys.iter().map(move |place| (table, place)))
    {
        let value = table.items.get(&place.key);
        let named = name(&place.key).map_err(|hint| (unexpected(&place.key, NAME), hint));
        let read = named.and_then(|_| read_field(&place.key, value, facts));
        let read = read.and_then(|field| {
            let mut others = changes.set.iter();
            match others.any(|(name, _)| name.eq_ignore_ascii_case(&field.0)) {
                true => Err(("the header is set already".to_owned(), None)),
                false => Ok(field),
            }
        });
        match read {
            Ok(field) => changes.set.push(field),
            Err((cause, hint)) => {
                let fault = ConfigFault::statement(place.origin.clone(), cause);
                faults.push(fault.with_hint_maybe(hint));
            }
        }
    }
    changes
}

/// A header that is set, whose name is a good one; else what is wrong with it.
fn read_field(
    name: &str,
    value: Option<&toml_edit::Item>,
    facts: &[RequestFact],
) -> Result<(String, FieldTemplate), (String, Hint)> {
    let Some(text) = value.and_then(toml_edit::Item::as_str) else {
        return Err((
            unexpected("another type", "a text in quotation marks"),
            None,
        ));
    };
    let template = template(text, facts).map_err(|hint| (unexpected(text, VALUE), hint))?;
    Ok((name.to_owned(), template))
}

/// A header's name in lower case that may be changed.
fn field_name(text: &str) -> Result<String, Hint> {
    if !is_token(text) {
        return match text.contains(':') {
            true => hinted("the name alone, without a value"),
            false => Err(None),
        };
    }
    let name = text.to_ascii_lowercase();
    match FRAMING.contains(&name.as_str()) {
        true => hinted(format!(
            "`{name}` tells how a message is sent, and is the server's own"
        )),
        false => Ok(name),
    }
}

/// The name of a header of requests that this server adds itself, in lower case.
fn request_field_name(text: &str) -> Result<String, Hint> {
    let name = field_name(text)?;
    is_passed_on(text).map(|()| name)
}

/// Whether upstreams get a header of this name; else why not.
pub(super) fn is_passed_on(name: &str) -> Result<(), Hint> {
    if http::upstream::may_be_set(name.as_bytes()) {
        return Ok(());
    }
    match name.contains('_') {
        true => hinted(format!(
            "upstreams get no header with `_`, which applications cannot tell from `-`: write `{}`",
            name.replace('_', "-")
        )),
        false => hinted(format!("upstreams never get `{name}`")),
    }
}

/// A value with `{facts}`; braces of the text itself are doubled.
fn template(text: &str, facts: &[RequestFact]) -> Result<FieldTemplate, Hint> {
    // RFC 9110 section 5.5; a line end would make a header of its own of what follows.
    if !text.bytes().all(|b| b.is_ascii_graphic() || b == b' ') {
        return hinted("visible ASCII and spaces");
    }
    let mut parts: Vec<TemplatePart> = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        plain.push_str(&rest[..at]);
        let (brace, behind) = rest[at..].split_at(1);
        if behind.starts_with(brace) {
            plain.push_str(brace);
            rest = &behind[1..];
            continue;
        }
        let name = match (brace, behind.find('}')) {
            ("{", Some(end)) => &behind[..end],
            _ => return hinted("braces stand around a name; write `{{` and `}}` for them alone"),
        };
        rest = &behind[name.len() + 1..];
        if !plain.is_empty() {
            parts.push(TemplatePart::Text(std::mem::take(&mut plain)));
        }
        parts.push(TemplatePart::Fact(fact(name, facts)?));
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        parts.push(TemplatePart::Text(plain));
    }
    match parts.is_empty() {
        true => hinted("to remove a header, write `remove`"),
        false => Ok(FieldTemplate(parts)),
    }
}

fn fact(name: &str, facts: &[RequestFact]) -> Result<RequestFact, Hint> {
    let known = RequestFact::NAMED.into_iter();
    let known: Vec<_> = known.filter(|(_, fact)| facts.contains(fact)).collect();
    if let Some((_, fact)) = known.iter().find(|(own, _)| *own == name) {
        return Ok(*fact);
    }
    let names = || known.iter().map(|(name, _)| *name);
    let near = did_you_mean(name, names());
    Err(near.or_else(|| Some(format!("no `{name}`: there are {}", quoted(names())))))
}
