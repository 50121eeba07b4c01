//! One keep-alive connection that asks and waits for the whole reply, and connects again after any
//! fault. Takes a path, gives whether a 200 came whole; must not look at the clock.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// A reply that is later than this has failed.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
const HEAD_END: &[u8] = b"\r\n\r\n";

/// A connection, made when it is first needed.
pub struct Client {
    port: u16,
    stream: Option<TcpStream>,
    received: Vec<u8>,
    head_bytes: usize,
}

impl Client {
    /// To 127.0.0.1.
    pub fn new(port: u16) -> Self {
        let mut client = Self {
            port,
            stream: None,
            received: Vec::new(),
            head_bytes: 0,
        };
        // Connecting belongs to no request; a fault shows at the first one.
        client.stream = client.connect().ok();
        client
    }

    /// Whether there is a connection: not before the first request after a fault.
    pub fn is_connected(&self) -> bool {
        self.stream.is_some()
    }

    /// The body of the last reply that came whole.
    pub fn body(&self) -> &[u8] {
        &self.received[self.head_bytes..]
    }

    /// Whether `path` was answered with a whole 200.
    pub fn ask(&mut self, path: &str) -> bool {
        let asked = self.exchange(path);
        if !matches!(asked, Ok(true)) {
            self.stream = None;
        }
        matches!(asked, Ok(true))
    }

    fn exchange(&mut self, path: &str) -> Result<bool> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n",
            self.port
        );
        stream.write_all(request.as_bytes())?;
        self.received.clear();
        self.head_bytes = 0;
        let mut scratch = [0; 16 * 1024];
        let mut parts = None;
        while parts.is_none_or(|(head, body)| self.received.len() < head + body) {
            match stream.read(&mut scratch)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                read => self.received.extend_from_slice(&scratch[..read]),
            }
            if parts.is_none() {
                parts = reply_parts(&self.received)?;
            }
        }
        self.head_bytes = parts.map_or(0, |(head, _)| head);
        self.stream = Some(stream);
        Ok(self.received.starts_with(b"HTTP/1.1 200 "))
    }

    fn connect(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        Ok(stream)
    }
}

/// Bytes of the head and of the body, once the head is there.
fn reply_parts(received: &[u8]) -> Result<Option<(usize, usize)>> {
    let ends = |window: &[u8]| window == HEAD_END;
    let Some(end) = received.windows(HEAD_END.len()).position(ends) else {
        return Ok(None);
    };
    let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    let length = length.and_then(|value| value.trim().parse::<usize>().ok());
    let body = length.ok_or_else(|| Error::other("a reply without Content-Length"))?;
    Ok(Some((end + HEAD_END.len(), body)))
}
