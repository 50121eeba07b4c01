//! Where lines come from: files and standard input, plain or compressed.
//!
//! Takes a name, gives a reader of plain bytes. What is compressed is known by its first bytes, not by its
//! name, and is unpacked on a thread of its own; gzip members and zstd frames may follow each other, which
//! is what appending to an old file makes.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use telemetry::history::HeldHistory;

use crate::piped::Piped;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// RFC 8878 section 3.1.2: 0x184D2A50 to 0x184D2A5F, little-endian.
const ZSTD_SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];
/// Compressed bytes read at once.
const PACKED_BLOCK_BYTES: usize = 128 << 10;

/// One log to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A file.
    File(PathBuf),
    /// Standard input.
    Stdin,
    /// What a running server holds.
    Held(Arc<HeldHistory>),
}

/// How the bytes of an input are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// An open input.
pub(crate) struct Source {
    pub(crate) reader: Box<dyn Read>,
    /// Bytes taken from the file, packed as they are.
    pub(crate) read_bytes: Arc<AtomicU64>,
}

impl Input {
    /// For messages.
    pub fn name(&self) -> String {
        match self {
            Input::File(path) => path.display().to_string(),
            Input::Stdin => "standard input".to_owned(),
            Input::Held(_) => "the running server".to_owned(),
        }
    }

    /// Bytes of a plain file; `None` when that cannot be known.
    pub(crate) fn size(&self) -> Option<u64> {
        let Input::File(path) = self else {
            return None;
        };
        match std::fs::metadata(path) {
            Ok(facts) if facts.is_file() => Some(facts.len()),
            Ok(_) => None,
            // It will be a fault, and adds nothing.
            Err(_) => Some(0),
        }
    }

    pub(crate) fn open(&self) -> io::Result<Source> {
        let read_bytes = Arc::new(AtomicU64::new(0));
        let file: Box<dyn Read + Send> = match self {
            Input::File(path) => Box::new(File::open(path)?),
            Input::Stdin => Box::new(io::stdin()),
            // Its requests are no bytes of a log.
            Input::Held(_) => Box::new(io::empty()),
        };
        let counted = Counted {
            reader: file,
            read_bytes: Arc::clone(&read_bytes),
        };
        let (packing, whole) = looked_at(counted)?;
        let reader = unpacked(packing, whole)?;
        let reader: Box<dyn Read> = match packing {
            Packing::Plain => reader,
            Packing::Gzip | Packing::Zstd => Box::new(Piped::start(reader)?),
        };
        Ok(Source { reader, read_bytes })
    }
}

/// What was looked at, and the rest.
type Whole<R> = io::Chain<io::Cursor<Vec<u8>>, R>;

/// How `reader` is packed, and a reader that begins where it began.
pub(crate) fn looked_at<R: Read>(mut reader: R) -> io::Result<(Packing, Whole<R>)> {
    let mut head = Vec::new();
    reader
        .by_ref()
        .take(ZSTD_MAGIC.len() as u64)
        .read_to_end(&mut head)?;
    let packing = if head.starts_with(&GZIP_MAGIC) {
        Packing::Gzip
    } else if head == ZSTD_MAGIC
        || (head.get(1..) == Some(&ZSTD_SKIPPABLE) && head[0] & 0xf0 == 0x50)
    {
        Packing::Zstd
    } else {
        Packing::Plain
    };
    Ok((packing, io::Cursor::new(head).chain(reader)))
}

/// Unpacks where it is read.
pub(crate) fn unpacked<'a>(
    packing: Packing,
    reader: impl Read + Send + 'a,
) -> io::Result<Box<dyn Read + Send + 'a>> {
    let buffered = BufReader::with_capacity(PACKED_BLOCK_BYTES, reader);
    Ok(match packing {
        Packing::Plain => Box::new(buffered.into_inner()),
        Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(buffered)),
        Packing::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(buffered)?),
    })
}

/// The cause of a fault in words for the reader of a message.
pub(crate) fn cause(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => crate::CUT_OFF.to_owned(),
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ if error.raw_os_error().is_none() => {
            format!("the compressed data is damaged ({error}); what came before it was read")
        }
        _ => error.to_string(),
    }
}

struct Counted<R> {
    reader: R,
    read_bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.reader.read(buffer)?;
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        zstd::stream::encode_all(text, 1).unwrap()
    }

    fn read(bytes: &[u8]) -> (Packing, io::Result<Vec<u8>>) {
        let (packing, whole) = looked_at(io::Cursor::new(bytes.to_vec())).unwrap();
        let mut text = Vec::new();
        let result = unpacked(packing, whole).unwrap().read_to_end(&mut text);
        (packing, result.map(|_| text))
    }

    #[test]
    fn knows_packing_by_the_first_bytes() {
        let check = |bytes: &[u8], expect: Packing, text: &[u8]| {
            let (packing, found) = read(bytes);
            assert_eq!((packing, found.unwrap()), (expect, text.to_vec()));
        };
        check(b"", Packing::Plain, b"");
        check(b"a\n", Packing::Plain, b"a\n");
        check(b"plain text\n", Packing::Plain, b"plain text\n");
        check(&gzip(b"one\n"), Packing::Gzip, b"one\n");
        check(&zstd(b"one\n"), Packing::Zstd, b"one\n");
        let skippable = [
            &[0x5a, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9],
            &zstd(b"one\n")[..],
        ]
        .concat();
        check(&skippable, Packing::Zstd, b"one\n");
    }

    #[test]
    fn reads_members_and_frames_that_follow_each_other() {
        let large = b"a line that is there very often\n".repeat(100_000);
        for pack in [gzip, zstd] {
            let bytes = [pack(b"one\n"), pack(b""), pack(&large), pack(b"two\n")].concat();
            let expect = [b"one\n", &large[..], b"two\n"].concat();
            assert_eq!(read(&bytes).1.unwrap(), expect);
        }
    }

    #[test]
    fn gives_what_came_before_the_cut() {
        for pack in [gzip, zstd] {
            let whole = [pack(b"one\n"), pack(&b"two two two\n".repeat(1_000))].concat();
            let (packing, reader) =
                looked_at(io::Cursor::new(whole[..whole.len() - 6].to_vec())).unwrap();
            let mut text = Vec::new();
            let error = unpacked(packing, reader)
                .unwrap()
                .read_to_end(&mut text)
                .unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
            assert!(text.starts_with(b"one\n"));
        }
    }
}
