//! Tests of the whole module: what is shown as it was agreed, whatever the numbers and texts are.

use std::collections::BTreeSet;
use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::outcome::{AskedLeg, Outcome};

/// Compares with a file of this crate; `MILEPOST_SNAPSHOTS=write` writes it instead.
#[track_caller]
fn check_snapshot(name: &str, text: &str) {
    let file: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/snapshots", name]
        .iter()
        .collect();
    if std::env::var_os("MILEPOST_SNAPSHOTS").is_some_and(|wish| wish == "write") {
        std::fs::write(&file, text).unwrap();
    }
    let expect = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        text == expect,
        "{name} differs; MILEPOST_SNAPSHOTS=write writes it anew:\n{text}"
    );
}

#[test]
fn shows_runs_as_it_was_agreed() {
    check_snapshot("closed.txt", &table(&sample::closed(), Tone::Plain));
    check_snapshot("open.txt", &table(&sample::open(), Tone::Plain));
    check_snapshot("empty.txt", &table(&sample::empty(), Tone::Plain));
}

#[test]
fn says_the_whole_of_steps_and_ramps() {
    let leg = |from, to, lasts_s| AskedLeg { from, to, lasts_s };
    let check = |run: &Outcome, expect: &str| {
        let text = table(run, Tone::Plain);
        let heading = text.split("\nlabel").next().unwrap().replace('\n', " ");
        assert!(heading.contains(expect), "{heading}");
        assert_eq!(
            read_json(&json(std::slice::from_ref(run))).unwrap()[0].asked,
            run.asked
        );
    };
    let mut run = sample::open();
    check(&run, "open load, 2,000/s constant, ");
    run.asked.rate_legs = vec![leg(10.0, 60.0, 2.0)];
    let ramp = "open load, 10/s to 60/s over 2 s, constant, ";
    check(&run, ramp);
    run.asked.rate_legs = vec![leg(20.0, 20.0, 1.0), leg(40.0, 40.0, 0.5)];
    let steps = "open load, 20/s for 1 s, then 40/s for 500 ms, constant, ";
    check(&run, steps);
    run.asked.rate_legs = vec![leg(1.0, 2.0, 1.0); 40];
    let many = "2/s over 1 s, then 32 more steps, constant, ";
    check(&run, many);
}

#[test]
fn a_run_without_an_answer_has_its_failures_and_no_empty_rows() {
    let mut run = sample::empty();
    let cycle = sample::closed().times.cycle;
    run.counts.failures.connect = cycle.count;
    run.times.cycle = cycle;
    let text = table(&run, Tone::Plain);
    assert!(
        text.contains("FAILED        20,000 of 20,000 (100.0 %): connect 20,000\n"),
        "{text}"
    );
    assert!(text.contains("\ncycle "), "{text}");
    for name in ["latency", "connect", "first byte", "last byte"] {
        assert!(!text.contains(&format!("\n{name} ")), "{text}");
    }
    // Something that was answered has all of them.
    run.counts.answered = 1;
    assert!(table(&run, Tone::Plain).contains("\nlatency "));
}

#[test]
fn colour_only_adds_to_what_is_said() {
    let colourful = table(&sample::open(), Tone::Colour);
    let mut bare = colourful.replace("\x1b[0m", "");
    for sequence in ["\x1b[1;31m", "\x1b[33m", "\x1b[1m", "\x1b[2m"] {
        assert!(bare.contains(sequence), "{colourful:?}");
        bare = bare.replace(sequence, "");
    }
    assert_eq!(bare, table(&sample::open(), Tone::Plain));
    assert!(colourful.contains("\x1b[1;31mINVALID"), "{colourful:?}");
}

#[test]
fn a_page_needs_no_network_and_runs_no_foreign_text() {
    let (mut first, mut second) = (sample::open(), sample::closed());
    for text in [
        &mut first.asked.label,
        &mut first.asked.url,
        &mut first.asked.requests[0],
        &mut first.bad_clients[0].name,
        &mut first.remarks[0].text,
        &mut second.asked.load,
        &mut second.milepost,
    ] {
        *text = "\"'><script>alert(1)</script>".to_owned();
    }
    first.remarks[1].word = "<script>".to_owned();
    first.kernel.insert("<script>".to_owned(), 1);
    for runs in [vec![first.clone()], vec![first, second]] {
        let page = page(&runs, "</title><script>");
        assert_eq!(page.matches("<script>").count(), 1, "its own");
        assert_eq!(page.matches("</script>").count(), 1, "its own");
        for loaded in ["src=", "href=", "url(", "@import", "fetch("] {
            assert!(!page.contains(loaded), "{loaded}");
        }
    }
}

#[test]
fn a_page_says_what_is_wrong_first() {
    let page = page(&[sample::open()], "a run");
    let place = |text: &str| {
        page.find(text)
            .unwrap_or_else(|| panic!("{text} is not there"))
    };
    assert!(place("<b>INVALID</b>") < place("<b>DOUBTFUL</b>"));
    assert!(place("<b>note</b>") < place("<svg"));
    assert!(place("<code>--cpus</code>") < place("<svg"));
    assert!(super::page(&[], "none").contains("There is no run."));
}

/// Paths of all values: `counts.failures.connect`, `series[].at_s`; those of distributions as `*.mean_us`.
fn paths(at: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) if fields.contains_key("hdr") => {
            found.insert(at.to_owned());
            found.extend(fields.keys().map(|key| format!("*.{key}")));
        }
        Value::Object(_) if at == "kernel" => drop(found.insert("kernel.COUNTER".to_owned())),
        Value::Object(_) if at == "counts.statuses" => {
            found.insert("counts.statuses.STATUS".to_owned());
        }
        Value::Object(_) if ["counts.resets", "counts.goaways"].contains(&at) => {
            found.insert(format!("{at}.CODE"));
        }
        Value::Object(fields) => {
            for (key, value) in fields {
                let path = if at.is_empty() {
                    key.clone()
                } else {
                    format!("{at}.{key}")
                };
                paths(&path, value, found);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for item in items {
                paths(&format!("{at}[]"), item, found);
            }
        }
        _ => drop(found.insert(at.to_owned())),
    }
}

#[test]
fn every_field_is_documented_and_no_other() {
    let page: PathBuf = [
        env!("CARGO_MANIFEST_DIR"),
        "../../docs/reference/bench-json.md",
    ]
    .iter()
    .collect();
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let documented: BTreeSet<String> = rows.map(|(path, _)| path.to_owned()).collect();
    let mut run = sample::open();
    run.asked.rate_legs = vec![AskedLeg::default()];
    run.counts.resets.insert("CANCEL".to_owned(), 1);
    run.counts.goaways.insert("NO_ERROR".to_owned(), 1);
    let file: Value = serde_json::from_str(&json(&[run])).unwrap();
    let mut found = BTreeSet::new();
    paths("", &file["runs"][0], &mut found);
    let missing: Vec<_> = found.difference(&documented).collect();
    let unknown: Vec<_> = documented.difference(&found).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "missing: {missing:?}, unknown: {unknown:?}"
    );
}

/// Numbers that somebody could have meant, and those at the ends.
fn any_number() -> impl Strategy<Value = f64> {
    let finite = any::<f64>().prop_filter("finite", |number| number.is_finite());
    prop_oneof![
        0.0..1e9,
        finite,
        Just(0.0),
        Just(f64::MAX),
        Just(f64::MIN),
        Just(f64::MIN_POSITIVE)
    ]
}

fn any_count() -> impl Strategy<Value = u64> {
    // Seven classes of failures are added up.
    prop_oneof![0u64..100_000, 0..=1u64 << 60, Just(0), Just(1u64 << 60)]
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,300}",
        "[a-z日本 ]{0,200}",
        Just(String::new()),
        Just("x".repeat(700))
    ]
}

/// What takes the places of numbers and texts, in turn.
#[derive(Debug, Clone)]
struct Hostile {
    numbers: Vec<f64>,
    counts: Vec<u64>,
    texts: Vec<String>,
    used: usize,
}

impl Hostile {
    fn of(parts: (Vec<f64>, Vec<u64>, Vec<String>)) -> Hostile {
        let (numbers, counts, texts) = parts;
        Hostile {
            numbers,
            counts,
            texts,
            used: 0,
        }
    }

    fn change(&mut self, key: &str, value: &mut Value) {
        self.used += 1;
        match value {
            // Words that the types fix, and histograms, are left as they are.
            _ if [
                "schema",
                "closing",
                "protocol",
                "timestamps",
                "weight",
                "hdr",
            ]
            .contains(&key) => {}
            Value::Number(number) if number.is_f64() => {
                *value = self.numbers[self.used % self.numbers.len()].into();
            }
            Value::Null if key.starts_with("p99") => {
                *value = self.numbers[self.used % self.numbers.len()].into();
            }
            Value::Number(_) => *value = self.counts[self.used % self.counts.len()].into(),
            Value::String(text) => text.clone_from(&self.texts[self.used % self.texts.len()]),
            Value::Array(items) => items.iter_mut().for_each(|item| self.change(key, item)),
            Value::Object(fields) => {
                fields
                    .iter_mut()
                    .for_each(|(key, value)| self.change(key, value));
            }
            _ => {}
        }
    }

    fn run(&mut self, like: &Outcome) -> Outcome {
        let mut value = serde_json::to_value(like).unwrap();
        self.change("", &mut value);
        serde_json::from_value(value).unwrap()
    }
}

fn check_all(run: Outcome) -> Result<(), TestCaseError> {
    for line in table(&run, Tone::Plain).lines() {
        let wide = present::width(line);
        prop_assert!(wide <= 100, "{wide} columns: {line}");
        prop_assert!(!line.contains(char::is_control), "{line:?}");
    }
    prop_assert_eq!(
        &read_json(&json(std::slice::from_ref(&run))).unwrap(),
        std::slice::from_ref(&run)
    );
    let runs = [run.clone(), run];
    for html in [page(&runs, "two"), page(&runs[..1], "one")] {
        prop_assert!(
            !html.contains("NaN") && !html.contains("inf\""),
            "a place that is none"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn shows_any_run(parts in (
        prop::collection::vec(any_number(), 1..40),
        prop::collection::vec(any_count(), 1..40),
        prop::collection::vec(any_text(), 1..8),
    )) {
        let mut hostile = Hostile::of(parts);
        check_all(hostile.run(&sample::open()))?;
        check_all(hostile.run(&sample::empty()))?;
    }
}
