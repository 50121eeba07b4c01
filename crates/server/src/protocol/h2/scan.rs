//! The frame scanner: which frames pass, by their headers alone, beside the crate that reads or writes them.
//!
//! Takes a connection's bytes of one direction, in pieces of any size; gives each frame as soon as its header and the
//! first bytes of its payload are there. It judges nothing, and it must not keep a payload.

/// Bytes of a frame before its payload (RFC 9113 section 4.1).
pub(super) const FRAME_HEADER_BYTES: usize = 9;
/// First bytes of a payload that are kept: those of the frames whose content matters here.
const KEPT_BYTES: usize = 64;
/// Frames begin here with a length of 24 bits.
const STREAM_MASK: u32 = 0x7fff_ffff;

pub(super) const DATA: u8 = 0x0;
pub(super) const HEADERS: u8 = 0x1;
pub(super) const PRIORITY: u8 = 0x2;
pub(super) const RST_STREAM: u8 = 0x3;
pub(super) const SETTINGS: u8 = 0x4;
pub(super) const PING: u8 = 0x6;
pub(super) const GOAWAY: u8 = 0x7;
pub(super) const WINDOW_UPDATE: u8 = 0x8;
pub(super) const CONTINUATION: u8 = 0x9;
/// RFC 9218 section 7.1.
pub(super) const PRIORITY_UPDATE: u8 = 0x10;

/// Of DATA and HEADERS.
pub(super) const END_STREAM: u8 = 0x1;
/// Of SETTINGS and PING.
pub(super) const ACK: u8 = 0x1;
/// Of HEADERS and CONTINUATION.
pub(super) const END_HEADERS: u8 = 0x4;

/// One frame, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ScannedFrame<'a> {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload_bytes: usize,
    /// The beginning of the payload.
    pub(super) start: &'a [u8],
}

/// The place in one direction's bytes.
#[derive(Default, Debug)]
pub(super) struct FrameScanner {
    /// Header and first bytes of the payload, as far as they have come.
    head: Vec<u8>,
    /// Bytes of the payload that are still to pass behind those that were kept.
    skip: usize,
    /// What the frame is that they belong to.
    kind: u8,
}

impl FrameScanner {
    /// What the frame is of which a part has passed; `None` between two frames, and while that is not known.
    pub(super) fn partial(&self) -> Option<u8> {
        match (self.skip, self.head.get(3)) {
            (0, kind) => kind.copied(),
            _ => Some(self.kind),
        }
    }

    /// Passes over bytes until `take` has got `frames_max` frames; gives how many bytes that were. The rest of a frame
    /// that `take` has got passes along.
    pub(super) fn scan(
        &mut self,
        bytes: &[u8],
        frames_max: usize,
        mut take: impl FnMut(ScannedFrame<'_>),
    ) -> usize {
        let mut rest = bytes;
        let mut frames_len = 0;
        loop {
            let skipped = self.skip.min(rest.len());
            self.skip -= skipped;
            rest = &rest[skipped..];
            if rest.is_empty() || frames_len == frames_max {
                return bytes.len() - rest.len();
            }
            let used = match self.head.is_empty() {
                true => self.take_whole(rest, &mut take),
                false => None,
            };
            let used = used.unwrap_or_else(|| self.take_pieces(rest, &mut take));
            rest = &rest[used..];
            frames_len += usize::from(self.head.is_empty());
        }
    }

    /// A frame whose first bytes are all in `rest`; nothing is copied.
    fn take_whole(
        &mut self,
        rest: &[u8],
        take: &mut impl FnMut(ScannedFrame<'_>),
    ) -> Option<usize> {
        let header = rest.first_chunk()?;
        let wanted = FRAME_HEADER_BYTES + kept_bytes(header);
        let head = rest.get(..wanted)?;
        self.begin_payload(header);
        take(frame(header, &head[FRAME_HEADER_BYTES..]));
        Some(wanted)
    }

    fn begin_payload(&mut self, header: &[u8; FRAME_HEADER_BYTES]) {
        self.skip = payload_bytes(header) - kept_bytes(header);
        self.kind = header[3];
    }

    fn take_pieces(&mut self, rest: &[u8], take: &mut impl FnMut(ScannedFrame<'_>)) -> usize {
        let mut used = 0;
        loop {
            let wanted = match self.head.first_chunk() {
                None => FRAME_HEADER_BYTES,
                Some(header) => FRAME_HEADER_BYTES + kept_bytes(header),
            };
            if let Some(header) = self.head.first_chunk().copied()
                && self.head.len() == wanted
            {
                let header = &header;
                self.begin_payload(header);
                take(frame(header, &self.head[FRAME_HEADER_BYTES..]));
                // Given back: an idle connection owns no memory for it.
                self.head = Vec::new();
                return used;
            }
            let more = (wanted - self.head.len()).min(rest.len() - used);
            if more == 0 {
                return used;
            }
            self.head.extend_from_slice(&rest[used..used + more]);
            used += more;
        }
    }
}

fn frame<'a>(header: &[u8; FRAME_HEADER_BYTES], start: &'a [u8]) -> ScannedFrame<'a> {
    let [.., kind, flags, a, b, c, d] = *header;
    ScannedFrame {
        kind,
        flags,
        stream: u32::from_be_bytes([a, b, c, d]) & STREAM_MASK,
        payload_bytes: payload_bytes(header),
        start,
    }
}

fn payload_bytes(header: &[u8; FRAME_HEADER_BYTES]) -> usize {
    let [a, b, c, ..] = *header;
    u32::from_be_bytes([0, a, b, c]) as usize
}

/// DATA and header blocks are told by their headers alone.
fn kept_bytes(header: &[u8; FRAME_HEADER_BYTES]) -> usize {
    match header[3] {
        DATA | HEADERS | CONTINUATION => 0,
        _ => payload_bytes(header).min(KEPT_BYTES),
    }
}

impl ScannedFrame<'_> {
    /// The number that the payload begins with.
    pub(super) fn number(&self) -> Option<u32> {
        self.start
            .first_chunk()
            .map(|bytes| u32::from_be_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Seen = Vec<(u8, u8, u32, usize, Vec<u8>)>;

    fn raw(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend((stream | 0x8000_0000).to_be_bytes());
        frame.extend(payload);
        frame
    }

    fn frames() -> (Vec<u8>, Seen) {
        let mut bytes = Vec::new();
        let mut seen = Vec::new();
        for (kind, flags, stream, payload) in [
            (SETTINGS, 0, 0, vec![1; 12]),
            (HEADERS, END_HEADERS, 1, vec![2; 40]),
            (DATA, 0, 1, vec![3; 300]),
            (DATA, END_STREAM, 1, vec![]),
            (RST_STREAM, 0, 3, vec![0, 0, 0, 8]),
            (PRIORITY_UPDATE, 0, 0, vec![4; 100]),
            (PING, ACK, 0, vec![5; 8]),
        ] {
            bytes.extend(raw(kind, flags, stream, &payload));
            let kept = match kind {
                DATA | HEADERS => 0,
                _ => payload.len().min(KEPT_BYTES),
            };
            seen.push((kind, flags, stream, payload.len(), payload[..kept].to_vec()));
        }
        (bytes, seen)
    }

    fn note(seen: &mut Seen) -> impl FnMut(ScannedFrame<'_>) {
        |frame| {
            seen.push((
                frame.kind,
                frame.flags,
                frame.stream,
                frame.payload_bytes,
                frame.start.to_vec(),
            ));
        }
    }

    #[test]
    fn frames_are_the_same_however_their_bytes_are_cut() {
        let (bytes, expect) = frames();
        for piece in 1..bytes.len() {
            let mut scanner = FrameScanner::default();
            let mut seen = Vec::new();
            for piece in bytes.chunks(piece) {
                assert_eq!(
                    scanner.scan(piece, usize::MAX, note(&mut seen)),
                    piece.len()
                );
            }
            assert_eq!(seen, expect, "{piece}");
            assert_eq!(scanner.partial(), None);
        }
    }

    #[test]
    fn no_more_frames_pass_than_may() {
        let (bytes, expect) = frames();
        let mut scanner = FrameScanner::default();
        let mut seen = Vec::new();
        let mut used = 0;
        for turn in 1..=expect.len() {
            used += scanner.scan(&bytes[used..], 1, note(&mut seen));
            assert_eq!(seen, expect[..turn]);
        }
        assert_eq!(used, bytes.len());
    }

    #[test]
    fn a_frame_in_part_is_known_by_its_kind() {
        let bytes = raw(HEADERS, 0, 1, &[0; 9]);
        for (len, expect) in [
            (0, None),
            (3, None),
            (4, Some(HEADERS)),
            (17, Some(HEADERS)),
            (18, None),
        ] {
            let mut scanner = FrameScanner::default();
            scanner.scan(&bytes[..len], 9, |_| {});
            assert_eq!(scanner.partial(), expect, "{len}");
        }
    }

    #[test]
    fn a_number_is_what_the_payload_begins_with() {
        let bytes = raw(WINDOW_UPDATE, 0, 5, &[0, 0, 1, 2]);
        let mut number = None;
        FrameScanner::default().scan(&bytes, 1, |frame| number = frame.number());
        assert_eq!(number, Some(258));
    }
}
