//! Spoolers: threads that write request bodies beyond `readahead` into unnamed files, so that no driver
//! waits for a disk.
//!
//! A connection has at most one buffer with a spooler, and its driver reads nothing more from that
//! client until the buffer comes back: a slow disk holds up its own client only. So the queues are
//! bounded by the number of connections.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc;

use tokio::sync::oneshot;

use crate::unnamed::unnamed_file;

/// A body that is being written.
#[derive(Debug)]
pub(crate) struct Spooled {
    pub(crate) file: File,
    pub(crate) bytes: u64,
}

struct Errand {
    spooled: Option<Spooled>,
    data: Vec<u8>,
    answer: oneshot::Sender<Written>,
}

type Written = io::Result<(Spooled, Vec<u8>)>;

/// The drivers' end of all spooler threads.
#[derive(Clone)]
pub(crate) struct Spoolers {
    errands: Vec<mpsc::Sender<Errand>>,
}

impl Spoolers {
    /// Starts `threads` spoolers; they end when the last clone of the result is gone.
    pub(crate) fn start(threads: usize, dir: &Path) -> io::Result<Self> {
        let mut errands = Vec::new();
        for index in 0..threads {
            let (sender, receiver) = mpsc::channel();
            let dir = dir.to_owned();
            let name = format!("mp-spool-{index}");
            std::thread::Builder::new()
                .name(name)
                .spawn(move || work(&receiver, &dir))?;
            errands.push(sender);
        }
        Ok(Self { errands })
    }

    /// Appends `data` to a body, making its file first where there is none; gives the buffer back empty.
    /// `key` keeps the errands of one connection with one thread.
    pub(crate) async fn append(
        &self,
        key: usize,
        spooled: Option<Spooled>,
        data: Vec<u8>,
    ) -> Written {
        let (answer, written) = oneshot::channel();
        let gone = || io::Error::other("the spooler has ended");
        let spooler = &self.errands[key % self.errands.len()];
        spooler
            .send(Errand {
                spooled,
                data,
                answer,
            })
            .map_err(|_| gone())?;
        written.await.map_err(|_| gone())?
    }
}

fn work(errands: &mpsc::Receiver<Errand>, dir: &Path) {
    while let Ok(errand) = errands.recv() {
        // The connection may be gone; then nobody wants the answer.
        let _ = errand.answer.send(write(errand.spooled, errand.data, dir));
    }
}

fn write(spooled: Option<Spooled>, mut data: Vec<u8>, dir: &Path) -> Written {
    let mut spooled = match spooled {
        Some(spooled) => spooled,
        None => Spooled {
            file: unnamed_file(dir)?,
            bytes: 0,
        },
    };
    spooled.file.write_all_at(&data, spooled.bytes)?;
    spooled.bytes += data.len() as u64;
    data.clear();
    Ok((spooled, data))
}
