//! Experiments with made-up runs: whose turn it is, what is kept, what is refused.

use super::*;
use crate::engine::{Fault, Watch};
use crate::experiment::made;
use crate::experiment::{Action, Beside, Do, FactSpec, LoadText, Pins, Programs, Progress, Ready};
use crate::outcome::Second;

/// Remembers the steps, and ends after so many of them.
#[derive(Default)]
struct Diary {
    steps: Vec<String>,
    over_at: Option<usize>,
}

impl Watch for Diary {
    fn second(&mut self, _: &Second) {}

    fn is_over(&mut self) -> bool {
        self.over_at.is_some_and(|len| self.steps.len() >= len)
    }
}

impl Progress for Diary {
    fn step(&mut self, step: &Step<'_>) {
        self.steps.push(match step {
            Step::Skips { server, .. } => format!("skip {server}"),
            Step::Starts {
                server,
                repetition,
                repeat,
            } => format!("start {server} {repetition}/{repeat}"),
            Step::Measures {
                server,
                point,
                done,
                all,
            } => format!("{server} {point} {done}/{all}"),
            Step::Repeats { server, point } => format!("again {server} {point}"),
        });
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

fn there(name: &str) -> ServerSpec {
    ServerSpec {
        name: name.to_owned(),
        ..ServerSpec::default()
    }
}

/// A server in Python that does nothing but listen.
fn listening(name: &str) -> ServerSpec {
    let script = "import socket, sys, time\n\
                  listening = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n\
                  time.sleep(100)\n";
    ServerSpec {
        start: words("{python} {folder}/app.py {port}"),
        files: vec![("app.py".to_owned(), script.to_owned())],
        ..there(name)
    }
}

fn point(name: &str) -> Point {
    let mut load = LoadText::default();
    load.set("url", "http://127.0.0.1:{port}/");
    load.set("connections", name);
    Point {
        name: name.to_owned(),
        load,
        servers: None,
    }
}

fn experiment(servers: Vec<ServerSpec>, points: &[&str], repeat: usize) -> Experiment {
    Experiment {
        name: "trial".to_owned(),
        repeat,
        servers,
        points: points.iter().map(|name| point(name)).collect(),
        pins: Pins::default(),
        rest: Nanos::ZERO,
    }
}

/// Runs it with a plan as it comes and these outcomes.
fn ran(
    experiment: &Experiment,
    diary: &mut Diary,
    run_plan: &mut dyn FnMut(&Plan, &mut dyn Watch) -> Result<Outcome, Fault>,
) -> Result<Findings, Fault> {
    let programs = Programs {
        milepost: words("milepost"),
        python: "python3".to_owned(),
    };
    let mut make_plan = |load: &LoadText| {
        let url = load.value("url").unwrap_or_default();
        let port = url
            .rsplit_once(':')
            .and_then(|(_, rest)| rest.trim_end_matches('/').parse().ok());
        port.map(made::plan).ok_or_else(|| {
            vec![
                Fault::with_hint("no port", "give one"),
                Fault::new("no path"),
            ]
        })
    };
    let mut means = Means {
        programs: &programs,
        make_plan: &mut make_plan,
        run_plan,
        progress: diary,
    };
    run(experiment, &mut means)
}

fn well(_: &Plan, _: &mut dyn Watch) -> Result<Outcome, Fault> {
    Ok(made::outcome(1_000.0, 2.0))
}

#[test]
fn takes_servers_back_and_forth_and_points_within_a_turn() {
    let experiment = experiment(vec![there("a"), there("b"), there("c")], &["1", "2"], 3);
    let mut diary = Diary::default();
    let findings = ran(&experiment, &mut diary, &mut well).expect("findings");
    let got: Vec<String> = findings
        .findings
        .iter()
        .map(|finding| format!("{}{}{}", finding.repetition, finding.server, finding.point))
        .collect();
    let expect = "1a1 1a2 1b1 1b2 1c1 1c2 2c1 2c2 2b1 2b2 2a1 2a2 3a1 3a2 3b1 3b2 3c1 3c2";
    assert_eq!(got, words(expect));
    assert_eq!(
        diary.steps[..4],
        ["start a 1/3", "a 1 0/18", "a 2 1/18", "start b 1/3"]
    );
    assert_eq!(findings.outcomes("b", "2").len(), 3);
    assert_eq!(findings.experiment, "trial");
    assert!(findings.host.processors > 0 && !findings.host.kernel.is_empty());
}

#[test]
fn gives_points_to_the_servers_they_are_for() {
    let mut experiment = experiment(vec![there("a"), there("b")], &["1", "2"], 1);
    experiment.points[0].servers = Some(words("b"));
    let mut diary = Diary::default();
    ran(&experiment, &mut diary, &mut well).expect("findings");
    assert_eq!(
        diary.steps,
        [
            "start a 1/1",
            "a 2 0/3",
            "start b 1/1",
            "b 1 1/3",
            "b 2 2/3"
        ]
    );
}

#[test]
fn starts_a_server_anew_for_each_turn_and_tells_the_plan_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let heard = folder.path().join("heard");
    let script = "import signal, socket, sys, time\n\
                  signal.signal(signal.SIGUSR1, lambda *_: open(sys.argv[2], 'a').write('x'))\n\
                  listening = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n\
                  while True: time.sleep(100)\n";
    let mut spec = listening("app");
    spec.files[0].1 = script.to_owned();
    spec.start.push(heard.display().to_string());
    spec.version = words("{python} --version");
    spec.facts = vec![FactSpec {
        name: "pid".to_owned(),
        command: words("echo {pid}"),
    }];
    spec.actions = vec![Action {
        at: Nanos::ZERO,
        every: None,
        times: 1,
        what: Do::Signal {
            whom: "server".to_owned(),
            signal: "USR1".to_owned(),
        },
    }];
    let mut experiment = experiment(vec![spec], &["1"], 2);
    experiment.pins.generator = vec![pins::available()[0]];
    let mut seen = Vec::new();
    let mut run_plan = |plan: &Plan, _: &mut dyn Watch| {
        let crate::plan::Address::Ip(address) = &plan.target.address else {
            return Err(Fault::new("no address"));
        };
        std::net::TcpStream::connect(address).map_err(|error| Fault::new(error.to_string()))?;
        seen.push((plan.machine.server_pids.clone(), plan.machine.cpus.clone()));
        // The action is due at once, and done by another thread.
        while fs::read(&heard).unwrap_or_default().len() < seen.len() {
            thread::yield_now();
        }
        Ok(made::outcome(1_000.0, 2.0))
    };
    let findings = ran(&experiment, &mut Diary::default(), &mut run_plan).expect("findings");
    assert_eq!(seen.len(), 2);
    assert_ne!(seen[0].0, seen[1].0);
    assert_eq!(seen[0].1, experiment.pins.generator);
    for (finding, (pids, _)) in findings.findings.iter().zip(&seen) {
        let outcome = finding.outcome.as_ref().expect("an outcome");
        assert_eq!(
            (outcome.asked.url.as_str(), outcome.asked.label.as_str()),
            ("app", "1")
        );
        assert_eq!(finding.facts.get("pid"), Some(&f64::from(pids[0])));
        assert_eq!(finding.facts.get("actions_run"), Some(&1.0));
        assert!(!std::path::Path::new(&format!("/proc/{}", pids[0])).exists());
    }
    assert!(
        findings.versions["app"].starts_with("Python 3"),
        "{:?}",
        findings.versions
    );
}

#[test]
fn leaves_out_what_cannot_be_measured_and_goes_on() {
    let mut absent = there("absent");
    absent.needs = words("no-such-program");
    let mut broken = listening("broken");
    broken.start = words("sh -c echo;exit {port}");
    broken.ready = Ready::default();
    let experiment = experiment(vec![absent, broken, there("good")], &["1"], 2);
    let mut diary = Diary::default();
    let findings = ran(&experiment, &mut diary, &mut well).expect("findings");
    assert_eq!(findings.outcomes("good", "1").len(), 2);
    assert_eq!(findings.findings.len(), 2);
    assert_eq!(
        findings.skipped[0],
        (
            "absent".to_owned(),
            "`no-such-program` is not installed".to_owned()
        )
    );
    assert_eq!(findings.skipped.len(), 2);
    assert!(
        findings.skipped[1]
            .1
            .starts_with("server `broken`: ended before it was ready: exit code")
    );
    assert_eq!(
        diary.steps[..3],
        ["skip absent", "start broken 1/2", "skip broken"]
    );
}

#[test]
fn keeps_the_cause_of_a_run_that_cannot_be_made() {
    let experiment = experiment(vec![there("a")], &["1", "2"], 1);
    let mut left = 1;
    let mut run_plan = |plan: &Plan, watch: &mut dyn Watch| {
        left -= 1;
        if left < 0 {
            well(plan, watch)
        } else {
            Err(Fault::new("no port is left"))
        }
    };
    let findings = ran(&experiment, &mut Diary::default(), &mut run_plan).expect("findings");
    assert_eq!(
        findings.findings[0].outcome,
        Err("no port is left".to_owned())
    );
    assert!(findings.findings[1].outcome.is_ok());
    let stored = serde_json::to_string(&findings).expect("text");
    assert!(stored.contains(r#""outcome":{"fault":"no port is left"}"#));
    assert_eq!(
        serde_json::from_str::<Findings>(&stored).expect("findings"),
        findings
    );
}

#[test]
fn gives_up_a_server_that_ends_while_it_is_measured() {
    let experiment = experiment(vec![listening("app"), there("b")], &["1", "2"], 2);
    let mut run_plan = |plan: &Plan, watch: &mut dyn Watch| {
        for pid in &plan.machine.server_pids {
            let pid = nix::unistd::Pid::from_raw(i32::try_from(*pid).expect("a pid"));
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it lives");
            let stat = format!("/proc/{pid}/stat");
            while !fs::read_to_string(&stat).expect("a zombie").contains(") Z") {
                thread::yield_now();
            }
        }
        well(plan, watch)
    };
    let findings = ran(&experiment, &mut Diary::default(), &mut run_plan).expect("findings");
    assert_eq!(
        findings.skipped,
        [("app".to_owned(), "ended by itself: signal 9".to_owned())]
    );
    assert_eq!(
        findings
            .findings
            .iter()
            .filter(|finding| finding.server == "app")
            .count(),
        1
    );
    assert_eq!(
        findings.findings[0].notes,
        ["the server ended by itself: signal 9"]
    );
    assert_eq!(findings.outcomes("b", "2").len(), 2);
}

#[test]
fn measures_once_more_what_others_disturbed() {
    let one = 1.0 / all_processors().expect("processors") as f64;
    for (shares, kept, disturbed) in [
        (&[0.5, 0.01][..], 0.01, false),
        (&[0.2, 0.5], 0.2, true),
        (&[0.5, 0.2], 0.2, true),
        (&[0.05], 0.05, false),
    ] {
        let experiment = experiment(vec![there("a")], &["1"], 1);
        let mut left = shares.iter();
        let mut run_plan = |_: &Plan, _: &mut dyn Watch| {
            let mut outcome = made::outcome(1_000.0, 2.0);
            outcome.generator.foreign_cpu_share = left.next().expect("no third run") * one;
            Ok(outcome)
        };
        let mut diary = Diary::default();
        let findings = ran(&experiment, &mut diary, &mut run_plan).expect("findings");
        let finding = &findings.findings[0];
        let share = finding
            .outcome
            .as_ref()
            .expect("an outcome")
            .generator
            .foreign_cpu_share;
        assert!((share - kept * one).abs() < 1e-9, "{shares:?}");
        assert_eq!(finding.disturbed, disturbed, "{shares:?}");
        assert_eq!(findings.repeated, shares.len() - 1);
        assert_eq!(
            diary.steps.contains(&"again a 1".to_owned()),
            shares.len() > 1
        );
    }
}

#[test]
fn throws_away_the_run_in_which_it_is_ended() {
    let experiment = experiment(vec![there("a"), there("b")], &["1", "2"], 2);
    let mut diary = Diary {
        over_at: Some(3),
        ..Diary::default()
    };
    let findings = ran(&experiment, &mut diary, &mut well).expect("findings");
    assert!(findings.interrupted);
    assert_eq!(diary.steps, ["start a 1/2", "a 1 0/8", "a 2 1/8"]);
    assert_eq!(findings.findings.len(), 1);
}

#[test]
fn refuses_what_makes_no_sense_before_it_starts_anything() {
    let check = |change: &dyn Fn(&mut Experiment), expect: &str| {
        let mut experiment = experiment(vec![there("a"), listening("b")], &["1", "2"], 1);
        change(&mut experiment);
        let mut diary = Diary::default();
        let fault = ran(&experiment, &mut diary, &mut well).expect_err(expect);
        assert_eq!(fault.text, expect);
        assert!(diary.steps.is_empty());
    };
    let none = "experiment `trial`: repetitions, servers and points are at least 1";
    check(&|all| all.repeat = 0, none);
    check(&|all| all.servers.clear(), none);
    check(
        &|all| all.servers[1].name = "a".to_owned(),
        "experiment `trial`: two servers are called `a`",
    );
    check(
        &|all| all.points[1].name = "1".to_owned(),
        "experiment `trial`: two points are called `1`",
    );
    check(
        &|all| all.points[1].servers = Some(words("x")),
        "experiment `trial`: point `2` is for `x`, which is no server",
    );
    check(
        &|all| all.servers[1].start = words("sleep 1"),
        "server `b`: nothing tells it its port",
    );
    check(
        &|all| {
            let beside = Beside {
                name: "x".to_owned(),
                start: words("sleep 1"),
            };
            all.servers[1].beside = vec![beside.clone(), beside];
        },
        "server `b`: two processes beside it are called `x`",
    );
    let signal = |whom: &str, signal: &str| {
        let what = Do::Signal {
            whom: whom.to_owned(),
            signal: signal.to_owned(),
        };
        Action {
            at: Nanos::ZERO,
            every: None,
            times: 1,
            what,
        }
    };
    check(
        &|all| all.servers[1].actions = vec![signal("x", "STOP")],
        "server `b`: an action means `x`, which is no process of it",
    );
    check(
        &|all| all.servers[1].actions = vec![signal("server", "HALT")],
        "server `b`: there is no signal `HALT`",
    );
    check(
        &|all| all.points[1].load.set("url", "x"),
        "point `2`: no port; no path",
    );
    check(
        &|all| all.pins.server = vec![1_023],
        "processor 1023: is none that may be used here",
    );
}
