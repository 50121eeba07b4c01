//! Frames of HTTP/2 in any order, in reads of any size, against the pipe, its scanners and the account of odd work, with
//! the `h2` crate between them, as a connection uses them: nothing panics, the crate gives streams in the order of their
//! heads, and neither the output nor the DATA that is written exceeds its bound.

#![no_main]

use libfuzzer_sys::fuzz_target;

mod sync {
    pub(crate) use os::invariant;
}

/// The server's own modules, and a connection that answers every request at once.
#[allow(dead_code)] // Not everything is of use here.
#[path = "../../crates/server/src/protocol/h2"]
mod parts {
    mod odd_work;
    mod pipe;
    mod priority;
    mod scan;

    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use bytes::Bytes;
    use h2::server::{Builder, Connection, SendResponse};
    use h2::{RecvStream, SendStream};
    use http_types::{Request, Response};

    use odd_work::{OddWork, Verdict};
    use pipe::{CodecPipe, FrameEvent, PipeEnd};

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const FRAMES_A_TURN: usize = 256;
    /// Bytes of a frame of the crate's.
    const FRAME_BYTES_MAX: usize = (16 << 10) + scan::FRAME_HEADER_BYTES;
    const BODY_BYTES: usize = 40_000;
    /// GET and POST of `http://a/` (RFC 7541 section 6.1 and 6.2.2).
    const GET: &[u8] = &[0x82, 0x86, 0x84, 0x01, 1, b'a'];
    const POST: &[u8] = &[0x83, 0x86, 0x84, 0x01, 1, b'a'];

    pub(super) struct Server {
        end: PipeEnd,
        codec: Connection<CodecPipe, Bytes>,
        odd_work: OddWork,
        answered: Vec<Answered>,
        last_stream: u32,
        heads_max: u32,
        /// Bytes of DATA that the client takes on the connection.
        window: i64,
        is_closed: bool,
    }

    struct Answered {
        body: RecvStream,
        send: Option<SendStream<Bytes>>,
        left: usize,
        // Kept as a stream's task keeps it.
        _respond: SendResponse<Bytes>,
    }

    impl Server {
        pub(super) fn new() -> Self {
            let (crate_end, end) = pipe::pipe();
            end.put(PREFACE);
            end.feed_preface(PREFACE.len());
            let handshake = Builder::new()
                .max_concurrent_streams(8)
                .max_header_list_size(4_000)
                .max_send_buffer_size(64 << 10)
                .handshake(crate_end);
            let context = &mut Context::from_waker(Waker::noop());
            let Poll::Ready(Ok(codec)) = pin!(handshake).poll(context) else {
                panic!("a whole preface is refused");
            };
            Self {
                end,
                codec,
                odd_work: OddWork::new(),
                answered: Vec::new(),
                last_stream: 0,
                heads_max: 0,
                window: 65_535,
                is_closed: false,
            }
        }

        /// One turn with what was read; `taken`: bytes of the output that the client takes.
        pub(super) fn turn(&mut self, input: &[u8], taken: usize) {
            self.end.put(input);
            while !self.is_closed {
                let frames = self.end.feed(FRAMES_A_TURN);
                self.take_events();
                self.call_codec();
                self.take_events();
                self.answer();
                self.call_codec();
                self.take_events();
                if frames == 0 {
                    break;
                }
            }
            let sent = self.end.send(|bytes| Ok::<_, ()>(bytes.len().min(taken)));
            assert!(sent.is_ok());
        }

        pub(super) fn end(&mut self) {
            self.end.end_input();
            self.turn(&[], usize::MAX);
            self.end.rest();
        }

        fn take_events(&mut self) {
            while let Some(event) = self.end.next_event() {
                let FrameEvent::Received(note) = event else {
                    continue;
                };
                self.odd_work.received(&note);
                match note.kind {
                    scan::HEADERS => self.heads_max = self.heads_max.max(note.stream),
                    scan::WINDOW_UPDATE if note.stream == 0 => {
                        self.window += i64::from(note.number.unwrap_or(0) & (u32::MAX >> 1));
                    }
                    _ => {}
                }
            }
            self.is_closed |= self.odd_work.verdict() == Verdict::Leave;
        }

        fn call_codec(&mut self) {
            let context = &mut Context::from_waker(Waker::noop());
            while !self.is_closed {
                match self.codec.poll_accept(context) {
                    Poll::Pending => break,
                    Poll::Ready(Some(Ok((request, respond)))) => self.begin(request, respond),
                    Poll::Ready(Some(Err(_)) | None) => self.is_closed = true,
                }
            }
            self.window -= self.end.take_data_bytes() as i64;
            assert!(
                self.window >= 0,
                "more DATA is written than the client takes"
            );
            let (written, sent) = self.end.positions();
            let waiting = usize::try_from(written - sent).expect("more is sent than was written");
            assert!(waiting <= pipe::OUTPUT_BYTES_MAX + FRAME_BYTES_MAX);
            self.end.take_blocked();
        }

        fn begin(&mut self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
            let stream = respond.stream_id().as_u32();
            assert!(self.last_stream < stream && stream <= self.heads_max);
            self.last_stream = stream;
            let is_bodiless = stream % 4 == 3;
            let send = respond.send_response(Response::new(()), is_bodiless);
            self.answered.push(Answered {
                body: request.into_body(),
                send: send.ok().filter(|_| !is_bodiless),
                left: BODY_BYTES,
                _respond: respond,
            });
        }

        /// Takes what has come of bodies, and gives what the windows allow of responses.
        fn answer(&mut self) {
            let context = &mut Context::from_waker(Waker::noop());
            let mut room = self.end.output_room();
            self.answered.retain_mut(|answered| {
                let is_over = loop {
                    match answered.body.poll_data(context) {
                        Poll::Ready(Some(Ok(data))) => {
                            let _ = answered.body.flow_control().release_capacity(data.len());
                        }
                        Poll::Ready(_) => break true,
                        Poll::Pending => break false,
                    }
                };
                let Some(send) = &mut answered.send else {
                    return !is_over;
                };
                send.reserve_capacity(answered.left.min(room));
                let piece = send.capacity().min(answered.left).min(room);
                send.reserve_capacity(piece);
                if piece == 0 {
                    return !matches!(send.poll_reset(context), Poll::Ready(_));
                }
                (room, answered.left) = (room - piece, answered.left - piece);
                let given = send.send_data(vec![7; piece].into(), answered.left == 0);
                given.is_ok() && answered.left > 0
            });
        }
    }

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len())
            .expect("it is short")
            .to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        frame
    }

    /// Turns bytes into frames: those that clients send, in any order, and some that none sends.
    pub(super) fn run(data: &[u8]) {
        let mut server = Server::new();
        let mut input = Vec::new();
        let mut next_stream = 1;
        let mut rest = data;
        while let [kind, a, b, more @ ..] = rest {
            rest = more;
            let stream = u32::from(a % 32);
            let number = (u32::from(*a) << 16 | u32::from(*b)).to_be_bytes();
            let payload = &rest[..usize::from(b % 64).min(rest.len())];
            let mut head = |flags, block: &[u8]| {
                next_stream += 2;
                frame(
                    scan::HEADERS,
                    flags | scan::END_HEADERS,
                    next_stream - 2,
                    block,
                )
            };
            let bytes = match kind % 16 {
                0 => head(scan::END_STREAM, GET),
                1 => head(0, POST),
                2 => head(a & scan::END_STREAM, &[GET, payload].concat()),
                3 => frame(scan::HEADERS, a & 0x3d, stream, payload),
                4 => frame(
                    scan::CONTINUATION,
                    a & scan::END_HEADERS,
                    u32::from(*b),
                    payload,
                ),
                5 => frame(
                    scan::DATA,
                    a & scan::END_STREAM,
                    stream,
                    &vec![1; usize::from(*b) << 5],
                ),
                6 => frame(scan::DATA, *b, stream, payload),
                7 => frame(
                    scan::RST_STREAM,
                    0,
                    stream,
                    &u32::from(b % 16).to_be_bytes(),
                ),
                8 => frame(scan::WINDOW_UPDATE, 0, stream, &number),
                9 => frame(scan::WINDOW_UPDATE, 0, 0, &number),
                10 => frame(
                    scan::SETTINGS,
                    0,
                    0,
                    &[0, a % 10, 0, number[1], number[2], number[3]],
                ),
                11 => frame(scan::SETTINGS, scan::ACK, 0, &[]),
                12 => frame(scan::PING, a & scan::ACK, 0, &[*b; 8]),
                13 => frame(
                    scan::PRIORITY_UPDATE,
                    0,
                    0,
                    &[&stream.to_be_bytes(), payload].concat(),
                ),
                14 => frame(*a, *b, stream, payload),
                _ => {
                    server.turn(&std::mem::take(&mut input), usize::from(*a) << 8);
                    continue;
                }
            };
            // A read may end anywhere.
            match kind >> 4 {
                0 => {
                    let (first, second) = bytes.split_at(usize::from(*b) % bytes.len());
                    input.extend_from_slice(first);
                    server.turn(&std::mem::take(&mut input), usize::MAX);
                    input.extend_from_slice(second);
                }
                _ => input.extend_from_slice(&bytes),
            }
        }
        server.turn(&input, usize::MAX);
        server.end();
    }
}

fuzz_target!(|data: &[u8]| parts::run(data));
