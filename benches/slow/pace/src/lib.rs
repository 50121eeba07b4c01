//! What a client of constant rate is made of: a connection that asks (`client`), the rhythm that it
//! keeps (`rhythm`), and what is told of it (`told`). `benches/log/numbered` is made of the same.

#![forbid(unsafe_code)]

pub mod client;
pub mod rhythm;
pub mod told;
