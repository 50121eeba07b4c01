//! Outcomes as a file for programs, and back: `{"schema":2,"runs":[...]}`.
//!
//! Takes outcomes, gives RFC 8259 text; reads what it wrote and says what does not fit. Every field is
//! described in docs/reference/bench-json.md, and a test compares the two.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::distribution::Summary;
use crate::engine::Fault;
use crate::outcome::{Asked, Counts, Generator, Outcome, SCHEMA};

/// What is said when a file is not one of ours.
const HINT: &str = "give files that `milepost bench --json FILE` has written";

#[derive(Serialize)]
struct StoredFile {
    schema: u32,
    runs: Vec<Outcome>,
}

/// The file of these runs, ending in a newline. JSON has no word for what is not finite: such a number is
/// `null` where a number may be absent, and otherwise 0.
pub fn json(outcomes: &[Outcome]) -> String {
    let file = StoredFile {
        schema: SCHEMA,
        runs: outcomes.iter().map(finite).collect(),
    };
    let text = serde_json::to_string(&file);
    text.expect("the keys are strings and numbers, and memory takes every byte") + "\n"
}

/// The runs of a file.
///
/// # Errors
/// It is no JSON, has another schema, or a field is missing or of another kind: the fault names it.
pub fn read_json(text: &str) -> Result<Vec<Outcome>, Fault> {
    let said = |cause: String| Fault::with_hint(cause, HINT);
    let mut file: Value =
        serde_json::from_str(text).map_err(|error| said(format!("this is no JSON: {error}")))?;
    let Some(object) = file.as_object_mut() else {
        return Err(said("this is JSON, but no object".to_owned()));
    };
    match object.get("schema") {
        None => return Err(said("the field `schema` is missing".to_owned())),
        Some(found) => schema(found)?,
    }
    let Some(Value::Array(runs)) = object.remove("runs") else {
        return Err(said(
            "the field `runs` is missing, or is no list".to_owned(),
        ));
    };
    runs.into_iter()
        .enumerate()
        .map(|(index, run)| read_run(index, run).map_err(said))
        .collect()
}

fn schema(found: &Value) -> Result<(), Fault> {
    if found.as_u64() == Some(u64::from(SCHEMA)) {
        return Ok(());
    }
    Err(Fault::with_hint(
        format!("this file has schema {found}, and this version reads schema {SCHEMA}"),
        "read it with the version that wrote it: the field `milepost` of its runs",
    ))
}

fn read_run(index: usize, run: Value) -> Result<Outcome, String> {
    let place = place(&run);
    serde_json::from_value::<Outcome>(run)
        .map_err(|error| format!("run {}{place}: {error}", index + 1))
        .and_then(|outcome| match outcome.schema {
            SCHEMA => Ok(outcome),
            other => Err(format!("run {} has schema {other}", index + 1)),
        })
}

/// The innermost part of a run that cannot be read, as `, in times.latency`; empty: none, or the run itself.
fn place(run: &Value) -> String {
    let parts = [
        ("asked", fails::<Asked> as fn(&Value) -> bool),
        ("counts", fails::<Counts>),
        ("times.latency", fails::<Summary>),
        ("times.connect", fails::<Summary>),
        ("times.first_byte", fails::<Summary>),
        ("times.last_byte", fails::<Summary>),
        ("times.cycle", fails::<Summary>),
        ("times.late", fails::<Option<Summary>>),
        ("times.unread", fails::<Option<Summary>>),
        ("generator", fails::<Generator>),
    ];
    let broken = parts.into_iter().find(|(path, fails)| {
        let part = path.split('.').try_fold(run, |value, key| value.get(key));
        part.is_some_and(fails)
    });
    broken.map_or_else(String::new, |(path, _)| format!(", in `{path}`"))
}

fn fails<T: DeserializeOwned>(part: &Value) -> bool {
    serde_json::from_value::<T>(part.clone()).is_err()
}

/// The same without a number that is not finite.
fn finite(outcome: &Outcome) -> Outcome {
    let mut outcome = outcome.clone();
    settle(&mut [&mut outcome.seconds, &mut outcome.asked.timeout_s]);
    outcome.asked.rate = outcome.asked.rate.filter(|rate| rate.is_finite());
    let asked = &mut outcome.asked;
    for leg in asked
        .rate_legs
        .iter_mut()
        .chain(&mut asked.connections_legs)
    {
        settle(&mut [&mut leg.from, &mut leg.to, &mut leg.lasts_s]);
    }
    let times = &mut outcome.times;
    for summary in [
        &mut times.latency,
        &mut times.connect,
        &mut times.first_byte,
        &mut times.last_byte,
        &mut times.cycle,
    ] {
        settle_summary(summary);
    }
    let lived = outcome
        .bad_clients
        .iter_mut()
        .filter_map(|count| count.lived.as_mut());
    let rest = times.late.iter_mut().chain(&mut times.unread).chain(lived);
    rest.for_each(settle_summary);
    for second in &mut outcome.series {
        settle(&mut [&mut second.p50_us, &mut second.p99_us, &mut second.max_us]);
    }
    let generator = &mut outcome.generator;
    settle(&mut [
        &mut generator.cpu_us_per_request,
        &mut generator.stalled_s,
        &mut generator.foreign_cpu_share,
    ]);
    for thread in &mut generator.threads {
        settle(&mut [
            &mut thread.cpu_share,
            &mut thread.cpu_s,
            &mut thread.user_s,
            &mut thread.waited_s,
        ]);
    }
    if let Some(server) = &mut outcome.server {
        settle(&mut [
            &mut server.cpu_us_per_request,
            &mut server.cpu_share,
            &mut server.switches_per_request,
        ]);
    }
    outcome
}

fn settle_summary(summary: &mut Summary) {
    settle(&mut [
        &mut summary.mean_us,
        &mut summary.stdev_us,
        &mut summary.min_us,
        &mut summary.p50_us,
        &mut summary.p75_us,
        &mut summary.p90_us,
        &mut summary.p95_us,
        &mut summary.max_us,
    ]);
    for far in [
        &mut summary.p99_us,
        &mut summary.p99_9_us,
        &mut summary.p99_99_us,
    ] {
        *far = far.filter(|value| value.is_finite());
    }
}

fn settle(numbers: &mut [&mut f64]) {
    for number in numbers.iter_mut().filter(|number| !number.is_finite()) {
        **number = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn reads_what_it_wrote() {
        let runs = vec![sample::closed(), sample::open(), sample::empty()];
        assert_eq!(read_json(&json(&runs)).unwrap(), runs);
        assert_eq!(read_json(&json(&[])).unwrap(), []);
    }

    #[test]
    fn writes_no_number_that_json_has_not() {
        let mut run = sample::open();
        run.seconds = f64::NAN;
        run.generator.cpu_us_per_request = f64::INFINITY;
        run.times.latency.mean_us = f64::NAN;
        run.times.latency.p99_us = Some(f64::NEG_INFINITY);
        run.series[0].p50_us = f64::NAN;
        let read = read_json(&json(&[run])).unwrap();
        assert_eq!((read[0].seconds, read[0].times.latency.p99_us), (0.0, None));
    }

    #[test]
    fn says_what_does_not_fit() {
        let check = |change: &dyn Fn(&mut Value), expect: &str| {
            let mut file: Value = serde_json::from_str(&json(&[sample::closed()])).unwrap();
            change(&mut file);
            let fault = read_json(&file.to_string()).unwrap_err();
            assert_eq!(fault.text, expect);
            assert!(fault.hint.is_some());
        };
        check(
            &|file| file["schema"] = 3.into(),
            "this file has schema 3, and this version reads schema 2",
        );
        check(
            &|file| drop(file.as_object_mut().unwrap().remove("schema")),
            "the field `schema` is missing",
        );
        check(
            &|file| file["runs"] = 7.into(),
            "the field `runs` is missing, or is no list",
        );
        check(
            &|file| drop(file["runs"][0].as_object_mut().unwrap().remove("seconds")),
            "run 1: missing field `seconds`",
        );
        check(
            &|file| {
                let latency = file["runs"][0]["times"]["latency"].as_object_mut();
                latency.unwrap().remove("p50_us");
            },
            "run 1, in `times.latency`: missing field `p50_us`",
        );
        check(
            &|file| file["runs"][0]["asked"]["connections"] = "many".into(),
            "run 1, in `asked`: invalid type: string \"many\", expected usize",
        );
        check(
            &|file| file["runs"][0]["schema"] = 9.into(),
            "run 1 has schema 9",
        );
    }

    #[test]
    fn says_that_it_is_no_json() {
        let fault = read_json("requests: 7").unwrap_err();
        assert_eq!(
            fault.text,
            "this is no JSON: expected value at line 1 column 1"
        );
        assert_eq!(
            read_json("[]").unwrap_err().text,
            "this is JSON, but no object"
        );
    }
}
