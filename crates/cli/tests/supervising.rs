//! The supervisor as a running process: what must neither stop it nor keep it from stopping.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// Only bounds how long a broken supervisor holds up the tests.
const DEADLINE: Timespec = Timespec {
    tv_sec: 60,
    tv_nsec: 0,
};

/// A server of a folder with two processes.
struct Server {
    child: Child,
    talk: BufReader<PipeReader>,
    folder: tempfile::TempDir,
}

impl Server {
    /// Started, and serving.
    fn start(stderr: &std::io::PipeWriter, talk: PipeReader, toml: &str) -> Server {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("pub")).unwrap();
        fs::write(folder.path().join("m.toml"), toml).unwrap();
        let line = "serve --config m.toml --control off --processes 2 --static /=pub --bind 127.0.0.1:0 --access-log log";
        let child = Command::new(env!("CARGO_BIN_EXE_milepost"))
            .args(line.split_whitespace())
            .current_dir(folder.path())
            .env_clear()
            .stdin(Stdio::null())
            .stderr(stderr.try_clone().unwrap())
            .spawn()
            .unwrap();
        let mut server = Server {
            child,
            talk: BufReader::new(talk),
            folder,
        };
        server.says(" listening on http://");
        server.says("  log ");
        server
    }

    /// Reads until it has said that.
    fn says(&mut self, what: &str) {
        let mut line = String::new();
        while !line.contains(what) {
            line.clear();
            assert!(self.talk.read_line(&mut line).unwrap() > 0, "{what}");
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// How it ends; `None` if it does not.
    fn ends(&mut self) -> Option<ExitStatus> {
        let pidfd = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()).unwrap();
        let mut watched = [PollFd::new(&pidfd, PollFlags::IN)];
        let is_over = poll(&mut watched, Some(&DEADLINE)).unwrap() > 0;
        is_over.then(|| self.child.wait().unwrap())
    }

    /// Hundredths of a second that it has computed for.
    fn ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        let mut fields = rest.split(' ').skip(11);
        let mut next = || fields.next().unwrap().parse::<u64>().unwrap();
        next() + next()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn stops_although_a_new_program_is_looked_at() {
    let (talk, stderr) = std::io::pipe().unwrap();
    let mut server = Server::start(&stderr, talk, "");
    server.signal(Signal::USR2);
    server.signal(Signal::TERM);
    assert!(server.ends().is_some_and(|status| status.success()));
}

#[test]
fn reloads_and_stops_although_nobody_reads_standard_error() {
    let (talk, mut stderr) = std::io::pipe().unwrap();
    let mut server = Server::start(&stderr, talk, "");
    let flags = fcntl_getfl(&stderr).unwrap();
    fcntl_setfl(stderr.as_fd(), flags | OFlags::NONBLOCK).unwrap();
    while stderr.write(&[b'\n'; 512]).is_ok() {}
    fcntl_setfl(stderr.as_fd(), flags).unwrap();
    server.signal(Signal::HUP);
    server.signal(Signal::TERM);
    assert!(server.ends().is_some_and(|status| status.success()));
}

#[test]
fn sleeps_when_a_reload_has_switched_heartbeats_and_bounds_off() {
    let (talk, stderr) = std::io::pipe().unwrap();
    let before = "heartbeat_timeout = \"1s\"\nprocess_requests_max = 9\n";
    let mut server = Server::start(&stderr, talk, before);
    let after = "heartbeat_timeout = \"off\"\n";
    fs::write(server.folder.path().join("m.toml"), after).unwrap();
    server.signal(Signal::HUP);
    server.says("generation 2 serves");
    // What was due every second or so is overdue after this.
    std::thread::sleep(Duration::from_millis(1500));
    let ticks = server.ticks();
    std::thread::sleep(Duration::from_millis(500));
    let computed = server.ticks() - ticks;
    assert!(computed < 20, "{computed} of 50");
}
