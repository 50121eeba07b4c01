//! `milepost reopen` as its users see it: who is told and who is not. How a
//! server is named and found is tested in `control`, for all commands.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use tempfile::TempDir;

/// A program that looks like a server: it says when it is told something.
struct Fake {
    child: Child,
    out: BufReader<ChildStdout>,
}

const WAITS: &str = "trap 'echo told' USR1\necho ready\nread line\n";
const DOES_NOT_WAIT: &str = "echo ready\nread line\n";

impl Fake {
    fn new(folder: &Path, name: &str, script: &str) -> Self {
        let path = folder.join(name);
        fs::write(&path, script).unwrap();
        let mut child = Command::new("/bin/sh")
            .args([path.as_os_str(), "serve".as_ref()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        assert_eq!(line(&mut out), "ready\n");
        Self { child, out }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// What it said until it ended, which it does when nobody writes to it.
    fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.out.read_to_string(&mut said).unwrap();
        self.child.wait().unwrap();
        said
    }
}

fn line(out: &mut impl BufRead) -> String {
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    line
}

fn milepost(folder: &Path, words: &str, environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_milepost"));
    command
        .args(words.split_whitespace())
        .current_dir(folder)
        .env_clear()
        .envs(environment.iter().copied())
        .stdin(Stdio::null());
    command
}

fn reopen(folder: &Path, words: &str, environment: &[(&str, &str)]) -> Output {
    let mut command = milepost(folder, &format!("reopen {words}"), environment);
    command.output().unwrap()
}

fn place() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("pub")).unwrap();
    folder
}

#[test]
fn tells_the_server_that_is_named_in_any_way() {
    let place = place();
    let folder = place.path();
    fs::write(folder.join("m.toml"), "chdir = 'pub'\npid_file = 'm.pid'\n").unwrap();
    fs::write(
        folder.join("bad.toml"),
        "pid_file = 'm.pid'\nnonsense = 1\n",
    )
    .unwrap();
    let ways: [(&str, &[(&str, &str)]); 6] = [
        ("--pid PID", &[]),
        ("--pid-file m.pid", &[]),
        ("-c m.toml", &[]),
        // What has nothing to do with it is for `check` to say.
        ("-c bad.toml", &[]),
        ("", &[("MILEPOST_CONFIG", "m.toml")]),
        ("", &[("MILEPOST_PID_FILE", "m.pid")]),
    ];
    for (words, environment) in ways {
        let server = Fake::new(folder, "milepost", WAITS);
        fs::write(folder.join("m.pid"), format!("{}\n", server.pid())).unwrap();
        fs::write(folder.join("pub/m.pid"), server.pid()).unwrap();
        let words = words.replace("PID", &server.pid());
        let said = reopen(folder, &words, environment);
        let silent = said.stdout.is_empty() && said.stderr.is_empty();
        assert!(said.status.success() && silent, "{words}: {said:?}");
        assert_eq!(server.end(), "told\n", "{words}");
    }
}

#[test]
fn does_not_end_a_server_that_does_not_wait_for_the_signal() {
    let place = place();
    let server = Fake::new(place.path(), "milepost", DOES_NOT_WAIT);
    let pid = server.pid();
    let said = reopen(place.path(), &format!("--pid {pid}"), &[]);
    let expect = format!(
        "milepost: process {pid}: it does not wait for SIGUSR1, which would end it\n\
         hint: it is about to start or to end: its files are opened anew with the next start\n"
    );
    assert_eq!(String::from_utf8(said.stderr).unwrap(), expect);
    assert_eq!((said.status.code(), said.stdout), (Some(2), Vec::new()));
    assert_eq!(server.end(), "");
}
