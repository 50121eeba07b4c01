//! Outcomes as a file for programs, and back: `{"schema":2,"runs":[...]}`.
//!
//! Takes outcomes, gives RFC 8259 text; reads what it wrote and says what does not fit. Every field is
//! described in docs/reference/bench-json.md, and a test compares the two.

use serde::Serialize;
use serde_json::Value;

use crate::engine::Fault;
use crate::outcome::{Outcome, SCHEMA};

/// What is said when a file is not one of ours.
const HINT: &str = "give files that `milepost bench --json FILE` has written";

#[derive(Serialize)]
struct StoredFile<'o> {
    schema: u32,
    runs: &'o [Outcome],
}

/// The file of these runs, ending in a newline.
pub fn json(runs: &[Outcome]) -> String {
    // Every number of a run is finite, which JSON has no other word for: no share or mean is of nothing.
    let schema = SCHEMA;
    let text = serde_json::to_string(&StoredFile { schema, runs });
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
    // The schema first: what another version wrote may lack anything else.
    let Some(Value::Array(runs)) = object.remove("runs") else {
        let cause = "the field `runs` is missing, or is no list";
        return Err(said(cause.to_owned()));
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
    let run: Result<Outcome, _> = serde_path_to_error::deserialize(run);
    match run {
        // Each run says its schema as well: files of several versions may have been put together.
        Ok(outcome) if outcome.schema == SCHEMA => Ok(outcome),
        Ok(other) => Err(format!("run {} has schema {}", index + 1, other.schema)),
        Err(error) => {
            let path = error.path().to_string();
            // The path of the run itself is a point.
            let place = match path.as_str() {
                "." => String::new(),
                path => format!(", in `{path}`"),
            };
            Err(format!("run {}{place}: {}", index + 1, error.inner()))
        }
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
            "run 1, in `asked.connections`: invalid type: string \"many\", expected usize",
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
