//! The flags of `milepost bench`: what reaches the load, and what the command refuses itself.

use super::*;

fn parsed(words: &[&str]) -> (BenchOptions, Vec<String>) {
    let words = ["milepost", "bench"].iter().chain(words);
    let matches = crate::command::command(Purpose::Run)
        .try_get_matches_from(words)
        .unwrap();
    let (_, matches) = matches.subcommand().unwrap();
    let (options, faults) = options(matches);
    let faults = faults.iter().map(|fault| {
        let text = fault.text().trim_end().replace("\nhint: ", " > ");
        text.trim_start_matches("milepost: ").to_owned()
    });
    (options, faults.collect())
}

#[track_caller]
fn check_fault(words: &[&str], expect: &[&str]) {
    assert_eq!(parsed(words).1, expect, "{words:?}");
}

#[test]
fn gives_the_load_its_texts() {
    let words = "-c 64 -t 2 -d 30s -n 5 -r 100 -X PUT -H A:b -H C:d --burst --server-pid 7 --per-connection 3 http://h/";
    let words: Vec<&str> = words.split(' ').collect();
    let (options, faults) = parsed(&words);
    assert_eq!(faults, Vec::<String>::new());
    for (name, expect) in [
        ("url", &["http://h/"][..]),
        ("connections", &["64"]),
        ("threads", &["2"]),
        ("duration", &["30s"]),
        ("requests", &["5"]),
        ("rate", &["100"]),
        ("method", &["PUT"]),
        ("header", &["A:b", "C:d"]),
        ("burst", &["true"]),
        ("insecure", &[]),
        ("server_pid", &["7"]),
        ("requests_per_connection", &["3"]),
    ] {
        assert_eq!(options.load.texts(name), expect, "{name}");
    }
    assert!(matches!(options.runs, Runs::Repeated { len: 1, .. }));
    assert!(options.outputs.is_empty() && !options.is_quiet);
}

#[test]
fn counts_the_last_one_of_a_flag_and_takes_negative_numbers_for_values() {
    let (options, _) = parsed(&["-c", "1", "-c", "-2", "http://h/"]);
    assert_eq!(options.load.texts("connections"), ["-2"]);
}

#[test]
fn takes_places_for_results() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.json");
    let file = file.to_str().unwrap();
    let (options, faults) = parsed(&[
        "--json",
        file,
        "--html",
        "-",
        "-q",
        "--label",
        "a",
        "http://h/",
    ]);
    assert_eq!(faults, Vec::<String>::new());
    let places = options.outputs.iter().map(|output| &output.place);
    let expect = [&Place::File(file.into()), &Place::Stdout];
    assert_eq!(places.collect::<Vec<_>>(), expect);
    assert!(has_stdout(&options.outputs) && options.is_quiet);
    assert_eq!(options.label, "a");
    check_fault(
        &["--json", "-", "--html", "-", "http://h/"],
        &["`--html`: `-` is written to already"],
    );
    check_fault(
        &["--html", "/", "--json", "/none/there", "http://h/"],
        &[
            "`--json`: `/none/there` cannot be written: its folder is not there",
            "`--html`: `/` cannot be written: it is a folder",
        ],
    );
    let long = format!("/tmp/{}", "a".repeat(300));
    let expect = format!("`--json`: `{long}` cannot be written: file name too long");
    check_fault(&["--json", &long, "http://h/"], &[&expect]);
}

#[test]
fn begins_a_search_where_it_is_told_to() {
    for (words, expect) in [
        (&["--search", "p99 < 20ms"][..], (100.0, 1_000_000.0)),
        (
            &[
                "--search",
                "p99 < 20ms",
                "-r",
                "500",
                "--search-max",
                "5000",
            ],
            (500.0, 5_000.0),
        ),
    ] {
        let (options, faults) = parsed(words);
        assert_eq!(faults, Vec::<String>::new());
        let Runs::Search { first, most, .. } = options.runs else {
            panic!("no search");
        };
        assert_eq!((first, most), expect);
    }
}

#[test]
fn refuses_what_does_not_go_with_a_search() {
    let search = ["--search", "p99 < 20ms", "http://h/"];
    let check = |words: &[&str], expect: &str| check_fault(&[&search, words].concat(), &[expect]);
    let found = "find the rate first, then run at it";
    let rate = "a search is made of runs at a rate";
    check(
        &["--repeat", "2"],
        &format!("`--search` and `--repeat`: exclude each other > {found}"),
    );
    check(
        &["--assert", "p99 < 1s"],
        &format!("`--search` and `--assert`: exclude each other > {found}"),
    );
    check(
        &["--burst"],
        &format!("`--search` and `--burst`: exclude each other > {rate}"),
    );
    check(
        &["--replay", "log"],
        &format!("`--search` and `--replay`: exclude each other > {rate}"),
    );
    check(
        &["--rate", "1..2:1s"],
        "`--rate`: expected a number of more than 0, found `1..2:1s` > a search begins at one rate, without steps or ramps",
    );
    check(
        &["--search-max", "0"],
        "`--search-max`: expected a number of more than 0, found `0`",
    );
    check_fault(
        &["--search-max", "5"],
        &[
            "`--search-max`: means nothing without `--search` > `--search 'p99 < 20ms'`, for example",
        ],
    );
}

#[test]
fn understands_templates_of_recorded_logs() {
    let (options, faults) = parsed(&[
        "--replay",
        "log",
        "--replay-format",
        "{time} {method} {target}",
    ]);
    assert_eq!(faults, Vec::<String>::new());
    assert!(options.pattern.is_some());
    check_fault(
        &["--replay-format", "{time} {method} {target}"],
        &[
            "`--replay-format`: means nothing without `--replay` > `--replay FILE` names a recording",
        ],
    );
    let (_, faults) = parsed(&["--replay", "log", "--replay-format", "{colour}"]);
    assert!(faults[0].starts_with("`--replay-format`: "), "{faults:?}");
}

#[test]
fn has_no_key_twice() {
    for key in rows() {
        let same = rows().filter(|other| other.name == key.name);
        assert_eq!(same.count(), 1, "{}", key.name);
        let letter = rows().filter(|other| key.short.is_some() && other.short == key.short);
        assert!(letter.count() <= 1, "{}", key.name);
    }
    assert_eq!(rows().count(), spec::keys().len() + OWN.len());
}
