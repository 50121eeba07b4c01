//! Whatever happens in whatever order: no server beyond its limit, none of those that left, and always one to use.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Event {
    Ask { excluded: Option<usize>, key: u64 },
    End { number: usize, outcome: Outcome },
    Report { number: usize, load: LoadReport },
    Check { number: usize, result: CheckResult },
    Members { len: usize, first: usize },
    Pass { ms: u64 },
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        (0u64..500, prop::sample::select(vec![200, 500, 503])).prop_map(|(ms, status)| {
            Outcome::Served {
                latency: Nanos::from_ms(ms),
                status,
            }
        }),
        (0u64..20_000).prop_map(|ms| Outcome::Full {
            retry_after: Nanos::from_ms(ms)
        }),
        Just(Outcome::Failed(FailureKind::Connect)),
        Just(Outcome::Failed(FailureKind::Timeout)),
        Just(Outcome::Abandoned),
    ]
}

fn events(with_checks: bool) -> impl Strategy<Value = Event> {
    let result = match with_checks {
        true => prop::sample::select(vec![CheckResult::Passed, CheckResult::Failed]),
        false => prop::sample::select(vec![CheckResult::Passed]),
    };
    prop_oneof![
        8 => (prop::option::of(0usize..6), any::<u64>())
            .prop_map(|(excluded, key)| Event::Ask { excluded, key }),
        8 => (any::<usize>(), outcomes())
            .prop_map(|(number, outcome)| Event::End { number, outcome }),
        2 => (0usize..6, 0u32..9, 0u32..9, 0u32..9).prop_map(|(number, running, waiting, threads)| {
            let queue = Nanos::ZERO;
            Event::Report { number, load: LoadReport { running, waiting, threads, queue, round_trip: None } }
        }),
        1 => (0usize..6, result).prop_map(|(number, result)| Event::Check { number, result }),
        1 => (1usize..5, 0usize..3).prop_map(|(len, first)| Event::Members { len, first }),
        2 => (0u64..10_000).prop_map(|ms| Event::Pass { ms }),
    ]
}

fn rules() -> impl Strategy<Value = Rule> {
    prop::sample::select(vec![
        Rule::Queue,
        Rule::LeastConnections,
        Rule::TwoChoices,
        Rule::PeakEwma,
        Rule::Prequal,
        Rule::RoundRobin,
        Rule::Random,
        Rule::First,
        Rule::Hash,
        Rule::Sticky,
    ])
}

fn named(first: usize, len: usize) -> Vec<MemberSettings> {
    let numbers = first..first + len;
    let one = |number: usize| MemberSettings {
        weight: number as u32 % 3,
        backup: number == first + 3,
        ..member(&format!("s{number}"), number.is_multiple_of(2).then_some(3))
    };
    numbers.map(one).collect()
}

/// The group with what is in flight, checked at every step.
struct Run {
    group: Group,
    counters: Counters,
    taken: Vec<usize>,
    now: Stamp,
    rng: fastrand::Rng,
}

impl Run {
    fn new(rule: Rule) -> Run {
        let settings = GroupSettings {
            rule,
            eject_after: 2,
            ..GroupSettings::default()
        };
        Run {
            group: Group::new(settings, named(0, 4)),
            counters: Counters::new(16),
            taken: Vec::new(),
            now: at_ms(0),
            rng: fastrand::Rng::with_seed(1),
        }
    }

    fn step(&mut self, event: &Event) {
        match *event {
            Event::Ask { excluded, key } => self.ask(excluded, key),
            Event::End { number, outcome } if !self.taken.is_empty() => {
                let index = self.taken.swap_remove(number % self.taken.len());
                let in_flight = self.counters.in_flight(index);
                self.group.ended(index, self.now, in_flight, outcome);
                self.counters.release(index);
            }
            Event::End { .. } => {}
            Event::Report { number, load } => {
                self.group.reported(number, load);
            }
            Event::Check { number, result } => self.group.checked(number, self.now, result),
            Event::Members { len, first } => {
                self.group
                    .set_members(self.now, named(first, len), &self.counters);
            }
            Event::Pass { ms } => self.now = self.now.plus(Nanos::from_ms(ms)),
        }
    }

    fn ask(&mut self, excluded: Option<usize>, key: u64) {
        let names: Vec<String> = self.members().map(|(_, name)| name).collect();
        let excluded: Vec<usize> = excluded.into_iter().collect();
        let ask = Ask {
            excluded: &excluded,
            key_hash: Some(key),
            sticky: Some(&names[key as usize % names.len()]),
            waiting: key as u32 % 3,
            ..ask(self.now)
        };
        let free = self.group.free_slots(self.now, &self.counters);
        match self.group.choose(&ask, &self.counters, &mut self.rng) {
            Choice::Taken(index) => {
                let mut members = self.group.members();
                let (_, member) = members
                    .find(|(other, _)| *other == index)
                    .expect("it is there");
                assert!(!member.drains(), "{member:?} has left");
                assert!(!excluded.contains(&index));
                // A member that is not in use as a rule was tried with one request.
                let slots = self.group.slots(index, self.now).max(1);
                let in_flight = self.counters.in_flight(index);
                assert!(in_flight <= slots, "{in_flight} of {slots}: {member:?}");
                self.taken.push(index);
            }
            Choice::Wait => {}
            Choice::Nobody => assert!(!excluded.is_empty(), "there is always one to use"),
        }
        // Slots that are free are there to be taken, and none was taken out of nothing.
        let left = self.group.free_slots(self.now, &self.counters);
        assert!(left + 1 >= free, "{left} after {free}");
    }

    fn members(&self) -> impl Iterator<Item = (usize, String)> {
        let staying = self.group.members().filter(|(_, member)| !member.drains());
        staying.map(|(index, member)| (index, member.name().to_owned()))
    }
}

proptest! {
    #[test]
    fn no_server_has_more_than_its_limit_or_anything_after_it_left(
        rule in rules(),
        events in prop::collection::vec(events(true), 1..400),
    ) {
        let mut run = Run::new(rule);
        for event in events {
            run.step(&event);
        }
    }

    #[test]
    fn the_last_one_is_never_ejected(
        rule in rules(),
        events in prop::collection::vec(events(false), 1..400),
    ) {
        let mut run = Run::new(rule);
        for event in events {
            run.step(&event);
            let (mut out, mut len) = (0, 0);
            for (_, member) in run.group.members().filter(|(_, member)| !member.drains()) {
                len += 1;
                out += usize::from(member.health.is_out(run.now));
            }
            // Others may have left the group since an ejection.
            prop_assert!(run.group.total_slots(run.now) > 0);
            let has_been_resized = run.group.members().any(|(_, member)| member.started.is_some());
            prop_assert!(2 * out <= len || has_been_resized, "{out} of {len}");
        }
    }

    #[test]
    fn nothing_changes_before_the_next_change(
        rule in rules(),
        events in prop::collection::vec(events(true), 1..200),
    ) {
        let mut run = Run::new(rule);
        for event in events {
            run.step(&event);
            let next = run.group.next_change(run.now);
            prop_assert!(next > run.now);
            let last = Stamp(next.0.min(run.now.0 + 100_000_000_000) - 1);
            let of = |now| {
                let used: Vec<bool> = (0..6).map(|index| run.group.is_used(index, now)).collect();
                (used, run.group.total_slots(now), run.group.free_slots(now, &run.counters))
            };
            prop_assert_eq!(of(run.now), of(last));
        }
    }
}
