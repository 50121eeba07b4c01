//! What a request is placed by, where its group asks for that: a hash of a part of it, or a cookie.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use config::typed::{Balance, HashKey};
use http::HeadView;

use super::group::{PlacingKey, UpstreamGroup};
use crate::exchange::Exchange;

/// What the servers of `group` are chosen by for this exchange.
pub(super) fn placing_key(group: &UpstreamGroup, exchange: &Exchange) -> PlacingKey {
    match &group.settings.balance {
        Balance::Hash(key) => PlacingKey {
            hash: hashed(key, exchange),
            sticky: None,
        },
        Balance::Sticky { cookie: name } => PlacingKey {
            hash: None,
            sticky: cookie(exchange.head(), name).and_then(|mark| group.name_of_mark(mark)),
        },
        _ => PlacingKey::default(),
    }
}

/// `None`: the request has no such part.
fn hashed(key: &HashKey, exchange: &Exchange) -> Option<u64> {
    let head = exchange.head();
    let part = match key {
        HashKey::Client => exchange.ends.client_host.as_bytes(),
        HashKey::Path => exchange.path(),
        HashKey::Header(name) => head.header(name)?,
        HashKey::Cookie(name) => cookie(head, name)?,
    };
    // The same in all processes.
    Some(BuildHasherDefault::<DefaultHasher>::default().hash_one(part))
}

/// The mark of the server that the client had before.
pub(super) fn sticky_mark<'a>(head: HeadView<'a>, name: &str) -> Option<&'a [u8]> {
    cookie(head, name)
}

/// The value of a cookie (RFC 6265 section 5.4).
fn cookie<'a>(head: HeadView<'a>, name: &str) -> Option<&'a [u8]> {
    let fields = head.headers();
    let fields = fields.filter(|(field, _)| field.eq_ignore_ascii_case(b"cookie"));
    let pairs = fields.flat_map(|(_, value)| value.split(|&byte| byte == b';'));
    let mut pairs = pairs.map(<[u8]>::trim_ascii);
    pairs.find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::with_head;

    #[test]
    fn a_cookie_is_found_among_others() {
        let check = |fields: &str, expect: Option<&str>| {
            with_head(&format!("GET x/ {fields}"), |head| {
                let found = cookie(head, "id").map(|value| String::from_utf8_lossy(value));
                assert_eq!(found.as_deref(), expect, "{fields}");
            });
        };
        check("Cookie: a=1; id=7;b=2", Some("7"));
        check("Cookie: a=1\r\nCookie: id=8", Some("8"));
        check("Cookie: xid=7; idx=8; ID=9", None);
        check("Accept: id=7", None);
    }
}
