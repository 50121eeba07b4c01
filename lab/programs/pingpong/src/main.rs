//! Two threads wake each other by two eventfds, as the driver and the event loop of a server do; each waits in `read`.
//!
//! Takes `pingpong COUNT PAUSE_US`: there are so many round trips, with a pause before each, because threads that have
//! just slept take longer. Prints the median round trip in nanoseconds.

use std::io::{Error, Result};
use std::mem::size_of;
use std::process::exit;
use std::thread;
use std::time::{Duration, Instant};

fn main() {
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok())
        .collect();
    let [count, pause_us] = numbers.as_slice() else {
        fail("usage: pingpong COUNT PAUSE_US");
    };
    match median(*count, Duration::from_micros(*pause_us)) {
        Ok(ns) => println!("{ns}"),
        Err(cause) => fail(&cause.to_string()),
    }
}

fn fail(what: &str) -> ! {
    eprintln!("pingpong: {what}");
    exit(2)
}

fn median(count: u64, pause: Duration) -> Result<u128> {
    let (there, back) = (eventfd()?, eventfd()?);
    let other = thread::spawn(move || -> Result<()> {
        for _ in 0..count {
            wait(there)?;
            wake(back)?;
        }
        Ok(())
    });
    let mut trips = Vec::new();
    for _ in 0..count {
        thread::sleep(pause);
        let began = Instant::now();
        wake(there)?;
        wait(back)?;
        trips.push(began.elapsed().as_nanos());
    }
    other.join().expect("the other thread does not panic")?;
    trips.sort_unstable();
    trips
        .get(trips.len() / 2)
        .copied()
        .ok_or_else(|| Error::other("no round trip"))
}

fn eventfd() -> Result<i32> {
    // SAFETY: takes no pointer.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    match fd {
        -1 => Err(Error::last_os_error()),
        fd => Ok(fd),
    }
}

fn wake(fd: i32) -> Result<()> {
    let one = 1_u64;
    // SAFETY: the eight bytes of `one`.
    let wrote = unsafe { libc::write(fd, (&raw const one).cast(), size_of::<u64>()) };
    checked(wrote)
}

fn wait(fd: i32) -> Result<()> {
    let mut count = 0_u64;
    // SAFETY: the eight bytes of `count`.
    let read = unsafe { libc::read(fd, (&raw mut count).cast(), size_of::<u64>()) };
    checked(read)
}

fn checked(bytes: isize) -> Result<()> {
    match bytes {
        8 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}
