//! A transport in memory: a pair of ends with a bounded buffer each way. Only compiled with the feature `faults`.
//!
//! The server has an `End`, which never waits and wakes its driver; a test has a `Client`, which blocks its
//! thread until its patience is over. Nothing above `transport` may see a difference to a socket: the end of a
//! stream, a reset, and the reset that a close with unread bytes becomes, are those of TCP.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::WriteReadiness;
use crate::response::{Parts, Progress};
use crate::sync::lock;

/// Longest time that a test's thread waits here, unless it has another patience.
const PATIENCE: Duration = Duration::from_secs(60);

/// A new connection whose buffers hold `bytes_max` bytes each.
pub(crate) fn pair(bytes_max: usize) -> (End, Client) {
    let link = Arc::new(Link {
        state: Mutex::new(MemoryState {
            to_server: Pipe::new(bytes_max),
            to_client: Pipe::new(bytes_max),
            is_reset: false,
            is_reset_on_close: false,
            reader: None,
            writer: None,
        }),
        moved: Condvar::new(),
    });
    let client = Client {
        link: Arc::clone(&link),
        patience: PATIENCE,
    };
    (End { link }, client)
}

/// The server's end.
#[derive(Debug)]
pub(crate) struct End {
    link: Arc<Link>,
}

/// The client's end, for threads that may block: one may read while another writes.
#[derive(Debug)]
pub struct Client {
    link: Arc<Link>,
    patience: Duration,
}

#[derive(Debug)]
struct Link {
    state: Mutex<MemoryState>,
    /// Notified when the server's end has read, written, or closed.
    moved: Condvar,
}

#[derive(Debug)]
struct MemoryState {
    to_server: Pipe,
    to_client: Pipe,
    /// What is in the buffers is lost, and both ends know it.
    is_reset: bool,
    /// The server's close is to be a reset.
    is_reset_on_close: bool,
    /// The server's tasks that wait for bytes, and for room.
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Debug)]
struct Pipe {
    bytes: VecDeque<u8>,
    bytes_max: usize,
    /// Its writer has ended its side.
    is_ended: bool,
    /// The other end reads it no longer.
    is_abandoned: bool,
}

impl Pipe {
    fn new(bytes_max: usize) -> Self {
        Self {
            bytes: VecDeque::new(),
            bytes_max,
            is_ended: false,
            is_abandoned: false,
        }
    }

    fn room(&self) -> usize {
        self.bytes_max - self.bytes.len()
    }

    /// Takes what fits of `data`; gives how much that is.
    fn put(&mut self, data: &[u8]) -> usize {
        let fitting = data.len().min(self.room());
        self.bytes.extend(&data[..fitting]);
        fitting
    }

    /// Gives what is there, or 0 at the end; `None`: nothing yet.
    fn get(&mut self, buffer: &mut [u8]) -> Option<usize> {
        if self.bytes.is_empty() {
            return self.is_ended.then_some(0);
        }
        let bytes = self.bytes.read(buffer).expect("reading memory never fails");
        Some(bytes)
    }
}

impl MemoryState {
    fn reset(&mut self) {
        self.is_reset = true;
        self.to_server.bytes.clear();
        self.to_client.bytes.clear();
    }

    /// Wakes the server's tasks; each asks anew how things are.
    fn wake_server(&mut self) {
        let wakers = [self.reader.take(), self.writer.take()];
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// What the server gets of the client's bytes; `None`: nothing yet.
    fn receive(&mut self, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        match self.is_reset {
            true => Some(Err(ErrorKind::ConnectionReset.into())),
            false => self.to_server.get(buffer).map(Ok),
        }
    }

    /// Whether the server may send.
    fn check_sending(&self) -> io::Result<()> {
        match () {
            () if self.is_reset => Err(ErrorKind::ConnectionReset.into()),
            () if self.to_client.is_ended || self.to_client.is_abandoned => {
                Err(ErrorKind::BrokenPipe.into())
            }
            () => Ok(()),
        }
    }
}

impl End {
    /// Reads what has come; 0 bytes at the end of the client's side.
    pub(super) fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        match state.receive(buffer) {
            Some(received) => Poll::Ready(received),
            None => {
                state.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// As `poll_read`, but only what is there already; `None` when there is nothing.
    pub(super) fn read_now(&self, buffer: &mut [u8]) -> Option<usize> {
        let bytes = self.state().receive(buffer)?.ok();
        bytes.filter(|bytes| *bytes > 0)
    }

    /// Whether the client has sent something, or has ended its side.
    pub(super) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.poll_read(context, &mut []).map(drop)
    }

    /// Whether there is room, or an error to be found.
    pub(super) fn poll_writable(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<WriteReadiness<'_>>> {
        let mut state = self.state();
        if state.to_client.room() > 0 || state.check_sending().is_err() {
            return Poll::Ready(Ok(WriteReadiness(None)));
        }
        state.writer = Some(context.waker().clone());
        Poll::Pending
    }

    /// Offers buffers; gives the bytes that were taken, 0 when there is no room.
    pub(super) fn send(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.state();
        state.check_sending()?;
        let put = |buffer: &IoSlice<'_>| state.to_client.put(buffer);
        Ok(buffers.iter().map(put).sum())
    }

    /// Offers the front of `parts`, at most `most` bytes of it.
    pub(super) fn send_parts(&self, parts: &mut Parts, most: u64) -> io::Result<(Progress, u64)> {
        let mut state = self.state();
        state.check_sending()?;
        let room = state.to_client.room();
        let data = parts.take_waiting(usize::try_from(most).unwrap_or(usize::MAX).min(room))?;
        state.to_client.put(&data);
        let progress = match state.to_client.room() {
            _ if parts.is_empty() => Progress::Done,
            0 => Progress::Blocked,
            _ => Progress::More,
        };
        Ok((progress, data.len() as u64))
    }

    /// Bytes that the client has not read.
    pub(super) fn unacknowledged(&self) -> u64 {
        self.state().to_client.bytes.len() as u64
    }

    /// Ends the server's side.
    pub(super) fn close_write(&self) {
        self.state().to_client.is_ended = true;
    }

    /// Makes the close a reset.
    pub(super) fn reset_on_close(&self) {
        self.state().is_reset_on_close = true;
    }

    /// A client that waits has a look as soon as this lock is let go.
    fn state(&self) -> MutexGuard<'_, MemoryState> {
        let state = lock(&self.link.state);
        self.link.moved.notify_all();
        state
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.state();
        // As in TCP, the client cannot tell that the rest of what it sent was read, unless by a reset.
        if state.is_reset_on_close || !state.to_server.bytes.is_empty() {
            state.reset();
        }
        state.to_client.is_ended = true;
        state.to_server.is_abandoned = true;
    }
}

impl Client {
    /// How long reads and writes wait from now on before they fail with `TimedOut`.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Ends the client's side; it can still read.
    pub fn close_write(&self) {
        let mut state = lock(&self.link.state);
        state.to_server.is_ended = true;
        state.wake_server();
    }

    /// Resets the connection.
    pub fn reset(&self) {
        let mut state = lock(&self.link.state);
        state.reset();
        state.wake_server();
    }

    /// Does what `step` does as soon as it can be done.
    fn block<T>(
        &self,
        mut step: impl FnMut(&mut MemoryState) -> Option<io::Result<T>>,
    ) -> io::Result<T> {
        let until = Instant::now() + self.patience;
        let mut state = lock(&self.link.state);
        loop {
            if state.is_reset {
                return Err(ErrorKind::ConnectionReset.into());
            }
            if let Some(done) = step(&mut state) {
                state.wake_server();
                return done;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            let waited = self.link.moved.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Read for &Client {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.block(|state| state.to_client.get(buffer).map(Ok))
    }
}

impl Write for &Client {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.block(|state| match state.to_server.is_abandoned {
            true => Some(Err(ErrorKind::BrokenPipe.into())),
            false => Some(state.to_server.put(data))
                .filter(|put| *put > 0 || data.is_empty())
                .map(Ok),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Client {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for Client {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut state = lock(&self.link.state);
        if !state.to_client.bytes.is_empty() {
            state.reset();
        }
        state.to_server.is_ended = true;
        state.to_client.is_abandoned = true;
        state.wake_server();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::thread;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn parts(data: &[u8]) -> Parts {
        let mut parts = Parts::default();
        parts.push_copy(data);
        parts
    }

    #[test]
    fn wakes_the_server_for_bytes_and_for_room() {
        let (end, mut client) = pair(4);
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        assert!(end.poll_readable(&mut context).is_pending());
        client.write_all(b"ab").unwrap();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        let mut buffer = [0; 8];
        assert!(matches!(
            end.poll_read(&mut context, &mut buffer),
            Poll::Ready(Ok(2))
        ));
        assert_eq!(end.read_now(&mut buffer), None);
        let mut parts = parts(b"123456");
        assert_eq!(end.send_parts(&mut parts, 3).unwrap(), (Progress::More, 3));
        assert_eq!(
            end.send_parts(&mut parts, 9).unwrap(),
            (Progress::Blocked, 1)
        );
        assert_eq!(end.unacknowledged(), 4);
        assert!(end.poll_writable(&mut context).is_pending());
        assert_eq!(client.read(&mut buffer).unwrap(), 4);
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        assert!(end.poll_writable(&mut context).is_ready());
        assert_eq!(end.send_parts(&mut parts, 9).unwrap(), (Progress::Done, 2));
    }

    #[test]
    fn a_client_waits_for_the_server_and_no_longer_than_it_wants() {
        let (end, mut client) = pair(4);
        client.set_patience(Duration::ZERO);
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(client.write(b"12345").unwrap(), 4);
        let error = client.write(b"5").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        client.set_patience(PATIENCE);
        let reader = thread::spawn(move || {
            let mut all = Vec::new();
            client.read_to_end(&mut all).unwrap();
            all
        });
        let mut left = parts(&[7; 100]);
        while end.send_parts(&mut left, 9).unwrap().0 != Progress::Done {}
        assert_eq!(end.read_now(&mut [0; 9]), Some(4));
        drop(end);
        assert_eq!(reader.join().unwrap(), [7; 100]);
    }

    #[test]
    fn ends_and_resets_are_those_of_tcp() {
        let mut byte = [0];
        let (end, mut client) = pair(4);
        client.close_write();
        assert!(matches!(end.state().receive(&mut byte), Some(Ok(0))));
        end.close_write();
        assert_eq!(client.read(&mut byte).unwrap(), 0);

        let (end, mut client) = pair(4);
        end.reset_on_close();
        drop(end);
        let error = client.read(&mut byte).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);

        // Closed with something unread.
        let (end, mut client) = pair(4);
        client.write_all(b"a").unwrap();
        drop(end);
        let error = client.read(&mut byte).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);

        let (end, client) = pair(4);
        drop(client);
        let error = end.send(&[IoSlice::new(b"a")]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);

        let (end, client) = pair(4);
        client.reset();
        let context = &mut Context::from_waker(Waker::noop());
        let Poll::Ready(Err(error)) = end.poll_read(context, &mut byte) else {
            panic!("a reset is not seen");
        };
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}
