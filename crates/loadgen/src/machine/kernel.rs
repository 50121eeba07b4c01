//! Counters of the host's network that show trouble, as differences over a run.

use std::collections::BTreeMap;
use std::fs;

/// The counters that show trouble, by section and name. Resets are not among them: our own closing is one.
const WATCHED: [&str; 20] = [
    "Tcp.AttemptFails",
    "Tcp.RetransSegs",
    "TcpExt.EmbryonicRsts",
    "TcpExt.ListenDrops",
    "TcpExt.ListenOverflows",
    "TcpExt.PAWSActive",
    "TcpExt.PAWSEstab",
    "TcpExt.PAWSOldAck",
    "TcpExt.PAWSTimewait",
    "TcpExt.SyncookiesSent",
    "TcpExt.TCPAbortOnMemory",
    "TcpExt.TCPAbortOnTimeout",
    "TcpExt.TCPBacklogDrop",
    "TcpExt.TCPMemoryPressures",
    "TcpExt.TCPReqQFullDoCookies",
    "TcpExt.TCPReqQFullDrop",
    "TcpExt.TCPRcvQDrop",
    "TcpExt.TCPSynRetrans",
    "TcpExt.TCPTimeWaitOverflow",
    "TcpExt.TCPTimeouts",
];

/// The counters at one time, by name: `TcpExt.ListenOverflows`. They are the whole network namespace's, not one
/// program's; a kernel need not have each of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelCounters(BTreeMap<String, u64>);

impl KernelCounters {
    /// As they are now; none where they cannot be read.
    pub fn read() -> KernelCounters {
        let mut counters = KernelCounters::default();
        for name in ["snmp", "netstat"] {
            let text = fs::read_to_string(format!("/proc/thread-self/net/{name}"));
            counters.take(&text.unwrap_or_default());
        }
        counters
    }

    /// Those that grew since `before`, and by how much.
    pub fn since(&self, before: &KernelCounters) -> BTreeMap<String, u64> {
        let grown = self.0.iter().map(|(name, now)| {
            let then = before.0.get(name).copied().unwrap_or(0);
            (name.clone(), now.saturating_sub(then))
        });
        grown.filter(|(_, more)| *more > 0).collect()
    }

    /// Takes the counters of a text.
    fn take(&mut self, text: &str) {
        // Pairs of lines: `TcpExt: NAME NAME ...`, `TcpExt: 1 2 ...`.
        let mut lines = text.lines();
        while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
            let Some((section, names)) = names.split_once(": ") else {
                continue;
            };
            let values = values.split_ascii_whitespace().skip(1);
            for (name, value) in names.split_ascii_whitespace().zip(values) {
                let name = format!("{section}.{name}");
                // Some are signed (`Tcp: MaxConn -1`), none of the watched ones.
                if let (true, Ok(value)) = (WATCHED.contains(&name.as_str()), value.parse()) {
                    self.0.insert(name, value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream};

    use socket2::{Domain, Socket, Type};

    use super::*;

    const BEFORE: &str = "Ip: Forwarding\nIp: 1\n\
        Tcp: RtoAlgorithm MaxConn RetransSegs InErrs\nTcp: 1 -1 500 7\n\
        TcpExt: SyncookiesSent TCPTimeWaitOverflow ListenOverflows ListenDrops\nTcpExt: 0 3 9 9\n\
        UdpLite: RetransSegs\nUdpLite: 88\n";
    const AFTER: &str = "Tcp: RtoAlgorithm MaxConn RetransSegs InErrs\nTcp: 1 -1 512 9\n\
        TcpExt: SyncookiesSent TCPTimeWaitOverflow ListenOverflows ListenDrops\nTcpExt: 0 3 19 8\n";

    fn counters(text: &str) -> KernelCounters {
        let mut counters = KernelCounters::default();
        counters.take(text);
        counters
    }

    #[test]
    fn gives_what_grew_of_what_is_watched() {
        let grown = counters(AFTER).since(&counters(BEFORE));
        let expect = [("Tcp.RetransSegs", 12), ("TcpExt.ListenOverflows", 10)];
        assert_eq!(
            grown,
            expect.map(|(name, more)| (name.to_owned(), more)).into()
        );
    }

    #[test]
    fn takes_cut_and_foreign_texts_as_far_as_they_go() {
        for text in [
            "",
            "Tcp: RetransSegs",
            "x\ny\n",
            "Tcp: RetransSegs InErrs\nTcp:\n",
            "Tcp: A\nTcp: 1 2 3\n",
        ] {
            assert_eq!(counters(text), counters(""), "{text}");
        }
    }

    #[test]
    fn sees_a_connection_that_is_refused() {
        let before = KernelCounters::read();
        // It keeps a port and does not listen.
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        socket.bind(&any.into()).expect("a port");
        let address = socket
            .local_addr()
            .ok()
            .and_then(|address| address.as_socket());
        let refused = TcpStream::connect(address.expect("an address"));
        assert!(refused.is_err());
        let grown = KernelCounters::read().since(&before);
        assert!(
            grown.get("Tcp.AttemptFails").is_some_and(|more| *more >= 1),
            "{grown:?}"
        );
    }
}
