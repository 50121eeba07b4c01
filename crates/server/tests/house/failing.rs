//! The handler that says why there is no application.

use std::sync::Arc;

use server::fault::Failure;
use server::handler::failing::Failing;

use super::support::{Running, config, run, text};

const BROWSER: &str = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";

fn failing(detail: &str) -> Running {
    let wrong = Failure {
        message: "`shop:app`: importing `shop` failed: NameError: <x>".to_owned(),
        hint: None,
        detail: Some(detail.to_owned()),
    };
    let (config, dir) = config();
    run(config, dir, Some(Arc::new(Failing::new(&wrong))))
}

fn ask(running: &Running, method: &str, lines: &str) -> (String, String) {
    let request = format!("{method} /any/where?x=1 HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let reply = text(&running.ask(request.as_bytes()));
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[test]
fn a_browser_gets_a_page_and_others_get_text() {
    let running = failing("Traceback\nNameError: <x>");
    let (head, page) = ask(&running, "GET", BROWSER);
    assert!(head.starts_with("HTTP/1.1 500 Internal Server Error\r\n"));
    assert!(head.contains("Content-Type: text/html; charset=utf-8\r\n"));
    assert!(page.starts_with("<!doctype html>") && page.contains("NameError: &lt;x&gt;"));
    for lines in ["", "Accept: */*\r\n", "Accept: application/json\r\n"] {
        let (head, body) = ask(&running, "GET", lines);
        assert!(
            head.contains("Content-Type: text/plain; charset=utf-8\r\n"),
            "{head}"
        );
        assert!(body.ends_with("\n\nTraceback\nNameError: <x>\n"), "{body}");
    }
    running.stop();
}

#[test]
fn the_page_can_find_out_that_it_is_no_longer_true() {
    let line = |head: &str| {
        let mut lines = head.lines();
        let mark = lines.find_map(|line| line.strip_prefix("Milepost-Failing: "));
        mark.unwrap().to_owned()
    };
    let mut marks = Vec::new();
    for detail in ["first", "first", "second"] {
        let running = failing(detail);
        let (got, page) = ask(&running, "GET", BROWSER);
        let (headed, nothing) = ask(&running, "HEAD", "Accept: */*\r\n");
        assert_eq!((line(&headed), nothing.as_str()), (line(&got), ""));
        assert!(page.contains(&format!("data-mark=\"{}\"", line(&got))));
        // The next question is to reach whoever serves by then, and no cache.
        for head in [got.to_lowercase(), headed.to_lowercase()] {
            assert!(head.contains("connection: close"), "{head}");
            assert!(head.contains("cache-control: no-store"), "{head}");
        }
        marks.push(line(&got));
        running.stop();
    }
    assert_eq!(marks[0], marks[1]);
    assert_ne!(marks[0], marks[2]);
}

#[test]
fn only_its_own_script_may_run() {
    let running = failing("x");
    let (head, page) = ask(&running, "GET", BROWSER);
    let from = head.find("script-src 'nonce-").unwrap() + "script-src 'nonce-".len();
    let nonce = &head[from..from + 16];
    assert!(page.contains(&format!("<script nonce=\"{nonce}\">")));
    assert!(head.contains("default-src 'none'"));
    running.stop();
}

#[test]
fn a_form_is_not_sent_again_unasked() {
    let running = failing("x");
    let (_, page) = ask(&running, "POST", &format!("{BROWSER}Content-Length: 0\r\n"));
    assert!(page.contains("data-repeat=\"asked\""));
    let (_, page) = ask(&running, "GET", BROWSER);
    assert!(page.contains("data-repeat=\"unasked\""));
    running.stop();
}
