//! A private key from PEM: plain (PKCS#8, PKCS#1, SEC1), or PKCS#8 that a password has encrypted.

use std::fmt;
use std::path::Path;

use config::typed::{KeyPassword, TlsFile};
use pkcs8::EncryptedPrivateKeyInfo;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::fault::TlsFileFault;
use crate::file::{self, Readers};
use crate::text64;

/// A key in one of the forms of `PrivateKeyDer`; wiped when it is dropped.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PrivateKey {
    form: KeyForm,
    #[serde(with = "text64::secret")]
    der: Zeroizing<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum KeyForm {
    Pkcs1,
    Sec1,
    Pkcs8,
}

/// Never a byte of it.
impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({:?})", self.form)
    }
}

impl PrivateKey {
    /// Reads the file of a key, and that of its password.
    pub(crate) fn read(
        path: &Path,
        password: Option<&KeyPassword>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, TlsFileFault> {
        let text = file::read(TlsFile::Key, path, Readers::Few)?;
        let encrypted = encrypted_in(&text, path)?;
        let Some(encrypted) = encrypted else {
            return Self::plain(&text, path);
        };
        let Some(password) = password else {
            let fault = TlsFileFault::new(TlsFile::Key, path, "a password has encrypted the key");
            let hint =
                "`key_password_file` (`--tls-key-password-file`) names the file of the password";
            return Err(fault.with_hint(hint));
        };
        let password = password_of(password, variable)?;
        let info = EncryptedPrivateKeyInfo::try_from(encrypted.as_slice());
        let info = info.map_err(|_| unknown_cipher(path))?;
        match info.decrypt(password.as_slice()) {
            Ok(document) => Ok(Self {
                form: KeyForm::Pkcs8,
                der: document.to_bytes(),
            }),
            Err(error) => Err(not_opened(path, &error)),
        }
    }

    fn plain(text: &[u8], path: &Path) -> Result<Self, TlsFileFault> {
        let fault = |cause: String| TlsFileFault::new(TlsFile::Key, path, cause);
        let der = PrivateKeyDer::from_pem_slice(text)
            .map_err(|_| fault("there is no private key in PEM in the file".to_owned()))?;
        let form = match &der {
            PrivateKeyDer::Pkcs1(_) => KeyForm::Pkcs1,
            PrivateKeyDer::Sec1(_) => KeyForm::Sec1,
            PrivateKeyDer::Pkcs8(_) => KeyForm::Pkcs8,
            _ => return Err(fault("the form of the key is not known".to_owned())),
        };
        let der = Zeroizing::new(der.secret_der().to_vec());
        Ok(Self { form, der })
    }

    /// As rustls takes it.
    pub(crate) fn der(&self) -> PrivateKeyDer<'_> {
        let bytes = self.der.as_slice();
        match self.form {
            KeyForm::Pkcs1 => PrivateKeyDer::Pkcs1(bytes.into()),
            KeyForm::Sec1 => PrivateKeyDer::Sec1(bytes.into()),
            KeyForm::Pkcs8 => PrivateKeyDer::Pkcs8(bytes.into()),
        }
    }
}

/// The first encrypted key of a file that has no plain one in front.
fn encrypted_in(text: &[u8], path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, TlsFileFault> {
    // OpenSSL's own form of old: a digest without iterations, which any machine guesses through.
    if contains(text, b"Proc-Type: 4,ENCRYPTED") {
        let cause = "the key is encrypted in a form of old that protects it badly";
        let name = path.display();
        let hint = format!("`openssl pkcs8 -topk8 -in {name} -out NEW` writes PKCS#8");
        return Err(TlsFileFault::new(TlsFile::Key, path, cause).with_hint(hint));
    }
    const BEGIN: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
    const END: &str = "-----END ENCRYPTED PRIVATE KEY-----";
    if !contains(text, BEGIN.as_bytes()) {
        return Ok(None);
    }
    let text = std::str::from_utf8(text).unwrap_or_default();
    let block = text.split_once(BEGIN).map_or("", |(_, block)| block);
    let body = block.split_once(END).map_or("", |(body, _)| body);
    let digits: String = body.split_whitespace().collect();
    match text64::decode(&digits) {
        Some(der) if !der.is_empty() => Ok(Some(Zeroizing::new(der))),
        _ => Err(TlsFileFault::new(
            TlsFile::Key,
            path,
            "the encrypted key is not PEM",
        )),
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|at| at == part)
}

/// Without the line end that editors leave.
fn password_of(
    password: &KeyPassword,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Zeroizing<Vec<u8>>, TlsFileFault> {
    match password {
        KeyPassword::File(path) => {
            let mut text = file::read(TlsFile::KeyPassword, path, Readers::Few)?;
            let end = text.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let bytes = end.unwrap_or(text.len());
            text.truncate(bytes);
            Ok(text)
        }
        KeyPassword::Variable(name) => match variable(name) {
            Some(text) => Ok(Zeroizing::new(text.into_bytes())),
            None => {
                let text = format!("the environment has no variable `{name}`");
                Err(TlsFileFault::new(TlsFile::KeyPassword, Path::new(""), text))
            }
        },
    }
}

fn not_opened(path: &Path, error: &pkcs8::Error) -> TlsFileFault {
    use pkcs8::pkcs5::Error::{DecryptFailed, EncryptFailed};
    match error {
        // With a wrong password the padding is wrong, or right by chance and the key is not.
        pkcs8::Error::EncryptedPrivateKey(DecryptFailed | EncryptFailed)
        | pkcs8::Error::Asn1(_)
        | pkcs8::Error::KeyMalformed => {
            let cause = "the password does not open the key";
            TlsFileFault::new(TlsFile::KeyPassword, path, cause)
        }
        _ => unknown_cipher(path),
    }
}

fn unknown_cipher(path: &Path) -> TlsFileFault {
    let name = path.display();
    let hint = format!("`openssl pkcs8 -topk8 -v2 aes-256-cbc -in {name} -out NEW`");
    let cause = "the cipher that has encrypted the key is not known";
    TlsFileFault::new(TlsFile::Key, path, cause).with_hint(hint)
}
