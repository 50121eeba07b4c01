//! WebSocket: the handshake of a connection, the messages that are its replies, and its end.

use std::io;

use telemetry::Stamp;

use super::EventLoop;
use super::connection::ConnectionState;
use super::send::send_bytes;
use crate::engine::Fault;
use crate::engine::websocket::{Message, WebSocketClient};
use crate::outcome::Failure;
use crate::plan::Closing;

impl EventLoop<'_> {
    /// A connection is established on which WebSocket is to be spoken.
    pub(super) fn begin_websocket(&mut self, place: usize) {
        let upgrade = self.worker.plan.upgrade.as_deref();
        let upgrade = upgrade.expect("a plan for WebSocket has a handshake");
        let (client, handshake) = WebSocketClient::new(upgrade);
        let connection = &mut self.connections[place];
        connection.websocket = Some(Box::new(client));
        connection.state = ConnectionState::Settling;
        // A new connection has room for it.
        match self.send_now(place, &handshake) {
            Ok(bytes) if bytes == handshake.len() => {}
            Ok(_) | Err(_) => self.fail(place, Failure::Connect, telemetry::now()),
        }
    }

    /// The server does not open a WebSocket connection: no message of the run can be sent.
    pub(super) fn has_no_websocket(&mut self, place: usize, cause: &str) {
        let text = format!("`{}`: {cause}", self.worker.plan.target.url);
        let hint = "`--websocket` needs the URL of a WebSocket endpoint";
        self.fault = Some(Fault::with_hint(text, hint));
        self.close(place, Closing::Rst);
    }

    /// Takes bytes of the server; whether the connection is still there.
    pub(super) fn take_websocket(
        &mut self,
        place: usize,
        bytes: &[u8],
        arrived: Stamp,
        at: Stamp,
    ) -> bool {
        let Some(mut client) = self.connections[place].websocket.take() else {
            return false;
        };
        client.receive(bytes);
        if self.connections[place].state == ConnectionState::Settling {
            match client.handshake() {
                Ok(false) => {
                    self.connections[place].websocket = Some(client);
                    return true;
                }
                Ok(true) => {}
                Err(cause) => {
                    self.has_no_websocket(place, &cause);
                    return false;
                }
            }
            self.established(place, at);
            self.connections[place].websocket = Some(client);
            self.flush(place);
            let Some(again) = self.connections[place].websocket.take() else {
                return false;
            };
            client = again;
        }
        let is_there = self.take_messages(place, &mut client, arrived, at);
        if is_there {
            self.connections[place].websocket = Some(client);
        }
        is_there
    }

    fn take_messages(
        &mut self,
        place: usize,
        client: &mut WebSocketClient,
        arrived: Stamp,
        at: Stamp,
    ) -> bool {
        while let Some(message) = client.next(&self.worker.shared.standards[0]) {
            match message {
                Message::Reply(reply) => {
                    if self.note_arrival(place, arrived, at).is_none()
                        || !self.completed(place, reply, at)
                    {
                        return false;
                    }
                }
                Message::Ping(pong) => {
                    // One that finds no room is left out: the next ping asks again.
                    let _ = self.send_now(place, &pong);
                }
                Message::Close => {
                    self.ended(place, at);
                    return false;
                }
                Message::Wrong => {
                    self.fail(place, Failure::Short, at);
                    return false;
                }
            }
        }
        true
    }

    /// Says goodbye, as far as the socket takes it at once.
    pub(super) fn close_websocket(&mut self, place: usize) {
        let is_open = self.connections[place].state == ConnectionState::Open;
        if is_open && self.worker.plan.upgrade.is_some() {
            let _ = self.send_now(place, &WebSocketClient::close());
        }
    }

    fn send_now(&mut self, place: usize, bytes: &[u8]) -> io::Result<usize> {
        let connection = &mut self.connections[place];
        let Some(socket) = &connection.socket else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        send_bytes(&mut connection.tls, socket, bytes)
    }
}
