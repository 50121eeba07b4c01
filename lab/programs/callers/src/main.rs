//! Clients that count what a server loses: short-lived and keep-alive connections, from many addresses, as
//! many at once as are asked for, at a rate or as fast as replies come. Nothing is tried twice.
//!
//! Takes `callers PORT PATH SECONDS [KEY=VALUE...]`. Prints `ready`, a line of JSON for each line on its
//! standard input, and, when its time or its input has ended, the whole count as its last line. Must know
//! nothing of the server but HTTP/1.1 with a Content-Length and, where there is one, its `X-Pid`.

#![forbid(unsafe_code)]

mod caller;
mod plan;
mod reply;
mod results;
mod round;

use std::process::exit;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let results =
        plan::read(&words).and_then(|plan| round::run(&plan).map_err(|cause| cause.to_string()));
    match results {
        Ok(line) => println!("{line}"),
        Err(cause) => {
            eprintln!("callers: {cause}");
            exit(2);
        }
    }
}
