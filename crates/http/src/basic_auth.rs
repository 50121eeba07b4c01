//! Credentials of the scheme Basic (RFC 7617) in a request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::HeadView;

/// A user's name and password, as the client has sent them.
#[derive(Clone, PartialEq, Eq)]
pub struct BasicCredentials {
    bytes: Vec<u8>,
    colon: usize,
}

impl BasicCredentials {
    /// Those of a request, if it has any: a head with two fields of them is refused before.
    pub fn of(head: HeadView<'_>) -> Option<Self> {
        let is_authorization =
            |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(b"authorization");
        let (_, value) = head.headers().find(is_authorization)?;
        Self::parse(value)
    }

    fn parse(value: &[u8]) -> Option<Self> {
        // RFC 9110 section 11.1: the scheme has no case.
        let (scheme, rest) = value.split_at_checked(6)?;
        if !scheme.eq_ignore_ascii_case(b"basic ") {
            return None;
        }
        let bytes = STANDARD.decode(rest.trim_ascii()).ok()?;
        let colon = memchr::memchr(b':', &bytes)?;
        // RFC 7617 section 2: neither has control characters, which would break lines of logs as well.
        let is_good = !bytes.iter().any(u8::is_ascii_control);
        is_good.then_some(Self { bytes, colon })
    }

    /// Without colons.
    pub fn user(&self) -> &[u8] {
        &self.bytes[..self.colon]
    }

    /// May be empty.
    pub fn password(&self) -> &[u8] {
        &self.bytes[self.colon + 1..]
    }
}

/// Without the password.
impl std::fmt::Debug for BasicCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let user = String::from_utf8_lossy(self.user());
        f.debug_tuple("BasicCredentials").field(&user).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HeadIndex, HeadStep, Limits};

    fn check(fields: &str, expect: Option<(&str, &str)>) {
        let text = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let mut index = HeadIndex::new();
        let step = index.parse(text.as_bytes(), &mut 0, &Limits::default());
        assert_eq!(step, Ok(HeadStep::Complete));
        let found = BasicCredentials::of(HeadView {
            bytes: text.as_bytes(),
            index: &index,
        });
        let found = found.as_ref().map(|found| (found.user(), found.password()));
        let expect = expect.map(|(user, password)| (user.as_bytes(), password.as_bytes()));
        assert_eq!(found, expect, "{fields}");
    }

    #[test]
    fn reads_a_user_and_a_password() {
        // RFC 7617 section 2.
        let aladdin = Some(("Aladdin", "open sesame"));
        check(
            "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n",
            aladdin,
        );
        check(
            "authorization:  bAsIc   QWxhZGRpbjpvcGVuIHNlc2FtZQ== \r\n",
            aladdin,
        );
        check("Authorization: Basic Og==\r\n", Some(("", "")));
        check("Authorization: Basic YTpiOmM=\r\n", Some(("a", "b:c")));
    }

    #[test]
    fn takes_nothing_else_for_credentials() {
        check("", None);
        for value in [
            "",
            "Basic",
            "Basic ",
            "Bearer YTpi",
            "Basic YTpi!",
            "Basic YTpi====",
            "BasicYTpi",
        ] {
            check(&format!("Authorization: {value}\r\n"), None);
        }
        // Without a colon, and with a line end within.
        check("Authorization: Basic YWI=\r\n", None);
        check("Authorization: Basic YTpiCmM=\r\n", None);
    }
}
