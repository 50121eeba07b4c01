//! The server that is tuned: a child of this command in a folder of its own, on a unix socket there.
//!
//! Takes what is served and a size, gives a server that answers. Ends it, and removes the folder. Never speaks to
//! another server.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ipc::HANDOVER;
use loadgen::plan::Request;
use os::lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::file::ServedApp;
use crate::bench::Stop;
use crate::environment::cause;
use crate::host::AppHost;
use crate::message::Message;

/// How long a server may need to answer its first request.
const START_MAX: Duration = Duration::from_secs(120);
/// How long it may need to end.
const END_MAX: Duration = Duration::from_secs(30);
/// Longest wait for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How often a wait looks whether somebody has asked for the end.
const STOP_LOOK: Duration = Duration::from_millis(100);
/// How long the folder of a server that was killed may take to be removed.
const AT_ONCE: Duration = Duration::from_secs(2);
/// What is kept of the server's own messages.
const OUTPUT_BYTES_MAX: usize = 8 << 10;

/// A folder of this command alone, and the server that uses it.
#[derive(Debug)]
pub(super) struct WorkFolder {
    path: PathBuf,
    /// The process group of the server that runs.
    group: ServerGroup,
}

/// The process group of a server, as long as it has processes that were not waited for.
type ServerGroup = Arc<Mutex<Option<Pid>>>;

impl WorkFolder {
    /// # Errors
    /// It cannot be made.
    pub(super) fn new() -> Result<WorkFolder, Message> {
        let name = format!("milepost-tune-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // Of this user alone, and never one that was there before.
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| Message::new(&format!("`{}`", path.display()), cause(&error)))?;
        let group = ServerGroup::default();
        Ok(WorkFolder { path, group })
    }

    /// What ends the server and removes the folder at once, from another thread.
    pub(super) fn ending(&self) -> impl FnOnce() + Send + 'static {
        let (path, group) = (self.path.clone(), Arc::clone(&self.group));
        move || {
            // Held to the end of the program: no further server begins.
            let group = lock(&group);
            if let Some(group) = *group {
                let _ = kill_process_group(group, Signal::KILL);
            }
            // A process that is about to end may still make a file.
            let began = Instant::now();
            while fs::remove_dir_all(&path).is_err() && path.exists() && began.elapsed() < AT_ONCE {
                thread::sleep(Duration::from_millis(5));
            }
            std::mem::forget(group);
        }
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // What cannot be removed is in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// How large a server is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StartSize {
    pub(super) processes: usize,
    /// `None`: an event loop has no number of them; of threads, the default.
    pub(super) threads: Option<usize>,
}

/// A server that runs. It ends with this value.
#[derive(Debug)]
pub(super) struct OwnServer {
    child: Child,
    pub(super) socket: PathBuf,
    pub(super) access_log: PathBuf,
    output: PathBuf,
    group: ServerGroup,
    stop: Stop,
}

/// What a request was answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FirstAnswer(pub(super) u16);

impl OwnServer {
    /// Starts it and waits until it answers a request.
    ///
    /// # Errors
    /// It does not start: with what it says itself. Or it does not answer.
    pub(super) fn start(
        app: &ServedApp,
        size: StartSize,
        folder: &WorkFolder,
        host: Option<&dyn AppHost>,
        first: &Request,
        stop: &Stop,
    ) -> Result<OwnServer, Message> {
        let [socket, access_log, output] = ["socket", "access.log", "output"].map(|name| {
            let path = folder.file(name);
            // Of the server before.
            let _ = fs::remove_file(&path);
            path
        });
        let mut command = command(host);
        command.args(arguments(app, size, folder));
        for name in hidden_variables(std::env::vars_os().map(|(name, _)| name)) {
            command.env_remove(name);
        }
        let opened = File::create(&output).and_then(|file| Ok((file.try_clone()?, file)));
        let (errors, file) = opened.map_err(|error| fault(&error))?;
        // A group of its own: Ctrl-C is for this command, which ends the server in order, or all of it at once.
        command.process_group(0);
        let mut group = lock(&folder.group);
        let child = command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .spawn()
            .map_err(|error| fault(&error))?;
        *group = Some(Pid::from_child(&child));
        drop(group);
        let mut server = OwnServer {
            child,
            socket,
            access_log,
            output,
            group: Arc::clone(&folder.group),
            stop: stop.clone(),
        };
        server.wait_until_ready(app, first)?;
        Ok(server)
    }

    /// The supervisor.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How long its threads were ready to run and had no processor, in seconds; 0 where the kernel does not tell.
    pub(super) fn ready_s(&self) -> f64 {
        ready_ns(self.pid()) as f64 / 1e9
    }

    /// What a request is answered with, whose bytes say that the connection ends with it.
    ///
    /// # Errors
    /// There is no answer.
    pub(super) fn ask(&self, request: &[u8]) -> io::Result<FirstAnswer> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        stream.write_all(request)?;
        self.await_answer(&stream)?;
        let mut bytes = [0; 12];
        stream.read_exact(&mut bytes)?;
        let status = std::str::from_utf8(&bytes[9..]).ok();
        let status = status.and_then(|text| text.parse().ok());
        // The rest is read, so that the server does not log a client that left.
        let _ = io::copy(&mut stream.take(64 << 20), &mut io::sink());
        status
            .map(FirstAnswer)
            .ok_or_else(|| io::Error::other("the answer has no status"))
    }

    /// Until the answer begins, or nobody wants it any more.
    fn await_answer(&self, stream: &UnixStream) -> io::Result<()> {
        let began = Instant::now();
        while !self.stop.is_asked_for() && began.elapsed() < ANSWER_MAX {
            let mut polled = [PollFd::new(stream, PollFlags::IN)];
            let step = Timespec::try_from(STOP_LOOK).map_err(io::Error::other)?;
            match poll(&mut polled, Some(&step)) {
                Ok(1..) => return stream.set_read_timeout(Some(ANSWER_MAX)),
                Ok(0) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Whether it has ended. Its group is nobody's then.
    fn has_ended(&mut self) -> bool {
        let mut group = lock(&self.group);
        let has_ended = matches!(self.child.try_wait(), Ok(Some(_)));
        if has_ended {
            *group = None;
        }
        has_ended
    }

    /// Ends it, so that its log is whole.
    pub(super) fn end(mut self) {
        self.stop();
    }

    fn wait_until_ready(&mut self, app: &ServedApp, first: &Request) -> Result<(), Message> {
        let began = Instant::now();
        loop {
            if self.has_ended() {
                let text = "the server does not start";
                return Err(Message::new(&app.name(), text).with_detail(self.said(app)));
            }
            match self.ask(&first.last_bytes) {
                Ok(_) => return Ok(()),
                Err(error) if began.elapsed() > START_MAX || self.stop.is_asked_for() => {
                    let text = format!(
                        "the server does not answer `{}` within {} s: {}",
                        first.name,
                        START_MAX.as_secs(),
                        cause(&error)
                    );
                    return Err(Message::new(&app.name(), text).with_detail(self.said(app)));
                }
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// The end of what the server has said, by the names that the user knows.
    pub(super) fn said(&self, app: &ServedApp) -> String {
        let bytes = fs::read(&self.output).unwrap_or_default();
        let from = bytes.len().saturating_sub(OUTPUT_BYTES_MAX);
        let text = String::from_utf8_lossy(&bytes[from..]).into_owned();
        let mut text = app.with_own_names(&text);
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text
    }

    fn stop(&mut self) {
        if self.has_ended() {
            return;
        }
        let pid = Pid::from_child(&self.child);
        // It is a child that was not waited for: the id is nobody else's.
        let _ = kill_process(pid, Signal::TERM);
        let began = Instant::now();
        while began.elapsed() < END_MAX {
            if self.has_ended() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let mut group = lock(&self.group);
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = self.child.wait();
        *group = None;
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Of a process and its children.
fn ready_ns(process: u32) -> u64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return 0;
    };
    let of_thread = |folder: PathBuf| {
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let own = read("schedstat");
        let own = own
            .split_whitespace()
            .nth(1)
            .and_then(|text| text.parse().ok());
        let children = read("children");
        let children = children.split_whitespace().filter_map(|id| id.parse().ok());
        own.unwrap_or(0) + children.map(ready_ns).sum::<u64>()
    };
    threads
        .flatten()
        .map(|thread| of_thread(thread.path()))
        .sum()
}

fn fault(error: &io::Error) -> Message {
    Message::new("the server", format!("cannot be started: {}", cause(error)))
}

/// The program that this command is of, without its arguments.
fn command(host: Option<&dyn AppHost>) -> Command {
    let words = match host {
        // What stands before the name of this command is how Python runs it.
        Some(host) => program(host.command()),
        None => Vec::new(),
    };
    match words.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest);
            command
        }
        None => Command::new(std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into())),
    }
}

fn program(words: Vec<OsString>) -> Vec<OsString> {
    let is_other = |word: &OsString| word != OsStr::new("tune");
    words.into_iter().take_while(is_other).collect()
}

fn arguments(app: &ServedApp, size: StartSize, folder: &WorkFolder) -> Vec<OsString> {
    let with = |flag: &str, value: &dyn AsRef<OsStr>| {
        let mut word = OsString::from(format!("--{flag}="));
        word.push(value.as_ref());
        word
    };
    let of = |path: &Path, prefix: &str| {
        let mut word = OsString::from(prefix);
        word.push(path);
        word
    };
    let mut words = vec![OsString::from("serve")];
    words.extend(app.words());
    words.extend([
        with("bind", &of(&folder.file("socket"), "unix:")),
        with("access-log", &folder.file("access.log")),
        with("access-log-format", &"phases"),
        with("control", &"off"),
        // Requests that are still there when it ends say nothing more.
        with("drain-timeout", &"10s"),
        with("processes", &size.processes.to_string()),
    ]);
    words.extend(
        size.threads
            .map(|threads| with("threads", &threads.to_string())),
    );
    words
}

/// Variables that would make the server another one: an address, a handover, a socket of systemd.
fn hidden_variables(names: impl Iterator<Item = OsString>) -> Vec<OsString> {
    const OTHERS: [&str; 8] = [
        HANDOVER,
        "PORT",
        "WEB_CONCURRENCY",
        "GUNICORN_CMD_ARGS",
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
        "LISTEN_FDS",
        "LISTEN_PID",
    ];
    let is_hidden = |name: &OsString| {
        let Some(name) = name.to_str() else {
            return false;
        };
        let setting = name.strip_prefix("MILEPOST_").map(str::to_lowercase);
        OTHERS.contains(&name) || setting.is_some_and(|key| super::file::is_of_the_public(&key))
    };
    names.filter(is_hidden).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(words: &[OsString]) -> Vec<&str> {
        words.iter().filter_map(|word| word.to_str()).collect()
    }

    #[test]
    fn is_started_as_this_command_was() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let found = program(words("/usr/bin/python -X dev -m milepost tune shop:app /"));
        assert_eq!(
            texts(&found).join(" "),
            "/usr/bin/python -X dev -m milepost"
        );
    }

    #[test]
    fn listens_on_its_own_socket_alone() {
        let folder = WorkFolder::new().expect("a folder");
        let size = StartSize {
            processes: 2,
            threads: Some(8),
        };
        let app = ServedApp::App("shop:app".to_owned());
        let words = arguments(&app, size, &folder);
        let found = texts(&words).join(" ");
        let path = folder.file("socket");
        assert!(found.starts_with("serve shop:app --bind=unix:"), "{found}");
        assert!(found.contains(&path.display().to_string()));
        assert!(found.ends_with("--processes=2 --threads=8"), "{found}");
        let size = StartSize {
            threads: None,
            ..size
        };
        let words = arguments(&app, size, &folder);
        assert!(texts(&words).join(" ").ends_with("--processes=2"));
        let path = folder.path.clone();
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn takes_no_address_from_the_environment() {
        let names = [
            "PATH",
            "MILEPOST_BIND",
            "MILEPOST_QUEUE_TIMEOUT",
            "MILEPOST_ADMIN_BIND",
            "NOTIFY_SOCKET",
            "DJANGO_SETTINGS_MODULE",
        ];
        let found = hidden_variables(names.into_iter().map(OsString::from));
        let expect = ["MILEPOST_BIND", "MILEPOST_ADMIN_BIND", "NOTIFY_SOCKET"];
        assert_eq!(texts(&found), expect);
    }
}
