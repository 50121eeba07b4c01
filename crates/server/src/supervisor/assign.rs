//! Who accepts from which socket: sockets and living processes in, holders out. Pure.
//!
//! A socket has a home, the driver that it was made for. While that driver's process listens, it is the
//! holder; otherwise another driver is, and stays so until the home is back. As long as any process listens,
//! no socket is without a holder. Sends nothing.

use std::collections::BTreeMap;

use crate::channel::EarKey;
use crate::supervisor::sockets::SocketKey;

/// A listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    pub(crate) key: SocketKey,
    /// Number of the driver that it is meant for, over all processes: `slot * drivers + driver`.
    pub(crate) home: usize,
    pub(crate) kind: Kind,
}

/// How many accept from a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One driver: the kernel spreads connections over the sockets.
    Own,
    /// Every process: there is one socket for all.
    Shared,
}

/// A process that can accept: ready, and not told to drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listening {
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

/// The holders of each socket: exactly one, or for a shared socket one of each process.
pub(crate) type Assignment = BTreeMap<SocketKey, Vec<Holder>>;

/// What processes are to be told. `hear` goes out before `deafen`, so that no socket is without an ear.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// By process.
    pub(crate) hear: BTreeMap<u64, Vec<EarKey>>,
    /// By process.
    pub(crate) deafen: BTreeMap<u64, Vec<EarKey>>,
}

/// Finds every socket's holders among the processes of the newest generation; none without processes.
/// A socket moves only when its holder is gone, or when its home is back.
pub(crate) fn assign(
    sockets: &[Listener],
    processes: &[Listening],
    before: &Assignment,
) -> Assignment {
    let Some(newest) = processes.iter().map(|process| process.generation).max() else {
        return Assignment::new();
    };
    let mut living: Vec<Listening> = processes.to_vec();
    living.retain(|process| process.generation == newest);
    living.sort_by_key(|process| (process.slot, process.process));
    let mut load: BTreeMap<Holder, usize> = BTreeMap::new();
    for driver in rounds(&living) {
        load.insert(driver, 0);
    }
    let mut assigned = Assignment::new();
    let mut orphans = Vec::new();
    for socket in sockets {
        let holders = match socket.kind {
            Kind::Shared => shared(&living),
            Kind::Own => match at_home(socket, &living).or_else(|| stays(socket, &load, before)) {
                Some(holder) => vec![holder],
                None => {
                    orphans.push(socket.key);
                    continue;
                }
            },
        };
        if socket.kind == Kind::Own {
            *load.entry(holders[0]).or_default() += 1;
        }
        assigned.insert(socket.key, holders);
    }
    adopt(&orphans, &living, &mut load, &mut assigned);
    assigned
}

/// What leads from one assignment to the next. Sockets of an address that is gone altogether are left with
/// those who have them: they take in what waits when they are told to drain.
pub(crate) fn changes(before: &Assignment, after: &Assignment) -> Changes {
    let mut changes = Changes::default();
    for (process, key) in missing(after, before) {
        changes.hear.entry(process).or_default().push(key);
    }
    let remains = |address| {
        let first = SocketKey { address, index: 0 };
        let next = after.range(first..).next();
        next.is_some_and(|(key, _)| key.address == address)
    };
    for (process, key) in missing(before, after) {
        if remains(key.address) {
            changes.deafen.entry(process).or_default().push(key);
        }
    }
    changes
}

/// Gives sockets without a holder to the drivers that have the fewest, by turns.
fn adopt(
    orphans: &[SocketKey],
    living: &[Listening],
    load: &mut BTreeMap<Holder, usize>,
    assigned: &mut Assignment,
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
fn rounds(living: &[Listening]) -> Vec<Holder> {
    let most = living.iter().map(|process| process.drivers).max();
    let round = |driver: usize| {
        let has = move |process: &&Listening| process.drivers > driver;
        living
            .iter()
            .filter(has)
            .map(move |process| holder(process, driver))
    };
    (0..most.unwrap_or(0)).flat_map(round).collect()
}

fn at_home(socket: &Listener, living: &[Listening]) -> Option<Holder> {
    // Of two processes in one place the later one replaces the other.
    let mut from_newest = living.iter().rev();
    let process = from_newest.find(|process| socket.home / process.drivers == process.slot)?;
    Some(holder(process, socket.home % process.drivers))
}

fn stays(
    socket: &Listener,
    living: &BTreeMap<Holder, usize>,
    before: &Assignment,
) -> Option<Holder> {
    let holder = before.get(&socket.key)?.first()?;
    living.contains_key(holder).then_some(*holder)
}

fn shared(living: &[Listening]) -> Vec<Holder> {
    living.iter().map(|process| holder(process, 0)).collect()
}

fn holder(process: &Listening, driver: usize) -> Holder {
    Holder {
        process: process.process,
        driver: u16::try_from(driver)
            .expect("a driver's number is that of a socket, which has 16 bits"),
    }
}

/// Those of `of` that are not in `from`.
fn missing<'a>(
    of: &'a Assignment,
    from: &'a Assignment,
) -> impl Iterator<Item = (u64, EarKey)> + 'a {
    of.iter().flat_map(move |(key, holders)| {
        let others = from.get(key).map_or(&[][..], Vec::as_slice);
        let new = holders
            .iter()
            .filter(move |holder| !others.contains(holder));
        new.map(move |holder| (holder.process, key.ear(holder.driver)))
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
    fn sockets(len: usize, wanted: usize) -> Vec<Listener> {
        let own = |address| {
            (0..len).map(move |index| Listener {
                key: key(address, index),
                home: index % wanted,
                kind: Kind::Own,
            })
        };
        let shared = Listener {
            key: key(2, 0),
            home: 0,
            kind: Kind::Shared,
        };
        own(0).chain(own(1)).chain([shared]).collect()
    }

    fn process(number: u64, generation: u64, slot: usize) -> Listening {
        Listening {
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
        sockets: &[Listener],
        living: &[Listening],
        before: &Assignment,
        after: &Assignment,
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
            if socket.kind == Kind::Shared {
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
            let mut living: Vec<Listening> = Vec::new();
            let (mut generation, mut number) = (0, 0);
            let (mut len, mut wanted) = (4, 4);
            let mut told: std::collections::BTreeSet<(u64, EarKey)> = Default::default();
            let mut before = Assignment::new();
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
                // What processes have been told leads to the assignment, and never is a socket without an ear.
                let changes = changes(&before, &after);
                for (process, keys) in changes.hear {
                    for key in keys {
                        prop_assert!(told.insert((process, key)), "told twice to hear");
                    }
                }
                for (process, keys) in changes.deafen {
                    for key in keys {
                        // A process that is gone needs no orders.
                        let lives = living.iter().any(|one| one.process == process);
                        prop_assert_eq!(told.remove(&(process, key)), lives);
                    }
                }
                let expect = after.iter().flat_map(|(key, holders)| {
                    holders.iter().map(|holder| (holder.process, key.ear(holder.driver)))
                });
                prop_assert_eq!(&told, &expect.collect());
                before = after;
            }
        }
    }

    #[test]
    fn a_dead_process_s_sockets_are_spread_evenly_and_come_back() {
        let sockets = sockets(8, 8);
        let all: Vec<Listening> = (0..4_u64).map(|n| process(n, 0, n as usize)).collect();
        let full = assign(&sockets, &all, &Assignment::new());
        let rest = assign(&sockets, &all[1..], &full);
        // 16 own sockets over 6 drivers: 2 or 3 each.
        let mut held: BTreeMap<Holder, usize> = BTreeMap::new();
        for (_, holders) in rest.iter().filter(|(key, _)| key.address < 2) {
            *held.entry(holders[0]).or_default() += 1;
        }
        assert!(held.values().all(|len| (2..=3).contains(len)), "{held:?}");
        let moved = changes(&full, &rest);
        assert_eq!(moved.hear.values().map(Vec::len).sum::<usize>(), 4);
        assert_eq!(moved.deafen.keys().collect::<Vec<_>>(), [&0]);
        let reborn: Vec<Listening> = [process(9, 0, 0)]
            .into_iter()
            .chain(all[1..].iter().copied())
            .collect();
        let again = changes(&rest, &assign(&sockets, &reborn, &rest));
        assert_eq!(again.hear.keys().collect::<Vec<_>>(), [&9]);
        assert_eq!(again.hear[&9].len(), 5);
    }

    #[test]
    fn the_one_that_replaces_takes_over_before_the_other_is_told() {
        let sockets = sockets(2, 2);
        let old = process(1, 0, 0);
        let first = assign(&sockets, &[old], &Assignment::new());
        let both = assign(&sockets, &[old, process(2, 0, 0)], &first);
        let changes = changes(&first, &both);
        assert_eq!(changes.hear[&2].len(), 5);
        // The shared one stays with both.
        assert_eq!(changes.deafen[&1].len(), 4);
    }

    #[test]
    fn sockets_of_an_address_that_leaves_stay_with_those_that_drain() {
        let old = [process(1, 0, 0)];
        let first = assign(&sockets(2, 2), &old, &Assignment::new());
        let without: Vec<Listener> = sockets(2, 2)
            .into_iter()
            .filter(|socket| socket.key.address != 1)
            .collect();
        let both = [old[0], process(2, 1, 0)];
        let changes = changes(&first, &assign(&without, &both, &first));
        assert!(changes.deafen[&1].iter().all(|key| key.address != 1));
        assert_eq!(changes.deafen[&1].len(), 3);
    }
}
