//! The loop over TLS, against rustls' server on threads.

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::ServerConfig;
use rustls::{ServerConnection, StreamOwned};
use telemetry::Nanos;

use super::{OK, plan, request, run};
use crate::plan::{Address, Plan, RequestParts, Scheme, Tls, TlsTrust};

/// A server that answers everything, and a plan for it; the count is that of whole requests.
fn served() -> (Plan, Arc<AtomicU64>) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )
        .expect("a certificate and its key");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let whole = Arc::new(AtomicU64::new(0));
    let count = whole.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (config, count) = (config.clone(), count.clone());
            thread::spawn(move || {
                let tls = ServerConnection::new(config).expect("a configuration");
                let mut stream = StreamOwned::new(tls, stream);
                let mut kept = Vec::new();
                while let Ok(Some(_)) = request(&mut stream, &mut kept) {
                    count.fetch_add(1, Ordering::SeqCst);
                    if stream.write_all(OK).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let mut plan = plan(Address::Ip(address));
    plan.target.scheme = Scheme::Https(Tls {
        server_name: "localhost".to_owned(),
        trust: TlsTrust::Anybody,
        resumes: true,
    });
    (plan, whole)
}

#[test]
fn sends_ciphertext_to_its_end_when_the_socket_is_full() {
    let (mut plan, whole) = served();
    // More than the sockets hold, and its last bytes wait as ciphertext alone.
    let body = vec![b'x'; 9_000_000];
    let parts = RequestParts {
        method: "POST",
        target: "/",
        host: "localhost",
        fields: &[],
        body: Some(&body),
    };
    plan.requests = vec![parts.request(1)];
    plan.connections.len = 1;
    plan.connections.timeout = Nanos::from_secs(60);
    plan.length.requests = Some(3);
    plan.length.duration = Some(Nanos::from_secs(120));
    let counts = run(&plan);
    assert_eq!(
        (counts.answered, counts.failures.sum()),
        (3, 0),
        "{counts:?}"
    );
    assert_eq!(whole.load(Ordering::SeqCst), 3);
}
