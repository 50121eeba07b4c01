//! A slow disk: a folder served again through FUSE, where each read (a lookup that brings an inode
//! in is one) and each write is answered so many milliseconds late. Requests are late beside one
//! another, as in the queue of a disk, never one after the other.
//!
//! Takes `slowfs FOLDER MOUNTPOINT READ_MS WRITE_MS [opens]`; prints `ready` when it is mounted, and
//! unmounts at SIGTERM, SIGINT, SIGHUP or at the end of stdin, whichever is first. A line
//! `stall SECONDS` on stdin has everything that changes the folder wait for so long from now on, and
//! is answered `stalled`. With `opens`, the kernel asks for each open as well, so that opening for
//! writing stalls too. Knows nothing of what is measured. What it shares with the kernel is in
//! `folder`, the waiting in `later`.

#![forbid(unsafe_code)]

mod folder;
mod later;

use std::io::{BufRead, stdin};
use std::path::Path;
use std::process::exit;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use fuser::{Config, MountOption, Session};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::folder::{Delays, Folder, Opens};
use crate::later::Stall;

const USAGE: &str = "usage: slowfs FOLDER MOUNTPOINT READ_MS WRITE_MS [opens]";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, mountpoint, read_ms, write_ms, more @ ..] = arguments.as_slice() else {
        fail(USAGE);
    };
    let delays = Delays {
        read: milliseconds(read_ms),
        write: milliseconds(write_ms),
        stall: Stall::default(),
        opens: match more {
            [] => Opens::ByTheKernel,
            [word] if word == "opens" => Opens::Asked,
            _ => fail(USAGE),
        },
    };
    if let Err(cause) = serve(Path::new(folder), Path::new(mountpoint), delays) {
        fail(&format!("`{mountpoint}`: {cause}"));
    }
}

fn serve(folder: &Path, mountpoint: &Path, delays: Delays) -> std::io::Result<()> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("slowfs".to_owned()),
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    // Before the mount: a signal in between must not leave it behind.
    let (ends, ended) = channel();
    end_at_signals(ends.clone())?;
    let stall = delays.stall.clone();
    let mounted = Session::new(Folder::open(folder, delays)?, mountpoint, &config)?.spawn()?;
    println!("ready");
    thread::spawn(move || obey_stdin(&stall, &ends));
    ended.recv().expect("the senders' threads never let go");
    mounted.umount_and_join()
}

fn end_at_signals(ends: Sender<()>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    thread::spawn(move || {
        for _ in signals.forever() {
            let _ = ends.send(());
        }
    });
    Ok(())
}

fn obey_stdin(stall: &Stall, ends: &Sender<()>) {
    for line in stdin().lock().lines() {
        let Ok(line) = line else { break };
        match line.strip_prefix("stall ").map(str::parse) {
            Some(Ok(seconds)) => {
                stall.begin(Duration::from_secs(seconds));
                println!("stalled");
            }
            _ => println!("`{line}` is not `stall SECONDS`"),
        }
    }
    let _ = ends.send(());
}

fn milliseconds(text: &str) -> Duration {
    match text.parse() {
        Ok(count) => Duration::from_millis(count),
        Err(_) => fail(&format!("`{text}` is not a number of milliseconds")),
    }
}

fn fail(what: &str) -> ! {
    eprintln!("slowfs: {what}");
    exit(2)
}
