//! Serving processes: how many, when they are replaced, who commands them, which sockets they are given.

use std::path::PathBuf;

use telemetry::Nanos;

use super::super::open_files_needed;
use super::super::typed::{ControlConfig, Development, Processes, Recycling, Steering};
use super::*;

fn processes(toml: &str, flags: &[(&str, &str)]) -> Processes {
    good(toml, &[], flags).config.processes
}

fn notes(flags: &[(&str, &str)]) -> Vec<String> {
    good("", &[], flags).notes
}

/// A machine of so many processors where so many files may be open.
fn on(cores: usize, open_files_max: u64, flags: &[(&str, &str)]) -> Result<Loaded, Vec<String>> {
    on_machine(|machine| {
        let machine = Machine {
            cores,
            open_files_max,
            cpus: machine.cpus.clone(),
            current_dir: "/srv".into(),
            ..*machine
        };
        let said = |faults: Vec<super::super::ConfigFault>| {
            let said = faults.iter().map(ToString::to_string);
            said.collect()
        };
        load(&sources("app = 'a:b'", &[], flags), &machine).map_err(said)
    })
}

#[test]
fn counts_processes_and_shares_the_drivers_among_them() {
    let table = [
        // processors, flags, processes, drivers of each
        (4, vec![], (1, 2)),
        (4, vec![("workers", "4")], (4, 1)),
        (16, vec![("processes", "2")], (2, 4)),
        (16, vec![("processes", "auto")], (16, 1)),
        (64, vec![("processes", "2")], (2, 8)),
        (64, vec![("processes", "2"), ("drivers", "3")], (2, 3)),
        (1024, vec![("processes", "auto")], (512, 1)),
        (1, vec![("processes", "auto")], (1, 1)),
        (4, vec![("processes", "512"), ("drivers", "2")], (512, 2)),
    ];
    for (cores, flags, expect) in table {
        let config = on(cores, 1_000_000, &flags).expect("good").config;
        let found = (config.processes.count, config.listen.drivers);
        assert_eq!(found, expect, "{cores} {flags:?}");
    }
    said! { r"
    --processes=0 => expected a count from 1 to 512, or `auto`, found `0`
    --processes=513 => expected a count from 1 to 512, or `auto`, found `513`
    --processes=many => expected a count from 1 to 512, or `auto`, found `many`
    --processes=-1 => expected a count from 1 to 512, or `auto`, found `-1`
    --processes= => expected a count from 1 to 512, or `auto`, found ``
    " }
}

#[test]
fn bounds_the_drivers_of_all_processes() {
    let flags = [("processes", "5"), ("drivers", "205")];
    assert_eq!(
        faults("app = 'a:b'", &[], &flags),
        [
            "`--drivers`: 5 processes with 205 drivers each are 1025 drivers: more than 1024 > at most 204 drivers"
        ]
    );
    good("", &[], &[("processes", "4"), ("drivers", "256")]);
}

#[test]
fn counts_the_open_files_of_every_process() {
    let flags = |count| {
        let bind = [("bind", ":80"), ("bind", "[::1]:80"), ("bind", "unix:a")];
        [&bind[..], &[("processes", count), ("drivers", "2")]].concat()
    };
    let one = on(4, 1_000_000, &flags("1")).expect("good").config;
    assert_eq!(open_files_needed(&one), 128 + 2 * 300 + 2 * 10_000);
    // The last one alive hears what the other nine had: 2 addresses and 2 drivers each.
    let ten = on(4, 1_000_000, &flags("10")).expect("good").config;
    assert_eq!(open_files_needed(&ten), 128 + 2 * 300 + 9 * 4 + 2 * 10_000);
    let cut = on(4, 4096, &flags("10")).expect("good");
    assert_eq!(
        cut.config.listen.connections_max,
        4096 - 128 - 2 * 300 - 9 * 4
    );
    assert_eq!(cut.notes.len(), 1, "{:?}", cut.notes);
    let found = on(4, 1024, &flags("300")).expect_err("too many sockets");
    assert_eq!(
        found,
        [
            "`--processes`: 300 processes with 2 drivers each need 2400 sockets and channels in the supervisor: at most 1024 files may be open (ulimit -Hn)"
        ]
    );
    // However few files there are, one process is tried.
    assert!(on(4, 64, &flags("1")).is_ok());
}

#[test]
fn takes_users_and_groups_by_name_or_number() {
    let written = processes("user = 33\ngroup = 'www-data'", &[]);
    assert_eq!(
        (written.user.as_str(), written.group.as_str()),
        ("33", "www-data")
    );
    let none = processes(
        "user = 33\ngroup = 'www'",
        &[("user", "off"), ("group", "off")],
    );
    assert_eq!((none.user.as_str(), none.group.as_str()), ("", ""));
    said! { r"
    --user=www:web => expected a user's name or number, or `off`, found `www:web` > two settings: user `www`, group `web`
    --user=www: => expected a user's name or number, or `off`, found `www:` > write `www`
    --user= => expected a user's name or number, or `off`, found ``
    --user=a b => expected a user's name or number, or `off`, found `a b`
    --user=-1 => expected a user's name or number, or `off`, found `-1`
    --user=a/b => expected a user's name or number, or `off`, found `a/b`
    " }
    said! { r"
    --group= => expected a group's name or number, or `off`, found ``
    --group=a b => expected a group's name or number, or `off`, found `a b`
    " }
}

#[test]
fn bounds_the_life_of_a_process() {
    let flags = [
        ("max_requests", "1_000"),
        ("process_age_max", "1.5h"),
        ("process_resident_max", "1G"),
        ("recycle_jitter", "2.5%"),
    ];
    let Recycling {
        requests_max,
        age_max,
        resident_bytes_max,
        jitter,
    } = processes("", &flags).recycling;
    assert_eq!(requests_max, Some(1000));
    assert_eq!(age_max, Some(Nanos::from_secs(5400)));
    assert_eq!(resident_bytes_max, Some(1 << 30));
    assert!((jitter - 0.025).abs() < 1e-9, "{jitter}");
    let toml = "process_requests_max = 5\nprocess_age_max = 60\nprocess_resident_max = '20M'";
    let off: Vec<_> = flags[..3].iter().map(|(key, _)| (*key, "off")).collect();
    let none = processes(toml, &off).recycling;
    assert_eq!(
        (none.requests_max, none.age_max, none.resident_bytes_max),
        (None, None, None)
    );
    said! { r"
    --process-age-max=0 => expected a duration from 1s to 366d (as `12h`, `7d`), or `off`, found `0` > write `off` for no bound
    --process-resident-max=0 => expected a size from 16M (as `512M`, `2G`), or `off`, found `0` > write `off` for no bound
    --process-requests-max=1.5 => expected a count from 1, or `off`, found `1.5`
    --process-age-max=500ms => expected a duration from 1s to 366d (as `12h`, `7d`), or `off`, found `500ms`
    --process-age-max=367d => expected a duration from 1s to 366d (as `12h`, `7d`), or `off`, found `367d`
    --process-resident-max=500 => expected a size from 16M (as `512M`, `2G`), or `off`, found `500` > with a unit: `500M`
    --process-resident-max=15M => expected a size from 16M (as `512M`, `2G`), or `off`, found `15M`
    --process-resident-max=500MB => expected a size from 16M (as `512M`, `2G`), or `off`, found `500MB` > units are powers of 1024: `500M`
    --recycle-jitter=50 => expected a share from 0% to 100%, found `50` > a share, not a number of requests: `50%`
    --recycle-jitter=101% => expected a share from 0% to 100%, found `101%`
    --recycle-jitter=0.1 => expected a share from 0% to 100%, found `0.1`
    " }
}

#[test]
fn waits_as_long_as_it_is_told() {
    let off = [("start_timeout", "off"), ("heartbeat_timeout", "off")];
    let never = processes("start_timeout = 5", &off);
    assert_eq!(never.start_timeout, Nanos(0));
    assert_eq!(never.heartbeat_timeout, Nanos(0));
    let toml = processes("start_timeout = 5\nheartbeat_timeout = '24h'", &[]);
    assert_eq!(toml.start_timeout, Nanos::from_secs(5));
    assert_eq!(toml.heartbeat_timeout, Nanos::from_secs(86_400));
    said! { r"
    --start-timeout=0 => expected a duration from 1s to 24h (as `2m`), or `off`, found `0` > write `off` for no bound
    --heartbeat-timeout=10ms => expected a duration from 1s to 24h (as `30s`), or `off`, found `10ms`
    --accept-stall-timeout=49ms => expected a duration from 50ms to 1h (as `30s`, `250ms`, `2m`, or seconds), found `49ms`
    " }
}

#[test]
fn watches_for_development_what_it_is_told() {
    assert_eq!(
        processes("", &[("reload", "on")]).development,
        Some(Development::default())
    );
    let flags = [
        ("reload", "true"),
        ("reload_dir", "./code"),
        ("reload_dir", "/srv/code"),
    ];
    let dirs = vec![PathBuf::from("/srv/code")];
    // With several processes it is fine, too.
    let found = processes("processes = 3", &flags).development;
    assert_eq!(
        found,
        Some(Development {
            dirs,
            files: Vec::new()
        })
    );
    let toml = "reload = true\nreload_dir = ['a', 'b']";
    let found = processes(toml, &[]).development.map(|one| one.dirs.len());
    assert_eq!(found, Some(2));
    assert_eq!(
        notes(&[("reload_dir", "code")]),
        ["reload_dir has no effect: reload is off"]
    );
    said! { r"
    --reload-dir=missing => folder `missing` cannot be read: no such file or directory > relative paths start at `/srv`
    --reload-dir= => expected a folder, found `` > name a folder
    " }
}

#[test]
fn refuses_preload_with_reload_and_ignores_it_without_an_application() {
    let flags = [("preload_app", "true"), ("reload", "true")];
    let found = faults("app = 'a:b'", &[], &flags);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("`--preload`: preload and reload exclude each other > "),
        "{found:?}"
    );
    let sources = sources("static = ['/=pub']\npreload = true", &[], &[]);
    let loaded = on_machine(|machine| load(&sources, machine)).expect("files can be served");
    assert!(!loaded.config.processes.preload);
    assert_eq!(
        loaded.notes,
        ["preload has no effect: there is no application"]
    );
    assert!(processes("", &[("preload", "true")]).preload);
}

#[test]
fn takes_commands_where_it_is_told() {
    let control = |text| processes("", &[("control", text)]).control;
    assert_eq!(control("auto"), ControlConfig::Auto);
    assert_eq!(control("off"), ControlConfig::Off);
    assert_eq!(
        control("run/m.sock"),
        ControlConfig::At("/srv/run/m.sock".into())
    );
    assert_eq!(
        control("/run/m.sock"),
        ControlConfig::At("/run/m.sock".into())
    );
    said! { r"
    --control=/run/ => expected a file, `auto` or `off`, found `/run/` > name a file: `/run/milepost.sock`
    --control=unix:/run/a => expected a file, `auto` or `off`, found `unix:/run/a` > write `/run/a`
    --control= => expected a file, `auto` or `off`, found ``
    " }
    // 107 bytes with the folder that it starts from.
    let longest = "x".repeat(107 - "/srv/".len());
    assert!(matches!(control(&longest), ControlConfig::At(_)));
    let longer = faults("app = 'a:b'", &[], &[("control", &format!("{longest}x"))]);
    let expect = "has 108 bytes > the kernel takes at most 107 bytes of path";
    assert!(longer[0].ends_with(expect), "{longer:?}");
}

#[test]
fn refuses_a_place_for_admin_that_cannot_be() {
    said! { r"
    --admin-bind=unix:/missing/a.sock => folder `/missing` cannot be read: no such file or directory > relative paths start at `/srv`
    bind = ['unix:run/a.sock', '127.0.0.1:8000', ':8001']
    admin_bind = 'unix:/srv/run/a.sock'
        m.toml:3: `admin_bind`: clients of the application have this address (`bind`) > give each its own port or path
    bind = '127.0.0.1:8000'
    admin_bind = '127.0.0.1:8000'
        m.toml:3: `admin_bind`: clients of the application have this address (`bind`) > give each its own port or path
    bind = '0.0.0.0:8000'
    admin_bind = '127.0.0.1:8000'
        m.toml:3: `admin_bind`: clients of the application have this address (`bind`) > give each its own port or path
    " }
    for apart in [
        "'127.0.0.2:8000'",
        "'127.0.0.1:8001'",
        "'[::]:8000'",
        "'127.0.0.1:0'",
    ] {
        let toml = format!("app = 'a:b'\nbind = {apart}\nadmin_bind = '127.0.0.1:8000'");
        assert_eq!(faults(&toml, &[], &[]), [""; 0], "{apart}");
    }
}

#[test]
fn finds_the_control_socket_when_the_rest_is_bad() {
    let control = |toml| super::super::control(&sources(toml, &[], &[]));
    let written = control("control = 'm.sock'\nnonsense = 1").expect("a place");
    assert_eq!(written, ControlConfig::At("m.sock".into()));
    assert_eq!(control("threads = 3").ok(), Some(ControlConfig::Auto));
    // The unknown key may well be the place.
    assert_eq!(
        control("contrl = 'm.sock'").map_err(|faults| faults.len()),
        Err(1)
    );
}

#[test]
fn inherits_sockets_of_the_service_manager() {
    let binds = |texts: &[&str]| {
        let flags: Vec<_> = texts.iter().map(|text| ("bind", *text)).collect();
        good("", &[], &flags).config.binds
    };
    assert_eq!(binds(&["systemd"]), [Bind::Inherited(None)]);
    let named = |name: &str| Bind::Inherited(Some(name.to_owned()));
    assert_eq!(
        binds(&["systemd:web", ":80", "systemd:admin"])[..],
        [
            named("web"),
            Bind::Tcp(vec![([0, 0, 0, 0], 80).into()]),
            named("admin")
        ]
    );
    for twice in [["systemd", "systemd:web"], ["systemd:web", "systemd:web"]] {
        let flags = twice.map(|text| ("bind", text));
        let found = faults("app = 'a:b'", &[], &flags);
        let expect = format!("`{}` is already in the list", twice[1]);
        assert!(found[0].contains(&expect), "{found:?}");
    }
    said! { r"
    --bind=systemd: => expected HOST:PORT, [V6]:PORT, :PORT, PORT, unix:PATH, systemd or systemd:NAME, found `systemd:` > name the socket (FileDescriptorName), or write `systemd` for all
    " }
}

#[test]
fn says_what_is_set_in_vain() {
    assert_eq!(
        notes(&[("recycle_jitter", "20%")]),
        [
            "recycle_jitter has no effect: no process_requests_max, process_age_max or process_resident_max is set"
        ]
    );
    let flags = [("recycle_jitter", "20%"), ("process_requests_max", "9")];
    assert_eq!(notes(&flags), Vec::<String>::new());
    let unpinned = good("", &[], &[("reuseport_steering", "cpu")]);
    assert_eq!(unpinned.config.listen.steering, Steering::Cpu);
    assert_eq!(
        unpinned.notes,
        [
            "reuseport_steering by cpu helps little as long as drivers move between processors: driver_cpus is off"
        ]
    );
    let pinned = [("reuseport_steering", "cpu"), ("driver_cpus", "auto")];
    assert_eq!(notes(&pinned), Vec::<String>::new());
    said! { r"
    --reuseport-steering=cpus => expected one of `hash`, `cpu`, found `cpus` > did you mean `cpu`?
    " }
}

#[test]
fn refuses_what_the_start_would_refuse() {
    said! { r"
    --control=missing/m.sock => folder `/srv/missing` cannot be read: no such file or directory > relative paths start at `/srv`
    --user=missing => cannot become user `missing`: there is no such user
    --group=missing => cannot become user `missing`: there is no such user
    " }
}
