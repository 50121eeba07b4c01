//! Plans on hosts: pure.

use std::num::NonZeroU64;
use std::sync::Arc;

use telemetry::Nanos;

use super::super::descriptors::server_remark;
use super::super::host::{Host, TIME_WAIT};
use super::super::{fit, prepare};
use super::{host, plan};
use crate::engine::Fault;
use crate::outcome::{Remark, Weight};
use crate::plan::{
    Arrival, Arrivals, BadClients, Closing, Load, Misbehaviour, Plan, Profile, Tables,
};

const HERE: &str = "127.0.0.1:8080";
const ELSEWHERE: &str = "192.0.2.7:80";

/// What is chosen: threads, whose tables, local addresses, words of remarks.
fn chosen(plan: &mut Plan, host: &Host) -> Result<(usize, Tables, usize, Vec<String>), Fault> {
    let remarks = fit(plan, host)?;
    let words = remarks.into_iter().map(|remark| remark.word).collect();
    let sources = plan.connections.sources.len();
    Ok((plan.machine.threads, plan.machine.tables, sources, words))
}

fn remarks(mut plan: Plan, host: &Host) -> Vec<Remark> {
    fit(&mut plan, host).expect("it fits")
}

/// Connections of one request each, ended by us properly.
fn short(address: &str, connections: usize, rate: f64) -> Plan {
    let mut plan = plan(address, connections);
    plan.load = Load::Open {
        arrivals: Arrivals::Constant,
        rate: Profile::constant(rate),
    };
    plan.connections.closing = Closing::Fin;
    plan.connections.requests_each = NonZeroU64::new(1);
    plan.length.duration = Some(Nanos::from_secs(600));
    plan
}

#[test]
fn gives_threads_tables_of_their_own_when_one_is_too_small() {
    use Tables::{Own, Shared};
    // Connections, misbehaving clients, threads asked for, limit → threads, tables; `None`: it cannot be.
    let cases = [
        (936, 0, 1, 1000, Some((1, Shared))),
        (937, 0, 1, 1000, Some((2, Own))),
        (836, 100, 2, 1000, Some((2, Shared))),
        (837, 100, 2, 1000, Some((2, Own))),
        (30_000, 0, 2, 20_000, Some((2, Own))),
        (30_000, 0, 1, 1024, Some((32, Own))),
        (10, 936, 1, 1000, Some((1, Own))),
        (10, 937, 1, 1000, None),
        (300_000, 0, 1, 1024, None),
        (1, 0, 1, 64, None),
    ];
    for (connections, bad_clients, threads, nofile, expect) in cases {
        let mut plan = plan("127.0.0.1:80", connections);
        plan.machine.threads = threads;
        plan.bad_clients = vec![idle(bad_clients)];
        let host = Host {
            nofile,
            ports: 1 << 40,
            ..host()
        };
        let got = chosen(&mut plan, &host)
            .ok()
            .map(|(threads, tables, ..)| (threads, tables));
        assert_eq!(got, expect, "{connections} + {bad_clients} of {nofile}");
        if got.is_some_and(|(_, tables)| tables == Own) {
            let most = connections.div_ceil(plan.machine.threads) as u64;
            assert!(most + 64 <= nofile, "{most} in a table of {nofile}");
        }
    }
}

fn idle(len: usize) -> BadClients {
    BadClients {
        len,
        misbehaviour: Misbehaviour::Idle,
        receive_buffer_bytes: None,
    }
}

#[test]
fn says_which_command_gives_descriptors() {
    let mut plan = plan(HERE, 2_000_000);
    let host = Host {
        nofile: 1024,
        ..host()
    };
    let fault = fit(&mut plan, &host).expect_err("too many");
    let hint = fault.hint.expect("a remedy");
    assert!(hint.contains("ulimit -n 2000064"), "{hint}");
    assert!(hint.contains("sysctl -w fs.nr_open=2000064"), "{hint}");
}

#[test]
fn adds_up_the_descriptors_of_a_server() {
    let cases: [(&[u64], bool); 4] = [
        (&[1024], true),
        (&[1024, 1024], false),
        (&[20_000], false),
        // It is not known.
        (&[], false),
    ];
    for (limits, expect) in cases {
        let remark = server_remark(&plan(HERE, 1_500), limits);
        assert_eq!(remark.is_some(), expect, "{limits:?}");
    }
}

#[test]
fn refuses_a_source_that_is_no_address_of_this_host() {
    // RFC 5737 section 3: nobody has this one.
    for (source, is_ours) in [([127, 0, 3, 9], true), ([192, 0, 2, 77], false)] {
        let mut plan = plan("127.0.0.1:8000", 10);
        plan.connections.sources = vec![source.into()];
        match prepare(&mut plan) {
            Ok(_) => assert!(is_ours),
            Err(fault) => {
                assert!(!is_ours, "{fault:?}");
                assert!(fault.text.contains("192.0.2.77"), "{}", fault.text);
            }
        }
    }
}

#[test]
fn leaves_a_small_load_on_this_host_as_it_is() {
    let mut plan = plan(HERE, 10);
    plan.machine.server_pids = vec![std::process::id()];
    assert_eq!(prepare(&mut plan), Ok(Vec::new()));
    assert_eq!(plan.machine.tables, Tables::Shared);
    assert!(plan.connections.sources.is_empty());
}

#[test]
fn takes_more_local_addresses_on_loopback_when_ports_are_short() {
    // The rows of the table in ports: connections, connections a second, who closes, reuse → addresses.
    let slow = Host {
        loopback_time_wait: TIME_WAIT,
        time_wait_max: 10_000_000,
        ..host()
    };
    let wide = Host {
        ports: 64_512,
        ..host()
    };
    let cases = [
        (short(HERE, 10_000, 4_000.0), host(), 0),
        (short(HERE, 10_000, 4_200.0), host(), 2),
        (short(HERE, 30_000, 20_000.0), host(), 4),
        (short(HERE, 30_000, 20_000.0), wide, 2),
        (short(HERE, 30_000, 20_000.0), slow, 88),
        // No more are in TIME_WAIT than the kernel keeps.
        (
            short(HERE, 30_000, 20_000.0),
            Host {
                time_wait_max: 131_072,
                ..slow
            },
            12,
        ),
        (plan(HERE, 30_000), host(), 3),
        (plan(HERE, 14_116), host(), 0),
        (plan(HERE, 14_117), host(), 2),
    ];
    for (number, (mut plan, host, expect)) in cases.into_iter().enumerate() {
        let (_, _, sources, words) = chosen(&mut plan, &host).expect("it fits");
        assert_eq!(sources, expect, "row {number}");
        assert_eq!(
            words.contains(&"sources".to_owned()),
            expect > 0,
            "row {number}: {words:?}"
        );
    }
    let mut plan = plan(HERE, 30_000);
    fit(&mut plan, &host()).expect("it fits");
    let texts: Vec<String> = plan
        .connections
        .sources
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(texts, ["127.0.0.1", "127.0.0.2", "127.0.0.3"]);
}

#[test]
fn keeps_no_ports_where_the_server_or_a_reset_ends_connections() {
    for closing in [Closing::Rst, Closing::Server] {
        let mut plan = short(HERE, 10_000, 20_000.0);
        plan.connections.closing = closing;
        assert_eq!(
            chosen(&mut plan, &host()).expect("it fits").2,
            0,
            "{closing:?}"
        );
    }
}

#[test]
fn refuses_the_first_connection_beyond_the_ports_with_the_remedy() {
    let fault = fit(&mut plan(ELSEWHERE, 28_233), &host()).expect_err("no port is left");
    assert!(fault.text.contains("28233"), "{}", fault.text);
    let hint = fault.hint.expect("a remedy");
    for remedy in ["--source", "net.ipv4.ip_local_port_range"] {
        assert!(hint.contains(remedy), "{remedy}: {hint}");
    }
    let remarks = remarks(plan(ELSEWHERE, 28_232), &host());
    assert_eq!(remarks[0].word, "ports");
    assert_eq!(remarks[0].weight, Weight::Doubtful);
}

#[test]
fn names_what_shortens_the_wait_where_we_end_connections_elsewhere() {
    let fault = fit(&mut short(ELSEWHERE, 100, 1_000.0), &host()).expect_err("60,100 ports");
    let hint = fault.hint.expect("a remedy");
    for remedy in ["--close rst", "net.ipv4.tcp_tw_reuse=1", "`--source A-B`"] {
        assert!(hint.contains(remedy), "{remedy}: {hint}");
    }
    let reused = Host {
        time_wait: Nanos::from_secs(1),
        ..host()
    };
    assert!(
        fit(&mut short(ELSEWHERE, 100, 1_000.0), &reused)
            .expect("it fits")
            .is_empty()
    );
}

#[test]
fn leaves_given_addresses_as_they_are() {
    for (len, expect) in [(1, None), (2, Some("ports")), (3, Some(""))] {
        let mut plan = plan(HERE, 30_000);
        let given: Vec<_> = (1..=len).map(|last| [127, 0, 1, last].into()).collect();
        plan.connections.sources.clone_from(&given);
        let got = chosen(&mut plan, &host()).ok().map(|(.., words)| words);
        let ports = got.map(|words| {
            words
                .into_iter()
                .find(|word| word == "ports")
                .unwrap_or_default()
        });
        assert_eq!(ports.as_deref(), expect, "{len} addresses");
        assert_eq!(plan.connections.sources, given);
    }
}

#[test]
fn points_from_the_one_address_of_ipv6_to_the_many_of_ipv4() {
    let fault = fit(&mut plan("[::1]:80", 30_000), &host()).expect_err("one address");
    assert!(fault.hint.expect("a remedy").contains("127.0.0.1"));
}

#[test]
fn assumes_a_rate_for_closed_loads_and_says_so() {
    let mut plan = short(HERE, 100, 0.0);
    plan.load = Load::Closed;
    plan.machine.threads = 2;
    let found = remarks(plan.clone(), &host());
    assert_eq!(found[0].word, "sources");
    assert!(
        found[0]
            .text
            .contains("50000 connections a second, which is assumed"),
        "{}",
        found[0].text
    );
    // Nothing is assumed of more requests than there are.
    plan.length.requests = Some(5_000);
    assert!(remarks(plan, &host()).is_empty());
}

#[test]
fn takes_the_busiest_stretch_of_a_recording() {
    let at = |ms: u64| Arrival {
        offset: Nanos::from_ms(ms),
        kind: 0,
    };
    // 20,000 within one second after an hour of nothing.
    let burst = (0..20_000).map(|number| at(3_600_000 + number / 20));
    let mut plan = short(HERE, 100, 0.0);
    plan.load = Load::Recorded {
        arrivals: [at(0)].into_iter().chain(burst).collect::<Arc<[Arrival]>>(),
    };
    assert_eq!(chosen(&mut plan, &host()).expect("it fits").2, 2);
}

#[test]
fn counts_the_ports_of_half_closing_company() {
    let mut plan = plan(ELSEWHERE, 1);
    plan.bad_clients = vec![BadClients {
        misbehaviour: Misbehaviour::HalfCloses,
        ..idle(1_000)
    }];
    // 2,000 a second, each for a minute.
    assert!(fit(&mut plan, &host()).is_err());
    plan.bad_clients = vec![idle(1_000)];
    assert!(fit(&mut plan, &host()).is_ok());
}
