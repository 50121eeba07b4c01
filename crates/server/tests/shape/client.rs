//! Clients in memory: one that speaks frames, and what a response is whichever protocol carried it.

use std::io::{self, Read, Write};

use server::transport::memory;

pub(super) const HEAD: u8 = 1;
pub(super) const DATA: u8 = 2;
pub(super) const END: u8 = 3;
pub(super) const WINDOW: u8 = 4;
pub(super) const RESET: u8 = 5;

/// A response as the application and the server meant it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u16,
    /// Names and values in order, but for those that belong to a protocol or to the moment.
    pub(super) fields: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// It ended before it was complete.
    pub(super) is_cut: bool,
}

/// One frame of the server's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) stream: u16,
    pub(super) kind: u8,
    pub(super) payload: Vec<u8>,
}

/// A client that speaks frames.
pub(super) struct Frames(pub(super) memory::Client);

impl Frames {
    pub(super) fn send(&mut self, stream: u16, kind: u8, payload: &[u8]) {
        self.0.write_all(&frame(stream, kind, payload)).unwrap();
    }

    /// A whole request; its response gets no window yet.
    pub(super) fn begin(&mut self, stream: u16, head: &str, body: &[u8]) {
        self.send(stream, HEAD, head.as_bytes());
        for data in body.chunks(10_000) {
            self.send(stream, DATA, data);
        }
        self.send(stream, END, &[]);
    }

    pub(super) fn get(&mut self, stream: u16, path: &str) {
        self.begin(
            stream,
            &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"),
            &[],
        );
    }

    /// Lets the response of a stream have so many bytes more.
    pub(super) fn open(&mut self, stream: u16, bytes: u32) {
        self.send(stream, WINDOW, &bytes.to_be_bytes());
    }

    /// The next frame; `None` at the end of the connection.
    pub(super) fn next(&mut self) -> io::Result<Option<Frame>> {
        let mut header = [0; 7];
        if self.0.read(&mut header[..1])? == 0 {
            return Ok(None);
        }
        self.0.read_exact(&mut header[1..])?;
        let bytes = u32::from_be_bytes(header[3..].try_into().unwrap());
        let mut payload = vec![0; usize::try_from(bytes).unwrap()];
        self.0.read_exact(&mut payload)?;
        Ok(Some(Frame {
            stream: u16::from_be_bytes([header[0], header[1]]),
            kind: header[2],
            payload,
        }))
    }

    /// The next frame, which is there.
    pub(super) fn frame(&mut self) -> Frame {
        self.next().unwrap().expect("a frame")
    }

    /// The response of a stream while no other gives frames.
    pub(super) fn response(&mut self, stream: u16) -> Response {
        let mut response = Response::default();
        loop {
            let frame = self.frame();
            assert_eq!(frame.stream, stream, "{frame:?}");
            if response.take(&frame) {
                return response;
            }
        }
    }
}

impl Response {
    /// Takes a frame; whether it is the last one.
    pub(super) fn take(&mut self, frame: &Frame) -> bool {
        match frame.kind {
            HEAD => {
                let (status, lines) = frame.payload.split_at(2);
                self.status = u16::from_be_bytes(status.try_into().unwrap());
                self.fields = fields(std::str::from_utf8(lines).unwrap());
            }
            DATA => self.body.extend_from_slice(&frame.payload),
            END => return true,
            RESET => {
                self.is_cut = true;
                return true;
            }
            kind => panic!("a frame of kind {kind}"),
        }
        false
    }

    /// Replaces the boundary between parts, which is drawn at random.
    pub(super) fn forget_boundary(&mut self) {
        for (_, value) in &mut self.fields {
            let Some((_, boundary)) = value.split_once("boundary=") else {
                continue;
            };
            let boundary = boundary.to_owned();
            for at in 0..self.body.len() - boundary.len() {
                if self.body[at..].starts_with(boundary.as_bytes()) {
                    self.body[at..at + boundary.len()].fill(b'-');
                }
            }
            *value = value.replace(&boundary, "");
        }
    }

    /// Checks that it is the same as another; large bodies are not shown.
    pub(super) fn assert_is(&self, expected: &Response, what: &str) {
        let shown = |response: &Response| {
            let Self {
                status,
                fields,
                body,
                is_cut,
            } = response;
            format!("{status} {fields:?} {} bytes, cut: {is_cut}", body.len())
        };
        assert!(
            self == expected,
            "{what}: {}; not {}",
            shown(self),
            shown(expected)
        );
    }

    /// The value of a field.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The response of an HTTP/1 connection that has ended behind it.
    pub(super) fn of_http1(bytes: &[u8], is_head: bool) -> Response {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("{:?}", String::from_utf8_lossy(bytes)));
        let (head, rest) = bytes.split_at(end + 4);
        let head = std::str::from_utf8(&head[..end + 2]).unwrap();
        let (status_line, lines) = head.split_once("\r\n").unwrap();
        let mut response = Response {
            status: status_line[9..12].parse().unwrap(),
            fields: fields(lines),
            ..Response::default()
        };
        let length = response
            .field("content-length")
            .map(|text| text.parse().unwrap());
        if is_head || matches!(response.status, 204 | 304) {
            assert!(rest.is_empty(), "{head}");
        } else if lines.contains("Transfer-Encoding: chunked") {
            (response.body, response.is_cut) = dechunked(rest);
        } else {
            response.body = rest.to_vec();
            response.is_cut = length.is_some_and(|length: usize| length > rest.len());
        }
        response
    }
}

/// A frame as it is sent.
pub(super) fn frame(stream: u16, kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = stream.to_be_bytes().to_vec();
    frame.push(kind);
    frame.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Names in lower case and values, but for those that belong to a protocol or to the moment.
fn fields(lines: &str) -> Vec<(String, String)> {
    let field = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_ascii_lowercase(), value.to_owned())
    };
    let belongs = |name: &str| ["connection", "transfer-encoding", "date"].contains(&name);
    let fields = lines.split_terminator("\r\n").map(field);
    fields.filter(|(name, _)| !belongs(name)).collect()
}

/// The data of chunks, and whether the last one is missing.
fn dechunked(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut data = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let bytes = std::str::from_utf8(&rest[..end]).unwrap();
        let bytes = usize::from_str_radix(bytes, 16).unwrap();
        let chunk = &rest[end + 2..];
        if bytes == 0 {
            return (data, false);
        }
        data.extend_from_slice(&chunk[..bytes.min(chunk.len())]);
        rest = chunk.get(bytes + 2..).unwrap_or_default();
    }
    (data, true)
}
