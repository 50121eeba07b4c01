//! Messages of WebSocket connections that the steps of others have sent: kept until the end of a turn of the loop, so that a
//! broadcast of many is one send for each connection.
//!
//! A channel keeps its messages itself and is here once in a turn. Runs on the thread of the loop alone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use server::websocket::WebSocketChannel;

/// The connections whose messages leave together at the end of a turn.
#[derive(Default)]
pub(super) struct KeptMessages(Mutex<Turn>);

#[derive(Default)]
struct Turn {
    number: u64,
    /// Connections that have such messages.
    channels: Vec<Arc<WebSocketChannel>>,
    /// The loop will call what ends the turn.
    is_end_due: bool,
}

impl KeptMessages {
    /// Number of the turn, by which a channel knows whether it has sent in it.
    pub(super) fn turn(&self) -> u64 {
        self.state().number
    }

    /// Another turn begins, and keeps what is left.
    pub(super) fn begin_turn(&self) {
        self.state().number += 1;
    }

    /// The channel has kept its first message of this turn.
    pub(super) fn keep(&self, channel: &Arc<WebSocketChannel>) {
        self.state().channels.push(Arc::clone(channel));
    }

    /// Whether the loop is to call what ends the turn: there is something to send, and nobody has asked for that yet.
    pub(super) fn take_end_due(&self) -> bool {
        let mut turn = self.state();
        !turn.channels.is_empty() && !std::mem::replace(&mut turn.is_end_due, true)
    }

    /// The turn is over: what was kept leaves.
    pub(super) fn end_turn(&self) {
        let channels = {
            let mut turn = self.state();
            (turn.number, turn.is_end_due) = (turn.number + 1, false);
            std::mem::take(&mut turn.channels)
        };
        for channel in channels {
            channel.flush();
        }
    }

    /// No panic leaves it between two states.
    fn state(&self) -> MutexGuard<'_, Turn> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_without_messages_needs_no_end_and_has_a_number_of_its_own() {
        let kept = KeptMessages::default();
        let first = kept.turn();
        assert!(!kept.take_end_due());
        kept.begin_turn();
        let second = kept.turn();
        kept.end_turn();
        assert!(first < second && second < kept.turn());
        assert!(!kept.take_end_due());
    }
}
