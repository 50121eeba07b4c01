//! Slots of upstream servers, counted for all processes of a host: whoever takes one sees what all others have.
//!
//! They lie at the beginning of the file of all counters. A server has a column, found by its name; each process has a
//! row, which it alone writes, and which is cleared when the process has ended, however it ended. Nothing here waits.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use os::{Mapping, invariant};

use super::segment::ALIGN_BYTES;

/// Processes at once.
pub(super) const ROWS: usize = 64;
/// Columns: servers and groups that there may have been since the supervisor started, behind the one that says how many
/// rows have been in use.
const COLUMNS: usize = 480;
/// The first row of this column is one more than the highest row that a process has had: those behind it are not summed.
const HEADER: usize = 0;
/// What the file begins with.
pub(super) const SLOTS_BYTES: u64 = 2 * ALIGN_BYTES;

const _: () = assert!(COLUMNS * size_of::<SlotColumn>() <= SLOTS_BYTES as usize);

/// What the processes have of one thing that is counted.
#[repr(C)]
pub(super) struct SlotColumn {
    /// A hash of its name, never 0; 0: nothing has this column.
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

    /// The column of a name, by its hash; `None`: all are taken by others.
    pub fn column(&self, name_hash: u64) -> Option<usize> {
        let name = name_hash.max(1);
        let usable = COLUMNS - 1;
        let first = (name % usable as u64) as usize;
        let places = (0..usable).map(|step| 1 + (first + step) % usable);
        places
            .map(|place| (place, &self.columns()[place].name))
            .find_map(|(place, known)| {
                let claimed = known.compare_exchange(0, name, Ordering::AcqRel, Ordering::Acquire);
                (claimed.is_ok() || claimed == Err(name)).then_some(place)
            })
    }

    /// What all processes have of it.
    pub fn count(&self, column: usize) -> u32 {
        let rows = self.rows(column).iter();
        rows.map(|row| row.load(Ordering::SeqCst)).sum()
    }

    /// Whether another process has any of it.
    pub fn others_have(&self, column: usize) -> bool {
        let mut rows = self.rows(column).iter().enumerate();
        rows.any(|(row, count)| row != self.row && count.load(Ordering::Relaxed) > 0)
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
        invariant!(before > 0, "a slot is given back that nobody has");
    }

    /// This process has so much of it.
    pub fn set(&self, column: usize, count: u32) {
        self.columns()[column].rows[self.row].store(count, Ordering::Relaxed);
    }

    /// The process of this row has ended, or has not begun.
    pub(super) fn clear(&self) {
        for column in &self.columns()[HEADER + 1..] {
            column.rows[self.row].store(0, Ordering::SeqCst);
        }
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
        assert_eq!(found.count(), COLUMNS - 1);
        assert_eq!(slots.column(u64::MAX), None);
        assert!(slots.column(3).is_some());
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
