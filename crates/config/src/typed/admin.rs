//! Where the state of the server can be asked for.

use std::net::SocketAddr;
use std::path::PathBuf;

/// The admin listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminConfig {
    /// Where it listens; nowhere by default.
    pub bind: Option<AdminBind>,
    /// The file of the token that it asks for.
    pub token_file: Option<PathBuf>,
}

/// What the admin listener listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminBind {
    /// An address and port.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

/// What a StatsD server is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsdConfig {
    /// Where it listens; there is none by default.
    pub address: Option<SocketAddr>,
    /// What the names of metrics begin with.
    pub prefix: String,
}

impl Default for StatsdConfig {
    fn default() -> Self {
        Self {
            address: None,
            prefix: "milepost".to_owned(),
        }
    }
}
