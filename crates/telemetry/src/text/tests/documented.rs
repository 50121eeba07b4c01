//! The reference page of the access log says what the code does.

use std::num::NonZeroU32;

use super::*;

const PAGE: &str = include_str!("../../../../../docs/reference/access-log.md");

/// The exchange that the page shows in every form.
fn shown_exchange() -> Record<'static> {
    let at = |us: u64| Stamp(1_000_000_000 + us * 1_000);
    Record {
        id: 41,
        phases: Phases {
            arrived: at(0),
            queued: at(69),
            started: at(103),
            replied: at(4_175),
            sent: at(4_219),
            gil: Nanos(7_000),
            cpu: Nanos(612_000),
            worker: NonZeroU32::new(3),
        },
        queued: Queued {
            threads: 8,
            idle: 7,
            ..Queued::default()
        },
        wall_arrived_ns: 1_795_245_160_482_193_000,
        client: b"192.0.2.77",
        peer: b"192.0.2.77",
        method: b"GET",
        target: b"/books?page=2",
        version: b"HTTP/1.1",
        host: b"shop.example",
        referer: b"https://shop.example/?q=tea",
        user_agent: b"curl/8.14.1",
        status: 200,
        body_bytes: 2326,
        sent_bytes: 2497,
        request_bytes: 131,
        ending: Ending::Complete,
        route: 0,
        pool: 0,
        driver: 1,
        ..Record::default()
    }
}

#[track_caller]
fn check_shown(form: Form, style: Style) {
    let names = Names {
        routes: vec!["app".into()],
        pools: vec!["default".into()],
        upstreams: Vec::new(),
        process: 4711,
        id_seed: 0x77aa_1234_9876_0001,
    };
    let mut out = Vec::new();
    Writer::new(form, style, names).write(&shown_exchange(), &mut out);
    let line = String::from_utf8(out).unwrap();
    assert!(PAGE.contains(&format!("\n{line}")), "{line}");
}

#[test]
fn the_page_shows_a_line_of_every_form() {
    let (_, rest) = PAGE.split_once("is a template:\n\n```text\n").unwrap();
    for form in all_forms(rest.lines().next().unwrap()) {
        check_shown(form, Style::default());
    }
    let discreet = Style {
        prefix_v4: 24,
        prefix_v6: 48,
        query: false,
        ..Style::default()
    };
    check_shown(Form::CombinedPhases, discreet);
}

#[test]
fn the_page_has_a_row_for_every_field_and_for_no_other() {
    let rows: Vec<&str> = PAGE
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `{")?.split_once("}` |")?.0))
        .collect();
    assert_eq!(rows, Template::field_names().collect::<Vec<_>>());
}

#[test]
fn the_page_tells_the_faults_of_a_template() {
    for text in ["{peer} {agnet}", "{peer"] {
        let fault = Template::parse(text).unwrap_err();
        assert!(PAGE.contains(&format!("\n{fault}\n")), "{fault}");
    }
}
