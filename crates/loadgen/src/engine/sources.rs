//! Local addresses of connections, in turn.

use std::net::IpAddr;

use crate::plan::Plan;

/// The local addresses of one thread's connections.
#[derive(Debug)]
pub(crate) struct Sources {
    addresses: Vec<IpAddr>,
    next: usize,
}

impl Sources {
    /// Threads begin at different ones.
    pub(crate) fn of(plan: &Plan, thread: usize) -> Sources {
        Sources {
            addresses: plan.connections.sources.clone(),
            next: thread,
        }
    }

    /// The next one; `None`: the kernel chooses.
    pub(crate) fn next(&mut self) -> Option<IpAddr> {
        let len = self.addresses.len();
        let address = self.addresses.get(self.next % len.max(1)).copied();
        self.next = self.next.wrapping_add(1);
        address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_turns() {
        let addresses = vec![IpAddr::from([127, 0, 0, 2]), IpAddr::from([127, 0, 0, 3])];
        let mut sources = Sources {
            addresses: addresses.clone(),
            next: 1,
        };
        let got: Vec<_> = (0..3).filter_map(|_| sources.next()).collect();
        assert_eq!(got, [addresses[1], addresses[0], addresses[1]]);
        assert_eq!(
            Sources {
                addresses: Vec::new(),
                next: 7
            }
            .next(),
            None
        );
    }
}
