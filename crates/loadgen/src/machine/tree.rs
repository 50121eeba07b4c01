//! Processes with their children, and what they took between two looks at them.
//!
//! Pure but for [`ProcessTree::look`]. A process's time is in its own line of `/proc` while it lives (or waits for its
//! parent), and in its parent's line when that has waited for it: so the time of those that come and go between
//! two looks is found with those that live. Only of a process whose parent does not wait for it (because it
//! ignores SIGCHLD) the time since the last look is lost.

use super::proc::{ProcReader, each_id, keyed};

/// A process at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ProcessUse {
    pub(super) id: u32,
    pub(super) parent: u32,
    /// Since the boot, in ticks: with it a process is told from a later one of the same id.
    pub(super) started: u64,
    /// Its own processor time, of threads that have ended too.
    pub(super) own_ticks: u64,
    /// That of children that it has waited for, and of theirs.
    pub(super) reaped_ticks: u64,
    pub(super) resident_pages: u64,
    /// It has ended, and its parent has not waited for it yet.
    pub(super) has_ended: bool,
}

impl ProcessUse {
    /// From a line of `/proc/PID/stat`.
    pub(super) fn of(stat: &str) -> Option<ProcessUse> {
        let id = stat.split_once(' ')?.0.parse().ok()?;
        // A program's name may hold anything, parentheses too.
        let mut words = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = words.next()?;
        let mut number = |skipped: usize| words.nth(skipped)?.parse::<u64>().ok();
        Some(ProcessUse {
            id,
            parent: u32::try_from(number(0)?).ok()?,
            own_ticks: number(9)? + number(0)?,
            reaped_ticks: number(0)? + number(0)?,
            started: number(4)?,
            resident_pages: number(1)?,
            has_ended: matches!(state, "Z" | "X"),
        })
    }

    fn is(&self, other: &ProcessUse) -> bool {
        (self.id, self.started) == (other.id, other.started)
    }
}

/// Context switches of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Switches {
    pub(super) process: u32,
    pub(super) thread: u32,
    pub(super) len: u64,
}

/// Some processes with all their children, at one time. Both lists are in the order of ids.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessTree {
    pub(super) processes: Vec<ProcessUse>,
    pub(super) switches: Vec<Switches>,
}

impl ProcessTree {
    /// Looks at the processes of `known` that still live, and at all their children and grandchildren.
    ///
    /// This process and its own children are no part of it, unless they are known.
    pub(super) fn look(&mut self, known: &[ProcessUse], reading: &mut ProcReader) {
        self.processes.clear();
        each_id("/proc", |id| {
            let stat = reading.text(format_args!("/proc/{id}/stat"));
            self.processes.extend(stat.and_then(ProcessUse::of));
        });
        self.processes.sort_unstable_by_key(|process| process.id);
        keep_family(&mut self.processes, known, std::process::id());
        self.switches.clear();
        for process in &self.processes {
            look_at_threads(process.id, &mut self.switches, reading);
        }
        self.switches
            .sort_unstable_by_key(|switches| (switches.process, switches.thread));
    }

    /// Processor time since `before`, in ticks.
    pub(super) fn ticks_since(&self, before: &ProcessTree) -> u64 {
        let taken =
            |now: &ProcessUse| match find(&before.processes, now.id).filter(|then| then.is(now)) {
                Some(then) => {
                    let reaped = now.reaped_ticks.saturating_sub(then.reaped_ticks);
                    now.own_ticks.saturating_sub(then.own_ticks)
                        + reaped.saturating_sub(self.known_of_reaped(then, before))
                }
                // It began since then, and all its children did.
                None => now.own_ticks + now.reaped_ticks,
            };
        self.processes.iter().map(taken).sum()
    }

    /// Context switches since `before`, of threads that live.
    pub(super) fn switches_since(&self, before: &ProcessTree) -> u64 {
        let grown = |now: &Switches| {
            let key = (now.process, now.thread);
            let place = before
                .switches
                .binary_search_by_key(&key, |then| (then.process, then.thread));
            let then = place.map_or(0, |place| before.switches[place].len);
            // Fewer than before: another thread with the same id.
            now.len.checked_sub(then).unwrap_or(now.len)
        };
        self.switches.iter().map(grown).sum()
    }

    /// Of the children of `parent` that are gone: what they had taken at the time of `before` already.
    fn known_of_reaped(&self, parent: &ProcessUse, before: &ProcessTree) -> u64 {
        let is_gone = |process: &ProcessUse| {
            !find(&self.processes, process.id).is_some_and(|now| now.is(process))
        };
        let gone = before.processes.iter().filter(|process| is_gone(process));
        let theirs = gone.filter(|process| {
            let mut above = find(&before.processes, process.parent);
            // Their next ancestor that lives has their time, whoever waited in between.
            while let Some(ancestor) = above.filter(|ancestor| is_gone(ancestor)) {
                above = find(&before.processes, ancestor.parent);
            }
            above.is_some_and(|ancestor| ancestor.is(parent))
        });
        theirs
            .map(|process| process.own_ticks + process.reaped_ticks)
            .sum()
    }
}

fn find(processes: &[ProcessUse], id: u32) -> Option<&ProcessUse> {
    let place = processes.binary_search_by_key(&id, |process| process.id);
    place.ok().map(|place| &processes[place])
}

/// Keeps the known ones, even with another parent by now, and all below them.
fn keep_family(all: &mut Vec<ProcessUse>, known: &[ProcessUse], own: u32) {
    let is_known = |process: &ProcessUse| known.iter().any(|known| known.is(process));
    let mut family: Vec<u32> = all
        .iter()
        .filter(|process| is_known(process))
        .map(|process| process.id)
        .collect();
    let mut looked = 0;
    while looked < family.len() {
        let parent = family[looked];
        looked += 1;
        let children = all
            .iter()
            .filter(|process| process.parent == parent && process.id != own);
        let new: Vec<u32> = children
            .map(|child| child.id)
            .filter(|id| !family.contains(id))
            .collect();
        family.extend(new);
    }
    all.retain(|process| family.contains(&process.id));
}

fn look_at_threads(process: u32, into: &mut Vec<Switches>, reading: &mut ProcReader) {
    each_id(&format!("/proc/{process}/task"), |thread| {
        let status = reading.text(format_args!("/proc/{process}/task/{thread}/status"));
        let both = status.and_then(|text| {
            Some(
                keyed(text, "voluntary_ctxt_switches")?
                    + keyed(text, "nonvoluntary_ctxt_switches")?,
            )
        });
        into.extend(both.map(|len| Switches {
            process,
            thread,
            len,
        }));
    });
}
