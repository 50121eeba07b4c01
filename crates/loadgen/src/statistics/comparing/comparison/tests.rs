//! The table and the JSON of comparisons, letter by letter.

use super::super::{Set, compare};
use super::*;
use crate::outcome::Outcome;
use crate::tests::outcome;

fn set(name: &str, rates: &[usize]) -> Set {
    let run = |answered: &usize| -> Outcome { outcome(&vec![1_000_000; *answered], 1) };
    Set {
        name: name.into(),
        runs: rates.iter().map(run).collect(),
    }
}

const METRICS: [Metric; 3] = [
    Metric::Plain("rps"),
    Metric::P50,
    Metric::Plain("server-cpu"),
];

#[test]
fn has_a_line_for_each_figure_of_two_sets() {
    let first = set("before.json", &[1_000, 1_010, 990, 1_005, 995]);
    let other = set("after.json", &[1_100, 1_115, 1_090, 1_108, 1_093]);
    let expect = "\
closed, 64 connections, GET /
A   before.json, 5 runs
B   after.json, 5 runs

figure          A      B  B to A  95 % interval   verdict
rps         1,000  1,100   1.101  1.098 to 1.104  better
p50          1 ms   1 ms   1.000  1.000 to 1.000  noise
server-cpu      –      –   –      –               no value
note: no value: one side has no run with this figure
";
    assert_eq!(compare(&[first, other], Some(&METRICS)).text(), expect);
}

#[test]
fn has_a_line_for_each_set_of_more() {
    let sets = [
        set("a", &[1_000; 3]),
        set("b", &[1_100; 3]),
        set("c", &[900; 1]),
    ];
    let expect = "\
closed, 64 connections, GET /
A   a, 3 runs
B   b, 3 runs
C   c, 1 run

figure  set  median   to A  95 % interval   verdict
rps     A     1,000
        B     1,100  1.100  1.100 to 1.100  better
        C       900  0.900  –               too little data
note: fewer than 5 runs a side: an interval of resampled runs would be too narrow to be trusted,
      these are Student's; repeat with --repeat 5
note: too little data: one side has a single run: repeat with --repeat 5
";
    assert_eq!(compare(&sets, Some(&METRICS[..1])).text(), expect);
}

#[test]
fn is_never_wider_than_a_hundred_columns() {
    let long = "directory/".repeat(30);
    let mut sets: Vec<Set> = (0..40).map(|_| set(&long, &[12_345; 2])).collect();
    sets[3].runs[0].asked.requests = vec!["GET /".to_owned() + &"x".repeat(300)];
    sets[4].runs[0].remarks.push(crate::outcome::Remark {
        weight: crate::outcome::Weight::Invalid,
        word: "late".into(),
        text: "requests left late ".repeat(20),
    });
    for sets in [&sets[..2], &sets[..]] {
        let text = compare(sets, None).text();
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{text}");
    }
}

#[test]
fn is_json_with_a_schema() {
    let sets = [set("a", &[1_000; 5]), set("b", &[1_100; 5])];
    let json: serde_json::Value =
        serde_json::from_str(&compare(&sets, None).json()).expect("it is JSON");
    assert_eq!(json["schema"], 1);
    assert_eq!(json["sets"][1], "b");
    let row = &json["panels"][0]["rows"][0];
    let side = &row["sides"][1]["against_first"];
    let estimate = &side["estimate"];
    let texts = [
        &row["metric"],
        &row["unit"],
        &row["better"],
        &side["change"],
        &estimate["form"],
        &estimate["method"],
    ];
    let expect = ["rps", "1/s", "higher", "better", "ratio", "bootstrap"];
    assert!(
        texts
            .iter()
            .zip(expect)
            .all(|(text, expect)| *text == expect),
        "{texts:?}"
    );
    let low = estimate["interval"]["low"].as_f64().expect("a number");
    assert!((low - 1.1).abs() < 1e-9, "{low}");
    assert!(row["sides"][0]["against_first"].is_null());
}
