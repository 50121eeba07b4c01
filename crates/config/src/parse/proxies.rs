//! Proxies in front: peers that are trusted, and the headers that describe their clients.
//!
//! Takes lists between commas, gives sets of peers, of headers and of groups. Looks up no group and no name. Pure.

use http::{ForwardedField, ForwardedFields};

use super::clients::client_network;
use super::{Hint, hinted};
use crate::typed::{PeerSet, UnixPeers};

/// What a set of peers is.
pub(crate) const PEERS: &str = "addresses or networks in digits and `unix`, between commas (as `127.0.0.1, 10.0.0.0/8, unix`), `*` or `off`";
/// What a set of forwarding headers is.
pub(crate) const FORWARDED_HEADERS: &str =
    "`forwarded`, or some of `x-forwarded-for`, `-proto`, `-host`, `-port`, `-prefix`, or `off`";
/// What a list of groups is.
pub(crate) const GROUPS: &str = "names or numbers of groups, between commas, or `off`";

/// Peers of connections; `*` is every peer, as gunicorn and uvicorn write it.
pub(crate) fn peers(text: &str) -> Result<PeerSet, Hint> {
    let mut set = PeerSet::default();
    for entry in entries(text) {
        match entry {
            "*" => set = PeerSet::everybody(),
            // A set that has every unix peer keeps them.
            "unix" if set.unix == UnixPeers::All => {}
            "unix" | "unix:" => set.unix = UnixPeers::Known,
            _ if entry.starts_with("unix:") => {
                return hinted("`unix` stands for all unix sockets, without a path");
            }
            _ => set.networks.push(client_network(entry)?),
        }
    }
    Ok(set)
}

/// The headers that describe a client.
pub(crate) fn forwarded_headers(text: &str) -> Result<ForwardedFields, Hint> {
    let mut fields = ForwardedFields::default();
    for entry in entries(text) {
        let full = match entry.strip_prefix('-') {
            Some(rest) => format!("x-forwarded-{rest}"),
            None => entry.replace('_', "-"),
        };
        let Some(field) = ForwardedField::named(full.as_bytes()) else {
            return hinted(format!("the server reads no header `{full}`"));
        };
        fields = fields.with(field);
    }
    let rfc7239 = ForwardedFields::default().with(ForwardedField::Rfc7239);
    // The field that the proxy does not write is the client's, who could claim any address with it.
    if fields.has(ForwardedField::Rfc7239) && fields != rfc7239 {
        return hinted(
            "one form at a time: a proxy that writes one of them passes the other on as the client sent it",
        );
    }
    Ok(fields)
}

/// Names or numbers of groups.
pub(crate) fn groups(text: &str) -> Result<Vec<String>, Hint> {
    Ok(entries(text).map(str::to_owned).collect())
}

/// The entries between commas; none of `off`.
fn entries(text: &str) -> impl Iterator<Item = &str> {
    let text = if text.trim() == "off" { "" } else { text };
    text.split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
}
