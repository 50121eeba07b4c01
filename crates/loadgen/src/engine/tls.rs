//! TLS over sockets that do not block: the client's half, one [`TlsConnection`] a connection.
//!
//! Takes plaintext to send and a socket, gives plaintext that was read; the protocol is rustls' with ring's
//! arithmetic. No socket is kept, opened, watched or closed here, and no call waits: what cannot go on now
//! says so with [`WouldBlock`](io::ErrorKind::WouldBlock). What a connection buffers is bounded: 64 KB of
//! ciphertext to send, one record that is being read and the plaintext of one read.

use std::io::{self, IoSlice, Write as _};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConnection, Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, HandshakeKind, RootCertStore,
    SignatureScheme,
};

use super::Fault;
use crate::plan::{Tls, TlsTrust};

/// Ciphertext of one connection that the kernel has not taken yet.
const UNSENT_BYTES_MAX: usize = 64 * 1024;
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
    end: Option<TlsEnd>,
}

/// How far a handshake is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandshakeState {
    /// Over: [`TlsConnection::send`] and [`TlsConnection::recv`] may be called.
    Done {
        /// Whether an earlier session was resumed.
        resumed: bool,
    },
    /// The socket has to become readable, or writable where ciphertext waits.
    Going,
}

/// How a server's stream has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TlsEnd {
    /// By a close_notify: nothing is missing.
    Notified,
    /// By the end of the connection alone, which anybody in between could have made, RFC 8446 section 6.1.
    Cut,
}

impl TlsClient {
    /// Reads the authorities' file, if there is one.
    pub(crate) fn new(tls: &Tls) -> Result<TlsClient, Fault> {
        let name = ServerName::try_from(tls.server_name.clone())
            .map_err(|error| Fault::new(format!("the name `{}`: {error}", tls.server_name)))?;
        // Not the process's default: nobody else is to choose, and nobody to be chosen for.
        let provider = Arc::new(ring::default_provider());
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
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
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
        TlsConnection { tls, end: None }
    }
}

impl TlsConnection {
    /// Goes on with the handshake as far as the socket allows. Whatever came behind it waits for
    /// [`TlsConnection::recv`], which nothing but a call tells.
    ///
    /// Errors: the socket's; `UnexpectedEof` where the server has left; `InvalidData`, with rustls' text,
    /// where its certificate or its TLS is not right.
    pub(crate) fn handshake(&mut self, socket: impl AsFd) -> io::Result<HandshakeState> {
        loop {
            if !self.flush(&socket)? {
                return Ok(HandshakeState::Going);
            }
            if !self.tls.is_handshaking() {
                let resumed = self.tls.handshake_kind() == Some(HandshakeKind::Resumed);
                return Ok(HandshakeState::Done { resumed });
            }
            match self.read(&socket) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(HandshakeState::Going);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes as many of `bytes` as may wait here, and gives the kernel what it takes of them. How many were
    /// taken; `WouldBlock`, as of a socket, while ciphertext of an earlier call waits.
    ///
    /// Ciphertext of the last bytes may wait as well: [`TlsConnection::flush`] until there is none.
    pub(crate) fn send(&mut self, socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
        // rustls takes plaintext without end where nobody sends: what waits is bounded by sending it first.
        if !self.flush(&socket)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let taken = self.tls.writer().write(bytes)?;
        self.flush(&socket)?;
        Ok(taken)
    }

    /// Whether all ciphertext is gone.
    pub(crate) fn flush(&mut self, socket: impl AsFd) -> io::Result<bool> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut TlsSocket(&socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Whether ciphertext waits for the socket to be writable; who watches for both need not ask.
    #[cfg(test)]
    fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// Reads plaintext into `buffer`, which is not empty; zero: the end, of which [`TlsConnection::end`] tells more.
    ///
    /// To be called until it says `WouldBlock`: plaintext may wait here when nothing waits in the socket.
    pub(crate) fn recv(&mut self, socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
        assert!(!buffer.is_empty(), "no bytes would look like the end");
        loop {
            if let Some(copied) = self.copy_out(buffer)? {
                return Ok(copied);
            }
            self.read(&socket)?;
            // An answer to a change of keys; if it cannot leave now it does with the next bytes.
            if self.tls.wants_write() {
                let _ = self.flush(&socket);
            }
        }
    }

    /// How the server's stream has ended, once [`TlsConnection::recv`] has said zero.
    pub(crate) fn end(&self) -> Option<TlsEnd> {
        self.end
    }

    /// Says close_notify, as far as the socket takes it at once.
    pub(crate) fn close(&mut self, socket: impl AsFd) {
        self.tls.send_close_notify();
        let _ = self.flush(&socket);
    }

    /// What is there already; `None`: nothing.
    fn copy_out(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let mut reader = self.tls.reader();
        match io::Read::read(&mut reader, buffer) {
            Ok(0) => {
                self.end = Some(TlsEnd::Notified);
                Ok(Some(0))
            }
            Ok(copied) => Ok(Some(copied)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => Ok(None),
                io::ErrorKind::UnexpectedEof => {
                    self.end = Some(TlsEnd::Cut);
                    Ok(Some(0))
                }
                _ => Err(error),
            },
        }
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
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let send = || rustix::net::send(&self.0, bytes, flags);
        Ok(rustix::io::retry_on_intr(send)?)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        // One record is the rule, and for one the plain call is cheaper.
        if let [only] = parts {
            return self.write(only);
        }
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
        let Some(Authorities {
            chains,
            certificates,
        }) = &self.authorities
        else {
            return Ok(ServerCertVerified::assertion());
        };
        match chains.verify_server_cert(certificate, between, name, stapled, now) {
            // An authority may serve under its own certificate: that is what `openssl req -x509` makes, and
            // what other clients take when they are given that very file. Found after the dates were right and
            // before the name was looked at; rustls has no name for it.
            Err(Error::InvalidCertificate(CertificateError::Other(_)))
                if certificates.iter().any(|known| known == certificate) =>
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
mod tests;
