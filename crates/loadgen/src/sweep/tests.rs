//! Ranges, and the table of made-up runs to the letter.

use super::*;
use crate::outcome::Remark;
use crate::tests as samples;

fn load(pairs: &[(&str, &str)]) -> LoadSpec {
    let mut load = LoadSpec::default();
    for (key, value) in pairs {
        assert!(load.put(key, value), "{key}");
    }
    load
}

fn swept(key: &str, text: &str) -> Result<Sweep, Fault> {
    Sweep::of(&load(&[(key, text), ("duration", "2s")]))
}

#[test]
fn takes_ranges_and_lists() {
    for (text, expect) in [
        ("10..50:10", &[10, 20, 30, 40, 50][..]),
        ("1..10:4", &[1, 5, 9]),
        ("7..7:1", &[7]),
        ("200, 10,50", &[200, 10, 50]),
    ] {
        assert_eq!(
            swept("connections", text).expect("a range").values,
            expect,
            "{text}"
        );
    }
    let sweep = swept("rate", "1000..3000:1000").expect("a range");
    assert_eq!(sweep.values, [1_000, 2_000, 3_000]);
}

#[test]
fn says_what_is_wrong_with_a_range() {
    for (text, expect) in [
        ("10..5:1", "5 is less than 10"),
        ("10..5", "it has no step"),
        ("a", "`a` is no whole number"),
        ("1..b:1", "`b` is no whole number"),
        ("1..9:0", "a step of 0 leads nowhere"),
        ("0..9:1", "0 is too few"),
        ("1..9:-1", "`-1` is no whole number"),
        ("1..100000:1", "100000 values are more than 1000"),
        (
            "1..18446744073709551615:1",
            "18446744073709551615 values are more than 1000",
        ),
        ("10,20,10", "10 is there twice"),
        ("10,,20", "`` is no whole number"),
    ] {
        let fault = swept("connections", text).expect_err(text);
        assert_eq!(fault.text, format!("`--connections {text}`: {expect}"));
        assert!(fault.hint.expect("a hint").contains("10..250:10"));
    }
}

#[test]
fn takes_exactly_one_number() {
    let fault = swept("connections", "10").expect_err("a fault");
    assert_eq!(fault.text, "no number of the load has a range");
    let fault = Sweep::of(&load(&[("connections", "1..3:1"), ("rate", "10,20")]));
    assert_eq!(
        fault.expect_err("a fault").text,
        "`--connections`, `--rate`: more than one number has a range"
    );
    // Ramps and steps are loads of their own.
    for (pairs, expect) in [
        (
            [("connections", "1..3:1"), ("rate", "100..2000:30s")],
            "connections",
        ),
        (
            [("connections", "1..3:1"), ("rate", "500:10s,1000:10s")],
            "connections",
        ),
    ] {
        assert_eq!(Sweep::of(&load(&pairs)).expect("a range").key, expect);
    }
}

#[test]
fn gives_the_load_of_each_value() {
    let base = load(&[("connections", "10,20"), ("duration", "2s")]);
    let sweep = Sweep::of(&base).expect("a list");
    assert_eq!(
        (sweep.column, &sweep.values[..]),
        ("clients", &[10, 20][..])
    );
    assert_eq!(
        sweep.load(&base, 20),
        load(&[("connections", "20"), ("duration", "2s")])
    );
}

fn clients() -> Sweep {
    Sweep {
        key: "connections",
        column: "clients",
        values: vec![200, 10, 300],
    }
}

/// Runs of ten seconds at these requests a second, in the order of the values.
fn runs(rates: &[f64]) -> Vec<Outcome> {
    let made = rates.iter().map(|rate| {
        let mut outcome = samples::outcome(&[], 10);
        outcome.counts.answered = (rate * outcome.seconds) as u64;
        outcome
    });
    made.collect()
}

#[test]
fn prints_a_row_for_each_value() {
    let runs = runs(&[57_000.0, 41_000.0, 7_000.0, 900.0, 43_000.0]);
    let expect = "\
clients     min     ave     max     time
    200     900  28,950  57,000  20.00 s
     10  41,000  42,000  43,000  20.00 s
    300   7,000   7,000   7,000  10.00 s
";
    assert_eq!(clients().text(&runs), expect);
    let broken_off = clients().text(&runs[..2]);
    assert!(broken_off.ends_with("    300       –       –       –        –\n"));
}

#[test]
fn says_once_what_makes_the_numbers_doubtful() {
    let mut runs = runs(&[100.0, 100.0]);
    for run in &mut runs {
        let remark = |weight, word: &str| Remark::new(weight, word, format!("because of {word}"));
        let (late, ports) = (
            remark(Weight::Invalid, "late"),
            remark(Weight::Note, "ports"),
        );
        run.remarks = vec![late, ports];
    }
    runs[1].counts.failures.reset = 3;
    let table = clients().text(&runs);
    let (_, notes) = table.split_once("\n\n").expect("notes");
    let expect = "10 clients: 3 of 1,003 requests failed\n\
                  invalid, late, in 2 of 2 runs; the first: because of late\n";
    assert_eq!(notes, expect);
}

#[test]
fn draws_what_was_measured_in_the_order_of_the_values() {
    let line = clients().line(&runs(&[50.0, 40.0, 30.0, 70.0]));
    assert_eq!(line.points, [(10.0, 40.0), (200.0, 60.0), (300.0, 30.0)]);
    let expect = vec![(40.0, 40.0), (50.0, 70.0), (30.0, 30.0)];
    assert_eq!(line.low_high, Some(expect));
    assert_eq!(clients().line(&runs(&[50.0])).points, [(200.0, 50.0)]);
}
