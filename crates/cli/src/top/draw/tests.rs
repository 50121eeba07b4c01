//! Screens of several sizes, compared with files in `screens`.

use std::fs;
use std::path::PathBuf;

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use supervisor::control::status::{
    DriverStatus, GenerationStatus, GroupThrottling, HostStatus, LastFault, PoolStatus,
    PressureStatus, ProcessStatus, RunningRequest, StallStatus, State,
};
use telemetry::Nanos;
use telemetry::counters::{
    ConnectionCounts, EventLoopFigures, LogFigures, LogSnapshot, SpoolFigures, UpstreamFigures,
    UpstreamResultCounts, UpstreamSnapshot,
};

use super::super::history::tests::sample;
use super::super::sample::{DriverDoing, Sample};
use super::super::view::Answer;
use super::*;

fn at(secs: u64) -> Stamp {
    Stamp(1).plus(Nanos::from_secs(secs))
}

/// Compares with a file beside this one; `MILEPOST_SNAPSHOTS=write` writes it instead.
#[track_caller]
fn check_screen(name: &str, text: &str) {
    let file: PathBuf = [env!("CARGO_MANIFEST_DIR"), "src/top/draw/screens", name]
        .iter()
        .collect();
    if std::env::var_os("MILEPOST_SNAPSHOTS").is_some_and(|wish| wish == "write") {
        fs::write(&file, text).unwrap();
    }
    let expect = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        text == expect,
        "{name} differs; MILEPOST_SNAPSHOTS=write writes it anew:\n{text}"
    );
}

fn drawn(view: &View, now: Stamp, columns: u16, rows: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    let screen = terminal.draw(|frame| draw(frame, view, now, Palette::Plain));
    screen.unwrap().buffer.clone()
}

/// The text of a screen, a line for each row.
fn text(view: &View, now: Stamp, columns: u16, rows: u16) -> String {
    let buffer = drawn(view, now, columns, rows);
    let mut text = String::new();
    for row in 0..rows {
        let cells = (0..columns).map(|column| buffer[(column, row)].symbol());
        text.push_str(cells.collect::<String>().trim_end());
        text.push('\n');
    }
    text
}

/// The server after so many seconds, with two processes; `reports` has had a request in every third second.
fn server(second: usize) -> Box<Sample> {
    let slow = vec![1_500; second / 3];
    let often = vec![4; 150 * second + 400 * (second / 4)];
    let many: Vec<String> = (0..30).map(|number| format!("/static/{number}")).collect();
    let mut routes: Vec<(&str, &[u64])> = vec![("reports", &slow), ("app", &often)];
    let few = vec![1; second];
    routes.extend(many.iter().map(|name| (name.as_str(), few.as_slice())));
    let mut sample = sample(&routes);
    sample.version = crate::command::VERSION.to_owned();
    sample.doing = "serving".to_owned();
    sample.generations = vec![GenerationStatus {
        generation: 2,
        state: State::Ready,
        ..GenerationStatus::default()
    }];
    sample.uptime_s = 3_600 + second as u64;
    let pool = |name: &str, waiting| PoolStatus {
        name: name.to_owned(),
        pressure: if waiting > 0 { "saturated" } else { "calm" }.to_owned(),
        threads: 8,
        threads_min: 4,
        threads_max: 16,
        running: 8,
        waiting,
        completed: 70 * second as u64,
        gil_share_permille: Some(313),
        oldest_wait_ms: 7 * waiting,
        queue_target_ms: 5.0,
        ..PoolStatus::default()
    };
    let process = |slot: usize| ProcessStatus {
        slot,
        generation: 2,
        pid: Some(100 + slot as u32),
        state: State::Ready,
        age_s: 60,
        requests: 160 * second as u64,
        resident_bytes: Some(60 << 20),
        drivers: vec![driver(0, second), driver(1, second)],
        pools: vec![pool("default", 0), pool("slow", slot as u64 * 5)],
        event_loop: Some(EventLoopFigures {
            lag_ns: 300_000,
            busy_permille: 341,
            inside: 12,
            inside_max: 100,
            ..EventLoopFigures::default()
        }),
        ..ProcessStatus::default()
    };
    sample.processes = vec![process(0), process(1)];
    sample.running = running_requests();
    sample.running_more = 1_500;
    sample.counters.drivers = vec![DriverDoing {
        connections: ConnectionCounts {
            idle: 200,
            in_pool: 16,
            sending: 24,
            ..ConnectionCounts::default()
        },
    }];
    add_health(&mut sample, second as u64);
    sample
}

fn driver(driver: usize, second: usize) -> DriverStatus {
    DriverStatus {
        driver,
        accepted: second as u64,
        received: 80 * second as u64,
        open: 60,
        accept_queue: Some(3),
        accept_queue_max: Some(2_048),
        ..DriverStatus::default()
    }
}

/// The machine, upstreams and disks.
fn add_health(sample: &mut Sample, second: u64) {
    sample.host = host(second);
    sample.counters.upstreams = vec![
        upstream("127.0.0.1:9001", 40 * second, 0),
        upstream("10.20.30.40:9002", 0, second),
    ];
    sample.counters.logs = vec![log("access", 240 * second, 0), log("error", 1, second / 3)];
    sample.counters.spool = SpoolFigures {
        written_bytes: second * 300_000,
        write_ns: second * 2_000_000,
        slowest_write_ns: 31_000_000,
        waiting: 1,
        free_bytes: 81_000_000_000,
        size_bytes: 252_000_000_000,
        ..SpoolFigures::default()
    };
}

/// Of a machine whose hypervisor gives a tenth of it away.
fn host(second: u64) -> HostStatus {
    let pressure = |resource: &str, some_us| PressureStatus {
        resource: resource.to_owned(),
        some_us: some_us * second,
        ..PressureStatus::default()
    };
    HostStatus {
        pressure: vec![
            pressure("cpu", 123_000),
            pressure("memory", 0),
            pressure("io", 20_000),
        ],
        stolen_ms: Some(100 * second),
        processors_ms: Some(2_000 * second),
        listen_drops: Some(9),
        throttling: Some(GroupThrottling {
            periods: 10 * second,
            throttled_periods: second / 2,
            throttled_us: 9_000 * second,
        }),
        ..HostStatus::default()
    }
}

fn upstream(server: &str, answered: u64, failed: u64) -> UpstreamSnapshot {
    UpstreamSnapshot {
        upstream: "api".to_owned(),
        server: server.to_owned(),
        figures: UpstreamFigures {
            in_flight: answered.min(12),
            slots: 16,
            response_ns: answered * 23_000_000,
            ejected: failed.min(1),
            ..UpstreamFigures::default()
        },
        results: UpstreamResultCounts {
            answered,
            connect: failed,
            ..UpstreamResultCounts::default()
        },
    }
}

fn log(name: &str, lines: u64, dropped: u64) -> LogSnapshot {
    LogSnapshot {
        log: name.to_owned(),
        figures: LogFigures {
            lines,
            dropped,
            waiting_bytes: 20 * lines,
            write_ns: lines * 10_000,
            slowest_write_ns: 4_200_000,
            ..LogFigures::default()
        },
    }
}

/// One at an upstream, one with a long path, one whose path has codes of terminals.
fn running_requests() -> Vec<RunningRequest> {
    let running = |number: u64, method: &str, path: &str| RunningRequest {
        id: format!("{number:016x}"),
        method: method.to_owned(),
        path: path.to_owned(),
        pool: "default".to_owned(),
        pid: 100,
        worker: (number > 0).then_some(number as u32),
        waited_ms: 20 * number,
        ran_ms: 4_000 >> (2 * number),
        ..RunningRequest::default()
    };
    vec![
        running(0, "GET", "/to/an/upstream"),
        running(1, "POST", &"/long".repeat(18)),
        running(2, "GET", "/\x1b[2Jshort"),
    ]
}

fn watching(seconds: usize) -> View {
    let mut view = View::new(at(0));
    for second in 0..=seconds {
        view.take(Answer::Sample(server(second)), at(second as u64));
    }
    view
}

fn press(view: &mut View, keys: &[KeyCode]) {
    for key in keys {
        view.key(KeyEvent::from(*key));
    }
}

#[test]
fn draws_a_server_on_screens_of_several_sizes() {
    let view = watching(90);
    check_screen("80x24.txt", &text(&view, at(90), 80, 24));
    check_screen("120x40.txt", &text(&view, at(90), 120, 40));
    check_screen("20x10.txt", &text(&view, at(90), 20, 10));
}

#[test]
fn draws_each_table() {
    let mut view = watching(3);
    let mut screens = String::new();
    for _ in Listed::ALL {
        press(&mut view, &[KeyCode::Tab]);
        screens.push_str(&text(&view, at(3), 100, 24));
    }
    check_screen("tables.txt", &screens);
}

#[test]
fn each_table_fits_a_usual_terminal_and_a_narrow_one_shows_which_is_chosen() {
    let mut view = watching(3);
    for listed in Listed::ALL {
        assert_eq!(view.listed, listed);
        let usual = text(&view, at(3), 80, 24);
        let title = format!("[{}]", listed.title());
        let [_, .., last] = view.overview().listing(listed).headings[..] else {
            panic!("a table has several columns")
        };
        let lines: Vec<&str> = usual.lines().collect();
        let tabs = { lines.iter() }.position(|line| line.contains(&title));
        let headings = lines[tabs.expect("a line of names") + 1];
        // The columns of pools, drivers and processes that come last are for wider terminals.
        let may_be_cut = [Listed::Pools, Listed::Drivers, Listed::Processes].contains(&listed);
        assert!(may_be_cut || headings.contains(last), "{usual}");
        let narrow = text(&view, at(3), 60, 16);
        assert!(narrow.contains(&title), "{narrow}");
        press(&mut view, &[KeyCode::Tab]);
    }
}

#[test]
fn draws_the_stack_of_a_request_over_all_of_it() {
    let mut view = watching(3);
    press(&mut view, &[KeyCode::Tab]);
    check_screen("running.txt", &text(&view, at(3), 80, 24));
    press(&mut view, &[KeyCode::Enter]);
    let asked = text(&view, at(3), 80, 24);
    assert!(
        asked.contains("the server is asked for the stack"),
        "{asked}"
    );
    let frames = (0..20).map(|number| {
        let file = "/srv/shop/.venv/lib/python3.13/site-packages/django/core/handlers/base.py";
        format!(
            "  File \"{file}\", line {number}, in get_response\n    response = wrapped(request)\n"
        )
    });
    let answer = format!(
        "GET /to/an/upstream\nStack:\n{}",
        frames.collect::<String>()
    );
    view.take(Answer::Stack(format!("{:016x}", 0), answer), at(3));
    check_screen("stack.txt", &text(&view, at(3), 80, 24));
    press(&mut view, &[KeyCode::Home]);
    let top = text(&view, at(3), 80, 24);
    assert!(
        top.lines()
            .nth(1)
            .unwrap()
            .starts_with("GET /to/an/upstream"),
        "{top}"
    );
}

#[test]
fn draws_help_and_what_keys_have_done() {
    let mut view = watching(3);
    press(&mut view, &[KeyCode::Char('?')]);
    check_screen("help.txt", &text(&view, at(3), 80, 24));
    // All of it fits a usual terminal.
    assert_eq!(
        (HELP.lines().count(), { HELP.lines() }.map(width).max()),
        (22, Some(80))
    );
    press(
        &mut view,
        &[KeyCode::Enter, KeyCode::Char('p'), KeyCode::Char('s')],
    );
    press(
        &mut view,
        &[KeyCode::Char('/'), KeyCode::Char('9'), KeyCode::Enter],
    );
    press(&mut view, &[KeyCode::Down, KeyCode::Down]);
    check_screen("filtered.txt", &text(&view, at(3), 80, 24));
    let buffer = drawn(&view, at(3), 80, 24);
    let reversed = (1..24).filter(|row| {
        let style = buffer[(0, *row)].style();
        style.add_modifier.contains(Modifier::REVERSED)
    });
    let rows: Vec<u16> = reversed.collect();
    let line = text(&view, at(3), 80, 24);
    let line = line.lines().nth(usize::from(rows[0])).unwrap();
    assert!(
        rows.len() == 1 && line.starts_with("/static/29 "),
        "{rows:?}: {line}"
    );
}

#[test]
fn shows_a_chosen_row_that_is_far_down() {
    let mut view = watching(3);
    press(&mut view, &[KeyCode::Down, KeyCode::End]);
    let screen = text(&view, at(3), 80, 24);
    let last_row = screen.lines().nth(22).unwrap();
    assert!(last_row.starts_with("/static/9 "), "{screen}");
}

#[test]
fn says_what_is_wrong() {
    let mut view = watching(3);
    let mut faulty = server(4);
    faulty.version = "9.1.0".to_owned();
    faulty.totals.crashes = 2;
    faulty.last_fault = Some(LastFault {
        failure: config::failure::Failure::new("`shop:app`: the module \x1b[2J raised"),
        age_s: 75,
    });
    faulty.host.listen_drops = Some(14);
    faulty.host.last_stall = Some(StallStatus {
        text: "the machine stood still for 2.4 s: programs waited 2.1 s for memory".to_owned(),
        age_s: 3,
    });
    view.take(Answer::Sample(faulty), at(4));
    view.take(Answer::Fault("nobody listens there".to_owned()), at(6));
    check_screen("faults.txt", &text(&view, at(9), 100, 24));
}

#[test]
fn draws_something_before_the_first_answer_and_of_an_empty_one() {
    let mut view = View::new(at(0));
    check_screen("empty.txt", &text(&view, at(0), 80, 24));
    view.take(Answer::Sample(Box::default()), at(0));
    view.take(Answer::Sample(Box::default()), at(0));
    assert!(text(&view, at(0), 80, 24).contains("nothing yet"));
}

#[test]
fn draws_into_any_size() {
    let mut view = watching(3);
    press(&mut view, &[KeyCode::Down]);
    for (columns, rows) in [
        (1, 1),
        (1, 50),
        (300, 1),
        (59, 16),
        (60, 15),
        (60, 16),
        (61, 17),
        (300, 100),
    ] {
        for mode in [Mode::Watch, Mode::EditFilter, Mode::Help] {
            view.mode = mode;
            assert_eq!(drawn(&view, at(9), columns, rows).area.width, columns);
        }
        view.stack = Some(StackPanel::new("8f".to_owned()));
        assert_eq!(drawn(&view, at(9), columns, rows).area.width, columns);
        view.stack = None;
    }
}

#[test]
fn uses_colours_only_where_they_are_wanted() {
    let view = watching(3);
    let has_colour = |palette: Palette| {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        let screen = terminal.draw(|frame| draw(frame, &view, at(3), palette));
        let buffer = screen.unwrap().buffer.clone();
        buffer
            .content
            .iter()
            .any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(has_colour(Palette::Coloured));
    assert!(!has_colour(Palette::Plain));
}
