//! Slots of upstream servers, counted for all processes of a host: whoever takes one sees what all others have.
//!
//! They lie at the beginning of the file of all counters. A server has a column, found by its name, while any process
//! names it; each process has a row, which it alone writes, and which is cleared when the process has ended, however it
//! ended. Nothing here waits.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use os::{Mapping, invariant};

use super::segment::ALIGN_BYTES;

/// Processes at once.
pub(super) const ROWS: usize = 64;
/// Columns: servers and groups that processes name at once, behind the one that says how many rows have been in use.
const COLUMNS: usize = 480;
/// The first row of this column is one more than the highest row that a process has had: those behind it are not summed.
const HEADER: usize = 0;
/// In a row: its process names the column. The other bits are what it has.
const NAMED: u32 = 1 << 31;
/// In the name of a column: how many processes name it.
const NAMERS: u64 = 0xff;
/// Tries to get a column, of which one fails only when another process claims or releases one in the same moment.
const CLAIMS_MAX: usize = 1_000;
/// What the file begins with.
pub(super) const SLOTS_BYTES: u64 = 2 * ALIGN_BYTES;

const _: () = assert!(COLUMNS * size_of::<SlotColumn>() <= SLOTS_BYTES as usize);
const _: () = assert!(ROWS as u64 <= NAMERS);

/// What the processes have of one thing that is counted.
#[repr(C)]
pub(super) struct SlotColumn {
    /// A hash of its name, and in the lowest byte how many rows have it as `NAMED`; 0: nothing has this column. In one
    /// word, so that no process can name a column that another one gives to another name.
    name: AtomicU64,
    /// One more than the row that took the last slot; 0: none has.
    last: AtomicU32,
    unused: AtomicU32,
    rows: [AtomicU32; ROWS],
}

/// What has become of a try to take a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotTry {
    /// This process has it.
    Taken,
    /// All are taken.
    Full,
    /// It is the last one, and left to the other processes.
    Yielded,
}

/// One process's view of the counts of all.
pub struct SharedSlots {
    mapping: Mapping,
    row: usize,
}

impl SharedSlots {
    /// How many names there may be at once.
    pub const NAMES_MAX: usize = COLUMNS - 1;

    /// Those of a process that has no others beside it.
    pub fn private() -> io::Result<SharedSlots> {
        let bytes = usize::try_from(SLOTS_BYTES).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping::private(bytes, bytes)?;
        Ok(SharedSlots { mapping, row: 0 }.announced())
    }

    /// Those in the file of all counters, for the process with this row.
    ///
    /// # Errors
    /// The kernel's.
    pub fn shared(file: BorrowedFd<'_>, row: usize) -> io::Result<SharedSlots> {
        invariant!(row < ROWS, "a process has a row that is none");
        let bytes = usize::try_from(SLOTS_BYTES).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping::shared(file, 0, bytes, bytes)?;
        Ok(SharedSlots { mapping, row }.announced())
    }

    /// From now on all processes sum this row. One that has read the old number before has counted its own before, too, so
    /// that this process sees that when it sums.
    fn announced(self) -> SharedSlots {
        let rows_len = &self.columns()[HEADER].rows[0];
        rows_len.fetch_max(self.row as u32 + 1, Ordering::SeqCst);
        self
    }

    fn rows(&self, column: usize) -> &[AtomicU32] {
        let columns = self.columns();
        let rows_len = columns[HEADER].rows[0].load(Ordering::SeqCst) as usize;
        &columns[column].rows[..rows_len.min(ROWS)]
    }

    fn columns(&self) -> &[SlotColumn] {
        let columns = self.mapping.place(0, COLUMNS);
        columns.expect("the columns lie within the mapping")
    }

    /// The column of a name, by its hash, which this process names until `release`; `None`: all are taken by other names, or
    /// other processes were quicker in all of `CLAIMS_MAX` tries.
    pub fn column(&self, name_hash: u64) -> Option<usize> {
        let name = (name_hash << NAMERS.count_ones()).max(NAMERS + 1);
        for tries in 0..CLAIMS_MAX {
            if tries > 0 {
                // Whoever was quicker gets to an end: two that look at once at each other's claims would both leave again.
                std::thread::yield_now();
            }
            let (place, found) = self.place_for(name)?;
            let column = &self.columns()[place];
            let own = &column.rows[self.row];
            let is_named = own.load(Ordering::SeqCst) & NAMED != 0;
            if found != 0 && is_named {
                return Some(place);
            }
            let named = name | ((found & NAMERS) + 1);
            let claimed =
                (column.name).compare_exchange(found, named, Ordering::SeqCst, Ordering::SeqCst);
            if claimed.is_err() {
                continue;
            }
            // A process that is killed before this step leaves a column that is never free again. That costs one of many.
            own.fetch_or(NAMED, Ordering::SeqCst);
            // Two processes may claim two columns for one name at once, where one became free meanwhile. Each looks behind
            // its claim, so that at least the later one sees the other and leaves.
            if self.places(name).all(|(other, _)| other == place) {
                return Some(place);
            }
            self.release(place);
        }
        None
    }

    /// This process, which has nothing of it any more, does not name the column any longer.
    pub fn release(&self, column: usize) {
        let column = &self.columns()[column];
        let before = column.rows[self.row].swap(0, Ordering::SeqCst);
        invariant!(
            before == NAMED,
            "a column of slots is released that is not named, or still in use"
        );
        column.leave();
    }

    /// The column that has a name, else a free one; and what its name is.
    fn place_for(&self, name: u64) -> Option<(usize, u64)> {
        self.places(name).next().or_else(|| self.places(0).next())
    }

    /// The columns that have a name, or that are free: with what their names are.
    fn places(&self, name: u64) -> impl Iterator<Item = (usize, u64)> {
        let columns = self.columns().iter().enumerate().skip(HEADER + 1);
        let found = columns.map(|(place, column)| (place, column.name.load(Ordering::SeqCst)));
        found.filter(move |(_, found)| found & !NAMERS == name)
    }

    /// What all processes have of it.
    pub fn count(&self, column: usize) -> u32 {
        let rows = self.rows(column).iter();
        rows.map(|row| row.load(Ordering::SeqCst) & !NAMED).sum()
    }

    /// Whether another process has any of it.
    pub fn others_have(&self, column: usize) -> bool {
        let mut rows = self.rows(column).iter().enumerate();
        rows.any(|(row, count)| row != self.row && count.load(Ordering::Relaxed) & !NAMED > 0)
    }

    /// Takes one if all processes have fewer than `limit`. With `yields`, not the last one if this process took one last:
    /// others wait. Bound the time of that: a process that waits may not be able to take it.
    pub fn try_take(&self, column: usize, limit: u32, yields: bool) -> SlotTry {
        let column_of = &self.columns()[column];
        let own = &column_of.rows[self.row];
        let me = self.row as u32 + 1;
        // Counted first, looked at then: of two processes that take the last one at once, at most one finds that it may
        // keep it.
        own.fetch_add(1, Ordering::SeqCst);
        let count = self.count(column);
        let is_last = count == limit && yields && column_of.last.load(Ordering::Relaxed) == me;
        if count > limit || is_last {
            own.fetch_sub(1, Ordering::SeqCst);
            return match count > limit {
                true => SlotTry::Full,
                false => SlotTry::Yielded,
            };
        }
        column_of.last.store(me, Ordering::Relaxed);
        SlotTry::Taken
    }

    /// Gives one back.
    pub fn give_back(&self, column: usize) {
        let before = self.columns()[column].rows[self.row].fetch_sub(1, Ordering::SeqCst);
        invariant!(before & !NAMED > 0, "a slot is given back that nobody has");
    }

    /// This process has so much of a column that it names.
    pub fn set(&self, column: usize, count: u32) {
        let row = &self.columns()[column].rows[self.row];
        row.store(NAMED | count.min(!NAMED), Ordering::Relaxed);
    }

    /// The process of this row has ended, or has not begun.
    pub(super) fn clear(&self) {
        for column in &self.columns()[HEADER + 1..] {
            let before = column.rows[self.row].swap(0, Ordering::SeqCst);
            if before & NAMED != 0 {
                column.leave();
            }
        }
    }
}

impl SlotColumn {
    /// One process fewer names it; it is free when that was the last one.
    fn leave(&self) {
        let left = |name: u64| match name & NAMERS {
            0 | 1 => Some(0),
            _ => Some(name - 1),
        };
        let _ = (self.name).fetch_update(Ordering::SeqCst, Ordering::SeqCst, left);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::super::CounterFile;
    use super::*;

    fn takes(slots: &SharedSlots, column: usize, limit: u32) -> bool {
        slots.try_take(column, limit, false) == SlotTry::Taken
    }

    fn rows(file: &CounterFile, len: usize) -> Vec<SharedSlots> {
        let rows = (0..len).map(|row| SharedSlots::shared(file.file(), row));
        rows.map(Result::unwrap).collect()
    }

    #[test]
    fn processes_share_a_limit() {
        let file = CounterFile::new().unwrap();
        let processes = rows(&file, 2);
        let [one, other] = &processes[..] else {
            panic!("two were made")
        };
        let column = one.column(77).unwrap();
        assert_eq!(other.column(77), Some(column));
        assert_ne!(one.column(78), Some(column));
        assert!(takes(one, column, 2));
        assert!(takes(other, column, 2));
        assert!(!takes(one, column, 2));
        assert!(!takes(other, column, 2));
        assert_eq!(one.count(column), 2);
        other.give_back(column);
        assert!(takes(one, column, 2));
    }

    #[test]
    fn the_last_one_goes_to_another_process_that_waits() {
        let file = CounterFile::new().unwrap();
        let processes = rows(&file, 2);
        let [one, other] = &processes[..] else {
            panic!("two were made")
        };
        let column = one.column(7).unwrap();
        assert_eq!(one.try_take(column, 1, true), SlotTry::Taken);
        one.give_back(column);
        assert_eq!(one.try_take(column, 1, true), SlotTry::Yielded);
        assert_eq!(other.try_take(column, 1, true), SlotTry::Taken);
        assert_eq!(one.try_take(column, 1, true), SlotTry::Full);
        other.give_back(column);
        assert_eq!(one.try_take(column, 1, true), SlotTry::Taken);
    }

    #[test]
    fn what_a_process_had_that_has_ended_is_free() {
        let file = CounterFile::new().unwrap();
        let processes = rows(&file, 2);
        let column = processes[0].column(7).unwrap();
        assert!(takes(&processes[0], column, 1));
        assert!(!takes(&processes[1], column, 1));
        processes[0].clear();
        assert!(takes(&processes[1], column, 1));
    }

    #[test]
    fn names_beyond_the_columns_have_none() {
        let slots = SharedSlots::private().unwrap();
        let found = (1..=COLUMNS as u64).filter_map(|name| slots.column(name));
        assert_eq!(found.count(), SharedSlots::NAMES_MAX);
        assert_eq!(slots.column(u64::MAX), None);
        assert!(slots.column(3).is_some());
    }

    #[test]
    fn a_column_that_no_process_names_is_free_for_another_name() {
        let file = CounterFile::new().unwrap();
        let processes = rows(&file, 2);
        let [one, other] = &processes[..] else {
            panic!("two were made")
        };
        let names = 1..=SharedSlots::NAMES_MAX as u64;
        let columns: Vec<_> = names.filter_map(|name| one.column(name)).collect();
        assert_eq!(columns.len(), SharedSlots::NAMES_MAX);
        let shared = columns[4];
        assert_eq!(other.column(5), Some(shared));
        // Again, by the same process: it names the column once.
        assert_eq!(one.column(5), Some(shared));
        one.release(shared);
        assert_eq!(one.column(1_000), None, "the other process names it yet");
        other.release(shared);
        assert_eq!(one.column(1_000), Some(shared));
    }

    #[test]
    fn a_process_that_has_ended_names_no_column() {
        let file = CounterFile::new().unwrap();
        let processes = rows(&file, 2);
        for name in 1..=SharedSlots::NAMES_MAX as u64 {
            let column = processes[0].column(name).unwrap();
            processes[0].set(column, 3);
        }
        assert_eq!(processes[1].column(1_000), None);
        processes[0].clear();
        let column = processes[1].column(1_000).unwrap();
        assert_eq!(processes[1].count(column), 0);
    }

    #[test]
    fn processes_that_claim_and_release_at_once_agree_on_a_column() {
        use std::sync::atomic::AtomicUsize;
        let file = CounterFile::new().unwrap();
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let fd = file.file().as_fd().try_clone_to_owned().unwrap();
        std::thread::scope(|scope| {
            for row in 0..4 {
                let (inside, most, fd) = (&inside, &most, fd.as_fd());
                scope.spawn(move || {
                    let slots = SharedSlots::shared(fd, row).unwrap();
                    for round in 0..2_000 {
                        // Leaves free columns in front of the one that all have.
                        let before = slots.column(100 + (round + row as u64) % 7).unwrap();
                        let column = slots.column(9).unwrap();
                        slots.release(before);
                        if takes(&slots, column, 1) {
                            let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                            most.fetch_max(now, Ordering::SeqCst);
                            inside.fetch_sub(1, Ordering::SeqCst);
                            slots.give_back(column);
                        }
                        slots.release(column);
                    }
                });
            }
        });
        assert_eq!(most.into_inner(), 1);
        let slots = SharedSlots::shared(fd.as_fd(), 0).unwrap();
        assert_eq!(slots.places(0).count(), SharedSlots::NAMES_MAX);
    }

    #[test]
    fn never_more_than_the_limit_are_taken_at_once() {
        use std::sync::atomic::AtomicUsize;
        let file = CounterFile::new().unwrap();
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let fd = file.file().as_fd().try_clone_to_owned().unwrap();
        std::thread::scope(|scope| {
            for row in 0..4 {
                let (inside, most, fd) = (&inside, &most, fd.as_fd());
                scope.spawn(move || {
                    let slots = SharedSlots::shared(fd, row).unwrap();
                    let column = slots.column(9).unwrap();
                    for _ in 0..20_000 {
                        if takes(&slots, column, 2) {
                            let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                            most.fetch_max(now, Ordering::SeqCst);
                            inside.fetch_sub(1, Ordering::SeqCst);
                            slots.give_back(column);
                        }
                    }
                });
            }
        });
        assert!((1..=2).contains(&most.into_inner()));
    }
}
