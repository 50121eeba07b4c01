//! More or fewer requests than were recorded.
//!
//! Takes a workload and a factor, gives another one. Shrinking the gaps is the pessimistic case: real clients
//! wait for their replies, and bursts of pages do not come closer together when there are more readers. Drawing
//! whole sessions says what more clients of the same kind would do.

use std::collections::BTreeMap;

use telemetry::Nanos;

use super::Workload;
use crate::Pause;

/// How there come to be more or fewer requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scale {
    /// All gaps between arrivals shrink or grow.
    #[default]
    Gaps,
    /// Sessions of clients are drawn, some several times or not at all.
    Sessions,
}

/// Why sessions cannot be drawn: nearly all requests came from one client, which must be a proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScaleFault;

/// A client that was silent for so long begins another session.
const SILENCE: Nanos = Nanos::from_secs(30 * 60);
/// A session that is there once more begins so much earlier or later.
const SHIFT: Nanos = Nanos::from_secs(60);
/// One client with a larger share of all requests is a proxy.
const CLIENT_SHARE_MAX: f64 = 0.5;

impl Workload {
    /// With `factor` times the rate; `factor` is above 0.
    ///
    /// # Errors
    /// Sessions are wished, and there are none.
    pub fn scaled(&self, factor: f64, scale: Scale, seed: u64) -> Result<Workload, ScaleFault> {
        match scale {
            _ if factor == 1.0 => Ok(self.clone()),
            Scale::Gaps => Ok(self.with_gaps(factor)),
            Scale::Sessions => self.with_sessions(factor, seed),
        }
    }

    fn with_gaps(&self, factor: f64) -> Workload {
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

    fn with_sessions(&self, factor: f64, seed: u64) -> Result<Workload, ScaleFault> {
        let sessions = self.sessions()?;
        let span = self.kept.last().map_or(0, |one| one.at) + 1;
        let mut random = fastrand::Rng::with_seed(seed);
        let mut kept = Vec::with_capacity((self.kept.len() as f64 * factor) as usize);
        for session in sessions {
            let copies = factor.floor() as usize + usize::from(random.f64() < factor.fract());
            for copy in 0..copies {
                let shift = match copy {
                    0 => 0,
                    // Up to a minute earlier or later. The span is added so that nothing goes below zero; the remainder
                    // below takes it away again.
                    _ => random.u64(0..=2 * SHIFT.0) + span - SHIFT.0 % span,
                };
                let shifted = session.iter().map(|index| {
                    let mut one = self.kept[*index as usize];
                    // What leaves the recording at one end comes in at the other, or its ends would fray.
                    one.at = (one.at + shift) % span;
                    one
                });
                kept.extend(shifted);
            }
        }
        kept.sort_by_key(|one| one.at);
        Ok(Workload {
            kept,
            pauses: self.pauses.clone(),
        })
    }

    /// Requests of each session, by their indexes.
    fn sessions(&self) -> Result<Vec<Vec<u32>>, ScaleFault> {
        // The open session of each client, and how many requests it made in all.
        let mut clients: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        let mut sessions: Vec<Vec<u32>> = Vec::new();
        for (index, one) in (0u32..).zip(&self.kept) {
            let (open, len) = clients.entry(one.client).or_insert((usize::MAX, 0));
            *len += 1;
            let goes_on = sessions
                .get(*open)
                .and_then(|session| session.last())
                .is_some_and(|last| one.at - self.kept[*last as usize].at < SILENCE.0);
            if !goes_on {
                *open = sessions.len();
                sessions.push(Vec::new());
            }
            sessions[*open].push(index);
        }
        let most = clients.values().map(|(_, len)| *len).max().unwrap_or(0);
        match most as f64 > self.kept.len() as f64 * CLIENT_SHARE_MAX {
            true => Err(ScaleFault),
            false => Ok(sessions),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Seen;
    use super::super::tests::{recording, seen};
    use super::*;
    use crate::Sharing;

    /// 500 clients, a page of four requests each, one every 2 s.
    fn pages() -> Workload {
        let one = |index: u64| Seen {
            client: (index / 4) as u32,
            ..seen(
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
        let found = workload.scaled(2.0, Scale::Gaps, 1).unwrap();
        assert_eq!(found.len(), 2_000);
        assert_eq!(found.kept[1_999].at, workload.kept[1_999].at / 2);
        assert_eq!(found.pauses, [pause(5, 3), pause(50, 2)]);
    }

    #[test]
    fn sessions_are_drawn_as_wholes() {
        for factor in [0.5, 1.5, 3.0] {
            let found = pages().scaled(factor, Scale::Sessions, 3).unwrap();
            let expect = 2_000.0 * factor;
            assert!(
                (found.len() as f64 - expect).abs() < 0.15 * expect,
                "{}",
                found.len()
            );
            assert!(found.kept.is_sorted_by_key(|one| one.at));
            let last = |workload: &Workload| workload.kept.last().map(|one| one.at);
            assert!(last(&found) <= last(&pages()));
            let at_begin = found.kept.iter().filter(|one| one.at == 0).count();
            assert!(at_begin < 20, "{at_begin}");
            let mut by_client: BTreeMap<u32, usize> = BTreeMap::new();
            for one in &found.kept {
                *by_client.entry(one.client).or_default() += 1;
            }
            assert!(by_client.values().all(|len| len % 4 == 0), "{by_client:?}");
        }
    }

    #[test]
    fn a_proxy_has_no_sessions() {
        let all: Vec<Seen> = (0..100).map(|index| seen(1 + index, 0, 1)).collect();
        let workload = Workload::of(&recording(&all), None, Sharing::default(), &[], 1);
        assert_eq!(
            workload.scaled(2.0, Scale::Sessions, 1).unwrap_err(),
            ScaleFault
        );
        assert_eq!(workload.scaled(1.0, Scale::Sessions, 1).unwrap().len(), 100);
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let once = || pages().scaled(1.5, Scale::Sessions, 9).unwrap().kept;
        assert_eq!(once(), once());
    }
}
