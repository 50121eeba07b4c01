//! What a TLS handshake has agreed on, as it travels within a record: words with a space between them.
//!
//! ```text
//! 1.3 TLS13_AES_256_GCM_SHA384 no shop.example http/1.1 412
//! ```
//! Version, cipher, whether a session was resumed, the name that the client asked for, the protocol, and the
//! microseconds from the accept to the end of the handshake, which the first request of a connection has alone. `-`
//! stands for what is not known.

use crate::Nanos;

/// Those words; empty ones are not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlsRecord<'a> {
    /// `1.3` or `1.2`
    pub version: &'a [u8],
    /// `TLS13_AES_256_GCM_SHA384`
    pub cipher: &'a [u8],
    /// `yes` or `no`
    pub resumed: &'a [u8],
    /// The name that the client asked for.
    pub server_name: &'a [u8],
    /// `http/1.1`
    pub alpn: &'a [u8],
    /// From the accept to the end of the handshake, for the first request of a connection.
    pub handshake: Option<Nanos>,
}

impl<'a> TlsRecord<'a> {
    /// Reads the words; `None` where there are none.
    pub fn parse(text: &'a [u8]) -> Option<TlsRecord<'a>> {
        if text.is_empty() {
            return None;
        }
        let mut words = text.split(|byte| *byte == b' ');
        let mut word = || match words.next() {
            None | Some(b"-") => &b""[..],
            Some(word) => word,
        };
        let (version, cipher, resumed) = (word(), word(), word());
        let (server_name, alpn) = (word(), word());
        let micros = std::str::from_utf8(word()).unwrap_or_default().parse();
        Some(TlsRecord {
            version,
            cipher,
            resumed,
            server_name,
            alpn,
            handshake: micros.ok().map(|us: u64| Nanos(us.saturating_mul(1_000))),
        })
    }

    /// Appends the words.
    pub fn write(&self, out: &mut Vec<u8>) {
        for word in [
            self.version,
            self.cipher,
            self.resumed,
            self.server_name,
            self.alpn,
        ] {
            match word {
                b"" => out.push(b'-'),
                // A space would shift the words behind it; no name of a host has one.
                word => out.extend(word.iter().map(|byte| match byte {
                    b' ' => b'_',
                    byte => *byte,
                })),
            }
            out.push(b' ');
        }
        match self.handshake {
            Some(took) => out.extend_from_slice((took.0 / 1_000).to_string().as_bytes()),
            None => out.push(b'-'),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were_written() {
        let check = |tls: TlsRecord<'_>, expect: &str| {
            let mut text = Vec::new();
            tls.write(&mut text);
            assert_eq!(String::from_utf8_lossy(&text), expect);
            assert_eq!(TlsRecord::parse(&text), Some(tls));
        };
        check(TlsRecord::default(), "- - - - - -");
        let first = TlsRecord {
            version: b"1.3",
            cipher: b"TLS13_AES_128_GCM_SHA256",
            resumed: b"no",
            server_name: b"shop.example",
            alpn: b"http/1.1",
            handshake: Some(Nanos(412_000)),
        };
        let text = "1.3 TLS13_AES_128_GCM_SHA256 no shop.example http/1.1 412";
        check(first, text);
        assert_eq!(TlsRecord::parse(b""), None);
    }
}
