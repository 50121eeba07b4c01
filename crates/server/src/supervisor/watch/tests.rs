//! Real folders and the real kernel, with a clock that is only told: the kernel queues what happened before
//! the call that did it returns, so nothing here waits.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// How a test watches.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Kernel,
    Looking,
}

/// A folder `app` that is watched, a folder `etc` beside it, and a clock.
struct Bed {
    _dir: TempDir,
    root: PathBuf,
    watch: Watch,
    now: Stamp,
}

impl Bed {
    /// Watches `app`, with these files in it or beside it; the names in `files` are watched for themselves.
    fn new(by: By, present: &[&str], files: &[&str]) -> Bed {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for folder in ["app", "etc"] {
            fs::create_dir(root.join(folder)).unwrap();
        }
        for name in present {
            write(&root.join(name), "first");
        }
        let files: Vec<PathBuf> = files.iter().map(|name| root.join(name)).collect();
        let watches_len = if by == By::Kernel { usize::MAX } else { 0 };
        let now = Stamp(1_000_000_000);
        let watch = Watch::within(watches(watches_len), &[root.join("app")], &files, now);
        assert_eq!(watch.fd().is_some(), by == By::Kernel);
        Bed {
            _dir: dir,
            root,
            watch,
            now,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// What is given after so many milliseconds.
    fn after(&mut self, ms: u64) -> Option<PathBuf> {
        self.now = self.now.plus(Nanos::from_ms(ms));
        self.watch.changed(self.now)
    }

    /// Everything that is given until nothing more comes, by name below the root.
    fn settled(&mut self) -> Vec<String> {
        let mut given = Vec::new();
        for _ in 0..100 {
            given.extend(self.after(0));
            // As the caller would wait, or a little more than a look where there is nothing to wait for.
            let deadline = self
                .watch
                .deadline()
                .min(self.now.plus(Nanos::from_ms(1100)));
            self.now = self.now.plus(deadline.since(self.now));
            given.extend(self.after(0));
        }
        let name = |path: PathBuf| path.strip_prefix(&self.root).unwrap().display().to_string();
        given.into_iter().map(name).collect()
    }

    #[track_caller]
    fn expect(&mut self, given: &[&str]) {
        assert_eq!(self.settled(), given);
    }
}

fn watches(watches_len: usize) -> Bounds {
    Bounds {
        watches_len,
        ..Bounds::default()
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Both ways, in turn.
fn both(present: &[&str], files: &[&str], test: impl Fn(&mut Bed)) {
    for by in [By::Kernel, By::Looking] {
        let mut bed = Bed::new(by, present, files);
        bed.expect(&[]);
        test(&mut bed);
    }
}

#[test]
fn tells_of_code_that_is_written() {
    both(&["app/a.py"], &[], |bed| {
        write(&bed.path("app/a.py"), "second");
        bed.expect(&["app/a.py"]);
        bed.expect(&[]);
        write(&bed.path("app/new.py"), "");
        bed.expect(&["app/new.py"]);
        fs::remove_file(bed.path("app/a.py")).unwrap();
        bed.expect(&["app/a.py"]);
        write(&bed.path("app/fast.cpython-311-x86_64-linux-gnu.so"), "");
        bed.expect(&["app/fast.cpython-311-x86_64-linux-gnu.so"]);
    });
}

#[test]
fn tells_of_editors_that_rename() {
    both(&["app/a.py"], &[], |bed| {
        // Vim: a probe, the old file aside, the new one written, the old one gone.
        write(&bed.path("app/4913"), "");
        fs::remove_file(bed.path("app/4913")).unwrap();
        fs::rename(bed.path("app/a.py"), bed.path("app/a.py~")).unwrap();
        write(&bed.path("app/a.py"), "vim");
        fs::remove_file(bed.path("app/a.py~")).unwrap();
        bed.expect(&["app/a.py"]);
        // Others: a file beside it, renamed over the old one.
        write(&bed.path("app/.a.py.tmp"), "other");
        bed.expect(&[]);
        fs::rename(bed.path("app/.a.py.tmp"), bed.path("app/a.py")).unwrap();
        bed.expect(&["app/a.py"]);
        // From a folder that nobody watches.
        write(&bed.path("etc/b.py"), "moved in");
        fs::rename(bed.path("etc/b.py"), bed.path("app/b.py")).unwrap();
        bed.expect(&["app/b.py"]);
    });
}

#[test]
fn tells_of_links_that_are_made() {
    both(&["etc/real.py"], &[], |bed| {
        symlink(bed.path("etc/real.py"), bed.path("app/soft.py")).unwrap();
        bed.expect(&["app/soft.py"]);
        fs::hard_link(bed.path("etc/real.py"), bed.path("app/hard.py")).unwrap();
        bed.expect(&["app/hard.py"]);
    });
}

#[test]
fn sees_into_folders_that_come() {
    both(&[], &[], |bed| {
        fs::create_dir(bed.path("app/sub")).unwrap();
        bed.expect(&[]);
        write(&bed.path("app/sub/a.py"), "");
        bed.expect(&["app/sub/a.py"]);
        // All at once: the code is there before anybody can watch its folder.
        write(&bed.path("app/one/two/three/b.py"), "");
        bed.expect(&["app/one/two/three/b.py"]);
        write(&bed.path("app/one/two/three/b.py"), "again");
        bed.expect(&["app/one/two/three/b.py"]);
        // A folder with code is moved in.
        write(&bed.path("etc/moved/c.py"), "");
        fs::rename(bed.path("etc/moved"), bed.path("app/moved")).unwrap();
        bed.expect(&["app/moved/c.py"]);
    });
}

#[test]
fn forgets_folders_that_go() {
    for by in [By::Kernel, By::Looking] {
        let mut bed = Bed::new(by, &["app/sub/deep/a.py", "app/b.py"], &[]);
        fs::remove_dir_all(bed.path("app/sub")).unwrap();
        bed.expect(&["app/sub/deep/a.py"]);
        write(&bed.path("app/sub/deep/a.py"), "back");
        bed.expect(&["app/sub/deep/a.py"]);
        // Moved away it is no business of ours.
        fs::rename(bed.path("app/sub"), bed.path("etc/sub")).unwrap();
        assert_eq!(bed.settled().len(), 1);
        write(&bed.path("etc/sub/deep/a.py"), "elsewhere");
        bed.expect(&[]);
    }
}

#[test]
fn follows_a_folder_that_is_renamed() {
    both(&["app/old/deep/a.py"], &[], |bed| {
        fs::rename(bed.path("app/old"), bed.path("app/new")).unwrap();
        assert_eq!(bed.settled().len(), 1);
        write(&bed.path("app/new/deep/a.py"), "second");
        bed.expect(&["app/new/deep/a.py"]);
    });
}

#[test]
fn follows_a_folder_that_moved_into_one_that_is_new() {
    both(&["app/old/a.py"], &[], |bed| {
        // The new folder is walked before the kernel's word of the move has been read.
        fs::create_dir(bed.path("app/new")).unwrap();
        fs::rename(bed.path("app/old"), bed.path("app/new/old")).unwrap();
        assert_eq!(bed.settled().len(), 1);
        write(&bed.path("app/new/old/a.py"), "second");
        bed.expect(&["app/new/old/a.py"]);
    });
}

#[test]
fn a_place_that_moved_into_another_is_looked_for_where_it_was() {
    both(&["etc/named.txt"], &["etc/named.txt"], |bed| {
        fs::create_dir(bed.path("app/new")).unwrap();
        fs::rename(bed.path("etc"), bed.path("app/new/etc")).unwrap();
        bed.settled();
        write(&bed.path("app/new/etc/a.py"), "in a tree now");
        bed.expect(&["app/new/etc/a.py"]);
        write(&bed.path("etc/named.txt"), "back");
        assert_eq!(bed.settled().len(), 1);
        write(&bed.path("etc/named.txt"), "second");
        bed.expect(&["etc/named.txt"]);
    });
}

#[test]
fn finds_a_place_again_that_was_gone() {
    for by in [By::Kernel, By::Looking] {
        let mut bed = Bed::new(by, &["app/a.py"], &[]);
        fs::remove_dir_all(bed.path("app")).unwrap();
        assert_eq!(bed.settled().len(), 1, "{by:?}");
        write(&bed.path("app/sub/a.py"), "checked out again");
        assert_eq!(bed.settled().len(), 1, "{by:?}");
        write(&bed.path("app/sub/a.py"), "second");
        bed.expect(&["app/sub/a.py"]);
        fs::rename(bed.path("app"), bed.path("aside")).unwrap();
        assert_eq!(bed.settled().len(), 1, "{by:?}");
        write(&bed.path("aside/sub/a.py"), "aside");
        bed.expect(&[]);
    }
}

#[test]
fn a_thousand_writes_are_one_change() {
    both(&[], &[], |bed| {
        for at in 0..1000 {
            write(&bed.path(&format!("app/m{at:03}.py")), "code");
        }
        bed.expect(&["app/m000.py"]);
    });
}

#[test]
fn more_than_the_kernel_queues_is_one_change() {
    let queue = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let queue_len: usize = queue.trim().parse().unwrap();
    let mut bed = Bed::new(By::Kernel, &["app/sub/a.py"], &[]);
    // Each of these is two events that cannot be merged.
    for at in 0..=queue_len.min(100_000) {
        let path = bed.path(&format!("app/sub/m{}.txt", at % 2));
        write(&path, "");
    }
    write(&bed.path("app/sub/a.py"), "this was lost");
    assert_eq!(bed.settled().len(), 1);
    write(&bed.path("app/sub/a.py"), "this is not");
    bed.expect(&["app/sub/a.py"]);
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
            "app/#a.py#",
            "app/__pycache__/b.py",
            "app/.idea/new/b.py",
        ] {
            write(&bed.path(name), "new");
        }
        bed.expect(&[]);
        // Not what only looks like it.
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
fn follows_no_link_below_a_place() {
    both(&["etc/a.py"], &[], |bed| {
        symlink(bed.path("etc"), bed.path("app/etc")).unwrap();
        symlink(bed.path("app"), bed.path("app/round")).unwrap();
        bed.expect(&[]);
        write(&bed.path("etc/a.py"), "second");
        bed.expect(&[]);
    });
}

#[test]
fn tells_of_named_files_whatever_they_are() {
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
        // A folder that looks like code is none.
        fs::create_dir(bed.path("app/folder.py")).unwrap();
        bed.expect(&[]);
    });
}

#[test]
fn sees_through_a_named_file_that_is_a_link() {
    for by in [By::Kernel, By::Looking] {
        let mut bed = Bed::new(by, &["etc/v1.toml", "etc/v2.toml"], &[]);
        symlink("v1.toml", bed.path("etc/site.toml")).unwrap();
        let now = bed.now;
        bed.watch.extend(&[], &[bed.path("etc/site.toml")], now);
        bed.expect(&[]);
        write(&bed.path("etc/v1.toml"), "what the link names");
        // Looking, both names have changed.
        assert_eq!(bed.settled().len(), 1, "{by:?}");
        symlink("v2.toml", bed.path("etc/new")).unwrap();
        fs::rename(bed.path("etc/new"), bed.path("etc/site.toml")).unwrap();
        bed.expect(&["etc/site.toml"]);
    }
}

#[test]
fn what_comes_under_watch_is_no_change() {
    both(&["etc/lib/a.py", "etc/m.py"], &[], |bed| {
        let now = bed.now;
        bed.watch.extend(&[], &[bed.path("etc/m.py")], now);
        write(&bed.path("etc/lib/a.py"), "second");
        bed.expect(&[]);
        write(&bed.path("app/b.py"), "meanwhile");
        let now = bed.now;
        // The same folder, wider than before.
        bed.watch.extend(&[bed.path("etc")], &[], now);
        bed.watch.extend(&[bed.path("etc")], &[], now);
        bed.expect(&["app/b.py"]);
        write(&bed.path("etc/lib/a.py"), "third");
        bed.expect(&["etc/lib/a.py"]);
        write(&bed.path("etc/m.py"), "second");
        bed.expect(&["etc/m.py"]);
    });
}

#[test]
fn waits_until_a_file_is_complete() {
    let mut bed = Bed::new(By::Kernel, &[], &[]);
    let mut file = File::create(bed.path("app/a.py")).unwrap();
    for _ in 0..10 {
        file.write_all(b"half of ").unwrap();
        assert_eq!(bed.after(500), None);
    }
    drop(file);
    bed.expect(&["app/a.py"]);
}

#[test]
fn waits_for_rest_but_not_for_ever() {
    let mut bed = Bed::new(By::Kernel, &[], &[]);
    let path = bed.path("app/a.py");
    let mut waited_ms = 0;
    write(&path, "");
    while bed.after(0).is_none() {
        write(&path, "");
        assert!(bed.watch.deadline().since(bed.now) <= QUIET);
        bed.now = bed.now.plus(Nanos::from_ms(40));
        waited_ms += 40;
        assert!(waited_ms < 3000);
    }
    assert_eq!(waited_ms, 2000);
    bed.expect(&[]);
    // Once there is rest: 50 ms, not earlier.
    write(&path, "");
    assert_eq!(bed.after(0), None);
    assert_eq!(bed.watch.deadline(), bed.now.plus(QUIET));
    assert_eq!(bed.after(49), None);
    assert_eq!(bed.after(1), Some(path));
    assert_eq!(bed.watch.deadline(), Stamp::NEVER);
}

#[test]
fn looks_once_a_second_where_watches_have_run_out() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let watch_with = |watches_len| {
        write(&root.join("one/two/a.py"), "first");
        Watch::within(
            watches(watches_len),
            std::slice::from_ref(&root),
            &[],
            Stamp(1),
        )
    };
    let mut enough = watch_with(3);
    assert_eq!(enough.notice(), None);
    assert!(enough.fd().is_some());
    let mut watch = watch_with(2);
    let notice = watch.notice().unwrap();
    assert!(notice.contains("max_user_watches"), "{notice}");
    assert!(notice.ends_with("once a second instead"), "{notice}");
    assert_eq!(watch.notice(), None);
    // They run out later, too; what happened meanwhile is not known, so it counts as a change.
    write(&root.join("one/three/b.py"), "");
    assert_eq!(enough.changed(Stamp(2)), None);
    assert!(enough.fd().is_none() && enough.notice().is_some());
    assert!(enough.changed(enough.deadline()).is_some());
    assert_eq!(watch.deadline(), Stamp(1).plus(LOOK_INTERVAL));
}

#[test]
fn the_nearest_folders_are_watched_where_there_are_too_many() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for name in ["one/deep/a.py", "two/deep/a.py"] {
        write(&root.join(name), "first");
    }
    let watch_with = |folders_len| {
        let bounds = Bounds {
            folders_len,
            ..Bounds::default()
        };
        Watch::within(bounds, std::slice::from_ref(&root), &[], Stamp(1))
    };
    assert_eq!(watch_with(5).notice(), None);
    let mut watch = watch_with(3);
    let notice = watch.notice().unwrap();
    assert!(notice.contains("more than 3 folders"), "{notice}");
    write(&root.join("one/deep/a.py"), "second");
    assert_eq!(watch.changed(Stamp(2)), None);
    assert_eq!(watch.deadline(), Stamp::NEVER);
    write(&root.join("two/a.py"), "");
    assert_eq!(watch.changed(Stamp(3)), None);
    let path = root.join("two/a.py");
    assert_eq!(watch.changed(Stamp(3).plus(QUIET)), Some(path));
}

#[test]
fn says_which_limit_it_was() {
    let check = |error: Errno, expect: &str| {
        let text = cause(&io::Error::from(error));
        assert!(text.contains(expect), "{text}");
    };
    check(Errno::NOSPC, "max_user_watches");
    check(Errno::MFILE, "max_user_instances");
    check(Errno::NOSYS, "does not tell of changes: ");
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
    assert!(!is_remote(Path::new("/proc")));
    assert!(!is_remote(Path::new("/does/not/exist")));
}

/// What somebody does to a tree.
#[derive(Clone, Debug)]
enum Deed {
    Write(usize),
    Remove(usize),
    Rename(usize, usize),
    RemoveFolder(usize),
    RenameFolder(usize, usize),
}

const FOLDERS: [&str; 5] = ["app", "app/a", "app/a/b", "app/c", "app/__pycache__"];

fn deed() -> impl Strategy<Value = Deed> {
    let place = || 0..FOLDERS.len();
    prop_oneof![
        4 => place().prop_map(Deed::Write),
        2 => place().prop_map(Deed::Remove),
        2 => (place(), place()).prop_map(|(from, to)| Deed::Rename(from, to)),
        1 => place().prop_map(Deed::RemoveFolder),
        1 => (1..FOLDERS.len(), 1..FOLDERS.len()).prop_map(|(from, to)| Deed::RenameFolder(from, to)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever was done before, code that is written afterwards is told of wherever it counts.
    #[test]
    fn no_history_blinds(deeds in proptest::collection::vec(deed(), 0..12), reads in any::<u16>()) {
        let mut bed = Bed::new(By::Kernel, &[], &[]);
        for (at, deed) in deeds.into_iter().enumerate() {
            let file = |folder: usize| bed.path(FOLDERS[folder]).join("m.py");
            let dir = |folder: usize| bed.path(FOLDERS[folder]);
            // Many of them fail, as they would for anybody.
            match deed {
                Deed::Write(folder) => write(&file(folder), "x"),
                Deed::Remove(folder) => drop(fs::remove_file(file(folder))),
                Deed::Rename(from, to) => drop(fs::rename(file(from), file(to))),
                Deed::RemoveFolder(folder) => drop(fs::remove_dir_all(dir(folder))),
                Deed::RenameFolder(from, to) => drop(fs::rename(dir(from), dir(to))),
            }
            if reads & (1 << (at % 16)) != 0 {
                bed.after(10);
            }
        }
        // A place that comes back is told of by its own name.
        fs::create_dir_all(bed.path("app")).unwrap();
        bed.settled();
        for folder in &FOLDERS[..4] {
            let name = format!("{folder}/last.py");
            write(&bed.path(&name), "");
            prop_assert_eq!(bed.settled(), vec![name]);
        }
        write(&bed.path("app/__pycache__/last.py"), "");
        prop_assert!(bed.settled().is_empty());
    }
}
