//! More or fewer requests than were recorded.
//!
//! Takes a workload and a factor, gives another one with shorter or longer gaps. Shorter gaps are the worst case: real
//! clients wait for their replies, and bursts of pages do not come closer together when there are more readers.

use telemetry::Nanos;

use super::Workload;
use crate::Pause;

impl Workload {
    /// With `factor` times the rate; `factor` is above 0.
    pub fn scaled(&self, factor: f64) -> Workload {
        let at = |at: u64| (at as f64 / factor) as u64;
        let mut scaled = self.clone();
        for one in &mut scaled.kept {
            one.at = at(one.at);
        }
        // A pause lasts as long as ever, so that two may meet.
        scaled.pauses.clear();
        for pause in &self.pauses {
            let begin = at(pause.at.0);
            match scaled.pauses.last_mut() {
                Some(last) if last.at.0 + last.lasts.0 >= begin => {
                    last.lasts = Nanos(begin + pause.lasts.0 - last.at.0);
                }
                _ => scaled.pauses.push(Pause {
                    at: Nanos(begin),
                    lasts: pause.lasts,
                }),
            }
        }
        scaled
    }
}

#[cfg(test)]
mod tests {
    use super::super::Seen;
    use super::super::tests::{recording, seen};
    use super::*;
    use crate::Sharing;

    /// 500 pages of four requests each, one every 2 s.
    fn pages() -> Workload {
        let one = |index: u64| {
            seen(
                1 + index / 4 * 2_000_000 + index % 4 * 1_000,
                0,
                100 + index % 4,
            )
        };
        let all: Vec<Seen> = (0..2_000).map(one).collect();
        Workload::of(&recording(&all), None, Sharing::default(), &[], 1)
    }

    #[test]
    fn gaps_shrink_and_pauses_stay_as_long() {
        let mut workload = pages();
        let pause = |at, lasts| Pause {
            at: Nanos::from_secs(at),
            lasts: Nanos::from_secs(lasts),
        };
        workload.pauses = vec![pause(10, 3), pause(14, 1), pause(100, 2)];
        let found = workload.scaled(2.0);
        assert_eq!(found.len(), 2_000);
        assert_eq!(found.kept[1_999].at, workload.kept[1_999].at / 2);
        assert_eq!(found.pauses, [pause(5, 3), pause(50, 2)]);
    }
}
