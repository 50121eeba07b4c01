//! Spooling: request bodies beyond `body_memory_max` go into unnamed files, written by body-spool threads.
//!
//! A connection has at most one buffer with a spooler, and its driver reads nothing more from that client
//! until the buffer comes back: a slow disk holds up its own client only.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::blocking_pool::BlockingPool;
use os::unnamed_file;

/// A body that is being written.
#[derive(Debug)]
pub(crate) struct Spooled {
    pub(crate) file: File,
    pub(crate) bytes: u64,
}

/// The spoolers and their folder.
#[derive(Clone, Debug)]
pub(crate) struct Spoolers {
    /// The threads, for whatever else is to wait for the same disk.
    pub(crate) pool: BlockingPool,
    dir: Arc<Path>,
}

impl Spoolers {
    /// Starts `threads` spoolers; they end when the last clone of the result is gone.
    pub(crate) fn start(threads: usize, dir: &Path) -> io::Result<Self> {
        let pool = BlockingPool::start("mp-spool", threads)?;
        Ok(Self {
            pool,
            dir: dir.into(),
        })
    }

    /// Appends `data` to a body, making its file first where there is none; gives the buffer back empty.
    pub(crate) async fn append(
        &self,
        spooled: Option<Spooled>,
        data: Vec<u8>,
    ) -> io::Result<(Spooled, Vec<u8>)> {
        let dir = Arc::clone(&self.dir);
        self.pool.run(move || write(spooled, data, &dir)).await?
    }
}

fn write(
    spooled: Option<Spooled>,
    mut data: Vec<u8>,
    dir: &Path,
) -> io::Result<(Spooled, Vec<u8>)> {
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
