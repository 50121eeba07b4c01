//! The file that holds the serving process's id, and what the system says about the process that an id
//! stands for.
//!
//! Takes a path or an id, reads `/proc`. Sends no signal: whether a process may get one is for its callers.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use config::failure::{StartFault, plain};

/// An id has ten digits at most; more than this is another kind of file.
const FILE_BYTES_MAX: u64 = 64;

/// The file while this process runs. Dropping it removes the file if it is still this process's.
#[derive(Debug)]
pub struct PidFile {
    /// Absolute: applications change their folder.
    path: PathBuf,
    pid: u32,
    /// Opened before rights were given up: without them the file can be emptied, where it cannot be removed.
    file: File,
}

/// What an id stands for just now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Process {
    /// No process, or one that has ended.
    Nobody,
    /// Something else than a serving Milepost, by the name of its command.
    Stranger(String),
    /// A serving Milepost.
    Server,
}

impl PidFile {
    /// Whether [`PidFile::write`] may take the file: to be asked before anything else is opened.
    ///
    /// # Errors
    /// It holds something that is no id, or names another serving Milepost.
    pub fn check(path: &Path) -> Result<(), StartFault> {
        match read(path) {
            // Its own id stands there after an upgrade, which keeps the process.
            Ok(Some(pid)) if pid != std::process::id() && process(pid) == Process::Server => {
                let cause = format!("process {pid} is a milepost that serves");
                Err(fault(path, cause, "stop it first, or name another file"))
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let hint = "name another file, or remove this one";
                Err(fault(path, plain(&error), hint))
            }
            _ => Ok(()),
        }
    }

    /// Writes this process's id. Readers see the whole file or none.
    ///
    /// # Errors
    /// As [`PidFile::check`], or the file cannot be written.
    pub fn write(path: &Path) -> Result<Self, StartFault> {
        Self::check(path)?;
        let pid = std::process::id();
        let written = std::path::absolute(path).and_then(|path| {
            let file = put(&path, pid)?;
            Ok(Self { path, pid, file })
        });
        let hint = "this user must be able to create files in its folder";
        written.map_err(|error| fault(path, plain(&error), hint))
    }

    /// The file that the program has written which this process was before an upgrade.
    pub fn adopt(path: PathBuf, file: OwnedFd) -> Self {
        let (pid, file) = (std::process::id(), file.into());
        Self { path, pid, file }
    }

    /// Absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file if it is still this process's; one that cannot be removed is emptied, so that it names nobody.
    ///
    /// # Errors
    /// Why it cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        // A copy of this process that the application has forked is not the one that is named.
        if std::process::id() != self.pid {
            return Ok(());
        }
        let removed = match read(&self.path) {
            Ok(pid) if pid == Some(self.pid) => fs::remove_file(&self.path),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        removed.inspect_err(|_| drop(self.file.set_len(0)))
    }
}

impl AsFd for PidFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// The id in a file; `None` when the file is empty.
///
/// # Errors
/// It cannot be read, or holds something else.
pub fn read(path: &Path) -> io::Result<Option<u32>> {
    // Opening anything but a plain file could wait for somebody.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a plain file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?
        .take(FILE_BYTES_MAX)
        .read_to_end(&mut bytes)?;
    let text = bytes.trim_ascii();
    if text.is_empty() {
        return Ok(None);
    }
    let pid = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok());
    match pid.filter(|pid| (1..=i32::MAX.unsigned_abs()).contains(pid)) {
        Some(pid) => Ok(Some(pid)),
        None => Err(io::Error::other(
            "it holds something else than a process id",
        )),
    }
}

/// Looks at the process that has an id now. Ids are given anew: the answer may be old at once.
pub fn process(pid: u32) -> Process {
    let status = status(pid);
    let field = |name| status_field(&status, name);
    // The ids of threads have folders too.
    let is_process = field("Tgid").is_some_and(|group| group == pid.to_string());
    let has_ended = field("State").is_some_and(|state| state.starts_with(['Z', 'X']));
    if !is_process || has_ended {
        return Process::Nobody;
    }
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    // By its command line, not by its name: a server that Python runs is called `python`.
    if serves(&command) {
        Process::Server
    } else {
        Process::Stranger(field("Name").unwrap_or_default().to_owned())
    }
}

/// Whether a process has a handler for a signal, so that the signal does not end it.
pub fn handles(pid: u32, signal: i32) -> bool {
    let status = status(pid);
    let caught =
        status_field(&status, "SigCgt").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    // The lowest bit is that of signal 1; there is no signal 0.
    let bit = u32::try_from(signal - 1).ok();
    caught
        .zip(bit)
        .is_some_and(|(mask, bit)| mask.checked_shr(bit).unwrap_or(0) & 1 == 1)
}

fn fault(path: &Path, cause: String, hint: &str) -> StartFault {
    let what = format!("cannot write the pid file `{}`", path.display());
    StartFault::new(what, cause).with_hint(hint)
}

/// Under another name first, then renamed: a rename is atomic.
fn put(path: &Path, pid: u32) -> io::Result<File> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other("it has no name"))?;
    let name = format!(".{}.{pid}", name.to_string_lossy());
    let new = path.with_file_name(name);
    let open = || {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o644).open(&new)
    };
    let file = open().or_else(|error| {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error);
        }
        // Left by a process that had the same id and died between the two steps.
        fs::remove_file(&new)?;
        open()
    });
    // A rename is atomic: readers see the old file or the whole new one.
    let written = file.and_then(|mut file| {
        file.write_all(format!("{pid}\n").as_bytes())?;
        fs::rename(&new, path)?;
        Ok(file)
    });
    written.inspect_err(|_| drop(fs::remove_file(&new)))
}

/// `.../milepost serve ...`, or `python -m milepost serve ...`: the words of a command line end with zeros.
fn serves(command: &[u8]) -> bool {
    let mut words = command.split(|b| *b == 0).peekable();
    while let Some(word) = words.next() {
        // A path as the shell found it, or the bare name behind `python -m`.
        let name = word.rsplit(|b| *b == b'/').next().unwrap_or_default();
        if name == b"milepost" && words.peek().is_some_and(|next| *next == b"serve") {
            return true;
        }
    }
    false
}

/// Nothing when there is no such process, or when it is hidden from this user.
fn status(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
    // The name of a process may be any bytes.
    String::from_utf8_lossy(&bytes).into_owned()
}

fn status_field<'s>(status: &'s str, name: &str) -> Option<&'s str> {
    let mut lines = status.lines();
    lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Something that runs until it is dropped, under a command line of choice.
    struct Fake(Child);

    impl Fake {
        fn new(folder: &Path, name: &str, verb: &str) -> Self {
            let script = folder.join(name);
            fs::write(&script, "echo ready\nread line\n").unwrap();
            let mut child = Command::new("/bin/sh")
                .args([script.as_os_str(), verb.as_ref()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            // Before that it may still have this test's command line.
            let mut ready = [0; 6];
            let mut out = child.stdout.take().unwrap();
            out.read_exact(&mut ready).unwrap();
            Self(child)
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            drop(self.0.stdin.take());
            self.0.wait().unwrap();
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[track_caller]
    fn check_fault(path: &Path, expect: &str) {
        let before = fs::read(path).ok();
        let fault = PidFile::write(path).expect_err("a fault").to_string();
        assert!(fault.starts_with("cannot write the pid file `"), "{fault}");
        assert!(fault.contains(expect), "{fault}");
        assert_eq!(fs::read(path).ok(), before);
    }

    #[test]
    fn is_there_while_the_process_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pid");
        let file = PidFile::write(&path).unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            format!("{}\n", std::process::id())
        );
        assert_eq!(read(&path).unwrap(), Some(std::process::id()));
        assert_eq!(names(folder.path()), ["a.pid"]);
        drop(file);
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }

    #[test]
    fn is_left_alone_when_another_has_taken_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pid");
        let file = PidFile::write(&path).unwrap();
        fs::write(&path, "1\n").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
    }

    #[test]
    fn is_emptied_where_it_cannot_be_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pid");
        let file = PidFile::write(&path).unwrap();
        // A path that leads nowhere, as one does in a folder that may not be entered.
        let handed = file.as_fd().try_clone_to_owned().unwrap();
        let unreachable = PidFile::adopt(path.join("a.pid"), handed);
        assert!(unreachable.remove().is_err());
        assert_eq!(read(&path).unwrap(), None);
        // It is nobody's by now, and the next server takes it.
        drop(file);
        assert_eq!(names(folder.path()), ["a.pid"]);
        drop(PidFile::write(&path).unwrap());
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }

    #[test]
    fn takes_the_place_of_an_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pid");
        let stranger = Fake::new(folder.path(), "shop", "serve");
        let own_thread = fs::read_link("/proc/thread-self").unwrap();
        let own_thread = own_thread.file_name().unwrap().to_str().unwrap();
        let stranger_pid = stranger.0.id().to_string();
        for old in ["", "\n", " 2147483647\n", &stranger_pid, own_thread] {
            fs::write(&path, old).unwrap();
            drop(PidFile::write(&path).unwrap());
            assert_eq!(names(folder.path()), ["shop"], "{old}");
        }
        // And of what was left between the two steps of writing.
        let left = format!(".a.pid.{}", std::process::id());
        fs::write(folder.path().join(left), "").unwrap();
        drop(PidFile::write(&path).unwrap());
        assert_eq!(names(folder.path()), ["shop"]);
    }

    #[test]
    fn refuses_a_file_that_names_another_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pid");
        let server = Fake::new(folder.path(), "milepost", "serve");
        fs::write(&path, server.0.id().to_string()).unwrap();
        let cause = format!("process {} is a milepost that serves", server.0.id());
        check_fault(&path, &cause);
        drop(server);
        drop(PidFile::write(&path).unwrap());
    }

    #[test]
    fn refuses_what_is_no_pid_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        for data in ["root:x:0:0", "0", "-5", "2147483648", "12 13"] {
            fs::write(&path, data).unwrap();
            check_fault(&path, "it holds something else than a process id");
        }
        check_fault(folder.path(), "it is not a plain file");
        check_fault(&folder.path().join("no/a.pid"), "No such file or directory");
    }

    #[test]
    fn tells_servers_from_strangers_and_the_dead() {
        let folder = tempfile::tempdir().unwrap();
        let server = Fake::new(folder.path(), "milepost", "serve");
        assert_eq!(process(server.0.id()), Process::Server);
        let checking = Fake::new(folder.path(), "milepost-check", "check");
        assert_eq!(process(checking.0.id()), Process::Stranger("sh".to_owned()));
        assert_eq!(process(u32::MAX), Process::Nobody);
        let mut dead = Fake::new(folder.path(), "milepost", "serve");
        drop(dead.0.stdin.take());
        let waited = rustix::process::waitid(
            rustix::process::WaitId::Pid(rustix::process::Pid::from_child(&dead.0)),
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT,
        );
        waited.unwrap();
        assert_eq!(process(dead.0.id()), Process::Nobody);
    }

    #[test]
    fn reads_command_lines() {
        for (line, expect) in [
            ("/usr/bin/milepost\0serve\0shop:app\0", true),
            ("python3\0-X\0gil=0\0-m\0milepost\0serve\0", true),
            (
                "/opt/venv/bin/python\0/opt/venv/bin/milepost\0serve\0",
                true,
            ),
            ("milepost\0check\0serve\0", false),
            ("milepost\0", false),
            ("vim\0milepost-serve\0", false),
            ("sh\0-c\0milepost serve\0", false),
            ("", false),
        ] {
            assert_eq!(serves(line.as_bytes()), expect, "{line:?}");
        }
    }

    #[test]
    fn sees_which_signals_are_handled() {
        let own = std::process::id();
        // Rust's own for stack overflows.
        assert!(handles(own, libc::SIGSEGV));
        assert!(!handles(own, libc::SIGURG));
        assert!(!handles(own, 0));
        assert!(!handles(own, 65));
        assert!(!handles(u32::MAX, libc::SIGSEGV));
    }
}
