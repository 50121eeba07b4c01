//! A reader that is read on a thread of its own: decompression beside the counting.
//!
//! Takes a reader, gives its bytes in the same order. At most four blocks wait; the thread ends with its
//! reader, or when its blocks are no longer taken.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;

const BLOCKS_LEN_MAX: usize = 4;
const BLOCK_BYTES: usize = 256 << 10;

/// The taking end.
#[derive(Debug)]
pub(crate) struct Piped {
    blocks: Receiver<io::Result<Vec<u8>>>,
    empty: SyncSender<Vec<u8>>,
    block: Vec<u8>,
    at: usize,
    has_ended: bool,
}

impl Piped {
    /// Starts reading.
    pub(crate) fn start(reader: impl Read + Send + 'static) -> io::Result<Piped> {
        Piped::start_with(|| Ok(reader))
    }

    /// Starts reading from what `open` gives; it is called on the thread, and may wait.
    pub(crate) fn start_with<R: Read>(
        open: impl FnOnce() -> io::Result<R> + Send + 'static,
    ) -> io::Result<Piped> {
        let (full_end, blocks) = sync_channel(BLOCKS_LEN_MAX);
        // Room for all blocks that there are, those of both sides included: each comes back to be filled again.
        let (empty, empty_end) = sync_channel::<Vec<u8>>(BLOCKS_LEN_MAX + 2);
        thread::Builder::new()
            .name("report-read".to_owned())
            .spawn(move || pump(open, &full_end, &empty_end))?;
        Ok(Piped {
            blocks,
            empty,
            block: Vec::new(),
            at: 0,
            has_ended: false,
        })
    }

    /// Whether a read would not wait.
    pub(crate) fn is_ready(&mut self) -> io::Result<bool> {
        if self.at < self.block.len() || self.has_ended {
            return Ok(true);
        }
        match self.blocks.try_recv() {
            Ok(block) => self.put(block?),
            Err(TryRecvError::Empty) => return Ok(false),
            Err(TryRecvError::Disconnected) => self.has_ended = true,
        }
        Ok(true)
    }

    fn put(&mut self, block: Vec<u8>) {
        assert_eq!(
            self.at,
            self.block.len(),
            "no byte of a block is passed over"
        );
        let old = std::mem::replace(&mut self.block, block);
        self.at = 0;
        // Full or gone: then it is freed.
        let _ = self.empty.try_send(old);
    }
}

impl Read for Piped {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.block.len() && !self.has_ended {
            match self.blocks.recv() {
                Ok(block) => self.put(block?),
                Err(_) => self.has_ended = true,
            }
        }
        let rest = &self.block[self.at..];
        let bytes = rest.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&rest[..bytes]);
        self.at += bytes;
        Ok(bytes)
    }
}

/// The thread: blocks until the end of the reader, or until they are no longer taken.
fn pump<R: Read>(
    open: impl FnOnce() -> io::Result<R>,
    full: &SyncSender<io::Result<Vec<u8>>>,
    empty: &Receiver<Vec<u8>>,
) {
    let mut reader = match open() {
        Ok(reader) => reader,
        Err(fault) => {
            // The reader may be gone.
            let _ = full.send(Err(fault));
            return;
        }
    };
    loop {
        let mut block = empty.try_recv().unwrap_or_default();
        block.resize(BLOCK_BYTES, 0);
        let filled = fill(&mut reader, &mut block);
        if matches!(filled, Ok(0)) {
            return;
        }
        let is_last = filled.is_err();
        let message = filled.map(|bytes| {
            block.truncate(bytes);
            block
        });
        if full.send(message).is_err() || is_last {
            return;
        }
    }
}

/// One read: a pipe's few bytes are given on at once.
fn fill(reader: &mut impl Read, block: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(block) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
