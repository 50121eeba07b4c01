//! Prints what parsing a head costs, in nanoseconds, as the least of several rounds (neighbours on the
//! machine only ever add). A measurement for whoever changes the parser, not a test:
//! `cargo run --release -p milepost-http --example head_ns`.

use std::hint::black_box;
use std::time::Instant;

use http::{HeadIndex, HeadStep, Limits};

const ROUNDS_LEN: usize = 21;
const PARSES_LEN: u32 = 100_000;

const WRK: &str = "GET /1k.html HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";

const CURL: &str = "GET /static/site.css?v=3 HTTP/1.1\r\n\
    Host: localhost:8080\r\n\
    User-Agent: curl/8.5.0\r\n\
    Accept: */*\r\n\r\n";

const BROWSER: &str = "GET /books/17?sort=title&page=2 HTTP/1.1\r\n\
    Host: shop.example.com\r\n\
    Connection: keep-alive\r\n\
    sec-ch-ua: \"Chromium\";v=\"128\", \"Not;A=Brand\";v=\"24\"\r\n\
    sec-ch-ua-mobile: ?0\r\n\
    sec-ch-ua-platform: \"Linux\"\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/128.0.0.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
    Sec-Fetch-Site: none\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: en-GB,en;q=0.9,de;q=0.8\r\n\
    Cookie: session=5f2b7a9c1d3e4f60718293a4b5c6d7e8; theme=dark; seen=1%2C2%2C3\r\n\
    If-None-Match: \"5f2b7a9c\"\r\n\r\n";

fn main() {
    for (name, head) in [("wrk", WRK), ("curl", CURL), ("browser", BROWSER)] {
        println!(
            "{name}: {} bytes, {:.0} ns",
            head.len(),
            least_ns(head.as_bytes())
        );
    }
}

fn least_ns(head: &[u8]) -> f64 {
    let limits = Limits::default();
    let mut index = HeadIndex::new();
    let rounds = (0..ROUNDS_LEN).map(|_| {
        let begun = Instant::now();
        for _ in 0..PARSES_LEN {
            let step = index.parse(black_box(head), &mut 0, &limits);
            assert_eq!(black_box(step), Ok(HeadStep::Complete));
        }
        begun.elapsed().as_nanos() as f64 / f64::from(PARSES_LEN)
    });
    rounds.fold(f64::MAX, f64::min)
}
