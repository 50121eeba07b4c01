//! Logs: access and error logs as texts and as tables, filters, privacy, rotation, request ids.

use super::super::typed::{AccessLog, ErrorLog, Level, Levels, LogOverflow};
use super::*;

const NOTHING: [&str; 0] = [];

fn access(toml: &str, flags: &[(&str, &str)]) -> Vec<AccessLog> {
    good(toml, &[], flags).config.logs.access
}

fn file(name: &str) -> AccessLog {
    AccessLog::new(LogTarget::File(name.into()))
}

fn notes(flags: &[(&str, &str)]) -> Vec<String> {
    good("", &[], flags).notes
}

#[test]
fn reads_several_logs_in_every_form() {
    let expect = [file("a.log"), AccessLog::new(LogTarget::Stdout)];
    let flags = [("access_log", "a.log"), ("access_log", "-")];
    assert_eq!(access("", &flags), expect);
    let env = [("MILEPOST_ACCESS_LOG", "a.log, -")];
    assert_eq!(good("", &env, &[]).config.logs.access, expect);
    for toml in [
        "access_log = ['a.log', '-']",
        "access_log = ['a.log', { to = '-' }]",
        "[[access_log]]\nto = 'a.log'\n[[access_log]]\nto = 'stdout'",
    ] {
        assert_eq!(access(toml, &[]), expect, "{toml}");
    }
    for toml in [
        "access_log = { to = 'my log' }",
        "[access_log]\nto = 'my log'",
        "access_log = 'my log'",
    ] {
        assert_eq!(access(toml, &[]), [file("my log")], "{toml}");
    }
}

#[test]
fn reads_filters_and_forms_of_tables() {
    let toml = r#"
        static = ['/s=pub']
        [[access_log]]
        to = 'slow.log'
        format = '''{peer}; "{request}" \ '{agent}' '''
        route = ['app', '/s/']
        status = ['5xx', 404, '400-402', 'none']
        slower = 1.5
        [[access_log]]
        to = 'b.log'
        format = 'combined'
        route = 'app'
        status = 500
    "#;
    insta::assert_snapshot!(listed(&access(toml, &[])), @r#"
    AccessLog { target: File("slow.log"), form: Template("{peer}; \"{request}\" \\ '{agent}' "), filter: LogFilter { routes: ["app", "/s"], statuses: [500..=599, 404..=404, 400..=402, 0..=0], slower_than: Nanos(1500000000) } }
    AccessLog { target: File("b.log"), form: Combined, filter: LogFilter { routes: ["app"], statuses: [500..=500], slower_than: Nanos(0) } }
    "#);
}

#[test]
fn knows_every_target() {
    let targets = [
        ("-", LogTarget::Stdout),
        ("stdout", LogTarget::Stdout),
        ("stderr", LogTarget::Stderr),
        ("syslog", LogTarget::Syslog(3)),
        ("syslog:local7", LogTarget::Syslog(23)),
        ("syslog:kern", LogTarget::Syslog(0)),
        ("syslog:13", LogTarget::Syslog(13)),
        ("./stdout", LogTarget::File("./stdout".into())),
        ("it's.log", LogTarget::File("it's.log".into())),
        ("/var/log/a=b", LogTarget::File("/var/log/a=b".into())),
    ];
    for (text, target) in targets {
        let flags = [("access_logfile", text), ("error_log", "e.log")];
        let logs = good("", &[], &flags).config.logs;
        assert_eq!(logs.access, [AccessLog::new(target.clone())], "{text}");
        let levels = Levels::From(Level::Info);
        let logs = good("", &[], &[("error_log", text)]).config.logs;
        assert_eq!(
            logs.errors,
            [ErrorLog {
                target,
                form: crate::typed::ErrorLogForm::Text,
                levels
            }],
            "{text}"
        );
    }
}

#[test]
fn gives_the_default_form_to_those_that_name_none() {
    let forms = |toml: &str| {
        let logs = "access_log = ['a.log', { to = 'b.log', format = 'combined' }]";
        let logs = access(&format!("{toml}\n{logs}"), &[]);
        logs.into_iter().map(|log| log.form).collect::<Vec<_>>()
    };
    assert_eq!(forms(""), [LogForm::Phases, LogForm::Combined]);
    assert_eq!(
        forms("access_log_format = 'naviserver'"),
        [LogForm::NaviServer, LogForm::Combined]
    );
    let text = "{{ {status} }}";
    assert_eq!(
        forms(&format!("access_log_format = '{text}'"))[0],
        LogForm::Template(text.to_owned())
    );
}

#[test]
fn empties_a_list_by_off_alone() {
    let toml = "access_log = 'a.log'\nerror_log = 'e.log'";
    let off = [("access_log", "off"), ("error_log", "off")];
    let loaded = good(toml, &[], &off);
    assert_eq!(loaded.config.logs.access, []);
    assert_eq!(loaded.config.logs.errors, []);
    insta::assert_snapshot!(loaded.notes.join("\n"), @"error_log is off: what goes wrong is told nowhere");
    assert_eq!(access("access_log = []", &[]), []);
    let beside = [("access_log", "a.log"), ("access_log", "off")];
    insta::assert_snapshot!(faults("app = 'a:b'", &[], &beside).join("\n"), @"`--access-log`: `off` stands beside other logs > leave it out, or leave out the others");
}

#[test]
fn says_what_is_wrong_with_a_log() {
    said! { r#"
    --access-log=a.log format=json => expected a target (as `access.log`, `-`, `stderr`, `syslog:local0`), `auto` or `off`, found `a.log format=json` > options stand in the configuration file (`--config`), in a table: | [[access_log]] | to = "slow.log" | format = "json" | status = ["5xx", 404] | slower = "1s"
    --error-log=stderr level=warning => expected a target (as `error.log`, `-`, `stderr`, `syslog:local0`), or `off`, found `stderr level=warning` > options stand in the configuration file (`--config`), in a table: | [[error_log]] | to = "error.log" | format = "json" | level = "warning"
    --access-log=false => expected a target (as `access.log`, `-`, `stderr`, `syslog:local0`), `auto` or `off`, found `false` > write `off`
    --access-log=true => expected a target (as `access.log`, `-`, `stderr`, `syslog:local0`), `auto` or `off`, found `true` > name a file, or `-` for standard output
    --access-log=logs/ => expected a target (as `access.log`, `-`, `stderr`, `syslog:local0`), `auto` or `off`, found `logs/` > name a file: `logs/milepost.log`
    --access-log= => expected a target (as `access.log`, `-`, `stderr`, `syslog:local0`), `auto` or `off`, found `` > name a file, or `-` for standard output
    --access-log=syslog:lokal0 => expected a target (as `access.log`, `-`, `stderr`, `syslog:local0`), `auto` or `off`, found `syslog:lokal0` > no facility `lokal0`: did you mean `syslog:local0`?
    --access-log=syslog:24 => expected a target (as `access.log`, `-`, `stderr`, `syslog:local0`), `auto` or `off`, found `syslog:24` > no facility `24`: there are `kern`, `user`, `mail`, `daemon`, `auth`, `syslog`, `lpr`, `news`, `uucp`, `cron`, `authpriv`, `ftp`, `ntp`, `audit`, `alert`, `clock`, `local0`, `local1`, `local2`, `local3`, `local4`, `local5`, `local6`, `local7`
    --access-log=syslog: => expected a target (as `access.log`, `-`, `stderr`, `syslog:local0`), `auto` or `off`, found `syslog:` > no facility ``: there are `kern`, `user`, `mail`, `daemon`, `auth`, `syslog`, `lpr`, `news`, `uucp`, `cron`, `authpriv`, `ftp`, `ntp`, `audit`, `alert`, `clock`, `local0`, `local1`, `local2`, `local3`, `local4`, `local5`, `local6`, `local7`
    --access-log-format= => expected `phases`, `combined`, `common`, `json`, `naviserver`, or a text with `{field}`s, found `` > the forms are `phases`, `combined`, `common`, `json`, `naviserver`, or a text with `{field}`s
    --access-log-format=jsno => expected `phases`, `combined`, `common`, `json`, `naviserver`, or a text with `{field}`s, found `jsno` > did you mean `json`?
    --access-log-format={ => expected `phases`, `combined`, `common`, `json`, `naviserver`, or a text with `{field}`s, found `{` > the `{` at character 1 of the template has no `}`; a brace itself is `{{`
    "# }
}

#[test]
fn says_what_is_wrong_with_a_table_and_on_which_line() {
    said! { r#"
    [[access_log]]
    to = '-'
    fromat = 'json'
        m.toml:4: `access_log.fromat`: unknown key > did you mean `format`?
    [access_log]
    to = '-'
    colour = 'red'
    backlog = 7
        m.toml:4: `access_log.colour`: unknown key > the keys are `to`, `format`, `route`, `status`, `slower`
        m.toml:5: `access_log.backlog`: not a key of `[[access_log]]` > settings stand above all tables: `backlog = ...`
    access_log = [
      { format = 'json' },
    ]
        m.toml:3: `access_log`: `to` is missing > as in | [[access_log]] | to = "slow.log" | format = "json" | status = ["5xx", 404] | slower = "1s"
    access_log = { to = '-', format = { a = 1 } }
        m.toml:2: `access_log.format`: expected `phases`, `combined`, `common`, `json`, `naviserver`, or a text with `{field}`s, found `a TOML table or array`
    access_log = [
      '-',
      { to = 'a.log',
        status = [404, '6xx'] },
    ]
        m.toml:5: `access_log.status`: expected statuses (as `404`, `["5xx", "400-499"]`, `none`), found `6xx` > statuses are from 100 to 599
    access_log = [['-']]
        m.toml:2: `access_log`: expected a target (as `access.log`, `-`, `stderr`, `syslog:local0`), `auto` or `off`, found `a TOML array` > as in | [[access_log]] | to = "slow.log" | format = "json" | status = ["5xx", 404] | slower = "1s"
    access_log = { to = 'off' }
        m.toml:2: `access_log.to`: expected a target (as `access.log`, `-`, `stderr`, `syslog:local0`), found `off` > leave out the table
    error_log = { to = 'e.log', level = 'warn' }
        m.toml:2: `error_log.level`: expected one of `error`, `warning`, `info`, found `warn`
    error_log = { to = 'e.log', level = 'info', only = 'error' }
        m.toml:2: `error_log.only`: `level` is this one and the worse, `only` this one alone > leave one out
    error_log = { to = 'e.log', status = '5xx' }
        m.toml:2: `error_log.status`: unknown key > the keys are `to`, `format`, `level`, `only`
    "# }
}

#[test]
fn says_what_is_wrong_with_a_filter_or_a_form() {
    said! { r#"
    access_log = { to = '-', format = 'xml' }
        m.toml:2: `access_log.format`: expected `phases`, `combined`, `common`, `json`, `naviserver`, or a text with `{field}`s, found `xml` > the forms are `phases`, `combined`, `common`, `json`, `naviserver`, or a text with `{field}`s
    access_log = { to = '-', format = '%(h)s' }
        m.toml:2: `access_log.format`: expected `phases`, `combined`, `common`, `json`, `naviserver`, or a text with `{field}`s, found `%(h)s` > fields stand in braces, as `{peer} {status} {total}`
    access_log = { to = '-', format = '$remote_addr' }
        m.toml:2: `access_log.format`: expected `phases`, `combined`, `common`, `json`, `naviserver`, or a text with `{field}`s, found `$remote_addr` > fields stand in braces, as `{peer} {status} {total}`
    access_log = { to = '-', format = '{peer' }
        m.toml:2: `access_log.format`: expected `phases`, `combined`, `common`, `json`, `naviserver`, or a text with `{field}`s, found `{peer` > the `{` at character 1 of the template has no `}`; a brace itself is `{{`
    access_log = { to = '-', format = '{peer {status}' }
        m.toml:2: `access_log.format`: expected `phases`, `combined`, `common`, `json`, `naviserver`, or a text with `{field}`s, found `{peer {status}` > the `{` at character 1 of the template has no `}`; a brace itself is `{{`
    access_log = { to = '-', format = '{peer}}' }
        m.toml:2: `access_log.format`: expected `phases`, `combined`, `common`, `json`, `naviserver`, or a text with `{field}`s, found `{peer}}` > the `}` at character 7 of the template has no `{`; a brace itself is `}}`
    access_log = { to = '-', format = '{pere}' }
        m.toml:2: `access_log.format`: expected `phases`, `combined`, `common`, `json`, `naviserver`, or a text with `{field}`s, found `{pere}` > there is no field `pere` (character 1 of the template); did you mean `peer`?
    access_log = { to = '-', format = '{}' }
        m.toml:2: `access_log.format`: expected `phases`, `combined`, `common`, `json`, `naviserver`, or a text with `{field}`s, found `{}` > there is no field `` (character 1 of the template); there are client peer user time time_iso at request method target path query protocol status bytes sent request_bytes host referer agent route pool driver process worker id trace_id span_id receive queue run send total gil cpu before waiting threads idle queued stream reset_by reset_code blocked_stream blocked_connection messages_in messages_out close_code loop steps busy longest blocked_by event_stream upstream attempts reused connect ttfb upstream_queue upstream_run end cause tls cipher resumed server_name alpn handshake
    access_log = { to = '-', format = "{peer}\n" }
        m.toml:2: `access_log.format`: expected `phases`, `combined`, `common`, `json`, `naviserver`, or a text with `{field}`s, found `{peer}\n` > character 7 of the template is a control character, `\n`
    access_log = { to = '-', status = 600 }
        m.toml:2: `access_log.status`: expected statuses (as `404`, `["5xx", "400-499"]`, `none`), found `600` > statuses are from 100 to 599
    access_log = { to = '-', status = 99 }
        m.toml:2: `access_log.status`: expected statuses (as `404`, `["5xx", "400-499"]`, `none`), found `99` > statuses are from 100 to 599
    access_log = { to = '-', status = '6xx' }
        m.toml:2: `access_log.status`: expected statuses (as `404`, `["5xx", "400-499"]`, `none`), found `6xx` > statuses are from 100 to 599
    access_log = { to = '-', status = '404-400' }
        m.toml:2: `access_log.status`: expected statuses (as `404`, `["5xx", "400-499"]`, `none`), found `404-400` > the smaller number comes first: `400-404`
    access_log = { to = '-', status = '4x' }
        m.toml:2: `access_log.status`: expected statuses (as `404`, `["5xx", "400-499"]`, `none`), found `4x`
    access_log = { to = '-', status = '' }
        m.toml:2: `access_log.status`: expected statuses (as `404`, `["5xx", "400-499"]`, `none`), found ``
    access_log = { to = '-', slower = 'soon' }
        m.toml:2: `access_log.slower`: expected a duration (as `500ms`, `1s`), found `soon`
    access_log = { to = '-', route = '' }
        m.toml:2: `access_log.route`: expected names of routes (as `app`, `["app", "/static"]`), found ``
    access_log = { to = '-', route = ['a', ''] }
        m.toml:2: `access_log.route`: expected names of routes (as `app`, `["app", "/static"]`), found ``
    "# }
}

#[test]
fn refuses_routes_that_are_not_there() {
    let log = |routes: &str| {
        format!("static = '/static=pub'\naccess_log = {{ to = '-', route = {routes} }}")
    };
    let fine = format!(
        "app = 'a:b'\n{}",
        log("['app', 'status', 'rules', 'none', '/static/']")
    );
    assert_eq!(faults(&fine, &[], &[]), NOTHING);
    let root = "static = '/=pub'\naccess_log = { to = '-', route = '/' }";
    assert_eq!(faults(root, &[], &[]), NOTHING);
    said! { r"
    static = '/static=pub'
    access_log = { to = '-', route = '/statc' }
        m.toml:3: `access_log`: no route `/statc` > did you mean `/static`?
    static = '/static=pub'
    access_log = { to = '-', route = ['app', '/elsewhere'] }
        m.toml:3: `access_log`: no route `/elsewhere` > the routes are `none`, `status`, `app`, `rules`, `/static`
    " }
}

#[test]
fn gives_each_file_one_writer() {
    let found = |flags: &[(&str, &str)]| faults("app = 'a:b'", &[], flags);
    let all = [
        found(&[("access_log", "a.log"), ("access_log", "./a.log")]),
        found(&[("access_log", "logs/a"), ("error_log", "/srv/./logs//a")]),
        found(&[("error_log", "a"), ("pid_file", "a")]),
        found(&[("access_log", "/d/current/a"), ("error_log", "/d/v1/a")]),
        found(&[("access_log", "folder"), ("pid_file", "/d/folder")]),
        found(&[("access_log", "-"), ("access_log", "stdout")]),
        found(&[("error_log", "syslog"), ("error_log", "syslog")]),
    ]
    .concat();
    insta::assert_snapshot!(all.join("\n"), @r"
    `--access-log`: `./a.log` is an access log already > each file has one writer: name another
    `--error-log`: `/srv/./logs//a` is an access log already > each file has one writer: name another
    `--pid-file`: `a` is an error log already > each file has one writer: name another
    `--error-log`: `/d/v1/a` is an access log already > each file has one writer: name another
    `--access-log`: `folder` is a folder > name a file in it
    `--pid-file`: `/d/folder` is a folder > name a file in it
    `--access-log`: standard output is an access log already > each target takes one of them
    `--error-log`: syslog with this facility is an error log already > each target takes one of them
    ");
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
    said! { r"
    --access-log=missing/x => folder `missing` cannot be read: no such file or directory > relative paths start at `/srv`
    --error-log=missing/x => folder `missing` cannot be read: no such file or directory > relative paths start at `/srv`
    --pid-file=missing/x => folder `missing` cannot be read: no such file or directory > relative paths start at `/srv`
    --pid-file=run/ => expected a file, or `off`, found `run/` > name a file: `run/milepost.pid`
    " }
    let off = [("pid", "off")];
    assert_eq!(good("pid = 'x.pid'", &[], &off).config.pid_file, None);
    let pid_file = good("pid = 'x.pid'", &[], &[]).config.pid_file;
    assert_eq!(pid_file, Some(PathBuf::from("x.pid")));
}

#[test]
fn reads_levels() {
    let toml = "error_log = ['stderr', { to = 'a', level = 'warning' }, { to = 'b', only = 'error' }, { to = 'c' }]";
    let errors = good(toml, &[], &[]).config.logs.errors;
    let found: Vec<Levels> = errors.iter().map(|log| log.levels).collect();
    let all = Levels::From(Level::Info);
    assert_eq!(
        found,
        [
            all,
            Levels::From(Level::Warning),
            Levels::Only(Level::Error),
            all
        ]
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
        ("log_compress", "gzip"),
    ];
    let loaded = good("", &[], &flags);
    insta::assert_snapshot!(format!("{:?}", loaded.config.logs.rotation), @"Rotation { bytes: Some(104857600), every: Some(Nanos(86400000000000)), keep_len: Some(7), keep_age: Some(Nanos(2592000000000000)), compress: true }");
    assert_eq!(loaded.notes, NOTHING);
    said! { r"
    --log-rotate-size=0 => expected a size from 4K (as `100M`), or `off`, found `0` > write `off` for never
    --log-rotate-size=100 => expected a size from 4K (as `100M`), or `off`, found `100` > `100M` would be more
    --log-rotate-size=100MB => expected a size from 4K (as `100M`), or `off`, found `100MB` > units are powers of 1024: `100M`
    --log-rotate-every=daily => expected a duration from 1s to 366d (as `1h`, `1d`), or `off`, found `daily` > write `1d`
    --log-rotate-every=0 => expected a duration from 1s to 366d (as `1h`, `1d`), or `off`, found `0` > write `off` for never
    --log-rotate-every=1ms => expected a duration from 1s to 366d (as `1h`, `1d`), or `off`, found `1ms`
    --log-keep=0 => expected a count from 1 to 1000000, or `off`, found `0` > write `off` to keep all of them
    --log-keep=some => expected a count from 1 to 1000000, or `off`, found `some`
    --log-keep-age=0s => expected a duration from 1s to 366d (as `14d`), or `off`, found `0s` > write `off` for any age
    --log-compress=gz => expected one of `off`, `gzip`, found `gz`
    --log-overflow=block => expected one of `drop`, `wait`, found `block`
    --log-mask-v4=33 => expected a count from 0 to 32, found `33`
    --log-mask-v6=129 => expected a count from 0 to 128, found `129`
    --log-buffer=1K => expected a size from 64K to 64G (as `64K`, `10M`), found `1K`
    " }
    let logs = good("log_overflow = 'wait'", &[], &[]).config.logs;
    assert_eq!(logs.overflow, LogOverflow::Wait);
}

#[test]
fn says_what_of_the_renewal_has_no_effect() {
    for fine in [
        &[
            ("error_log", "e.log"),
            ("log_rotate_every", "1d"),
            ("log_keep", "3"),
        ][..],
        &[("access_log", "a.log"), ("log_keep", "off")],
    ] {
        assert_eq!(notes(fine), NOTHING);
    }
    let vain = [
        notes(&[("access_log", "-"), ("log_rotate_every", "1d")]),
        notes(&[
            ("access_log", "a"),
            ("log_keep", "3"),
            ("log_compress", "gzip"),
        ]),
    ]
    .concat();
    insta::assert_snapshot!(vain.join("\n"), @r"
    log_rotate_every has no effect: no log is a file
    log_keep has no effect: no old files are made (log_rotate_size and log_rotate_every are off)
    log_compress has no effect: no old files are made (log_rotate_size and log_rotate_every are off)
    ");
}

#[test]
fn reads_the_header_of_request_ids() {
    let loaded = good("", &[], &[("request_id_header", "X-Request-ID")]);
    assert_eq!(loaded.notes, NOTHING);
    let header = loaded.config.request_ids.header;
    assert_eq!(header.as_deref(), Some("x-request-id"));
}

#[test]
fn says_what_is_wrong_with_a_header() {
    said! { r"
    --request-id-header= => expected a header's name (as `X-Request-Id`), or `off`, found ``
    --request-id-header=x id => expected a header's name (as `X-Request-Id`), or `off`, found `x id`
    --request-id-header=X-Id: 7 => expected a header's name (as `X-Request-Id`), or `off`, found `X-Id: 7` > the name alone: `X-Id`
    --request-id-header=Transfer-Encoding => expected a header's name (as `X-Request-Id`), or `off`, found `Transfer-Encoding` > `transfer-encoding` tells how a message is sent: use one of its own, as `X-Request-Id`
    --request-id-header=content-length => expected a header's name (as `X-Request-Id`), or `off`, found `content-length` > `content-length` tells how a message is sent: use one of its own, as `X-Request-Id`
    --request-id-header=HOST => expected a header's name (as `X-Request-Id`), or `off`, found `HOST` > `host` tells how a message is sent: use one of its own, as `X-Request-Id`
    --request-id-header=Cookie => expected a header's name (as `X-Request-Id`), or `off`, found `Cookie` > `cookie` means something else: use one of its own, as `X-Request-Id`
    --request-id-header=Content-Type => expected a header's name (as `X-Request-Id`), or `off`, found `Content-Type` > `content-type` means something else: use one of its own, as `X-Request-Id`
    --request-id-header=X_Request_Id => expected a header's name (as `X-Request-Id`), or `off`, found `X_Request_Id` > upstreams get no header with `_`, which applications cannot tell from `-`: write `X-Request-Id`
    --request-id-header=Proxy => expected a header's name (as `X-Request-Id`), or `off`, found `Proxy` > upstreams never get `Proxy`
    " }
}

#[test]
fn says_when_nobody_is_trusted() {
    let header = ("request_id_header", "x-id");
    assert_eq!(notes(&[header]), NOTHING);
    let vain = notes(&[header, ("trusted_proxies", "off")]);
    insta::assert_snapshot!(vain.join("\n"), @"request_id_header is taken from nobody: trusted_proxies is off, and ids are made");
}
