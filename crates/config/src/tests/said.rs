//! What is said of configurations that are not good, and where the fault is.

use super::*;

#[test]
fn all_faults_of_all_sources_at_once_with_their_places() {
    let toml = "app = 'shop:app'\n\naccept_batch = 'many'\nbacklgo = 3\nthreads = '8:2'\nbind = [\n  ':80',\n  'here',\n]\n\
                [static]\n'x' = 'pub'\n[listen]\nbacklog = 1\n[[redirect]]\nfrom = 'a'\nto = 'b'\n";
    let env = [("MILEPOST_NODELAY", "maybe"), ("MILEPOST_BLACKLOG", "1")];
    let found = faults(toml, &env, &[("spoolers", "0")]);
    insta::assert_snapshot!(found.join("\n"), @r#"
    m.toml:4: `backlgo`: unknown setting > did you mean `backlog`?
    m.toml:12: `listen`: unknown setting > settings stand at the top of the file, outside of tables: `backlog = ...`
    `MILEPOST_BLACKLOG`: unknown setting > did you mean `MILEPOST_BACKLOG`?
    m.toml:3: `accept_batch`: expected a count from 1 to 65536, found `many`
    m.toml:5: `threads`: expected MIN:MAX or one number, from 1 to 4096, found `8:2` > the smaller number comes first: `2:8`
    m.toml:8: `bind`: expected HOST:PORT, [V6]:PORT, :PORT, PORT, unix:PATH, systemd or systemd:NAME, found `here` > add a port: `here:8000`
    m.toml:11: `static."x"`: expected /URL=DIR (as `/static=./static`), found `x=pub` > the URL begins with a slash: `/x=pub`
    m.toml:15: `redirect.from`: expected a path, or the beginning of paths (as `/old/*`), found `a` > a path begins with a slash: `/a`
    m.toml:16: `redirect.to`: expected a path or an absolute URL (as `/new/*`), found `b` > a path begins with a slash, another site with `https://`: `/b`
    `MILEPOST_NODELAY`: expected `true` or `false`, found `maybe`
    `--spoolers`: expected a count from 1 to 64, found `0`
    "#);
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
    let toml = "app = 'shop:app'\ntimeout = 30\ncertfile = 'a.pem'\nlisten = ':80'\nreadahead = '1M'\n\
                steering = 'cpu'\ndriver_stall = 1\nqueue_reserve = 1\n";
    let env = [
        ("MILEPOST_PIDFILE", "f"),
        ("MILEPOST_MASTER", "true"),
        ("MILEPOST_READAHEAD", "1M"),
    ];
    insta::assert_snapshot!(faults(toml, &env, &[]).join("\n"), @r"
    m.toml:2: `timeout`: unknown setting > here it is `request_timeout`: the client gets 504 after this time, and the process continues
    m.toml:3: `certfile`: unknown setting > here it is `tls_cert`
    m.toml:4: `listen`: unknown setting > here it is `bind`
    m.toml:5: `readahead`: unknown setting > its name is `body_memory_max` now
    m.toml:6: `steering`: unknown setting > its name is `reuseport_steering` now
    m.toml:7: `driver_stall`: unknown setting > its name is `accept_stall_timeout` now
    m.toml:8: `queue_reserve`: unknown setting > its name is `health_reserve` now
    `MILEPOST_MASTER`: unknown setting > leave it out: Milepost does so anyway, or needs nothing of the kind
    `MILEPOST_PIDFILE`: unknown setting > here it is `MILEPOST_PID_FILE`
    `MILEPOST_READAHEAD`: unknown setting > its name is `MILEPOST_BODY_MEMORY_MAX` now
    ");
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
    said! { r#"
    backlog = [1]
        m.toml:2: `backlog`: expected a count from 1 to 65535, found `a TOML array`
    [backlog]
    x = 1
        m.toml:2: `backlog`: expected a count from 1 to 65535, found `a TOML table`
    [static]
    '/a' = [1]
        m.toml:3: `static."/a"`: expected /URL=DIR (as `/static=./static`), found `a TOML array`
    [static]
    '/a' = 'x'
    backlog = 5
        m.toml:4: `static."backlog"`: not a setting within `[static]` > settings stand above all tables: `backlog = ...`
    config = 'x'
        m.toml:2: `config`: belongs on the command line: `--config FILE`
    workers = 1
    processes = 1
        m.toml:3: `processes`: the same setting as m.toml:2: `workers`
    bind = []
        configuration: no address to listen on > `--bind 127.0.0.1:8000`
    threads = 2024-01-01
        m.toml:2: `threads`: expected MIN:MAX or one number, from 1 to 4096, found `2024-01-01` > write `2024:01-01`
    "# }
}

#[test]
fn values_out_of_their_kind() {
    said! { r"
    --app=shop.py => expected MODULE:ATTRIBUTE (as `shop.wsgi:app`), found `shop.py` > name the module, not its file: `shop`
    --app=manage.py => expected MODULE:ATTRIBUTE (as `shop.wsgi:app`), found `manage.py` > `manage.py` is no application: name the project's `wsgi` module, as `mysite.wsgi`
    --app=./shop/wsgi.py:application => expected MODULE:ATTRIBUTE (as `shop.wsgi:app`), found `./shop/wsgi.py:application` > name the module, not its file: `shop.wsgi:application`
    " }
    said! { r"
    --app=shop: => expected MODULE:ATTRIBUTE (as `shop.wsgi:app`), found `shop:`
    --app=:app => expected MODULE:ATTRIBUTE (as `shop.wsgi:app`), found `:app`
    --app=shop:() => expected MODULE:ATTRIBUTE (as `shop.wsgi:app`), found `shop:()`
    --app=a b => expected MODULE:ATTRIBUTE (as `shop.wsgi:app`), found `a b`
    --app=shop:app()() => expected MODULE:ATTRIBUTE (as `shop.wsgi:app`), found `shop:app()()`
    --app=1x:app => expected MODULE:ATTRIBUTE (as `shop.wsgi:app`), found `1x:app`
    --app=shop..x:app => expected MODULE:ATTRIBUTE (as `shop.wsgi:app`), found `shop..x:app`
    " }
    said! { r"
    --root-path=shop => expected a URL path (as `/shop`), found `shop` > it begins with a slash: `/shop`
    --static=/static => expected /URL=DIR (as `/static=./static`), found `/static` > write `/static=DIR`
    --static=./pub => expected /URL=DIR (as `/static=./static`), found `./pub` > write `/static=./pub`
    --static=/a?b=c => expected /URL=DIR (as `/static=./static`), found `/a?b=c`
    --static=/a= => expected /URL=DIR (as `/static=./static`), found `/a=` > name a folder
    --static-index=a/b => expected a file's name without a slash, found `a/b`
    --drivers=0 => expected a count from 1 to 256, or `auto`, found `0`
    --driver-cpus=2-1 => expected a list of processors (as `0,2-3`), `auto` or `off`, found `2-1`
    --accept-batch=3.5 => expected a count from 1 to 65536, found `3.5`
    --defer-accept=2h => expected a duration from 0s to 1h (as `30s`, `250ms`, `2m`, or seconds), found `2h`
    --head-timeout=0 => expected a duration from 1ms to 24h (as `30s`, `250ms`, `2m`, or seconds), found `0`
    --threads=2-8 => expected MIN:MAX or one number, from 1 to 4096, found `2-8` > write `2:8`
    --threads=0:4 => expected MIN:MAX or one number, from 1 to 4096, found `0:4`
    --head-bytes-max=17M => expected a size from 256 to 16M (as `64K`, `10M`), found `17M`
    --body-bytes-max=3MB => expected a size (as `64K`, `10M`, `1GiB`), found `3MB` > units are powers of 1024: `3M`
    --access-log-format=jsno => expected `phases`, `combined`, `common`, `json`, `naviserver`, or a text with `{field}`s, found `jsno` > did you mean `json`?
    --server-header=a\r\nb => expected printable ASCII, or `off`, found `a\r\nb`
    --status-path=status => expected a URL path (as `/status`), or `off`, found `status`
    " }
}

#[test]
fn what_does_not_hold_together() {
    said! { r"
    --static=/a=missing => folder `missing` cannot be read: no such file or directory > relative paths start at `/srv`
    --app-dir=missing => folder `missing` cannot be read: no such file or directory > relative paths start at `/srv`
    --spool-dir=missing => folder `missing` cannot be read: no such file or directory > relative paths start at `/srv`
    --access-log=missing/a.log => folder `missing` cannot be read: no such file or directory > relative paths start at `/srv`
    --static=/=pub => a folder at `/` would leave no request to the application > mount it under a URL of its own, as `/static=DIR`
    --target-bytes-max=1M => target_bytes_max (1048576 bytes) is larger than head_bytes_max (32768 bytes) > raise the second or lower the first
    --head-bytes-max=10K => header_bytes_max (16384 bytes) is larger than head_bytes_max (10240 bytes) > raise the second or lower the first
    --driver-cpus=0,9 => no processor 9 here > this process may run on 0, 1, 2, 3
    --bind=nowhere:80 => host `nowhere` cannot be resolved: name or service not known > an address in digits needs no resolver
    " }
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
