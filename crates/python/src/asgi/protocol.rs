//! What a task serves: an HTTP request or a WebSocket connection. Each event goes to the one that the task has.

use std::fs::File;
use std::io;

use config::typed::HttpSpec;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use server::exchange::ExchangeName;
use server::pool::{FileLoader, LoopAssignment};
use telemetry::LoopFacts;

use super::asgi_loop::AsgiLoop;
use super::http_request::{HttpEvent, HttpRequest, HttpSend, Sending, TaskEnd};
use super::websocket_connection::{NotTaken, WebSocketConnection, WebSocketEvent, WebSocketSend};

/// What a task serves.
pub(super) enum Protocol {
    Http(HttpRequest),
    WebSocket(WebSocketConnection),
}

/// An event for the application.
pub(super) enum ClientEvent<'py> {
    Http(HttpEvent<'py>),
    WebSocket(WebSocketEvent),
}

/// An event of the application, read and not yet taken.
pub(super) enum ApplicationEvent<'py> {
    Http(HttpSend<'py>),
    WebSocket(WebSocketSend<'py>),
}

/// Which protocol a task serves; never changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProtocolKind {
    Http,
    WebSocket,
}

/// What the end of a process does not wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unended {
    /// A response that has no end of its own.
    Stream,
    /// A WebSocket handshake that the application has not answered.
    Handshake,
}

impl Protocol {
    pub(super) fn new(kind: ProtocolKind, begun: LoopAssignment) -> Self {
        match kind {
            ProtocolKind::Http => Self::Http(HttpRequest::new(begun)),
            ProtocolKind::WebSocket => Self::WebSocket(WebSocketConnection::new(begun)),
        }
    }

    /// The request: of a WebSocket connection its handshake.
    pub(super) fn request(&mut self) -> &mut HttpRequest {
        match self {
            Self::Http(request) => request,
            Self::WebSocket(connection) => connection.handshake(),
        }
    }

    /// What the end of the process has to end, as it waits for nothing that would end by itself.
    pub(super) fn unended(&self) -> Option<Unended> {
        match self {
            Self::Http(request) => request.is_endless().then_some(Unended::Stream),
            Self::WebSocket(connection) => connection.is_unanswered().then_some(Unended::Handshake),
        }
    }

    /// The process ends: the application hears that its client is gone. Whether there was something to end.
    pub(super) fn drain(&mut self, event_loop: &AsgiLoop) -> bool {
        let unended = self.unended();
        match self {
            _ if unended.is_none() => return false,
            Self::Http(request) => request.drain(),
            Self::WebSocket(connection) => connection.drain(event_loop),
        }
        true
    }

    /// Whether there is a record that the steps of the task can be noted in.
    pub(super) fn has_record(&mut self) -> bool {
        match self {
            Self::Http(request) => request.assignment().is_some(),
            Self::WebSocket(_) => true,
        }
    }

    /// The steps of the task, for the record.
    pub(super) fn note(&mut self, facts: LoopFacts) {
        match self {
            Self::Http(request) => request.note(facts),
            Self::WebSocket(connection) => connection.note(facts),
        }
    }

    pub(super) fn give_up(&mut self) -> Option<LoopAssignment> {
        self.request().give_up()
    }

    pub(super) fn name(&mut self) -> Option<ExchangeName> {
        match self {
            Self::Http(request) => request.name(),
            Self::WebSocket(connection) => connection.name(),
        }
    }

    pub(super) fn receive<'py>(
        &mut self,
        py: Python<'py>,
        loader: &FileLoader,
    ) -> PyResult<Option<ClientEvent<'py>>> {
        Ok(match self {
            Self::Http(request) => request.receive(py, loader)?.map(ClientEvent::Http),
            Self::WebSocket(connection) => connection.receive().map(ClientEvent::WebSocket),
        })
    }

    /// Says that there is no event of this type, and which ones there are.
    pub(super) fn unknown(&mut self, kind: &str) -> String {
        let (what, known) = match self {
            Self::Http(request) => ("an HTTP request", request.known_events()),
            Self::WebSocket(_) => ("a WebSocket connection", WebSocketSend::KNOWN.to_vec()),
        };
        let known: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
        let known = known.join(", ");
        format!("`{kind}` is no event that {what} can be answered with: this one takes {known}")
    }

    pub(super) fn has_event(&self) -> bool {
        match self {
            Self::Http(request) => request.has_event(),
            Self::WebSocket(connection) => connection.has_event(),
        }
    }

    pub(super) fn has_room(&self) -> bool {
        match self {
            Self::Http(request) => request.has_room(),
            Self::WebSocket(connection) => connection.has_room(),
        }
    }

    pub(super) fn put_body(&mut self, read: io::Result<Vec<u8>>) {
        self.request().put_body(read);
    }

    pub(super) fn send_opened(&mut self, opened: io::Result<(File, u64)>, event_loop: &AsgiLoop) {
        self.request().send_opened(opened, event_loop);
    }

    pub(super) fn send(
        &mut self,
        event: ApplicationEvent<'_>,
        is_overdue: bool,
        event_loop: &AsgiLoop,
    ) -> Result<Sending, NotTaken> {
        match (self, event) {
            (Self::Http(request), ApplicationEvent::Http(send)) => {
                let raises = event_loop.config.http_spec == HttpSpec::V2_5;
                if raises && request.has_lost_client() {
                    return Err(NotTaken::Ended);
                }
                request
                    .send(send, is_overdue, event_loop)
                    .map_err(NotTaken::Wrong)
            }
            (Self::WebSocket(connection), ApplicationEvent::WebSocket(send)) => {
                connection.send(send, is_overdue, event_loop)
            }
            _ => unreachable!("an event is read for the protocol of its task"),
        }
    }

    /// The application has ended. Which place of the loop its task had.
    pub(super) fn end(&mut self, end: TaskEnd, event_loop: &AsgiLoop) -> ProtocolKind {
        match self {
            Self::Http(request) => request.end(end, event_loop),
            Self::WebSocket(connection) => {
                if connection.end(end, event_loop) {
                    return ProtocolKind::WebSocket;
                }
            }
        }
        ProtocolKind::Http
    }
}

impl ProtocolKind {
    /// Reads an event of the application; `None`: there is no such event.
    pub(super) fn read<'py>(
        self,
        kind: &str,
        event: &Bound<'py, PyDict>,
    ) -> PyResult<Option<ApplicationEvent<'py>>> {
        Ok(match self {
            Self::Http => HttpSend::read(kind, event)?.map(ApplicationEvent::Http),
            Self::WebSocket => WebSocketSend::read(kind, event)?.map(ApplicationEvent::WebSocket),
        })
    }
}

impl ApplicationEvent<'_> {
    /// Whether the exchange may be handed over with it. Messages of a WebSocket connection never are the end of one.
    pub(super) fn may_end_exchange(&self) -> bool {
        match self {
            Self::Http(HttpSend::Start(start)) => start.is_event_stream,
            Self::Http(_) => true,
            Self::WebSocket(send) => !matches!(
                send,
                WebSocketSend::Text(_) | WebSocketSend::Binary(_) | WebSocketSend::Close { .. }
            ),
        }
    }
}

impl<'py> ClientEvent<'py> {
    pub(super) fn to_dict(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match self {
            Self::Http(event) => event.to_dict(py),
            Self::WebSocket(event) => event.to_dict(py),
        }
    }
}
