//! Refusals: replies that the house gives by itself before any handler ran.
//!
//! The status and a few plain words are public; the cause goes to the log only.

use bytes::Bytes;

use crate::pool::Unadmitted;
use crate::reply::Reply;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) status: u16,
    /// For the log.
    pub(super) cause: &'static str,
    /// Seconds after which to try again.
    pub(super) retry_after_secs: Option<u32>,
}

impl Refused {
    pub(super) const HEAD_TIMEOUT: Refused = Refused::because(408, "head not complete in time");
    pub(super) const BODY_SILENT: Refused = Refused::because(408, "body stopped coming");
    pub(super) const BODY_SLOW: Refused = Refused::because(408, "body came too slowly");
    pub(super) const SPOOL_FULL: Refused = Refused::because(507, "no space for the request body");
    pub(super) const SPOOL_FAILED: Refused =
        Refused::because(500, "request body could not be stored");

    pub(super) const fn because(status: u16, cause: &'static str) -> Self {
        Refused {
            status,
            cause,
            retry_after_secs: None,
        }
    }

    pub(super) fn unadmitted(unadmitted: Unadmitted) -> Self {
        Refused {
            status: 503,
            cause: unadmitted.cause,
            retry_after_secs: Some(unadmitted.retry_after_secs),
        }
    }

    pub(super) fn reply(&self) -> Reply {
        let mut reply = Reply::plain(self.status);
        if let Some(secs) = self.retry_after_secs {
            let mut lines = reply.lines.to_vec();
            lines.extend_from_slice(format!("Retry-After: {secs}\r\n").as_bytes());
            reply.lines = Bytes::from(lines);
        }
        reply
    }
}

impl From<wire::Refusal> for Refused {
    fn from(refusal: wire::Refusal) -> Self {
        Refused::because(refusal.status, refusal.cause.text())
    }
}
