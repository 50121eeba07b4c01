//! TLS for servers under test: a certificate, a socket where connections begin with a handshake, and clients.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use config::typed::{Config, TlsIdentity};
use ipc::{ListenAddr, ListenerId, ListenerInfo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::Running;

const FILE: &str = "certificate.pem";

/// Has the server know a certificate for `localhost`, which is written to `dir`.
pub(crate) fn certify(config: &mut Config, dir: &Path) {
    let certificate = dir.join(FILE);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let both = made.cert.pem() + &made.signing_key.serialize_pem();
    fs::write(&certificate, both).unwrap();
    // A key that others may read is refused.
    fs::set_permissions(&certificate, fs::Permissions::from_mode(0o600)).unwrap();
    config.tls.identities = vec![TlsIdentity {
        key: certificate.clone(),
        cert: certificate,
        ..TlsIdentity::default()
    }];
}

impl Running {
    /// Has the server accept from one more socket, where connections begin with TLS.
    pub(crate) fn listen_with_tls(&self) -> SocketAddr {
        static NEXT: AtomicU16 = AtomicU16::new(1);
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        let listener = ListenerInfo {
            key: ListenerId {
                address: 0,
                index: NEXT.fetch_add(1, Ordering::Relaxed),
                driver: 0,
            },
            at: ListenAddr::Tcp(address),
            is_shared: false,
            takes_turns: false,
            is_tls: true,
            is_inherited: false,
        };
        let accepting = self.handle.start_accepting(listener, socket.into());
        accepting.unwrap();
        address
    }

    /// A client that trusts the server's certificate.
    pub(crate) fn tls_client(&self) -> ClientConnection {
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_file(self.dir.path().join(FILE));
        roots.add(certificate.unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        ClientConnection::new(Arc::new(config), name).unwrap()
    }
}
