//! Arrivals that are known to the second only, spread over it.
//!
//! Takes requests in the order of their log, gives each a likely time within its second. A log is written when
//! requests have ended, so its order is the order of the ends, and from that follow an earliest and a latest
//! end for each. The time between the two stays a guess, which the caller reports.

use super::Kept;

const SECOND_NS: u64 = 1_000_000_000;

/// Spreads `kept`, whose times are whole seconds and what passed since. `rests_s` are the seconds between the
/// end of each on its thread and its line.
pub(super) fn spread(kept: &mut [Kept], rests_s: &[f32]) {
    let logged = |index: usize, kept: &Kept| {
        kept.ended()
            .saturating_add((f64::from(rests_s[index]).max(0.0) * 1e9) as u64)
    };
    let bounds = bounds(kept, logged);
    let mut from = 0;
    while from < kept.len() {
        let to = group_end(&bounds, from);
        let len = (to - from) as u64;
        for index in from..to {
            let (earliest, latest) = bounds[index];
            // In the middles of equal parts, so that the last of one group is as far from the first of the next.
            let place = (2 * (index - from) as u64 + 1) * ((latest - earliest) / (2 * len));
            kept[index].at += earliest + place - logged(index, &kept[index]);
        }
        from = to;
    }
}

/// When each was logged: not before it would have been if it had begun with its second, nor before its
/// predecessor; not after it would have been at the end of its second, nor after its successor.
fn bounds(kept: &[Kept], logged: impl Fn(usize, &Kept) -> u64) -> Vec<(u64, u64)> {
    let mut last = 0;
    let one = |(index, one): (usize, &Kept)| {
        let least = logged(index, one);
        // A line that is late, because several processes write, does not push the rest.
        last = if last < least + SECOND_NS {
            last.max(least)
        } else {
            least
        };
        (last, least + SECOND_NS - 1)
    };
    let mut bounds: Vec<(u64, u64)> = kept.iter().enumerate().map(one).collect();
    let mut next = u64::MAX;
    for (earliest, latest) in bounds.iter_mut().rev() {
        if next >= *earliest {
            *latest = next.min(*latest);
        }
        next = *latest;
    }
    bounds
}

/// Requests whose ends have about the same bounds.
fn group_end(bounds: &[(u64, u64)], from: usize) -> usize {
    let second = |bounds: &(u64, u64)| bounds.0 / SECOND_NS;
    let rest = &bounds[from..];
    from + rest
        .iter()
        .take_while(|one| second(one) == second(&rest[0]))
        .count()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{recording, seen};
    use super::*;

    fn arrivals_ms(all: &[(u64, u64)]) -> Vec<u64> {
        let all: Vec<_> = all
            .iter()
            .map(|(second, run_ms)| seen(second * 1_000_000, 0, run_ms * 1_000))
            .collect();
        let found = recording(&all);
        assert!(found.is_by_second());
        found.kept.iter().map(|kept| kept.at / 1_000_000).collect()
    }

    #[test]
    fn short_ones_of_a_second_are_spread_over_it() {
        let all: Vec<(u64, u64)> = (0..10).map(|_| (0, 1)).collect();
        let found = arrivals_ms(&all);
        assert!(
            found
                .windows(2)
                .all(|pair| (90..=110).contains(&(pair[1] - pair[0]))),
            "{found:?}"
        );
    }

    #[test]
    fn none_leaves_its_second() {
        let all: Vec<(u64, u64)> = (0..200)
            .map(|index| (index / 20, index % 7 * 150))
            .collect();
        let kept = {
            let mut recorder = super::super::Recorder::default();
            recorder.begin();
            for (second, run_ms) in &all {
                recorder
                    .push(&seen(second * 1_000_000, 0, run_ms * 1_000))
                    .unwrap();
            }
            let mut kept = recorder.kept.clone();
            spread(&mut kept, &recorder.rests_s);
            kept
        };
        for (one, (second, _)) in kept.iter().zip(&all) {
            let at = one.at - super::super::tests::DAY_NS;
            assert_eq!(at / SECOND_NS, *second);
        }
    }

    #[test]
    fn who_ends_after_a_long_one_began_late_enough() {
        // The second line is written after the first, which cannot have ended before 900 ms.
        let found = arrivals_ms(&[(0, 900), (0, 1)]);
        assert!(found[1] >= found[0] + 890, "{found:?}");
    }
}
