//! The floor: what the kernel alone costs. One thread, one level-triggered epoll; every `recv`
//! that brings bytes is answered by one `send` of a canned reply. Nothing is parsed, so it is
//! right only for a client that sends each request in one piece and never pipelines (wrk).
//!
//! Takes `floor PORT REPLY_FILE`; listens on 127.0.0.1 until it is killed.
//! Must not grow: whatever is added here raises the floor that Milepost is held against.

use std::fs;
use std::io::Result;
use std::os::raw::c_int;
use std::process::exit;

use milepost_floor::{EVENTS_MAX, accept, close, epoll, listen, receive, send_all, wait, watch};

const REQUEST_BYTES_MAX: usize = 16 * 1024;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, port, reply_file] = arguments.as_slice() else {
        fail("usage: floor PORT REPLY_FILE");
    };
    let Ok(port) = port.parse::<u16>() else {
        fail("PORT is not a number from 0 to 65535");
    };
    let reply =
        fs::read(reply_file).unwrap_or_else(|cause| fail(&format!("`{reply_file}`: {cause}")));
    if let Err(cause) = serve(port, &reply) {
        fail(&cause.to_string());
    }
}

fn fail(what: &str) -> ! {
    eprintln!("floor: {what}");
    exit(2)
}

fn serve(port: u16, reply: &[u8]) -> Result<()> {
    let listener = listen(port)?;
    let epoll = epoll()?;
    watch(epoll, listener)?;
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
    let mut request = [0_u8; REQUEST_BYTES_MAX];
    loop {
        for event in wait(epoll, &mut events) {
            let fd = event.u64 as c_int;
            if fd == listener {
                accept(epoll, listener)?;
            } else if receive(fd, &mut request) <= 0 || !send_all(fd, reply) {
                // A short send is not completed: the client sees the cut, and the run shows errors.
                close(fd);
            }
        }
    }
}
