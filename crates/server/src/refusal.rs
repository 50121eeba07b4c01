//! Refusals: responses that the server gives by itself, before or in the place of a backend's.
//!
//! The status and a few plain words are public; the cause goes to the log only.

use files::Reply;

/// RFC 7617 section 2.1: names and passwords are UTF-8.
const CHALLENGE: &[u8] = b"Basic realm=\"restricted\", charset=\"UTF-8\"";

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// For the log.
    pub(crate) cause: &'static str,
    /// Seconds after which to try again.
    pub(crate) retry_after_secs: Option<u32>,
    /// The methods that are allowed, for a 405 (RFC 9110 section 15.5.6).
    pub(crate) allow: Option<&'static str>,
    /// Credentials are asked for (RFC 9110 section 11.6.1).
    pub(crate) asks_user: bool,
}

impl Refusal {
    pub(crate) const HEAD_TIMEOUT: Refusal = Refusal::because(408, "head not complete in time");
    pub(crate) const BODY_SILENT: Refusal = Refusal::because(408, "body stopped coming");
    pub(crate) const BODY_SLOW: Refusal = Refusal::because(408, "body came too slowly");
    pub(crate) const SPOOL_FULL: Refusal = Refusal::because(507, "no space for the request body");
    pub(crate) const SPOOL_FAILED: Refusal =
        Refusal::because(500, "request body could not be stored");

    /// For a connection that has sent nothing while others need its place.
    pub(crate) const CROWDED: Refusal = Refusal {
        retry_after_secs: Some(1),
        ..Refusal::because(
            503,
            "nothing was sent, and others need the place (connections_max)",
        )
    };

    /// For a client that a proxy names, as `client_connections_max` counts its requests.
    pub(crate) const CLIENT_CROWDED: Refusal = Refusal {
        retry_after_secs: Some(1),
        ..Refusal::because(
            429,
            "the client has as many requests under way as it may have (client_connections_max)",
        )
    };

    /// For a client that asks more often than its route allows.
    pub(crate) const TOO_OFTEN: Refusal =
        Refusal::because(429, "the client asks more often than it may (rate_limit)");
    pub(crate) const NO_CREDENTIALS: Refusal = Refusal {
        asks_user: true,
        ..Refusal::because(401, "no user and no password (basic_auth)")
    };
    pub(crate) const WRONG_PASSWORD: Refusal = Refusal {
        asks_user: true,
        ..Refusal::because(401, "a wrong user or password (basic_auth)")
    };
    pub(crate) const PASSWORDS_CROWDED: Refusal = Refusal {
        retry_after_secs: Some(1),
        ..Refusal::because(503, "too many passwords wait for their check (basic_auth)")
    };

    pub(crate) const NAMES_COPIED: Refusal = Refusal::because(
        400,
        "Connection names a header that forward_auth sets (copy)",
    );

    pub(crate) const ROUTE_CHANGED: Refusal = Refusal::because(
        403,
        "the headers that forward_auth sets (copy) lead to another route",
    );

    pub(crate) const NO_WEBSOCKET: Refusal =
        Refusal::because(501, "WebSocket is for ASGI applications");
    pub(crate) const MISDIRECTED: Refusal =
        Refusal::because(421, "https target on a connection without TLS");

    pub(crate) const fn because(status: u16, cause: &'static str) -> Self {
        Refusal {
            status,
            cause,
            retry_after_secs: None,
            allow: None,
            asks_user: false,
        }
    }

    pub(crate) fn reply(&self) -> Reply {
        Reply::refusal_with(self.status, |fields| {
            if let Some(secs) = self.retry_after_secs {
                fields.push_decimal(b"Retry-After", u64::from(secs));
            }
            if let Some(allow) = self.allow {
                fields.push(b"Allow", allow.as_bytes());
            }
            if self.asks_user {
                fields.push(b"WWW-Authenticate", CHALLENGE);
            }
        })
    }
}

impl From<http::Refusal> for Refusal {
    fn from(refusal: http::Refusal) -> Self {
        Refusal::because(refusal.status, refusal.cause.text())
    }
}
