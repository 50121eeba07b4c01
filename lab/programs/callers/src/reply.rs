//! One reply as it comes in: whether it is whole, right, and what it says of its connection. Takes bytes,
//! gives a judgement; knows nothing of sockets.

const HEAD_END: &[u8] = b"\r\n\r\n";
/// More than any right head here has.
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// What has come so far is worth.
#[derive(Debug, PartialEq, Eq)]
pub enum Judged {
    /// A part of a reply.
    Partial,
    /// All of it.
    Whole(Whole),
    /// Not what was asked for, or more of it.
    Wrong,
}

/// A reply that is right.
#[derive(Debug, PartialEq, Eq)]
pub struct Whole {
    /// The server has said that the connection ends.
    pub closes: bool,
    /// The process that has answered, where `X-Pid` says so; 0 where not.
    pub pid: u32,
}

/// A right reply is a 200 with a body of `body_bytes` times `x`.
pub fn judge(received: &[u8], body_bytes: usize) -> Judged {
    let ends = |window: &[u8]| window == HEAD_END;
    let Some(end) = received.windows(HEAD_END.len()).position(ends) else {
        return match received.len() > HEAD_BYTES_MAX || !is_ours(received) {
            true => Judged::Wrong,
            false => Judged::Partial,
        };
    };
    let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
    let body = &received[end + HEAD_END.len()..];
    let length = value(&head, "content-length").and_then(|text| text.parse::<usize>().ok());
    let is_right = is_ours(received) && length == Some(body_bytes);
    if !is_right || body.len() > body_bytes || body.iter().any(|byte| *byte != b'x') {
        return Judged::Wrong;
    }
    if body.len() < body_bytes {
        return Judged::Partial;
    }
    Judged::Whole(Whole {
        closes: value(&head, "connection").is_some_and(|text| text.contains("close")),
        pid: value(&head, "x-pid")
            .and_then(|text| text.parse().ok())
            .unwrap_or(0),
    })
}

fn is_ours(received: &[u8]) -> bool {
    let start = b"HTTP/1.1 200 ";
    let seen = received.len().min(start.len());
    received[..seen] == start[..seen]
}

fn value<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.split("\r\n").find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key == name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: &str = "HTTP/1.1 200 OK\r\nX-Pid: 7\r\nContent-Length: 3\r\n\r\nxxx";

    fn check(text: &str, expect: &Judged) {
        assert_eq!(judge(text.as_bytes(), 3), *expect, "{text:?}");
    }

    #[test]
    fn says_when_a_reply_is_whole() {
        for end in 0..RIGHT.len() {
            check(&RIGHT[..end], &Judged::Partial);
        }
        check(
            RIGHT,
            &Judged::Whole(Whole {
                closes: false,
                pid: 7,
            }),
        );
        check(
            "HTTP/1.1 200 OK\r\nConnection: Close\r\ncontent-length: 3\r\n\r\nxxx",
            &Judged::Whole(Whole {
                closes: true,
                pid: 0,
            }),
        );
    }

    #[test]
    fn takes_nothing_else_for_a_right_reply() {
        for wrong in [
            "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 3\r\n\r\nxxx",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nxx",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nxyx",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nxxxx",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.0",
            "xxx",
        ] {
            check(wrong, &Judged::Wrong);
        }
    }
}
