//! Records that come back, ids that never collide.

mod queue_facts {
    use super::super::*;

    #[test]
    fn only_a_pool_with_threads_tells_anything() {
        let before = Queued {
            before: Nanos(5),
            ..Queued::default()
        };
        assert!(!before.is_known());
        assert!(
            Queued {
                threads: 1,
                ..before
            }
            .is_known()
        );
    }
}

mod records {
    use super::super::*;
    use crate::{AuthFailure, UpstreamPhases};
    use proptest::prelude::*;

    fn sample() -> Record<'static> {
        Record {
            id: 13,
            request_id: b"r-1",
            trace: crate::trace::tests::sample(),
            is_https: true,
            phases: Phases {
                arrived: Stamp(1),
                queued: Stamp(2),
                started: Stamp(3),
                replied: Stamp(4),
                sent: Stamp(5),
                gil: Nanos(6),
                cpu: Nanos(19),
                worker: NonZeroU32::new(20),
            },
            queued: Queued {
                before: Nanos(15),
                waiting: 16,
                threads: 17,
                idle: 18,
                from_queue: true,
            },
            stream: StreamFacts {
                number: 21,
                reset_by: ResetBy::Client,
                reset_code: 22,
                blocked_stream: Nanos(23),
                blocked_connection: Nanos(24),
            },
            event_loop: LoopFacts {
                wait: Nanos(1 << 41),
                steps: u32::MAX,
                busy: Nanos(1 << 42),
                longest: Nanos(1 << 43),
                blocked_by: Some(0),
                is_event_stream: true,
            },
            websocket: WebSocketFacts {
                received: 1 << 40,
                sent: 7,
                close_code: 4999,
            },
            upstream: UpstreamFacts::default(),
            auth: AuthFacts::default(),
            wall_arrived_ns: 7,
            client: b"192.0.2.7",
            peer: b"127.0.0.1",
            method: b"GET",
            target: b"/x",
            version: b"HTTP/1.1",
            request_line: b"\x16\x03",
            host: b"example.org",
            referer: b"",
            user_agent: b"curl/8",
            user: b"bob",
            status: 200,
            body_bytes: 8,
            sent_bytes: 9,
            request_bytes: 10,
            ending: Ending::PeerGone,
            route: 11,
            driver: 12,
            pool: 14,
            cause: b"why",
            tls: b"1.3 c no a.example h2 412",
        }
    }

    fn proxied() -> Record<'static> {
        Record {
            upstream: UpstreamFacts {
                server: 25,
                attempts: 255,
                reused: true,
                status: 30_000,
                connect: Nanos(26),
                ttfb: Nanos(27),
                own: Some(UpstreamPhases {
                    queue: Nanos(28),
                    run: Nanos(29),
                }),
            },
            ..sample()
        }
    }

    fn judged() -> Record<'static> {
        let times = (Stamp(30_000), Stamp(32_000));
        Record {
            auth: AuthFacts::new(Stamp(1), times, Some(31), 403, AuthFailure::Closed),
            ..proxied()
        }
    }

    fn check(record: &Record<'_>) {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let whole = bytes.len();
        bytes.extend_from_slice(b"the next record");
        assert_eq!(Record::decode(&bytes), Some((*record, whole)));
        assert_eq!(Record::peek(&bytes), Some((record.phases.sent, whole)));
    }

    #[test]
    fn comes_back_as_it_was_written() {
        check(&sample());
        check(&Record::default());
        check(&judged());
        for ending in Ending::ALL {
            check(&Record { ending, ..sample() });
        }
        for reset_by in ResetBy::ALL {
            let mut record = sample();
            record.stream.reset_by = reset_by;
            check(&record);
        }
        check(&proxied());
    }

    #[test]
    fn is_not_decoded_until_whole() {
        for record in [sample(), proxied()] {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            for end in 0..bytes.len() {
                assert_eq!(Record::decode(&bytes[..end]), None, "cut at {end}");
                assert_eq!(Record::peek(&bytes[..end]), None, "cut at {end}");
            }
        }
    }

    #[test]
    fn what_no_upstream_has_answered_has_no_bytes_of_one() {
        let bytes = |record: Record<'_>| {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            bytes.len()
        };
        assert_eq!(bytes(proxied()), bytes(sample()) + UPSTREAM_BYTES);
    }

    #[test]
    fn cuts_long_strings() {
        let long = vec![b'a'; 70_000];
        let mut bytes = Vec::new();
        Record {
            target: &long,
            request_line: &long,
            ..sample()
        }
        .encode(&mut bytes);
        let (record, _) = Record::decode(&bytes).unwrap();
        assert_eq!(record.target.len(), STRING_BYTES_MAX);
        assert_eq!(record.request_line.len(), REQUEST_LINE_BYTES_MAX);
        assert_eq!(record.cause, b"why");
    }

    #[test]
    fn records_follow_each_other() {
        let mut bytes = Vec::new();
        for driver in 0..100 {
            Record { driver, ..sample() }.encode(&mut bytes);
        }
        let mut rest = &bytes[..];
        for driver in 0..100 {
            let (record, taken) = Record::decode(rest).unwrap();
            assert_eq!(record.driver, driver);
            rest = &rest[taken..];
        }
        assert!(rest.is_empty());
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = (Record::decode(&bytes), Record::peek(&bytes));
        }

        #[test]
        fn damage_never_panics(at in 0usize..FIXED_BYTES, value in any::<u8>()) {
            let mut bytes = Vec::new();
            sample().encode(&mut bytes);
            bytes[at] = value;
            if let Some((_, taken)) = Record::decode(&bytes) {
                prop_assert!(taken <= bytes.len());
                prop_assert_eq!(Record::peek(&bytes).map(|(_, peeked)| peeked), Some(taken));
            }
        }
    }
}

mod ids {
    use super::super::*;
    use proptest::prelude::*;

    /// Undoes `mix`: the inverses of the two odd factors modulo 2^64, and of the shifts.
    fn unmix(value: u64) -> u64 {
        let value = value ^ (value >> 31) ^ (value >> 62);
        let value = value.wrapping_mul(0x3196_42b2_d24d_8ec3);
        let value = value ^ (value >> 27) ^ (value >> 54);
        let value = value.wrapping_mul(0x96de_1b17_3f11_9089);
        value ^ (value >> 30) ^ (value >> 60)
    }

    #[test]
    fn agrees_with_splitmix64() {
        // The first outputs of splitmix64 for the state 0: its counter goes up by the golden gamma.
        let gamma: u64 = 0x9e37_79b9_7f4a_7c15;
        assert_eq!(&made_id(0, gamma), b"e220a8397b1dcdaf");
        assert_eq!(&made_id(0, gamma.wrapping_mul(2)), b"6e789e6aa1b965f4");
        assert_eq!(made_id(gamma, 0), made_id(0, gamma));
        assert_ne!(made_id(1, 7), made_id(2, 7));
    }

    proptest! {
        #[test]
        fn no_two_numbers_share_an_id(seed in any::<u64>(), id in any::<u64>()) {
            let text = made_id(seed, id);
            let text = std::str::from_utf8(&text).unwrap();
            let mixed = u64::from_str_radix(text, 16).unwrap();
            prop_assert_eq!(unmix(mixed) ^ seed, id);
        }
    }
}
