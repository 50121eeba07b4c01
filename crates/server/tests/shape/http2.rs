//! A client of HTTP/2 in memory: the `h2` crate, the frames that pass it, and frames of a test's own.
//!
//! Streams have no window but what `open` gives them: the crate believes in the widest windows, and the first
//! SETTINGS frame says 0 in their place.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use server::transport::memory;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::client::{Response, lasts};
use super::support::PATIENCE;

pub(super) const DATA: u8 = 0;
const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
pub(super) const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const INITIAL_WINDOW_SIZE: u8 = 4;
const WIDEST_WINDOW: u32 = (1 << 31) - 1;
const HEADER_BYTES: usize = 9;
const PREFACE_BYTES: usize = 24;

/// One connection.
pub(super) struct Http2 {
    wire: Rc<RefCell<Wire>>,
    requests: SendRequest<Bytes>,
    connection: Connection<CrateEnd, Bytes>,
    is_over: bool,
    streams: BTreeMap<u32, ClientStream>,
}

/// A frame of the server's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) stream: u32,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) payload: Vec<u8>,
}

struct ClientStream {
    send: SendStream<Bytes>,
    head: Option<ResponseFuture>,
    body: Option<RecvStream>,
    response: Response,
    is_ended: bool,
}

/// Bytes on their way to the server and from it: what lies between the crate and the server, or all of a client.
pub(super) struct Wire {
    client: memory::Client,
    /// What the server has not taken.
    output: Vec<u8>,
    /// What the crate has not read.
    input: Vec<u8>,
    scanned: Vec<u8>,
    frames: Vec<Frame>,
    /// How the server's side has ended.
    end: Option<io::Result<()>>,
}

struct CrateEnd(Rc<RefCell<Wire>>);

impl Http2 {
    pub(super) fn open(client: memory::Client) -> Self {
        let wire = Rc::new(RefCell::new(Wire::new(client)));
        let mut handshake = Box::pin(
            Builder::new()
                .initial_window_size(WIDEST_WINDOW)
                .initial_connection_window_size(WIDEST_WINDOW)
                .enable_push(false)
                .handshake(CrateEnd(Rc::clone(&wire))),
        );
        let Poll::Ready(Ok((requests, connection))) = poll(&mut handshake) else {
            panic!("the crate does not begin");
        };
        let mut opened = Self {
            wire,
            requests,
            connection,
            is_over: false,
            streams: BTreeMap::new(),
        };
        opened.poll_connection();
        shut_windows(&mut opened.wire.borrow_mut().output);
        opened
    }

    /// A whole request without a body; its response gets no window yet.
    pub(super) fn get(&mut self, path: &str) -> u32 {
        self.begin(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"), true)
    }

    /// Begins the request whose head is this text; gives its stream.
    pub(super) fn begin(&mut self, head: &str, ends: bool) -> u32 {
        let sent = self.requests.send_request(request_of(head), ends);
        let (head, send) = sent.unwrap();
        let stream = head.stream_id().as_u32();
        let opened = ClientStream {
            send,
            head: Some(head),
            body: None,
            response: Response::default(),
            is_ended: false,
        };
        self.streams.insert(stream, opened);
        self.flush();
        stream
    }

    /// Sends a piece of a body, as the server's windows allow.
    pub(super) fn send(&mut self, stream: u32, data: &[u8]) {
        let send = &mut self.streams.get_mut(&stream).unwrap().send;
        let data = Bytes::copy_from_slice(data);
        // The server may have refused the rest of it.
        let _ = send.send_data(data, false);
        self.flush();
    }

    pub(super) fn end(&mut self, stream: u32) {
        let send = &mut self.streams.get_mut(&stream).unwrap().send;
        let _ = send.send_data(Bytes::new(), true);
        self.flush();
    }

    /// The body of a request, unless it is empty.
    pub(super) fn send_whole(&mut self, stream: u32, body: &[u8]) {
        if !body.is_empty() {
            self.send(stream, body);
            self.end(stream);
        }
    }

    pub(super) fn reset(&mut self, stream: u32) {
        let send = &mut self.streams.get_mut(&stream).unwrap().send;
        send.send_reset(Reason::CANCEL);
        self.flush();
    }

    /// Lets the response of a stream have so many bytes more.
    pub(super) fn open_window(&mut self, stream: u32, bytes: u32) {
        self.raw(&window_update(stream, bytes));
    }

    /// Sends bytes past the crate.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.poll_connection();
        self.wire.borrow_mut().output.extend_from_slice(bytes);
        self.flush();
    }

    /// The response of a stream, once it has ended.
    pub(super) fn response(&mut self, stream: u32) -> Response {
        self.wait(|client| client.streams[&stream].is_ended);
        self.streams[&stream].response.clone()
    }

    /// Waits until the head of a response has come.
    pub(super) fn wait_for_head(&mut self, stream: u32) {
        self.wait(|client| client.streams[&stream].head.is_none());
    }

    /// Waits until so much of a body has come; gives it.
    pub(super) fn body(&mut self, stream: u32, bytes: usize) -> Vec<u8> {
        self.wait(|client| client.streams[&stream].response.body.len() >= bytes);
        self.streams[&stream].response.body.clone()
    }

    /// The server's frames so far.
    pub(super) fn frames(&self) -> Vec<Frame> {
        self.wire.borrow().frames.clone()
    }

    /// Waits until the server has sent a frame like it.
    pub(super) fn wait_for_frame(&mut self, like: impl Fn(&Frame) -> bool) -> Frame {
        let find = |client: &Self| {
            client
                .wire
                .borrow()
                .frames
                .iter()
                .find(|it| like(it))
                .cloned()
        };
        self.wait(|client| find(client).is_some());
        find(self).unwrap()
    }

    /// Waits for the end of the connection.
    pub(super) fn wait_for_end(&mut self) {
        self.wait(|client| client.wire.borrow().end.is_some());
    }

    /// Moves bytes until `holds`; the end of the connection leaves no more to wait for.
    fn wait(&mut self, holds: impl Fn(&Self) -> bool) {
        loop {
            self.step();
            if holds(self) {
                return;
            }
            let frames = || -> Vec<_> {
                let wire = self.wire.borrow();
                wire.frames.iter().map(|it| (it.stream, it.kind)).collect()
            };
            let is_over = self.wire.borrow().end.is_some() && self.is_over;
            assert!(!is_over, "the connection has ended: {:?}", frames());
            self.wire.borrow_mut().wait_for_server();
        }
    }

    /// Sends all that may be sent.
    fn flush(&mut self) {
        self.step();
        while !self.wire.borrow().output.is_empty() && self.wire.borrow().end.is_none() {
            self.wire.borrow_mut().wait_for_server();
            self.step();
        }
    }

    /// Moves bytes as far as they move at once.
    fn step(&mut self) {
        loop {
            self.poll_connection();
            let moved = self.wire.borrow_mut().exchange();
            if !moved {
                break;
            }
        }
        self.poll_connection();
        for stream in self.streams.values_mut() {
            stream.poll();
        }
    }

    fn poll_connection(&mut self) {
        if !self.is_over {
            self.is_over = poll(&mut Pin::new(&mut self.connection)).is_ready();
        }
    }
}

impl ClientStream {
    fn poll(&mut self) {
        let context = &mut Context::from_waker(Waker::noop());
        if let Some(head) = &mut self.head
            && let Poll::Ready(head_or_error) = Future::poll(Pin::new(head), context)
        {
            self.head = None;
            match head_or_error {
                Ok(come) => {
                    let (parts, body) = come.into_parts();
                    let field =
                        |(name, value): (&http_types::HeaderName, &http_types::HeaderValue)| {
                            let value = value.to_str().unwrap().to_owned();
                            (name.as_str().to_owned(), value)
                        };
                    let fields = parts.headers.iter().map(field);
                    self.response.fields = fields.filter(|(name, _)| lasts(name)).collect();
                    self.response.status = parts.status.as_u16();
                    self.body = Some(body);
                }
                Err(_) => (self.response.is_cut, self.is_ended) = (true, true),
            }
        }
        while let Some(body) = &mut self.body
            && let Poll::Ready(data) = body.poll_data(context)
        {
            match data {
                Some(Ok(data)) => {
                    self.response.body.extend_from_slice(&data);
                    continue;
                }
                Some(Err(_)) => self.response.is_cut = true,
                None => {}
            }
            (self.body, self.is_ended) = (None, true);
        }
    }
}

impl Wire {
    fn new(client: memory::Client) -> Self {
        Self {
            client,
            output: Vec::new(),
            input: Vec::new(),
            scanned: Vec::new(),
            frames: Vec::new(),
            end: None,
        }
    }

    /// A client that speaks by frames of its own; the first are the preface and empty settings.
    pub(super) fn raw(client: memory::Client) -> Self {
        let mut wire = Self::new(client);
        wire.output = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        wire.output.extend(frame(SETTINGS, 0, 0, &[]));
        wire
    }

    /// Sends all of these bytes.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
        while !self.output.is_empty() && self.end.is_none() {
            if !self.exchange() {
                self.wait_for_server();
            }
        }
    }

    /// Ends the client's side.
    pub(super) fn close(&self) {
        self.client.close_write();
    }

    /// Waits until the frames so far are as wanted, or the server has ended the connection; gives them.
    pub(super) fn frames(&mut self, holds: impl Fn(&[Frame]) -> bool) -> &[Frame] {
        while !holds(&self.frames) && self.end.is_none() {
            if !self.exchange() {
                self.wait_for_server();
            }
        }
        &self.frames
    }

    /// Sends and receives what needs no wait; whether that was anything.
    fn exchange(&mut self) -> bool {
        self.client.set_patience(Duration::ZERO);
        let sent = match self.output.is_empty() {
            true => 0,
            // A server that is gone is found by the read.
            false => self.client.write(&self.output).unwrap_or(0),
        };
        self.output.drain(..sent);
        let mut buffer = [0; 16 << 10];
        let read = match (&self.end, self.client.read(&mut buffer)) {
            (Some(_), _) => 0,
            (None, Ok(0)) => {
                self.end = Some(Ok(()));
                0
            }
            (None, Ok(bytes)) => bytes,
            (None, Err(error)) if error.kind() == io::ErrorKind::TimedOut => 0,
            (None, Err(error)) => {
                self.end = Some(Err(error));
                0
            }
        };
        self.input.extend_from_slice(&buffer[..read]);
        self.scanned.extend_from_slice(&buffer[..read]);
        self.scan();
        sent + read > 0
    }

    fn scan(&mut self) {
        while let Some(header) = self.scanned.first_chunk::<HEADER_BYTES>() {
            let [a, b, c, kind, flags, stream @ ..] = *header;
            let end = HEADER_BYTES + u32::from_be_bytes([0, a, b, c]) as usize;
            let Some(frame) = self.scanned.get(HEADER_BYTES..end) else {
                return;
            };
            self.frames.push(Frame {
                stream: u32::from_be_bytes(stream),
                kind,
                flags,
                payload: frame.to_vec(),
            });
            self.scanned.drain(..end);
        }
    }

    /// Waits until the server has sent something; for a moment only, if it has to take something first.
    fn wait_for_server(&mut self) {
        let patience = match self.output.is_empty() {
            true => PATIENCE,
            false => Duration::from_millis(1),
        };
        self.client.set_patience(patience);
        let waited = self.client.read(&mut []);
        let is_late = waited.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
        assert!(!(is_late && patience == PATIENCE), "the server is silent");
    }
}

impl AsyncRead for CrateEnd {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let wire = &mut *self.0.borrow_mut();
        let bytes = buffer.remaining().min(wire.input.len());
        match &wire.end {
            None if bytes == 0 => return Poll::Pending,
            Some(Err(error)) if bytes == 0 => return Poll::Ready(Err(error.kind().into())),
            _ => {}
        }
        buffer.put_slice(&wire.input[..bytes]);
        wire.input.drain(..bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CrateEnd {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().output.extend_from_slice(data);
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A request without a body, whose block of fields ends with `rest`.
pub(super) fn raw_get(stream: u32, path: &str, rest: &[u8]) -> Vec<u8> {
    // RFC 7541 sections 6.1 and 6.2.2: GET and http of the static table; path and authority by its names alone.
    let mut block = vec![0x82, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    block.extend_from_slice(path.as_bytes());
    block.extend_from_slice(&[0x01, 1, b'a']);
    block.extend_from_slice(rest);
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &block)
}

/// A request with a body of one frame.
pub(super) fn raw_post(stream: u32, body: &[u8]) -> Vec<u8> {
    let head = frame(
        HEADERS,
        END_HEADERS,
        stream,
        &[0x83, 0x86, 0x84, 0x01, 1, b'a'],
    );
    [head, frame(DATA, END_STREAM, stream, body)].concat()
}

/// The acknowledgement of the server's settings.
pub(super) fn settings_ack() -> Vec<u8> {
    frame(SETTINGS, ACK, 0, &[])
}

/// A frame as it is sent.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

pub(super) fn window_update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Says in the first SETTINGS frame that streams have no windows.
fn shut_windows(output: &mut [u8]) {
    let settings = &mut output[PREFACE_BYTES..];
    assert_eq!(settings[3], SETTINGS);
    let bytes = u32::from_be_bytes([0, settings[0], settings[1], settings[2]]) as usize;
    let mut settings = settings[HEADER_BYTES..HEADER_BYTES + bytes].chunks_mut(6);
    let window = settings.find(|setting| setting[1] == INITIAL_WINDOW_SIZE);
    window.unwrap()[2..].fill(0);
}

/// The request that the text of a head is.
fn request_of(head: &str) -> http_types::Request<()> {
    let mut lines = head.split_terminator("\r\n");
    let [method, target, _] = lines.next().unwrap().split(' ').collect::<Vec<_>>()[..] else {
        panic!("{head}");
    };
    let fields = lines.filter_map(|line| line.split_once(": "));
    let fields: Vec<_> = fields.collect();
    let host = fields.iter().find(|(name, _)| *name == "Host").unwrap().1;
    let request = http_types::Request::builder()
        .method(method)
        .uri(format!("http://{host}{target}"));
    let others = fields.iter().filter(|(name, _)| *name != "Host");
    let request = others.fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    request.body(()).unwrap()
}
