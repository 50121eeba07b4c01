//! The plain binary as its users see it: help texts, messages and exit codes, in a fresh folder with an
//! empty environment.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// What one run said.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    data: String,
    talk: String,
}

struct Place {
    folder: TempDir,
    environment: Vec<(&'static str, String)>,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("pub")).unwrap();
        Place {
            folder,
            environment: Vec::new(),
        }
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    fn file(self, name: &str, text: &str) -> Self {
        fs::write(self.folder.path().join(name), text).unwrap();
        self
    }

    fn run(&self, line: &str) -> Said {
        let output = Command::new(env!("CARGO_BIN_EXE_milepost"))
            .args(line.split_whitespace())
            .current_dir(self.folder.path())
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said {
            code: output.status.code(),
            data: text(output.stdout),
            talk: text(output.stderr),
        }
    }

    #[track_caller]
    fn check(&self, line: &str, code: i32, talk: &[&str]) {
        let said = self.run(line);
        assert_eq!(said.talk.lines().collect::<Vec<_>>(), talk, "{line}");
        assert_eq!((said.code, said.data.as_str()), (Some(code), ""), "{line}");
    }
}

/// Compares with a file beside this one; `MILEPOST_SNAPSHOTS=write` writes it instead.
#[track_caller]
fn check_snapshot(name: &str, text: &str) {
    let file: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/snapshots", name]
        .iter()
        .collect();
    if std::env::var_os("MILEPOST_SNAPSHOTS").is_some_and(|wish| wish == "write") {
        fs::write(&file, text).unwrap();
    }
    let expect = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        text == expect,
        "{name} differs; MILEPOST_SNAPSHOTS=write writes it anew:\n{text}"
    );
}

#[test]
fn shows_help_as_it_was_agreed() {
    let place = Place::new();
    let plain = place.run("");
    assert_eq!(plain.code, Some(0));
    check_snapshot("help.txt", &plain.data);
    check_snapshot("serve_help_short.txt", &place.run("serve -h").data);
    check_snapshot("serve_help.txt", &place.run("serve --help").data);
    for verb in ["stop", "reload", "reopen", "upgrade", "scale", "status"] {
        let said = place.run(&format!("{verb} --help"));
        check_snapshot(&format!("{verb}_help.txt"), &said.data);
    }
    check_snapshot("report_help.txt", &place.run("report --help").data);
    check_snapshot("bench_help.txt", &place.run("bench --help").data);
    check_snapshot("bench_help_short.txt", &place.run("bench -h").data);
}

#[test]
fn keeps_help_within_a_hundred_columns() {
    for line in [
        "--help",
        "serve -h",
        "check --help",
        "stop -h",
        "reload --help",
        "reopen -h",
        "upgrade --help",
        "scale -h",
        "status --help",
        "report --help",
        "bench --help",
        "bench -h",
        "help logs",
        "help pools",
    ] {
        let said = Place::new().run(line);
        assert_eq!((said.code, said.talk.as_str()), (Some(0), ""), "{line}");
        assert!(
            said.data.lines().all(|line| line.chars().count() <= 100),
            "{line}"
        );
    }
}

#[test]
fn prints_reference_and_completions_as_data() {
    let place = Place::new();
    assert!(
        place
            .run("reference")
            .data
            .contains("\n### `accept_batch`\n")
    );
    let bench = place.run("reference bench");
    assert!(bench.data.contains("\n### `connect_rate`\n"));
    for shell in ["bash", "zsh", "fish"] {
        let said = place.run(&format!("completions {shell}"));
        let flags = ["accept-batch", "connect-rate", "poisson"];
        assert!(
            said.code == Some(0) && flags.iter().all(|flag| said.data.contains(flag)),
            "{shell}"
        );
    }
}

#[test]
fn refuses_to_serve_with_every_fault_at_once() {
    let toml = "backlgo = 3\naccept_batch = 'many'\n[static]\n'/a' = 'missing'\n";
    let place = Place::new()
        .file("m.toml", toml)
        .with("MILEPOST_NODELAY", "maybe");
    let here = place.folder.path().canonicalize().unwrap();
    let hint = format!("hint: relative paths start at `{}`", here.display());
    place.check(
        "serve -c m.toml --threads 0",
        2,
        &[
            "milepost: m.toml:1: `backlgo`: unknown setting",
            "hint: did you mean `backlog`?",
            "milepost: m.toml:2: `accept_batch`: expected a count from 1 to 65536, found `many`",
            "milepost: `MILEPOST_NODELAY`: expected `true` or `false`, found `maybe`",
            "milepost: `--threads`: expected MIN:MAX or one number, from 1 to 4096, found `0`",
            "milepost: m.toml:4: `static.\"/a\"`: folder `missing` cannot be read: no such file or directory",
            &hint,
        ],
    );
}

#[test]
fn refuses_a_load_with_every_fault_at_once() {
    Place::new().check(
        "bench -c none --bad-clients 5:sleeps --json pub --html gone/a.html --repeat 0 --seed 1 ftp://a/",
        2,
        &[
            "milepost: `--json`: `pub` cannot be written: it is a folder",
            "milepost: `--html`: `gone/a.html` cannot be written: its folder is not there",
            "milepost: `--repeat`: expected a count from 1 to 10000, found `0`",
            "milepost: `ftp://a/`: `ftp` is not spoken here",
            "hint: http and https are; `--unix PATH` names a unix socket",
            "milepost: `--connections`: expected a count from 1 to 4000000, found `none`",
            "milepost: `--seed`: constant arrivals have none",
            "hint: `--arrivals poisson` has gaps that come from a seed",
            "milepost: `--bad-clients`: expected N:WHAT, where WHAT is never-reads, reads-at=SIZE, trickles=TIME, idle, half-closes or resets=TIME, and may be followed by :receive-buffer=SIZE, found `5:sleeps`",
        ],
    );
}

#[test]
fn loads_nobody_else_s_server_without_being_told_to() {
    let place = Place::new();
    let hint =
        "hint: a load may take a server away from others: `--i-own-this-target` if it is yours";
    for (line, host) in [
        ("bench http://8.8.8.8/", "8.8.8.8"),
        ("bench -n 1 http://[::ffff:8.8.8.8]:81/", "::ffff:8.8.8.8"),
    ] {
        let said = format!("milepost: `{host}`: is neither loopback nor a private or test address");
        place.check(line, 2, &[&said, hint]);
    }
    place.check(
        "bench",
        2,
        &[
            "milepost: `URL`: is missing",
            "hint: `milepost bench http://127.0.0.1:8000/`",
        ],
    );
}

#[test]
fn reads_what_a_load_names() {
    let log = "1.2.3.4 - - [21/Nov/2026:12:00:00 +0000] \"POST /a HTTP/1.1\" 200 5\nnonsense\n";
    let place = Place::new()
        .file("log", log)
        .file("mix.toml", "[[request]]\nweight = 2\n");
    place.check(
        "bench --replay log http://127.0.0.1/",
        2,
        &[
            "milepost: `log`: 1 of 2 lines are no requests and are left out; the first: log:2",
            "milepost: `--replay`: requests that may change something: 1 POST",
            "hint: `--replay-methods all` sends them with the body of `--body`, or an empty one",
        ],
    );
    place.check(
        "bench --requests-file mix.toml http://127.0.0.1/",
        2,
        &["milepost: mix.toml:1: `target`: is missing"],
    );
    place.check(
        "bench --admin-socket none http://127.0.0.1/",
        2,
        &[
            "milepost: control socket `none`: it is not there",
            "hint: the server that makes it (`control`) does not run",
        ],
    );
}

#[test]
fn says_no_when_the_configuration_is_bad() {
    let place = Place::new();
    place.check(
        "check shop:app --static /a=pub --workers 600",
        1,
        &[
            "milepost: `--processes`: expected a count from 1 to 512, or `auto`, found `600`",
            "milepost: `shop:app`: this binary has no Python",
            "hint: install the wheel (`pip install milepost`), or serve files with `--static`",
            "milepost: check: 2 faults",
        ],
    );
}

#[test]
fn says_yes_when_the_configuration_is_good() {
    let place = Place::new()
        .file("m.toml", "[static]\n'/' = 'pub'\n")
        .with("MILEPOST_CONFIG", "m.toml");
    let said = place.run("check --access-log log");
    assert_eq!((said.code, said.talk.as_str()), (Some(0), ""));
    assert_eq!(
        said.data,
        "configuration is good\n  files    / from pub\n  log      log (phases)\n"
    );
    let said = place.run("check --access-log log --access-log - --error-log e.log");
    assert!(
        said.data
            .ends_with("  log      log (phases)\n  log      - (phases)\n  errors   e.log\n"),
        "{}",
        said.data
    );
    // Nothing was opened, nothing was written.
    assert!(!place.folder.path().join("log").exists());
}

#[test]
fn changes_folder_before_it_looks_at_paths() {
    let place = Place::new().file("m.toml", "chdir = 'pub'\nstatic = ['/=inner']\n");
    assert_eq!(place.run("check -c m.toml").code, Some(1));
    fs::create_dir(place.folder.path().join("pub/inner")).unwrap();
    assert_eq!(place.run("check -c m.toml").code, Some(0));
    place.check(
        "check --static /=. --chdir missing",
        2,
        &[
            "milepost: `chdir`: cannot change to `missing`: no such file or directory",
            "hint: it must be a folder that this user may enter",
        ],
    );
}

#[test]
fn says_what_is_wrong_with_the_file_itself() {
    let place = Place::new();
    place.check(
        "serve -c missing.toml",
        2,
        &[
            "milepost: missing.toml: the configuration file cannot be read: no such file or directory",
            &format!("hint: relative paths start at `{}`", place.folder.path().display()),
        ],
    );
    fs::write(
        place.folder.path().join("bad.toml"),
        b"backlog = 1\n# \xff\n",
    )
    .unwrap();
    place.check(
        "serve -c bad.toml",
        2,
        &["milepost: bad.toml:2: not TOML: the text is not UTF-8"],
    );
    fs::write(place.folder.path().join("gunicorn.conf.py"), "import os\n").unwrap();
    let said = place.run("serve -c gunicorn.conf.py shop:app");
    let hint = "\nhint: `milepost convert gunicorn.conf.py` writes a milepost.toml of gunicorn's configuration\n";
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(
        said.talk
            .contains("gunicorn.conf.py:1: not TOML: this is a Python file"),
        "{said:?}"
    );
    assert!(said.talk.ends_with(hint), "{said:?}");
}

#[test]
fn refuses_a_folder_that_takes_no_bodies() {
    let place = Place::new().file("m.toml", "app = 'shop:app'\nspool_dir = '/proc'\n");
    for (verb, code) in [("check", 1), ("serve", 2)] {
        let said = place.run(&format!("{verb} -c m.toml"));
        let expect =
            "milepost: m.toml:2: `spool_dir`: folder `/proc`, for large bodies, takes no files: ";
        assert_eq!(said.code, Some(code), "{said:?}");
        assert!(said.talk.starts_with(expect), "{said:?}");
    }
}

#[test]
fn looks_at_the_files_of_error_pages() {
    let pages = "error_page = [{ status = 404, file = '404.html' }, { status = 403, file = 'pub' },\n\
                 { status = '5xx', file = 'no.html' }]\n";
    let place = Place::new()
        .file("404.html", "<h1>gone</h1>")
        .file("m.toml", pages);
    let here = place.folder.path().canonicalize().unwrap();
    let here = here.display();
    place.check(
        "check --static /=pub -c m.toml",
        1,
        &[
            "milepost: m.toml:1: `error_page`: file `pub` cannot be read: is a directory",
            "hint: name the file, not its folder",
            "milepost: m.toml:2: `error_page`: file `no.html` cannot be read: no such file or directory",
            &format!("hint: relative paths start at `{here}`"),
            "milepost: check: 2 faults",
        ],
    );
}

#[test]
fn explains_topics_and_commands() {
    let place = Place::new();
    for topic in ["redirects", "timeouts"] {
        let said = place.run(&format!("help {topic}"));
        assert_eq!(said.code, Some(0), "{said:?}");
        check_snapshot(&format!("help_{topic}.txt"), &said.data);
    }
    assert_eq!(place.run("help serve").data, place.run("serve --help").data);
    assert_eq!(place.run("help").data, place.run("").data);
    place.check(
        "help timeout",
        2,
        &[
            "milepost: `timeout`: unknown topic",
            "hint: did you mean `milepost help timeouts`?",
        ],
    );
    let manual = place.run("reference man").data;
    assert!(manual.contains(".TH milepost"), "{manual}");
}

#[test]
fn explains_a_setting_by_any_of_its_names() {
    let place = Place::new();
    let begins = |word: &str, expect: &str| {
        let said = place.run(&format!("help {word}"));
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.data.starts_with(expect), "{said:?}");
    };
    begins("threads", "--threads MIN:MAX  (MILEPOST_THREADS)\n");
    begins("--threads", "--threads MIN:MAX  (MILEPOST_THREADS)\n");
    begins("accept-batch", "--accept-batch ");
    begins("workers", "--processes ");
    begins("static", "--static ");
    begins("factory", "--factory[=BOOL]  (MILEPOST_FACTORY)\n");
    begins("app", "APP  (MILEPOST_APP)\n");
    begins("redirect", "[[redirect]]  (in the configuration file)\n");
    let said = place.run("help thread");
    assert_eq!(
        said.talk,
        "milepost: `thread`: unknown topic\nhint: did you mean `milepost help threads`?\n"
    );
}

#[test]
fn says_what_a_boolean_flag_takes() {
    let place = Place::new();
    for line in ["serve a:b --factory true", "serve --factory true a:b"] {
        place.check(
            line,
            2,
            &[
                "milepost: `true`: one argument too many",
                "hint: write `--factory` or `--factory=true`",
            ],
        );
    }
    place.check(
        "check --reload false a:b",
        2,
        &[
            "milepost: `false`: one argument too many",
            "hint: write `--reload=false`",
        ],
    );
}

#[test]
fn names_the_command_for_a_module_of_the_folder() {
    let place = Place::new().file("shop.py", "");
    place.check(
        "shop",
        2,
        &[
            "milepost: `shop`: unknown command",
            "hint: `milepost serve shop` serves the module `shop`",
        ],
    );
}

#[test]
fn shows_the_table_in_the_place_of_a_flag_that_was() {
    Place::new().check(
        "serve --redirect /a=/b --static /=pub",
        2,
        &[
            "milepost: `--redirect`: unknown flag",
            "hint: it stands in the configuration file (`--config`), as a table:",
            "[[redirect]]",
            "from = \"/old/*\"",
            "to = \"/new/*\"",
            "status = 301",
        ],
    );
}
