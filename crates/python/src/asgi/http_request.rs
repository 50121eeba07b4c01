//! One HTTP request as an application sees it: its events in both directions.
//!
//! Takes events as they were read, and what happens to the exchange; gives events, and the exchange to its worker when
//! its response is complete. Reading an event runs Python code, and is apart from taking it, which runs none.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use http::{FieldLines, Version};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyMemoryView};
use server::exchange::ExchangeName;
use server::fault::Fault;
use server::pool::{FileLoader, LoopAssignment};
use server::response::Taken;
use telemetry::{Ending, LoopFacts, Nanos, Stamp};

use super::asgi_loop::AsgiLoop;
use super::file_span;
use super::request_body::{BodyPiece, BodyReader};
use super::response::{ResponseStart, read_trailers};
use super::response_state::ResponseState;
use crate::wsgi::{FileSpan, type_name};

/// How long an application may stream to a client that is gone. One that never calls `receive()` would do so for ever, and
/// take all of the loop's time.
const DROPPED_FOR_MAX: Nanos = Nanos::from_secs(10);

/// A request and its response.
pub(super) struct HttpRequest {
    key: u64,
    body: BodyReader,
    response: ResponseState,
    /// Since when pieces of the body were dropped, because the client is gone.
    dropped_since: Option<Stamp>,
    /// The client is gone, or has ended its side.
    is_gone: bool,
    /// The response has no end of its own, and is to end because the process does.
    is_drained: bool,
    /// The loop counts it among its event streams.
    is_event_stream: bool,
}

/// An event for the application.
pub(super) enum HttpEvent<'py> {
    /// A piece of the body, and whether more follows.
    Body(Bound<'py, PyBytes>, bool),
    Disconnect,
}

/// An event of the application, read and not yet taken.
pub(super) enum HttpSend<'py> {
    Start(ResponseStart),
    /// A piece of the body, and whether more follows.
    Body(Option<Bound<'py, PyBytes>>, bool),
    Path(PathBuf),
    /// A span of a file as a piece of the body, and whether more follows.
    Span(FileSpan, bool),
    /// Fields behind the body, and whether more follow.
    Trailers(FieldLines, bool),
    Hint(FieldLines),
}

/// What became of an event of the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sending {
    Taken,
    /// Taken; `send()` waits for room.
    Waits,
    /// The client is gone. `send()` lets others have their turn: an application that streams without another wait would
    /// have the loop for itself, and never hear that its client is gone.
    Dropped,
    /// The same, and it has gone on for so long that the application is to be cancelled.
    DroppedForLong,
    /// Taken; a `receive()` that waits is to look again: the response is complete, or the connection accepted.
    TakenForReceiver,
}

/// How the application's part of a task has ended.
pub(super) struct TaskEnd {
    /// What is wrong with the application.
    pub(super) fault: Option<String>,
    /// The server has cancelled the task.
    pub(super) is_cancelled: bool,
    /// The driver has answered in its place.
    pub(super) is_overdue: bool,
}

impl HttpRequest {
    pub(super) fn new(mut begun: LoopAssignment) -> Self {
        let body = std::mem::take(&mut begun.assignment.exchange.body);
        Self {
            key: begun.key,
            body: BodyReader::new(body, begun.assignment.exchange.streamed.as_ref()),
            response: ResponseState::new(begun),
            dropped_since: None,
            is_gone: false,
            is_drained: false,
            is_event_stream: false,
        }
    }

    /// Whether the response is complete.
    pub(super) fn is_answered(&self) -> bool {
        self.response.is_over()
    }

    /// Whether the response has no end of its own.
    pub(super) fn is_endless(&self) -> bool {
        self.response.is_endless()
    }

    /// The response ends because the process does: the application hears that its client is gone.
    pub(super) fn drain(&mut self) {
        (self.is_gone, self.is_drained) = (true, true);
    }

    /// The first step of the task begins at `now`: when the loop took the exchange, and since when it waited.
    pub(super) fn begin(&mut self, now: Stamp) -> Option<(Stamp, Stamp)> {
        let begun = self.response.assignment()?;
        let phases = &mut begun.assignment.exchange.record.phases;
        let taken = phases.started;
        phases.started = now.max(taken);
        Some((taken, phases.queued))
    }

    /// The steps of the task, as far as its exchange is still here.
    pub(super) fn note(&mut self, facts: LoopFacts) {
        let is_event_stream = self.response.is_event_stream();
        let facts = LoopFacts {
            is_event_stream,
            ..facts
        };
        if let Some(own) = self.response.assignment() {
            own.assignment.exchange.record.event_loop = facts;
        }
    }

    /// Takes the exchange out, where no task could be made for it.
    pub(super) fn give_up(&mut self) -> Option<LoopAssignment> {
        self.response.end();
        self.response.take()
    }

    /// The exchange, as long as its response is not handed over.
    pub(super) fn assignment(&mut self) -> Option<&mut LoopAssignment> {
        self.response.assignment()
    }

    /// Takes the exchange out: something else than a response follows.
    pub(super) fn take_assignment(&mut self) -> Option<LoopAssignment> {
        self.response.take()
    }

    /// The client is gone, or has ended its side.
    pub(super) fn client_gone(&mut self) {
        self.is_gone = true;
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Whether nothing that is sent reaches the client: one that has only ended its side takes its response.
    pub(super) fn has_lost_client(&self) -> bool {
        self.is_drained || self.dropped_since.is_some()
    }

    /// What the exchange is called in the log.
    pub(super) fn name(&mut self) -> Option<ExchangeName> {
        let assignment = self.response.assignment();
        let name = assignment.map(|own| ExchangeName::of(&own.assignment.exchange));
        name.or_else(|| self.response.name())
    }

    /// The next event of the client; `None`: there is none yet.
    pub(super) fn receive<'py>(
        &mut self,
        py: Python<'py>,
        loader: &FileLoader,
    ) -> PyResult<Option<HttpEvent<'py>>> {
        if self.response.is_over() {
            // The specification has nothing else behind a response, whatever of the body was not read.
            return Ok(Some(HttpEvent::Disconnect));
        }
        Ok(match self.body.next(py, self.key, loader)? {
            BodyPiece::Here(data, has_more) => Some(HttpEvent::Body(data, has_more)),
            BodyPiece::Awaited => None,
            BodyPiece::Uninvited => {
                if let Some(own) = self.response.assignment() {
                    own.assignment.invite();
                }
                None
            }
            BodyPiece::Broken => {
                self.is_gone = true;
                Some(HttpEvent::Disconnect)
            }
            BodyPiece::Given if self.is_gone => Some(HttpEvent::Disconnect),
            BodyPiece::Given => None,
        })
    }

    /// The events that it takes: those of its scope's extensions among them.
    pub(super) fn known_events(&mut self) -> Vec<&'static str> {
        let mut known = vec![
            "http.response.start",
            "http.response.body",
            "http.response.pathsend",
            "http.response.zerocopysend",
        ];
        if let Some(own) = self.response.assignment() {
            let head = own.assignment.exchange.head();
            let others = [
                ("http.response.trailers", head.takes_trailers()),
                (
                    "http.response.early_hint",
                    head.index.version == Version::Http2,
                ),
            ];
            known.extend(others.iter().filter(|other| other.1).map(|other| other.0));
        }
        known
    }

    /// Whether a `receive()` that waits has an event, once the client is gone.
    pub(super) fn has_event(&self) -> bool {
        self.body.is_given()
    }

    /// The piece of the body that was asked for has come.
    pub(super) fn put_body(&mut self, read: io::Result<Vec<u8>>) {
        self.body.put(read);
    }

    /// Whether more may be sent.
    pub(super) fn has_room(&self) -> bool {
        self.response.has_room()
    }

    /// Takes an event of the application.
    ///
    /// # Errors
    /// The sentence that says what is wrong with it.
    pub(super) fn send(
        &mut self,
        send: HttpSend<'_>,
        is_overdue: bool,
        event_loop: &AsgiLoop,
    ) -> Result<Sending, String> {
        match send {
            HttpSend::Start(start) => {
                let is_event_stream = start.is_event_stream;
                self.is_gone |= self.response.start(start)? == Taken::Gone;
                if is_event_stream {
                    self.is_event_stream = true;
                    event_loop.worker().begin_event_stream();
                }
                Ok(Sending::Taken)
            }
            HttpSend::Body(body, has_more) => {
                let taken = self.response.body(body.as_ref(), has_more)?;
                Ok(self.sent(taken, is_overdue, event_loop))
            }
            HttpSend::Span(span, has_more) => {
                let Some(taken) = self.response.span(span, has_more)? else {
                    self.read_on(&event_loop.loader);
                    return Ok(Sending::Waits);
                };
                Ok(self.sent(taken, is_overdue, event_loop))
            }
            HttpSend::Trailers(fields, has_more) => {
                let taken = self.response.trailers(&fields, has_more)?;
                Ok(self.sent(taken, is_overdue, event_loop))
            }
            HttpSend::Path(path) => {
                if !self.response.begin_file()? {
                    return Ok(Sending::Taken);
                }
                event_loop.loader.open(self.key, path);
                Ok(Sending::Waits)
            }
            HttpSend::Hint(fields) => {
                self.response.hint(fields);
                Ok(Sending::Taken)
            }
        }
    }

    /// What became of an event that belongs to the body, or follows it: the last one of the response ends it.
    fn sent(&mut self, taken: Taken, is_overdue: bool, event_loop: &AsgiLoop) -> Sending {
        self.is_gone |= taken == Taken::Gone;
        if !self.response.is_over() {
            return match self.response.has_room() {
                // A client that has only ended its side counts as gone as well, and takes what is sent.
                _ if taken == Taken::Gone => self.dropped(telemetry::now()),
                false => Sending::Waits,
                true if self.is_gone => Sending::Dropped,
                true => Sending::Taken,
            };
        }
        if let Some(ended) = self.response.take() {
            let result = match is_overdue {
                true => Err(Fault::Overdue),
                false => Ok(()),
            };
            event_loop.worker().finish(ended, result);
        }
        Sending::TakenForReceiver
    }

    /// A piece of the body was dropped, because the client is gone.
    fn dropped(&mut self, now: Stamp) -> Sending {
        let since = *self.dropped_since.get_or_insert(now);
        match now.since(since) > DROPPED_FOR_MAX {
            true => Sending::DroppedForLong,
            false => Sending::Dropped,
        }
    }

    /// Whether a span of a file is being read. `send()` waits for all of it.
    pub(super) fn is_reading(&self) -> bool {
        self.response.is_reading()
    }

    /// Has the next piece of a span read, if there is room for it.
    pub(super) fn read_on(&mut self, loader: &FileLoader) {
        if let Some(piece) = self.response.span_to_read() {
            loader.read_span(self.key, &piece.file, piece.offset, piece.bytes);
        }
    }

    /// A piece of a span was read.
    pub(super) fn span_read(
        &mut self,
        read: io::Result<Vec<u8>>,
        is_overdue: bool,
        event_loop: &AsgiLoop,
    ) {
        let Some(taken) = self.response.span_read(read) else {
            return;
        };
        match self.response.is_reading() {
            true => self.read_on(&event_loop.loader),
            // Its `send()` has waited, so that others have had their turn.
            false => drop(self.sent(taken, is_overdue, event_loop)),
        }
    }

    /// The file of `http.response.pathsend` was opened, or not.
    pub(super) fn send_opened(&mut self, opened: io::Result<(File, u64)>, event_loop: &AsgiLoop) {
        let (opened, error) = match opened {
            Ok(opened) => (Some(opened), None),
            Err(error) => (None, Some(error)),
        };
        let Some(exchange) = self.response.file_opened(opened) else {
            return;
        };
        let mut worker = event_loop.worker();
        match error {
            None => worker.finish(exchange, Ok(())),
            Some(error) => {
                let status = match error.kind() {
                    io::ErrorKind::NotFound => 404,
                    _ => 500,
                };
                let why = format!("http.response.pathsend: the file cannot be sent: {error}");
                worker.refuse(exchange, status, &why);
            }
        }
    }

    /// The application has ended: so does its exchange, unless its response is complete.
    pub(super) fn end(&mut self, end: TaskEnd, event_loop: &AsgiLoop) {
        let assignment = self.response.take();
        let (is_named, is_trailing) = (!self.response.is_silent(), self.response.is_trailing());
        self.response.end();
        let is_gone = self.is_gone || end.is_cancelled;
        let mut worker = event_loop.worker();
        if std::mem::take(&mut self.is_event_stream) {
            worker.end_event_stream();
        }
        match (assignment, end.fault) {
            (Some(ended), _) if end.is_overdue => worker.finish(ended, Err(Fault::Overdue)),
            (Some(ended), Some(text)) => worker.finish(ended, Err(Fault::App(text))),
            (Some(ended), None) if is_gone => {
                let ending = match self.is_drained {
                    true => Ending::Shutdown,
                    false => Ending::PeerGone,
                };
                worker.abandon(ended, ending);
            }
            (Some(ended), None) => {
                let text = match is_named {
                    true if is_trailing => {
                        "the application returned without the trailers that `trailers: True` promised"
                    }
                    true => "the application returned before its response was complete",
                    false => "the application returned without a response",
                };
                worker.finish(ended, Err(Fault::App(text.to_owned())));
            }
            // Its response is complete.
            (None, Some(text)) => {
                let name = self.response.name();
                worker.error_output().write(name.as_ref(), &text);
            }
            (None, None) => {}
        }
    }
}

impl<'py> HttpEvent<'py> {
    pub(super) fn to_dict(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let event = PyDict::new(py);
        match self {
            Self::Body(data, has_more) => {
                event.set_item(intern!(py, "type"), intern!(py, "http.request"))?;
                event.set_item(intern!(py, "body"), data)?;
                event.set_item(intern!(py, "more_body"), has_more)?;
            }
            Self::Disconnect => {
                event.set_item(intern!(py, "type"), intern!(py, "http.disconnect"))?;
            }
        }
        Ok(event)
    }
}

impl<'py> HttpSend<'py> {
    /// Reads an event of this type; `None`: there is no such event.
    pub(super) fn read(kind: &str, event: &Bound<'py, PyDict>) -> PyResult<Option<Self>> {
        Ok(Some(match kind {
            "http.response.body" => read_body(event)?,
            "http.response.start" => Self::Start(ResponseStart::read(event)?),
            "http.response.pathsend" => read_path(event)?,
            "http.response.early_hint" => read_hint(event)?,
            "http.response.zerocopysend" => read_span_event(event)?,
            "http.response.trailers" => read_trailers_event(event)?,
            _ => return Ok(None),
        }))
    }
}

pub(super) fn read_body<'py>(event: &Bound<'py, PyDict>) -> PyResult<HttpSend<'py>> {
    let py = event.py();
    let body = event.get_item(intern!(py, "body"))?;
    let body = body.map(|body| bytes_of(&body, "body", "http.response.body"));
    let body = body.transpose()?;
    let has_more = event.get_item(intern!(py, "more_body"))?;
    let has_more = has_more.is_some_and(|more| more.is_truthy().unwrap_or(false));
    Ok(HttpSend::Body(body, has_more))
}

fn read_span_event<'py>(event: &Bound<'py, PyDict>) -> PyResult<HttpSend<'py>> {
    let span = file_span::read(event)?;
    let has_more = event.get_item(intern!(event.py(), "more_body"))?;
    let has_more = has_more.is_some_and(|more| more.is_truthy().unwrap_or(false));
    Ok(HttpSend::Span(span, has_more))
}

fn read_trailers_event<'py>(event: &Bound<'py, PyDict>) -> PyResult<HttpSend<'py>> {
    let fields = read_trailers(event, "http.response.trailers")?;
    let has_more = event.get_item(intern!(event.py(), "more_trailers"))?;
    let has_more = has_more.is_some_and(|more| more.is_truthy().unwrap_or(false));
    Ok(HttpSend::Trailers(fields, has_more))
}

fn read_path<'py>(event: &Bound<'py, PyDict>) -> PyResult<HttpSend<'py>> {
    let path = event.get_item(intern!(event.py(), "path"))?;
    let path =
        path.ok_or_else(|| PyValueError::new_err("`http.response.pathsend` has no `path`"))?;
    Ok(HttpSend::Path(path.extract()?))
}

fn read_hint<'py>(event: &Bound<'py, PyDict>) -> PyResult<HttpSend<'py>> {
    let mut fields = FieldLines::default();
    if let Some(links) = event.get_item(intern!(event.py(), "links"))? {
        for link in links.try_iter()? {
            let link = link?;
            let link = link.cast::<PyBytes>()?;
            fields
                .try_push(b"Link", link.as_bytes())
                .map_err(|_| PyValueError::new_err("a link must not contain control characters"))?;
        }
    }
    Ok(HttpSend::Hint(fields))
}

/// The bytes of an event, which may be in another object than `bytes`.
pub(super) fn bytes_of<'py>(
    object: &Bound<'py, PyAny>,
    name: &str,
    event: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(bytes.clone());
    }
    if object.is_instance_of::<PyByteArray>() || object.is_instance_of::<PyMemoryView>() {
        let copy = object.py().get_type::<PyBytes>().call1((object,))?;
        return Ok(copy.cast_into::<PyBytes>()?);
    }
    Err(PyTypeError::new_err(format!(
        "`{name}` of `{event}` must be bytes, not {}",
        type_name(object)
    )))
}
