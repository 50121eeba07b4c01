//! TLS over sockets that do not block: the client's half, one [`TlsConnection`] a connection.
//!
//! Takes plaintext to send and a socket, gives plaintext that was read; the protocol is rustls', the arithmetic
//! that of aws-lc-rs, as in the server. No socket is kept, opened, watched or closed here, and no call waits: what cannot go on now
//! says so with [`WouldBlock`](io::ErrorKind::WouldBlock). What a connection buffers is bounded: 64 KB of
//! ciphertext to send, one record that is being read and the plaintext of one read.

use std::io::{self, IoSlice, Write as _};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConnection, Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, HandshakeKind,
    RootCertStore, SignatureScheme,
};

use super::Fault;
use crate::plan::{Protocol, Tls, TlsTrust};

/// Ciphertext of one connection that the kernel has not taken yet.
const UNSENT_BYTES_MAX: usize = 64 * 1024;
/// HTTP/2 over TLS, RFC 9113 section 3.2.
const ALPN_HTTP2: &[u8] = b"h2";
/// Servers whose sessions are remembered: there is one, and rustls takes the number in another measure.
const SESSIONS_LEN: usize = 32;

/// What the connections of one thread have in common: whom they trust, and the sessions that they resume.
#[derive(Clone, Debug)]
pub(crate) struct TlsClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// TLS on one connection.
#[derive(Debug)]
pub(crate) struct TlsConnection {
    tls: ClientConnection,
    is_cut: bool,
}

impl TlsClient {
    /// Reads the authorities' file, if there is one. The protocol is the only one that is offered.
    pub(crate) fn new(tls: &Tls, protocol: Protocol) -> Result<TlsClient, Fault> {
        let name = ServerName::try_from(tls.server_name.clone())
            .map_err(|error| Fault::new(format!("the name `{}`: {error}", tls.server_name)))?;
        // Not the process's default: other code of the process has its own choice.
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = Arc::new(Verifier {
            authorities: match &tls.trust {
                TlsTrust::Authority(file) => Some(Authorities::of(file, &provider)?),
                TlsTrust::Anybody => None,
            },
            provider: provider.clone(),
        });
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Fault::new(format!("TLS: {error}")))?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.alpn_protocols = vec![match protocol {
            Protocol::Http1 | Protocol::WebSocket => b"http/1.1".to_vec(),
            Protocol::Http2 => ALPN_HTTP2.to_vec(),
        }];
        config.resumption = if tls.resumes {
            Resumption::in_memory_sessions(SESSIONS_LEN)
        } else {
            Resumption::disabled()
        };
        Ok(TlsClient {
            config: Arc::new(config),
            name,
        })
    }

    /// For a connection that is established.
    pub(crate) fn begin(&self) -> TlsConnection {
        let tls = ClientConnection::new(self.config.clone(), self.name.clone());
        let mut tls = tls.expect("the configuration has versions, suites and no early data");
        tls.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        TlsConnection { tls, is_cut: false }
    }
}

impl TlsConnection {
    /// Continues the handshake as far as the socket allows; at its end, whether an earlier session was resumed.
    ///
    /// Errors: the socket's, `WouldBlock` until it is readable, or writable where ciphertext waits; `UnexpectedEof`
    /// where the server has left; `InvalidData`, with rustls' text, where its certificate or its TLS is not right.
    pub(crate) fn handshake(&mut self, socket: impl AsFd) -> io::Result<bool> {
        loop {
            self.flush(&socket)?;
            if !self.tls.is_handshaking() {
                return Ok(self.tls.handshake_kind() == Some(HandshakeKind::Resumed));
            }
            if self.read(&socket)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Whether the server has chosen HTTP/2; known after the handshake.
    pub(crate) fn is_http2(&self) -> bool {
        self.tls.alpn_protocol() == Some(ALPN_HTTP2)
    }

    /// Takes as many of `bytes` as may wait here, and gives the kernel what it takes of them. How many were
    /// taken; `WouldBlock`, as of a socket, while ciphertext of an earlier call waits.
    ///
    /// Ciphertext of the last bytes may wait as well: [`TlsConnection::flush`] until there is none.
    pub(crate) fn send(&mut self, socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
        // rustls takes plaintext without end where nothing is sent: what waits is bounded by sending it first.
        self.flush(&socket)?;
        let taken = self.tls.writer().write(bytes)?;
        match self.flush(&socket) {
            // The bytes are taken all the same: their ciphertext waits here.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(taken),
            flushed => flushed.map(|()| taken),
        }
    }

    /// Sends all ciphertext; `WouldBlock`: some of it waits.
    pub(crate) fn flush(&mut self, socket: impl AsFd) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut TlsSocket(&socket))?;
        }
        Ok(())
    }

    /// Reads plaintext into `buffer`, which is not empty; zero: the end, see [`TlsConnection::is_cut`].
    ///
    /// To be called until it says `WouldBlock`: plaintext may wait here when nothing waits in the socket.
    pub(crate) fn recv(&mut self, socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
        assert!(!buffer.is_empty(), "no bytes would look like the end");
        loop {
            match io::Read::read(&mut self.tls.reader(), buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // rustls takes the end of the connection without close_notify for an error. Here it is an end, because
                // what it ends may be a reply with a length; the caller knows.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.is_cut = true;
                    return Ok(0);
                }
                copied => return copied,
            }
            self.read(&socket)?;
            // An answer to a change of keys; if it cannot leave now it does with the next bytes.
            if self.tls.wants_write() {
                let _ = self.flush(&socket);
            }
        }
    }

    /// Whether the server's stream has ended without close_notify, by the end of the connection alone, which anybody in
    /// between could have made, RFC 8446 section 6.1. Known once [`TlsConnection::recv`] has said zero.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Says close_notify, as far as the socket takes it at once.
    pub(crate) fn close(&mut self, socket: impl AsFd) {
        self.tls.send_close_notify();
        let _ = self.flush(&socket);
    }

    /// Reads from the socket once and deciphers what is whole; zero: the connection has ended.
    fn read(&mut self, socket: impl AsFd) -> io::Result<usize> {
        let read = self.tls.read_tls(&mut TlsSocket(&socket))?;
        if let Err(error) = self.tls.process_new_packets() {
            // The alert that says why; the connection is of no use whether it leaves or not.
            let _ = self.flush(&socket);
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        Ok(read)
    }
}

/// Whether the server has ended the handshake because it speaks no protocol that was offered, RFC 7301 section 3.2.
pub(crate) fn is_without_protocol(error: &io::Error) -> bool {
    let cause = error
        .get_ref()
        .and_then(|cause| cause.downcast_ref::<Error>());
    cause
        == Some(&Error::AlertReceived(
            AlertDescription::NoApplicationProtocol,
        ))
}

/// A socket as rustls wants it: never a signal, never an interruption.
struct TlsSocket<S>(S);

impl<S: AsFd> io::Read for TlsSocket<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let recv = || rustix::net::recv(&self.0, &mut *buffer, RecvFlags::DONTWAIT);
        let (read, _) = rustix::io::retry_on_intr(recv)?;
        Ok(read)
    }
}

impl<S: AsFd> io::Write for TlsSocket<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let mut none = SendAncillaryBuffer::default();
        let send = || rustix::net::sendmsg(&self.0, parts, &mut none, flags);
        Ok(rustix::io::retry_on_intr(send)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Checks that a server holds the key of its certificate, and that an authority vouches for that.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// `None`: nothing of a certificate is checked.
    authorities: Option<Authorities>,
}

/// Those whose word counts.
#[derive(Debug)]
struct Authorities {
    chains: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl Authorities {
    /// From a file of PEM certificates.
    fn of(file: &Path, provider: &Arc<CryptoProvider>) -> Result<Authorities, Fault> {
        let fault = |cause: &dyn std::fmt::Display| {
            Fault::with_hint(
                format!("the authorities' file `{}`: {cause}", file.display()),
                "give a file of PEM certificates, or `--insecure` to check none",
            )
        };
        let bytes = std::fs::read(file).map_err(|error| fault(&error))?;
        let certificates = CertificateDer::pem_slice_iter(&bytes)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| fault(&error))?;
        if certificates.is_empty() {
            return Err(fault(&"there is no certificate in it"));
        }
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            let added = roots.add(certificate.clone());
            added.map_err(|error| fault(&error))?;
        }
        let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        Ok(Authorities {
            chains: chains.build().map_err(|error| fault(&error))?,
            certificates,
        })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(known) = &self.authorities else {
            return Ok(ServerCertVerified::assertion());
        };
        match known
            .chains
            .verify_server_cert(certificate, between, name, stapled, now)
        {
            // An authority may serve under its own certificate: that is what `openssl req -x509` makes, and
            // what other clients take when they are given that very file. Found after the dates were right and
            // before the name was looked at; rustls has no name for it.
            Err(Error::InvalidCertificate(CertificateError::Other(_)))
                if known.certificates.contains(certificate) =>
            {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let known = &self.provider.signature_verification_algorithms;
        known.supported_schemes()
    }
}

#[cfg(test)]
pub(super) mod tests;
