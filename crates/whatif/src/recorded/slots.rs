//! Which processes of a log took the place of others: after a reload, a restart or a crash a process has another name,
//! and the server has no more of them than before.
//!
//! Takes the requests of each process and gives each a slot. Two that served at the same time never share one.

use super::Kept;

/// A reload lets the old processes finish what they have begun: `drain_timeout` by default.
const HANDOVER_NS: u64 = 30_000_000_000;
/// Where a process served so briefly that this is no small part of its time, the part that is.
const HANDOVER_PART: u64 = 10;

/// From the first arrival at a process to the end of its last run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    first: u64,
    last: u64,
}

/// Gives each request the slot of its process; `names` has the number of its name.
pub(super) fn assign(kept: &mut [Kept], names: &[u16]) {
    assert_eq!(kept.len(), names.len(), "each request has a process");
    let mut lives: Vec<Option<Life>> = Vec::new();
    for (one, name) in kept.iter().zip(names) {
        let name = usize::from(*name);
        if lives.len() <= name {
            lives.resize(name + 1, None);
        }
        let life = lives[name].get_or_insert(Life {
            first: one.at,
            last: one.ended(),
        });
        life.first = life.first.min(one.at);
        life.last = life.last.max(one.ended());
    }
    let slots = slots(&lives);
    for (one, name) in kept.iter_mut().zip(names) {
        one.process = slots[usize::from(*name)];
    }
}

fn slots(lives: &[Option<Life>]) -> Vec<u8> {
    let mut order: Vec<(Life, usize)> = lives
        .iter()
        .enumerate()
        .filter_map(|(name, life)| Some(((*life)?, name)))
        .collect();
    order.sort_unstable_by_key(|(life, name)| (life.first, *name));
    let mut slots = vec![0; lives.len()];
    // The last process of each slot.
    let mut taken: Vec<Life> = Vec::new();
    for (life, name) in order {
        let free = (0..taken.len()).filter(|slot| follows(taken[*slot], life));
        // The one that ended last is the likeliest.
        let slot = free
            .max_by_key(|slot| taken[*slot].last)
            .unwrap_or(taken.len());
        match taken.get_mut(slot) {
            Some(last) => *last = life,
            None => taken.push(life),
        }
        slots[name] = u8::try_from(slot).unwrap_or(u8::MAX);
    }
    slots
}

/// Whether `new` may have taken the place of `old`.
fn follows(old: Life, new: Life) -> bool {
    let both = old.last.saturating_sub(new.first);
    let shorter = (old.last - old.first).min(new.last.saturating_sub(new.first));
    both <= HANDOVER_NS.min(shorter / HANDOVER_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[track_caller]
    fn check(lives: &[(u64, u64)], expect: &[u8]) {
        let life = |(first, last): &(u64, u64)| {
            Some(Life {
                first: first * S,
                last: last * S,
            })
        };
        let lives: Vec<Option<Life>> = lives.iter().map(life).collect();
        assert_eq!(slots(&lives), expect);
    }

    #[test]
    fn processes_that_served_together_have_slots_of_their_own() {
        check(&[], &[]);
        check(&[(0, 60)], &[0]);
        check(&[(0, 60), (1, 59)], &[0, 1]);
        // Half a minute is no reload.
        check(&[(0, 60), (30, 90)], &[0, 1]);
    }

    #[test]
    fn a_process_that_replaces_another_has_its_slot() {
        // Restarts, a reload that overlaps, a crash of one of two.
        check(&[(0, 60), (61, 100), (100, 900)], &[0, 0, 0]);
        check(
            &[(0, 600), (0, 601), (599, 1200), (600, 1201)],
            &[0, 1, 1, 0],
        );
        check(&[(0, 600), (1, 100), (103, 600)], &[0, 1, 1]);
        // The overlap is most of what the second one has done.
        check(&[(0, 600), (597, 602)], &[0, 1]);
    }

    #[test]
    fn more_than_there_are_numbers_share_the_last() {
        let many: Vec<(u64, u64)> = (0..300).map(|one| (one, 9_000)).collect();
        let mut expect: Vec<u8> = (0..=u8::MAX).collect();
        expect.resize(300, u8::MAX);
        check(&many, &expect);
    }
}
