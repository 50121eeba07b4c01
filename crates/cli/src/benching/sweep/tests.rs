//! Tests of sweeps as they are asked for: flags, faults, what is written.

use std::fs;

use super::outputs::page;
use super::*;
use clap::Command;

fn matches(flags: &[&str]) -> ArgMatches {
    let command = Command::new("sweep").no_binary_name(true).args(args());
    command.try_get_matches_from(flags).expect("known flags")
}

fn load(pairs: &[(&str, &str)]) -> LoadText {
    let mut load = LoadText::default();
    load.set("connections", "1..3:1");
    for (key, value) in pairs {
        load.set(key, *value);
    }
    load
}

fn wished(flags: &[&str], pairs: &[(&str, &str)]) -> Result<Wish, String> {
    let wish = wish(&matches(flags), load(pairs));
    wish.map_err(|messages| messages.iter().map(Message::text).collect())
}

fn names(wish: &Wish) -> Vec<&str> {
    wish.experiment
        .servers
        .iter()
        .map(|server| server.name.as_str())
        .collect()
}

#[test]
fn takes_arguments_of_a_server_that_begin_with_a_hyphen() {
    let wish = wished(
        &["--server", "--static /=./public", "--matrix", "drivers=1,2"],
        &[("url", "/")],
    );
    let wish = wish.expect("a wish");
    assert_eq!(names(&wish), ["drivers=1", "drivers=2"]);
}

#[test]
fn measures_what_is_there_when_nothing_is_started() {
    let wish = wished(&[], &[("url", "http://127.0.0.1:8000/x")]).expect("a wish");
    assert_eq!(names(&wish), ["http://127.0.0.1:8000/x"]);
    assert!(wish.experiment.servers[0].start.is_empty());
    assert_eq!(wish.experiment.repeat, 5);
    assert_eq!(wish.experiment.points.len(), 3);
    assert_eq!(
        wish.experiment.points[1].load.value("connections"),
        Some("2")
    );
    assert_eq!(
        wish.experiment.points[1].load.value("url"),
        Some("http://127.0.0.1:8000/x")
    );
}

#[test]
fn starts_each_combination_and_each_other_server() {
    let flags = [
        "--server",
        "shop:app --threads 2",
        "--matrix",
        "drivers=1,2",
        "--start",
        "ng=nginx {port}",
        "--repeat",
        "3",
    ];
    let wish = wished(&flags, &[("url", "/x?y")]).expect("a wish");
    assert_eq!(names(&wish), ["drivers=1", "drivers=2", "ng"]);
    assert_eq!(wish.experiment.repeat, 3);
    let start = wish.experiment.servers[1].start.join(" ");
    assert!(
        start.ends_with("shop:app --threads 2 --drivers=2"),
        "{start}"
    );
    for server in &wish.experiment.servers {
        assert_eq!(server.ready.path.as_deref(), Some("/x?y"));
    }
    let url = wish.experiment.points[0].load.value("url");
    assert_eq!(url, Some("http://127.0.0.1:{port}/x?y"));
    let wish = wished(
        &["--server", "shop:app"],
        &[("url", "https://127.0.0.1:{port}/")],
    )
    .expect("a wish");
    assert_eq!(names(&wish), ["milepost"]);
    assert_eq!(wish.experiment.servers[0].ready.path, None);
}

#[test]
fn says_all_that_is_wrong_at_once() {
    let flags = [
        "--matrix",
        "drivers=1",
        "--repeat",
        "0",
        "--server-cpus",
        "1-0",
        "--start",
        "a=b",
        "--json",
        "-",
        "--svg",
        "-",
    ];
    let text = wished(&flags, &[("connections", "10..5:1")]).expect_err("faults");
    let expect = "\
milepost: `--matrix drivers=1`: there is no server to set
hint: `--server 'shop:app'` starts one
milepost: `--start a=b`: `{port}` is not in it: nothing tells the server its port
hint: a name and a command, as `--start files='python3 -m http.server {port}'`; `{port}` is put in for it
milepost: `--connections 10..5:1`: 5 is less than 10
hint: a range is FROM..TO:STEP, as `10..250:10`; a list has commas, as `10,20,50`
milepost: `--repeat 0`: is no number from 1 to 1000
milepost: `--server-cpus 1-0`: is no list of processors
hint: numbers and ranges with commas, as `0,2-3`; `--cpus` are the generator's
milepost: `-`: standard output takes one form of the results
hint: give files for the others
";
    assert_eq!(text, expect);
}

#[test]
fn says_what_is_wrong_with_servers() {
    for (flags, expect) in [
        (
            &["--server", "a:b", "--server", "c:d"][..],
            "milepost: `--server`: is given more than once\n",
        ),
        (
            &["--server", "a:b --bind :80"],
            "milepost: `--server a:b --bind :80`: `--bind` is chosen by the sweep\n",
        ),
        (
            &["--server", "a:b -b :80"],
            "milepost: `--server a:b -b :80`: `-b` is chosen by the sweep\n",
        ),
        (
            &["--server", "'a"],
            "milepost: `--server 'a`: a `'` has no other one\n",
        ),
        (
            &["--server", "a:b", "--matrix", "driver=1"],
            "milepost: `--matrix driver=1`: there is no setting `driver`\nhint: did you mean `drivers`?\n",
        ),
        (
            &["--server", "a:b", "--matrix", "bind=1"],
            "milepost: `--matrix bind=1`: `bind` is chosen by the sweep\n",
        ),
    ] {
        let text = wished(flags, &[("url", "/")]).expect_err("a fault");
        assert!(text.starts_with(expect), "{text}");
    }
    let text =
        wished(&["--server", "a:b"], &[("url", "http://127.0.0.1:80/")]).expect_err("a fault");
    assert!(
        text.starts_with(
            "milepost: `http://127.0.0.1:80/`: servers that are started get their own ports\n"
        ),
        "{text}"
    );
}

#[test]
fn takes_processors_as_numbers_and_ranges() {
    let wish = wished(&["--server-cpus", "3,0-1,1"], &[]).expect("a wish");
    assert_eq!(wish.experiment.pins.server, [0, 1, 3]);
    for text in ["", "a", "1-", "9999999", "2-1"] {
        assert!(wished(&["--server-cpus", text], &[]).is_err(), "{text}");
    }
}

#[test]
fn starts_the_program_again_by_what_stands_before_the_verb() {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for (text, expect) in [
        (
            "/usr/bin/python3 -X dev -m milepost bench sweep --server bench",
            "/usr/bin/python3 -X dev -m milepost",
        ),
        (
            "/usr/bin/python3 /usr/bin/milepost bench sweep",
            "/usr/bin/python3 /usr/bin/milepost",
        ),
    ] {
        assert_eq!(before_verb(words(text)), words(expect));
    }
}

#[test]
fn makes_a_page_that_needs_no_network() {
    let page = page("A sweep", "<svg></svg>", "a < b & c");
    assert!(page.starts_with("<!doctype html>") && page.contains("<svg></svg>"));
    assert!(page.contains("<pre>a &lt; b &amp; c</pre>") && !page.contains("src="));
}

#[test]
fn looks_at_plans_before_it_starts_anything_and_writes_every_form() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let script = "import socket,sys,time;s=socket.create_server((\"127.0.0.1\",int(sys.argv[1])));time.sleep(100)";
    let start = format!("python3 -c '{script}' {{port}}");
    let (first, second) = (format!("a={start}"), format!("b={start}"));
    let (json, svg, html) = (path("json"), path("svg"), path("html"));
    let flags = [
        "--start", &first, "--start", &second, "--repeat", "2", "--quiet", "--json", &json,
        "--svg", &svg, "--html", &html,
    ];
    let mut asked = Vec::new();
    let mut make_plan = |load: &LoadText| {
        let url = load.value("url").expect("an address");
        asked.push((url.to_owned(), load.value("connections").map(str::to_owned)));
        Err(vec![Fault::new("no plan")])
    };
    let mut run_plan = |_: &Plan, _: &mut dyn Watch| Err(Fault::new("no engine"));
    let letters = |_: &Curve<'_>| String::new();
    let svg_of = |curve: &Curve<'_>| format!("<svg>{} lines</svg>", curve.lines.len());
    let mut hands = Hands {
        make_plan: &mut make_plan,
        run_plan: &mut run_plan,
        svg: &svg_of,
        letters: &letters,
    };
    let load = load(&[("url", "/"), ("expect_status", "200")]);
    // Plans are looked at before any server is started.
    let faults = swept(&matches(&flags), load, None, &mut hands).expect_err("a fault");
    assert_eq!(faults[0].text(), "milepost: point `1`: no plan\n");
    assert_eq!(asked.len(), 1);
    assert!(!std::path::Path::new(&json).exists());
    let findings = Findings::default();
    let wish = wished(&flags, &[("url", "/")]).expect("a wish");
    let hands = Hands {
        make_plan: &mut |_| Err(Vec::new()),
        run_plan: &mut run_plan,
        svg: &svg_of,
        letters: &letters,
    };
    show(&wish, &findings, &hands).expect("files");
    let read = |path: &str| fs::read_to_string(path).expect("a file");
    assert_eq!(
        serde_json::from_str::<Findings>(&read(&json)).expect("findings"),
        findings
    );
    assert_eq!(read(&svg), "<svg>2 lines</svg>");
    assert!(read(&html).contains("<h1>Requests a second by clients</h1>"));
    assert_eq!(code(&findings), COULD_NOT);
}

#[test]
fn says_which_file_cannot_be_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let gone = folder.path().join("gone");
    fs::create_dir(&gone).expect("a folder");
    let file = gone.join("file");
    let file = file.to_str().expect("the name is ASCII");
    let wish = wished(&["--json", file, "--quiet"], &[]).expect("a wish");
    fs::remove_dir(&gone).expect("it was made above");
    let none = |_: &Curve<'_>| String::new();
    let hands = Hands {
        make_plan: &mut |_| Err(Vec::new()),
        run_plan: &mut |_, _| Err(Fault::new("no engine")),
        svg: &none,
        letters: &none,
    };
    let faults = show(&wish, &Findings::default(), &hands).expect_err("a fault");
    let expect = format!("milepost: `{file}`: No such file");
    assert!(faults[0].text().starts_with(&expect));
}

#[test]
fn knows_before_an_hour_of_measuring_what_cannot_be_written() {
    let url = [("url", "http://127.0.0.1:8000/")];
    let said = |flags: &[&str]| wished(flags, &url).expect_err("a fault");
    assert_eq!(
        said(&["--json", "/none/there", "--svg", "/"]),
        "milepost: `--json`: `/none/there` cannot be written: its folder is not there\n\
         milepost: `--svg`: `/` cannot be written: it is a folder\n"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a");
    let file = file.to_str().expect("the name is ASCII");
    let text = said(&["--json", file, "--html", file]);
    assert!(text.contains("is written to already"), "{text}");
}
