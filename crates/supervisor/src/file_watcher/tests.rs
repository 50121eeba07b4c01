//! Real folders and the real kernel, with a clock of the test's own. Nothing sleeps: that a change is *not*
//! reported is seen by a later one that is.

use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tempfile::TempDir;

use super::*;

/// Where changes come from.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Kernel,
    Scans,
}

/// A folder `app` that is watched, a folder `etc` beside it, and a clock. What is written into `zz`, which is watched as
/// well, comes behind every other change of the same snapshot.
struct Bed {
    _dir: TempDir,
    root: PathBuf,
    watcher: FileWatcher,
    now: Stamp,
    markers_len: usize,
}

impl Bed {
    /// Watches `app`, with these files in it or beside it; the names in `files` are watched for themselves.
    fn new(by: By, present: &[&str], files: &[&str]) -> Bed {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for folder in ["app", "etc", "zz"] {
            fs::create_dir(root.join(folder)).unwrap();
        }
        for name in present {
            write(&root.join(name), "first");
        }
        let files: Vec<PathBuf> = files.iter().map(|name| root.join(name)).collect();
        let now = Stamp(1_000_000_000);
        let dirs = ["app", "zz"].map(|name| root.join(name));
        let mut watcher = match by {
            By::Kernel => FileWatcher::new(&dirs, &files, now),
            By::Scans => {
                let mut watcher = FileWatcher::scanning(&dirs, &files, now);
                watcher.renew();
                watcher
            }
        };
        // Other programs of the same user may have all of the kernel's watchers: then the warning says so.
        let warning = watcher.warning();
        assert_eq!(watcher.fd().is_some(), by == By::Kernel, "{warning:?}");
        Bed {
            _dir: dir,
            root,
            watcher,
            now,
            markers_len: 0,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// By name below the root.
    fn name(&self, path: &Path) -> String {
        let path = path.strip_prefix(&self.root).unwrap();
        path.display().to_string()
    }

    /// The next change; the test fails where none comes.
    fn next(&mut self) -> String {
        for _ in 0..200 {
            match (self.watcher.deadline(), self.watcher.fd()) {
                (Stamp::NEVER, Some(fd)) => wait_for_report(fd),
                // Time passes by itself.
                (deadline, _) => self.now = self.now.max(deadline),
            }
            if let Some(path) = self.watcher.changed(self.now) {
                return self.name(&path);
            }
        }
        panic!("no change was reported");
    }

    /// All changes that come before one that is made now.
    fn changes(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        if self.watcher.fd().is_none() {
            // Each scan sees everything that was done before it.
            for _ in 0..3 {
                self.now = self.now.max(self.watcher.deadline());
                let changed = self.watcher.changed(self.now);
                found.extend(changed.map(|path| self.name(&path)));
            }
            return found;
        }
        for _ in 0..20 {
            self.markers_len += 1;
            let marker = format!("zz/{:03}.py", self.markers_len);
            write(&self.path(&marker), "");
            let next = self.next();
            if next.starts_with("zz/") {
                return found;
            }
            // The marker may have been part of it.
            found.push(next);
        }
        panic!("changes never end: {found:?}");
    }

    #[track_caller]
    fn expect(&mut self, expect: &[&str]) {
        assert_eq!(self.changes(), expect);
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Waits until the kernel has reported something; only a test that would hang fails by the time.
fn wait_for_report(fd: BorrowedFd<'_>) {
    let mut watched = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    let ready = poll(&mut watched, Some(&timeout)).unwrap();
    assert_ne!(ready, 0, "no change was reported");
}

/// From both sources, one after the other.
fn both(present: &[&str], files: &[&str], test: impl Fn(&mut Bed)) {
    for by in [By::Kernel, By::Scans] {
        let mut bed = Bed::new(by, present, files);
        bed.expect(&[]);
        test(&mut bed);
    }
}

#[test]
fn reports_code_that_is_written() {
    both(&["app/a.py"], &[], |bed| {
        write(&bed.path("app/a.py"), "second");
        bed.expect(&["app/a.py"]);
        bed.expect(&[]);
        write(&bed.path("app/new.py"), "");
        bed.expect(&["app/new.py"]);
        fs::remove_file(bed.path("app/a.py")).unwrap();
        bed.expect(&["app/a.py"]);
        symlink(bed.path("etc"), bed.path("app/link.py")).unwrap();
        write(&bed.path("app/fast.cpython-311-x86_64-linux-gnu.so"), "");
        assert_eq!(bed.changes().len(), 1);
    });
}

#[test]
fn reports_what_editors_rename() {
    both(&["app/a.py"], &[], |bed| {
        // Vim: the old file aside, the new one written, the old one gone.
        fs::rename(bed.path("app/a.py"), bed.path("app/a.py~")).unwrap();
        write(&bed.path("app/a.py"), "vim");
        fs::remove_file(bed.path("app/a.py~")).unwrap();
        bed.expect(&["app/a.py"]);
        // Others: a file beside it, renamed over the old one.
        write(&bed.path("app/.a.py.tmp"), "other");
        bed.expect(&[]);
        fs::rename(bed.path("app/.a.py.tmp"), bed.path("app/a.py")).unwrap();
        bed.expect(&["app/a.py"]);
    });
}

#[test]
fn reports_code_in_folders_that_come_and_move() {
    both(&["etc/shop/b.py"], &[], |bed| {
        fs::create_dir_all(bed.path("app/new/deep")).unwrap();
        bed.expect(&[]);
        write(&bed.path("app/new/deep/c.py"), "");
        bed.expect(&["app/new/deep/c.py"]);
        fs::rename(bed.path("etc/shop"), bed.path("app/shop")).unwrap();
        bed.expect(&["app/shop/b.py"]);
        fs::rename(bed.path("app/new"), bed.path("app/old")).unwrap();
        assert_eq!(bed.changes().len(), 1);
        write(&bed.path("app/old/deep/c.py"), "second");
        bed.expect(&["app/old/deep/c.py"]);
    });
}

#[test]
fn leaves_out_what_nobody_edits() {
    let present = [
        "app/.git/a.py",
        "app/__pycache__/a.py",
        "app/node_modules/deep/a.py",
        "app/env/pyvenv.cfg",
        "app/env/lib/a.py",
        "app/conda/conda-meta/history",
        "app/conda/lib/a.py",
        "app/lib/site-packages/a.py",
    ];
    both(&present, &[], |bed| {
        for name in present {
            write(&bed.path(name), "second");
        }
        for name in [
            "app/a.txt",
            "app/a.py.swp",
            "app/.a.py",
            "app/a.pyc",
            "app/py",
        ] {
            write(&bed.path(name), "new");
        }
        symlink(bed.path("etc"), bed.path("app/etc")).unwrap();
        write(&bed.path("etc/a.py"), "behind a link");
        bed.expect(&[]);
        // Similar names are code.
        write(&bed.path("app/sub/lib/env/a.py"), "new");
        bed.expect(&["app/sub/lib/env/a.py"]);
    });
}

#[test]
fn leaves_out_an_environment_that_is_made() {
    both(&[], &[], |bed| {
        fs::create_dir_all(bed.path("app/env/lib")).unwrap();
        bed.expect(&[]);
        write(&bed.path("app/env/pyvenv.cfg"), "home = /usr/bin");
        bed.expect(&[]);
        write(&bed.path("app/env/lib/a.py"), "installed");
        write(&bed.path("app/env/new/a.py"), "installed");
        bed.expect(&[]);
    });
}

#[test]
fn reports_named_files_whatever_their_name() {
    let present = ["etc/site.toml", "etc/other.toml", "app/.hidden/m.py"];
    both(&present, &["etc/site.toml", "app/.hidden/m.py"], |bed| {
        write(&bed.path("etc/other.toml"), "second");
        write(&bed.path("etc/b.py"), "new");
        bed.expect(&[]);
        write(&bed.path("etc/site.toml.new"), "second");
        fs::rename(bed.path("etc/site.toml.new"), bed.path("etc/site.toml")).unwrap();
        bed.expect(&["etc/site.toml"]);
        write(&bed.path("app/.hidden/m.py"), "second");
        bed.expect(&["app/.hidden/m.py"]);
        // The present contents of a folder that is named later are no change.
        let now = bed.now;
        bed.watcher.extend(&[bed.path("etc")], &[], now);
        bed.expect(&[]);
        write(&bed.path("etc/b.py"), "second");
        bed.expect(&["etc/b.py"]);
    });
}

/// As `ln -s TARGET new && mv -T new LINK` does.
fn set_link(bed: &Bed, target: &str, link: &str) {
    symlink(target, bed.path("new")).unwrap();
    fs::rename(bed.path("new"), bed.path(link)).unwrap();
}

#[test]
fn follows_links_that_are_set_anew() {
    let present = ["v1/a.key", "v2/a.key"];
    for by in [By::Kernel, By::Scans] {
        let mut bed = Bed::new(by, &present, &[]);
        set_link(&bed, "../v1", "etc/current");
        set_link(&bed, "../etc/current/a.key", "etc/a.key");
        let now = bed.now;
        let files = [bed.path("etc/a.key")];
        bed.watcher.extend(&[], &files, now);
        bed.expect(&[]);
        // Another file beside the one that is named does not count.
        write(&bed.path("v1/b.key"), "new");
        bed.expect(&[]);
        set_link(&bed, "../v2", "etc/current");
        bed.expect(&["etc/current"]);
        write(&bed.path("v2/a.key"), "second");
        bed.expect(&["v2/a.key"]);
        write(&bed.path("v2/b.key"), "new");
        write(&bed.path("v1/a.key"), "left behind");
        bed.expect(&[]);
        set_link(&bed, "../v1/a.key", "etc/a.key");
        bed.expect(&["etc/a.key"]);
        write(&bed.path("v1/a.key"), "third");
        bed.expect(&["v1/a.key"]);
        // A loop names nothing.
        set_link(&bed, "a.key", "etc/a.key");
        bed.expect(&["etc/a.key"]);
    }
}

#[test]
fn follows_a_link_to_a_folder_of_code() {
    for by in [By::Kernel, By::Scans] {
        let mut bed = Bed::new(by, &["v1/a.py", "v2/deep/a.py"], &[]);
        set_link(&bed, "../v1", "etc/current");
        let now = bed.now;
        let dirs = [bed.path("etc/current")];
        bed.watcher.extend(&dirs, &[], now);
        bed.expect(&[]);
        write(&bed.path("v1/a.py"), "second");
        bed.expect(&["v1/a.py"]);
        set_link(&bed, "../v2", "etc/current");
        bed.expect(&["etc/current"]);
        write(&bed.path("v2/deep/a.py"), "second");
        bed.expect(&["v2/deep/a.py"]);
    }
}

#[test]
fn waits_for_the_last_change_but_not_for_ever() {
    let start = Stamp(1_000_000_000);
    let mut pending = PendingChange {
        path: None,
        first: start,
        last: start,
    };
    assert_eq!(pending.due(), start.plus(QUIET_TIME));
    pending.last = start.plus(Nanos::from_ms(1990));
    assert_eq!(pending.due(), start.plus(PENDING_TIME_MAX));
}

#[test]
fn the_nearest_folders_are_watched_where_there_are_too_many() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for name in ["one/deep/a.py", "two/deep/a.py"] {
        write(&root.join(name), "first");
    }
    let mut filter = CodeFilter::default();
    filter.add(std::slice::from_ref(&root), &[]);
    let mut entered = Vec::new();
    let mut take = |len_max| {
        entered.clear();
        let taken = Snapshot::take(&filter.resolved(), len_max, |dir| {
            entered.push(dir.strip_prefix(&root).unwrap().to_owned());
            Ok(true)
        });
        (taken.unwrap().has_excess, entered.len())
    };
    assert_eq!(take(5), (false, 5));
    assert_eq!(take(3), (true, 3));
    entered.sort();
    assert_eq!(entered, ["", "one", "two"].map(PathBuf::from));
}

#[test]
fn names_the_limit_that_is_reached() {
    let check = |error: notify::Error, expect: &str| {
        let text = cause(&error);
        assert!(text.contains(expect), "{text}");
    };
    check(
        notify::Error::new(ErrorKind::MaxFilesWatch),
        "max_user_watches",
    );
    let errno = |errno: Errno| notify::Error::io(errno.into());
    check(errno(Errno::MFILE), "max_user_instances");
    check(errno(Errno::NOSYS), "the system reports no changes: ");
}

#[test]
fn knows_file_systems_that_others_write_to() {
    for kind in [0x6969_u64, 0x6573_5546, 0x0102_1997] {
        assert!(is_remote_kind(kind), "{kind:x}");
    }
    // A signed word of 32 bits, widened.
    assert!(is_remote_kind(0xff53_4d42_u64));
    // ext4, tmpfs, overlayfs, btrfs
    for kind in [0xef53_u64, 0x0102_1994, 0x794c_7630, 0x9123_683e] {
        assert!(!is_remote_kind(kind), "{kind:x}");
    }
    assert!(!is_remote(Path::new("/does/not/exist")));
}

/// A change that a user makes to a tree.
#[derive(Clone, Debug)]
enum Edit {
    Write(usize),
    Remove(usize),
    Rename(usize, usize),
    RemoveFolder(usize),
    RenameFolder(usize, usize),
}

const FOLDERS: [&str; 5] = ["app", "app/a", "app/a/b", "app/c", "app/__pycache__"];

fn edit() -> impl Strategy<Value = Edit> {
    let folder = || 0..FOLDERS.len();
    prop_oneof![
        4 => folder().prop_map(Edit::Write),
        2 => folder().prop_map(Edit::Remove),
        2 => (folder(), folder()).prop_map(|(from, to)| Edit::Rename(from, to)),
        1 => folder().prop_map(Edit::RemoveFolder),
        1 => (1..FOLDERS.len(), 1..FOLDERS.len()).prop_map(|(from, to)| Edit::RenameFolder(from, to)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Whatever was done before, code that is written afterwards is reported wherever it counts.
    #[test]
    fn no_history_blinds(edits in proptest::collection::vec(edit(), 0..12)) {
        let mut bed = Bed::new(By::Kernel, &[], &[]);
        for edit in edits {
            let file = |folder: usize| bed.path(FOLDERS[folder]).join("m.py");
            let dir = |folder: usize| bed.path(FOLDERS[folder]);
            // Many of them fail, as they would for a user.
            match edit {
                Edit::Write(folder) => write(&file(folder), "x"),
                Edit::Remove(folder) => drop(fs::remove_file(file(folder))),
                Edit::Rename(from, to) => drop(fs::rename(file(from), file(to))),
                Edit::RemoveFolder(folder) => drop(fs::remove_dir_all(dir(folder))),
                Edit::RenameFolder(from, to) => drop(fs::rename(dir(from), dir(to))),
            }
        }
        fs::create_dir_all(bed.path("app")).unwrap();
        bed.changes();
        for folder in &FOLDERS[..4] {
            let name = format!("{folder}/last.py");
            write(&bed.path(&name), "");
            // By its own report: one of another folder would bring a look at all of them.
            prop_assert_eq!(bed.next(), name);
        }
        write(&bed.path("app/__pycache__/last.py"), "");
        prop_assert!(bed.changes().is_empty());
    }
}
