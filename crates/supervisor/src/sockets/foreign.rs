//! Who else listens: an address of our own with the same port is no foreign listener.
//!
//! The kernel only says that an address is taken, not by whom; `/proc/net/tcp` says which sockets listen.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipc::listen::{self, TcpAddress};

/// A socket that listens somewhere on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ForeignListener {
    at: SocketAddr,
    inode: u64,
}

/// Refuses an address on which a socket listens that is not among `own`.
///
/// # Errors
/// `AddrInUse`, or what the kernel says of an address that nobody could have.
pub(super) fn check_free(wanted: TcpAddress, own: &[u64]) -> io::Result<()> {
    // The kernel first: only where it refuses is the table of all sockets read.
    match listen::check_free(wanted) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && !own.is_empty() => {
            let mut taken_by = listening()?;
            taken_by.retain(|found| overlaps(wanted, found.at));
            // Taken by something that does not listen or cannot be seen: the kernel's word counts.
            let is_ours = !taken_by.is_empty();
            if is_ours && taken_by.iter().all(|found| own.contains(&found.inode)) {
                Ok(())
            } else {
                Err(error)
            }
        }
        checked => checked,
    }
}

/// Whether a connection could be for both.
fn overlaps(wanted: TcpAddress, other: SocketAddr) -> bool {
    if wanted.at.port() != other.port() {
        return false;
    }
    let (a, b) = (wanted.at.ip().to_canonical(), other.ip().to_canonical());
    match (a, b) {
        _ if a == b => true,
        (IpAddr::V4(a), IpAddr::V4(b)) => a.is_unspecified() || b.is_unspecified(),
        (IpAddr::V6(a), IpAddr::V6(b)) => a.is_unspecified() || b.is_unspecified(),
        (IpAddr::V6(a), IpAddr::V4(_)) => a.is_unspecified() && !wanted.is_only_v6,
        (IpAddr::V4(_), IpAddr::V6(b)) => b.is_unspecified(),
    }
}

/// All sockets that listen, in this network namespace.
fn listening() -> io::Result<Vec<ForeignListener>> {
    let mut all = Vec::new();
    for name in ["tcp", "tcp6"] {
        match File::open(format!("/proc/self/net/{name}")) {
            Ok(file) => read(BufReader::new(file), &mut all)?,
            // Without IPv6 there is no such file.
            Err(error) if error.kind() == io::ErrorKind::NotFound && name == "tcp6" => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Reads the kernel's table.
fn read(table: impl BufRead, all: &mut Vec<ForeignListener>) -> io::Result<()> {
    const LISTEN: &str = "0A";
    for line in table.lines().skip(1) {
        let line = line?;
        let mut words = line.split_ascii_whitespace().skip(1);
        let (at, state, inode) = (words.next(), words.nth(1), words.nth(5));
        // Sockets that listen stand first: the thousands of connections behind them are not read.
        if state != Some(LISTEN) {
            return Ok(());
        }
        let found = at
            .and_then(address)
            .zip(inode.and_then(|inode| inode.parse().ok()));
        all.extend(found.map(|(at, inode)| ForeignListener { at, inode }));
    }
    Ok(())
}

/// `0100007F:1F90`: words of 32 bits in the machine's order, and a port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let digits = ip.get(at * 8..at * 8 + 8)?;
        let word = u32::from_str_radix(digits, 16).ok()?;
        // The kernel prints each word as a number of this machine, not as bytes in their order.
        Some(u32::from_be_bytes(word.to_ne_bytes()))
    };
    let ip = match ip.len() {
        8 => Ipv4Addr::from_bits(word(0)?).into(),
        32 => {
            let bits = (0..4).try_fold(0_u128, |bits, at| Some(bits << 32 | u128::from(word(at)?)));
            Ipv6Addr::from_bits(bits?).into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn finds_a_listening_socket_by_its_inode() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(at).unwrap();
            let expect = ForeignListener {
                at: listener.local_addr().unwrap(),
                inode: rustix::fs::fstat(&listener).unwrap().st_ino,
            };
            assert!(listening().unwrap().contains(&expect), "{expect:?}");
        }
    }

    #[test]
    fn refuses_others_but_not_its_own() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let own = rustix::fs::fstat(&listener).unwrap().st_ino;
        let check = |at: SocketAddr, own: &[u64]| {
            let is_only_v6 = false;
            let checked = check_free(TcpAddress { at, is_only_v6 }, own);
            checked.map_err(|error| error.kind())
        };
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), at.port());
        for wanted in [at, any] {
            assert_eq!(check(wanted, &[]), Err(io::ErrorKind::AddrInUse));
            assert_eq!(
                check(wanted, &[own + 1_000_000]),
                Err(io::ErrorKind::AddrInUse)
            );
            assert_eq!(check(wanted, &[own]), Ok(()));
        }
    }

    #[test]
    fn knows_which_addresses_overlap() {
        let check = |a: &str, b: &str, is_only_v6, expect| {
            let at = a.parse().unwrap();
            let found = overlaps(TcpAddress { at, is_only_v6 }, b.parse().unwrap());
            assert_eq!(found, expect, "{a} {b}");
        };
        check("127.0.0.1:80", "127.0.0.1:80", false, true);
        check("127.0.0.1:80", "127.0.0.1:81", false, false);
        check("127.0.0.1:80", "127.0.0.2:80", false, false);
        check("0.0.0.0:80", "127.0.0.2:80", false, true);
        check("127.0.0.1:80", "0.0.0.0:80", false, true);
        check("127.0.0.1:80", "[::]:80", false, true);
        check("127.0.0.1:80", "[::1]:80", false, false);
        check("127.0.0.1:80", "[::ffff:127.0.0.1]:80", false, true);
        check("[::]:80", "0.0.0.0:80", false, true);
        check("[::]:80", "0.0.0.0:80", true, false);
        check("[::]:80", "[::1]:80", true, true);
    }
}
