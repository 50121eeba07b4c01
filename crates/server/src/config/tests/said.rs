//! What is said of configurations that are not good, and where the fault is.

use super::*;

#[test]
fn all_faults_of_all_sources_at_once_with_their_places() {
    let toml = "app = 'shop:app'\n\naccept_batch = 'many'\nbacklgo = 3\nthreads = '8:2'\nbind = [\n  ':80',\n  'here',\n]\n[static]\n'x' = 'pub'\n[listen]\nbacklog = 1\n";
    let env = [("MILEPOST_NODELAY", "maybe"), ("MILEPOST_BLACKLOG", "1")];
    let expect = [
        "m.toml:4: `backlgo`: unknown setting > did you mean `backlog`?",
        "m.toml:12: `listen`: unknown setting > settings stand at the top of the file, outside of tables: `backlog = ...`",
        "`MILEPOST_BLACKLOG`: unknown setting > did you mean `MILEPOST_BACKLOG`?",
        "m.toml:3: `accept_batch`: expected a count from 1 to 65536, found `many`",
        "m.toml:5: `threads`: expected MIN:MAX or one number, from 1 to 4096, found `8:2` > the smaller number comes first: `2:8`",
        "m.toml:8: `bind`: expected HOST:PORT, [V6]:PORT, :PORT, PORT, unix:PATH, systemd or systemd:NAME, found `here` > add a port: `here:8000`",
        "m.toml:11: `static.\"x\"`: expected /URL=DIR (as `/static=./static`), found `x=pub` > the URL begins with a slash: `/x=pub`",
        "`MILEPOST_NODELAY`: expected `true` or `false`, found `maybe`",
        "`--spoolers`: expected a count from 1 to 64, found `0`",
    ];
    assert_eq!(faults(toml, &env, &[("spoolers", "0")]), expect);
}

#[test]
fn a_folder_that_takes_no_bodies() {
    let check = |toml: &str, expect: &[&str]| assert_eq!(faults(toml, &[], &[]), expect);
    let closed = "m.toml:2: `spool_dir`: folder `closed`, for large bodies, takes no files: permission denied > ";
    let right =
        "needs the right to write there and to enter it; or name another one with `spool_dir`";
    check(
        "app = 'a:b'\nspool_dir = 'closed'",
        &[&format!("{closed}the user that runs milepost {right}")],
    );
    check(
        "app = 'a:b'\nspool_dir = 'closed'\nuser = 'www'",
        &[&format!("{closed}user `www` {right}")],
    );
    check(
        "app = 'a:b'\nspool_dir = 'frozen'",
        &[
            "m.toml:2: `spool_dir`: folder `frozen`, for large bodies, takes no files: read-only file system > name another one with `spool_dir`",
        ],
    );
    // Nobody sends a body to files.
    check("static = '/=pub'\nspool_dir = 'closed'", &[]);
}

#[test]
fn settings_of_other_servers_have_the_one_that_is_here() {
    let toml = "app = 'shop:app'\ntimeout = 30\ncertfile = 'a.pem'\nlisten = ':80'\n";
    let env = [("MILEPOST_PIDFILE", "f"), ("MILEPOST_MASTER", "true")];
    let expect = [
        "m.toml:2: `timeout`: unknown setting > here it is `request_timeout`: the client gets 504 and the process goes on; off by default",
        "m.toml:3: `certfile`: unknown setting > there is no TLS and no HTTP/2: put a proxy that has them in front, as nginx",
        "m.toml:4: `listen`: unknown setting > here it is `bind`: HTTP is spoken there",
        "`MILEPOST_MASTER`: unknown setting > it is always so: leave it out",
        "`MILEPOST_PIDFILE`: unknown setting > here it is `MILEPOST_PID_FILE`",
    ];
    assert_eq!(faults(toml, &env, &[]), expect);
}

#[test]
fn bad_toml_with_its_line() {
    let found = faults("backlog = 1\nbacklog 2\n", &[], &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("m.toml:2: not TOML: "), "{found:?}");
    let found = faults("app = 'a:b'\nbacklog = 1\nbacklog = 2\n", &[], &[]);
    assert!(
        found[0].starts_with("m.toml:3: not TOML: duplicate key"),
        "{found:?}"
    );
}

#[test]
fn values_of_the_wrong_shape() {
    let found = |toml| faults(&format!("app = 'a:b'\n{toml}"), &[], &[]).join("|");
    assert!(
        found("backlog = [1]").contains(
            "m.toml:2: `backlog`: expected a count from 1 to 65535, found `a TOML array`"
        )
    );
    assert!(found("[backlog]\nx = 1").contains("m.toml:2: `backlog`: expected a count"));
    assert!(found("[static]\n'/a' = [1]").contains(
        "m.toml:3: `static.\"/a\"`: expected /URL=DIR (as `/static=./static`), found `a TOML array`"
    ));
    assert!(found("[static]\n'/a' = 'x'\nbacklog = 5").contains(
            "m.toml:4: `static.\"backlog\"`: not a setting within `[static]` > settings stand above all tables: `backlog = ...`"
        ));
    assert!(found("config = 'x'").contains("belongs on the command line: `--config FILE`"));
    assert!(
        found("workers = 1\nprocesses = 1")
            .contains("m.toml:3: `processes`: the same setting as m.toml:2: `workers`")
    );
    assert!(found("bind = []").contains("no address to listen on"));
}

#[test]
fn values_out_of_their_kind() {
    check_fault(
        "app",
        "shop.py",
        "> name the module, not its file: `shop:app`",
    );
    check_fault(
        "app",
        "./shop/wsgi.py:application",
        "`shop.wsgi:application`",
    );
    for app in [
        "shop:",
        ":app",
        "shop:()",
        "a b",
        "shop:app()()",
        "1x:app",
        "shop..x:app",
    ] {
        check_fault("app", app, "`APP`: expected MODULE:ATTRIBUTE");
    }
    check_fault("root_path", "shop", "> it begins with a slash: `/shop`");
    check_fault("static", "/static", "> write `/static=DIR`");
    check_fault("static", "./pub", "> write `/static=./pub`");
    check_fault("static", "/a?b=c", "expected /URL=DIR");
    check_fault("static", "/a=", "> name a folder");
    check_fault("static_index", "a/b", "a file's name without a slash");
    check_fault("drivers", "0", "a count from 1 to 256, or `auto`");
    check_fault("driver_cpus", "2-1", "a list of processors");
    check_fault("accept_batch", "3.5", "a count from 1 to 65536");
    check_fault("defer_accept", "2h", "a duration from 0s to 1h");
    check_fault("head_timeout", "0", "a duration from 1ms to 24h");
    check_fault("threads", "2-8", "> write `2:8`");
    check_fault("threads", "0:4", "from 1 to 4096");
    check_fault("head_bytes_max", "17M", "a size from 256 to 16M");
    check_fault("body_bytes_max", "3MB", "> units are powers of 1024: `3M`");
    check_fault("access_log_format", "jsno", "> did you mean `json`?");
    check_fault("server_header", "a\r\nb", "found `a\\r\\nb`");
    check_fault("status_path", "status", "a URL path");
}

#[test]
fn what_does_not_hold_together() {
    check_fault(
        "static",
        "/a=missing",
        "folder `missing` cannot be read: no such file or directory > relative paths start at `/srv`",
    );
    check_fault(
        "app_dir",
        "missing",
        "`--app-dir`: folder `missing` cannot be read",
    );
    check_fault("spool_dir", "missing", "`--spool-dir`: folder `missing`");
    check_fault(
        "access_log",
        "missing/a.log",
        "`--access-log`: folder `missing`",
    );
    check_fault(
        "static",
        "/=pub",
        "would leave no request to the application",
    );
    check_fault(
        "target_bytes_max",
        "1M",
        "`--target-bytes-max`: target_bytes_max (1048576 bytes) is larger than head_bytes_max (32768 bytes)",
    );
    check_fault(
        "head_bytes_max",
        "10K",
        "`--head-bytes-max`: header_bytes_max",
    );
    check_fault(
        "driver_cpus",
        "0,9",
        "no processor 9 here > this process may run on 0, 1, 2, 3",
    );
    check_fault(
        "bind",
        "nowhere:80",
        "host `nowhere` cannot be resolved: name or service not known",
    );
    let twice = faults(
        "app = 'a:b'",
        &[],
        &[("static", "/a=x"), ("static", "/a/=y")],
    );
    assert!(twice[0].contains("`/a` is mounted twice"), "{twice:?}");
    let twice = faults(
        "app = 'a:b'",
        &[],
        &[("bind", "localhost:80"), ("bind", "127.0.0.1:80")],
    );
    assert!(
        twice[0].contains("`127.0.0.1:80` is already in the list"),
        "{twice:?}"
    );
    good("", &[], &[("bind", ":0"), ("bind", ":0")]);
}

#[test]
fn that_there_is_nothing_to_serve() {
    let found = faults("", &[], &[]);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("configuration: nothing to serve > name an application"));
    assert_eq!(
        faults("", &[], &[("static", "/=pub")]),
        Vec::<String>::new()
    );
    // The unknown key may well be the application.
    assert_eq!(faults("ap = 'a:b'", &[], &[]).len(), 1);
}
