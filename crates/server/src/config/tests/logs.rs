//! Logs: access and error logs in every form of writing, filters, privacy, renewal, request ids.

use std::net::IpAddr;

use super::super::meant::{
    AccessLog, ErrorLog, Level, Levels, LogCompression, LogFilter, LogOverflow, RequestIds,
};
use super::*;

const NOTHING: [&str; 0] = [];

fn access(toml: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Vec<AccessLog> {
    good(toml, environment, flags).config.logs.access
}

fn file(name: &str) -> AccessLog {
    AccessLog::new(LogTarget::File(name.into()))
}

/// A log of slow and of failed requests, as most tests write it.
fn slow() -> AccessLog {
    AccessLog {
        form: LogForm::Template("{time} {request}".to_owned()),
        filter: LogFilter {
            routes: vec!["app".to_owned(), "/s".to_owned()],
            statuses: vec![500..=599, 404..=404, 400..=402, 0..=0],
            slower_than: measure::Nanos(1_500_000_000),
        },
        ..file("slow.log")
    }
}

const SLOW: &str =
    "slow.log format=\"{time} {request}\" route=app,/s/ status=5xx,404,400-402,none slower=1.5s";

#[track_caller]
fn check_notes(flags: &[(&str, &str)], expect: &[&str]) {
    assert_eq!(good("", &[], flags).notes, expect, "{flags:?}");
}

#[test]
fn reads_several_logs_in_every_form() {
    let flags = [
        ("static", "/s=pub"),
        ("access_log", "a.log"),
        ("access_log", SLOW),
    ];
    let expect = [file("a.log"), slow()];
    assert_eq!(access("", &[], &flags), expect);
    let mounted = "static = ['/s=pub']\n";
    for separator in [" ; ", "\n"] {
        let text = format!("a.log{separator}{SLOW}{separator}");
        let environment = [("MILEPOST_ACCESS_LOG", text.as_str())];
        assert_eq!(access(mounted, &environment, &[]), expect, "{text}");
    }
    let table = "{ to = 'slow.log', format = '{time} {request}', route = ['app', '/s'], \
                 status = ['5xx', 404, '400-402', 'none'], slower = 1.5 }";
    for toml in [
        format!("access_log = ['a.log', {table}]\n{mounted}"),
        format!("access_log = [{{ to = 'a.log' }}, '{SLOW}']\n{mounted}"),
        format!(
            "{mounted}[[access_log]]\nto = 'a.log'\n[[access_log]]\nto = 'slow.log'\n\
             format = '{{time}} {{request}}'\nroute = 'app,/s'\nstatus = '5xx,404,400-402,none'\nslower = '1500ms'\n"
        ),
    ] {
        assert_eq!(access(&toml, &[], &[]), expect, "{toml}");
    }
    for toml in [
        "access_log = { to = 'a.log' }",
        "[access_log]\nto = 'a.log'",
        "access_log = 'a.log'",
    ] {
        assert_eq!(access(toml, &[], &[]), [file("a.log")], "{toml}");
    }
}

#[test]
fn keeps_quotes_and_semicolons_of_a_template() {
    let form = |logs: Vec<AccessLog>| logs[0].form.clone();
    let expect = LogForm::Template(r#"{peer}; "{request}" \ '{agent}'"#.to_owned());
    let flag = r#"- format="{peer}; \"{request}\" \ '{agent}'""#;
    assert_eq!(form(access("", &[], &[("access_log", flag)])), expect);
    let environment = format!("{flag};err.log");
    let logs = access("", &[("MILEPOST_ACCESS_LOG", &environment)], &[]);
    assert_eq!((logs.len(), form(logs)), (2, expect.clone()));
    let toml = r#"access_log = { to = "-", format = '''{peer}; "{request}" \ '{agent}'''' }"#;
    assert_eq!(form(access(toml, &[], &[])), expect);
    let toml = "access_log = { to = 'my log' }";
    assert_eq!(access(toml, &[], &[]), [file("my log")]);
}

#[test]
fn knows_every_target() {
    let targets = [
        ("-", LogTarget::Stdout),
        ("stdout", LogTarget::Stdout),
        ("stderr", LogTarget::Stderr),
        ("journald", LogTarget::Journald),
        ("syslog", LogTarget::Syslog(3)),
        ("syslog:local7", LogTarget::Syslog(23)),
        ("syslog:kern", LogTarget::Syslog(0)),
        ("syslog:13", LogTarget::Syslog(13)),
        ("./stdout", LogTarget::File("./stdout".into())),
        ("it's.log", LogTarget::File("it's.log".into())),
        ("/var/log/a=b", LogTarget::File("/var/log/a=b".into())),
    ];
    for (text, target) in targets {
        let logs = good(
            "",
            &[],
            &[("access_logfile", text), ("error_log", "e.log only=error")],
        )
        .config
        .logs;
        assert_eq!(logs.access, [AccessLog::new(target.clone())], "{text}");
        let levels = Levels::From(Level::Info);
        let logs = good("", &[], &[("error_logfile", text)]).config.logs;
        assert_eq!(logs.errors, [ErrorLog { target, levels }], "{text}");
    }
}

#[test]
fn gives_the_default_form_to_those_that_name_none() {
    let flags = [
        ("access_log", "a.log"),
        ("access_log", "b.log format=combined"),
    ];
    let forms = |toml: &str| {
        let logs = access(toml, &[], &flags);
        logs.into_iter().map(|log| log.form).collect::<Vec<_>>()
    };
    assert_eq!(forms(""), [LogForm::Phases, LogForm::Combined]);
    assert_eq!(
        forms("access_log_format = 'naviserver'"),
        [LogForm::NaviServer, LogForm::Combined]
    );
    assert_eq!(
        forms("access_log_format = '{{ {status} }}'"),
        [
            LogForm::Template("{{ {status} }}".to_owned()),
            LogForm::Combined
        ]
    );
}

#[test]
fn empties_a_list_by_off_alone() {
    let toml = "access_log = 'a.log'\nerror_log = 'e.log'";
    let off = [("access_log", "off"), ("error_log", "off")];
    let loaded = good(toml, &[], &off);
    assert_eq!(loaded.config.logs.access, []);
    assert_eq!(loaded.config.logs.errors, []);
    assert_eq!(
        loaded.notes,
        ["error_log is off: what goes wrong is told nowhere"]
    );
    assert_eq!(access("access_log = []", &[], &[]), []);
    let beside = [("access_log", "a.log"), ("access_log", "off")];
    assert_eq!(
        faults("app = 'a:b'", &[], &beside),
        ["`--access-log`: `off` stands beside other logs > leave it out, or leave out the others"]
    );
    check_fault("access_log", "off format=json", "> `off` has no options");
    check_fault("access_log", "false", "> write `off`");
    check_fault("access_log", "true", "> name a file, or `-`");
}

#[test]
fn says_what_is_wrong_with_a_log() {
    let expected = "expected TARGET [KEY=VALUE]... (as `access.log`, or `slow.log format=json slower=1s`), or `off`";
    check_fault(
        "access_log",
        "a.log fromat=json",
        &format!(
            "`--access-log`: {expected}, found `a.log fromat=json` > no option `fromat`: did you mean `format`?"
        ),
    );
    for (text, expect) in [
        (
            "a.log colour=red",
            "> no option `colour`: there are `format`, `route`, `status`, `slower`",
        ),
        ("a.log format=json format=json", "> `format` is there twice"),
        (
            "my access.log",
            "> `access.log` is no KEY=VALUE; a text with spaces stands in quotes",
        ),
        ("format=json", "> where to comes first: `- format=json`"),
        (
            "a.log format=\"{peer}",
            "> a quote `\"` is opened and not closed",
        ),
        ("logs/", "> name a file: `logs/milepost.log`"),
        ("''", "> name a file, or `-` for standard output"),
        (
            "syslog:lokal0",
            "> no facility `lokal0`: did you mean `syslog:local0`?",
        ),
        ("syslog:24", "> no facility `24`: there are `kern`, `user`"),
        ("syslog:", "> no facility ``: there are `kern`"),
        ("- format=jsno", "> did you mean `json`?"),
        (
            "- format=xml",
            "> the forms are `phases`, `combined`, `common`, `json`, `naviserver`, or a text with `{field}`s",
        ),
        ("- format='%(h)s'", "> fields stand in braces"),
        ("- format='$remote_addr'", "> fields stand in braces"),
        (
            "- format='{peer'",
            "> the `{` at character 1 of the template has no `}`; a brace itself is `{{`",
        ),
        (
            "- format='{peer {status}'",
            "> the `{` at character 1 of the template has no `}`",
        ),
        (
            "- format='{peer}}'",
            "> the `}` at character 7 of the template has no `{`; a brace itself is `}}`",
        ),
        (
            "- format='{pere}'",
            "> there is no field `pere` (character 1 of the template); did you mean `peer`?",
        ),
        (
            "- format='{}'",
            "> there is no field `` (character 1 of the template)",
        ),
        (
            "- format='{peer}\n'",
            "> character 7 of the template is a control character, `\\n`",
        ),
        ("- status=600", "> statuses are from 100 to 599"),
        ("- status=99", "> statuses are from 100 to 599"),
        ("- status=6xx", "> statuses are from 100 to 599"),
        (
            "- status=404-400",
            "> the smaller number comes first: `400-404`",
        ),
        (
            "- status=4x",
            "> `status` is as `404`, `5xx`, `400-499`, or `none`",
        ),
        ("- status=", "> `status` is as `404`"),
        (
            "- slower=soon",
            "> `slower` is a duration, as `500ms` or `1s`",
        ),
        ("- route=", "> `route` names routes"),
        ("- route=a,,b", "> `route` names routes"),
    ] {
        check_fault("access_log", text, expect);
    }
    check_fault("access_log_format", "", "found `` > the forms are");
    check_fault(
        "access_log_format",
        "{",
        "> the `{` at character 1 of the template has no `}`",
    );
}

#[test]
fn says_what_is_wrong_with_a_table_and_on_which_line() {
    let found = |toml: &str| faults(&format!("app = 'a:b'\n{toml}"), &[], &[]);
    assert_eq!(
        found("[[access_log]]\nto = '-'\nfromat = 'json'"),
        ["m.toml:4: `access_log.fromat`: unknown key > did you mean `format`?"]
    );
    assert_eq!(
        found("[access_log]\nto = '-'\ncolour = 'red'\nbacklog = 7"),
        [
            "m.toml:4: `access_log.colour`: unknown key > the keys are `to`, `format`, `route`, `status`, `slower`",
            "m.toml:5: `access_log.backlog`: not a setting within `[access_log]` > settings stand above all tables: `backlog = ...`"
        ]
    );
    assert_eq!(
        found("access_log = [\n  { format = 'json' },\n]"),
        ["m.toml:3: `access_log`: a table without `to` > `to = \"...\"` says where it goes"]
    );
    assert_eq!(
        found("access_log = { to = '-', format = { a = 1 } }"),
        [
            "m.toml:2: `access_log.format`: expected a string, a number, or an array of them, found `a TOML inline table`"
        ]
    );
    assert_eq!(
        found("access_log = [\n  '-',\n  { to = 'a.log', status = [404, '6xx'] },\n]")[0],
        "m.toml:4: `access_log`: expected TARGET [KEY=VALUE]... (as `access.log`, or `slow.log \
         format=json slower=1s`), or `off`, found `a.log status=404,6xx` > statuses are from 100 to 599"
    );
    assert!(
        found("access_log = [['-']]")[0].contains("found `a TOML array`"),
        "{:?}",
        found("access_log = [['-']]")
    );
}

#[test]
fn refuses_routes_that_are_not_there() {
    let flags = |text| [("static", "/static=pub"), ("access_log", text)];
    let found = |text| faults("app = 'a:b'", &[], &flags(text));
    assert_eq!(
        found("- route=/statc"),
        ["`--access-log`: no route `/statc` > did you mean `/static`?"]
    );
    assert_eq!(
        found("- route=app,/elsewhere"),
        [
            "`--access-log`: no route `/elsewhere` > the routes are `none`, `status`, `app`, `rules`, `/static`"
        ]
    );
    assert_eq!(found("- route=app,status,rules,none,/static/"), NOTHING);
    let root = [("static", "/=pub"), ("access_log", "- route=/")];
    assert_eq!(faults("", &[], &root), NOTHING);
}

#[test]
fn gives_each_file_one_writer() {
    let found = |flags: &[(&str, &str)]| faults("app = 'a:b'", &[], flags);
    assert_eq!(
        found(&[("access_log", "a.log"), ("access_log", "./a.log")]),
        [
            "`--access-log`: `./a.log` is an access log already > each file has one writer: name another"
        ]
    );
    assert_eq!(
        found(&[("access_log", "logs/a"), ("error_log", "/srv/./logs//a")]),
        [
            "`--error-log`: `/srv/./logs//a` is an access log already > each file has one writer: name another"
        ]
    );
    assert_eq!(
        found(&[("error_log", "a"), ("pid_file", "a")]),
        ["`--pid-file`: `a` is an error log already > each file has one writer: name another"]
    );
    assert_eq!(
        found(&[("access_log", "-"), ("access_log", "stdout status=5xx")]),
        [
            "`--access-log`: standard output is an access log already > each target takes one of them"
        ]
    );
    assert_eq!(
        found(&[
            ("error_log", "journald"),
            ("error_log", "journald only=info")
        ]),
        ["`--error-log`: journald is an error log already > each target takes one of them"]
    );
    let apart = [
        ("access_log", "-"),
        ("access_log", "syslog:local0"),
        ("access_log", "syslog:local1"),
        ("access_log", "a/x"),
        ("access_log", "b/x"),
        ("error_log", "stdout"),
        ("error_log", "stderr"),
    ];
    assert_eq!(found(&apart), NOTHING);
}

#[test]
fn looks_for_the_folders_of_files() {
    for key in ["access_log", "error_log", "pid_file"] {
        let flag = setting(key).expect("a key of the table").flag();
        check_fault(
            key,
            "missing/x",
            &format!(
                "`{flag}`: folder `missing` cannot be read: no such file or directory > relative paths start at `/srv`"
            ),
        );
    }
    check_fault("pid_file", "run/", "> name a file: `run/milepost.pid`");
    let off = [("pid", "off")];
    assert_eq!(good("pid = 'x.pid'", &[], &off).config.pid_file, None);
    assert_eq!(
        good("pid = 'x.pid'", &[], &[]).config.pid_file,
        Some(PathBuf::from("x.pid"))
    );
}

#[test]
fn reads_levels() {
    let errors = |text| good("", &[], &[("error_log", text)]).config.logs.errors[0].levels;
    assert_eq!(errors("e.log"), Levels::From(Level::Info));
    assert_eq!(errors("e.log level=warning"), Levels::From(Level::Warning));
    assert_eq!(errors("e.log only=info"), Levels::Only(Level::Info));
    let toml = "error_log = ['stderr', { to = 'e.log', only = 'error' }]";
    assert_eq!(
        good(toml, &[], &[]).config.logs.errors[1].levels,
        Levels::Only(Level::Error)
    );
    check_fault(
        "error_log",
        "e.log level=warn",
        "`--error-log`: expected TARGET [level=LEVEL] (as `stderr`, or `error.log level=warning`), or `off`, \
         found `e.log level=warn` > no level `warn`: there are `error`, `warning`, `info`",
    );
    check_fault(
        "error_log",
        "e.log level=info only=error",
        "> `level=` is this one and the worse, `only=` this one alone",
    );
    check_fault(
        "error_log",
        "e.log level=info level=error",
        "> `level` is there twice",
    );
    check_fault(
        "error_log",
        "e.log status=5xx",
        "> no option `status`: there are `level`, `only`",
    );
}

#[test]
fn renews_files_by_size_and_time() {
    let flags = [
        ("access_log", "a.log"),
        ("log_rotate_size", "100M"),
        ("log_rotate_every", "1d"),
        ("log_keep", "7"),
        ("log_keep_age", "30d"),
        ("log_compress", "zstd"),
    ];
    let loaded = good("", &[], &flags);
    let rotation = &loaded.config.logs.rotation;
    assert_eq!(rotation.bytes, Some(100 << 20));
    assert_eq!(rotation.every, Some(measure::Nanos(86_400_000_000_000)));
    assert_eq!(rotation.keep_len, Some(7));
    assert_eq!(
        rotation.keep_age,
        Some(measure::Nanos(30 * 86_400_000_000_000))
    );
    assert_eq!(rotation.compress, Some(LogCompression::Zstd));
    assert_eq!(loaded.notes, NOTHING);
    for (key, text, expect) in [
        ("log_rotate_size", "0", "> write `off` for never"),
        (
            "log_rotate_size",
            "100",
            "expected a size from 4K (as `100M`), or `off`, found `100` > `100M` would be more",
        ),
        (
            "log_rotate_size",
            "100MB",
            "> units are powers of 1024: `100M`",
        ),
        ("log_rotate_every", "daily", "> write `1d`"),
        ("log_rotate_every", "0", "> write `off` for never"),
        (
            "log_rotate_every",
            "1ms",
            "a duration from 1s to 366d (as `1h`, `1d`), or `off`",
        ),
        ("log_keep", "0", "> write `off` to keep all of them"),
        ("log_keep", "some", "a count from 1 to 1000000, or `off`"),
        ("log_keep_age", "0s", "> write `off` for any age"),
        (
            "log_compress",
            "gz",
            "one of `off`, `gzip`, `zstd`, found `gz`",
        ),
        ("log_overflow", "block", "one of `drop`, `wait`"),
        ("log_mask_v4", "33", "a count from 0 to 32"),
        ("log_mask_v6", "129", "a count from 0 to 128"),
        ("log_buffer", "1K", "a size from 64K to 64G"),
    ] {
        check_fault(key, text, expect);
    }
    let logs = good("log_overflow = 'wait'", &[], &[]).config.logs;
    assert_eq!(logs.overflow, LogOverflow::Wait);
}

#[test]
fn says_what_of_the_renewal_has_no_effect() {
    check_notes(
        &[("access_log", "-"), ("log_rotate_every", "1d")],
        &["log_rotate_every has no effect: no log is a file"],
    );
    check_notes(
        &[
            ("error_log", "e.log"),
            ("log_rotate_every", "1d"),
            ("log_keep", "3"),
        ],
        &[],
    );
    check_notes(
        &[
            ("access_log", "a.log"),
            ("log_keep", "3"),
            ("log_compress", "gzip"),
        ],
        &[
            "log_keep has no effect: no old files are made (log_rotate_size and log_rotate_every are off)",
            "log_compress has no effect: no old files are made (log_rotate_size and log_rotate_every are off)",
        ],
    );
    check_notes(&[("access_log", "a.log"), ("log_keep", "off")], &[]);
}

#[test]
fn reads_request_ids_and_whom_to_trust() {
    let network = |ip: &str, bits| (ip.parse::<IpAddr>().expect("an address"), bits);
    let flags = [
        ("request_id_header", "X-Request-ID"),
        ("request_id_trust", "127.0.0.1"),
        ("request_id_trust", "fd00::/8"),
    ];
    let loaded = good("request_id_trust = ['10.0.0.0/8']", &[], &flags);
    let expect = RequestIds {
        header: Some("x-request-id".to_owned()),
        trust: vec![network("127.0.0.1", 32), network("fd00::", 8)],
    };
    assert_eq!(loaded.config.request_ids, expect);
    assert_eq!(loaded.notes, NOTHING);
    let trusted = |text| {
        let environment = [("MILEPOST_REQUEST_ID_TRUST", text)];
        good("request_id_header = 'x-id'", &environment, &[])
            .config
            .request_ids
            .trust
    };
    assert_eq!(
        trusted("0.0.0.0/0, ::/0,::ffff:10.0.0.0/104,::1"),
        [
            network("0.0.0.0", 0),
            network("::", 0),
            network("10.0.0.0", 8),
            network("::1", 128)
        ]
    );
}

#[test]
fn says_what_is_wrong_with_a_header_or_an_address() {
    for (key, text, expect) in [
        (
            "request_id_header",
            "",
            "`--request-id-header`: expected a header's name (as `X-Request-Id`), or `off`, found ``",
        ),
        ("request_id_header", "x id", "found `x id`"),
        ("request_id_header", "X-Id: 7", "> the name alone: `X-Id`"),
        (
            "request_id_header",
            "Transfer-Encoding",
            "> `transfer-encoding` tells how a message is sent",
        ),
        (
            "request_id_header",
            "content-length",
            "tells how a message is sent",
        ),
        (
            "request_id_header",
            "HOST",
            "`host` tells how a message is sent",
        ),
        (
            "request_id_header",
            "Cookie",
            "> `cookie` means something else",
        ),
        ("request_id_header", "Content-Type", "means something else"),
        (
            "request_id_trust",
            "10.0.0.1/8",
            "`--request-id-trust`: expected an address or a network in digits (as `127.0.0.1`, `10.0.0.0/8`, `fd00::/8`), found `10.0.0.1/8` > the network is `10.0.0.0/8`, this address alone `10.0.0.1`",
        ),
        (
            "request_id_trust",
            "2001:db8::1/32",
            "> the network is `2001:db8::/32`",
        ),
        (
            "request_id_trust",
            "10.0.0.0/33",
            "> a prefix length from 0 to 32",
        ),
        (
            "request_id_trust",
            "::/129",
            "> a prefix length from 0 to 128",
        ),
        (
            "request_id_trust",
            "10.0.0.0/x",
            "> a prefix length from 0 to 32",
        ),
        (
            "request_id_trust",
            "10.0.0.0/",
            "> a prefix length from 0 to 32",
        ),
        (
            "request_id_trust",
            "*",
            "> everybody is `0.0.0.0/0` and `::/0`",
        ),
        (
            "request_id_trust",
            "localhost",
            "> write `127.0.0.1` and `::1`",
        ),
        (
            "request_id_trust",
            "unix:/run/x",
            "> clients on unix sockets are trusted",
        ),
        ("request_id_trust", "10.0.0", "found `10.0.0`"),
    ] {
        check_fault(key, text, expect);
    }
}

#[test]
fn says_when_nobody_is_trusted() {
    let header = ("request_id_header", "x-id");
    check_notes(
        &[header],
        &["request_id_header is taken from nobody: request_id_trust is empty, and ids are made"],
    );
    check_notes(&[header, ("bind", "unix:x.sock")], &[]);
    check_notes(
        &[("request_id_trust", "::1")],
        &["request_id_trust has no effect: request_id_header is off"],
    );
}
