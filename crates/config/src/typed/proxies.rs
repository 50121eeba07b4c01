//! Proxies in front of the server, as typed values.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::{ForwardedField, ForwardedFields};

defaults! {
    /// Proxies in front, and what is believed of them.
    #[derive(Clone, Debug)]
    pub struct Proxies {
        /// Peers whose forwarding headers, request starts and request ids are believed.
        pub trusted: PeerSet = PeerSet {
            networks: vec![
                (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
                (IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
            ],
            unix: UnixPeers::Known,
        },
        /// Groups, by name or number, whose processes are known on unix sockets.
        pub groups: Vec<String> = ["www-data", "nginx", "caddy", "haproxy", "apache", "http"]
            .map(str::to_owned)
            .to_vec(),
        /// Forwarding headers that are read.
        pub fields: ForwardedFields = ForwardedFields::default()
            .with(ForwardedField::For)
            .with(ForwardedField::Proto),
        /// Peers that begin each connection with a PROXY protocol header.
        pub proxy_protocol_from: PeerSet,
    }
}

/// Some peers of connections; by default none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerSet {
    /// Addresses and how many of their leading bits count.
    pub networks: Vec<(IpAddr, u8)>,
    /// Peers on unix sockets.
    pub unix: UnixPeers,
}

/// Which peers on unix sockets a set has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnixPeers {
    /// None.
    #[default]
    None,
    /// Processes of root, of the server's own user and of the listed groups.
    Known,
    /// All.
    All,
}

impl PeerSet {
    /// Every peer.
    pub fn everybody() -> Self {
        Self {
            networks: vec![
                (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
                (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
            ],
            unix: UnixPeers::All,
        }
    }
}
