//! What each rule gives, and what each outcome does, case by case.

use super::*;

struct Case {
    group: Group,
    counters: Counters,
    rng: fastrand::Rng,
}

impl Case {
    fn new(settings: GroupSettings, members: Vec<MemberSettings>) -> Case {
        Case {
            counters: Counters::new(members.len() + 4),
            group: Group::new(settings, members),
            rng: fastrand::Rng::with_seed(3),
        }
    }

    fn of(rule: Rule, len: usize, slots: u32) -> Case {
        let settings = GroupSettings {
            rule,
            ..GroupSettings::default()
        };
        Case::new(settings, members(len, Some(slots)))
    }

    fn choose(&mut self, ask: &Ask<'_>) -> Choice {
        self.group.choose(ask, &self.counters, &mut self.rng)
    }

    fn at(&mut self, ms: u64) -> Choice {
        self.choose(&ask(at_ms(ms)))
    }

    fn take(&mut self, member: usize, len: u32) {
        (0..len).for_each(|_| assert!(self.counters.try_take(member, u32::MAX)));
    }

    fn end(&mut self, member: usize, ms: u64, outcome: Outcome) {
        let in_flight = self.counters.in_flight(member);
        self.group.ended(member, at_ms(ms), in_flight, outcome);
        if in_flight > 0 {
            self.counters.release(member);
        }
    }

    fn fail(&mut self, member: usize, ms: u64, times: usize) {
        (0..times).for_each(|_| self.end(member, ms, Outcome::Failed(FailureKind::Connect)));
    }

    fn slots(&self, member: usize, ms: u64) -> u32 {
        self.group.slots(member, at_ms(ms))
    }
}

#[test]
fn a_request_waits_when_all_slots_are_in_use() {
    let mut case = Case::of(Rule::Queue, 2, 2);
    for _ in 0..4 {
        assert!(matches!(case.at(0), Choice::Taken(_)));
    }
    assert_eq!(case.at(0), Choice::Wait);
    case.end(1, 1, served(1));
    assert_eq!(case.at(1), Choice::Taken(1));
    let both = Ask {
        excluded: &[0, 1],
        ..ask(at_ms(1))
    };
    assert_eq!(case.choose(&both), Choice::Nobody);
    let mut nobody = Case::of(Rule::Queue, 0, 1);
    assert_eq!(nobody.at(0), Choice::Nobody);
}

#[test]
fn the_queue_rule_takes_the_least_part_of_the_slots() {
    let settings = vec![member("a", Some(4)), member("b", Some(8))];
    let mut case = Case::new(GroupSettings::default(), settings);
    case.take(0, 2);
    case.take(1, 4);
    // 3 of 4 and 5 of 8, 3 of 4 and 6 of 8.
    assert_eq!(case.at(0), Choice::Taken(1));
    case.take(1, 2);
    assert_eq!(case.at(0), Choice::Taken(0));
}

#[test]
fn least_connections_go_by_weight() {
    let settings = GroupSettings {
        rule: Rule::LeastConnections,
        ..GroupSettings::default()
    };
    let heavy = MemberSettings {
        weight: 3,
        ..member("b", Some(100))
    };
    let mut case = Case::new(settings, vec![member("a", Some(100)), heavy]);
    (0..40).for_each(|_| _ = case.at(0));
    assert_eq!(case.counters.in_flight(1), 30);
}

#[test]
fn turns_are_spread_and_by_weight() {
    let settings = GroupSettings {
        rule: Rule::RoundRobin,
        ..GroupSettings::default()
    };
    let weighted = |name: &str, weight| MemberSettings {
        weight,
        ..member(name, None)
    };
    let mut case = Case::new(
        settings,
        vec![weighted("a", 3), weighted("b", 1), weighted("c", 1)],
    );
    let mut found = Vec::new();
    for ms in 0..10 {
        let Choice::Taken(index) = case.at(ms) else {
            panic!("all are free");
        };
        found.push(index);
        case.end(index, ms, served(0));
    }
    assert_eq!(found, [0, 1, 0, 2, 0, 0, 1, 0, 2, 0]);
}

#[test]
fn the_first_is_filled_before_the_next() {
    let mut case = Case::of(Rule::First, 3, 2);
    let found: Vec<Choice> = (0..6).map(|_| case.at(0)).collect();
    assert_eq!(found, [0, 0, 1, 1, 2, 2].map(Choice::Taken));
}

#[test]
fn a_key_stays_with_its_server_until_that_has_too_many() {
    let mut case = Case::of(Rule::Hash, 8, 200);
    let keyed = |key| Ask {
        key_hash: Some(key),
        ..ask(at_ms(0))
    };
    let Choice::Taken(home) = case.choose(&keyed(5)) else {
        panic!("all are free");
    };
    for key in 0..800 {
        let Choice::Taken(index) = case.choose(&keyed(key)) else {
            panic!("all are free");
        };
        if key == 5 {
            assert_eq!(index, home);
        }
    }
    // 801 on 8: 1.25 times the mean at most.
    for index in 0..8 {
        let load = case.counters.in_flight(index);
        assert!((50..=126).contains(&load), "{load}");
    }
    // One key that everybody asks for does not fill its server either.
    (0..400).for_each(|_| _ = case.choose(&keyed(5)));
    assert!(case.counters.in_flight(home) <= 188);
}

#[test]
fn few_keys_move_when_a_server_leaves() {
    let homes = |len| {
        let mut case = Case::of(Rule::Hash, len, 100);
        let mut home = |key| {
            let keyed = Ask {
                key_hash: Some(key),
                ..ask(at_ms(0))
            };
            let Choice::Taken(index) = case.choose(&keyed) else {
                panic!("all are free");
            };
            case.counters.release(index);
            index
        };
        (0..1_000).map(&mut home).collect::<Vec<usize>>()
    };
    let (before, after) = (homes(8), homes(7));
    let pairs = before.iter().zip(&after);
    let moved = pairs.filter(|(before, after)| **before != 7 && before != after);
    assert_eq!(moved.count(), 0);
}

#[test]
fn a_bound_client_waits_for_its_server_and_leaves_a_dead_one() {
    let mut case = Case::of(Rule::Sticky, 3, 1);
    let bound = |ms| Ask {
        sticky: Some("s1"),
        ..ask(at_ms(ms))
    };
    assert_eq!(case.choose(&bound(0)), Choice::Taken(1));
    assert_eq!(case.choose(&bound(0)), Choice::Wait);
    assert!(matches!(case.at(0), Choice::Taken(0 | 2)));
    case.fail(1, 0, 5);
    assert!(matches!(case.choose(&bound(0)), Choice::Taken(0 | 2)));
}

#[test]
fn prequal_avoids_the_hot_and_takes_the_fastest_of_the_cold() {
    let mut case = Case::of(Rule::Prequal, 3, 1_000);
    for (member, ms) in [(0, 30), (1, 10), (2, 20)] {
        case.take(member, 20);
        (0..20).for_each(|_| case.end(member, 0, served(ms)));
    }
    assert_eq!(case.at(1), Choice::Taken(1));
    // Half have 5 and the others 20 when 64 are looked at: more than 20 are many.
    case.take(0, 5);
    case.take(1, 20);
    case.take(2, 20);
    for _ in 0..200 {
        let Choice::Taken(index) = case.at(1) else {
            panic!("all have slots");
        };
        case.counters.release(index);
    }
    assert_eq!(case.at(1), Choice::Taken(1));
    case.take(1, 30);
    assert_eq!(case.at(1), Choice::Taken(2));
    case.take(2, 30);
    assert_eq!(case.at(1), Choice::Taken(0));
    case.take(0, 30);
    // All are hot: the fewest.
    assert_eq!(case.at(1), Choice::Taken(0));
}

#[test]
fn peak_ewma_leaves_a_server_after_one_slow_response() {
    let mut case = Case::of(Rule::PeakEwma, 2, 100);
    for member in [0, 1] {
        (0..20).for_each(|_| case.end(member, 0, served(10)));
    }
    case.end(0, 1, served(2_000));
    (0..100).for_each(|_| assert_eq!(case.at(2), Choice::Taken(1)));
}

#[test]
fn backups_are_for_when_no_other_is_good() {
    let backup = MemberSettings {
        backup: true,
        ..member("b", Some(9))
    };
    let mut case = Case::new(GroupSettings::default(), vec![member("a", Some(1)), backup]);
    assert_eq!(case.at(0), Choice::Taken(0));
    assert_eq!(case.at(0), Choice::Wait);
    assert_eq!(case.group.total_slots(at_ms(0)), 1);
    case.fail(0, 0, 5);
    assert_eq!(case.at(0), Choice::Taken(1));
    assert_eq!(case.group.total_slots(at_ms(0)), 9);
    assert_eq!(case.at(30_000), Choice::Taken(0));
}

#[test]
fn there_is_another_server_where_one_would_be_waited_for() {
    let settings = GroupSettings {
        eject_after: 1,
        ..GroupSettings::default()
    };
    let mut servers = members(3, Some(1));
    servers[2].backup = true;
    let mut case = Case::new(settings, servers);
    let check = |case: &mut Case, excluded: &[usize], expect: Choice| {
        let has_other = case.group.has_other(at_ms(1), excluded);
        assert_eq!(has_other, expect != Choice::Nobody, "{excluded:?}");
        let found = case.choose(&Ask {
            excluded,
            ..ask(at_ms(1))
        });
        assert_eq!(found, expect, "{excluded:?}");
    };
    check(&mut case, &[0], Choice::Taken(1));
    // It is full by now.
    check(&mut case, &[0], Choice::Wait);
    check(&mut case, &[0, 1], Choice::Nobody);
    case.end(1, 1, Outcome::Failed(FailureKind::Connect));
    check(&mut case, &[0], Choice::Nobody);
}

#[test]
fn half_may_be_ejected_and_the_others_are_tried_once_a_second() {
    let mut case = Case::of(Rule::Queue, 4, 2);
    (0..3).for_each(|member| case.fail(member, 0, 5));
    let is_out = |case: &Case, index: usize| {
        let mut members = case.group.members();
        let (_, member) = members
            .find(|(other, _)| *other == index)
            .expect("it is there");
        member.health.is_out(at_ms(0))
    };
    assert_eq!(
        [0, 1, 2, 3].map(|index| is_out(&case, index)),
        [true, true, false, false]
    );
    // The good one first, although the others have nothing to do.
    assert_eq!(case.at(500), Choice::Taken(3));
    assert_eq!(case.at(500), Choice::Taken(3));
    assert_eq!(case.at(500), Choice::Wait);
    let Choice::Taken(tried) = case.at(1_000) else {
        panic!("a second is over");
    };
    assert!(tried < 3);
    case.fail(tried, 1_001, 1);
    // A success brings it back.
    let Choice::Taken(tried) = case.at(1_500) else {
        panic!("there are two more");
    };
    case.end(tried, 1_600, served(100));
    assert!(case.group.is_used(tried, at_ms(1_600)));
    assert_eq!(case.at(1_600), Choice::Taken(tried));
}

#[test]
fn the_only_server_is_used_whatever_it_does() {
    let mut case = Case::of(Rule::Queue, 1, 4);
    case.fail(0, 0, 50);
    assert_eq!(case.at(0), Choice::Taken(0));
    assert_eq!(case.slots(0, 0), 4);
    for _ in 0..5 {
        case.group.checked(0, at_ms(0), CheckResult::Failed);
    }
    assert_eq!(case.at(0), Choice::Taken(0));
}

#[test]
fn what_an_application_answers_is_no_failure_of_its_server() {
    let check = |status, times, expect| {
        let mut case = Case::of(Rule::Queue, 3, 4);
        let latency = Nanos::from_ms(1);
        (0..times).for_each(|_| case.end(0, 0, Outcome::Served { latency, status }));
        assert_eq!(case.group.is_used(0, at_ms(0)), expect, "{status}");
    };
    check(500, 100, true);
    check(404, 100, true);
    check(501, 100, true);
    check(502, 4, true);
    check(502, 5, false);
    check(503, 5, false);
    check(504, 5, false);
    check(505, 5, true);
    let mut case = Case::of(Rule::Queue, 3, 4);
    (0..100).for_each(|_| case.end(0, 0, Outcome::Abandoned));
    let retry_after = Nanos::from_secs(2);
    (0..100).for_each(|_| case.end(0, 0, Outcome::Full { retry_after }));
    assert!(case.group.is_used(0, at_ms(0)));
}

#[test]
fn a_failure_at_once_attracts_nothing() {
    let mut case = Case::of(Rule::LeastConnections, 4, 100);
    case.take(1, 2);
    case.take(2, 2);
    case.take(3, 2);
    case.fail(0, 0, 3);
    assert!(matches!(case.at(0), Choice::Taken(1..=3)));
}

#[test]
fn a_full_server_has_fewer_slots_for_as_long_as_it_asks_for() {
    let mut case = Case::of(Rule::Queue, 2, 8);
    case.take(0, 5);
    let retry_after = Nanos::from_secs(3);
    case.end(0, 0, Outcome::Full { retry_after });
    assert_eq!(case.slots(0, 2_999), 4);
    assert_eq!(case.group.next_change(at_ms(0)), at_ms(3_000));
    case.end(
        0,
        1_000,
        Outcome::Full {
            retry_after: Nanos::ZERO,
        },
    );
    assert_eq!(case.slots(0, 1_000), 3);
    assert_eq!(case.slots(0, 1_100), 8);
}

#[test]
fn slots_grow_from_one_where_others_are_warm() {
    let mut case = Case::of(Rule::Queue, 2, 16);
    case.fail(0, 0, 5);
    let check = |case: &Case, ms, expect| assert_eq!(case.slots(0, ms), expect, "at {ms}");
    check(&case, 29_999, 0);
    check(&case, 30_000, 1);
    check(&case, 31_999, 1);
    assert_eq!(case.group.next_change(at_ms(30_000)), at_ms(32_000));
    check(&case, 32_000, 2);
    check(&case, 59_999, 15);
    check(&case, 60_000, 16);
    // Nobody else is there to take the rest.
    case.fail(1, 30_000, 5);
    check(&case, 30_001, 16);
}

#[test]
fn a_server_that_becomes_warm_slows_others_down() {
    let mut case = Case::of(Rule::Queue, 2, 1);
    case.fail(0, 0, 5);
    let next = vec![member("s0", Some(1)), member("new", Some(4))];
    case.take(1, 1);
    case.group.set_members(at_ms(31_000), next, &case.counters);
    assert_eq!(case.slots(2, 59_999), 4);
    assert_eq!(case.group.next_change(at_ms(58_999)), at_ms(60_000));
    assert_eq!(case.slots(2, 60_000), 3);
}

#[test]
fn members_stay_come_and_go() {
    let mut case = Case::of(Rule::First, 2, 4);
    assert_eq!(case.at(0), Choice::Taken(0));
    let names = |case: &Case| -> Vec<(usize, String, bool)> {
        let members = case.group.members();
        members
            .map(|(index, member)| (index, member.name().to_owned(), member.drains()))
            .collect()
    };
    let next = vec![member("s1", Some(4)), member("new", Some(4))];
    case.group.set_members(at_ms(1), next, &case.counters);
    let expect = [(0, "s0", true), (1, "s1", false), (2, "new", false)];
    assert_eq!(
        names(&case),
        expect.map(|(index, name, drains)| (index, name.to_owned(), drains))
    );
    assert_eq!(case.at(1), Choice::Taken(1));
    assert_eq!((case.slots(1, 1), case.slots(2, 1)), (4, 1));
    case.end(0, 2, served(2));
    let next = vec![member("s1", Some(4)), member("last", None)];
    case.group.set_members(at_ms(3), next, &case.counters);
    let expect = [(0, "last", false), (1, "s1", false)];
    assert_eq!(
        names(&case),
        expect.map(|(index, name, drains)| (index, name.to_owned(), drains))
    );
}

#[test]
fn slots_follow_a_report_unless_they_are_set() {
    let settings = vec![member("a", None), member("b", Some(6))];
    let mut case = Case::new(GroupSettings::default(), settings);
    assert_eq!((case.slots(0, 0), case.slots(1, 0)), (8, 6));
    let load = LoadReport {
        running: 3,
        waiting: 1,
        threads: 4,
        queue: Nanos::ZERO,
        round_trip: None,
    };
    (0..2).for_each(|member| case.group.reported(member, load));
    assert_eq!((case.slots(0, 0), case.slots(1, 0)), (4, 6));
    // A report without threads says nothing about slots.
    case.group.reported(0, LoadReport { threads: 0, ..load });
    assert_eq!(case.slots(0, 0), 8);
    case.group.reported(
        0,
        LoadReport {
            threads: u32::MAX,
            ..load
        },
    );
    assert_eq!(case.slots(0, 0), 256);
}

#[test]
fn a_distant_server_gets_as_many_more_as_are_under_way() {
    let mut case = Case::new(GroupSettings::default(), members(1, None));
    let report = |case: &mut Case, round_trip_ms| {
        for _ in 0..300 {
            let load = LoadReport {
                threads: 4,
                round_trip: Some(Nanos::from_ms(round_trip_ms)),
                ..LoadReport::default()
            };
            case.group.reported(0, load);
        }
    };
    for _ in 0..3_000 {
        let latency = Nanos::from_ms(30);
        case.end(
            0,
            0,
            Outcome::Served {
                latency,
                status: 200,
            },
        );
    }
    // While 10 ms of 30 are spent there, two of three requests are on their way.
    for (way_ms, slots) in [(20, 12), (0, 4), (15, 8)] {
        report(&mut case, way_ms);
        assert_eq!(case.slots(0, 0), slots, "{way_ms} ms");
    }
}

#[test]
fn a_fast_server_gets_requests_ahead_of_its_threads() {
    let mut case = Case::new(GroupSettings::default(), members(1, None));
    let load = LoadReport {
        threads: 4,
        ..LoadReport::default()
    };
    case.group.reported(0, load);
    let check = |case: &mut Case, latency_us, expect| {
        let latency = Nanos::from_us(latency_us);
        for _ in 0..3_000 {
            case.end(
                0,
                0,
                Outcome::Served {
                    latency,
                    status: 200,
                },
            );
        }
        assert_eq!(case.slots(0, 0), expect, "{latency_us} µs");
    };
    check(&mut case, 20_000, 4);
    check(&mut case, 800, 5);
    check(&mut case, 200, 8);
    check(&mut case, 1, 20);
}

#[test]
fn an_end_that_nobody_told_does_not_make_a_server_slow() {
    let mut case = Case::of(Rule::Queue, 2, 4);
    for member in [0, 1] {
        (0..20).for_each(|_| case.end(member, 0, served(10)));
    }
    // Its slot was given back, and nobody said how it ended.
    let Choice::Taken(lost) = case.at(0) else {
        panic!("all are free");
    };
    case.counters.release(lost);
    let other = 1 - lost;
    case.take(other, 1);
    assert_eq!(case.at(60_000), Choice::Taken(lost));
    // One that is in flight for so long does.
    assert_eq!(case.at(61_000), Choice::Taken(other));
}

#[test]
fn another_process_may_be_faster() {
    /// The first member's last slot is gone when it is asked for.
    struct Raced;
    impl SlotCounters for Raced {
        fn in_flight(&self, _: usize) -> u32 {
            0
        }
        fn try_take(&self, member: usize, _: u32) -> bool {
            member == 1
        }
    }
    let mut case = Case::of(Rule::First, 3, 1);
    let found = case.group.choose(&ask(at_ms(0)), &Raced, &mut case.rng);
    assert_eq!(found, Choice::Taken(1));
}
