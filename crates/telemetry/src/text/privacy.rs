//! What of a client is not written: bits of its address, queries.
//!
//! Takes a record, gives one that may be shown; the forms know nothing of it. It must not allocate for
//! a line: what is not a part of the record is kept in two buffers that are used again.

use std::io::Write;
use std::net::IpAddr;

use ipnet::IpNet;

use super::Style;
use crate::Record;

const BITS_V4: u8 = 32;
const BITS_V6: u8 = 128;

/// Hides what a style does not show.
#[derive(Debug)]
pub(super) struct Privacy {
    style: Style,
    client: Vec<u8>,
    peer: Vec<u8>,
    request_line: Vec<u8>,
}

impl Privacy {
    /// `None` when everything is shown.
    pub(super) fn new(style: Style) -> Option<Privacy> {
        let hides = style.prefix_v4 < BITS_V4 || style.prefix_v6 < BITS_V6 || !style.query;
        hides.then(|| Privacy {
            style,
            client: Vec::new(),
            peer: Vec::new(),
            request_line: Vec::new(),
        })
    }

    /// The record without what is hidden.
    pub(super) fn show<'r>(&'r mut self, record: &Record<'r>) -> Record<'r> {
        let mut shown = *record;
        if let Some(masked) = masked(record.client, &self.style) {
            self.client.clear();
            write!(self.client, "{masked}").expect("a vector takes all");
            shown.client = &self.client;
        }
        if let Some(masked) = masked(record.peer, &self.style) {
            self.peer.clear();
            write!(self.peer, "{masked}").expect("a vector takes all");
            shown.peer = &self.peer;
        }
        // A referer has the query of another page, which may be as private.
        if !self.style.query {
            shown.target = before_query(record.target);
            shown.referer = before_query(record.referer);
            self.request_line.clear();
            push_without_query(&mut self.request_line, record.request_line);
            shown.request_line = &self.request_line;
        }
        shown
    }
}

/// The address with the bits beyond its prefix cleared; `None` when it stays as it is: it is no address
/// (`unix:`), or the whole of it is shown.
fn masked(peer: &[u8], style: &Style) -> Option<IpAddr> {
    let address: IpAddr = std::str::from_utf8(peer).ok()?.parse().ok()?;
    // An IPv4 address that is written as IPv6 counts as IPv4, and is written so again.
    let canonical = address.to_canonical();
    let prefix = match canonical {
        IpAddr::V4(_) => style.prefix_v4,
        IpAddr::V6(_) => style.prefix_v6,
    };
    let net = IpNet::new(canonical, prefix).ok()?;
    if net.prefix_len() == net.max_prefix_len() {
        return None;
    }
    Some(match (address, net.network()) {
        (IpAddr::V6(_), IpAddr::V4(v4)) => IpAddr::V6(v4.to_ipv6_mapped()),
        (_, masked) => masked,
    })
}

/// Everything before the first `?`.
fn before_query(text: &[u8]) -> &[u8] {
    // One in a fragment counts too: what follows it may be as private.
    match text.iter().position(|&byte| byte == b'?') {
        Some(at) => &text[..at],
        None => text,
    }
}

/// Appends a raw first line without what lies between its first `?` and its version.
fn push_without_query(out: &mut Vec<u8>, line: &[u8]) {
    const VERSION: &[u8] = b" HTTP/";
    let kept = before_query(line);
    out.extend_from_slice(kept);
    let query = &line[kept.len()..];
    // Not only to the next space: a space in the query is one of the things that a head is refused for.
    if let Some(at) = query
        .windows(VERSION.len())
        .rposition(|part| part == VERSION)
    {
        let version = &query[at..];
        let end = version.iter().skip(1).position(|&byte| byte == b' ');
        out.extend_from_slice(&version[..end.map_or(version.len(), |end| end + 1)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn style(prefix_v4: u8, prefix_v6: u8) -> Style {
        Style {
            prefix_v4,
            prefix_v6,
            ..Style::default()
        }
    }

    #[track_caller]
    fn check_peer(peer: &str, style: Style, expect: &str) {
        let record = Record {
            client: peer.as_bytes(),
            peer: peer.as_bytes(),
            ..Record::default()
        };
        let mut privacy = Privacy::new(Style {
            query: false,
            ..style
        });
        let shown = privacy.as_mut().expect("it hides queries").show(&record);
        assert_eq!(std::str::from_utf8(shown.peer), Ok(expect));
        assert_eq!(shown.client, shown.peer);
    }

    #[track_caller]
    fn check_line(line: &str, expect: &str) {
        let mut out = Vec::new();
        push_without_query(&mut out, line.as_bytes());
        assert_eq!(std::str::from_utf8(&out), Ok(expect));
    }

    #[test]
    fn masks_ipv4() {
        check_peer("192.0.2.77", style(24, 128), "192.0.2.0");
        check_peer("192.0.2.77", style(0, 128), "0.0.0.0");
        check_peer("192.0.2.77", style(32, 0), "192.0.2.77");
        check_peer("255.255.255.255", style(1, 128), "128.0.0.0");
        check_peer("255.255.255.255", style(31, 128), "255.255.255.254");
        check_peer("192.0.2.77", style(200, 0), "192.0.2.77");
    }

    #[test]
    fn masks_ipv6() {
        let peer = "2001:db8:1234:5678:9abc:def0:1:2";
        check_peer(peer, style(32, 48), "2001:db8:1234::");
        check_peer(peer, style(32, 0), "::");
        check_peer(peer, style(0, 128), peer);
        check_peer(peer, style(32, 127), peer);
        check_peer("2001:db8:0:1::5", style(32, 126), "2001:db8:0:1::4");
        check_peer("ffff::ffff", style(32, 12), "fff0::");
        check_peer("::1", style(32, 64), "::");
        check_peer("::1", style(24, 200), "::1");
    }

    #[test]
    fn masks_ipv4_that_is_written_as_ipv6_by_the_prefix_of_ipv4() {
        check_peer("::ffff:192.0.2.1", style(24, 0), "::ffff:192.0.2.0");
        check_peer("::ffff:192.0.2.1", style(32, 48), "::ffff:192.0.2.1");
        check_peer("::ffff:192.0.2.1", style(0, 128), "::ffff:0.0.0.0");
    }

    #[test]
    fn leaves_alone_what_is_no_address() {
        for peer in [
            "unix:",
            "",
            "localhost",
            "192.0.2",
            "192.0.2.7:80",
            "[::1]",
            "é",
        ] {
            check_peer(peer, style(0, 0), peer);
        }
        assert_eq!(masked(b"\xff\x00", &style(0, 0)), None);
    }

    #[test]
    fn hides_everything_behind_the_first_question_mark() {
        for (text, expect) in [
            ("", ""),
            ("/a", "/a"),
            ("?", ""),
            ("/a?", "/a"),
            ("/a?b?c", "/a"),
            ("/a?b#c", "/a"),
            ("http://h/a#b?c", "http://h/a#b"),
            ("/%3fkept", "/%3fkept"),
        ] {
            let text = text.as_bytes();
            let record = Record {
                target: text,
                referer: text,
                host: b"a?b",
                ..Record::default()
            };
            let mut privacy = Privacy::new(Style {
                query: false,
                ..Style::default()
            })
            .unwrap();
            let shown = privacy.show(&record);
            assert_eq!(shown.target, expect.as_bytes());
            assert_eq!(shown.referer, expect.as_bytes());
            assert_eq!(shown.host, b"a?b");
        }
    }

    #[test]
    fn keeps_method_and_version_of_a_raw_line() {
        check_line("GET /a HTTP/1.1", "GET /a HTTP/1.1");
        check_line("GET /a?b HTTP/1.1", "GET /a HTTP/1.1");
        check_line("GET /a?b?c HTTP/9", "GET /a HTTP/9");
        check_line("GET ? HTTP/1.1", "GET  HTTP/1.1");
        // What a head is refused for.
        check_line("GET /a?b c?d HTTP/1.1", "GET /a HTTP/1.1");
        check_line("GET /a?b HTTP/1.1 ", "GET /a HTTP/1.1");
        check_line("GET /a?b HTTP/1.1 HTTP/1.1", "GET /a HTTP/1.1");
        check_line("GET /a?b HTTP/1.1 more", "GET /a HTTP/1.1");
        check_line("GET /a?b", "GET /a");
        check_line("GET /a?b c", "GET /a");
        check_line("GET /a b", "GET /a b");
        check_line("GE?T /a HTTP/1.1", "GE HTTP/1.1");
        check_line("", "");
    }

    #[test]
    fn is_not_there_when_nothing_is_hidden() {
        assert!(Privacy::new(Style::default()).is_none());
        assert!(Privacy::new(style(255, 255)).is_none());
        assert!(Privacy::new(style(31, 128)).is_some());
        assert!(Privacy::new(style(32, 127)).is_some());
    }
}
