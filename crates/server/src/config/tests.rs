//! The configuration as a whole: every setting, precedence, faults with their places.

mod logs;
mod others;
mod pages;
mod processes;
mod rules;
mod shares;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::meant::{Bind, Config, LogForm, LogTarget};
use super::written::{FlagForm, SETTINGS, setting};
use super::{FlagText, Loaded, Machine, Sources, TomlText, load};

/// A machine of four processors where `missing` is the only folder that is not there.
fn on_machine<T>(f: impl FnOnce(&Machine<'_>) -> T) -> T {
    let resolve = |host: &str, port: u16| -> io::Result<Vec<SocketAddr>> {
        match host {
            "localhost" => Ok(vec![
                ([127, 0, 0, 1], port).into(),
                ([127, 0, 0, 1], port).into(),
            ]),
            _ => Err(io::Error::other("name or service not known (os error 5)")),
        }
    };
    let folder = |dir: &Path| match dir.ends_with("missing") {
        true => Err(io::Error::from_raw_os_error(2)),
        false => Ok(()),
    };
    let file = |file: &Path| match file.file_name().and_then(|name| name.to_str()) {
        Some("missing") => Err(io::Error::from_raw_os_error(2)),
        Some("folder") => Err(io::ErrorKind::IsADirectory.into()),
        Some("huge") => Ok((1 << 20) + 1),
        _ => Ok(1 << 20),
    };
    f(&Machine {
        cores: 4,
        cpus: vec![0, 1, 2, 3],
        open_files_max: 1_000_000,
        current_dir: PathBuf::from("/srv"),
        resolve: &resolve,
        folder: &folder,
        file: &file,
    })
}

fn flag(key: &str, text: &str) -> FlagText {
    let key = setting(key).expect("a key of the table").key;
    FlagText {
        key,
        text: text.to_owned(),
    }
}

fn sources(toml: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Sources {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Sources {
        toml: Some(TomlText {
            file: "m.toml".to_owned(),
            text: toml.to_owned(),
        }),
        environment: environment.iter().map(pair).collect(),
        flags: flags.iter().map(|(key, text)| flag(key, text)).collect(),
    }
}

#[track_caller]
fn good(toml: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Loaded {
    let mut sources = sources(toml, environment, flags);
    if !toml.contains("app =") && !flags.iter().any(|(key, _)| *key == "app") {
        sources.flags.push(flag("app", "shop:app"));
    }
    on_machine(|machine| load(&sources, machine)).expect("a good configuration")
}

/// All faults as they are printed, one a line, hints after `>`.
fn faults(toml: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Vec<String> {
    let sources = sources(toml, environment, flags);
    let faults = on_machine(|machine| load(&sources, machine))
        .err()
        .unwrap_or_default();
    let line = |fault: super::Fault| match &fault.hint {
        Some(hint) => format!("{fault} > {hint}"),
        None => fault.to_string(),
    };
    faults.into_iter().map(line).collect()
}

/// The first fault of one flag beside a good application.
#[track_caller]
fn check_fault(key: &str, text: &str, expect: &str) {
    let found = faults("app = 'shop:app'", &[], &[(key, text)]);
    assert!(
        found.first().is_some_and(|first| first.contains(expect)),
        "{key} {text}: {found:?}"
    );
}

mod table {
    use super::others::OTHERS;
    use super::*;

    #[test]
    fn has_each_name_once() {
        let mut names = BTreeSet::new();
        let mut letters = BTreeSet::new();
        for setting in SETTINGS {
            for name in std::iter::once(&setting.key).chain(setting.aliases) {
                assert!(names.insert(*name), "{name} twice");
                assert!(
                    name.bytes()
                        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                    "{name}"
                );
            }
            assert!(
                setting.short.is_none_or(|letter| letters.insert(letter)),
                "{}",
                setting.key
            );
        }
    }

    #[test]
    fn says_something_short_about_each() {
        for setting in SETTINGS {
            assert!(
                !setting.help.is_empty() && setting.help.len() <= 80,
                "{}",
                setting.key
            );
            assert!(!setting.help.ends_with('.'), "{}", setting.key);
            assert!(
                setting.doc.is_empty() || setting.doc.ends_with('.'),
                "{}",
                setting.key
            );
            assert!(!setting.expected().is_empty());
        }
        assert_eq!(
            setting("app").map(|app| app.form()),
            Some(FlagForm::Argument)
        );
    }

    #[test]
    fn has_the_defaults_that_are_meant() {
        let config = good("", &[], &[]).config;
        let meant = Config::default();
        assert_eq!(format!("{:?}", config.pool), format!("{:?}", meant.pool));
        assert_eq!(
            format!("{:?}", config.limits),
            format!("{:?}", meant.limits)
        );
        assert_eq!(
            format!("{:?}", config.timeouts),
            format!("{:?}", meant.timeouts)
        );
        assert_eq!(format!("{:?}", config.spool), format!("{:?}", meant.spool));
        assert_eq!(
            format!("{:?}", config.delivery),
            format!("{:?}", meant.delivery)
        );
        assert_eq!(
            format!("{:?}", config.file_cache),
            format!("{:?}", meant.file_cache)
        );
        assert_eq!(
            format!("{:?}", config.headers),
            format!("{:?}", meant.headers)
        );
        assert_eq!(
            format!("{:?}", config.file_serving),
            format!("{:?}", meant.file_serving)
        );
        assert_eq!(
            format!("{:?}", config.compression),
            format!("{:?}", meant.compression)
        );
        assert_eq!(format!("{:?}", config.rates), format!("{:?}", meant.rates));
        assert_eq!(format!("{:?}", config.rules), format!("{:?}", meant.rules));
        assert_eq!(config.error_pages, meant.error_pages);
        let listen = super::super::meant::Listen {
            drivers: 2,
            ..meant.listen
        };
        assert_eq!(format!("{:?}", config.listen), format!("{listen:?}"));
        assert_eq!(
            format!("{:?}", config.processes),
            format!("{:?}", meant.processes)
        );
        let logs = good("", &[], &[("access_log", "-")]).config.logs;
        let stdout = super::super::meant::AccessLog::new(LogTarget::Stdout);
        assert_eq!(logs.access, [stdout]);
        assert_eq!(config.logs, meant.logs);
        assert_eq!(config.request_ids, meant.request_ids);
        assert_eq!(config.pid_file, meant.pid_file);
        assert_eq!(config.status_path, None);
        assert_eq!(
            config.binds,
            [Bind::Tcp(vec![([127, 0, 0, 1], 8000).into()])]
        );
    }

    #[test]
    fn reaches_every_field_that_is_meant() {
        let keys: Vec<&str> = OTHERS.iter().map(|(key, _)| *key).collect();
        assert_eq!(
            keys,
            SETTINGS
                .iter()
                .map(|setting| setting.key)
                .collect::<Vec<_>>()
        );
        let others: Vec<_> = OTHERS
            .iter()
            .filter(|(key, _)| *key != "preload")
            .copied()
            .collect();
        let (before, mut after) = (
            good("", &[], &[("access_log", "-")]).config,
            good("", &[], &others).config,
        );
        // It excludes `reload`.
        let preloading = good("", &[], &[("preload", "true")]).config;
        after.processes.preload = preloading.processes.preload;
        let fields = |config: &Config| {
            let text = format!(
                "{:?}, {:?}, {:?}, {:?}, {:?}, {:?}, {:?}, {:?}, {:?}, {:?}, {:?}, {:?}, {:?}, {:?}, {:?}, {:?}, pid_file: {:?}",
                config.pool,
                config.processes,
                config.limits,
                config.timeouts,
                config.spool,
                config.delivery,
                config.file_cache,
                config.logs,
                config.headers,
                config.listen,
                config.file_serving,
                config.compression,
                config.rates,
                config.rules,
                config.error_pages,
                config.request_ids,
                config.pid_file,
            );
            // A structure within another is reached when its own fields are.
            let parts = text.split([',', '}']).map(|part| {
                part.rsplit('{')
                    .next()
                    .unwrap_or_default()
                    .trim()
                    .to_owned()
            });
            let fields: Vec<String> = parts.filter(|part| part.contains(": ")).collect();
            fields
        };
        let (before, after) = (fields(&before), fields(&after));
        assert!(after.len() > 60, "{after:?}");
        for field in after {
            assert!(!before.contains(&field), "not reached: {field}");
        }
    }

    #[test]
    fn puts_values_where_they_belong() {
        let config = good("", &[], &OTHERS[..24]).config;
        let app = config.app.expect("an application");
        assert_eq!(
            (app.module.as_str(), app.attribute.as_str()),
            ("shop.wsgi", "make.app")
        );
        assert_eq!(
            (app.app_dir.as_path(), app.root_path.as_str()),
            (Path::new("/srv/src"), "/shop")
        );
        assert!(app.factory);
        let mount = &config.statics[0];
        assert_eq!(
            (mount.url.as_str(), mount.dir.as_path()),
            ("/files", Path::new("pub"))
        );
        assert_eq!(mount.index, "home.html");
        assert_eq!(
            good("", &[], &[("driver_cpus", "auto")])
                .config
                .listen
                .driver_cpus,
            [0, 1, 2, 3]
        );
        assert_eq!(
            good("", &[], &[("defer_accept", "1500ms")])
                .config
                .listen
                .defer_accept_secs,
            2
        );
        let log = good(
            "",
            &[],
            &[("access_log", "a.log"), ("access_log_format", "common")],
        )
        .config
        .logs
        .access;
        let [log] = &log[..] else {
            panic!("{log:?}");
        };
        assert_eq!(
            (&log.target, &log.form),
            (&LogTarget::File("a.log".into()), &LogForm::Common)
        );
    }
}

mod precedence {
    use super::*;

    #[test]
    fn rises_from_defaults_over_toml_and_environment_to_flags() {
        let toml = "accept_batch = 2";
        let env = [("MILEPOST_ACCEPT_BATCH", "3")];
        let flags = [("accept_batch", "4")];
        assert_eq!(good("", &[], &[]).config.listen.accept_batch, 32);
        assert_eq!(good(toml, &[], &[]).config.listen.accept_batch, 2);
        assert_eq!(good(toml, &env, &[]).config.listen.accept_batch, 3);
        assert_eq!(good(toml, &env, &flags).config.listen.accept_batch, 4);
    }

    #[test]
    fn replaces_lists_as_a_whole() {
        let toml = "bind = [':1', ':2']\n[static]\n'/a' = 'x'\n'/b' = 'y'";
        let env = [("MILEPOST_BIND", ":3, :4,:5"), ("MILEPOST_STATIC", "/c=z")];
        assert_eq!(good(toml, &[], &[]).config.binds.len(), 2);
        assert_eq!(good(toml, &[], &[]).config.statics.len(), 2);
        assert_eq!(good(toml, &env, &[]).config.binds.len(), 3);
        assert_eq!(good(toml, &env, &[]).config.statics[0].url, "/c");
        let flags = [("bind", "unix:a.sock"), ("bind", "8000")];
        assert_eq!(
            good(toml, &env, &flags).config.binds[0],
            Bind::Unix("a.sock".into())
        );
        assert_eq!(good(toml, &env, &flags).config.binds.len(), 2);
    }

    #[test]
    fn lets_the_last_flag_count_and_an_empty_variable_not() {
        assert_eq!(
            good("", &[], &[("backlog", "5"), ("backlog", "6")])
                .config
                .listen
                .backlog,
            6
        );
        assert_eq!(
            good("backlog = 5", &[("MILEPOST_BACKLOG", "")], &[])
                .config
                .listen
                .backlog,
            5
        );
    }

    #[test]
    fn takes_toml_in_its_own_forms() {
        let toml = "threads = 6\nidle_timeout = 1.5\nbody_bytes_max = 1_000\nnodelay = false\ndriver_cpus = [3, 0]\n\
                    bind = 'localhost:80'\nstatic = ['/a=b']\nmax_connections = 70\n";
        let config = good(toml, &[], &[]).config;
        assert_eq!((config.pool.threads_min, config.pool.threads_max), (6, 6));
        assert_eq!(config.timeouts.idle.0, 1_500_000_000);
        assert_eq!(config.limits.body_bytes_max, 1000);
        assert!(!config.listen.nodelay);
        assert_eq!(config.listen.driver_cpus, [3, 0]);
        assert_eq!(config.binds, [Bind::Tcp(vec![([127, 0, 0, 1], 80).into()])]);
        assert_eq!(config.listen.connections_max, 70);
    }

    #[test]
    fn leaves_variables_of_others_alone() {
        let env = [
            ("MILEPOST_PORT", "tcp://10.0.0.1:80"),
            ("MILEPOST_PORT_80_TCP_ADDR", "10.0.0.1"),
            ("MILEPOST_SERVICE_HOST", "10.0.0.1"),
            ("MILEPOST_CACHE", "/tmp"),
            ("MILEPOST_HANDOVER", "3"),
            ("HOME", "/root"),
        ];
        good("", &env, &[]);
    }
}

mod said {
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
        assert!(found("backlog = [1]").contains(
            "m.toml:2: `backlog`: expected a count from 1 to 65535, found `a TOML array`"
        ));
        assert!(found("[backlog]\nx = 1").contains("m.toml:2: `backlog`: expected a count"));
        assert!(
            found("[static]\n'/a' = [1]")
                .contains("m.toml:3: `static.\"/a\"`: expected /URL=DIR (as `/static=./static`), found `a TOML array`")
        );
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
}

mod machine {
    use super::*;

    #[test]
    fn puts_the_longest_url_first() {
        let flags = [
            ("static", "/a=x"),
            ("static", "/a/b=y"),
            ("static", "/longer=z"),
        ];
        let urls = good("", &[], &flags)
            .config
            .statics
            .into_iter()
            .map(|mount| mount.url);
        assert_eq!(urls.collect::<Vec<_>>(), ["/longer", "/a/b", "/a"]);
    }

    #[test]
    fn cuts_connections_to_the_open_files_and_says_so() {
        let limited = |open_files_max| {
            on_machine(|machine| {
                let machine = Machine {
                    open_files_max,
                    cpus: machine.cpus.clone(),
                    current_dir: "/".into(),
                    ..*machine
                };
                load(&sources("app = 'a:b'", &[], &[]), &machine).expect("a good configuration")
            })
        };
        let loaded = limited(4096);
        assert_eq!(loaded.config.listen.connections_max, 4096 - 128 - 2 * 300);
        assert_eq!(loaded.notes.len(), 1);
        assert!(
            loaded.notes[0].contains("instead of 10000: at most 4096 files"),
            "{:?}",
            loaded.notes
        );
        assert_eq!(limited(256).config.listen.connections_max, 128);
        assert!(limited(20_000).notes.is_empty());
    }

    #[test]
    fn chooses_half_of_the_cores_as_drivers() {
        let drivers = |cores| {
            on_machine(|machine| {
                let machine = Machine {
                    cores,
                    cpus: machine.cpus.clone(),
                    current_dir: "/".into(),
                    ..*machine
                };
                load(&sources("app = 'a:b'", &[], &[]), &machine)
                    .map(|loaded| loaded.config.listen.drivers)
            })
        };
        let table = [(1, 1), (2, 1), (4, 2), (12, 6), (64, 8)];
        for (cores, expect) in table {
            assert_eq!(drivers(cores).ok(), Some(expect));
        }
    }

    #[test]
    fn changes_folder_even_when_the_rest_is_bad() {
        let sources = sources("chdir = '/x'\nnonsense = 1", &[], &[]);
        assert_eq!(super::super::chdir(&sources), Some(PathBuf::from("/x")));
    }
}
