//! Ranges, and tables of made-up findings to the letter.

use super::*;
use crate::experiment::Finding;
use crate::experiment::made;
use crate::outcome::Remark;

fn load(pairs: &[(&str, &str)]) -> LoadText {
    let mut load = LoadText::default();
    for (key, value) in pairs {
        load.set(key, *value);
    }
    load
}

fn swept(key: &str, text: &str) -> Result<Swept, Fault> {
    Swept::taken_from(&load(&[(key, text), ("duration", "2s")]))
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
    assert_eq!(
        swept("rate", "1000..3000:1000").expect("a range").values,
        [1_000, 2_000, 3_000]
    );
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
        ("1..9:x", "`x` is no whole number"),
        ("1..100000:1", "100000 points are more than 1000"),
        (
            "1..18446744073709551615:1",
            "18446744073709551615 points are more than 1000",
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
    assert_eq!(fault.text, "nothing is swept: no number has a range");
    let two = load(&[("connections", "1..3:1"), ("rate", "10,20")]);
    let fault = Swept::taken_from(&two).expect_err("a fault");
    assert_eq!(
        fault.text,
        "`--connections`, `--rate`: more than one number is swept"
    );
    // Ramps and steps are loads of their own.
    let ramp = load(&[("connections", "1..3:1"), ("rate", "100..2000:30s")]);
    assert_eq!(
        Swept::taken_from(&ramp).expect("a range").key,
        "connections"
    );
    let steps = load(&[("connections", "1..3:1"), ("rate", "500:10s,1000:10s")]);
    assert_eq!(
        Swept::taken_from(&steps).expect("a range").column(),
        "clients"
    );
    let connections = load(&[("connections", "10..250:30s"), ("pipeline", "1,2")]);
    assert_eq!(
        Swept::taken_from(&connections).expect("a list").key,
        "pipeline"
    );
}

#[test]
fn makes_a_point_of_each_number() {
    let base = load(&[("connections", "10,20"), ("duration", "2s")]);
    let swept = Swept::taken_from(&base).expect("a list");
    let points = swept.points(&base);
    assert_eq!(points[1].name, "20");
    assert_eq!(
        points[1].load,
        load(&[("connections", "20"), ("duration", "2s")])
    );
    assert_eq!(points.len(), 2);
}

/// Requests a second of servers `a` and `b` at 10 and 200 clients in three repetitions; 0: no result.
fn findings(a: [[f64; 3]; 2], b: [[f64; 3]; 2]) -> Findings {
    let mut findings = Findings::default();
    for (server, rates) in [("a", a), ("b", b)] {
        for (point, rates) in [("10", rates[0]), ("200", rates[1])] {
            for (index, rate) in rates.into_iter().enumerate() {
                let outcome = if rate > 0.0 {
                    Ok(made::outcome(rate, 2.5))
                } else {
                    Err("refused".to_owned())
                };
                findings.findings.push(Finding {
                    server: server.to_owned(),
                    point: point.to_owned(),
                    repetition: index + 1,
                    outcome,
                    facts: BTreeMap::new(),
                    notes: Vec::new(),
                    disturbed: false,
                });
            }
        }
    }
    findings
}

fn clients() -> Swept {
    Swept {
        key: "connections".to_owned(),
        values: vec![10, 200],
    }
}

#[test]
fn prints_the_table_of_one_server() {
    let findings = findings(
        [[41_000.0, 42_000.0, 43_000.0], [57_000.0, 900.0, 57_000.0]],
        [[0.0; 3]; 2],
    );
    let swept = clients();
    let table = SweepTable::new(&swept, &["a"], &findings);
    let expect = "          a
clients      min     ave     max    time
     10   41,000  42,000  43,000  7.50 s
    200      900  38,300  57,000  7.50 s
";
    assert_eq!(table.table(), expect);
    assert!(table.text().starts_with(expect));
    assert!(!table.text().contains("ratios"));
}

#[test]
fn prints_servers_side_by_side_with_ratios_of_the_same_repetitions() {
    let findings = findings(
        [[40_000.0, 20_000.0, 40_000.0], [50_000.0; 3]],
        [[36_000.0, 20_000.0, 38_000.0], [60_000.0, 0.0, 55_000.0]],
    );
    let swept = clients();
    let expect = "          a                                b
clients      min     ave     max    time      min     ave     max    time
     10   20,000  33,333  40,000  7.50 s   20,000  31,333  38,000  7.50 s
    200   50,000  50,000  50,000  7.50 s   55,000  57,500  60,000  5.00 s

requests a second as ratios to `a`
          b
clients     min  median    max
     10   0.900   0.950  1.000
    200   1.100   1.150  1.200

b, 200 clients, repetition 2: no result: refused
";
    assert_eq!(
        SweepTable::new(&swept, &["a", "b"], &findings).text(),
        expect
    );
}

#[test]
fn shows_dashes_where_nothing_was_measured() {
    let mut findings = findings([[1.0; 3], [1.0; 3]], [[0.0; 3]; 2]);
    findings.findings.truncate(6);
    findings.skipped.push((
        "a server with a long name".to_owned(),
        "`x` is not installed".to_owned(),
    ));
    let swept = clients();
    let expect = "          a                       a server with a long name
clients   min  ave  max    time         min  ave  max  time
     10     1    1    1  7.50 s           -    -    -     -
    200     1    1    1  7.50 s           -    -    -     -

requests a second as ratios to `a`
          a server with a long name
clients            min  median  max
     10              -       -    -
    200              -       -    -

a server with a long name: not measured: `x` is not installed
";
    let table = SweepTable::new(&swept, &["a", "a server with a long name"], &findings);
    assert_eq!(table.text(), expect);
    assert!(table.lines()[1].points.is_empty());
}

#[test]
fn says_each_doubt_once_and_each_failure() {
    let mut findings = findings([[1.0; 3], [1.0; 3]], [[1.0; 3], [1.0; 3]]);
    for finding in &mut findings.findings[..4] {
        let outcome = finding.outcome.as_mut().expect("an outcome");
        outcome.remarks.push(Remark {
            weight: Weight::Invalid,
            word: "late".to_owned(),
            text: "too late".to_owned(),
        });
    }
    let outcome = findings.findings[5].outcome.as_mut().expect("an outcome");
    outcome.counts.failures.reset = 1_234;
    outcome.counts.answered = 8_766;
    findings.findings[7].disturbed = true;
    findings.repeated = 2;
    findings.interrupted = true;
    let swept = clients();
    let text = SweepTable::new(&swept, &["a", "b"], &findings).text();
    let notes: Vec<&str> = text.lines().skip(11).collect();
    let expect = [
        "it was interrupted: not everything was measured",
        "a, 200 clients, repetition 3: 1,234 of 10,000 requests failed",
        "invalid, late, in 4 of 12 runs; the first: too late",
        "others used the processors: 2 of 12 runs were made a second time, and 1 disturbed again",
    ];
    assert_eq!(notes, expect);
}

#[test]
fn gives_lines_with_bands() {
    let findings = findings([[1_000.0, 2_000.0, 3_000.0], [4_000.0; 3]], [[0.0; 3]; 2]);
    let swept = clients();
    let lines = SweepTable::new(&swept, &["a"], &findings).lines();
    assert_eq!(lines[0].name, "a");
    let close = |got: &[(f64, f64)], expect: &[(f64, f64)]| {
        let pairs = got.iter().zip(expect);
        got.len() == expect.len()
            && pairs
                .into_iter()
                .all(|(a, b)| (a.0 - b.0).abs() + (a.1 - b.1).abs() < 1.0)
    };
    assert!(
        close(&lines[0].points, &[(10.0, 2_000.0), (200.0, 4_000.0)]),
        "{lines:?}"
    );
    assert!(
        close(
            &lines[0].low_high,
            &[(1_000.0, 3_000.0), (4_000.0, 4_000.0)]
        ),
        "{lines:?}"
    );
}
