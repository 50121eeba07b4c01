//! A server's turn: it is started in a folder of its own, waited for, and ended with nothing left.
//!
//! Takes a [`ServerSpec`], gives a running server and where it is. What it says is in `{folder}`, in
//! `server.log` and for each process beside it in `NAME.log`, until the folder is removed.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use measure::Nanos;

use super::place::{Folder, Place};
use super::process::{self, LOOK, Process, SUCCESS, Start};
use super::{Pins, Programs, Ready, ServerSpec, pins};
use crate::engine::Fault;

/// A command before the start has so much time.
const PREPARING_MAX: Duration = Duration::from_secs(60);
/// A server that was asked to end has so much time.
pub(super) const GRACE: Duration = Duration::from_secs(10);
/// A single try to reach a server; it may have bound its port and not listen yet.
const TRY_MAX: Duration = Duration::from_secs(1);
/// What an action calls the server.
pub(super) const SERVER: &str = "server";

/// A server that is ready.
#[derive(Debug)]
pub(super) struct Server<'a> {
    pub(super) spec: &'a ServerSpec,
    pub(super) place: Place,
    pins: &'a Pins,
    // They go before the folder does.
    process: Option<Process>,
    beside: Vec<(&'a str, Process)>,
    folder: Folder,
}

impl<'a> Server<'a> {
    /// Starts it and waits until it is ready, as long as `is_over` does not say otherwise.
    pub(super) fn start(
        spec: &'a ServerSpec,
        pins: &'a Pins,
        programs: &Programs,
        is_over: &mut dyn FnMut() -> bool,
    ) -> Result<Server<'a>, Fault> {
        let mut server = Server::in_folder(spec, pins, programs)?;
        if spec.start.is_empty() {
            return Ok(server);
        }
        server.folder.fill(spec, &server.place)?;
        for (index, command) in spec.prepare.iter().enumerate() {
            let log = format!("prepare-{index}.log");
            let done = server.run(command, &log, PREPARING_MAX, is_over);
            done.map_err(|cause| server.fault(&format!("cannot be prepared: {cause}")))?;
        }
        for beside in &spec.beside {
            let started = server.begin(&beside.start, &format!("{}.log", beside.name));
            let process = started.map_err(|cause| server.fault(&cause))?;
            server.beside.push((&beside.name, process));
        }
        let started = server.begin(&spec.start, "server.log");
        let process = started.map_err(|cause| server.fault(&cause))?;
        server.place.pid = Some(process.pid());
        server.process = Some(process);
        server.wait_for(&spec.ready, is_over)?;
        Ok(server)
    }

    /// Its folder and its port, and nothing that runs.
    pub(super) fn in_folder(
        spec: &'a ServerSpec,
        pins: &'a Pins,
        programs: &Programs,
    ) -> Result<Server<'a>, Fault> {
        let folder = Folder::new()?;
        let port = free_port().map_err(|error| Fault::new(format!("no port is free: {error}")))?;
        let place = Place {
            port,
            folder: folder.path().to_owned(),
            cpus: match pins.server.as_slice() {
                [] => pins::listed(&pins::available()),
                cpus => pins::listed(cpus),
            },
            programs: programs.clone(),
            pid: None,
        };
        Ok(Server {
            spec,
            place,
            pins,
            process: None,
            beside: Vec::new(),
            folder,
        })
    }

    /// Its first process; those that it starts are found by whoever watches it.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.process.iter().map(Process::pid).collect()
    }

    /// The process that an action means.
    pub(super) fn named(&self, whom: &str) -> Option<&Process> {
        if whom == SERVER {
            return self.process.as_ref();
        }
        let mut beside = self.beside.iter();
        beside
            .find(|(name, _)| *name == whom)
            .map(|(_, process)| process)
    }

    /// How it ended before it was to, and what it said; `None`: it runs.
    pub(super) fn ended(&self) -> Option<String> {
        let process = self.process.as_ref()?;
        let how = process.ended()?;
        Some(format!("ended by itself: {how}{}", process.last_lines()))
    }

    /// Runs a command of it to its end, where it runs, and gives the output.
    pub(super) fn run(
        &self,
        command: &[String],
        log: &str,
        time_max: Duration,
        is_over: &mut dyn FnMut() -> bool,
    ) -> Result<String, String> {
        self.with_start(command, log, |start| {
            process::run_to_end(start, time_max, is_over)
        })
    }

    /// Ends it and what is beside it; gives what did not go well.
    pub(super) fn stop(mut self, grace: Duration) -> Vec<String> {
        let beside = self.beside.iter_mut().map(|(_, process)| process);
        let all = self.process.iter_mut().chain(beside);
        all.filter_map(|process| process.stop(grace).err())
            .collect()
    }

    fn begin(&self, command: &[String], log: &str) -> Result<Process, String> {
        self.with_start(command, log, Process::start)
    }

    fn with_start<T>(
        &self,
        command: &[String],
        log: &str,
        then: impl FnOnce(&Start<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let env = self.spec.env.iter();
        let env: Vec<_> = env
            .map(|(key, value)| (key.clone(), self.place.text(value)))
            .collect();
        let cwd = self
            .spec
            .cwd
            .as_ref()
            .map(|cwd| PathBuf::from(self.place.text(cwd)));
        then(&Start {
            argv: &self.place.argv(command),
            env: &env,
            cwd: cwd.as_deref(),
            cpus: &self.pins.server,
            log: &self.folder.path().join(log),
        })
    }

    fn wait_for(&self, ready: &Ready, is_over: &mut dyn FnMut() -> bool) -> Result<(), Fault> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.place.port));
        let until = Instant::now() + Duration::from_nanos(ready.timeout.0);
        let path = ready.path.as_ref().map(|path| self.place.text(path));
        let process = self
            .process
            .as_ref()
            .expect("it was started before it is waited for");
        loop {
            if let Some(how) = process.ended() {
                return Err(self.not_ready(&how, process));
            }
            let cause = match is_ready(address, path.as_deref()) {
                Ok(()) => return Ok(()),
                Err(cause) => cause,
            };
            if is_over() {
                return Err(self.fault("its start was interrupted"));
            }
            if Instant::now() >= until {
                let seconds = seconds(ready.timeout);
                let said = process.last_lines();
                return Err(self.fault(&format!("not ready after {seconds} s: {cause}{said}")));
            }
            thread::sleep(LOOK);
        }
    }

    fn not_ready(&self, how: &str, process: &Process) -> Fault {
        let said = process.last_lines();
        let mut fault = self.fault(&format!("ended before it was ready: {how}{said}"));
        if how == SUCCESS {
            fault.hint = Some(
                "it has to stay in the foreground: servers are ended by their first process"
                    .to_owned(),
            );
        }
        fault
    }

    fn fault(&self, cause: &str) -> Fault {
        Fault::new(format!("server `{}`: {cause}", self.spec.name))
    }
}

fn seconds(span: Nanos) -> f64 {
    (span.as_secs_f64() * 10.0).round() / 10.0
}

/// One that nobody has now. Somebody else may take it before the server does, which then says so.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}

/// Why a server is not ready.
fn is_ready(address: SocketAddr, path: Option<&str>) -> Result<(), String> {
    let said = |error: io::Error| format!("{address}: {error}");
    let socket = TcpStream::connect_timeout(&address, TRY_MAX).map_err(said)?;
    let Some(path) = path else {
        return Ok(());
    };
    match status(socket, address, path).map_err(said)? {
        200..=399 => Ok(()),
        status => Err(format!("`GET {path}` is answered with {status}")),
    }
}

fn status(mut socket: TcpStream, address: SocketAddr, path: &str) -> io::Result<u16> {
    socket.set_read_timeout(Some(TRY_MAX))?;
    socket.set_write_timeout(Some(TRY_MAX))?;
    write!(
        socket,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    // RFC 9112 section 4: `HTTP/1.1 200`, whatever comes then.
    let mut line = [0; 12];
    socket.read_exact(&mut line)?;
    let text = std::str::from_utf8(&line).unwrap_or_default();
    let digits = text.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..));
    let status = digits.and_then(|digits| digits.parse().ok());
    status.ok_or_else(|| io::Error::other("the reply is no HTTP/1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Beside;

    /// Answers after so many refusals.
    const APP: &str = "
import http.server, os, sys
class App(http.server.BaseHTTPRequestHandler):
    left = int(sys.argv[2])
    def log_message(self, *_): pass
    def do_GET(self):
        App.left -= 1
        self.send_response(500 if App.left >= 0 else 200)
        self.send_header('Content-Length', '0')
        self.end_headers()
print('cpus', sorted(os.sched_getaffinity(0)), os.environ['COLOUR'], flush=True)
http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), App).serve_forever()
";

    fn spec(refusals: &str) -> ServerSpec {
        let start = ["{python}", "{folder}/app.py", "{port}", refusals];
        ServerSpec {
            name: "app".to_owned(),
            start: start.map(str::to_owned).into(),
            env: vec![("COLOUR".to_owned(), "port {port}".to_owned())],
            files: vec![("app.py".to_owned(), APP.to_owned())],
            ..ServerSpec::default()
        }
    }

    fn programs() -> Programs {
        Programs {
            milepost: vec!["milepost".to_owned()],
            python: "python3".to_owned(),
        }
    }

    fn started<'a>(spec: &'a ServerSpec, pins: &'a Pins) -> Result<Server<'a>, Fault> {
        Server::start(spec, pins, &programs(), &mut || false)
    }

    #[test]
    fn starts_a_server_on_its_processors_and_leaves_nothing() {
        let mut spec = spec("2");
        spec.ready.path = Some("/".to_owned());
        spec.prepare = vec![
            ["sh", "-c", "echo {port} > {folder}/prepared"]
                .map(str::to_owned)
                .into(),
        ];
        spec.beside = vec![Beside {
            name: "sleeper".to_owned(),
            start: ["sleep", "100"].map(str::to_owned).into(),
        }];
        let cpu = *pins::available().last().expect("a processor");
        let pins = Pins {
            server: vec![cpu],
            generator: Vec::new(),
        };
        let server = started(&spec, &pins).expect("a server");
        let port = server.place.port;
        let folder = server.place.folder.clone();
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a file");
        assert_eq!(read("prepared"), format!("{port}\n"));
        let log = read("server.log");
        assert!(
            log.starts_with(&format!("cpus [{cpu}] port {port}\n")),
            "{log}"
        );
        let sleeper = server.named("sleeper").expect("it is beside").pid();
        assert_eq!(
            server.pids(),
            [server.named(SERVER).expect("it runs").pid()]
        );
        assert_eq!(server.ended(), None);
        assert!(server.stop(GRACE).is_empty());
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
        assert!(!folder.exists() && !std::path::Path::new(&format!("/proc/{sleeper}")).exists());
    }

    #[test]
    fn tells_the_last_words_of_a_server_that_ends() {
        let pins = Pins::default();
        for (script, expect) in [
            (
                "echo no licence; exit 3",
                "server `app`: ended before it was ready: exit code 3\n  no licence",
            ),
            (
                "kill -9 $$",
                "server `app`: ended before it was ready: signal 9",
            ),
        ] {
            let mut spec = spec("0");
            spec.start = ["sh", "-c", script].map(str::to_owned).into();
            assert_eq!(
                started(&spec, &pins).expect_err("a fault"),
                Fault::new(expect)
            );
        }
        let mut spec = spec("0");
        spec.start = ["true"].map(str::to_owned).into();
        let fault = started(&spec, &pins).expect_err("a fault");
        assert!(fault.hint.expect("a hint").contains("foreground"));
    }

    #[test]
    fn says_why_a_server_does_not_get_ready() {
        let pins = Pins::default();
        let mut spec = spec("0");
        spec.start = ["sh", "-c", "echo {port} >&2; exec sleep 100"]
            .map(str::to_owned)
            .into();
        spec.ready.timeout = Nanos::ZERO;
        let text = started(&spec, &pins).expect_err("a fault").text;
        let head = "server `app`: not ready after 0 s: 127.0.0.1:";
        assert!(text.starts_with(head) && text.contains("refused"), "{text}");
        spec.ready = Ready::default();
        let over = Server::start(&spec, &pins, &programs(), &mut || true);
        let text = over.expect_err("a fault").text;
        assert_eq!(text, "server `app`: its start was interrupted");
    }

    #[test]
    fn takes_only_good_replies_for_ready() {
        use std::io::BufRead as _;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let replies = [
            "HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.0 503 Busy\r\n\r\n",
            "SSH-2.0-OpenSSH_9.2\r\n",
        ];
        let served = thread::spawn(move || {
            replies.map(|reply| {
                let (mut socket, _) = listener.accept().expect("a client");
                let mut head = io::BufReader::new(socket.try_clone().expect("a socket")).lines();
                let first = head.next().expect("a line").expect("a line");
                while head
                    .next()
                    .is_some_and(|line| !line.expect("a line").is_empty())
                {}
                socket.write_all(reply.as_bytes()).expect("it reads");
                first
            })
        });
        assert_eq!(is_ready(address, Some("/up")), Ok(()));
        let busy = is_ready(address, Some("/up"));
        assert_eq!(busy, Err("`GET /up` is answered with 503".to_owned()));
        let other = is_ready(address, Some("/up"));
        assert_eq!(other, Err(format!("{address}: the reply is no HTTP/1")));
        assert_eq!(served.join().expect("no panic"), ["GET /up HTTP/1.1"; 3]);
    }

    #[test]
    fn says_what_is_missing_or_cannot_be_prepared() {
        let pins = Pins::default();
        let mut spec = spec("0");
        spec.prepare = vec![
            ["sh", "-c", "echo disk full; exit 1"]
                .map(str::to_owned)
                .into(),
        ];
        let text = started(&spec, &pins).expect_err("a fault").text;
        assert!(
            text.starts_with("server `app`: cannot be prepared: `sh -c "),
            "{text}"
        );
        assert!(text.ends_with("exit code 1\n  disk full"), "{text}");
        spec.prepare.clear();
        spec.start[0] = "no-such-server".to_owned();
        let text = started(&spec, &pins).expect_err("a fault").text;
        assert!(
            text.starts_with("server `app`: `no-such-server`: No such file"),
            "{text}"
        );
    }
}
