//! Proxies in front: which peers are trusted, and the ends of a request that they describe.
//!
//! Takes peers of connections and heads; gives whether a peer is trusted, whether it begins with a PROXY protocol
//! header, and the ends of a request: those of its connection, or those of the client that a trusted proxy names.
//! Says when the error log is to hear of it. Reads no socket and writes no log.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{ForwardedFault, ForwardedFields, HeadView};
use nix::unistd::Group;
use smol_str::{SmolStr, ToSmolStr, format_smolstr};
use telemetry::{Nanos, Stamp};

use crate::exchange::{Ends, host_text};
use crate::networks::Networks;
use config::typed::{self, PeerSet, UnixPeers};

/// Longer fields are read anew for each request, so that an idle connection keeps little.
const KEPT_BYTES_MAX: usize = 512;

/// What all drivers know of proxies.
pub(crate) struct Proxies {
    trusted: Peers,
    proxy_protocol: Peers,
    fields: ForwardedFields,
    notices: [AtomicU64; Notice::LEN],
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Ip(IpAddr),
    /// A process on a unix socket, as the kernel knows it from its `connect`.
    Process {
        user: u32,
        group: u32,
    },
    /// On a unix socket whose process was not asked for, or is not known.
    Unknown,
}

/// A set of peers.
#[derive(Debug)]
struct Peers {
    networks: Networks,
    unix: UnixPeers,
    user: u32,
    groups: Vec<u32>,
}

/// What the error log hears of at most once in a while, however often it happens: any client can cause it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A peer that is not trusted sends forwarding headers.
    StrangerForwards,
    /// A trusted proxy sends a chain of addresses that cannot be followed.
    FaultyChain,
    /// A peer that has to send a PROXY protocol header sends none, or a faulty one.
    FaultyProxyHeader,
    /// A peer that may not send a PROXY protocol header sends one.
    StrangerSpeaksProxy,
    /// A client has as many requests under way as it may have.
    Crowded,
    /// A TLS handshake has failed.
    FailedHandshake,
    /// A client speaks HTTP without TLS where TLS is spoken.
    PlainOnTls,
    /// A client speaks TLS where it is not spoken.
    TlsOnPlain,
    /// A client makes the server work for no request.
    OddWork,
}

impl Notice {
    const LEN: usize = 9;

    fn interval(self) -> Nanos {
        match self {
            Notice::Crowded | Notice::FailedHandshake | Notice::OddWork => Nanos::from_secs(1),
            _ => Nanos::from_secs(3_600),
        }
    }
}

/// The forwarding fields of a connection's last request that had any, and the ends that it had: a proxy that uses a
/// connection again often does so for the same client.
#[derive(Debug)]
pub(crate) struct LastClient {
    /// For each field: which one, the length of its value, its value.
    said: Vec<u8>,
    ends: Arc<Ends>,
}

/// What was found out about a client.
struct ReadClient {
    fault: Option<ForwardedFault>,
    /// What the fields say of the client is not all: the head's own host is a part of it.
    is_by_host: bool,
}

impl Proxies {
    /// Looks groups up by their names; those that do not exist do not count.
    pub(crate) fn new(config: &typed::Proxies) -> Self {
        let groups: Vec<u32> = config
            .groups
            .iter()
            .filter_map(|name| group_id(name))
            .collect();
        Self {
            trusted: Peers::new(&config.trusted, &groups),
            proxy_protocol: Peers::new(&config.proxy_protocol_from, &groups),
            fields: config.fields,
            notices: Default::default(),
        }
    }

    /// Whether processes on unix sockets are told apart, so that the kernel has to be asked for them.
    pub(crate) fn need_process(&self) -> bool {
        let sets = [&self.trusted, &self.proxy_protocol];
        sets.iter().any(|set| set.unix == UnixPeers::Known)
    }

    /// Whether what a peer says of its clients is believed.
    pub(crate) fn trust(&self, peer: Peer) -> bool {
        self.trusted.has(peer)
    }

    /// Whether a connection of a peer begins with a PROXY protocol header.
    pub(crate) fn send_proxy_header(&self, peer: Peer) -> bool {
        self.proxy_protocol.has(peer)
    }

    /// The ends of a request on a connection with those ends, and why a chain of addresses was not followed. `last`
    /// is the connection's own.
    pub(crate) fn ends_of(
        &self,
        head: HeadView<'_>,
        connection: &Arc<Ends>,
        last: &mut Option<Box<LastClient>>,
    ) -> (Arc<Ends>, Option<ForwardedFault>) {
        if !connection.is_trusted {
            return (Arc::clone(connection), None);
        }
        let mut said = self.fields.in_head(head).peekable();
        if said.peek().is_none() {
            return (Arc::clone(connection), None);
        }
        if let Some(last) = last
            && Kept(&last.said).are(said.clone())
        {
            return (Arc::clone(&last.ends), None);
        }
        let kept = last.get_or_insert_with(|| {
            let (said, ends) = (Vec::new(), Arc::new((**connection).clone()));
            Box::new(LastClient { said, ends })
        });
        // Most often the exchange before has ended, and its ends are used again.
        match Arc::get_mut(&mut kept.ends) {
            Some(ends) => ends.clone_from(connection),
            None => kept.ends = Arc::new((**connection).clone()),
        }
        let ends =
            Arc::get_mut(&mut kept.ends).expect("it was found, or made, without other owners");
        keep(&mut kept.said, said);
        let client = self.read(Kept(&kept.said), head, ends);
        let ends = Arc::clone(&kept.ends);
        // A fault is found anew each time, because the log may be told of it again later. With the same fields, the next
        // request may be for another host.
        if client.fault.is_some() || client.is_by_host || kept.said.len() > KEPT_BYTES_MAX {
            *last = None;
        }
        (ends, client.fault)
    }

    /// Puts what the fields of a head say of its client into the ends of the connection.
    fn read(&self, fields: Kept<'_>, head: HeadView<'_>, ends: &mut Ends) -> ReadClient {
        let said = http::forwarded(fields, self.fields, |ip| self.trusted.networks.has(ip));
        if let Some(ip) = said.client {
            ends.client_host = host_text(ip);
            ends.client_port = said
                .client_port
                .map_or_else(SmolStr::default, |port| port.to_smolstr());
        }
        ends.scheme = match said.is_https {
            Some(true) => "https",
            Some(false) => "http",
            None => ends.scheme,
        };
        let host = said.host.and_then(|host| std::str::from_utf8(host).ok());
        if let Some(host) = host {
            let (name, port) = name_and_port(host);
            ends.local_host = name.into();
            ends.local_port = port.unwrap_or(default_port(ends.scheme)).into();
            ends.host = Some(host.into());
        }
        let is_by_host = host.is_none() && said.port.is_some();
        if let Some(port) = said.port.map(|port| port.to_smolstr()) {
            let asked = host.or_else(|| std::str::from_utf8(head.authority()?).ok());
            if let Some(asked) = asked
                && name_and_port(asked).1.is_none()
                && port != default_port(ends.scheme)
            {
                ends.host = Some(format_smolstr!("{asked}:{port}"));
            }
            ends.local_port = port;
        }
        if let Some(prefix) = said
            .prefix
            .and_then(|prefix| std::str::from_utf8(prefix).ok())
        {
            ends.prefix = prefix.into();
        }
        ReadClient {
            fault: said.fault,
            is_by_host,
        }
    }

    /// Whether the error log is to hear of this now. Of threads that ask at once, one is told so.
    pub(crate) fn is_due(&self, notice: Notice, now: Stamp) -> bool {
        let due = &self.notices[notice as usize];
        let seen = due.load(Ordering::Relaxed);
        let next = now.plus(notice.interval()).0;
        now.0 >= seen
            && due
                .compare_exchange(seen, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Whether a peer that is not trusted sends forwarding headers of which the error log has not heard lately.
    pub(crate) fn is_notable_stranger(&self, head: HeadView<'_>, now: Stamp) -> bool {
        let due = &self.notices[Notice::StrangerForwards as usize];
        now.0 >= due.load(Ordering::Relaxed)
            && !self.trusted.is_empty()
            && self.fields.in_head(head).next().is_some()
            && self.is_due(Notice::StrangerForwards, now)
    }
}

impl Peers {
    fn new(set: &PeerSet, groups: &[u32]) -> Self {
        Self {
            networks: Networks::new(&set.networks),
            unix: set.unix,
            user: rustix::process::geteuid().as_raw(),
            groups: groups.to_vec(),
        }
    }

    fn has(&self, peer: Peer) -> bool {
        match (peer, self.unix) {
            (Peer::Ip(ip), _) => self.networks.has(ip),
            (_, UnixPeers::All) => true,
            (Peer::Process { user, group }, UnixPeers::Known) => {
                user == 0 || user == self.user || self.groups.contains(&group)
            }
            (Peer::Process { .. } | Peer::Unknown, _) => false,
        }
    }

    fn is_empty(&self) -> bool {
        self.networks.is_empty() && self.unix == UnixPeers::None
    }
}

fn group_id(name: &str) -> Option<u32> {
    let by_number = name.parse().ok();
    by_number.or_else(|| Some(Group::from_name(name).ok()??.gid.as_raw()))
}

/// The fields that were kept, as [`ForwardedFields::in_head`] gives them.
#[derive(Clone, Copy)]
struct Kept<'k>(&'k [u8]);

impl Kept<'_> {
    /// The order counts: that of another spelling is read anew.
    fn are<'h>(mut self, mut said: impl Iterator<Item = (http::ForwardedField, &'h [u8])>) -> bool {
        let is_next = |(field, value)| {
            self.next()
                .is_some_and(|(known, kept)| known == field && kept == value)
        };
        said.all(is_next) && self.next().is_none()
    }
}

impl<'k> Iterator for Kept<'k> {
    type Item = (http::ForwardedField, &'k [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&[field, high, middle, low], rest) = self.0.split_first_chunk()?;
        let bytes = u32::from_be_bytes([0, high, middle, low]) as usize;
        let (value, rest) = rest.split_at(bytes);
        self.0 = rest;
        let (field, _) = http::ForwardedField::NAMED[usize::from(field)];
        Some((field, value))
    }
}

fn keep<'h>(kept: &mut Vec<u8>, said: impl Iterator<Item = (http::ForwardedField, &'h [u8])>) {
    kept.clear();
    for (field, value) in said {
        // No head has 16 MB, which is what three bytes can say.
        let [_, high, middle, low] = (value.len() as u32).to_be_bytes();
        kept.extend_from_slice(&[field as u8, high, middle, low]);
        kept.extend_from_slice(value);
    }
}

/// A host without its port, and its port. An IPv6 address keeps its brackets.
fn name_and_port(host: &str) -> (&str, Option<&str>) {
    let end = host.rfind(']').map_or(0, |end| end + 1);
    match host[end..].rfind(':') {
        Some(colon) => (&host[..end + colon], Some(&host[end + colon + 1..])),
        None => (host, None),
    }
}

pub(crate) fn default_port(scheme: &str) -> &'static str {
    match scheme {
        "https" => "443",
        _ => "80",
    }
}

#[cfg(test)]
mod tests {
    use http::ForwardedField;
    use proptest::prelude::*;

    use super::*;
    use crate::tests::{ends, head};

    fn proxies(fields: &[ForwardedField]) -> Proxies {
        let fields = fields.iter();
        Proxies::new(&typed::Proxies {
            groups: vec!["4711".to_owned(), "no such group".to_owned()],
            fields: fields.fold(ForwardedFields::default(), |set, field| set.with(*field)),
            ..typed::Proxies::default()
        })
    }

    fn of_proxy() -> Arc<Ends> {
        Arc::new(Ends {
            is_trusted: true,
            ..ends("127.0.0.1")
        })
    }

    #[test]
    fn knows_peers_by_address_user_and_group() {
        let process = |user, group| Peer::Process { user, group };
        let own = rustix::process::geteuid().as_raw();
        let check = |set: PeerSet, peer: Peer, expect: bool| {
            let found = Peers::new(&set, &[4711]).has(peer);
            assert_eq!(found, expect, "{set:?} {peer:?}");
        };
        let usual = typed::Proxies::default().trusted;
        check(usual.clone(), Peer::Ip([127, 1, 2, 3].into()), true);
        check(
            usual.clone(),
            Peer::Ip("::ffff:127.0.0.1".parse().unwrap()),
            true,
        );
        check(usual.clone(), Peer::Ip([192, 0, 2, 1].into()), false);
        check(usual.clone(), process(0, 9), true);
        check(usual.clone(), process(own, 9), true);
        check(usual.clone(), process(own + 7, 4711), true);
        check(usual.clone(), process(own + 7, 9), false);
        check(usual, Peer::Unknown, false);
        check(PeerSet::default(), process(0, 0), false);
        check(PeerSet::everybody(), Peer::Unknown, true);
        check(PeerSet::everybody(), Peer::Ip([192, 0, 2, 1].into()), true);
        assert_eq!(group_id("4711"), Some(4711));
        assert_eq!(group_id("no such group"), None);
    }

    #[test]
    fn tells_the_log_once_in_a_while() {
        let proxies = proxies(&[]);
        let check = |notice: Notice, secs: u64, expect: bool| {
            let now = Stamp(secs * 1_000_000_000);
            assert_eq!(proxies.is_due(notice, now), expect, "{notice:?} {secs}");
        };
        check(Notice::FaultyChain, 1, true);
        check(Notice::FaultyChain, 3_600, false);
        check(Notice::Crowded, 3_600, true);
        check(Notice::FaultyChain, 3_601, true);
        check(Notice::Crowded, 3_601, true);
        check(Notice::Crowded, 3_601, false);
    }

    #[test]
    fn splits_a_host() {
        for (host, expect) in [
            ("shop.example", ("shop.example", None)),
            ("shop.example:81", ("shop.example", Some("81"))),
            ("[::1]", ("[::1]", None)),
            ("[::1]:81", ("[::1]", Some("81"))),
        ] {
            assert_eq!(name_and_port(host), expect);
        }
    }

    fn value() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("192.0.2.7".to_owned()),
            Just("192.0.2.7, 127.0.0.1".to_owned()),
            Just("https".to_owned()),
            Just("shop:81".to_owned()),
            Just("8443".to_owned()),
            Just("x".repeat(600)),
            "[ -~]{0,9}",
        ]
    }

    #[test]
    fn a_port_alone_goes_with_the_host_of_each_request() {
        let proxies = proxies(&[ForwardedField::Port]);
        let (connection, mut last) = (of_proxy(), None);
        for host in ["a", "b", "b", "a"] {
            let head = head(&format!(
                "GET / HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-Port: 81\r\n\r\n"
            ));
            let (found, _) = proxies.ends_of(head.view(), &connection, &mut last);
            assert_eq!(found.host.as_deref(), Some(&*format!("{host}:81")));
        }
    }

    proptest! {
        /// What a connection remembers never changes what a request is.
        #[test]
        fn the_memory_of_a_connection_changes_nothing(
            heads in prop::collection::vec(
                prop::collection::vec((0..6_usize, value()), 0..4), 1..6,
            ),
        ) {
            use ForwardedField::{For, Host, Port, Prefix, Proto};
            let proxies = proxies(&[For, Host, Port, Prefix, Proto]);
            let connection = of_proxy();
            let mut last = None;
            for fields in heads {
                let fields: String = fields
                    .iter()
                    .map(|(name, value)| format!("{}: {value}\r\n", ForwardedField::NAMED[*name].1))
                    .collect();
                let of_host = |host| head(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"));
                let head = of_host("h");
                for head in [&head, &head, &of_host("other"), &of_host("h:81")] {
                    let expect = proxies.ends_of(head.view(), &connection, &mut None);
                    let found = proxies.ends_of(head.view(), &connection, &mut last);
                    prop_assert_eq!(&found, &expect);
                }
                prop_assert!(last.as_ref().is_none_or(|last| last.said.len() <= KEPT_BYTES_MAX));
                let stranger = Arc::new(Ends { is_trusted: false, ..(*connection).clone() });
                let (found, _) = proxies.ends_of(head.view(), &stranger, &mut None);
                prop_assert!(Arc::ptr_eq(&found, &stranger));
            }
        }
    }
}
