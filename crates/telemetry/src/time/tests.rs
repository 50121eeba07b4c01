//! Stamps, durations, clocks and distributions.

mod clocks {
    use super::super::*;

    #[test]
    fn differences_saturate_at_both_ends() {
        assert_eq!(Stamp(5).since(Stamp(3)), Nanos(2));
        assert_eq!(Stamp(3).since(Stamp(5)), Nanos::ZERO);
        assert_eq!(Stamp(3).plus(Nanos(4)), Stamp(7));
        assert_eq!(Stamp(3).plus(Nanos(u64::MAX)), Stamp::NEVER);
        assert_eq!(Nanos::from_secs(u64::MAX), Nanos(u64::MAX));
    }

    #[test]
    fn shows_seconds_with_truncated_microseconds() {
        let check = |nanos: u64, expect: &str| assert_eq!(Nanos(nanos).to_string(), expect);
        check(0, "0.000000");
        check(999, "0.000000");
        check(123_999, "0.000123");
        check(4_144_876_000, "4.144876");
        check(Nanos::from_secs(3_600).0, "3600.000000");
    }

    #[test]
    fn converts_between_units() {
        assert_eq!(Nanos::from_ms(1_500), Nanos(1_500_000_000));
        assert_eq!(Nanos::from_us(7), Nanos(7_000));
        assert!((Nanos::from_ms(1_500).as_secs_f64() - 1.5).abs() < 1e-12);
    }

    #[test]
    fn the_clock_starts_after_zero_and_never_goes_back() {
        let first = now();
        assert!(first >= START);
        let mut last = first;
        for _ in 0..10_000 {
            let next = now();
            assert!(next >= last);
            last = next;
        }
    }
}

mod distributions {
    use super::super::*;
    use crate::Histogram;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Snapshot {
        let histogram = Histogram::new();
        for &value in values {
            histogram.record(Nanos(value));
        }
        histogram.snapshot()
    }

    #[test]
    fn ranges_of_buckets_do_not_matter() {
        let low = of(&[0, 40, 1_000]);
        let high = of(&[90_000, 5_000_000_000]);
        let (mut one, mut other) = (low.clone(), high.clone());
        one.merge(&high);
        other.merge(&low);
        assert_eq!(one, other);
        assert_eq!(one, of(&[0, 40, 1_000, 90_000, 5_000_000_000]));
        let mut recorded = Snapshot::default();
        for value in [5_000_000_000, 0, 90_000, 40, 1_000] {
            recorded.record(Nanos(value));
        }
        assert_eq!(recorded, one);
        recorded.merge(&Snapshot::default());
        assert_eq!(recorded, one);
        let counts: Vec<_> = one.counts().collect();
        let read = Snapshot::from_counts(&counts, one.sum(), one.min(), one.max());
        assert_eq!(read, Some(one));
    }

    #[test]
    fn refuses_a_bucket_that_is_none() {
        let end = BUCKETS_LEN as u16;
        let of = |bucket| Snapshot::from_counts(&[(bucket, 1)], Nanos(1), Nanos(1), Nanos(1));
        assert!(of(end).is_none());
        assert_eq!(of(end - 1).map(|seen| seen.len()), Some(1));
    }

    #[test]
    fn empty_answers_zero() {
        let empty = of(&[]);
        assert!(empty.is_empty());
        assert_eq!(empty, Snapshot::default());
        for answer in [
            empty.min(),
            empty.max(),
            empty.mean(),
            empty.sum(),
            empty.quantile(0.5),
        ] {
            assert_eq!(answer, Nanos::ZERO);
        }
    }

    #[test]
    fn quantiles_are_ranks() {
        let check = |values: &[u64], q: f64, expect: u64| {
            assert_eq!(of(values).quantile(q), Nanos(expect), "{q} of {values:?}");
        };
        check(&[7], 0.5, 7);
        check(&[1, 2, 3, 4], 0.5, 2);
        check(&[1, 2, 3, 4], 0.51, 3);
        check(&[1, 2, 3, 4], 0.0, 1);
        check(&[1, 2, 3, 4], 1.0, 4);
        check(&[1, 2, 3, 4], 7.0, 4);
        check(&[1, 2, 3, 4], -1.0, 1);
        check(&[60, 60, 63, 1_000_000], 0.75, 63);
    }

    #[test]
    fn middle_lies_in_its_own_bucket() {
        for bucket in 0..BUCKETS_LEN {
            assert_eq!(bucket_of(middle_of(bucket)), bucket);
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS_LEN - 1);
        assert!(bucket_of(Nanos::from_secs(3_600).0) < BUCKETS_LEN - 1);
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        let histogram = Histogram::new();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let histogram = &histogram;
                scope.spawn(move || {
                    for value in 0..10_000 {
                        histogram.record(Nanos(thread * 10_000 + value));
                    }
                });
            }
        });
        let seen = histogram.snapshot();
        assert_eq!(seen.len(), 40_000);
        assert_eq!(seen.sum(), Nanos((0..40_000).sum()));
        assert_eq!((seen.min(), seen.max()), (Nanos(0), Nanos(39_999)));
    }

    proptest! {
        #[test]
        fn error_is_under_the_promise(
            mut values in prop::collection::vec(0..Nanos::from_secs(3_600).0, 1..200),
            q in 0.0..=1.0f64,
        ) {
            let found = of(&values).quantile(q).0;
            values.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1];
            prop_assert!(found.abs_diff(exact) as f64 <= 0.016 * exact as f64);
        }

        #[test]
        fn one_thread_counts_as_many_do(values in prop::collection::vec(any::<u64>(), 0..50)) {
            let mut alone = Snapshot::default();
            for &value in &values {
                alone.record(Nanos(value));
            }
            prop_assert_eq!(alone.buckets().map(|(_, count)| count).sum::<u64>(), values.len() as u64);
            prop_assert_eq!(alone, of(&values));
        }

        #[test]
        fn counts_and_figures_are_all_of_it(values in prop::collection::vec(any::<u32>(), 0..50)) {
            let seen = of(&values.iter().map(|&value| value.into()).collect::<Vec<_>>());
            let counts: Vec<_> = seen.counts().collect();
            let again = Snapshot::from_counts(&counts, seen.sum(), seen.min(), seen.max());
            prop_assert_eq!(again, Some(seen));
        }

        #[test]
        fn merging_is_recording_together(
            one in prop::collection::vec(any::<u32>(), 0..50),
            two in prop::collection::vec(any::<u32>(), 0..50),
        ) {
            let wide = |values: &[u32]| values.iter().map(|&v| u64::from(v)).collect::<Vec<_>>();
            let (one, two) = (wide(&one), wide(&two));
            let mut merged = of(&one);
            merged.merge(&of(&two));
            prop_assert_eq!(merged, of(&[one, two].concat()));
        }
    }
}
