//! Proxies in front: who is trusted, and which headers count.

use http::ForwardedField;

use super::*;
use crate::typed::{PeerSet, UnixPeers};

#[test]
fn reads_peers_as_gunicorn_writes_them() {
    let check = |written: &str, networks: &str, unix: UnixPeers| {
        let proxies = good("", &[], &[("trusted_proxies", written)])
            .config
            .proxies;
        assert_eq!(format!("{:?}", proxies.trusted.networks), networks);
        assert_eq!(proxies.trusted.unix, unix, "{written}");
    };
    check("off", "[]", UnixPeers::None);
    check("unix", "[]", UnixPeers::Known);
    check(
        "127.0.0.1,10.0.0.0/8",
        "[(127.0.0.1, 32), (10.0.0.0, 8)]",
        UnixPeers::None,
    );
    check(
        "::ffff:10.0.0.0/104, unix",
        "[(10.0.0.0, 8)]",
        UnixPeers::Known,
    );
    check("*", "[(0.0.0.0, 0), (::, 0)]", UnixPeers::All);
    let of_alias = good("forwarded_allow_ips = '*'", &[], &[]).config.proxies;
    assert_eq!(of_alias.trusted, PeerSet::everybody());
    let array = good("trusted_proxies = ['::1', 'unix']", &[], &[]);
    assert_eq!(array.config.proxies.trusted.networks.len(), 1);
    let none = good("trusted_proxies = []", &[], &[]).config.proxies;
    assert_eq!(none.trusted, PeerSet::default());
    let proxy = good("", &[], &[("proxy_protocol_from", "10.0.0.0/8")]);
    assert_eq!(proxy.config.proxies.proxy_protocol_from.networks.len(), 1);
}

#[test]
fn reads_headers_of_one_form() {
    let check = |written: &str, expect: &[ForwardedField]| {
        let fields = good("", &[], &[("forwarded_headers", written)]).config;
        let found = ForwardedField::NAMED.map(|(field, _)| field);
        let found: Vec<_> = found
            .into_iter()
            .filter(|field| fields.proxies.fields.has(*field))
            .collect();
        assert_eq!(found, expect, "{written}");
    };
    use ForwardedField::{For, Host, Prefix, Rfc7239};
    check("off", &[]);
    check("forwarded", &[Rfc7239]);
    check(
        "X-Forwarded-For, -host,x_forwarded_prefix",
        &[For, Host, Prefix],
    );
}

#[test]
fn says_what_is_wrong_with_proxies() {
    said! { r"
    --trusted-proxies=localhost => expected addresses or networks in digits and `unix`, between commas (as `127.0.0.1, 10.0.0.0/8, unix`), `*` or `off`, found `localhost` > write `127.0.0.1` and `::1`
    --trusted-proxies=10.0.0.1/8 => expected addresses or networks in digits and `unix`, between commas (as `127.0.0.1, 10.0.0.0/8, unix`), `*` or `off`, found `10.0.0.1/8` > the network is `10.0.0.0/8`, this address alone `10.0.0.1`
    --trusted-proxies=10.0.0.0/33 => expected addresses or networks in digits and `unix`, between commas (as `127.0.0.1, 10.0.0.0/8, unix`), `*` or `off`, found `10.0.0.0/33` > a prefix length from 0 to 32
    --trusted-proxies=2001:db8::1/32 => expected addresses or networks in digits and `unix`, between commas (as `127.0.0.1, 10.0.0.0/8, unix`), `*` or `off`, found `2001:db8::1/32` > the network is `2001:db8::/32`, this address alone `2001:db8::1`
    --trusted-proxies=unix:/run/x.sock => expected addresses or networks in digits and `unix`, between commas (as `127.0.0.1, 10.0.0.0/8, unix`), `*` or `off`, found `unix:/run/x.sock` > `unix` stands for all unix sockets, without a path
    --trusted-proxies=all => expected addresses or networks in digits and `unix`, between commas (as `127.0.0.1, 10.0.0.0/8, unix`), `*` or `off`, found `all` > everybody is `*`
    --forwarded-headers=x-real-ip => expected `forwarded`, or some of `x-forwarded-for`, `-proto`, `-host`, `-port`, `-prefix`, or `off`, found `x-real-ip` > the server reads no header `x-real-ip`
    --forwarded-headers=forwarded,x-forwarded-for => expected `forwarded`, or some of `x-forwarded-for`, `-proto`, `-host`, `-port`, `-prefix`, or `off`, found `forwarded,x-forwarded-for` > one form at a time: a proxy that writes one of them passes the other on as the client sent it
    " }
}
