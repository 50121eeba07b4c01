//! HTTPS to an ACME directory: one connection for each request, in bounded time and with a bounded answer.
//!
//! A certificate takes some fifteen requests in two months, so that connections are not kept. Roots are those of a
//! file or the system's.

use std::fs;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::fault::{IssueFault, short, with_sources};

/// The whole of one request.
const REQUEST_TIME: Duration = Duration::from_secs(30);
/// One address of a host that has several.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Bytes of an answer; chains and directories have some 5 KB.
const ANSWER_BYTES_MAX: usize = 1 << 20;
const HTTPS_PORT: u16 = 443;
/// RFC 8555 section 6.1: a client names itself.
const NAME: &str = concat!("milepost/", env!("CARGO_PKG_VERSION"), " instant-acme");

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A client; cheap to clone.
#[derive(Clone)]
pub(crate) struct DirectoryClient {
    tls: TlsConnector,
}

impl DirectoryClient {
    /// Trusts the roots of a file, or those of the system.
    ///
    /// # Errors
    /// There are none.
    pub(crate) fn new(roots: Option<&Path>) -> Result<Self, IssueFault> {
        let store = match roots {
            Some(file) => roots_of_file(file)?,
            None => roots_of_system()?,
        };
        // Not the process's default: other code of the process has its own choice.
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| IssueFault::Unreachable(format!("TLS: {error}")))?
            .with_root_certificates(store)
            .with_no_client_auth();
        Ok(Self {
            tls: TlsConnector::from(Arc::new(config)),
        })
    }
}

impl HttpClient for DirectoryClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            let host = request.uri().host().unwrap_or_default().to_owned();
            let answered = match timeout(REQUEST_TIME, client.exchange(request)).await {
                Ok(answered) => answered,
                Err(_) => Err("no answer in time".into()),
            };
            answered.map_err(|cause| {
                let text = format!("{host}: {}", short(&with_sources(&*cause)));
                Error::Other(text.into())
            })
        })
    }
}

impl DirectoryClient {
    async fn exchange(
        &self,
        mut request: Request<BodyWrapper<Bytes>>,
    ) -> Result<BytesResponse, Cause> {
        let uri = request.uri().clone();
        // Account keys and orders never travel in the clear (RFC 8555 section 6.1).
        if uri.scheme_str() != Some("https") {
            return Err("the URL is not https".into());
        }
        let authority = uri.authority().ok_or("the URL has no host")?;
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        let stream = connect(host, authority.port_u16().unwrap_or(HTTPS_PORT)).await?;
        let name = ServerName::try_from(host.to_owned())?;
        let stream = self.tls.connect(name, stream).await?;

        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let headers = request.headers_mut();
        headers.insert(HOST, HeaderValue::from_str(authority.as_str())?);
        headers.insert(USER_AGENT, HeaderValue::from_static(NAME));
        *request.uri_mut() = path.parse::<Uri>()?;

        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let answered = async {
            let (mut parts, body) = sender.send_request(request).await?.into_parts();
            bound_retry_after(&mut parts.headers);
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?;
            Ok(BytesResponse {
                parts,
                body: Box::new(body.to_bytes()),
            })
        };
        let answered = answered.await;
        connection.abort();
        answered
    }
}

/// A wait that the authority asks for is a day at most: instant-acme adds it to the time of now, whatever it is.
fn bound_retry_after(headers: &mut HeaderMap) {
    let asked = headers.get(RETRY_AFTER).map(HeaderValue::as_bytes);
    if asked.is_some_and(|asked| asked.len() > 5 && asked.iter().all(u8::is_ascii_digit)) {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("86400"));
    }
}

/// The first address of a host that takes a connection.
async fn connect(host: &str, port: u16) -> Result<TcpStream, Cause> {
    let mut fault: Cause = "the name has no address".into();
    for address in lookup_host((host, port)).await? {
        match timeout(CONNECT_TIME, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => fault = error.into(),
            Err(_) => fault = "no connection in time".into(),
        }
    }
    Err(fault)
}

fn roots_of_file(file: &Path) -> Result<RootCertStore, IssueFault> {
    let unusable =
        |cause: String| IssueFault::Unreachable(format!("`acme_ca` `{}`: {cause}", file.display()));
    let text = fs::read(file).map_err(|error| unusable(error.to_string()))?;
    let mut store = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(&text) {
        let root = root.map_err(|error| unusable(error.to_string()))?;
        store
            .add(root)
            .map_err(|error| unusable(error.to_string()))?;
    }
    match store.is_empty() {
        true => Err(unusable("the file has no certificate".to_owned())),
        false => Ok(store),
    }
}

fn roots_of_system() -> Result<RootCertStore, IssueFault> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    // Old roots that rustls does not read are no loss as long as there are others.
    store.add_parsable_certificates(found.certs);
    if store.is_empty() {
        let cause = found
            .errors
            .first()
            .map_or_else(String::new, |error| format!(": {error}"));
        let text = format!("this system has no certificate authorities (ca-certificates){cause}");
        return Err(IssueFault::Unreachable(text));
    }
    Ok(store)
}

/// Whether a file has roots that can be used; for checks before a start.
///
/// # Errors
/// What is wrong with it.
pub fn check_roots(file: &Path) -> io::Result<()> {
    roots_of_file(file)
        .map(drop)
        .map_err(|fault| io::Error::other(fault.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_is_asked_for_is_a_day_at_most() {
        let check = |asked: &'static str, expect: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(asked));
            bound_retry_after(&mut headers);
            assert_eq!(headers[RETRY_AFTER], expect, "{asked}");
        };
        check("120", "120");
        check("86400", "86400");
        check("100000", "86400");
        check("18446744073709551615", "86400");
        let date = "Thu, 26 Nov 2026 01:00:00 GMT";
        check(date, date);
    }

    #[test]
    fn a_file_of_roots_has_some() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.pem");
        let check = |expect: &str| {
            let fault = DirectoryClient::new(Some(&file)).err().unwrap().to_string();
            assert!(fault.contains(expect), "{fault}");
        };
        check("No such file");
        fs::write(&file, "no PEM").unwrap();
        check("the file has no certificate");
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["ca.example".to_owned()]).unwrap();
        fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
        assert!(DirectoryClient::new(Some(&file)).is_ok());
    }

    #[test]
    fn account_keys_never_travel_in_the_clear() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.pem");
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["ca.example".to_owned()]).unwrap();
        fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
        let client = DirectoryClient::new(Some(&file)).unwrap();
        let request = Request::get("http://127.0.0.1:9/dir").body(BodyWrapper::default());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let answered = runtime.block_on(client.request(request.unwrap()));
        let text = answered.err().unwrap().to_string();
        assert_eq!(text, "127.0.0.1: the URL is not https");
    }
}
