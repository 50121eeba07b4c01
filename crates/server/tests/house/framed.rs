//! A client that reads replies as they are framed and coded, and remembers what it has read too much of.
//!
//! Shares no parser with the server; decodes with the readers of the coding crates.

use std::io::{Read, Write};
use std::net::TcpStream;

/// A connection, and the bytes of it that were read but not used.
pub(super) struct Client {
    pub(super) stream: TcpStream,
    pub(super) buffer: Vec<u8>,
}

/// A reply as it was framed.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) head: String,
    pub(super) body: Vec<u8>,
    /// Its end came, and was no reset.
    pub(super) is_complete: bool,
}

impl Client {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    pub(super) fn send(&mut self, method: &str, lines: &str) {
        let text = format!("{method} / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    pub(super) fn ask(&mut self, method: &str, lines: &str) -> Reply {
        self.send(method, lines);
        self.reply(method)
    }

    /// False at the end of the connection, a reset or not.
    pub(super) fn more(&mut self) -> bool {
        let mut buffer = [0; 64 << 10];
        let count = self.stream.read(&mut buffer).unwrap_or(0);
        self.buffer.extend_from_slice(&buffer[..count]);
        count > 0
    }

    fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < bytes {
            if !self.more() {
                return None;
            }
        }
        let rest = self.buffer.split_off(bytes);
        Some(std::mem::replace(&mut self.buffer, rest))
    }

    fn until(&mut self, end: &[u8]) -> Option<String> {
        let find = |buffer: &[u8]| buffer.windows(end.len()).position(|found| found == end);
        loop {
            if let Some(at) = find(&self.buffer) {
                let taken = self.take(at + end.len()).unwrap();
                return Some(String::from_utf8(taken).unwrap());
            }
            if !self.more() {
                return None;
            }
        }
    }

    pub(super) fn head(&mut self) -> String {
        self.until(b"\r\n\r\n").unwrap()
    }

    /// One chunk of a chunked body; the last one is empty.
    pub(super) fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = self.until(b"\r\n")?;
        let bytes = usize::from_str_radix(line.trim(), 16).unwrap();
        let data = self.take(bytes)?;
        assert_eq!(self.take(2)?, b"\r\n");
        Some(data)
    }

    pub(super) fn reply(&mut self, method: &str) -> Reply {
        let head = self.head();
        let mut reply = Reply {
            head,
            body: Vec::new(),
            is_complete: true,
        };
        if method == "HEAD" || reply.head.contains(" 304 ") {
            return reply;
        }
        if let Some(bytes) = reply.line("Content-Length") {
            match self.take(bytes.parse().unwrap()) {
                Some(body) => reply.body = body,
                None => reply.is_complete = false,
            }
            return reply;
        }
        assert_eq!(reply.line("Transfer-Encoding").as_deref(), Some("chunked"));
        loop {
            match self.chunk() {
                Some(data) if data.is_empty() => return reply,
                Some(data) => reply.body.extend(data),
                None => {
                    reply.is_complete = false;
                    return reply;
                }
            }
        }
    }
}

impl Reply {
    pub(super) fn line(&self, name: &str) -> Option<String> {
        let start = format!("{name}: ");
        let mut found = self
            .head
            .lines()
            .filter_map(|line| line.strip_prefix(&start));
        let value = found.next().map(str::to_owned);
        assert_eq!(found.next(), None, "{name} is there twice");
        value
    }

    /// The body behind its coding, and whether that was whole.
    pub(super) fn decoded(&self) -> (Vec<u8>, bool) {
        decode(
            &self.line("Content-Encoding").unwrap_or_default(),
            &self.body,
        )
    }
}

pub(super) fn decode(coding: &str, bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut reader: Box<dyn Read + '_> = match coding {
        "gzip" => Box::new(flate2::read::GzDecoder::new(bytes)),
        "zstd" => Box::new(zstd::stream::read::Decoder::new(bytes).unwrap()),
        "br" => Box::new(brotli::Decompressor::new(bytes, 4096)),
        other => panic!("no coding `{other}`"),
    };
    let mut decoded = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return (decoded, true),
            Ok(count) => decoded.extend_from_slice(&buffer[..count]),
            Err(_) => return (decoded, false),
        }
    }
}
