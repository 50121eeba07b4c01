//! The client's half against rustls' server on a thread, over loopback.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ServerConfig;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ServerConnection, SupportedProtocolVersion, version};
use socket2::{Domain, SockRef, Socket, Type};
use tempfile::NamedTempFile;

use super::*;

type ServerStream = rustls::StreamOwned<ServerConnection, TcpStream>;

/// A server's certificate, its key, and the certificate as a file.
pub(in crate::engine) struct Identity {
    der: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    file: NamedTempFile,
}

impl Identity {
    fn of(change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(certificate.pem().as_bytes()).unwrap();
        Identity {
            der: certificate.der().clone(),
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            file,
        }
    }

    pub(in crate::engine) fn plain() -> Identity {
        Identity::of(|_| {})
    }

    /// As `openssl req -x509` makes it.
    fn authority() -> Identity {
        Identity::of(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained))
    }

    pub(in crate::engine) fn server(
        &self,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<ServerConfig> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.der.clone()], self.key.clone_key())
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    }

    /// Trusted by its file.
    fn known_as(&self, name: &str) -> Tls {
        Tls {
            server_name: name.to_owned(),
            trust: TlsTrust::Authority(self.file.path().to_owned()),
            resumes: true,
        }
    }
}

pub(in crate::engine) fn anybody() -> Tls {
    Tls {
        server_name: "localhost".to_owned(),
        trust: TlsTrust::Anybody,
        resumes: true,
    }
}

/// Serves so many connections one after another, each as `serve` says.
fn serve<F>(config: Arc<ServerConfig>, connections: usize, serve: F) -> (SocketAddr, JoinHandle<()>)
where
    F: Fn(&mut ServerStream) -> io::Result<()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let small = SockRef::from(&listener).set_recv_buffer_size(4096);
    small.unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        for _ in 0..connections {
            let (socket, _) = listener.accept().unwrap();
            SockRef::from(&socket).set_send_buffer_size(4096).unwrap();
            let tls = ServerConnection::new(config.clone()).unwrap();
            // What a refused server meets is the client's affair.
            let _ = serve(&mut rustls::StreamOwned::new(tls, socket));
        }
    });
    (address, thread)
}

fn answer(stream: &mut ServerStream) -> io::Result<()> {
    let mut asked = [0; 4];
    stream.read_exact(&mut asked)?;
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    stream.write_all(b"pong")
}

/// A connection whose socket has small buffers and does not block.
fn connect(address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.set_send_buffer_size(4096).unwrap();
    socket.connect(&address.into()).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.into()
}

/// Waits for what the link waits for.
fn wait(socket: &TcpStream, link: &TlsConnection) {
    let mut flags = PollFlags::IN;
    if link.tls.wants_write() {
        flags |= PollFlags::OUT;
    }
    let patience = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    let ready = poll(&mut [PollFd::new(socket, flags)], Some(&patience)).unwrap();
    assert_eq!(ready, 1, "the socket is never ready");
}

/// The call's result, once it has one.
fn until<T>(
    socket: &TcpStream,
    link: &mut TlsConnection,
    mut call: impl FnMut(&mut TlsConnection) -> io::Result<T>,
) -> io::Result<T> {
    loop {
        match call(link) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait(socket, link),
            result => return result,
        }
    }
}

fn shake(socket: &TcpStream, link: &mut TlsConnection) -> io::Result<bool> {
    until(socket, link, |link| link.handshake(socket))
}

/// A handshake with `address` by a client that takes any certificate.
fn shaken(address: SocketAddr) -> (TcpStream, io::Result<TlsConnection>) {
    let socket = connect(address);
    let mut link = TlsClient::new(&anybody(), Protocol::Http1).unwrap().begin();
    let shaken = shake(&socket, &mut link);
    (socket, shaken.map(|_| link))
}

/// One question and its answer; whether the session was resumed.
fn ask(client: &TlsClient, address: SocketAddr) -> io::Result<bool> {
    let socket = connect(address);
    let mut link = client.begin();
    let resumed = shake(&socket, &mut link)?;
    assert_eq!(
        until(&socket, &mut link, |link| link.send(&socket, b"ping"))?,
        4
    );
    let mut read = Vec::new();
    while read.len() < 4 {
        let mut buffer = [0; 3];
        let len = until(&socket, &mut link, |link| link.recv(&socket, &mut buffer))?;
        assert_ne!(len, 0, "the answer is short");
        read.extend_from_slice(&buffer[..len]);
    }
    assert_eq!(read, b"pong");
    link.close(&socket);
    Ok(resumed)
}

/// What is said of a server with this certificate by a client that trusts as `tls` says.
fn check_server(server: &Identity, tls: &Tls, expect: Result<(), &str>) {
    let (address, thread) = serve(server.server(&[&version::TLS13]), 1, answer);
    let asked = ask(&TlsClient::new(tls, Protocol::Http1).unwrap(), address);
    match (asked, expect) {
        (Ok(_), Ok(())) => {}
        (Err(error), Err(text)) => {
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert!(error.to_string().contains(text), "{error}");
        }
        (asked, expect) => panic!("{asked:?} and not {expect:?}"),
    }
    thread.join().unwrap();
}

#[test]
fn shares_no_sessions_between_clients() {
    let server = Identity::plain();
    let (address, thread) = serve(server.server(&[&version::TLS13]), 2, answer);
    for _ in 0..2 {
        let client = TlsClient::new(&server.known_as("localhost"), Protocol::Http1).unwrap();
        assert!(!ask(&client, address).unwrap());
    }
    thread.join().unwrap();
}

#[test]
fn takes_no_more_than_it_may_keep_for_a_server_that_does_not_read() {
    let server = Identity::plain();
    let (go, wait_for_go) = std::sync::mpsc::channel::<()>();
    let (address, thread) = serve(server.server(&[&version::TLS13]), 1, move |stream| {
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        let _ = wait_for_go.recv();
        Ok(())
    });
    let (socket, link) = shaken(address);
    let mut link = link.unwrap();
    let mut taken = 0;
    let blocked = loop {
        match link.send(&socket, &[7; 1 << 20]) {
            Ok(len) => taken += len,
            Err(error) => break error.kind(),
        }
        assert!(taken < UNSENT_BYTES_MAX * 16, "{taken} bytes are taken");
    };
    assert_eq!(blocked, io::ErrorKind::WouldBlock);
    let flushed = link.flush(&socket).unwrap_err();
    assert_eq!(flushed.kind(), io::ErrorKind::WouldBlock);
    go.send(()).unwrap();
    thread.join().unwrap();
}

fn check_end(say: fn(&mut ServerStream), is_cut: bool) {
    let server = Identity::plain();
    for version in [&version::TLS13, &version::TLS12] {
        let (address, thread) = serve(server.server(&[version]), 1, move |stream| {
            stream.write_all(b"last")?;
            say(stream);
            stream.sock.shutdown(std::net::Shutdown::Write)
        });
        let (socket, link) = shaken(address);
        let mut link = link.unwrap();
        let mut buffer = [0; 64];
        let mut read = || until(&socket, &mut link, |link| link.recv(&socket, &mut buffer));
        assert_eq!(read().unwrap(), 4);
        assert_eq!((read().unwrap(), read().unwrap()), (0, 0));
        assert_eq!(link.is_cut(), is_cut);
        thread.join().unwrap();
    }
}

#[test]
fn takes_the_connections_end_as_the_end_with_close_notify_and_without() {
    let notify = |stream: &mut ServerStream| {
        stream.conn.send_close_notify();
        stream.flush().unwrap();
    };
    check_end(notify, false);
    check_end(|_| {}, true);
}

#[test]
fn says_close_notify() {
    let server = Identity::plain();
    let (sender, read) = std::sync::mpsc::channel();
    let (address, thread) = serve(server.server(&[&version::TLS13]), 1, move |stream| {
        answer(stream)?;
        // Without close_notify it is rustls' UnexpectedEof.
        let _ = sender.send(stream.read(&mut [0; 8])?);
        Ok(())
    });
    ask(
        &TlsClient::new(&anybody(), Protocol::Http1).unwrap(),
        address,
    )
    .unwrap();
    thread.join().unwrap();
    assert_eq!(read.recv(), Ok(0));
}

#[test]
fn takes_and_refuses_certificates() {
    let over = |params: &mut CertificateParams| params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let [server, other] = [Identity::plain(), Identity::plain()];
    let [authority, strange] = [Identity::authority(), Identity::authority()];
    let old = Identity::of(over);
    let old_authority = Identity::of(|params| {
        over(params);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    });
    let unknown = Err("invalid peer certificate: ");
    for (server, known, name, expect) in [
        (&server, &server, "localhost", Ok(())),
        (&server, &server, "127.0.0.1", Ok(())),
        (&server, &other, "localhost", unknown),
        (&server, &strange, "localhost", unknown),
        // An authority that serves under its own certificate.
        (&authority, &authority, "localhost", Ok(())),
        (
            &authority,
            &authority,
            "elsewhere.test",
            Err("not valid for name \"elsewhere.test\""),
        ),
        (&old, &old, "localhost", Err("expired")),
        (&old_authority, &old_authority, "localhost", Err("expired")),
    ] {
        check_server(server, &known.known_as(name), expect);
    }
}

#[test]
fn takes_anybodys_certificate_but_not_without_its_key() {
    let [server, other] = [Identity::plain(), Identity::plain()];
    let mut nowhere = anybody();
    nowhere.server_name = "elsewhere.test".to_owned();
    check_server(&server, &nowhere, Ok(()));

    let key = aws_lc_rs::sign::any_ecdsa_type(&other.key).unwrap();
    let stolen = CertifiedKey::new(vec![server.der.clone()], key);
    for version in [&version::TLS13, &version::TLS12] {
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(stolen.clone())));
        let (address, thread) = serve(Arc::new(config), 1, answer);
        let error = ask(
            &TlsClient::new(&anybody(), Protocol::Http1).unwrap(),
            address,
        )
        .unwrap_err();
        assert!(error.to_string().contains("BadSignature"), "{error}");
        thread.join().unwrap();
    }
}

/// The error of a handshake with what says `bytes` and leaves.
fn shaken_by(bytes: &'static [u8]) -> io::Error {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(bytes).unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        peer
    });
    let (_socket, shaken) = shaken(address);
    drop(server.join().unwrap());
    shaken.unwrap_err()
}

#[test]
fn tells_a_server_without_tls_from_one_that_leaves() {
    let error = shaken_by(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(error.to_string().contains("corrupt message"), "{error}");
    assert_eq!(shaken_by(b"").kind(), io::ErrorKind::UnexpectedEof);
    let reset = shaken_by(b"\x15\x03\x03\x00\x02\x02\x28").to_string();
    assert!(reset.contains("HandshakeFailure"), "{reset}");
}

#[test]
fn says_what_is_wrong_with_the_authorities_file_and_the_name() {
    for (text, expect) in [
        (None, "No such file"),
        (Some(""), "there is no certificate in it"),
        (Some("\u{1} not PEM"), "there is no certificate in it"),
        (Some("-----BEGIN CERTIFICATE-----\nAAAA\n"), "section end"),
        (
            Some("-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n"),
            "base64",
        ),
        (
            Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            "BadEncoding",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("authorities.pem");
        if let Some(text) = text {
            std::fs::write(&path, text).unwrap();
        }
        let begin = format!("the authorities' file `{}`: ", path.display());
        let fault = TlsClient::new(
            &Tls {
                trust: TlsTrust::Authority(path),
                ..anybody()
            },
            Protocol::Http1,
        );
        let fault = fault.unwrap_err();
        let cause = fault.text.strip_prefix(&begin).expect(&fault.text);
        assert!(cause.contains(expect) && fault.hint.is_some(), "{cause}");
    }
    let none = Tls {
        server_name: "no name".to_owned(),
        ..anybody()
    };
    let fault = TlsClient::new(&none, Protocol::Http1).unwrap_err();
    assert_eq!(fault.text, "the name `no name`: invalid dns name");
}
