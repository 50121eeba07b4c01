//! One WebSocket connection as an application sees it: its events in both directions, from the handshake on.
//!
//! Until it is accepted, it is a request that may be answered by an HTTP response as well. Behind that, messages are the
//! channel's, which its driver and this share. Reading an event runs Python code, and is apart from taking it.
//!
//! ```text
//! Connecting ──accept──► Open ──the end of either side──► disconnect, as often as it is asked for
//!     ├── close: 403 ──────────► Refused ─────────────────► disconnect
//!     └── http.response.start ─► Refused, by a response of the application
//! ```

use http::websocket::{DeflateContext, DeflateOptions, Handshake, MessageKind};
use http::{FieldLines, HeadView, Version};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use server::exchange::ExchangeName;
use server::fault::Fault;
use server::pool::{LoopAssignment, WebSocketAssignment};
use server::websocket::{MessageSent, SendFault, WebSocketInput};
use telemetry::{Ending, LoopFacts};

use super::asgi_loop::AsgiLoop;
use super::http_request::{HttpRequest, HttpSend, Sending, TaskEnd, bytes_of, read_body};
use super::response::{ResponseStart, read_fields};
use crate::wsgi::ObjectPiece;

/// What the application hears of a client that is gone before it is accepted.
const ABNORMAL: u16 = 1006;
/// Code of a close frame whose event has none.
const NORMAL: u16 = 1000;

/// A connection from its handshake on.
pub(super) struct WebSocketConnection {
    /// The handshake, as long as it may be answered by a response.
    handshake: HttpRequest,
    stage: ConnectionStage,
}

enum ConnectionStage {
    Connecting {
        is_connect_given: bool,
    },
    Open(WebSocketAssignment),
    /// Answered by a response, or the client is gone.
    Refused,
    Ended(Option<ExchangeName>),
}

/// An event for the application.
pub(super) enum WebSocketEvent {
    Connect,
    Input(WebSocketInput),
}

/// An event of the application, read and not yet taken.
pub(super) enum WebSocketSend<'py> {
    Accept {
        subprotocol: Option<String>,
        fields: FieldLines,
    },
    Text(Bound<'py, PyString>),
    Binary(Bound<'py, PyBytes>),
    Close {
        code: u16,
        reason: String,
    },
    /// A part of a response in the place of the connection.
    Response(HttpSend<'py>),
}

/// Why an event of the application was not taken.
pub(super) enum NotTaken {
    /// It is wrong, as this sentence says.
    Wrong(String),
    /// The connection has ended.
    Ended,
}

impl WebSocketConnection {
    pub(super) fn new(begun: LoopAssignment) -> Self {
        Self {
            handshake: HttpRequest::new(begun),
            stage: ConnectionStage::Connecting {
                is_connect_given: false,
            },
        }
    }

    pub(super) fn handshake(&mut self) -> &mut HttpRequest {
        &mut self.handshake
    }

    /// The steps of the task, for the record.
    pub(super) fn note(&mut self, facts: LoopFacts) {
        match &mut self.stage {
            ConnectionStage::Open(open) => open.note(facts),
            _ => self.handshake.note(facts),
        }
    }

    /// What the exchange is called in the log.
    pub(super) fn name(&mut self) -> Option<ExchangeName> {
        match &self.stage {
            ConnectionStage::Open(open) => Some(open.name()),
            ConnectionStage::Ended(name) => name.clone(),
            _ => self.handshake.name(),
        }
    }

    /// The next event of the client; `None`: there is none yet.
    pub(super) fn receive(&mut self) -> Option<WebSocketEvent> {
        match &mut self.stage {
            ConnectionStage::Connecting { is_connect_given } if !*is_connect_given => {
                *is_connect_given = true;
                Some(WebSocketEvent::Connect)
            }
            ConnectionStage::Open(open) => open.channel.receive().map(WebSocketEvent::Input),
            ConnectionStage::Connecting { .. } if !self.handshake.is_gone() => None,
            _ => Some(WebSocketEvent::disconnect(ABNORMAL)),
        }
    }

    /// Whether the application has not answered the handshake, and the client waits for that.
    pub(super) fn is_unanswered(&self) -> bool {
        matches!(self.stage, ConnectionStage::Connecting { .. }) && !self.handshake.is_gone()
    }

    /// The process ends: the client of an unanswered handshake is refused, and for the application it is gone.
    pub(super) fn drain(&mut self, event_loop: &AsgiLoop) {
        if let Some(refused) = self.handshake.take_assignment() {
            event_loop.worker().answer_status(refused, 503);
        }
        self.handshake.client_gone();
    }

    /// Whether a `receive()` that waits has an event, once the client is gone.
    pub(super) fn has_event(&self) -> bool {
        !matches!(self.stage, ConnectionStage::Open(_))
    }

    /// Whether more may be sent.
    pub(super) fn has_room(&self) -> bool {
        match &self.stage {
            ConnectionStage::Open(open) => open.channel.has_room(),
            _ => self.handshake.has_room(),
        }
    }

    /// Takes an event of the application.
    pub(super) fn send(
        &mut self,
        send: WebSocketSend<'_>,
        is_overdue: bool,
        event_loop: &AsgiLoop,
    ) -> Result<Sending, NotTaken> {
        match (&mut self.stage, send) {
            (ConnectionStage::Open(open), WebSocketSend::Text(text)) => {
                let text = text.to_str().map_err(|_| {
                    NotTaken::Wrong("`text` of `websocket.send` cannot be encoded as UTF-8".into())
                })?;
                let sent = event_loop.send(&open.channel, MessageKind::Text, &text.as_bytes());
                self.sent(sent)
            }
            (ConnectionStage::Open(open), WebSocketSend::Binary(data)) => {
                let piece = ObjectPiece::new(&data);
                let sent = event_loop.send(&open.channel, MessageKind::Binary, &piece);
                self.sent(sent)
            }
            (ConnectionStage::Open(open), WebSocketSend::Close { code, reason }) => {
                let closed = open.channel.close(code, &reason);
                self.sent(closed.map(|()| MessageSent::Out))
            }
            (ConnectionStage::Connecting { .. }, WebSocketSend::Accept { .. })
                if self.handshake.is_gone() || is_overdue =>
            {
                Ok(Sending::Taken)
            }
            (
                ConnectionStage::Connecting { .. },
                WebSocketSend::Accept {
                    subprotocol,
                    fields,
                },
            ) => self.accept(subprotocol.as_deref(), &fields, event_loop),
            (ConnectionStage::Connecting { .. }, WebSocketSend::Close { .. }) => {
                if let Some(refused) = self.handshake.give_up() {
                    event_loop.worker().answer_status(refused, 403);
                }
                self.stage = ConnectionStage::Refused;
                Ok(Sending::TakenForReceiver)
            }
            (
                ConnectionStage::Connecting { .. } | ConnectionStage::Refused,
                WebSocketSend::Response(send),
            ) => {
                let sending = self.handshake.send(send, is_overdue, event_loop);
                let sending = sending
                    .map_err(|text| NotTaken::Wrong(text.replace("`http.", "`websocket.http.")))?;
                self.stage = ConnectionStage::Refused;
                Ok(sending)
            }
            // The client has left before it was accepted: no fault of the application, which has sent an accept.
            (ConnectionStage::Connecting { .. }, _) if self.handshake.is_gone() => {
                Err(NotTaken::Ended)
            }
            (ConnectionStage::Connecting { .. }, _) => Err(NotTaken::Wrong(
                "a message was sent before `websocket.accept`".to_owned(),
            )),
            (ConnectionStage::Open(_), _) => Err(NotTaken::Wrong(
                "the connection is accepted already".to_owned(),
            )),
            (ConnectionStage::Refused | ConnectionStage::Ended(_), _) => Err(NotTaken::Ended),
        }
    }

    fn sent(&self, sent: Result<MessageSent, SendFault>) -> Result<Sending, NotTaken> {
        match sent {
            Ok(_) if self.has_room() => Ok(Sending::Taken),
            Ok(_) => Ok(Sending::Waits),
            Err(SendFault::Closed) => Err(NotTaken::Ended),
            Err(SendFault::Code(code)) => Err(NotTaken::Wrong(code.to_string())),
        }
    }

    fn accept(
        &mut self,
        subprotocol: Option<&str>,
        own: &FieldLines,
        event_loop: &AsgiLoop,
    ) -> Result<Sending, NotTaken> {
        let Some(assignment) = self.handshake.assignment() else {
            return Ok(Sending::Taken);
        };
        let head = assignment.assignment.exchange.head();
        let handshake = handshake(head);
        let handshake = handshake.ok_or_else(|| NotTaken::Wrong("no handshake".to_owned()))?;
        let options = DeflateOptions {
            // Its compressor takes 165 KB, its decompressor 48 KB.
            server_context: DeflateContext::Dropped,
            ..DeflateOptions::default()
        };
        let deflate = match event_loop.websocket_config.is_deflated {
            true => handshake.deflate(&options),
            false => None,
        };
        let mut fields = FieldLines::new();
        let pushed = handshake.push_fields(subprotocol, deflate.as_ref(), &mut fields);
        pushed.map_err(|_| {
            NotTaken::Wrong("`subprotocol` is none of those that the client offers".to_owned())
        })?;
        fields.append(own);
        let Some(accepted) = self.handshake.take_assignment() else {
            return Ok(Sending::Taken);
        };
        let accepted = event_loop.worker().accept(accepted, fields, deflate);
        match accepted {
            Ok(open) => self.stage = ConnectionStage::Open(open),
            Err(left) => {
                self.handshake.client_gone();
                event_loop.worker().abandon(left, Ending::PeerGone);
            }
        }
        // It may have begun to wait before there was a channel to wait for.
        Ok(Sending::TakenForReceiver)
    }

    /// The application has ended. Whether it was accepted.
    pub(super) fn end(&mut self, end: TaskEnd, event_loop: &AsgiLoop) -> bool {
        let stage = std::mem::replace(&mut self.stage, ConnectionStage::Ended(None));
        match stage {
            ConnectionStage::Open(open) => {
                self.stage = ConnectionStage::Ended(Some(open.name()));
                let fault = end.fault.map(Fault::App);
                event_loop.worker().finish_websocket(open, fault);
                true
            }
            ConnectionStage::Connecting { .. }
                if end.fault.is_none()
                    && !(end.is_cancelled || end.is_overdue || self.handshake.is_gone()) =>
            {
                if let Some(refused) = self.handshake.give_up() {
                    let why = "the application returned before it accepted or closed the WebSocket";
                    event_loop.worker().refuse(refused, 403, why);
                }
                false
            }
            _ => {
                self.handshake.end(end, event_loop);
                false
            }
        }
    }
}

/// The handshake of a request that was found to have one.
pub(super) fn handshake(head: HeadView<'_>) -> Option<Handshake<'_>> {
    match head.index.version {
        Version::Http2 => Handshake::of_connect(head).ok(),
        _ => Handshake::of_upgrade(head).ok().flatten(),
    }
}

impl WebSocketEvent {
    fn disconnect(code: u16) -> Self {
        Self::Input(WebSocketInput::Disconnect(server::websocket::Disconnect {
            code,
            reason: String::new(),
        }))
    }

    pub(super) fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let event = PyDict::new(py);
        let kind = intern!(py, "type");
        match self {
            Self::Connect => event.set_item(kind, intern!(py, "websocket.connect"))?,
            Self::Input(WebSocketInput::Message(message)) => {
                event.set_item(kind, intern!(py, "websocket.receive"))?;
                let payload = &message.payload;
                match message.kind {
                    MessageKind::Text => {
                        // Checked as it came.
                        let text = String::from_utf8_lossy(payload);
                        event.set_item(intern!(py, "text"), text)?;
                        event.set_item(intern!(py, "bytes"), py.None())?;
                    }
                    MessageKind::Binary => {
                        event.set_item(intern!(py, "bytes"), PyBytes::new(py, payload))?;
                        event.set_item(intern!(py, "text"), py.None())?;
                    }
                }
            }
            Self::Input(WebSocketInput::Disconnect(end)) => {
                event.set_item(kind, intern!(py, "websocket.disconnect"))?;
                event.set_item(intern!(py, "code"), end.code)?;
                event.set_item(intern!(py, "reason"), &end.reason)?;
            }
        }
        Ok(event)
    }
}

impl<'py> WebSocketSend<'py> {
    pub(super) const KNOWN: [&'static str; 5] = [
        "websocket.accept",
        "websocket.send",
        "websocket.close",
        "websocket.http.response.start",
        "websocket.http.response.body",
    ];

    /// Reads an event of this type; `None`: there is no such event.
    pub(super) fn read(kind: &str, event: &Bound<'py, PyDict>) -> PyResult<Option<Self>> {
        Ok(Some(match kind {
            "websocket.send" => read_message(event)?,
            "websocket.accept" => read_accept(event)?,
            "websocket.close" => read_close(event)?,
            "websocket.http.response.start" => {
                Self::Response(HttpSend::Start(ResponseStart::read(event)?))
            }
            "websocket.http.response.body" => Self::Response(read_body(event)?),
            _ => return Ok(None),
        }))
    }
}

fn read_message<'py>(event: &Bound<'py, PyDict>) -> PyResult<WebSocketSend<'py>> {
    let py = event.py();
    let given = |name| -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(event.get_item(name)?.filter(|value| !value.is_none()))
    };
    match (given(intern!(py, "bytes"))?, given(intern!(py, "text"))?) {
        (None, Some(text)) => {
            let text = text.cast_into::<PyString>();
            let text =
                text.map_err(|_| PyTypeError::new_err("`text` of `websocket.send` must be str"))?;
            Ok(WebSocketSend::Text(text))
        }
        (Some(data), None) => Ok(WebSocketSend::Binary(bytes_of(
            &data,
            "bytes",
            "websocket.send",
        )?)),
        (Some(_), Some(_)) => Err(PyValueError::new_err(
            "`websocket.send` has both `bytes` and `text`; one of them must be None",
        )),
        (None, None) => Err(PyValueError::new_err(
            "`websocket.send` has neither `bytes` nor `text`",
        )),
    }
}

fn read_accept<'py>(event: &Bound<'py, PyDict>) -> PyResult<WebSocketSend<'py>> {
    let py = event.py();
    let subprotocol = event.get_item(intern!(py, "subprotocol"))?;
    let subprotocol = subprotocol.map(|chosen| chosen.extract::<Option<String>>());
    let subprotocol = subprotocol.transpose().map_err(|_| {
        PyTypeError::new_err("`subprotocol` of `websocket.accept` must be str or None")
    })?;
    Ok(WebSocketSend::Accept {
        subprotocol: subprotocol.flatten(),
        fields: read_fields(event, "websocket.accept")?,
    })
}

fn read_close<'py>(event: &Bound<'py, PyDict>) -> PyResult<WebSocketSend<'py>> {
    let py = event.py();
    let code = event.get_item(intern!(py, "code"))?;
    let code = code.map(|code| code.extract::<Option<u16>>()).transpose();
    let code = code.map_err(|_| {
        PyTypeError::new_err("`code` of `websocket.close` must be an integer below 65,536")
    })?;
    let reason = event.get_item(intern!(py, "reason"))?;
    let reason = reason.map(|reason| reason.extract::<Option<String>>());
    let reason = reason
        .transpose()
        .map_err(|_| PyTypeError::new_err("`reason` of `websocket.close` must be str or None"))?;
    Ok(WebSocketSend::Close {
        code: code.flatten().unwrap_or(NORMAL),
        reason: reason.flatten().unwrap_or_default(),
    })
}
