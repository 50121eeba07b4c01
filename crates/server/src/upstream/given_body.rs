//! What of a body that arrives was given to a try: kept, as long as it is little, for a try that follows because the
//! first server did not process the request.
//!
//! ```text
//! piece of the client ── take ──► on its way to a server ── put_back ──► kept ── again ──► on its way to another one
//! ```
//!
//! Pieces move, and are not copied. Knows neither clients nor servers.

/// Bytes of a body that are kept; with more, it can be sent once.
const KEPT_BYTES_MAX: usize = 16 << 10;
/// Pieces that are kept: each costs more than its bytes.
const KEPT_PIECES_MAX: usize = 64;

/// The beginning of a body, as long as it can be sent again.
#[derive(Debug, Default)]
pub(super) struct GivenBody {
    /// In their order. One that is on its way is empty here.
    pieces: Vec<Vec<u8>>,
    bytes: usize,
    /// The last piece is the end of the body.
    is_whole: bool,
    /// Something of it was given and not kept.
    is_gone: bool,
}

/// Where a try is in what was given.
#[derive(Debug, Default)]
pub(super) struct GivenPlace {
    /// Pieces that the try has had.
    len: usize,
    /// The last one of them is with the try.
    is_on_its_way: bool,
}

impl GivenBody {
    /// Whether all that was given can be given again.
    pub(super) fn is_here(&self) -> bool {
        !self.is_gone
    }

    /// It will not be given again.
    pub(super) fn let_go(&mut self) {
        self.is_gone = true;
        self.pieces = Vec::new();
    }

    /// The next piece of those that another try has had, and whether more may follow.
    pub(super) fn again(&mut self, place: &mut GivenPlace) -> Option<(Vec<u8>, bool)> {
        let piece = self.pieces.get_mut(place.len).map(std::mem::take)?;
        place.len += 1;
        place.is_on_its_way = true;
        let is_last = self.is_whole && place.len == self.pieces.len();
        Some((piece, !is_last))
    }

    /// A piece that was never given is now, and comes back by `put_back` if `keeps` asks for that.
    pub(super) fn take(
        &mut self,
        piece: &[u8],
        has_more: bool,
        keeps: bool,
        place: &mut GivenPlace,
    ) {
        self.bytes = self.bytes.saturating_add(piece.len());
        let is_little = self.bytes <= KEPT_BYTES_MAX && self.pieces.len() < KEPT_PIECES_MAX;
        if !keeps || !is_little {
            self.let_go();
        }
        if self.is_gone {
            return;
        }
        self.pieces.push(Vec::new());
        self.is_whole = !has_more;
        place.len += 1;
        place.is_on_its_way = true;
    }

    /// The piece that was on its way is sent, or its try is over.
    pub(super) fn put_back(&mut self, place: &mut GivenPlace, piece: Vec<u8>) {
        if std::mem::take(&mut place.is_on_its_way)
            && !self.is_gone
            && let Some(kept) = self.pieces.get_mut(place.len - 1)
        {
            *kept = piece;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One try that has what was given before, then pieces of the client of these sizes; gives the bytes that it has
    /// sent, and whether the body has ended by then.
    fn tried(body: &mut GivenBody, sizes: &[usize], ends: bool) -> (Vec<u8>, bool) {
        let mut place = GivenPlace::default();
        let mut sent = Vec::new();
        let mut has_more = true;
        while let Some((piece, more)) = body.again(&mut place) {
            sent.extend_from_slice(&piece);
            has_more = more;
            body.put_back(&mut place, piece);
        }
        for (number, size) in sizes.iter().enumerate() {
            let from = sent.len();
            let piece: Vec<u8> = (from..from + size).map(|at| at as u8).collect();
            has_more = !(ends && number + 1 == sizes.len());
            body.take(&piece, has_more, true, &mut place);
            sent.extend_from_slice(&piece);
            body.put_back(&mut place, piece);
        }
        (sent, !has_more)
    }

    #[test]
    fn a_try_has_what_the_tries_before_it_have_had() {
        let mut body = GivenBody::default();
        assert!(body.is_here());
        assert_eq!(tried(&mut body, &[], false), (Vec::new(), false));
        let (first, _) = tried(&mut body, &[3, 5], false);
        let (second, is_whole) = tried(&mut body, &[7, 0], true);
        assert_eq!(second[..8], first);
        let expect: Vec<u8> = (0..15).collect();
        assert_eq!((second, is_whole), (expect.clone(), true));
        // All of it, once more.
        assert_eq!(tried(&mut body, &[], false), (expect, true));
        assert!(body.is_here());
    }

    #[test]
    fn a_piece_on_its_way_comes_back_once() {
        let mut body = GivenBody::default();
        let mut place = GivenPlace::default();
        body.take(b"one", true, true, &mut place);
        body.put_back(&mut place, b"one".to_vec());
        // As at the end of a try that has sent all of its pieces.
        body.put_back(&mut place, Vec::new());
        let again = body.again(&mut GivenPlace::default());
        assert_eq!(again, Some((b"one".to_vec(), true)));
    }

    #[test]
    fn a_long_body_is_given_once() {
        let mut body = GivenBody::default();
        let mut place = GivenPlace::default();
        body.take(&vec![0; KEPT_BYTES_MAX], true, true, &mut place);
        body.put_back(&mut place, vec![0; KEPT_BYTES_MAX]);
        assert!(body.is_here());
        body.take(b"x", true, true, &mut place);
        // At once, not when the piece comes back.
        assert!(!body.is_here());
        body.put_back(&mut place, b"x".to_vec());
        assert_eq!(body.again(&mut GivenPlace::default()), None);
        assert_eq!(body.pieces.capacity(), 0);
    }

    #[test]
    fn a_body_in_many_pieces_is_given_once() {
        let mut body = GivenBody::default();
        tried(&mut body, &[1; KEPT_PIECES_MAX], false);
        assert!(body.is_here());
        tried(&mut body, &[1], false);
        assert!(!body.is_here() && body.pieces.is_empty());
    }

    #[test]
    fn what_is_not_to_be_kept_is_gone() {
        let mut body = GivenBody::default();
        let mut place = GivenPlace::default();
        body.take(b"x", false, false, &mut place);
        body.put_back(&mut place, b"x".to_vec());
        assert!(!body.is_here() && body.pieces.is_empty());
    }
}
