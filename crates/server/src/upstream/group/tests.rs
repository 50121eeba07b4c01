//! The addresses that a group uses, and what is said where there are too many of them.

use config::typed::Config;
use ipc::stats::{Shape, Stats};

use super::*;

const NOW: Stamp = Stamp(1_000_000_000);

fn slots() -> Arc<SharedSlots> {
    Arc::new(SharedSlots::private().unwrap())
}

/// A group with one server, which has a name.
pub(in crate::upstream) fn group(name: &str, slots: &Arc<SharedSlots>) -> Arc<UpstreamGroup> {
    let server = UpstreamServer {
        address: ServerAddress::Tcp {
            host: "one.test".to_owned(),
            port: 80,
        },
        has_tls: false,
        slots: Some(1),
        weight: 1,
        is_backup: false,
    };
    let settings = Upstream {
        name: name.to_owned(),
        servers: vec![server],
        ..Upstream::default()
    };
    let config = Config {
        upstreams: vec![settings.clone()],
        ..Config::default()
    };
    let stats = Stats::new(&Shape::of(&config)).unwrap();
    UpstreamGroup::open(&settings, 0, slots, stats.servers).unwrap()
}

fn addresses(ports: std::ops::Range<u16>) -> Vec<Vec<EndpointAddress>> {
    let address = |port| EndpointAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], port)));
    vec![ports.map(address).collect()]
}

#[test]
fn as_many_addresses_are_used_as_a_configuration_may_name_and_no_more_silently() {
    let group = group("back", &slots());
    let notes = group.set_addresses(&addresses(1..257), NOW);
    assert_eq!((group.endpoints().len(), notes), (256, Vec::new()));
    let notes = group.set_addresses(&addresses(1..261), NOW);
    assert_eq!(group.endpoints().len(), 256);
    let [note] = &notes[..] else {
        panic!("{notes:?}")
    };
    assert!(note.contains("back: 4 addresses get no requests"), "{note}");
}

#[test]
fn addresses_that_are_gone_leave_their_counts_to_others() {
    let slots = slots();
    let (one, other) = (group("one", &slots), group("other", &slots));
    assert_eq!(
        one.set_addresses(&addresses(1..201), NOW),
        Vec::<String>::new()
    );
    // More in all than may be counted at once.
    for round in 1..9 {
        let first = round * 1_000;
        let notes = other.set_addresses(&addresses(first..first + 200), NOW);
        assert_eq!(notes, Vec::<String>::new(), "round {round}");
    }
}

#[test]
fn servers_beyond_the_shared_counts_are_counted_alone_which_is_said() {
    let slots = slots();
    let (one, other) = (group("one", &slots), group("other", &slots));
    one.set_addresses(&addresses(1..257), NOW);
    let notes = other.set_addresses(&addresses(1..257), NOW);
    let [note] = &notes[..] else {
        panic!("{notes:?}")
    };
    // Two names are those of the groups.
    assert!(note.contains("the requests of 35 servers alone"), "{note}");
    // Each of them has its slot all the same.
    let mut taken = Vec::new();
    while let Ok(slot) = other.take_slot(NOW, &[], &PlacingKey::default(), 0) {
        taken.push(slot);
    }
    assert_eq!(taken.len(), 256);
    // What was taken counts where there is room to share it later.
    one.set_addresses(&addresses(1..2), NOW);
    let notes = other.set_addresses(&addresses(1..257), NOW);
    assert_eq!(notes, Vec::<String>::new());
    assert!(
        other
            .take_slot(NOW, &[], &PlacingKey::default(), 0)
            .is_err()
    );
    assert_eq!(other.in_flight(), 256);
    drop(taken);
    assert_eq!(other.in_flight(), 0);
}
