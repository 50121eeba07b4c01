//! A process that is started for an experiment, and everything that it starts.
//!
//! Takes a command, gives a process in a group of its own, its output in a file, and its end with nothing
//! left. Its descendants are found by the group and, where they have left it, by a variable of the
//! environment that only they have.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, WaitId, WaitIdOptions, getrlimit, setrlimit, waitid};

use super::pins;

/// So often it is looked whether something has happened that nobody tells.
pub(super) const LOOK: Duration = Duration::from_millis(10);
/// A process that was killed and is there after so long is in the kernel's hands.
const KILLED_MAX: Duration = Duration::from_secs(5);
/// The variable of the environment. Not one of Milepost's own, whose names are settings.
const MARK: &str = "BENCH_PROCESS_MARK";
/// Of its output so much is told.
const TOLD_LINES_LEN: usize = 12;
const TOLD_BYTES: u64 = 4_096;

/// How a process is started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start<'a> {
    /// Program and arguments, words replaced.
    pub(super) argv: &'a [String],
    pub(super) env: &'a [(String, String)],
    pub(super) cwd: Option<&'a Path>,
    pub(super) cpus: &'a [usize],
    /// Its output goes there.
    pub(super) log: &'a Path,
}

/// A process, its group and all that descend from it. Dropping it kills them.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    mark: String,
    log: PathBuf,
    is_over: bool,
}

impl Process {
    /// Starts it, with as many descriptors as it may have.
    pub(super) fn start(start: &Start<'_>) -> Result<Process, String> {
        let [program, arguments @ ..] = start.argv else {
            return Err("there is no command".to_owned());
        };
        raise_descriptors();
        let said = |error: io::Error| format!("`{program}`: {error}");
        let out = OpenOptions::new().create(true).append(true).open(start.log);
        let out = out.map_err(|error| format!("`{}`: {error}", start.log.display()))?;
        let mark = format!("{}-{:016x}", std::process::id(), fastrand::u64(..));
        let mut command = Command::new(program);
        command.args(arguments).envs(start.env.iter().cloned());
        command
            .env(MARK, &mark)
            .process_group(0)
            .stdin(Stdio::null());
        command.stderr(out.try_clone().map_err(said)?).stdout(out);
        if let Some(folder) = start.cwd {
            command.current_dir(folder);
        }
        let child = pins::spawn_on(start.cpus, &mut command).map_err(said)?;
        Ok(Process {
            child,
            mark,
            log: start.log.to_owned(),
            is_over: false,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How the first process has ended; `None`: it has not. It stays a zombie until the end of all, so that
    /// nobody else gets the number of its group.
    pub(super) fn ended(&self) -> Option<String> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let id = rustix::process::Pid::from_child(&self.child);
        let status = waitid(WaitId::Pid(id), options).ok().flatten()?;
        Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(0), _) => SUCCESS.to_owned(),
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "for an unknown reason".to_owned(),
        })
    }

    /// Sends its first process a signal.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), String> {
        if let Some(how) = self.ended() {
            return Err(format!("it has ended: {how}"));
        }
        kill(pid_of(self.pid()), signal).map_err(|error| error.desc().to_owned())
    }

    /// The last lines of its output, each indented; empty: it has said nothing.
    pub(super) fn last_lines(&self) -> String {
        let text = tail(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let first = lines.len().saturating_sub(TOLD_LINES_LEN);
        let lines = lines[first..].iter();
        lines.map(|line| format!("\n  {line}")).collect()
    }

    /// Ends it with all its descendants: they are asked, and killed when one is left after `grace`.
    pub(super) fn stop(&mut self, grace: Duration) -> Result<(), String> {
        if self.is_over {
            return Ok(());
        }
        for member in self.members() {
            // One that was stopped could not hear it.
            let _ = kill(member, Signal::SIGTERM).and_then(|()| kill(member, Signal::SIGCONT));
        }
        if !self.is_gone_within(grace) {
            self.kill()?;
        }
        self.reap();
        Ok(())
    }

    /// Processes go on being born while others are killed, so it is done until there is none.
    fn kill(&self) -> Result<(), String> {
        let until = Instant::now() + KILLED_MAX;
        loop {
            let members = self.members();
            if members.is_empty() {
                return Ok(());
            }
            if Instant::now() >= until {
                let pids: Vec<String> = members.iter().map(Pid::to_string).collect();
                return Err(format!("cannot be killed: process {}", pids.join(", ")));
            }
            for member in members {
                let _ = kill(member, Signal::SIGKILL);
            }
            thread::sleep(LOOK);
        }
    }

    fn is_gone_within(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        while !self.members().is_empty() {
            if Instant::now() >= until {
                return false;
            }
            thread::sleep(LOOK);
        }
        true
    }

    fn reap(&mut self) {
        // Nothing of it is left but the zombie.
        let _ = self.child.wait();
        self.is_over = true;
    }

    /// All that live of it.
    fn members(&self) -> Vec<Pid> {
        let Ok(entries) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let is_member = |pid: &u32| self.has(*pid).unwrap_or(false);
        pids.filter(is_member).map(pid_of).collect()
    }

    /// `None`: the process has gone meanwhile.
    fn has(&self, pid: u32) -> Option<bool> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before may have blanks and parentheses itself.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?;
        let group: u32 = fields.nth(1)?.parse().ok()?;
        if matches!(state, "Z" | "X") {
            return Some(false);
        }
        if group == self.pid() {
            return Some(true);
        }
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let ours = format!("{MARK}={}", self.mark);
        let mut variables = environment.split(|byte| *byte == 0);
        Some(variables.any(|variable| variable == ours.as_bytes()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_over && self.kill().is_ok() {
            self.reap();
        }
    }
}

/// What [`Process::ended`] says of an exit code of 0.
pub(super) const SUCCESS: &str = "exit code 0";

/// Runs a command to its end and gives what it said; whatever it leaves running is killed.
pub(super) fn run_to_end(
    start: &Start<'_>,
    time_max: Duration,
    is_over: &mut dyn FnMut() -> bool,
) -> Result<String, String> {
    let mut process = Process::start(start)?;
    let until = Instant::now() + time_max;
    let how = loop {
        if let Some(how) = process.ended() {
            break how;
        }
        if is_over() {
            break "it was interrupted".to_owned();
        }
        if Instant::now() >= until {
            break format!("it takes longer than {} s", time_max.as_secs());
        }
        thread::sleep(LOOK);
    };
    let text = fs::read(start.log).unwrap_or_default();
    let said = process.last_lines();
    process.stop(Duration::ZERO)?;
    match how.as_str() {
        SUCCESS => Ok(String::from_utf8_lossy(&text).into_owned()),
        _ => Err(format!("`{}`: {how}{said}", start.argv.join(" "))),
    }
}

/// Whether a program can be started by this name.
pub(super) fn is_program(name: &str) -> bool {
    use rustix::fs::{Access, access};
    let may_run = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if name.contains('/') {
        return may_run(Path::new(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = path.as_bytes().split(|byte| *byte == b':');
    folders.any(|folder| may_run(&Path::new(std::ffi::OsStr::from_bytes(folder)).join(name)))
}

fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let bytes = file.metadata()?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(TOLD_BYTES)))?;
    let mut text = Vec::new();
    file.take(TOLD_BYTES).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Children have as many descriptors as this process; the generator needs them too.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let all = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        // Whoever needs more than there are says so itself.
        let _ = setrlimit(Resource::Nofile, all);
    }
}

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).expect("the kernel's numbers of processes are below 2^22"))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Trial {
        folder: tempfile::TempDir,
    }

    impl Trial {
        fn new() -> Trial {
            Trial {
                folder: tempfile::tempdir().expect("a folder"),
            }
        }

        fn start(&self, script: &str) -> Process {
            let argv = ["sh", "-c", script].map(str::to_owned);
            let log = self.folder.path().join("log");
            let start = Start {
                argv: &argv,
                env: &[],
                cwd: Some(self.folder.path()),
                cpus: &[],
                log: &log,
            };
            Process::start(&start).expect("a process")
        }

        /// Waits for a file that a script writes, and gives its words.
        fn words(&self, name: &str) -> Vec<u32> {
            loop {
                let text = fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
                if text.ends_with('\n') {
                    return text
                        .split_whitespace()
                        .map(|word| word.parse().expect("a pid"))
                        .collect();
                }
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn lives(pid: u32) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, fields)| !fields.starts_with('Z'))
    }

    #[test]
    fn leaves_none_of_a_group() {
        let trial = Trial::new();
        let mut process = trial.start("sleep 100 & echo $$ $! > .pids; mv .pids pids; wait");
        let pids = trial.words("pids");
        assert_eq!(pids[0], process.pid());
        assert!(pids.iter().all(|pid| lives(*pid)));
        process.stop(Duration::from_secs(60)).expect("its end");
        assert!(!pids.iter().any(|pid| lives(*pid)));
    }

    #[test]
    fn kills_what_ignores_being_asked() {
        let trial = Trial::new();
        let mut process =
            trial.start("trap '' TERM; echo $$ > .pids; mv .pids pids; while :; do sleep 1; done");
        let pids = trial.words("pids");
        process.stop(Duration::from_millis(50)).expect("its end");
        assert!(!lives(pids[0]));
    }

    #[test]
    fn ends_what_stands_still() {
        let trial = Trial::new();
        let mut process = trial.start("trap 'echo 1 > asked; exit' TERM; echo $$ > .pids; mv .pids pids; while :; do sleep 0.01; done");
        trial.words("pids");
        process.signal(Signal::SIGSTOP).expect("it lives");
        process.stop(Duration::from_secs(60)).expect("its end");
        assert_eq!(trial.words("asked"), [1]);
    }

    #[test]
    fn finds_descendants_that_left_the_group_and_outlive_their_parent() {
        let trial = Trial::new();
        let mut process =
            trial.start("setsid sh -c 'echo $$ > .pids; mv .pids pids; exec sleep 100' & exit 3");
        let pids = trial.words("pids");
        while process.ended().is_none() {
            thread::yield_now();
        }
        assert_eq!(process.ended().as_deref(), Some("exit code 3"));
        assert!(process.signal(Signal::SIGHUP).is_err());
        process.stop(Duration::from_secs(60)).expect("its end");
        assert!(!lives(pids[0]));
    }

    #[test]
    fn kills_all_when_dropped() {
        let trial = Trial::new();
        let process =
            trial.start("trap '' TERM; sleep 100 & echo $$ $! > .pids; mv .pids pids; wait");
        let pids = trial.words("pids");
        drop(process);
        assert!(!pids.iter().any(|pid| lives(*pid)));
    }

    #[test]
    fn gives_what_a_command_says_or_why_it_failed() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = |script: &str, name: &str, time_max| {
            let argv = ["sh", "-c", script].map(str::to_owned);
            let log = folder.path().join(name);
            let start = Start {
                argv: &argv,
                env: &[("WORD".to_owned(), "7".to_owned())],
                cwd: None,
                cpus: &[],
                log: &log,
            };
            run_to_end(&start, time_max, &mut || false)
        };
        let long = Duration::from_secs(60);
        assert_eq!(
            run("echo $WORD; echo e >&2", "a", long).expect("output"),
            "7\ne\n"
        );
        let text = run("echo why; exit 4", "b", long).expect_err("a failure");
        assert_eq!(text, "`sh -c echo why; exit 4`: exit code 4\n  why");
        let text = run("sleep 100", "c", Duration::ZERO).expect_err("a failure");
        assert_eq!(text, "`sh -c sleep 100`: it takes longer than 0 s");
        let argv = ["/nonexistent/program".to_owned()];
        let log = folder.path().join("d");
        let start = Start {
            argv: &argv,
            env: &[],
            cwd: None,
            cpus: &[],
            log: &log,
        };
        let text = Process::start(&start).expect_err("no such program");
        assert!(
            text.starts_with("`/nonexistent/program`: No such file"),
            "{text}"
        );
    }

    #[test]
    fn knows_which_programs_are_there() {
        assert!(is_program("sh") && is_program("/bin/sh"));
        assert!(!is_program("no-such-program") && !is_program("/etc/passwd"));
    }

    #[test]
    fn gives_children_all_descriptors_that_may_be() {
        let folder = tempfile::tempdir().expect("a folder");
        let argv = ["sh", "-c", "ulimit -n; ulimit -Hn"].map(str::to_owned);
        let log = folder.path().join("log");
        let start = Start {
            argv: &argv,
            env: &[],
            cwd: None,
            cpus: &[],
            log: &log,
        };
        let text = run_to_end(&start, Duration::from_secs(60), &mut || false).expect("output");
        let limits: Vec<&str> = text.lines().collect();
        assert_eq!(limits[0], limits[1]);
    }
}
