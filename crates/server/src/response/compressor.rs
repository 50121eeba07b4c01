//! The compressor: the encoders of one worker, kept from reply to reply because their memory is large.
//!
//! Takes pieces of one body after the other, gives compressed bytes in a buffer of its own. Knows no
//! replies and no sockets.

use std::io::{self, Write};

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use flate2::{Compress, Crc, FlushCompress, Status};
use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd::zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective, get_error_name};

use config::typed::{Coding, Compression};

/// Longest distance that an encoder looks back, as a power of two: what a thread has to remember, and a
/// client too. RFC 9659 section 3 allows at most 23 for zstd.
const WINDOW_BITS_MAX: u32 = 20;
/// Longest tables of zstd, as a power of two of entries of four bytes. Without a bound its upper levels
/// take tens of megabytes.
const ZSTD_TABLE_BITS_MAX: u32 = 20;
/// From this level on zstd's own tables pass that bound.
const ZSTD_LARGE_LEVEL: i32 = 9;
/// What a thread's zstd context takes at most, at any level.
#[cfg(test)]
const ZSTD_BYTES_MAX: usize = 11 << 20;
/// The shortest window of brotli, as a power of two.
const BROTLI_WINDOW_BITS_MIN: u32 = 10;
/// So much is compressed in 0.03 to 0.11 ms at the levels that come by default.
const QUICK_BYTES: usize = 4 << 10;
/// Above these levels it can take milliseconds: measured 6 ms for brotli's highest, 0.6 ms for zstd's.
const QUICK_BROTLI_LEVEL_MAX: u32 = 5;
const QUICK_ZSTD_LEVEL_MAX: i32 = 9;
/// What an encoder is given to write to at least.
const ROOM_BYTES: usize = 8 << 10;
/// The buffer that a thread keeps; a larger one is given back after its reply.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// RFC 1952 section 2.3: deflate, no flags, no time, an unknown system.
const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// How far a step has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EncodeStep {
    /// More follows at once.
    More,
    /// A client can decode everything up to here.
    Flush,
    /// The body ends here.
    End,
}

/// Encoders of one thread. `begin`, then any number of `run`, the last of them with `EncodeStep::End` unless the
/// body is cut; then `rest`.
#[derive(Default)]
pub(crate) struct Compressor {
    pub(super) config: Compression,
    gzip: Option<Gzip>,
    zstd: Option<Zstd>,
    brotli: Option<Brotli>,
    running: Option<Coding>,
    /// Compressed bytes, until `run` gives them.
    out: Vec<u8>,
}

impl Compressor {
    pub(crate) fn new(config: &Compression) -> Self {
        Self {
            config: config.clone(),
            ..Self::default()
        }
    }

    /// Whether a piece of `bytes` bytes is compressed in passing, without yielding to others.
    pub(crate) fn is_quick(&self, coding: Coding, bytes: usize) -> bool {
        let is_quick = match coding {
            Coding::Gzip => true,
            Coding::Brotli => self.config.brotli_level <= QUICK_BROTLI_LEVEL_MAX,
            Coding::Zstd => self.config.zstd_level <= QUICK_ZSTD_LEVEL_MAX,
        };
        is_quick && bytes <= QUICK_BYTES
    }

    /// Begins a body, of `bytes` bytes where that is known. What was left of another one is forgotten.
    pub(crate) fn begin(&mut self, coding: Coding, bytes: Option<u64>) -> io::Result<()> {
        self.rest();
        match coding {
            Coding::Gzip => {
                let level = self.config.gzip_level;
                let gzip = self.gzip.get_or_insert_with(|| Gzip::new(level));
                gzip.begin(&mut self.out);
            }
            Coding::Zstd => {
                let zstd = match self.zstd.take() {
                    Some(zstd) => zstd,
                    None => Zstd::new(self.config.zstd_level)?,
                };
                self.zstd.insert(zstd).begin(bytes)?;
            }
            Coding::Brotli => self.brotli = Some(new_brotli(self.config.brotli_level, bytes)),
        }
        self.running = Some(coding);
        Ok(())
    }

    /// Takes a piece of the body; gives the bytes that come of it, in a buffer for `give_back`.
    ///
    /// # Errors
    /// When an encoder finds no memory, or got another number of bytes than was announced: the body
    /// cannot go on.
    pub(crate) fn run(&mut self, data: &[u8], step: EncodeStep) -> io::Result<Vec<u8>> {
        let out = &mut self.out;
        match (self.running, &mut self.gzip, &mut self.zstd) {
            (Some(Coding::Gzip), Some(gzip), _) => gzip.run(data, step, out)?,
            (Some(Coding::Zstd), _, Some(zstd)) => zstd.run(data, step, out)?,
            (Some(Coding::Brotli), ..) => run_brotli(&mut self.brotli, data, step, out)?,
            _ => return Err(not_begun()),
        }
        Ok(std::mem::take(out))
    }

    /// Takes the buffer of the last `run` for the next one.
    pub(crate) fn give_back(&mut self, mut out: Vec<u8>) {
        out.clear();
        self.out = out;
    }

    /// Ends a reply: what is only of use to it is given back.
    pub(crate) fn rest(&mut self) {
        self.running = None;
        self.brotli = None;
        self.out.clear();
        self.out.shrink_to(KEPT_BYTES_MAX);
    }
}

/// RFC 1952. flate2 writes its frame only where a C library is behind it.
struct Gzip {
    deflate: Compress,
    crc: Crc,
}

impl Gzip {
    fn new(level: u32) -> Self {
        Self {
            deflate: Compress::new(flate2::Compression::new(level), false),
            crc: Crc::new(),
        }
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        self.deflate.reset();
        self.crc.reset();
        out.extend_from_slice(&GZIP_HEAD);
    }

    fn run(&mut self, data: &[u8], step: EncodeStep, out: &mut Vec<u8>) -> io::Result<()> {
        self.crc.update(data);
        let flush = match step {
            EncodeStep::More => FlushCompress::None,
            EncodeStep::Flush => FlushCompress::Sync,
            EncodeStep::End => FlushCompress::Finish,
        };
        let mut rest = data;
        loop {
            out.reserve(ROOM_BYTES);
            let before = self.deflate.total_in();
            let status = self.deflate.compress_vec(rest, out, flush)?;
            let taken = self.deflate.total_in() - before;
            rest = &rest[usize::try_from(taken).expect("no more than `rest`")..];
            let is_done = match step {
                EncodeStep::End => status == Status::StreamEnd,
                _ => rest.is_empty() && out.len() < out.capacity(),
            };
            if is_done {
                break;
            }
        }
        if step == EncodeStep::End {
            out.extend_from_slice(&self.crc.sum().to_le_bytes());
            out.extend_from_slice(&self.crc.amount().to_le_bytes());
        }
        Ok(())
    }
}

/// RFC 8878.
struct Zstd(CCtx<'static>);

impl Zstd {
    fn new(level: i32) -> io::Result<Self> {
        let mut context = CCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
        let mut set = |parameter| context.set_parameter(parameter).map_err(zstd_error);
        set(CParameter::CompressionLevel(level))?;
        set(CParameter::WindowLog(WINDOW_BITS_MAX))?;
        if level >= ZSTD_LARGE_LEVEL {
            set(CParameter::HashLog(ZSTD_TABLE_BITS_MAX))?;
            set(CParameter::ChainLog(ZSTD_TABLE_BITS_MAX))?;
        }
        Ok(Self(context))
    }

    fn begin(&mut self, bytes: Option<u64>) -> io::Result<()> {
        let reset = self.0.reset(ResetDirective::SessionOnly);
        reset.map_err(zstd_error)?;
        let pledged = self.0.set_pledged_src_size(bytes);
        pledged.map_err(zstd_error)?;
        Ok(())
    }

    fn run(&mut self, data: &[u8], step: EncodeStep, out: &mut Vec<u8>) -> io::Result<()> {
        let mut input = InBuffer::around(data);
        loop {
            out.reserve(ROOM_BYTES);
            let written = out.len();
            let mut output = OutBuffer::around_pos(out, written);
            let directive = match step {
                EncodeStep::More => ZSTD_EndDirective::ZSTD_e_continue,
                EncodeStep::Flush => ZSTD_EndDirective::ZSTD_e_flush,
                EncodeStep::End => ZSTD_EndDirective::ZSTD_e_end,
            };
            let stepped = self.0.compress_stream2(&mut output, &mut input, directive);
            let waiting_bytes = stepped.map_err(zstd_error)?;
            let is_done = match step {
                EncodeStep::More => input.pos() == data.len(),
                EncodeStep::Flush | EncodeStep::End => waiting_bytes == 0,
            };
            if is_done {
                return Ok(());
            }
        }
    }
}

fn zstd_error(code: usize) -> io::Error {
    io::Error::other(get_error_name(code))
}

/// RFC 7932. Its encoder cannot be used twice: it is made for each body.
type Brotli = CompressorWriter<Vec<u8>>;

fn new_brotli(level: u32, bytes: Option<u64>) -> Brotli {
    // What lies further back than a body's beginning is never looked for.
    let needed = bytes.map_or(WINDOW_BITS_MAX, |bytes| u64::BITS - bytes.leading_zeros());
    let window_bits = needed.clamp(BROTLI_WINDOW_BITS_MIN, WINDOW_BITS_MAX);
    let hint = bytes.and_then(|bytes| usize::try_from(bytes).ok());
    let params = BrotliEncoderParams {
        quality: i32::try_from(level).unwrap_or(i32::MAX),
        lgwin: i32::try_from(window_bits).unwrap_or(i32::MAX),
        size_hint: hint.unwrap_or(0),
        ..BrotliEncoderParams::default()
    };
    CompressorWriter::with_params(Vec::new(), ROOM_BYTES, &params)
}

/// The encoder writes into the buffer of the caller: no bytes are copied. It ends with its body.
fn run_brotli(
    brotli: &mut Option<Brotli>,
    data: &[u8],
    step: EncodeStep,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let encoder = brotli.as_mut().ok_or_else(not_begun)?;
    std::mem::swap(encoder.get_mut(), out);
    encoder.write_all(data)?;
    match step {
        EncodeStep::More => {}
        EncodeStep::Flush => encoder.flush()?,
        EncodeStep::End => {
            *out = brotli.take().map_or_else(Vec::new, Brotli::into_inner);
            return Ok(());
        }
    }
    std::mem::swap(encoder.get_mut(), out);
    Ok(())
}

fn not_begun() -> io::Error {
    io::Error::other("no body was begun")
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    const CODINGS: [Coding; 3] = [Coding::Gzip, Coding::Brotli, Coding::Zstd];

    /// What a client makes of the bytes that have arrived, and whether they are a whole body to it.
    fn decode(coding: Coding, bytes: &[u8]) -> (Vec<u8>, bool) {
        let mut reader: Box<dyn Read + '_> = match coding {
            Coding::Gzip => Box::new(flate2::read::GzDecoder::new(bytes)),
            Coding::Zstd => Box::new(zstd::stream::read::Decoder::new(bytes).unwrap()),
            Coding::Brotli => Box::new(brotli::Decompressor::new(bytes, 4096)),
        };
        let mut decoded = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return (decoded, true),
                Ok(count) => decoded.extend_from_slice(&buffer[..count]),
                Err(_) => return (decoded, false),
            }
        }
    }

    /// One step, as a client gets it behind the others; the encoder gets its buffer back.
    fn run(press: &mut Compressor, data: &[u8], step: EncodeStep, received: &mut Vec<u8>) {
        let out = press.run(data, step).unwrap();
        received.extend_from_slice(&out);
        press.give_back(out);
    }

    /// Text that compresses about as well as text does.
    fn prose(bytes: usize) -> Vec<u8> {
        let mut text = Vec::with_capacity(bytes + 32);
        let mut state = 1_u64;
        while text.len() < bytes {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let word = [&b"queue"[..], b"of", b"the", b"driver"][(state >> 33) as usize % 4];
            text.extend_from_slice(word);
            text.extend_from_slice(format!(" {} ", (state >> 40) % 1000).as_bytes());
        }
        text.truncate(bytes);
        text
    }

    #[test]
    fn lets_a_client_decode_everything_up_to_each_flush() {
        let mut press = Compressor::new(&Compression::default());
        for coding in CODINGS {
            press.begin(coding, None).unwrap();
            let (mut given, mut out) = (Vec::new(), Vec::new());
            for bytes in [1, 20, 3000, 7, 200_000, 1] {
                let piece = prose(bytes);
                run(&mut press, &piece, EncodeStep::Flush, &mut out);
                given.extend_from_slice(&piece);
                assert_eq!(decode(coding, &out), (given.clone(), false), "{coding:?}");
            }
            run(&mut press, &[], EncodeStep::End, &mut out);
            assert_eq!(decode(coding, &out), (given, true), "{coding:?}");
            press.rest();
        }
    }

    #[test]
    fn forgets_a_body_that_was_cut_when_the_next_begins() {
        let mut press = Compressor::new(&Compression::default());
        for coding in CODINGS {
            press.begin(coding, Some(5000)).unwrap();
            press.run(&prose(2000), EncodeStep::Flush).unwrap();
            press.rest();
            let body = b"the next body, the next body, the next body";
            press.begin(coding, Some(body.len() as u64)).unwrap();
            let out = press.run(body, EncodeStep::End).unwrap();
            assert_eq!(decode(coding, &out), (body.to_vec(), true));
            press.rest();
            assert!(
                press.run(b"x", EncodeStep::Flush).is_err(),
                "no body was begun"
            );
        }
    }

    #[test]
    fn compresses_at_every_level() {
        let body = prose(8000);
        for level in [0, 1, 4, 6, 9, 10, 11, 15, 19] {
            let mut press = Compressor::new(&Compression {
                gzip_level: level.clamp(1, 9),
                brotli_level: level.min(11),
                zstd_level: i32::try_from(level).unwrap().max(1),
                ..Compression::default()
            });
            for coding in CODINGS {
                press.begin(coding, Some(body.len() as u64)).unwrap();
                let out = press.run(&body, EncodeStep::End).unwrap();
                assert!(out.len() < body.len() / 2, "{coding:?} {level}");
                assert_eq!(decode(coding, &out), (body.clone(), true));
            }
        }
    }

    #[test]
    fn calls_only_small_pieces_at_low_levels_quick() {
        let check = |gzip_level, brotli_level, zstd_level, expect: [bool; 3]| {
            let press = Compressor::new(&Compression {
                gzip_level,
                brotli_level,
                zstd_level,
                ..Compression::default()
            });
            let quick = |bytes| CODINGS.map(|coding| press.is_quick(coding, bytes));
            assert_eq!(quick(QUICK_BYTES), expect);
            assert_eq!(quick(QUICK_BYTES + 1), [false; 3]);
        };
        check(6, 4, 3, [true; 3]);
        check(9, 11, 19, [true, false, false]);
        check(1, 0, 1, [true; 3]);
    }

    #[test]
    fn bounds_what_a_thread_keeps() {
        for level in 1..=19 {
            let mut zstd = Zstd::new(level).unwrap();
            zstd.begin(None).unwrap();
            // All of its memory is taken with the first bytes.
            zstd.run(b"a", EncodeStep::Flush, &mut Vec::new()).unwrap();
            let bytes = zstd.0.sizeof();
            assert!(bytes <= ZSTD_BYTES_MAX, "level {level} takes {bytes} bytes");
        }
        let mut press = Compressor::new(&Compression::default());
        press.begin(Coding::Gzip, None).unwrap();
        press.out.reserve(4 << 20);
        press.rest();
        assert!(press.out.capacity() <= KEPT_BYTES_MAX);
    }

    #[test]
    fn refuses_to_end_a_body_of_another_length() {
        let mut press = Compressor::new(&Compression::default());
        press.begin(Coding::Zstd, Some(10)).unwrap();
        press.run(b"short", EncodeStep::Flush).unwrap();
        assert!(press.run(&[], EncodeStep::End).is_err());
        // And is not lost for the next one.
        press.begin(Coding::Zstd, None).unwrap();
        let out = press.run(b"good", EncodeStep::End).unwrap();
        assert_eq!(decode(Coding::Zstd, &out), (b"good".to_vec(), true));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn gives_back_any_bytes_in_any_pieces(
            bodies in proptest::collection::vec(
                (0..3_usize, proptest::collection::vec(
                    (proptest::collection::vec(any::<u8>(), 0..300), 1..50_usize, any::<bool>()),
                    0..6,
                )),
                1..4,
            ),
        ) {
            let mut press = Compressor::new(&Compression::default());
            for (coding, pieces) in bodies {
                let coding = CODINGS[coding];
                press.begin(coding, None).unwrap();
                let (mut given, mut out) = (Vec::new(), Vec::new());
                for (data, times, flush) in pieces {
                    let data = data.repeat(times);
                    let step = if flush { EncodeStep::Flush } else { EncodeStep::More };
                    run(&mut press, &data, step, &mut out);
                    given.extend_from_slice(&data);
                    let (decoded, _) = decode(coding, &out);
                    prop_assert!(given.starts_with(&decoded));
                    prop_assert!(!flush || decoded == given);
                }
                run(&mut press, &[], EncodeStep::End, &mut out);
                prop_assert_eq!(decode(coding, &out), (given, true));
            }
        }
    }
}
