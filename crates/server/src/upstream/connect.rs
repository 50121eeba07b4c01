//! Connections to the servers of a group, as they are made: the socket, the PROXY protocol header, the TLS handshake.
//!
//! Certificates are read when the process starts.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use ::tls::client_config;
use config::failure::StartFault;
use config::typed::{ServerAddress, Upstream, UpstreamProtocol};
use http::write_proxy_header;
use ipc::stats::Placed;
use telemetry::counters::UpstreamStats;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::connection::UpstreamConnection;
use super::fault::{HandshakeCause, UpstreamFault, of_connect, of_handshake};
use super::group::{Endpoint, EndpointAddress};
use crate::exchange::Ends;

/// What connections to the servers of a group are made with.
pub(super) struct Connector {
    tls: Option<TlsConnector>,
    /// By server, where it has TLS: the name that its certificate must have.
    names: Vec<Option<ServerName<'static>>>,
    protocol: UpstreamProtocol,
    sends_proxy_header: bool,
    longest: Duration,
    /// By server.
    counters: &'static [Placed<UpstreamStats>],
}

impl Connector {
    /// Reads the files of a group. `counters` are those of its servers.
    pub(super) fn open(
        settings: &Upstream,
        counters: &'static [Placed<UpstreamStats>],
    ) -> Result<Self, StartFault> {
        let what = || format!("upstream `{}`", settings.name);
        let has_tls = settings.servers.iter().any(|server| server.has_tls);
        let tls = match has_tls {
            false => None,
            true => {
                let protocol = match settings.protocol {
                    UpstreamProtocol::Http1 => "http/1.1",
                    UpstreamProtocol::Http2 => "h2",
                };
                let config = client_config(&settings.tls, protocol);
                let config = config.map_err(|fault| StartFault::new(what(), fault.to_string()))?;
                Some(TlsConnector::from(config))
            }
        };
        let mut names = Vec::new();
        for server in &settings.servers {
            let host = match (&settings.tls.name, &server.address) {
                _ if !server.has_tls => None,
                (Some(name), _) => Some(name),
                (None, ServerAddress::Tcp { host, .. }) => Some(host),
                (None, ServerAddress::Unix(_)) => None,
            };
            let name = host.map(|host| ServerName::try_from(host.clone()));
            let name = name.transpose().map_err(|_| {
                let cause = format!("a certificate cannot be for `{}`", server.address);
                StartFault::new(what(), cause).with_hint("name it: `tls_name`")
            })?;
            names.push(name);
        }
        Ok(Self {
            tls,
            names,
            protocol: settings.protocol,
            sends_proxy_header: settings.sends_proxy_header,
            longest: Duration::from_nanos(settings.connect_timeout.0),
            counters,
        })
    }

    /// A new connection, for a client with these ends or for this server itself.
    pub(super) async fn connect(
        &self,
        endpoint: &Endpoint,
        ends: Option<&Ends>,
    ) -> Result<UpstreamConnection, UpstreamFault> {
        let began = telemetry::now();
        let made: Box<dyn Future<Output = _>> = Box::new(self.make(endpoint, ends));
        match timeout(self.longest, Box::into_pin(made)).await {
            Ok(made) => made.map(|mut made| {
                made.made_in = telemetry::now().since(began);
                self.counters[endpoint.server].connected(made.made_in);
                made
            }),
            Err(_) => Err(UpstreamFault::ConnectTimeout),
        }
    }

    async fn make(
        &self,
        endpoint: &Endpoint,
        ends: Option<&Ends>,
    ) -> Result<UpstreamConnection, UpstreamFault> {
        let connected = match &endpoint.at {
            EndpointAddress::Unix(path) => UpstreamConnection::unix(path).await,
            EndpointAddress::Tcp(address) => UpstreamConnection::tcp(*address).await,
        };
        let mut connection = connected.map_err(|error| of_connect(&error))?;
        if self.sends_proxy_header {
            let mut header = Vec::new();
            write_proxy_header(&mut header, ends.and_then(addresses));
            let sent = connection.send_all(&header).await;
            sent.map_err(|error| of_connect(&error))?;
        }
        match (&self.tls, &self.names[endpoint.server]) {
            (Some(tls), Some(name)) => {
                let secured = connection.secure(tls, name.clone()).await;
                let secured = secured.map_err(|error| of_handshake(&error))?;
                match self.protocol == UpstreamProtocol::Http2 && !secured.agrees_on_http2() {
                    true => Err(UpstreamFault::Handshake(HandshakeCause::NoHttp2)),
                    false => Ok(secured),
                }
            }
            _ => Ok(connection),
        }
    }
}

/// Client, and what it has connected to; `None` where one of them is no address.
fn addresses(ends: &Ends) -> Option<(SocketAddr, SocketAddr)> {
    let address = |host: &str, port: &str| {
        let ip = host.parse().ok()?;
        // A proxy in front may not have said the port.
        Some(SocketAddr::new(ip, port.parse().unwrap_or(0)))
    };
    Some((
        address(&ends.client_host, &ends.client_port)?,
        address(&ends.local_host, &ends.local_port)?,
    ))
}
