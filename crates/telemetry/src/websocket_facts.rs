//! WebSocket facts: what a record has of an exchange that became a WebSocket connection. Holds values, decides nothing.

/// What is known of a WebSocket connection at its end; all zero of other exchanges.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WebSocketFacts {
    /// Messages of the client.
    pub received: u64,
    /// Messages of the application.
    pub sent: u64,
    /// The code that it has ended with (RFC 6455 section 7.4); 0 for an exchange that was none.
    pub close_code: u16,
}
