//! Any bytes as a line of a log: no panic, no field that is not part of the line, the same answer again.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use telemetry::{Line, Pattern, Reader, Template};

static PATTERN: LazyLock<Pattern> = LazyLock::new(|| {
    let template = Template::parse("{peer} {time_iso} \"{request}\" {total}").expect("it is one");
    Pattern::of(&template).expect("its fields are apart")
});

fuzz_target!(|input: &[u8]| {
    let mut reader = Reader::new(Some(PATTERN.clone()));
    let Some(line) = reader.line(input) else {
        return;
    };
    check(input, &line);
    // What the reader remembers of dates must not change what it reads.
    assert_eq!(reader.line(input), Some(line));
});

fn check(input: &[u8], line: &Line<'_>) {
    for field in [
        line.peer,
        line.user,
        line.method,
        line.target,
        line.version,
        line.request_line,
        line.host,
        line.referer,
        line.user_agent,
        line.route,
        line.pool,
        line.upstream.server,
        line.process,
        line.id,
        line.end,
        line.cause,
    ] {
        // `complete` is what a line with phases means by saying nothing.
        let is_within = field == b"complete" || input.as_ptr_range().contains(&field.as_ptr());
        assert!(field.is_empty() || is_within);
        assert!(line.plain(field).len() <= field.len());
    }
    assert!(
        line.status
            .is_none_or(|status| (100..=999).contains(&status))
    );
}
