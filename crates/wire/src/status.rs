//! Status codes, their reasons and the lines made of them, rendered at compile time.
//!
//! Takes a code, gives text. It must not know when a status is sent.

/// The interim reply that lets a client send its body, RFC 9110 section 15.2.1.
pub const CONTINUE_100: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

macro_rules! statuses {
    ($($status:literal $reason:literal,)*) => {
        /// The registered reason phrase of `status`, RFC 9110 section 15; empty for an unregistered one.
        pub fn reason(status: u16) -> &'static str {
            match status { $($status => $reason,)* _ => "" }
        }

        /// The whole line, for a registered status.
        fn line(status: u16) -> Option<&'static [u8]> {
            match status {
                $($status => {
                    Some(concat!("HTTP/1.1 ", stringify!($status), " ", $reason, "\r\n").as_bytes())
                })*
                _ => None,
            }
        }
    };
}

statuses! {
    200 "OK",
    100 "Continue",
    101 "Switching Protocols",
    102 "Processing",
    103 "Early Hints",
    201 "Created",
    202 "Accepted",
    203 "Non-Authoritative Information",
    204 "No Content",
    205 "Reset Content",
    206 "Partial Content",
    207 "Multi-Status",
    208 "Already Reported",
    226 "IM Used",
    300 "Multiple Choices",
    301 "Moved Permanently",
    302 "Found",
    303 "See Other",
    304 "Not Modified",
    305 "Use Proxy",
    307 "Temporary Redirect",
    308 "Permanent Redirect",
    400 "Bad Request",
    401 "Unauthorized",
    402 "Payment Required",
    403 "Forbidden",
    404 "Not Found",
    405 "Method Not Allowed",
    406 "Not Acceptable",
    407 "Proxy Authentication Required",
    408 "Request Timeout",
    409 "Conflict",
    410 "Gone",
    411 "Length Required",
    412 "Precondition Failed",
    413 "Content Too Large",
    414 "URI Too Long",
    415 "Unsupported Media Type",
    416 "Range Not Satisfiable",
    417 "Expectation Failed",
    418 "I'm a teapot",
    421 "Misdirected Request",
    422 "Unprocessable Content",
    423 "Locked",
    424 "Failed Dependency",
    425 "Too Early",
    426 "Upgrade Required",
    428 "Precondition Required",
    429 "Too Many Requests",
    431 "Request Header Fields Too Large",
    451 "Unavailable For Legal Reasons",
    500 "Internal Server Error",
    501 "Not Implemented",
    502 "Bad Gateway",
    503 "Service Unavailable",
    504 "Gateway Timeout",
    505 "HTTP Version Not Supported",
    506 "Variant Also Negotiates",
    507 "Insufficient Storage",
    508 "Loop Detected",
    511 "Network Authentication Required",
}

/// Appends the status line of `status` with its registered reason: `HTTP/1.1 200 OK\r\n`. An unregistered
/// status gets an empty reason; one that has not three digits is written as 500, because no client could
/// read it.
pub fn write_status_line(out: &mut Vec<u8>, status: u16) {
    match line(status) {
        Some(line) => out.extend_from_slice(line),
        None => write_status_line_with(out, status, b""),
    }
}

/// Appends a status line with the handler's own reason. A reason with a control character in it is
/// replaced by the registered one, so that no handler can be talked into a second line by it.
pub fn write_status_line_with(out: &mut Vec<u8>, status: u16, reason: &[u8]) {
    if !(100..=999).contains(&status) {
        return write_status_line(out, 500);
    }
    let reason = if reason.iter().copied().all(crate::bytes::is_value) {
        reason
    } else {
        self::reason(status).as_bytes()
    };
    let digit = |unit: u16| b'0' + (status / unit % 10) as u8;
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(&[digit(100), digit(10), digit(1), b' ']);
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(write: impl Fn(&mut Vec<u8>), expect: &str) {
        let mut out = Vec::new();
        write(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), expect);
    }

    #[test]
    fn writes_registered_and_unregistered_statuses() {
        check(|out| write_status_line(out, 200), "HTTP/1.1 200 OK\r\n");
        check(
            |out| write_status_line(out, 431),
            "HTTP/1.1 431 Request Header Fields Too Large\r\n",
        );
        check(|out| write_status_line(out, 299), "HTTP/1.1 299 \r\n");
        check(
            |out| write_status_line(out, 99),
            "HTTP/1.1 500 Internal Server Error\r\n",
        );
        check(
            |out| write_status_line(out, 1000),
            "HTTP/1.1 500 Internal Server Error\r\n",
        );
    }

    #[test]
    fn writes_a_handlers_reason_unless_it_could_end_the_line() {
        check(
            |out| write_status_line_with(out, 200, b"Fine"),
            "HTTP/1.1 200 Fine\r\n",
        );
        check(
            |out| write_status_line_with(out, 299, b""),
            "HTTP/1.1 299 \r\n",
        );
        check(
            |out| write_status_line_with(out, 404, b"No\r\nX: y"),
            "HTTP/1.1 404 Not Found\r\n",
        );
    }

    #[test]
    fn every_rendered_line_agrees_with_the_written_one() {
        for status in 100..=599 {
            let Some(line) = line(status) else {
                assert_eq!(reason(status), "");
                continue;
            };
            let mut out = Vec::new();
            write_status_line_with(&mut out, status, reason(status).as_bytes());
            assert_eq!(out, line);
        }
    }
}
