//! Stream facts: what a record has of an exchange whose connection has many streams. Holds values, decides nothing.

use crate::Nanos;

/// What is known of the stream of an exchange, where its connection has many; all zero where it has one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StreamFacts {
    /// Its number on the connection; 0 for none.
    pub number: u32,
    /// Which end reset it.
    pub reset_by: ResetBy,
    /// For which reason, by its number.
    pub reset_code: u32,
    /// The part of `send` that the client kept the stream's own window shut.
    pub blocked_stream: Nanos,
    /// The part of `send` that the connection was waited for: its window, its socket, or the turns of other streams.
    pub blocked_connection: Nanos,
}

/// Which end reset a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ResetBy {
    /// None.
    #[default]
    None,
    /// The client.
    Client,
    /// The server, because the client broke a rule or the response could not be completed.
    Server,
}

impl ResetBy {
    pub(crate) const ALL: [ResetBy; 3] = [ResetBy::None, ResetBy::Client, ResetBy::Server];

    /// The word in the log.
    pub const fn text(self) -> &'static str {
        match self {
            ResetBy::None => "",
            ResetBy::Client => "client",
            ResetBy::Server => "server",
        }
    }
}
