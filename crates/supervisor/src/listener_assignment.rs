//! Assignment of listening sockets to drivers: sockets and living processes in, holders out. Pure.
//!
//! A socket has a home, the driver that it was made for. While that driver's process listens, it is the
//! holder; otherwise another driver is, and stays so until the home is back. As long as any process listens,
//! no socket is without a holder. Sends nothing.

use std::collections::BTreeMap;

use crate::sockets::SocketKey;
use ipc::ListenerId;
use os::invariant;

/// A listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListeningSocket {
    pub(crate) key: SocketKey,
    /// Number of the driver that it is meant for, over all processes: `slot * drivers + driver`.
    pub(crate) home: usize,
    /// Every process accepts from it: there is one socket for all. Otherwise one driver does, and the kernel spreads
    /// connections over the sockets.
    pub(crate) is_shared: bool,
}

/// A process that can accept: ready, and not draining.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AcceptingProcess {
    /// Its own number, never used again.
    pub(crate) process: u64,
    pub(crate) generation: u64,
    /// Its place in the generation, which a process that is about to replace it has as well.
    pub(crate) slot: usize,
    /// Driver threads; at least 1 and the same throughout a generation.
    pub(crate) drivers: usize,
}

/// Who accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holder {
    pub(crate) process: u64,
    /// 0 for a shared socket, which the process spreads over its drivers.
    pub(crate) driver: u16,
}

impl Holder {
    /// The socket, as this driver has it.
    pub(crate) fn listener(self, socket: SocketKey) -> ListenerId {
        socket.listener(self.driver)
    }
}

/// The holders of each socket: exactly one, or for a shared socket one of each process.
pub(crate) type ListenerAssignment = BTreeMap<SocketKey, Vec<Holder>>;

/// What to tell processes. `start` goes out before `stop`, so that a process accepts from each socket at any time.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AssignmentChanges {
    /// By process.
    pub(crate) start: BTreeMap<u64, Vec<ListenerId>>,
    /// By process.
    pub(crate) stop: BTreeMap<u64, Vec<ListenerId>>,
}

/// Finds every socket's holders among the processes of the newest generation; none without processes.
pub(crate) fn assign(
    sockets: &[ListeningSocket],
    processes: &[AcceptingProcess],
    before: &ListenerAssignment,
) -> ListenerAssignment {
    let Some(newest) = processes.iter().map(|process| process.generation).max() else {
        return ListenerAssignment::new();
    };
    let mut living: Vec<AcceptingProcess> = processes.to_vec();
    living.retain(|process| process.generation == newest);
    // In a fixed order: the same processes lead to the same assignment, and then nothing is to be told.
    living.sort_by_key(|process| (process.slot, process.process));
    let mut load: BTreeMap<Holder, usize> = BTreeMap::new();
    for driver in rounds(&living) {
        load.insert(driver, 0);
    }
    let mut assigned = ListenerAssignment::new();
    // Last, when it is known what the others have: a driver that gets an orphan early could get its own sockets as well.
    let mut orphans = Vec::new();
    for socket in sockets {
        if socket.is_shared {
            let holders = living.iter().map(|process| holder(process, 0));
            assigned.insert(socket.key, holders.collect());
        } else if let Some(holder) =
            // A socket moves only when its holder is gone, or when its home is back.
            at_home(socket, &living).or_else(|| stays(socket, &load, before))
        {
            *load.entry(holder).or_default() += 1;
            assigned.insert(socket.key, vec![holder]);
        } else {
            orphans.push(socket.key);
        }
    }
    adopt(&orphans, &living, &mut load, &mut assigned);
    check_assigned(sockets, &living, &assigned);
    assigned
}

/// A socket that no living process accepts from keeps its clients waiting for ever, and one that two drivers
/// take for their own is counted twice.
fn check_assigned(
    sockets: &[ListeningSocket],
    living: &[AcceptingProcess],
    assigned: &ListenerAssignment,
) {
    invariant!(
        assigned.len() == sockets.len(),
        "{} of {} sockets are assigned",
        assigned.len(),
        sockets.len()
    );
    for socket in sockets {
        let holders = &assigned[&socket.key];
        let expect = if socket.is_shared { living.len() } else { 1 };
        invariant!(
            holders.len() == expect,
            "socket {:?} has {} holders in place of {expect}",
            socket.key,
            holders.len()
        );
        let lives = |holder: &Holder| living.iter().any(|one| one.process == holder.process);
        invariant!(
            holders.iter().all(lives),
            "socket {:?} is assigned to a process that has ended",
            socket.key
        );
    }
}

/// What leads from one assignment to the next.
pub(crate) fn changes(
    before: &ListenerAssignment,
    after: &ListenerAssignment,
) -> AssignmentChanges {
    let mut changes = AssignmentChanges::default();
    for (process, key) in missing(after, before) {
        changes.start.entry(process).or_default().push(key);
    }
    // Sockets of an address that is gone altogether are left with the processes that have them, which accept what waits
    // there when they drain.
    let remains = |address| {
        let first = SocketKey { address, index: 0 };
        let next = after.range(first..).next();
        next.is_some_and(|(key, _)| key.address == address)
    };
    for (process, key) in missing(before, after) {
        if remains(key.address) {
            changes.stop.entry(process).or_default().push(key);
        }
    }
    changes
}

/// Gives sockets without a holder to the drivers that have the fewest, by turns.
fn adopt(
    orphans: &[SocketKey],
    living: &[AcceptingProcess],
    load: &mut BTreeMap<Holder, usize>,
    assigned: &mut ListenerAssignment,
) {
    let rounds = rounds(living);
    for key in orphans {
        // The first of several: processes take turns before a process's drivers do.
        let least = rounds.iter().min_by_key(|driver| load[*driver]);
        let Some(holder) = least.copied() else { return };
        *load.entry(holder).or_default() += 1;
        assigned.insert(*key, vec![holder]);
    }
}

/// The drivers of all processes: first each one's first, then each one's second, and so on.
fn rounds(living: &[AcceptingProcess]) -> Vec<Holder> {
    let most = living.iter().map(|process| process.drivers).max();
    let round = |driver: usize| {
        let has = move |process: &&AcceptingProcess| process.drivers > driver;
        living
            .iter()
            .filter(has)
            .map(move |process| holder(process, driver))
    };
    // With fewer sockets than drivers each process gets one before any gets two.
    (0..most.unwrap_or(0)).flat_map(round).collect()
}

fn at_home(socket: &ListeningSocket, living: &[AcceptingProcess]) -> Option<Holder> {
    // Of two processes in one place the later one replaces the other.
    let mut from_newest = living.iter().rev();
    let process = from_newest.find(|process| socket.home / process.drivers == process.slot)?;
    Some(holder(process, socket.home % process.drivers))
}

fn stays(
    socket: &ListeningSocket,
    living: &BTreeMap<Holder, usize>,
    before: &ListenerAssignment,
) -> Option<Holder> {
    let holder = before.get(&socket.key)?.first()?;
    living.contains_key(holder).then_some(*holder)
}

fn holder(process: &AcceptingProcess, driver: usize) -> Holder {
    Holder {
        process: process.process,
        driver: u16::try_from(driver)
            .expect("a driver's number is that of a socket, which has 16 bits"),
    }
}

/// Those of `of` that are not in `from`.
fn missing<'a>(
    of: &'a ListenerAssignment,
    from: &'a ListenerAssignment,
) -> impl Iterator<Item = (u64, ListenerId)> + 'a {
    of.iter().flat_map(move |(key, holders)| {
        let others = from.get(key).map_or(&[][..], Vec::as_slice);
        let new = holders
            .iter()
            .filter(move |holder| !others.contains(holder));
        new.map(move |holder| (holder.process, key.listener(holder.driver)))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DRIVERS: usize = 2;

    fn key(address: u16, index: usize) -> SocketKey {
        let index = u16::try_from(index).unwrap();
        SocketKey { address, index }
    }

    /// Two addresses of `len` sockets, of which `wanted` are wanted, and one that all share.
    fn sockets(len: usize, wanted: usize) -> Vec<ListeningSocket> {
        let own = |address| {
            (0..len).map(move |index| ListeningSocket {
                key: key(address, index),
                home: index % wanted,
                is_shared: false,
            })
        };
        let shared = ListeningSocket {
            key: key(2, 0),
            home: 0,
            is_shared: true,
        };
        own(0).chain(own(1)).chain([shared]).collect()
    }

    fn process(number: u64, generation: u64, slot: usize) -> AcceptingProcess {
        AcceptingProcess {
            process: number,
            generation,
            slot,
            drivers: DRIVERS,
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Birth(usize),
        Death(usize),
        Generation,
        Wanted(usize),
        Closed(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..5_usize).prop_map(Step::Birth),
            3 => any::<usize>().prop_map(Step::Death),
            1 => Just(Step::Generation),
            1 => (1..10_usize).prop_map(Step::Wanted),
            1 => (0..4_usize).prop_map(Step::Closed),
        ]
    }

    /// What must hold of any assignment that follows another.
    fn check(
        sockets: &[ListeningSocket],
        living: &[AcceptingProcess],
        before: &ListenerAssignment,
        after: &ListenerAssignment,
    ) -> Result<(), TestCaseError> {
        let Some(newest) = living.iter().map(|one| one.generation).max() else {
            prop_assert!(after.is_empty());
            return Ok(());
        };
        let alive = |holder: &Holder| {
            living.iter().any(|one| {
                one.process == holder.process
                    && one.generation == newest
                    && usize::from(holder.driver) < one.drivers
            })
        };
        prop_assert_eq!(after.len(), sockets.len());
        for socket in sockets {
            let holders = &after[&socket.key];
            prop_assert!(holders.iter().all(alive), "{:?}", socket);
            if socket.is_shared {
                let all = living.iter().filter(|one| one.generation == newest);
                prop_assert_eq!(holders.len(), all.count());
                continue;
            }
            prop_assert_eq!(holders.len(), 1);
            let at_home = |holder: &Holder| {
                let of = living.iter().find(|one| one.process == holder.process);
                of.is_some_and(|one| one.slot * DRIVERS + usize::from(holder.driver) == socket.home)
            };
            let home_lives = living
                .iter()
                .any(|one| one.generation == newest && one.slot == socket.home / DRIVERS);
            prop_assert_eq!(at_home(&holders[0]), home_lives);
            if let Some(old) = before.get(&socket.key) {
                let has_moved = old != holders;
                prop_assert!(
                    !has_moved || !alive(&old[0]) || at_home(&holders[0]),
                    "{:?} moved from a living holder",
                    socket
                );
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn every_socket_has_a_holder_whatever_lives_and_dies(
            steps in prop::collection::vec(step(), 1..60)
        ) {
            let mut living: Vec<AcceptingProcess> = Vec::new();
            let (mut generation, mut number) = (0, 0);
            let (mut len, mut wanted) = (4, 4);
            let mut told: std::collections::BTreeSet<(u64, ListenerId)> = Default::default();
            let mut before = ListenerAssignment::new();
            for step in steps {
                match step {
                    Step::Birth(slot) => {
                        number += 1;
                        living.push(process(number, generation, slot));
                    }
                    Step::Death(which) if !living.is_empty() => {
                        let gone = living.remove(which % living.len()).process;
                        told.retain(|(process, _)| *process != gone);
                    }
                    Step::Death(_) => {}
                    Step::Generation => generation += 1,
                    Step::Wanted(n) => {
                        wanted = n;
                        len = len.max(n);
                    }
                    Step::Closed(n) => len = wanted.max(len.saturating_sub(n)),
                }
                let sockets = sockets(len, wanted);
                let after = assign(&sockets, &living, &before);
                check(&sockets, &living, &before, &after)?;
                // The commands lead to the assignment.
                let changes = changes(&before, &after);
                for (process, keys) in changes.start {
                    for key in keys {
                        prop_assert!(told.insert((process, key)), "told twice to hear");
                    }
                }
                for (process, keys) in changes.stop {
                    for key in keys {
                        // A process that is gone needs no orders.
                        let lives = living.iter().any(|one| one.process == process);
                        prop_assert_eq!(told.remove(&(process, key)), lives);
                    }
                }
                let expect = after.iter().flat_map(|(key, holders)| {
                    holders.iter().map(|holder| (holder.process, key.listener(holder.driver)))
                });
                prop_assert_eq!(&told, &expect.collect());
                before = after;
            }
        }
    }

    #[test]
    #[should_panic(expected = "0 of 5 sockets are assigned")]
    fn a_socket_without_a_holder_is_a_bug() {
        let living = [process(1, 0, 0)];
        check_assigned(&sockets(2, 2), &living, &ListenerAssignment::new());
    }

    #[test]
    #[should_panic(expected = "assigned to a process that has ended")]
    fn a_holder_that_has_ended_is_a_bug() {
        let sockets = sockets(2, 2);
        let assigned = assign(&sockets, &[process(1, 0, 0)], &ListenerAssignment::new());
        check_assigned(&sockets, &[process(2, 0, 0)], &assigned);
    }

    #[test]
    #[should_panic(expected = "2 holders in place of 1")]
    fn two_holders_of_one_socket_are_a_bug() {
        let sockets = sockets(1, 1);
        let living = [process(1, 0, 0)];
        let mut assigned = assign(&sockets, &living, &ListenerAssignment::new());
        let holders = assigned.get_mut(&sockets[0].key).unwrap();
        holders.push(holders[0]);
        check_assigned(&sockets, &living, &assigned);
    }

    #[test]
    fn a_dead_process_s_sockets_are_spread_evenly_and_come_back() {
        let sockets = sockets(8, 8);
        let all: Vec<AcceptingProcess> = (0..4_u64).map(|n| process(n, 0, n as usize)).collect();
        let full = assign(&sockets, &all, &ListenerAssignment::new());
        let rest = assign(&sockets, &all[1..], &full);
        // 16 own sockets over 6 drivers: 2 or 3 each.
        let mut held: BTreeMap<Holder, usize> = BTreeMap::new();
        for (_, holders) in rest.iter().filter(|(key, _)| key.address < 2) {
            *held.entry(holders[0]).or_default() += 1;
        }
        assert!(held.values().all(|len| (2..=3).contains(len)), "{held:?}");
        let moved = changes(&full, &rest);
        assert_eq!(moved.start.values().map(Vec::len).sum::<usize>(), 4);
        assert_eq!(moved.stop.keys().collect::<Vec<_>>(), [&0]);
        let reborn: Vec<AcceptingProcess> = [process(9, 0, 0)]
            .into_iter()
            .chain(all[1..].iter().copied())
            .collect();
        let again = changes(&rest, &assign(&sockets, &reborn, &rest));
        assert_eq!(again.start.keys().collect::<Vec<_>>(), [&9]);
        assert_eq!(again.start[&9].len(), 5);
    }

    #[test]
    fn sockets_of_an_address_that_leaves_stay_with_those_that_drain() {
        let old = [process(1, 0, 0)];
        let first = assign(&sockets(2, 2), &old, &ListenerAssignment::new());
        let without: Vec<ListeningSocket> = sockets(2, 2)
            .into_iter()
            .filter(|socket| socket.key.address != 1)
            .collect();
        let both = [old[0], process(2, 1, 0)];
        let changes = changes(&first, &assign(&without, &both, &first));
        assert!(changes.stop[&1].iter().all(|key| key.address != 1));
        assert_eq!(changes.stop[&1].len(), 3);
    }
}
