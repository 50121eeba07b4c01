//! Why an upstream gave no response, or not all of one.

use std::io;

use http::upstream::RequestFault;
use queueing::balancing::FailureKind;
use telemetry::Ending;
use tokio_rustls::rustls::{AlertDescription, CertificateError, Error as TlsError};

/// What went wrong between here and an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamFault {
    /// No connection could be made.
    Unreachable,
    /// No connection was made in time.
    ConnectTimeout,
    /// The TLS handshake failed.
    Handshake(HandshakeCause),
    /// The connection ended before any byte of the response.
    Closed,
    /// Bytes that are no response, with what is wrong with them.
    Malformed(http::upstream::UpstreamFault),
    /// The server has said by GOAWAY that it does not process this stream.
    GoneAway,
    /// The server has refused the stream: it has not processed the request.
    Refused,
    /// The server has reset the stream.
    Reset,
    /// What the server sends is not HTTP/2.
    Http2Violation,
    /// The client wants to change the protocol, which requests over HTTP/2 cannot ask for.
    NoUpgrade,
    /// Nothing came for too long.
    Silent,
    /// No server of the group is there to be asked.
    NoneLeft,
    /// None had a free slot in time.
    NoneFree,
    /// As many exchanges wait for the server that it is bound to as may wait.
    QueueFull,
    /// As many tunnels are open as may be.
    TooManyTunnels,
    /// The client takes success for a change of the protocol, which the upstream has not made.
    NotSwitched,
    /// A response with a status that is tried again elsewhere, where nobody else could be asked.
    Status(u16),
    /// The body of the request could not be read from its file, or broke off.
    Body,
    /// Nothing more of the response reaches the client.
    Unwanted,
    /// The request cannot be written for an upstream.
    Unwritable(RequestFault),
}

impl UpstreamFault {
    /// The status that the client gets.
    pub(super) fn status(self) -> u16 {
        match self {
            UpstreamFault::ConnectTimeout | UpstreamFault::Silent => 504,
            UpstreamFault::NoneLeft
            | UpstreamFault::NoneFree
            | UpstreamFault::QueueFull
            | UpstreamFault::TooManyTunnels => 503,
            UpstreamFault::Status(status) => status,
            UpstreamFault::NoUpgrade => 501,
            UpstreamFault::Body | UpstreamFault::Unwanted => 500,
            UpstreamFault::Unwritable(RequestFault::Field(_)) => 500,
            UpstreamFault::Unwritable(_) => 400,
            _ => 502,
        }
    }

    /// What the log says.
    pub(super) fn cause(self) -> &'static str {
        match self {
            UpstreamFault::Unreachable => "the upstream cannot be reached",
            UpstreamFault::ConnectTimeout => {
                "the upstream took no connection within connect_timeout"
            }
            UpstreamFault::Handshake(cause) => cause.text(),
            UpstreamFault::Closed => "the upstream closed the connection without a response",
            UpstreamFault::Malformed(fault) => fault.text(),
            UpstreamFault::GoneAway => {
                "the upstream closed the HTTP/2 connection before the request"
            }
            UpstreamFault::Refused => "the upstream refused the HTTP/2 stream",
            UpstreamFault::Reset => "the upstream reset the HTTP/2 stream",
            UpstreamFault::Http2Violation => "the upstream does not keep the rules of HTTP/2",
            UpstreamFault::NoUpgrade => {
                "the upstream is asked by HTTP/2 (protocol), which has no Upgrade"
            }
            UpstreamFault::Silent => "the upstream sent nothing for response_timeout",
            UpstreamFault::NoneLeft => "no server of the upstream works",
            UpstreamFault::NoneFree => "waited too long for a slot of the upstream",
            UpstreamFault::QueueFull => "queue is full",
            UpstreamFault::TooManyTunnels => "as many tunnels are open as may be (tunnels_max)",
            UpstreamFault::NotSwitched => {
                "the upstream has answered a WebSocket handshake by success without a change of the protocol"
            }
            UpstreamFault::Status(_) => "the upstream's response is one of retry_status",
            UpstreamFault::Body => "the request's body broke off",
            UpstreamFault::Unwanted => "",
            UpstreamFault::Unwritable(_) => "the request cannot be written for an upstream",
        }
    }

    /// The error type of Proxy-Status (RFC 9209 section 2.3); `None`: the upstream is not to blame.
    pub(super) fn error_type(self) -> Option<&'static str> {
        Some(match self {
            UpstreamFault::Unreachable => "connection_refused",
            UpstreamFault::ConnectTimeout => "connection_timeout",
            UpstreamFault::Handshake(HandshakeCause::Refused) => "tls_alert_received",
            UpstreamFault::Handshake(HandshakeCause::Other) => "tls_protocol_error",
            UpstreamFault::Handshake(_) => "tls_certificate_error",
            UpstreamFault::Closed | UpstreamFault::GoneAway | UpstreamFault::Reset => {
                "connection_terminated"
            }
            UpstreamFault::Refused => "http_request_denied",
            UpstreamFault::Malformed(_)
            | UpstreamFault::NotSwitched
            | UpstreamFault::Http2Violation => "http_protocol_error",
            UpstreamFault::NoUpgrade => "http_upgrade_failed",
            UpstreamFault::Silent => "http_response_timeout",
            UpstreamFault::NoneLeft => "destination_unavailable",
            UpstreamFault::NoneFree | UpstreamFault::QueueFull | UpstreamFault::TooManyTunnels => {
                "connection_limit_reached"
            }
            UpstreamFault::Status(_)
            | UpstreamFault::Body
            | UpstreamFault::Unwanted
            | UpstreamFault::Unwritable(_) => return None,
        })
    }

    /// What the group's server has done wrong; `None`: it is not to blame.
    pub(super) fn failure(self) -> Option<FailureKind> {
        Some(match self {
            UpstreamFault::Unreachable | UpstreamFault::Handshake(_) => FailureKind::Connect,
            UpstreamFault::ConnectTimeout | UpstreamFault::Silent => FailureKind::Timeout,
            UpstreamFault::Closed
            | UpstreamFault::GoneAway
            | UpstreamFault::Refused
            | UpstreamFault::Reset => FailureKind::Closed,
            UpstreamFault::Malformed(_)
            | UpstreamFault::NotSwitched
            | UpstreamFault::Http2Violation => FailureKind::Malformed,
            UpstreamFault::Status(_)
            | UpstreamFault::NoneLeft
            | UpstreamFault::NoneFree
            | UpstreamFault::QueueFull
            | UpstreamFault::TooManyTunnels
            | UpstreamFault::NoUpgrade
            | UpstreamFault::Body
            | UpstreamFault::Unwanted
            | UpstreamFault::Unwritable(_) => return None,
        })
    }

    /// How the exchange ends: with `has_begun` the client has a part of the response.
    pub(super) fn ending(self, has_begun: bool) -> Ending {
        match self {
            UpstreamFault::ConnectTimeout | UpstreamFault::Silent => Ending::Timeout,
            _ if has_begun => Ending::Cut,
            _ => Ending::Refused,
        }
    }
}

/// What is wrong with a TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeCause {
    /// No authority that counts has signed the certificate.
    Issuer,
    /// It is for another name.
    Name,
    /// Its time is over, or has not come.
    Time,
    /// It is not a good one for another reason.
    Certificate,
    /// The server wants another certificate of the proxy, or nothing that the proxy can offer.
    Refused,
    /// The server does not agree on HTTP/2.
    NoHttp2,
    /// There is no TLS, or too little in common.
    Other,
}

impl HandshakeCause {
    fn text(self) -> &'static str {
        match self {
            Self::Issuer => "the certificate of the upstream has an unknown issuer (tls_ca)",
            Self::Name => "the certificate of the upstream is for another name (tls_name)",
            Self::Time => "the certificate of the upstream has expired, or is not valid yet",
            Self::Certificate => "the certificate of the upstream cannot be used",
            Self::Refused => "the upstream refused the TLS handshake (tls_cert, tls_name)",
            Self::NoHttp2 => {
                "the upstream does not agree on HTTP/2 in the TLS handshake (protocol)"
            }
            Self::Other => "the TLS handshake with the upstream failed",
        }
    }
}

/// Why a TLS handshake failed.
pub(super) fn of_handshake(error: &io::Error) -> UpstreamFault {
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref());
    UpstreamFault::Handshake(match cause {
        Some(TlsError::InvalidCertificate(error)) => match error {
            CertificateError::UnknownIssuer => HandshakeCause::Issuer,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                HandshakeCause::Name
            }
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => HandshakeCause::Time,
            _ => HandshakeCause::Certificate,
        },
        Some(TlsError::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            HandshakeCause::NoHttp2
        }
        Some(TlsError::AlertReceived(_)) => HandshakeCause::Refused,
        _ => HandshakeCause::Other,
    })
}

/// Why a connection could not be made.
pub(super) fn of_connect(error: &io::Error) -> UpstreamFault {
    match error.kind() {
        io::ErrorKind::TimedOut => UpstreamFault::ConnectTimeout,
        _ => UpstreamFault::Unreachable,
    }
}
