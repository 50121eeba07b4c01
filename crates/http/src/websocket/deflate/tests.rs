//! Compressed bytes, beside what the messages' tests see.

use super::*;

fn side(window_bits: u8, context: DeflateContext) -> DeflateSide {
    DeflateSide {
        window_bits,
        context,
    }
}

impl Inflater {
    pub(in crate::websocket) fn is_allocated(&self) -> bool {
        self.inflate.is_some()
    }
}

#[test]
fn a_deflater_holds_memory_only_where_its_context_is_kept() {
    for (context, is_held) in [
        (DeflateContext::Kept, true),
        (DeflateContext::Dropped, false),
    ] {
        let mut deflater = Deflater::new(side(12, context));
        assert!(deflater.deflate.is_none());
        deflater.deflate(b"Hello", &mut Vec::new());
        assert_eq!(deflater.deflate.is_some(), is_held);
    }
}

#[test]
fn appends_and_leaves_the_end_of_the_flush_out() {
    let mut deflater = Deflater::new(side(12, DeflateContext::Kept));
    let mut out = b"before".to_vec();
    deflater.deflate(b"Hello", &mut out);
    // RFC 7692 section 7.2.3.1.
    assert_eq!(out, b"before\xf2\x48\xcd\xc9\xc9\x07\x00");
}

#[test]
fn bytes_that_do_not_shrink_take_several_calls() {
    let mut state = 1u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(100_000)
    .collect();
    let mut out = Vec::new();
    Deflater::new(side(9, DeflateContext::Dropped)).deflate(&noise, &mut out);
    assert!(out.len() > noise.len());
    out.extend_from_slice(FLUSH_END);
    let mut inflater = Inflater::new(DeflateContext::Dropped);
    let (mut rest, mut inflated) = (&out[..], Vec::new());
    loop {
        let (consumed, progress) = inflater.inflate(rest, &mut inflated, 1000);
        rest = &rest[consumed..];
        match progress {
            InflateProgress::MoreToCome => {}
            progress => break assert_eq!(progress, InflateProgress::Drained),
        }
    }
    assert_eq!(inflated, noise);
}

#[test]
#[should_panic(expected = "zlib cannot compress with this window")]
fn refuses_a_window_of_256_bytes() {
    Deflater::new(side(8, DeflateContext::Kept));
}
