//! What a reply is to be, byte by byte, but for what is new in each reply: its date and its boundary.

use std::io::Read;
use std::ops::Range;

use super::cases::{Carries, Case};
use super::support::text;

/// A reply, or several in a row.
#[derive(Clone, Default)]
pub(super) struct Expected {
    bytes: Vec<u8>,
    /// Where dates are.
    dates: Vec<Range<usize>>,
    /// Where the boundary of each multipart reply is.
    boundaries: Vec<Vec<Range<usize>>>,
}

const DATE_BYTES: usize = "Sun, 06 Nov 1994 08:49:37 GMT".len();
const BOUNDARY_BYTES: usize = 32;

impl Expected {
    /// A reply like this one.
    pub(super) fn like(reply: &[u8]) -> Self {
        let (head, _) = halves(reply);
        let date = find(head, b"\r\nDate: ").map(|at| at + 8..at + 8 + DATE_BYTES);
        let boundary = find(head, b"boundary=").map(|at| at + 9..at + 9 + BOUNDARY_BYTES);
        let boundaries = boundary.map(|at| all(reply, &reply[at]));
        Self {
            bytes: reply.to_vec(),
            dates: date.into_iter().collect(),
            boundaries: boundaries.into_iter().collect(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds the next reply of the connection.
    pub(super) fn push(&mut self, next: &Expected) {
        let start = self.bytes.len();
        let moved = |at: &Range<usize>| at.start + start..at.end + start;
        self.bytes.extend_from_slice(&next.bytes);
        self.dates.extend(next.dates.iter().map(moved));
        for places in &next.boundaries {
            self.boundaries.push(places.iter().map(moved).collect());
        }
    }

    /// Checks that `received` is the beginning of this.
    pub(super) fn assert_begins_with(&self, received: &[u8], what: &str) {
        assert!(received.len() <= self.len(), "{what}: more than there is");
        let mut wanted = self.bytes[..received.len()].to_vec();
        let copy = |wanted: &mut Vec<u8>, from: Range<usize>, to: Range<usize>| {
            let bytes = from.len().min(received.len().saturating_sub(from.start));
            let bytes = bytes.min(received.len().saturating_sub(to.start));
            wanted[to.start.min(received.len())..][..bytes]
                .copy_from_slice(&received[from.start.min(received.len())..][..bytes]);
        };
        for date in &self.dates {
            copy(&mut wanted, date.clone(), date.clone());
        }
        for places in &self.boundaries {
            for place in places {
                copy(&mut wanted, places[0].clone(), place.clone());
            }
        }
        if let Some(at) = (0..received.len()).find(|at| received[*at] != wanted[*at]) {
            let near = at.saturating_sub(60)..(at + 60).min(received.len());
            panic!(
                "{what}: byte {at} of {} differs: {:?} instead of {:?}",
                self.len(),
                text(&received[near.clone()]),
                text(&wanted[near])
            );
        }
    }

    /// Checks that `received` is this.
    pub(super) fn assert_is(&self, received: &[u8], what: &str) {
        self.assert_begins_with(received, what);
        assert_eq!(received.len(), self.len(), "{what}: ends early");
    }
}

/// Checks that a reply that nothing has disturbed carries what its case says.
pub(super) fn check(case: &Case, reply: &[u8]) {
    let (head, framed) = halves(reply);
    let head = text(head);
    if let Carries::Text(begin) = case.carries {
        assert!(head.starts_with(begin), "{}: {head}", case.name);
        return;
    }
    let body = match head.contains("Transfer-Encoding: chunked\r\n") {
        true if !framed.is_empty() => unchunk(framed),
        _ => framed.to_vec(),
    };
    match case.carries {
        Carries::Body(wanted) => assert!(body == wanted(), "{}: {head}", case.name),
        Carries::Gzip(wanted) => {
            let mut plain = Vec::new();
            let mut decoder = flate2::read::GzDecoder::new(&body[..]);
            decoder.read_to_end(&mut plain).unwrap();
            assert!(plain == wanted(), "{}: {head}", case.name);
        }
        Carries::Ranges([(first, end)], of) => {
            let range = format!("bytes {first}-{}/{}\r\n", end - 1, of().len());
            assert!(head.contains(&range), "{}: {head}", case.name);
            assert!(body == of()[*first..*end], "{}: {head}", case.name);
        }
        Carries::Ranges(ranges, of) => {
            for (first, end) in ranges {
                let head = format!("bytes {first}-{}/{}\r\n\r\n", end - 1, of().len());
                let part = [head.as_bytes(), &of()[*first..*end], b"\r\n--"].concat();
                assert_eq!(all(&body, &part).len(), 1, "{}: {first}", case.name);
            }
        }
        Carries::Text(_) => unreachable!("looked at above"),
    }
}

/// Head and body.
fn halves(reply: &[u8]) -> (&[u8], &[u8]) {
    let end = find(reply, b"\r\n\r\n").expect("a complete head") + 4;
    reply.split_at(end)
}

fn unchunk(mut framed: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let line = find(framed, b"\r\n").expect("a chunk's size");
        let bytes = usize::from_str_radix(&text(&framed[..line]), 16).unwrap();
        framed = &framed[line + 2..];
        body.extend_from_slice(&framed[..bytes]);
        assert_eq!(&framed[bytes..bytes + 2], b"\r\n");
        framed = &framed[bytes + 2..];
        if bytes == 0 {
            assert!(framed.is_empty(), "nothing follows the last chunk");
            return body;
        }
    }
}

fn find(within: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(within, what)
}

/// Where `what` is.
fn all(within: &[u8], what: &[u8]) -> Vec<Range<usize>> {
    memchr::memmem::find_iter(within, what)
        .map(|at| at..at + what.len())
        .collect()
}
