//! Sessions against a client of rustls in memory.
