//! Compressing and inflating messages, RFC 7692 section 7.2, by zlib-rs.
//!
//! Takes payloads, appends to buffers of the caller. It must not hold memory that the agreement does not need: an
//! inflater (48 KB) and a deflater (165 KB with a window of 12 bits, 280 KB with one of 15) exist from the first compressed
//! message on, and between two messages only where the context is kept. zlib-rs is used directly, because flate2 cannot
//! choose a `mem_level`: its deflater would take 265 KB and 380 KB.

use zlib_rs::{Deflate, DeflateConfig, DeflateFlush, Inflate, InflateFlush, Status};

use super::extension::{DeflateContext, DeflateSide};

/// Level of zlib: that of other servers.
const LEVEL: i32 = 6;
/// Symbols of a block: 2,048. Messages are short; zlib's default would take 100 KB more.
const MEM_LEVEL: i32 = 5;
/// Of the inflater, whatever the agreement says. zlib-rs allocates 32 KB in any case; with a smaller window it would
/// refuse distances beyond it only where the output happens to be cut there.
const INFLATE_WINDOW_BITS: u8 = 15;
/// What a sender takes off the end of a message and the recipient puts back: an empty block, RFC 7692 section 7.2.1.
const FLUSH_END: &[u8] = &[0x00, 0x00, 0xff, 0xff];

/// What inflates the messages of one peer.
pub(super) struct Inflater {
    context: DeflateContext,
    inflate: Option<Box<Inflate>>,
}

/// Whether an inflater has given everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InflateProgress {
    /// The input is used up, and all of its output given.
    Drained,
    /// Call again with the rest of the input, which may be empty.
    MoreToCome,
    /// The input is no DEFLATE data.
    Faulty,
}

impl Inflater {
    pub(super) const FLUSH_END: &'static [u8] = FLUSH_END;

    /// An inflater that has no memory yet.
    pub(super) fn new(context: DeflateContext) -> Self {
        Inflater {
            context,
            inflate: None,
        }
    }

    /// Appends at most `room` bytes to `out`; gives the bytes of `compressed` that are dealt with.
    pub(super) fn inflate(
        &mut self,
        compressed: &[u8],
        out: &mut Vec<u8>,
        room: usize,
    ) -> (usize, InflateProgress) {
        let new = || Box::new(Inflate::new(false, INFLATE_WINDOW_BITS));
        let inflate = self.inflate.get_or_insert_with(new);
        let (len, total_in, total_out) = (out.len(), inflate.total_in(), inflate.total_out());
        out.resize(len + room, 0);
        let status = inflate.decompress(compressed, &mut out[len..], InflateFlush::SyncFlush);
        let consumed = (inflate.total_in() - total_in) as usize;
        let inflated = (inflate.total_out() - total_out) as usize;
        out.truncate(len + inflated);
        let progress = match status {
            // RFC 7692 section 7.2.3.4: a final block may be followed by others, from the next byte on. The window
            // does not outlive it, as in browsers.
            Ok(Status::StreamEnd) => {
                inflate.reset(false);
                InflateProgress::MoreToCome
            }
            Ok(_) if inflated == room => InflateProgress::MoreToCome,
            Ok(_) if consumed == compressed.len() => InflateProgress::Drained,
            Ok(_) | Err(_) => InflateProgress::Faulty,
        };
        (consumed, progress)
    }

    /// Ends a message: nothing is held for the next one unless the peer keeps its context.
    pub(super) fn end_message(&mut self) {
        if self.context == DeflateContext::Dropped {
            self.clear();
        }
    }

    pub(super) fn clear(&mut self) {
        self.inflate = None;
    }
}

/// What compresses the messages of one end.
pub(super) struct Deflater {
    side: DeflateSide,
    deflate: Option<Box<Deflate>>,
}

impl Deflater {
    /// A deflater that has no memory yet.
    pub(super) fn new(side: DeflateSide) -> Self {
        assert!(
            (9..=15).contains(&side.window_bits),
            "zlib cannot compress with this window"
        );
        Deflater {
            side,
            deflate: None,
        }
    }

    /// Appends the compressed form of a message.
    pub(super) fn deflate(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        let side = self.side;
        let deflate = self.deflate.get_or_insert_with(|| new_deflate(side));
        let mut rest = payload;
        loop {
            let (len, total_in, total_out) = (out.len(), deflate.total_in(), deflate.total_out());
            // One call has room for every message that shrinks.
            let room = rest.len() + FLUSH_END.len() + 64;
            out.resize(len + room, 0);
            let status = deflate.compress(rest, &mut out[len..], DeflateFlush::SyncFlush);
            assert!(status.is_ok(), "the state of a compressor is its own");
            let deflated = (deflate.total_out() - total_out) as usize;
            rest = &rest[(deflate.total_in() - total_in) as usize..];
            out.truncate(len + deflated);
            // With room left over, the flush is complete.
            if deflated < room {
                break;
            }
        }
        assert!(
            rest.is_empty() && out.ends_with(FLUSH_END),
            "a flush ends with an empty block"
        );
        out.truncate(out.len() - FLUSH_END.len());
        if side.context == DeflateContext::Dropped {
            self.deflate = None;
        }
    }
}

fn new_deflate(side: DeflateSide) -> Box<Deflate> {
    Box::new(Deflate::new_with_config(DeflateConfig {
        level: LEVEL,
        // Negative: without the header of zlib.
        window_bits: -i32::from(side.window_bits),
        mem_level: MEM_LEVEL,
        ..DeflateConfig::default()
    }))
}

impl std::fmt::Debug for Inflater {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inflater({:?})", self.context)
    }
}

impl std::fmt::Debug for Deflater {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Deflater({:?})", self.side)
    }
}

#[cfg(test)]
mod tests;
