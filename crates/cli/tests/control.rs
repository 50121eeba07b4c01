//! Commands as their users see them, with a control socket that this test answers.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Instant;

use config::failure::Failure;
use config::typed;
use rustix::event::{PollFd, Timespec, poll};
use supervisor::Overrides;
use supervisor::control::Control;
use supervisor::control::messages::{CommandKind, Outcome, Request};
use supervisor::control::place::Who;
use supervisor::control::status::{ProcessStatus, Status};
use tempfile::TempDir;

/// A user's runtime folder, and a working folder with a configuration in it.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("pub")).unwrap();
        fs::write(folder.path().join("m.toml"), "backlog = 7\n").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        Place(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A supervisor's socket; none of this user's real ones are in the way.
    fn open(&self, wish: &typed::ControlConfig, config_file: Option<&str>) -> Control {
        let uid = rustix::process::geteuid().as_raw();
        let who = Who {
            uid,
            runtime_dir: Some(self.0.path().to_owned()),
        };
        let config_file = config_file.map(|name| self.path(name));
        let opened = Control::open(wish, config_file.as_deref(), &who, &[uid]);
        opened.unwrap().0.unwrap()
    }

    fn run(&self, words: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_milepost"));
        command
            .args(words.split_whitespace())
            .current_dir(self.0.path())
            .env_clear()
            .env("XDG_RUNTIME_DIR", self.0.path())
            .stdin(Stdio::null());
        command.output().unwrap()
    }

    /// Runs a command, and answers what it asks.
    fn run_with(&self, words: &str, control: &mut Control, outcome: &Outcome) -> (Output, Request) {
        thread::scope(|scope| {
            let running = scope.spawn(|| self.run(words));
            let (client, request) = loop {
                if let Some(request) = turn(control) {
                    break request;
                }
            };
            control.done(client, outcome, Instant::now());
            // What did not leave at once leaves when there is room.
            while control.fds().len() > 1 {
                turn(control);
            }
            (running.join().unwrap(), request)
        })
    }
}

fn turn(control: &mut Control) -> Option<(supervisor::control::ClientId, Request)> {
    let asked = control.fds();
    let mut fds: Vec<PollFd<'_>> = asked
        .iter()
        .map(|(fd, interest)| PollFd::from_borrowed_fd(*fd, *interest))
        .collect();
    let limit = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    assert_ne!(poll(&mut fds, Some(&limit)).unwrap(), 0, "nothing came");
    control.accept_and_read(Instant::now()).pop()
}

#[track_caller]
fn check(said: &Output, code: i32, data: &str, talk: &str) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    assert_eq!(text(&said.stderr), talk);
    assert_eq!(text(&said.stdout), data);
    assert_eq!(said.status.code(), Some(code));
}

#[test]
fn asks_the_server_that_is_named_in_any_way() {
    let place = Place::new();
    fs::create_dir(place.path("sub")).unwrap();
    fs::write(place.path("pid.toml"), "pid_file = 'm.pid'\n").unwrap();
    fs::write(place.path("m.pid"), std::process::id().to_string()).unwrap();
    let mut control = place.open(&typed::ControlConfig::Auto, Some("m.toml"));
    let pid = std::process::id();
    let socket = control.path().display().to_string();
    let done = Outcome::Done(Some("generation 2 serves".to_owned()));
    for words in [
        "reload -c m.toml",
        "reload --config sub/../m.toml",
        &format!("reload --pid {pid}"),
        "reload --pid-file m.pid",
        "reload -c pid.toml",
        &format!("reload --control {socket}"),
    ] {
        let (said, request) = place.run_with(words, &mut control, &done);
        assert_eq!(request, Request::Reload, "{words}");
        check(&said, 0, "", "milepost: generation 2 serves\n");
    }
}

#[test]
fn finds_a_socket_that_was_named_by_its_configuration() {
    let place = Place::new();
    let named = typed::ControlConfig::At(place.path("c.sock"));
    let mut control = place.open(&named, Some("m.toml"));
    let done = Outcome::Done(None);
    let words = "scale -c m.toml --processes 3";
    let (said, request) = place.run_with(words, &mut control, &done);
    let scale = Request::Scale(Overrides {
        processes: Some(3),
        drivers: None,
    });
    assert_eq!(request, scale);
    check(&said, 0, "", "");
}

#[test]
fn asks_what_each_verb_says() {
    let place = Place::new();
    let mut control = place.open(&typed::ControlConfig::Auto, Some("m.toml"));
    let said = "milepost: it is done\n";
    for (verb, request, talk) in [
        ("stop", Request::Stop, said),
        ("upgrade", Request::Upgrade, said),
        // It is run from timers.
        ("reopen", Request::Reopen, ""),
    ] {
        let words = format!("{verb} --config m.toml");
        let done = Outcome::Done(Some("it is done".to_owned()));
        let (said, asked) = place.run_with(&words, &mut control, &done);
        assert_eq!(asked, request);
        check(&said, 0, "", talk);
    }
}

#[test]
fn shows_the_status_as_table_and_as_json() {
    let place = Place::new();
    let mut control = place.open(&typed::ControlConfig::Auto, Some("m.toml"));
    let status = Status {
        pid: 7,
        version: "0.1.0".to_owned(),
        // More than a socket takes at once.
        processes: vec![ProcessStatus::default(); 3000],
        ..Status::default()
    };
    let outcome = Outcome::Status(Box::new(status.clone()));
    let (said, _) = place.run_with("status -c m.toml", &mut control, &outcome);
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(text.starts_with("milepost 0.1.0, process 7, up 0s\n"));
    assert_eq!(text.lines().count(), 3000 + 4);
    let (said, _) = place.run_with("status --json -c m.toml", &mut control, &outcome);
    let read: Status = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(read, status);
}

#[test]
fn says_why_the_answer_is_no() {
    let place = Place::new();
    let mut control = place.open(&typed::ControlConfig::Auto, Some("m.toml"));
    let failure = Failure {
        message: "`shop:app`: the module raised; generation 1 goes on".to_owned(),
        hint: Some("see the traceback above".to_owned()),
        detail: Some("Traceback (most recent call last):\nValueError: no\n".to_owned()),
    };
    let outcome = Outcome::Refused(CommandKind::No, failure);
    let (said, _) = place.run_with("reload -c m.toml", &mut control, &outcome);
    let talk = "\
                Traceback (most recent call last):\nValueError: no\n\
                milepost: `shop:app`: the module raised; generation 1 goes on\n\
                hint: see the traceback above\n";
    check(&said, 1, "", talk);
    let outcome = Outcome::Refused(
        CommandKind::CouldNot,
        Failure::new("another reload is under way"),
    );
    let (said, _) = place.run_with("reopen -c m.toml", &mut control, &outcome);
    check(&said, 2, "", "milepost: another reload is under way\n");
}

#[test]
fn says_that_nobody_is_there() {
    let place = Place::new();
    let config = place.path("m.toml");
    let hint = "hint: `milepost status` without `--config` looks for any; `--control FILE` and `--pid PID` name one of another user\n";
    let talk = format!(
        "milepost: `{}`: no server of this user runs with it\n{hint}",
        config.display()
    );
    check(&place.run("reload -c m.toml"), 1, "", &talk);
    check(
        &place.run("status --control c.sock"),
        1,
        "",
        "milepost: control socket `c.sock`: it is not there\n\
         hint: the server that makes it (`control`) does not run\n",
    );
    check(
        &place.run("stop --pid 2147483647"),
        1,
        "",
        "milepost: process 2147483647: it does not run\n",
    );
    let pid = std::process::id();
    let own = fs::read_to_string("/proc/self/comm").unwrap();
    let talk = format!(
        "milepost: process {pid}: it is `{}`, not a `milepost serve`\n",
        own.trim_end()
    );
    check(&place.run(&format!("upgrade --pid {pid}")), 1, "", &talk);
    check(
        &place.run("status --pid-file no.pid"),
        1,
        "",
        "milepost: pid file `no.pid`: no such file or directory\n\
         hint: the server that writes it (`pid_file`) does not run\n",
    );
    fs::write(place.path("empty.pid"), "").unwrap();
    let talk = "milepost: pid file `empty.pid`: it is empty\n";
    check(&place.run("reopen --pid-file empty.pid"), 1, "", talk);
}

#[test]
fn says_what_is_wrong_with_its_flags() {
    let place = Place::new();
    fs::write(place.path("bad.toml"), "pid_fil = 'm.pid'\n").unwrap();
    fs::write(place.path("data"), "hello").unwrap();
    for (words, talk) in [
        (
            "reopen -c bad.toml",
            "milepost: bad.toml:1: `pid_fil`: unknown setting\nhint: did you mean `pid_file`?\n",
        ),
        (
            "reopen --pid-file data",
            "milepost: pid file `data`: it holds something else than a process id\n",
        ),
        (
            "scale -c m.toml",
            "milepost: scale: no number is given\nhint: `--processes N`, `--drivers N`, or both; or \
             `--pool NAME --threads MIN:MAX`\n",
        ),
        (
            "scale --pool slow --threads 8:2",
            "milepost: `--threads`: expected MIN:MAX or one number, from 1 to 4096, found `8:2`\n\
             hint: the smaller number comes first: `2:8`\n",
        ),
        (
            "scale --pool slow",
            "milepost: `--pool`: no number of threads is given\nhint: `--pool slow --threads MIN:MAX`\n",
        ),
        (
            "scale --threads many",
            "milepost: `--threads`: expected MIN:MAX or one number, from 1 to 4096, found `many`\n",
        ),
        (
            "scale --threads 4 --drivers 2",
            "milepost: `--threads`: cannot stand beside `--drivers`\nhint: one after the other\n",
        ),
        (
            "scale --processes 0 --drivers many",
            "milepost: `--processes`: expected a count from 1 to 512, found `0`\n\
             milepost: `--drivers`: expected a count from 1 to 256, found `many`\n",
        ),
        (
            "scale --processes 600",
            "milepost: `--processes`: expected a count from 1 to 512, found `600`\n",
        ),
        (
            "reload --processes 3",
            "milepost: `--processes`: unknown flag\n\
             hint: it belongs to a command: `milepost serve --processes ...`\n",
        ),
        (
            "relod",
            "milepost: `relod`: unknown command\nhint: did you mean `milepost reload`?\n",
        ),
    ] {
        check(&place.run(words), 2, "", talk);
    }
    for pid in ["0", "-1", "me", "4294967296"] {
        let talk =
            format!("milepost: `--pid`: expected the process id of a server, found `{pid}`\n");
        check(&place.run(&format!("stop --pid={pid}")), 2, "", &talk);
    }
}

#[test]
fn finds_a_server_whose_configuration_has_become_bad() {
    let place = Place::new();
    let mut control = place.open(&typed::ControlConfig::Auto, Some("m.toml"));
    for text in [
        &b"backlgo = 7\n"[..],
        b"not toml",
        b"\xff",
        b"chdir = 'no'\n",
    ] {
        fs::write(place.path("m.toml"), text).unwrap();
        let (said, request) = place.run_with("stop -c m.toml", &mut control, &Outcome::Done(None));
        assert_eq!(request, Request::Stop);
        check(&said, 0, "", "");
    }
    fs::remove_file(place.path("m.toml")).unwrap();
    let (said, _) = place.run_with("stop -c m.toml", &mut control, &Outcome::Done(None));
    check(&said, 0, "", "");
    drop(control);
    let talk = format!(
        "milepost: m.toml: the configuration file cannot be read: no such file or directory\n\
         hint: relative paths start at `{}`\n",
        place.path("m.toml").parent().unwrap().display()
    );
    check(&place.run("stop -c m.toml"), 2, "", &talk);
}

#[test]
fn leaves_relative_names_to_the_folder_it_is_run_in() {
    let place = Place::new();
    let text = "chdir = 'pub'\npid_file = 'm.pid'\n";
    fs::write(place.path("m.toml"), text).unwrap();
    fs::write(place.path("pub/m.pid"), std::process::id().to_string()).unwrap();
    let mut control = place.open(&typed::ControlConfig::Auto, Some("m.toml"));
    let (said, _) = place.run_with("reload -c m.toml", &mut control, &Outcome::Done(None));
    check(&said, 0, "", "");
}
