//! When replies reached this machine, by the kernel's own stamps.
//!
//! A generator that is busy reads a reply when it comes round to it. The kernel notes when each packet came in
//! (socket(7), SO_TIMESTAMPNS), by the clock of the day; the note is converted to the clock that everything else
//! here is measured by. One system call a read as without, `recvmsg` in place of `recv`.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use rustix::time::{ClockId, clock_gettime};
use telemetry::{Nanos, Stamp, now};

/// A look at both clocks that took no longer is good enough.
const QUICK: Nanos = Nanos(1_000);
/// Looks at both clocks at once.
const LOOKS_MAX: usize = 4;

/// What a thread needs to read stamps.
#[derive(Debug)]
pub(super) struct ReceiveStamps {
    control: Vec<u8>,
    /// How far the clock of the day is ahead of the other one, in nanoseconds.
    ahead: u64,
}

/// Has the kernel note when packets of this connection come in.
pub(super) fn ask_for(socket: &OwnedFd) {
    // Without it a reply counts as arrived when it is read.
    let _ = setsockopt(socket, ReceiveTimestampns, &true);
}

impl ReceiveStamps {
    pub(super) fn new() -> ReceiveStamps {
        let mut stamps = ReceiveStamps {
            control: nix::cmsg_space!(TimeSpec),
            ahead: 0,
        };
        stamps.set_clock();
        stamps
    }

    /// Compares the two clocks, of which the one of the day is pushed and pulled. To be called now and then.
    ///
    /// A thread that was held between the two would take that for a difference: the quickest look counts.
    pub(super) fn set_clock(&mut self) {
        let mut quickest = Nanos(u64::MAX);
        for _ in 0..LOOKS_MAX {
            let before = now();
            let day = clock_gettime(ClockId::Realtime);
            let took = now().since(before);
            if took < quickest {
                quickest = took;
                let day = day.tv_sec as u64 * 1_000_000_000 + day.tv_nsec as u64;
                self.ahead = day.saturating_sub(before.0 + took.0 / 2);
            }
            if took < QUICK {
                return;
            }
        }
    }

    /// Bytes, and when the last of them came in; [`Stamp::ZERO`]: the kernel does not say.
    pub(super) fn receive(
        &mut self,
        socket: &OwnedFd,
        buffer: &mut [u8],
    ) -> io::Result<(usize, Stamp)> {
        let mut parts = [IoSliceMut::new(buffer)];
        let control = Some(&mut self.control[..]);
        let got = recvmsg::<()>(socket.as_raw_fd(), &mut parts, control, MsgFlags::empty())?;
        let stamp = got.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(stamp) => Some(stamp),
            _ => None,
        });
        let arrived = stamp.map_or(Stamp::ZERO, |stamp| {
            let day = stamp.tv_sec() as u64 * 1_000_000_000 + stamp.tv_nsec() as u64;
            // As old as the last comparison of the clocks, which is made each turn: a day that is set in between is
            // wrong for one turn.
            Stamp(day.saturating_sub(self.ahead))
        });
        Ok((got.bytes, arrived))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    #[test]
    fn tells_when_bytes_came_in_however_late_they_are_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.set_nodelay(true).unwrap();
        let client = OwnedFd::from(client);
        ask_for(&client);
        let mut stamps = ReceiveStamps::new();
        // The kernel begins to note times a moment after it was asked to.
        for _ in 0..1_000 {
            let before = now();
            server.write_all(b"late").unwrap();
            let after = now();
            std::thread::sleep(Duration::from_millis(20));
            stamps.set_clock();
            let (bytes, arrived) = stamps.receive(&client, &mut [0; 16]).unwrap();
            assert_eq!(bytes, 4);
            if arrived == Stamp::ZERO {
                continue;
            }
            // Loopback delivers within the call; the clocks were compared to a few microseconds.
            let slack = Nanos::from_ms(1);
            assert!(before <= arrived.plus(slack), "{before:?} {arrived:?}");
            assert!(arrived <= after.plus(slack), "{arrived:?} {after:?}");
            return;
        }
        panic!("the kernel says nothing");
    }

    #[test]
    fn takes_what_has_no_stamp() {
        let (mut one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        one.write_all(b"x").unwrap();
        let other = OwnedFd::from(other);
        let got = ReceiveStamps::new().receive(&other, &mut [0; 16]).unwrap();
        assert_eq!(got, (1, Stamp::ZERO));
        drop(one);
        let got = ReceiveStamps::new().receive(&other, &mut [0; 16]).unwrap();
        assert_eq!(got, (0, Stamp::ZERO));
    }
}
