//! Fair shares: rates, connections of one client, the rates that bodies and replies have to keep.

use super::super::meant::Rate;
use super::*;

fn routes(toml: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Vec<(String, Rate)> {
    good(toml, environment, flags).config.rates.routes
}

fn notes(flags: &[(&str, &str)]) -> Vec<String> {
    good("static = ['/a=x']", &[], flags).notes
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
fn gives_routes_their_rates_in_every_form() {
    let expect = [
        ("/a".to_owned(), Rate::BytesPerSec(1 << 20)),
        (String::new(), Rate::Unlimited),
    ];
    let toml = "static = ['/a=x']\n";
    let table = format!("{toml}[rate_route]\n'/a/' = 1048576\n'/' = 'off'");
    assert_eq!(routes(&table, &[], &[]), expect);
    let list = format!("{toml}rate_route = ['/a=1M', '/=off']");
    assert_eq!(routes(&list, &[], &[]), expect);
    let env = [("MILEPOST_RATE_ROUTE", "/a=1M, /=off")];
    assert_eq!(routes(toml, &env, &[]), expect);
    let flags = [("rate_route", "/a=1M"), ("rate_route", "/=off")];
    assert_eq!(routes(toml, &[], &flags), expect);
}

#[test]
fn takes_a_root_folder_for_the_root_where_there_is_no_application() {
    let flags = [("static", "/=pub"), ("rate_route", "/=1M")];
    assert_eq!(faults("", &[], &flags), Vec::<String>::new());
    let found = faults("", &[], &[("static", "/a=pub"), ("rate_route", "/=1M")]);
    assert_eq!(
        found,
        ["`--rate-route`: no route `/` > folders are mounted at `/a`"]
    );
}

#[test]
fn says_what_was_meant_by_a_rate() {
    check_fault(
        "rate_connection",
        "0",
        "`--rate-connection`: expected bytes a second (as `500K`, `10M`), or `off`, found `0` > write `off` for no limit",
    );
    check_fault("rate_connection", "unlimited", "> write `off` for no limit");
    check_fault(
        "rate_connection",
        "1MB/s",
        "> units are powers of 1024: `1M`",
    );
    check_fault(
        "rate_pool",
        "10Mbit/s",
        "> rates are bytes, not bits: 8 Mbit/s are `1M`",
    );
    check_fault("rate_pool", "10mbps", "> rates are bytes, not bits");
    check_fault("rate_pool", "fast", "found `fast`");
    check_fault(
        "rate_route",
        "/a",
        "`--rate-route`: expected /URL=RATE (as `/static=10M`), or /URL=off, found `/a` > write `/a=1M`, or `/a=off`",
    );
    check_fault("rate_route", "10M", "> of which route? `/=10M`");
    check_fault(
        "rate_route",
        "a=10M",
        "> the URL begins with a slash: `/a=10M`",
    );
    check_fault("rate_route", "/a=0", "> write `off` for no limit");
    check_fault(
        "rate_route",
        "/a=1M",
        "no route `/a` > mount a folder there: `--static /a=DIR`",
    );
    let flags = |route| [("static", "/static=x"), ("rate_route", route)];
    let found = faults("app = 'a:b'", &[], &flags("/statc=1M"));
    assert_eq!(
        found,
        ["`--rate-route`: no route `/statc` > did you mean `/static`?"]
    );
    let twice = [("rate_route", "/=1M"), ("rate_route", "/=2M")];
    let found = faults("app = 'a:b'", &[], &twice);
    assert_eq!(
        found,
        ["`--rate-route`: `/` has a rate already > give each route one rate"]
    );
}

#[test]
fn says_what_has_no_effect_or_no_unit() {
    assert_eq!(
        notes(&[("rate_pool", "off"), ("rate_route", "/a=1M")]),
        NOTHING
    );
    assert_eq!(
        notes(&[("rate_connection", "1M"), ("rate_pool", "2M")]),
        ["rate_pool has no effect: rate_connection is set, and counts alone"]
    );
    assert_eq!(
        notes(&[("rate_route", "/a=10")]),
        ["rate_route is 10 bytes a second: `10K` and `10M` would be more"]
    );
    assert_eq!(
        notes(&[("client_prefix_v6", "56")]),
        ["client_prefix_v6 has no effect: client_connections_max is off"]
    );
    assert_eq!(
        notes(&[("client_prefix_v6", "56"), ("client_connections_max", "9")]),
        NOTHING
    );
}

const NOTHING: [&str; 0] = [];

#[test]
fn bounds_what_tells_clients_apart() {
    let off = [("client_connections_max", "off")];
    let listen = good("client_connections_max = 7", &[], &off).config.listen;
    assert_eq!(listen.client_connections_max, None);
    check_fault(
        "client_connections_max",
        "0",
        "a count from 1 to 10000000, or `off`, found `0` > write `off` for no bound",
    );
    check_fault("client_connections_max", "many", "or `off`, found `many`");
    check_fault("client_prefix_v4", "33", "a count from 0 to 32");
    check_fault("client_prefix_v6", "129", "a count from 0 to 128");
    check_fault("client_prefix_v6", "/64", "a count from 0 to 128");
}

#[test]
fn takes_old_names_of_grace_and_spools() {
    let flags = [("body_grace", "5s"), ("reply_spool_max", "9K")];
    let config = good("body_rate_min = '1K/s'", &[], &flags).config;
    assert_eq!(config.timeouts.body.0, 5_000_000_000);
    assert_eq!(config.timeouts.body_rate_min, 1024);
    assert_eq!(config.delivery.reply_spool_bytes_max, 9 << 10);
    check_fault(
        "send_rate_min",
        "2 Kbit/s",
        "`--send-rate-min`: expected bytes a second from 0 to 1G (as `256`, `1K`), found `2 Kbit/s` > rates are bytes",
    );
    check_fault("body_rate_min", "2G", "bytes a second from 0 to 1G");
}
