//! What the host allows: limits and settings of the kernel, read once before a run and never changed.

use std::net::{IpAddr, UdpSocket};
use std::{fs, io};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use telemetry::Nanos;

use super::proc::{numbers, setting};

/// TIME_WAIT on Linux, where no port is used again before.
pub(super) const TIME_WAIT: Nanos = Nanos::from_secs(60);

/// What the host allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Host {
    /// Descriptors that this process may have in one table.
    pub(super) nofile: u64,
    /// `fs.nr_open`: above it no limit of descriptors can be raised.
    pub(super) nr_open: u64,
    /// Ports that the kernel chooses from, of one local address and towards one target.
    pub(super) ports: u64,
    /// After what time a port that we have closed is used again for the same target.
    pub(super) time_wait: Nanos,
    /// The same between addresses of loopback.
    pub(super) loopback_time_wait: Nanos,
    /// `net.ipv4.tcp_max_tw_buckets`: more connections are never in TIME_WAIT.
    pub(super) time_wait_max: u64,
}

/// The first one that is no address of this host.
pub(super) fn foreign(addresses: &[IpAddr]) -> Option<IpAddr> {
    let is_foreign = |address: &IpAddr| {
        // What cannot be asked is taken for an address of this host: connecting will show it.
        // Of UDP, so that no port is taken from the load.
        let bound = UdpSocket::bind((*address, 0));
        bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
    };
    addresses.iter().copied().find(is_foreign)
}

impl Host {
    /// This one; a setting that cannot be read has the kernel's default.
    pub(super) fn read() -> Host {
        let ranges = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
        let reserved = fs::read_to_string("/proc/sys/net/ipv4/ip_local_reserved_ports");
        let (time_wait, loopback_time_wait) = time_waits(
            setting("net/ipv4/tcp_tw_reuse").unwrap_or(2),
            setting("net/ipv4/tcp_tw_reuse_delay").unwrap_or(1000),
            setting("net/ipv4/tcp_timestamps").unwrap_or(1),
        );
        Host {
            nofile: raised_nofile(),
            nr_open: setting("fs/nr_open").unwrap_or(1_048_576),
            ports: ports(&ranges.unwrap_or_default(), &reserved.unwrap_or_default()),
            time_wait,
            loopback_time_wait,
            time_wait_max: setting("net/ipv4/tcp_max_tw_buckets").unwrap_or(131_072),
        }
    }
}

/// How long a port stays in TIME_WAIT, and how long between addresses of loopback, by `net.ipv4.tcp_tw_reuse`.
fn time_waits(reuse: u64, delay_ms: u64, timestamps: u64) -> (Nanos, Nanos) {
    let delay = Nanos::from_ms(delay_ms);
    match reuse {
        // Without time stamps an old segment would look like a new one, so there is no reuse.
        _ if timestamps == 0 => (TIME_WAIT, TIME_WAIT),
        0 => (TIME_WAIT, TIME_WAIT),
        2 => (TIME_WAIT, delay),
        _ => (delay, delay),
    }
}

/// The limit of descriptors that holds.
fn raised_nofile() -> u64 {
    // The soft limit of this process is raised to its hard one, which is no change of the host.
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 1024;
    };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    }
}

/// Ports of `ip_local_port_range` without those of `ip_local_reserved_ports`.
fn ports(range: &str, reserved: &str) -> u64 {
    // Linux has these where nobody has set others.
    let mut ends = numbers(range);
    let (low, high) = (ends.next().unwrap_or(32_768), ends.next().unwrap_or(60_999));
    let kept = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (from.parse::<u64>().ok()?, to.parse::<u64>().ok()?);
        Some((to.min(high) + 1).saturating_sub(from.max(low)))
    };
    let kept: u64 = reserved.trim().split(',').filter_map(kept).sum();
    (high + 1).saturating_sub(low).saturating_sub(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_ports_without_reserved_ones() {
        let cases = [
            ("32768\t60999\n", "\n", 28_232),
            ("1024 65535", "", 64_512),
            ("32768 60999", "8080,40000-40009,60999-61500\n", 28_232 - 11),
            ("", "", 28_232),
            ("5 4", "", 0),
        ];
        for (range, reserved, expect) in cases {
            assert_eq!(ports(range, reserved), expect, "{range} {reserved}");
        }
    }

    #[test]
    fn knows_when_ports_in_time_wait_are_used_again() {
        let ms = Nanos::from_ms;
        let cases = [
            ((0, 1000, 1), (TIME_WAIT, TIME_WAIT)),
            ((1, 500, 1), (ms(500), ms(500))),
            ((2, 1000, 1), (TIME_WAIT, ms(1000))),
            ((1, 1000, 0), (TIME_WAIT, TIME_WAIT)),
        ];
        for ((reuse, delay_ms, timestamps), expect) in cases {
            assert_eq!(time_waits(reuse, delay_ms, timestamps), expect, "{reuse}");
        }
    }

    #[test]
    fn raises_the_own_limit_to_the_hard_one() {
        let host = Host::read();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
        assert_eq!((soft, host.nofile), (hard, hard));
        assert!(host.ports > 0 && host.nr_open >= hard);
    }
}
