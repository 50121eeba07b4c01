//! Fair shares: rates, connections of one client, the rates that bodies and replies have to keep.

use super::super::typed::Rate;
use super::*;

const NOTHING: [&str; 0] = [];

fn notes(toml: &str, flags: &[(&str, &str)]) -> Vec<String> {
    good(&format!("static = ['/a=x']\n{toml}"), &[], flags).notes
}

#[test]
fn tells_unset_from_unlimited() {
    let rates = good("", &[], &[]).config.rates;
    assert_eq!((rates.connection, rates.pool), (None, None));
    let flags = [("rate_connection", "off"), ("rate_pool", "1.5M/s")];
    let rates = good("rate_connection = 5", &[], &flags).config.rates;
    assert_eq!(rates.connection, Some(Rate::Unlimited));
    assert_eq!(rates.pool, Some(Rate::BytesPerSec(3 << 19)));
}

#[test]
fn gives_routes_their_rates() {
    let toml = "static = ['/a=x']\nrate_route = [{ url = '/a/', rate = 1048576 }, { url = '/', rate = 'off' }]";
    let expect = [
        ("/a".to_owned(), Rate::BytesPerSec(1 << 20)),
        (String::new(), Rate::Unlimited),
    ];
    assert_eq!(good(toml, &[], &[]).config.rates.routes, expect);
    let root = "static = '/=pub'\nrate_route = [{ url = '/', rate = '1M' }]";
    assert_eq!(faults(root, &[], &[]), NOTHING);
}

#[test]
fn says_what_was_meant_by_a_rate() {
    insta::assert_snapshot!(refusals(&[
        ("rate_connection", "0"),
        ("rate_connection", "unlimited"),
        ("rate_connection", "1MB/s"),
        ("rate_pool", "10Mbit/s"),
        ("rate_pool", "10mbps"),
        ("rate_pool", "fast"),
    ]), @r#"
    "0": `--rate-connection`: expected bytes a second (as `500K`, `10M`), or `off`, found `0` > write `off` for no limit
    "unlimited": `--rate-connection`: expected bytes a second (as `500K`, `10M`), or `off`, found `unlimited` > write `off` for no limit
    "1MB/s": `--rate-connection`: expected bytes a second (as `500K`, `10M`), or `off`, found `1MB/s` > units are powers of 1024: `1M`
    "10Mbit/s": `--rate-pool`: expected bytes a second (as `500K`, `10M`), or `off`, found `10Mbit/s` > rates are bytes, not bits: 8 Mbit/s are `1M`
    "10mbps": `--rate-pool`: expected bytes a second (as `500K`, `10M`), or `off`, found `10mbps` > rates are bytes, not bits: 8 Mbit/s are `1M`
    "fast": `--rate-pool`: expected bytes a second (as `500K`, `10M`), or `off`, found `fast`
    "#);
    insta::assert_snapshot!(toml_refusals(&[
        "rate_route = '/a=10M'",
        "rate_route = [{ url = 'a', rate = '10M' }]",
        "rate_route = [{ url = '/a', rate = 0 }]",
        "rate_route = [{ url = '/a', rate = '1M' }]",
        "static = '/static=x'\nrate_route = [{ url = '/statc', rate = '1M' }]",
        "rate_route = [{ url = '/', rate = '1M' },\n  { url = '/', rate = '2M' }]",
    ]), @r#"
    rate_route = '/a=10M'
        m.toml:2: `rate_route`: expected a table, found `a TOML string` > as in | [[rate_route]] | url = "/static" | rate = "10M"
    rate_route = [{ url = 'a', rate = '10M' }]
        m.toml:2: `rate_route.url`: expected a URL path (as `/static`), `/` for the application, found `a` > it begins with a slash: `/a`
    rate_route = [{ url = '/a', rate = 0 }]
        m.toml:2: `rate_route.rate`: expected bytes a second (as `500K`, `10M`), or `off`, found `0` > write `off` for no limit
    rate_route = [{ url = '/a', rate = '1M' }]
        m.toml:2: `rate_route`: no route `/a` > mount a folder there: `--static /a=DIR`
    static = '/static=x'
    rate_route = [{ url = '/statc', rate = '1M' }]
        m.toml:3: `rate_route`: no route `/statc` > did you mean `/static`?
    rate_route = [{ url = '/', rate = '1M' },
      { url = '/', rate = '2M' }]
        m.toml:3: `rate_route`: `/` has a rate already > give each route one rate
    "#);
}

#[test]
fn says_what_has_no_effect_or_no_unit() {
    let route = |rate: &str| format!("rate_route = [{{ url = '/a', rate = '{rate}' }}]");
    assert_eq!(notes(&route("1M"), &[("rate_pool", "off")]), NOTHING);
    let prefix = ("client_prefix_v6", "56");
    assert_eq!(
        notes("", &[prefix, ("client_connections_max", "9")]),
        NOTHING
    );
    let both = [("rate_connection", "1M"), ("rate_pool", "2M")];
    let all = [
        notes("", &both),
        notes(&route("10"), &[]),
        notes("", &[prefix]),
    ]
    .concat();
    insta::assert_snapshot!(all.join("\n"), @r"
    rate_pool has no effect: rate_connection is set, and counts alone
    rate_route is 10 bytes a second: `10K` and `10M` would be more
    client_prefix_v6 has no effect: client_connections_max is off
    ");
}

#[test]
fn bounds_what_tells_clients_apart() {
    let off = [("client_connections_max", "off")];
    let listen = good("client_connections_max = 7", &[], &off).config.listen;
    assert_eq!(listen.client_connections_max, None);
    insta::assert_snapshot!(refusals(&[
        ("client_connections_max", "0"),
        ("client_connections_max", "many"),
        ("client_prefix_v4", "33"),
        ("client_prefix_v6", "129"),
        ("client_prefix_v6", "/64"),
    ]), @r#"
    "0": `--client-connections-max`: expected a count from 1 to 10000000, or `off`, found `0` > write `off` for no bound
    "many": `--client-connections-max`: expected a count from 1 to 10000000, or `off`, found `many`
    "33": `--client-prefix-v4`: expected a count from 0 to 32, found `33`
    "129": `--client-prefix-v6`: expected a count from 0 to 128, found `129`
    "/64": `--client-prefix-v6`: expected a count from 0 to 128, found `/64`
    "#);
}

#[test]
fn takes_old_names_of_grace_and_spools() {
    let flags = [("body_grace", "5s"), ("reply_spool_max", "9K")];
    let config = good("body_rate_min = '1K/s'", &[], &flags).config;
    assert_eq!(config.timeouts.body.0, 5_000_000_000);
    assert_eq!(config.timeouts.body_rate_min, 1024);
    assert_eq!(config.delivery.reply_spool_bytes_max, 9 << 10);
    insta::assert_snapshot!(refusals(&[
        ("send_rate_min", "2 Kbit/s"),
        ("body_rate_min", "2G"),
    ]), @r#"
    "2 Kbit/s": `--send-rate-min`: expected bytes a second from 0 to 1G (as `256`, `1K`), found `2 Kbit/s` > rates are bytes, not bits: 8 Mbit/s are `1M`
    "2G": `--body-rate-min`: expected bytes a second from 0 to 1G (as `256`, `1K`), found `2G`
    "#);
}
