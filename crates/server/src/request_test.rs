//! Tests of requests: methods, a host, a header, networks of clients. All that a test names must fit.
//!
//! Made once of the configuration; takes a head and the ends of its connection. Pure.

use std::cell::OnceCell;
use std::net::IpAddr;

use http::HeadView;

use crate::exchange::Ends;
use crate::networks::Networks;

/// What a request must be, beside its path.
#[derive(Debug)]
pub(crate) struct RequestTest {
    methods: Vec<Vec<u8>>,
    host: Option<HostTest>,
    /// A name in lower case, and the value if a certain one is meant.
    header: Option<(String, Option<Vec<u8>>)>,
    networks: Networks,
}

/// A condition on the host of a request.
#[derive(Debug)]
pub(crate) enum HostTest {
    /// `shop.example`
    Whole(Vec<u8>),
    /// `*.shop.example`, with its dot and without its star.
    Beneath(Vec<u8>),
}

/// The address of a client, found out when a test asks for it.
#[derive(Default)]
pub(crate) struct ClientAddress(OnceCell<Option<IpAddr>>);

impl RequestTest {
    /// As the configuration has them; what is empty fits all.
    pub(crate) fn new(
        methods: &[String],
        host: Option<&str>,
        header: Option<&(String, Option<String>)>,
        from: &[(IpAddr, u8)],
    ) -> Self {
        let methods = methods.iter();
        Self {
            methods: methods.map(|method| method.clone().into_bytes()).collect(),
            host: host.map(HostTest::new),
            header: header.map(|(name, value)| {
                let value = value.as_ref().map(|value| value.clone().into_bytes());
                (name.clone(), value)
            }),
            networks: Networks::new(from),
        }
    }

    /// Whether it names nothing, and fits all.
    pub(crate) fn is_empty(&self) -> bool {
        let has_place = self.host.is_some() || !self.networks.is_empty();
        self.methods.is_empty() && self.header.is_none() && !has_place
    }

    /// How narrow it is, the greater the narrower: by the host, the header, the widest network, and whether there are
    /// methods.
    pub(crate) fn narrowness(&self) -> (usize, u8, u32, bool) {
        let host = self.host.as_ref().map_or(0, HostTest::narrowness);
        let header = match &self.header {
            None => 0,
            Some((_, None)) => 1,
            Some((_, Some(_))) => 2,
        };
        let network = match self.networks.is_empty() {
            true => 0,
            false => 1 + self.networks.bits_min(),
        };
        (host, header, network, !self.methods.is_empty())
    }

    pub(crate) fn fits(&self, view: HeadView<'_>, ends: &Ends, client: &ClientAddress) -> bool {
        // What costs least comes first.
        self.has_method(view) && self.fits_but_for_method(view, ends, client)
    }

    /// Whether all but the method fits.
    pub(crate) fn fits_but_for_method(
        &self,
        view: HeadView<'_>,
        ends: &Ends,
        client: &ClientAddress,
    ) -> bool {
        self.host.as_ref().is_none_or(|host| host.fits(view, ends))
            && self.has_header(view)
            && (self.networks.is_empty() || client.of(ends).is_some_and(|ip| self.networks.has(ip)))
    }

    /// The methods that it names; none: all fit.
    pub(crate) fn methods(&self) -> impl Iterator<Item = &[u8]> {
        self.methods.iter().map(Vec::as_slice)
    }

    fn has_method(&self, view: HeadView<'_>) -> bool {
        self.methods.is_empty() || self.methods.iter().any(|method| method == view.method())
    }

    fn has_header(&self, view: HeadView<'_>) -> bool {
        let Some((name, value)) = &self.header else {
            return true;
        };
        let named = |field: &[u8]| field.eq_ignore_ascii_case(name.as_bytes());
        let mut headers = view.headers();
        headers
            .any(|(field, found)| named(field) && value.as_ref().is_none_or(|value| value == found))
    }
}

impl HostTest {
    fn new(host: &str) -> Self {
        match host.strip_prefix('*') {
            Some(beneath) => HostTest::Beneath(beneath.into()),
            None => HostTest::Whole(host.into()),
        }
    }

    /// No host has more than 255 bytes (RFC 1035 section 2.3.4).
    fn narrowness(&self) -> usize {
        match self {
            HostTest::Whole(host) => 256 + host.len(),
            HostTest::Beneath(dotted) => dotted.len(),
        }
    }

    fn fits(&self, view: HeadView<'_>, ends: &Ends) -> bool {
        let forwarded = ends.host.as_ref().map(|host| host.as_bytes());
        let host = host_of(forwarded.or(view.authority()).unwrap_or_default());
        match self {
            HostTest::Whole(whole) => host.eq_ignore_ascii_case(whole),
            HostTest::Beneath(dotted) => {
                let from = host.len().checked_sub(dotted.len());
                from.is_some_and(|from| from > 0 && host[from..].eq_ignore_ascii_case(dotted))
            }
        }
    }
}

impl ClientAddress {
    /// A client on a unix socket has none.
    pub(crate) fn of(&self, ends: &Ends) -> Option<IpAddr> {
        *self.0.get_or_init(|| ends.client_host.parse().ok())
    }
}

/// An authority without its port and without the dot that ends a whole name. An IPv6 address keeps its
/// brackets.
fn host_of(authority: &[u8]) -> &[u8] {
    let host_bytes = match authority.first() {
        Some(b'[') => memchr::memchr(b']', authority).map(|end| end + 1),
        _ => memchr::memchr(b':', authority),
    };
    let host = &authority[..host_bytes.unwrap_or(authority.len())];
    host.strip_suffix(b".").unwrap_or(host)
}
