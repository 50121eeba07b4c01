//! One connection of a client that reads as it likes, under a plan.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use server::transport::faults::{self, Plan, Planned};

use super::dice::Dice;
use super::support::{PATIENCE, Running};

pub(super) struct Visit {
    stream: TcpStream,
    planned: Planned,
    dice: Dice,
    manner: Manner,
}

/// How a client reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// As much as there is.
    Quick,
    /// Some bytes at a time, with pauses.
    Moody,
}

/// How a connection ended for its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// In order.
    Closed,
    Reset,
}

impl Visit {
    /// Connects; `plan` is in force as long as this lives, and the client's manners go by `seed`.
    pub(super) fn begin(running: &Running, plan: Plan, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let manner = match dice.below(3) {
            0 => {
                // Small enough that the server really meets a full socket.
                socket.set_recv_buffer_size(4096).unwrap();
                Manner::Moody
            }
            1 => Manner::Moody,
            _ => Manner::Quick,
        };
        socket.connect(&running.address.into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let planned = faults::plan(stream.local_addr().unwrap(), plan);
        Self {
            stream,
            planned,
            dice,
            manner,
        }
    }

    /// Calls that the server has made to send to this client.
    pub(super) fn steps(&self) -> u64 {
        self.planned.steps()
    }

    /// Sends requests; a connection that was reset meanwhile takes none.
    pub(super) fn ask(&mut self, requests: &[u8]) {
        let _ = self.stream.write_all(requests);
    }

    /// Sends nothing more.
    pub(super) fn half_close(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Reads `bytes` bytes; fewer come only where the connection ends.
    pub(super) fn read(&mut self, bytes: usize) -> (Vec<u8>, Option<End>) {
        let mut received = Vec::with_capacity(bytes.min(4 << 20));
        let mut buffer = vec![0; 64 << 10];
        while received.len() < bytes {
            let most = self.bite(buffer.len()).min(bytes - received.len());
            match self.stream.read(&mut buffer[..most]) {
                Ok(0) => return (received, Some(End::Closed)),
                Ok(more) => received.extend_from_slice(&buffer[..more]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return (received, Some(End::Reset));
                }
                Err(error) => panic!("after {} bytes: {error}", received.len()),
            }
        }
        (received, None)
    }

    /// Reads all that comes.
    pub(super) fn read_to_end(&mut self) -> (Vec<u8>, End) {
        let (received, end) = self.read(usize::MAX);
        (received, end.expect("no reply is that long"))
    }

    fn bite(&mut self, most: usize) -> usize {
        if self.manner == Manner::Quick {
            return most;
        }
        match self.dice.below(20) {
            0 => thread::sleep(Duration::from_micros(500)),
            1 => thread::yield_now(),
            _ => {}
        }
        match self.dice.below(4) {
            0 => 1 + self.dice.below(100),
            _ => 1 + self.dice.below(most),
        }
    }
}
