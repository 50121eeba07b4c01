//! Any bytes as a load report: no panic, the same from text and from JSON where both can say it, and what is told comes
//! back when it is written again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use telemetry::{EndpointLoad, ToldLoad, push_own_phases};

fuzz_target!(|input: &[u8]| {
    let told = ToldLoad::parse(input);
    if let Some(load) = told.load.filter(|load| load.threads > 0) {
        check_written(load, told);
    }
    // A prefix says which form it is, and nothing else.
    let text = [b"TEXT ", input].concat();
    let json = [b"JSON ", input].concat();
    let marked = input.trim_ascii();
    let is_marked = [&b"TEXT "[..], b"JSON ", b"BIN "]
        .iter()
        .any(|mark| marked.starts_with(mark));
    if marked.first() == Some(&b'{') {
        assert_eq!(ToldLoad::parse(&json), told);
    } else if !is_marked {
        assert_eq!(ToldLoad::parse(&text), told);
    }
});

fn check_written(load: EndpointLoad, told: ToldLoad) {
    // Whole microseconds are written, and numbers of that size have digits that `f64` keeps.
    let queue_us = load.queue.0 / 1_000;
    if queue_us > 1 << 40 {
        return;
    }
    let mut out = Vec::new();
    load.push_text(&mut out);
    if let Some(own) = told.own {
        push_own_phases(own, &mut out);
    }
    let again = ToldLoad::parse(&out);
    let found = again.load.expect("what is written has threads");
    assert_eq!(
        (found.running, found.waiting, found.threads),
        (load.running, load.waiting, load.threads)
    );
    assert_eq!(found.queue.0, queue_us * 1_000);
    assert_eq!(again.own.is_some(), told.own.is_some());
}
