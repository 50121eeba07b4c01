//! The table with real sockets and real connections.
