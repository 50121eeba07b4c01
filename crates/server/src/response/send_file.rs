//! Sending of files: parts with spans of files leave from a thread that may wait for a disk.
//!
//! It sends until the socket is full, the parts are gone or the allowance is used up, in steps: after each, the
//! other connections' tasks have their turn. It never waits for a client.

use std::io;
use std::sync::Arc;

use measure::Nanos;

use super::{Parts, Progress};
use crate::transport::PlainSocket;

/// Bytes of a span offered in the first call. Storage that needs 50 ms for each 128 KB takes that long for
/// them that nobody else has his turn.
const SPAN_BYTES_MIN: u64 = 256 << 10;
/// Bytes of a span offered in one call at most, once the storage has proved to be quick.
const SPAN_BYTES_MAX: u64 = 2 << 20;
/// A call that took no longer was served from memory.
const QUICK: Nanos = Nanos(2_000_000);
/// Bytes that one task sends at most, so that the driver hears of a client that takes everything.
const TASK_BYTES_MAX: u64 = 32 << 20;

/// What became of a task.
pub(crate) struct Written {
    /// What is still to go.
    pub(crate) parts: Parts,
    /// Bytes that the socket took.
    pub(crate) sent: u64,
    /// How the last call went.
    pub(crate) last: io::Result<Progress>,
}

/// The task of sending at most `most` bytes of `parts`, in steps; the last one gives the answer.
pub(crate) fn send_file(
    mut parts: Parts,
    socket: Arc<PlainSocket>,
    most: u64,
) -> impl FnMut() -> Option<Written> {
    let mut left = most.min(TASK_BYTES_MAX);
    let mut span = SPAN_BYTES_MIN;
    let mut sent_in_all = 0;
    move || {
        let began = measure::now();
        let last = parts.send(&*socket, span.min(left));
        if let Ok((progress, sent)) = &last {
            sent_in_all += sent;
            left -= sent;
            if *progress == Progress::More && left > 0 {
                span = next_span(span, measure::now().since(began));
                return None;
            }
        }
        Some(Written {
            parts: std::mem::take(&mut parts),
            sent: sent_in_all,
            last: last.map(|(progress, _)| progress),
        })
    }
}

fn next_span(span: u64, took: Nanos) -> u64 {
    if took <= QUICK {
        (span * 2).min(SPAN_BYTES_MAX)
    } else {
        SPAN_BYTES_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_more_only_while_the_storage_is_quick() {
        let mut span = SPAN_BYTES_MIN;
        for _ in 0..10 {
            span = next_span(span, QUICK);
        }
        assert_eq!(span, SPAN_BYTES_MAX);
        assert_eq!(next_span(span, Nanos(QUICK.0 + 1)), SPAN_BYTES_MIN);
    }
}
