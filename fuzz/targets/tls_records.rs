//! TLS whose bytes arrive in pieces of any size: the plaintext is the same as if they had come at once. Bytes that were
//! changed on their way give an error, or less plaintext, and never other plaintext.

#![no_main]

use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, LazyLock};

use config::typed::{Tls, TlsIdentity};
use libfuzzer_sys::fuzz_target;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, version};
use tls::{
    Alpn, Ciphertext, Credentials, HandshakeInput, Received, ServerTls, Session, SessionFault,
    SharedTicketKeys, TicketKeyRing,
};

/// Bytes that one read of the server gives.
const READ_BYTES_MAX: usize = 64 << 10;

struct Ends {
    server: ServerTls,
    clients: [Arc<ClientConfig>; 2],
}

static ENDS: LazyLock<Ends> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let mut roots = RootCertStore::empty();
    let der = CertificateDer::from(made.cert.der().to_vec());
    roots.add(der).expect("it is well-formed");
    let roots = Arc::new(roots);
    let clients = [&version::TLS13, &version::TLS12].map(|version| {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("the provider knows it")
            .with_root_certificates(Arc::clone(&roots))
            .with_no_client_auth();
        Arc::new(config)
    });
    let text = made.cert.pem() + &made.signing_key.serialize_pem();
    Ends {
        server: server(&text),
        clients,
    }
});

fn server(text: &str) -> ServerTls {
    let path = std::env::temp_dir().join(format!("fuzz-tls-{}.pem", std::process::id()));
    // A key that others may read is refused.
    let file = std::fs::File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path);
    file.expect("a temporary file")
        .write_all(text.as_bytes())
        .expect("room for it");
    let identity = TlsIdentity {
        cert: path.clone(),
        key: path.clone(),
        ..TlsIdentity::default()
    };
    let config = Tls {
        identities: vec![identity],
        ..Tls::default()
    };
    let credentials =
        Credentials::read(&config, &|_| None).expect("it is a certificate with its key");
    std::fs::remove_file(&path).expect("it was there");
    let ticket_keys = SharedTicketKeys::default();
    ticket_keys.replace(&TicketKeyRing::new(0).expect("random numbers").keys());
    ServerTls::new(&config, &credentials, &ticket_keys, &[Alpn::Http1]).expect("it holds together")
}

/// The bytes of one run: sizes of pieces, and what is changed in them.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }
}

struct Link {
    client: ClientConnection,
    session: Session,
    out: Ciphertext,
    input: Vec<u8>,
    received: Vec<u8>,
    is_ended: bool,
    /// Something was changed on its way.
    is_forged: bool,
}

impl Link {
    /// Gives the server what its client has to send, in pieces.
    fn to_server(&mut self, choices: &mut Choices<'_>) -> Result<bool, SessionFault> {
        let mut bytes = Vec::new();
        while self.client.wants_write() {
            self.client
                .write_tls(&mut bytes)
                .expect("memory takes everything");
        }
        let has_moved = !bytes.is_empty();
        let mut rest = bytes.as_mut_slice();
        while !rest.is_empty() {
            let choice = choices.next().unwrap_or(127);
            let piece = match choice % 128 {
                127 => rest.len(),
                small => rest.len().min(1 + usize::from(small)),
            };
            let (piece, more) = std::mem::take(&mut rest).split_at_mut(piece);
            if choice >= 128
                && let Some(mask @ 1..) = choices.next()
            {
                piece[0] ^= mask;
                self.is_forged = true;
            }
            self.give(piece)?;
            rest = more;
        }
        Ok(has_moved)
    }

    fn give(&mut self, bytes: &[u8]) -> Result<(), SessionFault> {
        if self.is_ended {
            return Ok(());
        }
        if self.session.is_handshaking() {
            if self.session.hold(bytes)? == HandshakeInput::Ready {
                self.session.step(&ENDS.server, &mut self.out)?;
            }
        } else {
            let held = self.session.held().len();
            self.input[held..held + bytes.len()].copy_from_slice(bytes);
            self.receive(held + bytes.len())?;
        }
        while !self.session.is_handshaking() && self.session.has_unread() && !self.is_ended {
            self.receive(self.session.held().len())?;
        }
        Ok(())
    }

    fn receive(&mut self, bytes: usize) -> Result<(), SessionFault> {
        let mut plaintext = [0; 1_000];
        match self
            .session
            .receive(&mut self.input[..bytes], &mut plaintext, &mut self.out)?
        {
            Received::Plaintext(bytes) => self.received.extend_from_slice(&plaintext[..bytes]),
            Received::Nothing => {}
            Received::End => self.is_ended = true,
        }
        Ok(())
    }

    /// Gives the client what the server has to send; a client that does not want it says so by its alert.
    fn to_client(&mut self) {
        let mut bytes = self.out.filled();
        while !bytes.is_empty() && self.client.read_tls(&mut bytes).is_ok_and(|read| read > 0) {
            if self.client.process_new_packets().is_err() {
                break;
            }
        }
        self.out.clear();
        let _ = self.client.reader().read(&mut [0; 4_096]);
    }
}

fuzz_target!(|data: &[u8]| {
    let mut choices = Choices(data);
    let first = choices.next().unwrap_or(0);
    let config = Arc::clone(&ENDS.clients[usize::from(first % 2)]);
    let name = ServerName::try_from("localhost").expect("it is a name");
    let mut link = Link {
        client: ClientConnection::new(config, name).expect("the configuration is whole"),
        session: Session::default(),
        out: Ciphertext::default(),
        input: vec![0; tls::HELD_BYTES_MAX + READ_BYTES_MAX],
        received: Vec::new(),
        is_ended: false,
        is_forged: false,
    };
    let sent: Vec<u8> = (0..20_000_u32)
        .map(|at| (at * 31 + at / 251) as u8)
        .collect();
    let mut faulted = false;
    for step in 0..24 {
        // Requests as soon as the client may send, and its end behind them.
        if step == 8 {
            for piece in sent.chunks(200 + usize::from(first) * 64) {
                // A client that has failed takes nothing; what is missing is found below.
                let _ = link.client.writer().write_all(piece);
            }
        }
        if step == 16 {
            link.client.send_close_notify();
        }
        match link.to_server(&mut choices) {
            Ok(_) => link.to_client(),
            Err(_) => {
                faulted = true;
                break;
            }
        }
    }
    assert!(
        sent.starts_with(&link.received),
        "other plaintext than was sent"
    );
    if !link.is_forged {
        assert!(!faulted, "good bytes are refused");
        assert!(
            link.received == sent && link.is_ended,
            "plaintext is missing"
        );
    }
});
