//! The PROXY protocol, versions 1 and 2: what a load balancer says of a connection before the client's first byte.
//!
//! Takes the bytes that have arrived so far, gives the connection's true ends and how many bytes said so; pure. Who may
//! say it, and how long that may take, is the caller's. <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>

use std::net::{IpAddr, SocketAddr};

/// Longest line of version 1, with its line end.
const V1_BYTES_MAX: usize = 107;
/// What version 2 begins with.
const V2_SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, command, family, length.
const V2_HEADER_BYTES: usize = 16;
/// Bytes that may follow the header of version 2: addresses, and more about the connection than is read here.
const V2_BODY_BYTES_MAX: usize = 1_024;
/// Bytes that are asked for at most before [`proxy_header`] says what they are.
pub const PROXY_HEADER_BYTES_MAX: usize = V2_HEADER_BYTES + V2_BODY_BYTES_MAX;

/// The ends of a connection, as the proxy in front has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxiedEnds {
    /// The client.
    pub client: SocketAddr,
    /// What the client connected to.
    pub local: SocketAddr,
    /// Whether the client spoke TLS with the proxy, as far as version 2 says so (`PP2_CLIENT_SSL`).
    pub is_tls: bool,
}

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeader {
    /// The beginning of a header; more has to come.
    Partial,
    /// A header.
    Complete {
        /// Its bytes, which the client's follow.
        bytes: usize,
        /// `None`: a connection of the proxy's own, such as a health check, or one without addresses. The ends
        /// of the connection itself count.
        ends: Option<ProxiedEnds>,
    },
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeaderFault {
    /// They begin with neither form: the peer does not speak the protocol.
    Absent,
    /// They begin as a header, and do not go on as one.
    Malformed,
    /// It says that it is longer than any that makes sense.
    TooLong,
}

impl ProxyHeaderFault {
    /// In words, for the error log.
    pub fn text(self) -> &'static str {
        match self {
            ProxyHeaderFault::Absent => {
                "the connection does not begin with a PROXY protocol header"
            }
            ProxyHeaderFault::Malformed => "the PROXY protocol header is malformed",
            ProxyHeaderFault::TooLong => "the PROXY protocol header is too long",
        }
    }
}

/// Appends a header of version 2: of a connection for a client with what it has connected to, or of the sender's own.
pub fn write_proxy_header(out: &mut Vec<u8>, ends: Option<(SocketAddr, SocketAddr)>) {
    const LOCAL: u8 = 0x20;
    const PROXY: u8 = 0x21;
    out.extend_from_slice(&V2_SIGNATURE);
    let Some((client, local)) = ends else {
        return out.extend_from_slice(&[LOCAL, 0, 0, 0]);
    };
    let (from, to) = (client.ip().to_canonical(), local.ip().to_canonical());
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            out.extend_from_slice(&[PROXY, 0x11, 0, 12]);
            out.extend_from_slice(&from.octets());
            out.extend_from_slice(&to.octets());
        }
        _ => {
            let octets = |ip| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            out.extend_from_slice(&[PROXY, 0x21, 0, 36]);
            out.extend_from_slice(&octets(from));
            out.extend_from_slice(&octets(to));
        }
    }
    out.extend_from_slice(&client.port().to_be_bytes());
    out.extend_from_slice(&local.port().to_be_bytes());
}

/// Reads the header at the beginning of `bytes`.
///
/// # Errors
/// There is none, or it is faulty: the connection is to be closed, because whoever speaks is not believed.
pub fn proxy_header(bytes: &[u8]) -> Result<ProxyHeader, ProxyHeaderFault> {
    const V1: &[u8] = b"PROXY ";
    if begins(bytes, V1) {
        return version_1(bytes);
    }
    if begins(bytes, &V2_SIGNATURE) {
        return version_2(bytes);
    }
    Err(ProxyHeaderFault::Absent)
}

/// Whether `bytes` begin with `with`, or may do so once more have come.
fn begins(bytes: &[u8], with: &[u8]) -> bool {
    let len = bytes.len().min(with.len());
    bytes[..len] == with[..len]
}

/// `PROXY TCP4 192.0.2.1 198.51.100.2 56324 443`, `PROXY UNKNOWN …`.
fn version_1(bytes: &[u8]) -> Result<ProxyHeader, ProxyHeaderFault> {
    let within = &bytes[..bytes.len().min(V1_BYTES_MAX)];
    let Some(end) = memchr::memchr(b'\n', within) else {
        return match within.len() {
            V1_BYTES_MAX => Err(ProxyHeaderFault::TooLong),
            _ => Ok(ProxyHeader::Partial),
        };
    };
    let line = within[..end]
        .strip_suffix(b"\r")
        .and_then(|line| std::str::from_utf8(line).ok());
    let ends = line
        .and_then(version_1_ends)
        .ok_or(ProxyHeaderFault::Malformed)?;
    Ok(ProxyHeader::Complete {
        bytes: end + 1,
        ends,
    })
}

/// The outer `None`: the line is malformed.
fn version_1_ends(line: &str) -> Option<Option<ProxiedEnds>> {
    let mut words = line.split(' ').skip(1);
    let family = words.next()?;
    if family == "UNKNOWN" {
        // Whatever follows is to be ignored.
        return Some(None);
    }
    let client_ip: IpAddr = words.next()?.parse().ok()?;
    let local_ip: IpAddr = words.next()?.parse().ok()?;
    let client = SocketAddr::new(client_ip, port(words.next()?)?);
    let local = SocketAddr::new(local_ip, port(words.next()?)?);
    let is_of_family = match family {
        "TCP4" => client.is_ipv4() && local.is_ipv4(),
        "TCP6" => client.is_ipv6() && local.is_ipv6(),
        _ => false,
    };
    (is_of_family && words.next().is_none()).then_some(Some(ProxiedEnds {
        client,
        local,
        is_tls: false,
    }))
}

fn port(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = is_number && (text.len() == 1 || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain)
}

fn version_2(bytes: &[u8]) -> Result<ProxyHeader, ProxyHeaderFault> {
    let Some(&[version_and_command, family, high, low]) = bytes
        .get(V2_SIGNATURE.len()..V2_HEADER_BYTES)
        .and_then(|rest| rest.first_chunk::<4>())
    else {
        return Ok(ProxyHeader::Partial);
    };
    let is_proxied = match version_and_command {
        0x20 => false,
        0x21 => true,
        _ => return Err(ProxyHeaderFault::Malformed),
    };
    let len = usize::from(u16::from_be_bytes([high, low]));
    if len > V2_BODY_BYTES_MAX {
        return Err(ProxyHeaderFault::TooLong);
    }
    let Some(body) = bytes.get(V2_HEADER_BYTES..V2_HEADER_BYTES + len) else {
        return Ok(ProxyHeader::Partial);
    };
    let ends = match (is_proxied, family) {
        (true, 0x11) => Some(ends_of::<4>(body).ok_or(ProxyHeaderFault::Malformed)?),
        (true, 0x21) => Some(ends_of::<16>(body).ok_or(ProxyHeaderFault::Malformed)?),
        // LOCAL, or another kind of socket than TCP: the ends that the connection has.
        _ => None,
    };
    Ok(ProxyHeader::Complete {
        bytes: V2_HEADER_BYTES + len,
        ends,
    })
}

/// Two addresses of `N` bytes, then two ports; more about the connection may follow. `None`: they are not whole.
fn ends_of<const N: usize>(body: &[u8]) -> Option<ProxiedEnds>
where
    IpAddr: From<[u8; N]>,
{
    let (client_ip, rest) = body.split_first_chunk::<N>()?;
    let (local_ip, rest) = rest.split_first_chunk::<N>()?;
    let (client_port, rest) = rest.split_first_chunk::<2>()?;
    let (local_port, rest) = rest.split_first_chunk::<2>()?;
    let end = |ip: &[u8; N], port: &[u8; 2]| {
        SocketAddr::new(IpAddr::from(*ip), u16::from_be_bytes(*port))
    };
    Some(ProxiedEnds {
        client: end(client_ip, client_port),
        local: end(local_ip, local_port),
        is_tls: is_tls(rest),
    })
}

/// Whether the vectors behind the addresses say that the client spoke TLS (section 2.2.6 of the specification). One
/// that is not whole ends them.
fn is_tls(mut vectors: &[u8]) -> bool {
    const TYPE_SSL: u8 = 0x20;
    const CLIENT_SSL: u8 = 0x01;
    while let Some((&[kind, high, low], rest)) = vectors.split_first_chunk() {
        let bytes = usize::from(u16::from_be_bytes([high, low]));
        let Some((value, rest)) = rest.split_at_checked(bytes) else {
            return false;
        };
        if kind == TYPE_SSL {
            return value.first().is_some_and(|client| client & CLIENT_SSL != 0);
        }
        vectors = rest;
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let check = |client: &str, local: &str, expect: (&str, &str)| {
            let read = |text: &str| -> SocketAddr { text.parse().expect("an address") };
            let mut bytes = Vec::new();
            write_proxy_header(&mut bytes, Some((read(client), read(local))));
            let ends = ProxiedEnds {
                client: read(expect.0),
                local: read(expect.1),
                is_tls: false,
            };
            let header = ProxyHeader::Complete {
                bytes: bytes.len(),
                ends: Some(ends),
            };
            assert_eq!(proxy_header(&bytes), Ok(header), "{client} {local}");
        };
        let v4 = ("192.0.2.7:5000", "198.51.100.1:443");
        check(v4.0, v4.1, v4);
        check("[::ffff:192.0.2.7]:5000", v4.1, v4);
        let v6 = ("[2001:db8::7]:1", "[2001:db8::1]:2");
        check(v6.0, v6.1, v6);
        let mut own = Vec::new();
        write_proxy_header(&mut own, None);
        let bytes = own.len();
        assert_eq!(
            proxy_header(&own),
            Ok(ProxyHeader::Complete { bytes, ends: None })
        );
    }

    fn ends(client: &str, local: &str) -> Option<ProxiedEnds> {
        Some(ProxiedEnds {
            client: client.parse().unwrap(),
            local: local.parse().unwrap(),
            is_tls: false,
        })
    }

    /// Complete with its last byte and not before it, whatever follows.
    #[track_caller]
    fn check_complete(header: &[u8], expect: Option<ProxiedEnds>) {
        for len in 0..header.len() {
            assert_eq!(
                proxy_header(&header[..len]),
                Ok(ProxyHeader::Partial),
                "{len}"
            );
        }
        let bytes = header.len();
        let complete = ProxyHeader::Complete {
            bytes,
            ends: expect,
        };
        assert_eq!(proxy_header(header), Ok(complete));
        assert_eq!(
            proxy_header(&[header, b"GET / HTTP/1.1\r\n"].concat()),
            Ok(complete)
        );
    }

    #[test]
    fn reads_version_1() {
        let check = |line: &str, expect| check_complete(format!("{line}\r\n").as_bytes(), expect);
        check(
            "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443",
            ends("192.0.2.1:56324", "198.51.100.2:443"),
        );
        check(
            "PROXY TCP6 2001:db8::1 ::1 1 65535",
            ends("[2001:db8::1]:1", "[::1]:65535"),
        );
        check("PROXY UNKNOWN", None);
        check("PROXY UNKNOWN 192.0.2.1 whatever", None);
    }

    #[test]
    fn refuses_lines_that_are_not_exact() {
        for line in [
            "PROXY TCP4 192.0.2.1 198.51.100.2 56324",
            "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443 ",
            "PROXY TCP4  192.0.2.1 198.51.100.2 56324 443",
            "PROXY TCP4 2001:db8::1 ::1 56324 443",
            "PROXY TCP6 192.0.2.1 198.51.100.2 56324 443",
            "PROXY TCP4 192.0.2.1 198.51.100.2 056 443",
            "PROXY TCP4 192.0.2.1 198.51.100.2 +56 443",
            "PROXY TCP4 192.0.2.1 198.51.100.2 56 65536",
            "PROXY UDP4 192.0.2.1 198.51.100.2 56324 443",
            "PROXY \u{e9}",
        ] {
            let malformed = Err(ProxyHeaderFault::Malformed);
            assert_eq!(
                proxy_header(format!("{line}\r\n").as_bytes()),
                malformed,
                "{line}"
            );
        }
        assert_eq!(
            proxy_header(b"PROXY UNKNOWN\n"),
            Err(ProxyHeaderFault::Malformed)
        );
        let long = format!("PROXY UNKNOWN {}", "x".repeat(V1_BYTES_MAX));
        assert_eq!(
            proxy_header(long.as_bytes()),
            Err(ProxyHeaderFault::TooLong)
        );
        for stranger in [
            "GET / HTTP/1.1\r\n",
            "PROXYTCP4",
            "proxy TCP4",
            "\r\n\r\nGET /",
            "\x16\x03\x01",
        ] {
            assert_eq!(
                proxy_header(stranger.as_bytes()),
                Err(ProxyHeaderFault::Absent),
                "{stranger:?}"
            );
        }
    }

    fn version_2_of(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let len = u16::try_from(body.len()).unwrap().to_be_bytes();
        [&V2_SIGNATURE[..], &[command, family], &len, body].concat()
    }

    #[test]
    fn reads_version_2() {
        let tcp4 = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb];
        let expect = ends("192.0.2.1:56324", "198.51.100.2:443");
        check_complete(&version_2_of(0x21, 0x11, &tcp4), expect);
        // With more about the connection behind the ports.
        check_complete(
            &version_2_of(0x21, 0x11, &[&tcp4[..], &[3, 0, 1, 7]].concat()),
            expect,
        );
        let secured = [&tcp4[..], &[3, 0, 1, 7, 0x20, 0, 5, 1, 0, 0, 0, 0]].concat();
        check_complete(
            &version_2_of(0x21, 0x11, &secured),
            expect.map(|ends| ProxiedEnds {
                is_tls: true,
                ..ends
            }),
        );
        let cut = [&tcp4[..], &[0x20, 0, 5, 1]].concat();
        check_complete(&version_2_of(0x21, 0x11, &cut), expect);
        let mut tcp6 = [0; 36];
        (tcp6[15], tcp6[31], tcp6[33], tcp6[35]) = (1, 2, 3, 4);
        check_complete(&version_2_of(0x21, 0x21, &tcp6), ends("[::1]:3", "[::2]:4"));
        for (command, family) in [
            (0x20, 0x00),
            (0x20, 0x11),
            (0x21, 0x00),
            (0x21, 0x31),
            (0x21, 0x12),
        ] {
            check_complete(&version_2_of(command, family, &tcp4), None);
        }
        check_complete(&version_2_of(0x20, 0x00, b""), None);
    }

    #[test]
    fn refuses_other_versions_and_lengths() {
        let malformed = Err(ProxyHeaderFault::Malformed);
        assert_eq!(proxy_header(&version_2_of(0x31, 0x11, &[0; 12])), malformed);
        assert_eq!(proxy_header(&version_2_of(0x22, 0x11, &[0; 12])), malformed);
        assert_eq!(proxy_header(&version_2_of(0x21, 0x11, &[0; 11])), malformed);
        assert_eq!(proxy_header(&version_2_of(0x21, 0x21, &[0; 35])), malformed);
        let long = version_2_of(0x20, 0x00, &[0; V2_BODY_BYTES_MAX + 1]);
        assert_eq!(
            proxy_header(&long[..V2_HEADER_BYTES]),
            Err(ProxyHeaderFault::TooLong)
        );
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..60), prefix in 0..3usize) {
            let prefix: &[u8] = [&b""[..], b"PROXY TCP4 ", &V2_SIGNATURE][prefix];
            if let Ok(ProxyHeader::Complete { bytes: len, .. }) = proxy_header(&[prefix, &bytes].concat()) {
                prop_assert!(len <= prefix.len() + bytes.len());
            }
        }
    }
}
