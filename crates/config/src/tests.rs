//! The configuration as a whole: every setting, precedence, faults with their places.

/// [`check_said`], with its cases as they stand.
macro_rules! said {
    { $cases:literal } => {
        super::check_said($cases)
    };
}

mod acme;
mod logs;
mod others;
mod pages;
mod pools;
mod processes;
mod proxies;
mod routes;
mod rules;
mod said;
mod shares;
mod table;
mod tls;
mod upstreams;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::failure::StartFault;
use super::options_table::{FlagForm, SETTINGS, known_flag, setting};
use super::typed::{Bind, Config, LogForm, LogTarget, PoolConfig, Tls, TlsFile, UnixSocket};
use super::{CertificateFault, FlagText, Loaded, Machine, Sources, TomlText, load};

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
    // `current` is a link to `v1`.
    let folder = |dir: &Path| match dir.ends_with("missing") {
        true => Err(io::Error::from_raw_os_error(2)),
        false => Ok(match dir.ends_with("current") {
            true => dir.with_file_name("v1"),
            false => dir.to_owned(),
        }),
    };
    let account = |user: &str, group: &str| match user == "missing" || group == "missing" {
        true => Err(StartFault::new(
            "cannot become user `missing`",
            "there is no such user",
        )),
        false => Ok(()),
    };
    let spooled_file = |dir: &Path, _: &str, _: &str| match dir.file_name().and_then(|n| n.to_str())
    {
        Some("closed") => Err(io::Error::from_raw_os_error(13)),
        Some("frozen") => Err(io::Error::from_raw_os_error(30)),
        _ => Ok(()),
    };
    let file = |file: &Path| match file.file_name().and_then(|name| name.to_str()) {
        Some("missing") => Err(io::Error::from_raw_os_error(2)),
        Some("folder") => Err(io::ErrorKind::IsADirectory.into()),
        Some("huge") => Ok((1 << 20) + 1),
        _ => Ok(1 << 20),
    };
    // A file that is called after a fault has it.
    let certificates = |tls: &Tls| {
        let faults = tls.identities.iter().enumerate().flat_map(|(index, one)| {
            let files = [(TlsFile::Cert, &one.cert), (TlsFile::Key, &one.key)];
            let missing = files
                .into_iter()
                .filter(|(_, path)| path.ends_with("missing"));
            missing.map(move |(setting, path)| CertificateFault {
                identity: index,
                setting,
                cause: format!("`{}`: no such file or directory", path.display()),
                hint: None,
            })
        });
        faults.collect()
    };
    f(&Machine {
        cores: 4,
        cpus: vec![0, 1, 2, 3],
        open_files_max: 1_000_000,
        current_dir: PathBuf::from("/srv"),
        has_terminal: false,
        resolve: &resolve,
        folder: &folder,
        account: &account,
        spooled_file: &spooled_file,
        file: &file,
        may_bind: &|port| port >= 1024,
        storage_dir: &|user| Some(format!("/state/{user}").into()),
        has_ipv6: true,
        certificate_file: &|acme, name| acme.storage.join(name),
        certificates: Some(&certificates),
    })
}

fn flag(key: &str, text: &str) -> FlagText {
    let key = known_flag(key).expect("a key of the table, or a flag of another server");
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
        gunicorn_flags: Vec::new(),
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
    let line = |fault: super::ConfigFault| match &fault.hint {
        Some(hint) => format!("{fault} > {}", hint.replace('\n', " | ")),
        None => fault.to_string(),
    };
    faults.into_iter().map(line).collect()
}

/// Values for a snapshot, a line each.
fn listed<T: std::fmt::Debug>(values: &[T]) -> String {
    values.iter().map(|value| format!("{value:?}\n")).collect()
}

/// Cases and what is wrong with each beside a good application: a flag and its fault in one line
/// (`--backlog=0 => expected ...`), or lines of a configuration file, behind its line 1, with their faults below.
#[track_caller]
fn check_said(cases: &str) {
    let indent = cases.lines().filter(|line| !line.trim().is_empty());
    let indent = indent
        .map(|line| line.len() - line.trim_start().len())
        .min();
    let lines = cases
        .lines()
        .filter_map(|line| line.get(indent.unwrap_or(0)..));
    let expect: Vec<&str> = lines.filter(|line| !line.trim().is_empty()).collect();
    let is_fault = |line: &str| {
        ["    m.toml:", "    configuration:"]
            .iter()
            .any(|at| line.starts_with(at))
    };
    let (mut found, mut toml) = (Vec::new(), Vec::new());
    for (index, line) in expect.iter().enumerate() {
        if let Some((flag, _)) = line.split_once(" => ").filter(|_| line.starts_with("--")) {
            found.push(format!("{flag} => {}", said_of_flag(flag)));
        } else if !is_fault(line) {
            toml.push(*line);
            found.push((*line).to_owned());
            if expect.get(index + 1).is_none_or(|next| is_fault(next)) {
                let text = format!("app = 'shop:app'\n{}", toml.join("\n"));
                found.extend(
                    faults(&text, &[], &[])
                        .iter()
                        .map(|fault| format!("    {fault}")),
                );
                toml.clear();
            }
        }
    }
    assert_eq!(found.join("\n"), expect.join("\n"));
}

/// What is wrong with `--key=text`, without the name of the flag.
fn said_of_flag(flag: &str) -> String {
    let (flag, text) = flag.split_once('=').expect("a flag with a value");
    let key = flag.trim_start_matches('-').replace('-', "_");
    let text = text.replace("\\r\\n", "\r\n");
    let found = faults("app = 'shop:app'", &[], &[(&key, &text)]).join("\n");
    let name = setting(&key).expect("a key of the table").flag_said();
    let said = found.strip_prefix(&format!("`{name}`: "));
    said.unwrap_or(&found).to_owned()
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
            Bind::Unix(UnixSocket {
                path: "a.sock".into(),
                mode: 0o777,
                group: None,
            })
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
        assert_eq!(
            (config.pools[0].threads_min, config.pools[0].threads_max),
            (6, 6)
        );
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
