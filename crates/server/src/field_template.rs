//! Values of headers that say something of a request, as `{client}` does.
//!
//! Takes a template that the configuration has checked, and a request; writes the value. What a client chooses is in it:
//! whatever is no visible ASCII is percent-encoded, so that it stays one value of one line.

use config::typed::{
    Config, FieldChanges, FieldTemplate, RequestFact, RouteSettings, TemplatePart,
};
use http::{BasicCredentials, HeadView};

use crate::exchange::{Ends, ExchangeRecord};

/// What routes change of headers, by the index of the route; empty where none does.
#[derive(Default)]
pub(crate) struct RouteChanges(Vec<(u16, FieldChanges)>);

impl RouteChanges {
    /// Of requests on their way to upstreams.
    pub(crate) fn of_requests(config: &Config) -> Self {
        Self::new(config, |settings| &settings.request_headers)
    }

    /// Of responses.
    pub(crate) fn of_responses(config: &Config) -> Self {
        Self::new(config, |settings| &settings.response_headers)
    }

    fn new(config: &Config, of: fn(&RouteSettings) -> &FieldChanges) -> Self {
        let changes = config.numbered_routes().filter_map(|(index, route)| {
            let changes = of(&route.settings);
            (!changes.is_empty()).then(|| (index, changes.clone()))
        });
        Self(changes.collect())
    }

    /// Whether no route changes anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What a route changes.
    pub(crate) fn of(&self, route: u16) -> Option<&FieldChanges> {
        let mut changes = self.0.iter();
        let (_, changes) = changes.find(|(index, _)| *index == route)?;
        Some(changes)
    }
}

/// What is known of a request.
#[derive(Clone, Copy)]
pub(crate) struct RequestFacts<'a> {
    pub(crate) head: HeadView<'a>,
    pub(crate) record: &'a ExchangeRecord,
    /// `None` where the head of a response is written, which is not told.
    pub(crate) ends: Option<&'a Ends>,
}

impl RequestFacts<'_> {
    /// The fields that are set, with their values.
    pub(crate) fn set<'c>(&self, changes: &'c FieldChanges) -> Vec<(&'c [u8], Vec<u8>)> {
        let value = |template| {
            let mut value = Vec::new();
            self.write(template, &mut value);
            value
        };
        let set = changes.set.iter();
        set.map(|(name, template)| (name.as_bytes(), value(template)))
            .collect()
    }

    /// Appends the value.
    fn write(&self, template: &FieldTemplate, out: &mut Vec<u8>) {
        for part in &template.0 {
            match part {
                TemplatePart::Text(text) => out.extend_from_slice(text.as_bytes()),
                TemplatePart::Fact(fact) => self.write_fact(*fact, out),
            }
        }
    }

    fn write_fact(&self, fact: RequestFact, out: &mut Vec<u8>) {
        let text = |text: fn(&Ends) -> &str| self.ends.map_or("", text).as_bytes();
        let tls = self.ends.and_then(|ends| ends.tls.as_deref());
        let tls = tls.map(|tls| &tls.handshake);
        let value: &[u8] = match fact {
            RequestFact::Client => text(|ends| &ends.client_host),
            RequestFact::ClientPort => text(|ends| &ends.client_port),
            RequestFact::Peer => text(|ends| &ends.peer_host),
            RequestFact::Server => text(|ends| &ends.local_host),
            RequestFact::ServerPort => text(|ends| &ends.local_port),
            RequestFact::RequestId => return escape(&self.record.id.text(self.head), out),
            RequestFact::Host => {
                let said = self.ends.and_then(|ends| ends.host.as_deref());
                let said = said.map(str::as_bytes).or(self.head.authority());
                said.unwrap_or_default()
            }
            RequestFact::Scheme if self.record.is_https => b"https",
            RequestFact::Scheme => b"http",
            RequestFact::Method => self.head.method(),
            RequestFact::Path => self.head.path(),
            RequestFact::QueueMs => {
                let phases = &self.record.phases;
                let queue = phases.started.since(phases.queued);
                let tenths = queue.0 / 100_000;
                let text = format!("{}.{}", tenths / 10, tenths % 10);
                return out.extend_from_slice(text.as_bytes());
            }
            RequestFact::TlsVersion => tls.map_or("", |tls| tls.version).as_bytes(),
            RequestFact::TlsCipher => tls.map_or("", |tls| tls.cipher).as_bytes(),
            RequestFact::TlsName => {
                let name = tls.and_then(|tls| tls.server_name.as_deref());
                name.unwrap_or_default().as_bytes()
            }
            RequestFact::TlsClient => {
                let certificate = tls.and_then(|tls| tls.client_certificate.as_ref());
                certificate.map_or("", |one| &one.subject).as_bytes()
            }
            RequestFact::User => {
                let has_user = self.record.has_user;
                let credentials = has_user.then(|| BasicCredentials::of(self.head)).flatten();
                return escape(credentials.as_ref().map_or(b"", |one| one.user()), out);
            }
        };
        escape(value, out);
    }
}

/// A percent sign is encoded too: of two different texts none may look like the other.
fn escape(value: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in value {
        match byte {
            b'%' | 0..b' ' | 127.. => {
                out.push(b'%');
                out.push(DIGITS[usize::from(byte >> 4)]);
                out.push(DIGITS[usize::from(byte & 15)]);
            }
            byte => out.push(*byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use telemetry::{Nanos, Stamp};

    use super::*;
    use crate::exchange::Id;
    use crate::tests::{ends, with_head};

    fn check(facts: &[RequestFact], expect: &str) {
        let mut record = ExchangeRecord::new(Id::made(0, 0), 0, Stamp::ZERO);
        record.phases.queued = Stamp(5);
        record.phases.started = Stamp(5).plus(Nanos(12_345_678));
        record.has_user = true;
        let mut ends = ends("192.0.2.7");
        ends.peer_host = "::1".into();
        let parts = facts.iter().map(|fact| TemplatePart::Fact(*fact));
        let parts = parts.flat_map(|part| [part, TemplatePart::Text("|".to_owned())]);
        let template = FieldTemplate(parts.collect());
        // `ä%:x`
        let request = "PUT shop.example:81/a%20b?c Authorization: Basic w6QlOng=";
        let found = with_head(request, |head| {
            let facts = RequestFacts {
                head,
                record: &record,
                ends: Some(&ends),
            };
            let mut found = Vec::new();
            facts.write(&template, &mut found);
            String::from_utf8(found).expect("ASCII")
        });
        assert_eq!(found, expect);
    }

    #[test]
    fn says_what_is_known_of_a_request() {
        use RequestFact::*;
        check(&[], "");
        check(
            &[Client, ClientPort, Peer, Server, ServerPort],
            "192.0.2.7|1|::1|127.0.0.1|8000|",
        );
        check(
            &[Host, Scheme, Method, QueueMs],
            "shop.example:81|http|PUT|12.3|",
        );
        check(&[TlsVersion, TlsCipher, TlsName, TlsClient], "||||");
        let id = with_head("GET h/", |head| {
            String::from_utf8_lossy(&Id::made(0, 0).text(head)).into_owned()
        });
        check(&[RequestId], &format!("{id}|"));
    }

    #[test]
    fn what_a_client_chooses_stays_one_line_and_unmistakable() {
        check(
            &[RequestFact::Path, RequestFact::User],
            "/a%2520b|%C3%A4%25|",
        );
        let mut out = Vec::new();
        escape(b"CN=a\r\nX: b%", &mut out);
        assert_eq!(out, b"CN=a%0D%0AX: b%25");
    }
}
