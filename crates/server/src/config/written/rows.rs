//! The rows of the table, by topic: a uniform table, and the only place where a setting is described.
//!
//! To add a setting, add its field to `meant`, its row here, and run `make docs`; everything else follows.

use measure::Nanos;

use super::set;
use super::{Entries, Group, Kind, Setting};

const NONE: Nanos = Nanos(0);
const MS: Nanos = Nanos(1_000_000);
/// The kernel keeps a connection waiting for less than this in good health, too.
const STALL_LEAST: Nanos = Nanos(50_000_000);
/// A shorter wait than this is the hand-over itself.
const WAIT_LEAST: Nanos = Nanos(100_000);
const HOUR: Nanos = Nanos(3_600_000_000_000);
const DAY: Nanos = Nanos(24 * 3_600_000_000_000);
const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const G: u64 = 1 << 30;
/// Offsets in a head have 32 bits; far below that a head is an attack.
const HEAD_BYTES_MOST: u64 = 16 * M;

/// What most rows leave as it is.
const PLAIN: Setting = Setting {
    key: "",
    short: None,
    aliases: &[],
    group: Group::Application,
    placeholder: "TEXT",
    default: "",
    help: "",
    doc: "",
    kind: Kind::Switch { set: |_, _| {} },
};

/// All settings, in the order of help texts.
pub static SETTINGS: &[Setting] = &[
    Setting {
        key: "app",
        placeholder: "APP",
        help: "Python application to serve, as MODULE:ATTRIBUTE",
        doc: "Without an attribute, `application` and then `app` are tried. `module:create()` calls a \
              factory. The attribute may be a path with dots.",
        kind: Kind::Text {
            expected: "MODULE:ATTRIBUTE (as `shop.wsgi:app`)",
            set: set::app,
        },
        ..PLAIN
    },
    Setting {
        key: "config",
        short: Some('c'),
        placeholder: "FILE",
        help: "Configuration file in TOML",
        doc: "Its keys are the flags' names with underscores. Environment variables override it, \
              flags override both. Relative paths in it are relative to the working folder, as everywhere.",
        // Read by the command before there is a configuration.
        kind: Kind::Text {
            expected: "a file",
            set: |_, _| Ok(()),
        },
        ..PLAIN
    },
    Setting {
        key: "chdir",
        placeholder: "DIR",
        help: "Change to this folder before anything else",
        doc: "All relative paths, except that of the configuration file, start there.",
        kind: Kind::Text {
            expected: "a folder",
            set: |draft, text| set::folder(text).map(|dir| draft.chdir = Some(dir)),
        },
        ..PLAIN
    },
    Setting {
        key: "app_dir",
        placeholder: "DIR",
        default: ".",
        help: "Folder that is put first on sys.path",
        kind: Kind::Text {
            expected: "a folder",
            set: |draft, text| set::folder(text).map(|dir| draft.app_dir = dir),
        },
        ..PLAIN
    },
    Setting {
        key: "factory",
        placeholder: "BOOL",
        default: "false",
        help: "APP is a function without arguments that makes the application",
        kind: Kind::Switch {
            set: |draft, yes| draft.factory = yes,
        },
        ..PLAIN
    },
    Setting {
        key: "root_path",
        aliases: &["url_path_prefix"],
        placeholder: "PATH",
        help: "URL prefix that the application is mounted under (SCRIPT_NAME)",
        doc: "The prefix moves from the front of PATH_INFO to SCRIPT_NAME; a path \
              that does not begin with it is left alone.",
        kind: Kind::Text {
            expected: "a URL path (as `/shop`)",
            set: set::root_path,
        },
        ..PLAIN
    },
    Setting {
        key: "trace_requests",
        placeholder: "BOOL",
        default: "false",
        help: "Pass TRACE requests to the application instead of answering 405",
        doc: "An answer to TRACE repeats the request, cookies and credentials included, so that scripts and logs \
              get to see them. Files and the server's own pages answer 405 in either case.",
        kind: Kind::Switch {
            set: |draft, yes| draft.config.trace_requests = yes,
        },
        ..PLAIN
    },
    Setting {
        key: "static",
        group: Group::Files,
        placeholder: "/URL=DIR",
        help: "Serve the files of DIR under /URL (repeatable)",
        doc: "The longest matching URL wins; what no folder matches goes to the application. \
              In TOML also a table: `[static]` with `\"/url\" = \"dir\"`.",
        kind: Kind::List {
            expected: "/URL=DIR (as `/static=./static`)",
            entries: Entries::Pairs,
            clear: |draft| draft.statics.clear(),
            add: set::add_static,
        },
        ..PLAIN
    },
    Setting {
        key: "static_index",
        group: Group::Files,
        placeholder: "NAME",
        default: "index.html",
        help: "File that answers for a folder's URL",
        kind: Kind::Text {
            expected: "a file's name without a slash",
            set: set::static_index,
        },
        ..PLAIN
    },
    Setting {
        key: "static_fallback",
        group: Group::Files,
        placeholder: "/URL=FILE",
        help: "File that answers, with 200, where a folder has none (repeatable)",
        doc: "The shell of a single-page application: `--static-fallback /=index.html`. /URL is that \
              of a `static`; FILE is a path beneath its folder. In TOML it may be a table.",
        kind: Kind::List {
            expected: "/URL=FILE (as `/=index.html`)",
            entries: Entries::Pairs,
            clear: |draft| draft.fallbacks.clear(),
            add: set::add_fallback,
        },
        ..PLAIN
    },
    Setting {
        key: "static_encodings",
        group: Group::Files,
        placeholder: "LIST",
        default: "br,zstd,gzip",
        help: "Compressed siblings of files that are looked for, the preferred first, or off",
        doc: "`app.css` is answered with `app.css.br`, `.zst` or `.gz` where there is one and the \
              client takes it.",
        kind: Kind::Joined {
            expected: "some of `br`, `zstd`, `gzip`, the preferred first, or `off`",
            set: set::static_encodings,
        },
        ..PLAIN
    },
    Setting {
        key: "static_listing",
        group: Group::Files,
        placeholder: "BOOL",
        default: "false",
        help: "A folder without an index file answers with a list of its files",
        kind: Kind::Switch {
            set: |draft, yes| draft.config.file_serving.listing = yes,
        },
        ..PLAIN
    },
    Setting {
        key: "cache_control",
        group: Group::Files,
        placeholder: "GLOB=VALUE",
        help: "Cache-Control of files by their path (repeatable); the first match counts",
        doc: "The glob is about the decoded path: `*` stays within a folder, `**` does not, `{css,js}` \
              is either. One that does not begin with a slash matches in every folder. In the \
              environment entries are separated by `;` or, where there is a line break, by line breaks \
              alone; in TOML it may be a table.",
        kind: Kind::List {
            expected: "GLOB=VALUE (as `/static/**=max-age=3600` or `*.css=no-cache`)",
            entries: Entries::WordyPairs,
            clear: |draft| draft.cache_rules.clear(),
            add: set::add_cache_rule,
        },
        ..PLAIN
    },
    Setting {
        key: "file_cache_bytes_max",
        group: Group::Files,
        placeholder: "SIZE",
        default: "64M",
        help: "Memory for small files, for each driver",
        kind: Kind::Size {
            min: 0,
            max: 1024 * G,
            set: |draft, bytes| draft.config.file_cache.bytes_max = bytes as usize,
        },
        ..PLAIN
    },
    Setting {
        key: "file_cache_entry_bytes_max",
        group: Group::Files,
        placeholder: "SIZE",
        default: "64K",
        help: "Largest file kept in memory",
        kind: Kind::Size {
            min: 0,
            max: G,
            set: |draft, bytes| draft.config.file_cache.entry_bytes_max = bytes as usize,
        },
        ..PLAIN
    },
    Setting {
        key: "file_cache_revalidate",
        group: Group::Files,
        placeholder: "DURATION",
        default: "1s",
        help: "A cached file is looked at again after this long",
        kind: Kind::Duration {
            min: NONE,
            max: DAY,
            set: |draft, span| draft.config.file_cache.revalidate = span,
        },
        ..PLAIN
    },
    Setting {
        key: "file_cache_stale_max",
        group: Group::Files,
        placeholder: "DURATION",
        default: "10s",
        help: "While its storage is asked again, a cached file is given for this long",
        doc: "Since the last look at it, and only where asking may take time, as on network file systems: on local ones the kernel knows at once \
              whether a file has changed. 0 lets every request wait for the answer.",
        kind: Kind::Duration {
            min: NONE,
            max: DAY,
            set: |draft, span| draft.config.file_cache.stale_max = span,
        },
        ..PLAIN
    },
    Setting {
        key: "writers",
        group: Group::Files,
        placeholder: "N",
        default: "1",
        help: "Threads that send large files; 0: drivers do",
        doc: "They wait for slow storage in the drivers' place, and need no descriptors of their own.",
        kind: Kind::Count {
            min: 0,
            max: 64,
            set: |draft, count| draft.config.file_serving.writers = count as usize,
        },
        ..PLAIN
    },
    Setting {
        key: "writer_size",
        group: Group::Files,
        placeholder: "SIZE",
        default: "64K",
        help: "Files from this size on are sent by writers; smaller ones are read whole",
        doc: "Files that the cache keeps (`file_cache_entry_bytes_max`) are never sent by writers.",
        kind: Kind::Size {
            min: 0,
            max: 64 * M,
            set: |draft, bytes| draft.config.file_serving.writer_bytes_min = bytes as usize,
        },
        ..PLAIN
    },
    Setting {
        key: "openers",
        group: Group::Files,
        placeholder: "N",
        default: "4",
        help: "Threads that look files up, open and read them; 0: drivers do",
        doc: "What the cache has and has looked at lately needs none of them.",
        kind: Kind::Count {
            min: 0,
            max: 64,
            set: |draft, count| draft.config.file_serving.openers = count as usize,
        },
        ..PLAIN
    },
    Setting {
        key: "redirect",
        group: Group::Rules,
        placeholder: "FROM=TO",
        help: "Send clients elsewhere, as FROM=[STATUS:]TO (repeatable)",
        doc: "FROM is a path, or `/old/*` for all that begin with `/old/`; a `*` in TO stands for the \
              rest of those. TO is a path or an absolute URL; where it has no query, that of the \
              request stays. STATUS is 302, or 301, 303, 307 or 308. FROM ends at the first `=`; the \
              first match counts. In the environment entries are separated by `;` or, where there is a \
              line break, by line breaks alone; in TOML it may be a table.",
        kind: Kind::List {
            expected: "FROM=TO or FROM=STATUS:TO (as `/old/*=301:/new/*`)",
            entries: Entries::WordyPairs,
            clear: |draft| draft.redirects.clear(),
            add: set::add_redirect,
        },
        ..PLAIN
    },
    Setting {
        key: "reply",
        group: Group::Rules,
        placeholder: "FROM=STATUS[:TEXT]",
        help: "Answer with a fixed status and text, as FROM=STATUS[:TEXT] (repeatable)",
        doc: "FROM is as in `redirect`; redirects are looked at first. A status from 400 on without \
              TEXT has its error page. In the environment entries are separated by `;` or, where there \
              is a line break, by line breaks alone; in TOML it may be a table.",
        kind: Kind::List {
            expected: "FROM=STATUS or FROM=STATUS:TEXT (as `/ping=200:pong`)",
            entries: Entries::WordyPairs,
            clear: |draft| draft.replies.clear(),
            add: set::add_reply,
        },
        ..PLAIN
    },
    Setting {
        key: "rewrite",
        group: Group::Rules,
        placeholder: "FROM=TO",
        help: "Treat requests as such for another path (repeatable)",
        doc: "FROM and TO are as in `redirect`, but TO is a path. Redirects and replies are looked at \
              first; what comes of a rewrite is neither redirected nor rewritten. In the environment \
              entries are separated by `;` or, where there is a line break, by line breaks alone; in \
              TOML it may be a table.",
        kind: Kind::List {
            expected: "FROM=TO (as `/v1/*=/api/*`)",
            entries: Entries::WordyPairs,
            clear: |draft| draft.rewrites.clear(),
            add: set::add_rewrite,
        },
        ..PLAIN
    },
    Setting {
        key: "error_page",
        group: Group::Rules,
        placeholder: "STATUS=FILE",
        help: "Page for errors that the server answers by itself (repeatable)",
        doc: "STATUS is one (`404`), a class (`5xx`) or a range (`400-499`); the narrowest counts. The \
              status stays, and replies of the application are left alone. `{status}` and `{reason}` \
              in the page are filled in. The file is read when the server starts; it has at most 1M, \
              and an ending that tells its type. In TOML it may be a table.",
        kind: Kind::List {
            expected: "STATUS=FILE (as `404=404.html`, `5xx=oops.html` or `400-499=no.html`)",
            entries: Entries::Pairs,
            clear: |draft| draft.error_pages.clear(),
            add: set::add_error_page,
        },
        ..PLAIN
    },
    Setting {
        key: "bind",
        short: Some('b'),
        group: Group::Listening,
        placeholder: "ADDRESS",
        default: "127.0.0.1:8000",
        help: "Listen on HOST:PORT, [V6]:PORT, :PORT, unix:PATH or systemd (repeatable)",
        doc: "`:PORT` listens on every IPv4 address, a port alone on 127.0.0.1, port 0 on a free port. \
              A name is resolved at start-up and may stand for several addresses. `systemd` is every \
              socket that the service manager has opened (LISTEN_FDS), `systemd:NAME` those of that name \
              (FileDescriptorName).",
        kind: Kind::List {
            expected: "HOST:PORT, [V6]:PORT, :PORT, PORT, unix:PATH, systemd or systemd:NAME",
            entries: Entries::Plain,
            clear: |draft| draft.binds.clear(),
            add: set::add_bind,
        },
        ..PLAIN
    },
    Setting {
        key: "drivers",
        group: Group::Listening,
        placeholder: "N",
        default: "auto",
        help: "Driver threads per process: they accept, read and write, and serve files",
        doc: "`auto` is half of the processors, divided by `processes`, at least 1 and at most 8.",
        kind: Kind::Text {
            expected: "a count from 1 to 256, or `auto`",
            set: set::drivers,
        },
        ..PLAIN
    },
    Setting {
        key: "driver_cpus",
        group: Group::Listening,
        placeholder: "LIST",
        default: "off",
        help: "Processors that drivers are pinned to, by turns: 0,2-3, auto or off",
        doc: "`auto` takes the processors that the process may run on, in their order.",
        kind: Kind::Joined {
            expected: "a list of processors (as `0,2-3`), `auto` or `off`",
            set: set::driver_cpus,
        },
        ..PLAIN
    },
    Setting {
        key: "accept_batch",
        group: Group::Listening,
        placeholder: "N",
        default: "32",
        help: "Connections accepted in one turn before those already there are served",
        doc: "A driver that accepts without a bound lets everybody wait during a burst of new connections.",
        kind: Kind::Count {
            min: 1,
            max: 65_536,
            set: |draft, count| draft.config.listen.accept_batch = count as usize,
        },
        ..PLAIN
    },
    Setting {
        key: "backlog",
        group: Group::Listening,
        placeholder: "N",
        default: "4096",
        help: "Length of the kernel's accept queue",
        doc: "The kernel cuts it to net.core.somaxconn; the effective value is said at start-up.",
        kind: Kind::Count {
            min: 1,
            max: 65_535,
            set: |draft, count| draft.config.listen.backlog = count as u32,
        },
        ..PLAIN
    },
    Setting {
        key: "defer_accept",
        group: Group::Listening,
        placeholder: "DURATION",
        default: "0s",
        help: "The kernel keeps a connection that has sent nothing for this long; 0 is off",
        doc: "TCP_DEFER_ACCEPT. Whole seconds, rounded up.",
        kind: Kind::Duration {
            min: NONE,
            max: HOUR,
            set: set::defer_accept,
        },
        ..PLAIN
    },
    Setting {
        key: "nodelay",
        group: Group::Listening,
        placeholder: "BOOL",
        default: "true",
        help: "TCP_NODELAY on accepted connections",
        kind: Kind::Switch {
            set: |draft, yes| draft.config.listen.nodelay = yes,
        },
        ..PLAIN
    },
    Setting {
        key: "connections_max",
        aliases: &["max_connections"],
        group: Group::Listening,
        placeholder: "N",
        default: "10000",
        help: "Open connections per process; at the bound accepting rests",
        doc: "Idle connections make room, also those that have sent nothing within a second of their accept: their \
              clients get 503. Cut to what the limit of open files (ulimit -n) leaves room for.",
        kind: Kind::Count {
            min: 1,
            max: 10_000_000,
            set: |draft, count| draft.config.listen.connections_max = count as usize,
        },
        ..PLAIN
    },
    Setting {
        key: "steering",
        group: Group::Listening,
        placeholder: "HOW",
        default: "hash",
        help: "Which driver gets a TCP connection: by hash, or that of the cpu it came in on",
        doc: "`hash` is the kernel's own way, by the addresses of both ends. `cpu` keeps a connection on \
              the processor that takes its packets; for drivers that are pinned (`driver_cpus`), and for \
              network cards with a queue for each processor.",
        kind: Kind::Choice {
            names: &["hash", "cpu"],
            set: set::steering,
        },
        ..PLAIN
    },
    Setting {
        key: "driver_stall",
        group: Group::Listening,
        placeholder: "DURATION",
        default: "500ms",
        help: "A connection waits this long for its driver before another one takes it",
        doc: "When a driver has accepted nothing for this long although connections wait for it, another \
              one accepts from its socket as well.",
        kind: Kind::Duration {
            min: STALL_LEAST,
            max: HOUR,
            set: |draft, span| draft.config.listen.driver_stall = span,
        },
        ..PLAIN
    },
    Setting {
        key: "processes",
        short: Some('w'),
        aliases: &["workers"],
        group: Group::Processes,
        placeholder: "N",
        default: "1",
        help: "Serving processes, or auto: one for each processor",
        doc: "Each has its own drivers, pool threads, limits and caches. Processes times drivers is at \
              most 1024.",
        kind: Kind::Text {
            expected: "a count from 1 to 512, or `auto`",
            set: set::processes,
        },
    },
    Setting {
        key: "user",
        group: Group::Processes,
        placeholder: "USER",
        default: "off",
        help: "User, as a name or number, whose rights are kept once all is bound, or off",
        doc: "For a server that is started by root, so that it can listen on ports below 1024. Its groups \
              are the user's; `group` names another first one.",
        kind: Kind::Text {
            expected: "a user's name or number, or `off`",
            set: set::user,
        },
        ..PLAIN
    },
    Setting {
        key: "group",
        group: Group::Processes,
        placeholder: "GROUP",
        default: "off",
        help: "Group, as a name or number, in place of the user's first one, or off",
        kind: Kind::Text {
            expected: "a group's name or number, or `off`",
            set: set::group,
        },
        ..PLAIN
    },
    Setting {
        key: "preload",
        aliases: &["preload_app"],
        group: Group::Processes,
        placeholder: "BOOL",
        default: "false",
        help: "Import the application once, in a template process that forks the serving ones",
        doc: "They share what the import has made until they change it, which saves memory. The \
              application must not start threads when it is imported, and connections that it opens \
              there are shared by all processes. A process is replaced without importing again; a reload \
              imports anew.",
        kind: Kind::Switch {
            set: |draft, yes| draft.config.processes.preload = yes,
        },
        ..PLAIN
    },
    Setting {
        key: "start_timeout",
        group: Group::Processes,
        placeholder: "DURATION",
        default: "2m",
        help: "A new process must serve this long after its start, or off",
        doc: "The time for importing the application, above all. At its end the process counts as one \
              that failed to start. With `off` it has as long as it takes.",
        kind: Kind::Text {
            expected: "a duration from 1s to 24h (as `2m`), or `off`",
            set: set::start_timeout,
        },
        ..PLAIN
    },
    Setting {
        key: "heartbeat_timeout",
        group: Group::Processes,
        placeholder: "DURATION",
        default: "30s",
        help: "A process whose drivers do not answer for this long is replaced, or off",
        doc: "Drivers run no application code: a slow request does not keep them from answering.",
        kind: Kind::Text {
            expected: "a duration from 1s to 24h (as `30s`), or `off`",
            set: set::heartbeat_timeout,
        },
        ..PLAIN
    },
    Setting {
        key: "process_requests_max",
        aliases: &["max_requests"],
        group: Group::Processes,
        placeholder: "N",
        default: "off",
        help: "A process is replaced after so many requests, or off",
        doc: "One at a time, and only while as many as configured serve: the new one is ready before the \
              old one leaves.",
        kind: Kind::Text {
            expected: "a count from 1, or `off`",
            set: set::process_requests_max,
        },
        ..PLAIN
    },
    Setting {
        key: "process_age_max",
        group: Group::Processes,
        placeholder: "DURATION",
        default: "off",
        help: "A process is replaced after so much time, or off",
        doc: "As with `process_requests_max`.",
        kind: Kind::Text {
            expected: "a duration from 1s to 366d (as `12h`, `7d`), or `off`",
            set: set::process_age_max,
        },
        ..PLAIN
    },
    Setting {
        key: "process_resident_max",
        group: Group::Processes,
        placeholder: "SIZE",
        default: "off",
        help: "A process is replaced when it has so much resident memory, or off",
        doc: "As with `process_requests_max`. Resident memory counts what processes share in each of them.",
        kind: Kind::Text {
            expected: "a size from 16M (as `512M`, `2G`), or `off`",
            set: set::process_resident_max,
        },
        ..PLAIN
    },
    Setting {
        key: "recycle_jitter",
        group: Group::Processes,
        placeholder: "PERCENT",
        default: "10%",
        help: "Those bounds of a process are raised by up to this share, for each anew",
        doc: "`process_requests_max`, `process_age_max` and `process_resident_max`: so that processes which \
              were started together are not replaced together.",
        kind: Kind::Text {
            expected: "a share from 0% to 100%",
            set: set::recycle_jitter,
        },
        ..PLAIN
    },
    Setting {
        key: "reload",
        group: Group::Processes,
        placeholder: "BOOL",
        default: "false",
        help: "For development: start anew whenever the code or the configuration file changes",
        doc: "Watches the application's modules and the folders that they are in, the configuration file, and \
              `reload_dir`. While the code does not work, browsers see the traceback.",
        kind: Kind::Switch {
            set: |draft, yes| draft.reload = yes,
        },
        ..PLAIN
    },
    Setting {
        key: "reload_dir",
        group: Group::Processes,
        placeholder: "DIR",
        help: "Folder that reload watches too, with those in it (repeatable)",
        kind: Kind::List {
            expected: "a folder",
            entries: Entries::Plain,
            clear: |draft| draft.reload_dirs.clear(),
            add: set::add_reload_dir,
        },
        ..PLAIN
    },
    Setting {
        key: "control",
        group: Group::Processes,
        placeholder: "FILE",
        default: "auto",
        help: "Unix socket for commands (milepost reload, status and others), auto or off",
        doc: "`auto` is a socket in the runtime folder (`$XDG_RUNTIME_DIR/milepost`, for root \
              `/run/milepost`, else `/tmp/milepost-UID`), named after the configuration file. Only root, \
              the server's user and the one that started it may command it. With `off` there are only signals.",
        kind: Kind::Named {
            names: &["auto", "off"],
            expected: "a file, `auto` or `off`",
            set: set::control,
        },
        ..PLAIN
    },
    Setting {
        key: "pid_file",
        aliases: &["pid"],
        group: Group::Processes,
        placeholder: "FILE",
        default: "off",
        help: "File that holds the process id while the server runs, or off",
        doc: "The supervisor's id: signals and commands are for it. Written once the addresses are open; a \
              file that names another running server is a fault.",
        kind: Kind::Text {
            expected: "a file, or `off`",
            set: set::pid_file,
        },
        ..PLAIN
    },
    Setting {
        key: "threads",
        group: Group::Pool,
        placeholder: "MIN:MAX",
        default: "4:4",
        help: "Pool threads that run the application; one number stands for both",
        doc: "Between MIN and MAX the pool sizes itself by the time that requests wait for a thread. These \
              and the settings up to `request_timeout` are those of the pool `default`, and of other pools \
              what they do not name themselves.",
        kind: Kind::Range {
            max: 4096,
            set: |draft, min, max| {
                draft.config.pools[0].threads_min = min as usize;
                draft.config.pools[0].threads_max = max as usize;
            },
        },
        ..PLAIN
    },
    Setting {
        key: "queue_len_max",
        group: Group::Pool,
        placeholder: "N",
        default: "1024",
        help: "Requests that may wait for a pool thread; one more is refused with 503",
        kind: Kind::Count {
            min: 1,
            max: 1_000_000,
            set: |draft, count| draft.config.pools[0].queue_len_max = count as usize,
        },
        ..PLAIN
    },
    Setting {
        key: "queue_target",
        group: Group::Pool,
        placeholder: "DURATION",
        default: "5ms",
        help: "How long 95 of 100 requests may wait for a thread before the pool grows",
        doc: "Also the test of overload: when even the least wait of half a second is longer, while every \
              thread runs, the pool is overloaded.",
        kind: Kind::Duration {
            min: WAIT_LEAST,
            max: HOUR,
            set: |draft, span| draft.config.pools[0].queue_target = span,
        },
        ..PLAIN
    },
    Setting {
        key: "queue_timeout",
        group: Group::Pool,
        placeholder: "DURATION",
        default: "30s",
        help: "Longest wait for a thread; a request that waited longer gets 503",
        kind: Kind::Duration {
            min: MS,
            max: HOUR,
            set: |draft, span| draft.config.pools[0].queue_timeout = span,
        },
        ..PLAIN
    },
    Setting {
        key: "overload_timeout",
        group: Group::Pool,
        placeholder: "DURATION",
        default: "10s",
        help: "Longest wait for a thread while the pool is overloaded; 503 beyond",
        doc: "Where clients or a proxy in front try again, twice the queue_target keeps all waits short. Not \
              longer than queue_timeout, which it follows when only that one is set.",
        kind: Kind::Duration {
            min: MS,
            max: HOUR,
            set: |draft, span| draft.config.pools[0].overload_timeout = span,
        },
        ..PLAIN
    },
    Setting {
        key: "queue_reserve",
        group: Group::Pool,
        placeholder: "THREADS[:PLACES]",
        default: "0",
        help: "Threads, and places in the queue, that only health checks may have",
        doc: "Which requests are health checks, rules say: `--pool-rule 'default path=/health class=health'`. \
              One number stands for both. Other pools keep as many where a rule gives them health checks.",
        kind: Kind::Text {
            expected: "THREADS or THREADS:PLACES (as `1`, `1:8`)",
            set: set::queue_reserve,
        },
        ..PLAIN
    },
    Setting {
        key: "request_timeout",
        group: Group::Pool,
        placeholder: "DURATION",
        default: "off",
        help: "Longest run of a request in the application, 504 beyond, or off",
        kind: Kind::Text {
            expected: "a duration from 1ms to 24h (as `30s`, `2m`), or `off`",
            set: set::request_timeout,
        },
        ..PLAIN
    },
    Setting {
        key: "pool",
        group: Group::Pool,
        placeholder: "POOL",
        help: "Another pool of threads: its name, and options (repeatable)",
        doc: "NAME, and behind it `threads=` (as `1:8`), `queue_len_max=`, `queue_target=`, \
              `queue_timeout=`, `overload_timeout=`, `reserve=` (as queue_reserve) and `request_timeout=`; \
              what is left out is as the settings of the same name say. Which requests it gets, pool_rule \
              says. In the environment pools are separated by line breaks where there is one, else by `;`. \
              In TOML a pool is also a table: `{name = \"reports\", threads = \"1:8\"}`.",
        kind: Kind::List {
            expected: set::POOL,
            entries: Entries::WithOptions {
                lead: "name",
                keys: set::POOL_KEYS,
            },
            clear: |draft| draft.pools.clear(),
            add: set::add_pool,
        },
        ..PLAIN
    },
    Setting {
        key: "pool_rule",
        group: Group::Pool,
        placeholder: "RULE",
        help: "Requests that a pool takes, and how much they matter (repeatable)",
        doc: "A pool's name, and behind it `path=` (a path, or a glob: `*` stays within a segment, \
              `/reports/**` is all beneath), `method=` (with commas between), `host=` (`*.` before it: all \
              beneath), `header=` (a name, or `name: value`), `from=` (addresses or networks, with commas \
              between), and `class=`, one of `health`, `high`, `normal` and `low`. All that is named must fit. \
              Of several rules that fit the narrowest counts: first by the path, a whole one before globs, \
              then by the longer text before the first wildcard; then by host, header, network and method; \
              of equals the first. Paths are compared as sent, or as a rewrite made them. Requests that fit \
              no rule go to `default`. In the environment rules are separated by line breaks where there is \
              one, else by `;`. In TOML a rule is also a table: `{pool = \"reports\", path = \"/reports/**\"}`.",
        kind: Kind::List {
            expected: set::POOL_RULE,
            entries: Entries::WithOptions {
                lead: "pool",
                keys: set::POOL_RULE_KEYS,
            },
            clear: |draft| draft.pool_rules.clear(),
            add: set::add_pool_rule,
        },
        ..PLAIN
    },
    Setting {
        key: "slow_pool",
        group: Group::Pool,
        placeholder: "NAME",
        default: "off",
        help: "Pool that routes go to by themselves once they are slow, or off",
        doc: "A route is a method and a path in which segments of digits, hex numbers and UUIDs are one. When \
              the median of its last 16 runs is over slow_after, its requests go to this pool, and come back \
              when it is under half of that; the error log says so.",
        kind: Kind::Text {
            expected: "a pool's name, or `off`",
            set: set::slow_pool,
        },
        ..PLAIN
    },
    Setting {
        key: "slow_after",
        group: Group::Pool,
        placeholder: "DURATION",
        default: "1s",
        help: "The usual run of a route from which on slow_pool takes it",
        kind: Kind::Duration {
            min: MS,
            max: HOUR,
            set: |draft, span| draft.slow_after = span,
        },
        ..PLAIN
    },
    Setting {
        key: "slow_request",
        group: Group::Pool,
        placeholder: "DURATION",
        default: "off",
        help: "Runs longer than this have their stack in the error log, once, or off",
        kind: Kind::Text {
            expected: "a duration from 1ms to 24h (as `5s`), or `off`",
            set: set::slow_request,
        },
        ..PLAIN
    },
    Setting {
        key: "request_start_from",
        group: Group::Pool,
        placeholder: "ADDRESS[/BITS]",
        help: "Clients whose X-Request-Start counts into the wait: proxies (repeatable)",
        doc: "An address or a network, as `10.0.0.0/8`; clients on unix sockets are trusted.",
        kind: Kind::List {
            expected: "an address or a network in digits (as `127.0.0.1`, `10.0.0.0/8`, `fd00::/8`)",
            entries: Entries::Plain,
            clear: |draft| draft.config.request_start_from.clear(),
            add: set::add_request_start_from,
        },
        ..PLAIN
    },
    Setting {
        key: "body_bytes_max",
        group: Group::Limits,
        placeholder: "SIZE",
        default: "256M",
        help: "Largest request body; a larger one is refused with 413",
        kind: Kind::Size {
            min: 0,
            max: u64::MAX,
            set: |draft, bytes| draft.config.limits.body_bytes_max = bytes,
        },
        ..PLAIN
    },
    Setting {
        key: "head_bytes_max",
        group: Group::Limits,
        placeholder: "SIZE",
        default: "32K",
        help: "Largest request head, line and fields together; 431 beyond",
        kind: Kind::Size {
            min: 256,
            max: HEAD_BYTES_MOST,
            set: |draft, bytes| draft.config.limits.head_bytes_max = bytes as usize,
        },
        ..PLAIN
    },
    Setting {
        key: "target_bytes_max",
        aliases: &["limit_request_line"],
        group: Group::Limits,
        placeholder: "SIZE",
        default: "8K",
        help: "Longest request target (path and query); 414 beyond",
        kind: Kind::Size {
            min: 64,
            max: HEAD_BYTES_MOST,
            set: |draft, bytes| draft.config.limits.target_bytes_max = bytes as usize,
        },
        ..PLAIN
    },
    Setting {
        key: "header_bytes_max",
        aliases: &["limit_request_field_size"],
        group: Group::Limits,
        placeholder: "SIZE",
        default: "16K",
        help: "Longest single header field; 431 beyond",
        kind: Kind::Size {
            min: 64,
            max: HEAD_BYTES_MOST,
            set: |draft, bytes| draft.config.limits.header_bytes_max = bytes as usize,
        },
        ..PLAIN
    },
    Setting {
        key: "headers_len_max",
        aliases: &["limit_request_fields"],
        group: Group::Limits,
        placeholder: "N",
        default: "100",
        help: "Most header fields in a request; 431 beyond",
        kind: Kind::Count {
            min: 1,
            max: 32_768,
            set: |draft, count| draft.config.limits.headers_len_max = count as usize,
        },
        ..PLAIN
    },
    Setting {
        key: "chunk_line_bytes_max",
        group: Group::Limits,
        placeholder: "SIZE",
        default: "256",
        help: "Longest size line of a chunk, extensions included",
        kind: Kind::Size {
            min: 18,
            max: 64 * K,
            set: |draft, bytes| draft.config.limits.chunk_line_bytes_max = bytes as usize,
        },
        ..PLAIN
    },
    Setting {
        key: "trailer_bytes_max",
        group: Group::Limits,
        placeholder: "SIZE",
        default: "8K",
        help: "Most bytes of trailer fields after a chunked body",
        kind: Kind::Size {
            min: 2,
            max: M,
            set: |draft, bytes| draft.config.limits.trailer_bytes_max = bytes as usize,
        },
        ..PLAIN
    },
    Setting {
        key: "head_timeout",
        group: Group::Timeouts,
        placeholder: "DURATION",
        default: "30s",
        help: "A request head must be complete this long after its first byte",
        doc: "For a connection's first request the time runs from the accept. A trickle of bytes does not \
              renew it; 408 at its end.",
        kind: Kind::Duration {
            min: MS,
            max: DAY,
            set: |draft, span| draft.config.timeouts.head = span,
        },
        ..PLAIN
    },
    Setting {
        key: "body_timeout",
        aliases: &["body_grace"],
        group: Group::Timeouts,
        placeholder: "DURATION",
        default: "30s",
        help: "How far a request body may fall behind body_rate_min: its longest silence",
        doc: "A body that keeps the rate has all the time it needs. One that stops is refused with 408 \
              after this long, one at half the rate after twice as long: a trickle of bytes does not \
              renew it.",
        kind: Kind::Duration {
            min: MS,
            max: DAY,
            set: |draft, span| draft.config.timeouts.body = span,
        },
        ..PLAIN
    },
    Setting {
        key: "body_rate_min",
        group: Group::Timeouts,
        placeholder: "RATE",
        default: "256",
        help: "Bytes a second that a request body has to keep; 0: only silence counts",
        doc: "With 0 every byte renews `body_timeout`.",
        kind: Kind::PerSecond {
            max: G,
            set: |draft, bytes| draft.config.timeouts.body_rate_min = bytes,
        },
        ..PLAIN
    },
    Setting {
        key: "idle_timeout",
        aliases: &["keep_alive", "timeout_keep_alive"],
        group: Group::Timeouts,
        placeholder: "DURATION",
        default: "60s",
        help: "An idle keep-alive connection is closed after this long",
        doc: "Sooner when more than half of `connections_max` are open, down to a second at 15/16 of \
              it; at the bound those that have been idle for the longest time are closed at once.",
        kind: Kind::Duration {
            min: MS,
            max: DAY,
            set: |draft, span| draft.config.timeouts.idle = span,
        },
        ..PLAIN
    },
    Setting {
        key: "send_timeout",
        group: Group::Timeouts,
        placeholder: "DURATION",
        default: "30s",
        help: "How far a reply may fall behind send_rate_min: its longest standstill",
        doc: "Counted in what the client's side acknowledges. One that stops is cut off after this \
              long, one at half the rate after twice as long. Time in which the server waits for the \
              application or for a bandwidth limit does not count.",
        kind: Kind::Duration {
            min: MS,
            max: DAY,
            set: |draft, span| draft.config.timeouts.send = span,
        },
        ..PLAIN
    },
    Setting {
        key: "send_rate_min",
        group: Group::Timeouts,
        placeholder: "RATE",
        default: "256",
        help: "Bytes a second that a client has to take of a reply; 0: only standstill counts",
        doc: "With 0 every byte taken renews `send_timeout`.",
        kind: Kind::PerSecond {
            max: G,
            set: |draft, bytes| draft.config.timeouts.send_rate_min = bytes,
        },
        ..PLAIN
    },
    Setting {
        key: "linger_timeout",
        group: Group::Timeouts,
        placeholder: "DURATION",
        default: "2s",
        help: "How long the rest of a refused body is read and thrown away",
        doc: "So that the client reads the refusal instead of a reset.",
        kind: Kind::Duration {
            min: NONE,
            max: HOUR,
            set: |draft, span| draft.config.timeouts.linger = span,
        },
        ..PLAIN
    },
    Setting {
        key: "drain_timeout",
        aliases: &["graceful_timeout"],
        group: Group::Timeouts,
        placeholder: "DURATION",
        default: "30s",
        help: "From the first SIGTERM or SIGINT, or from its replacement, to a process's end",
        doc: "What has been received is answered within it; what is cut is counted in one line.",
        kind: Kind::Duration {
            min: NONE,
            max: DAY,
            set: |draft, span| draft.config.timeouts.drain = span,
        },
        ..PLAIN
    },
    Setting {
        key: "client_connections_max",
        group: Group::Sharing,
        placeholder: "N",
        default: "off",
        help: "Open connections of one client, or off; one more is refused with 429",
        doc: "Clients are told apart by their addresses (`client_prefix_v4`, `client_prefix_v6`): \
              behind a proxy all are one. Connections on unix sockets are not counted. Each process \
              counts for itself.",
        kind: Kind::Text {
            expected: "a count from 1 to 10000000, or `off`",
            set: set::client_connections_max,
        },
        ..PLAIN
    },
    Setting {
        key: "client_prefix_v4",
        group: Group::Sharing,
        placeholder: "BITS",
        default: "32",
        help: "Leading bits of an IPv4 address that tell clients apart",
        kind: Kind::Count {
            min: 0,
            max: 32,
            set: |draft, count| draft.config.listen.client_prefix_v4 = count as u8,
        },
        ..PLAIN
    },
    Setting {
        key: "client_prefix_v6",
        group: Group::Sharing,
        placeholder: "BITS",
        default: "64",
        help: "Leading bits of an IPv6 address that tell clients apart",
        doc: "Whoever has one IPv6 address usually has all of its /64.",
        kind: Kind::Count {
            min: 0,
            max: 128,
            set: |draft, count| draft.config.listen.client_prefix_v6 = count as u8,
        },
        ..PLAIN
    },
    Setting {
        key: "rate_connection",
        group: Group::Sharing,
        placeholder: "RATE",
        help: "Bytes a second that the replies of each connection may take, or off",
        doc: "Not set by default. The first that is set of `rate_connection`, `rate_route` and \
              `rate_pool` counts alone; `off` is set too, and lifts what comes behind it.",
        kind: Kind::Text {
            expected: "bytes a second (as `500K`, `10M`), or `off`",
            set: set::rate_connection,
        },
        ..PLAIN
    },
    Setting {
        key: "rate_route",
        group: Group::Sharing,
        placeholder: "/URL=RATE",
        help: "Bytes a second that all replies of a route may take, or off (repeatable)",
        doc: "Each process counts for itself. /URL is that of a `static`, or `/` for the application. In TOML \
              it may be a table.",
        kind: Kind::List {
            expected: "/URL=RATE (as `/static=10M`), or /URL=off",
            entries: Entries::Pairs,
            clear: |draft| draft.rate_routes.clear(),
            add: set::add_route_rate,
        },
        ..PLAIN
    },
    Setting {
        key: "rate_pool",
        group: Group::Sharing,
        placeholder: "RATE",
        help: "Bytes a second that all replies of the application may take, or off",
        doc: "Not set by default. Each process counts for itself. Files are not the pool's: see `rate_route`.",
        kind: Kind::Text {
            expected: "bytes a second (as `500K`, `10M`), or `off`",
            set: set::rate_pool,
        },
        ..PLAIN
    },
    Setting {
        key: "readahead",
        group: Group::Bodies,
        placeholder: "SIZE",
        default: "64K",
        help: "Largest request body kept in memory; larger ones go to an unnamed file",
        kind: Kind::Size {
            min: 0,
            max: G,
            set: |draft, bytes| draft.config.spool.readahead_bytes = bytes as usize,
        },
        ..PLAIN
    },
    Setting {
        key: "spoolers",
        group: Group::Bodies,
        placeholder: "N",
        default: "1",
        help: "Threads that write those files",
        kind: Kind::Count {
            min: 1,
            max: 64,
            set: |draft, count| draft.config.spool.spoolers = count as usize,
        },
        ..PLAIN
    },
    Setting {
        key: "spool_dir",
        group: Group::Bodies,
        placeholder: "DIR",
        help: "Folder of the unnamed files (default: the system's temporary folder)",
        doc: "TMPDIR, or /tmp. A file system in memory would defeat the purpose.",
        kind: Kind::Text {
            expected: "a folder",
            set: |draft, text| set::folder(text).map(|dir| draft.config.spool.dir = dir),
        },
        ..PLAIN
    },
    Setting {
        key: "reply_spool_bytes_max",
        aliases: &["reply_spool_max"],
        group: Group::Bodies,
        placeholder: "SIZE",
        default: "1G",
        help: "Unsent bytes of one streamed response; beyond, its worker waits for the client",
        doc: "Only a stream whose application is still producing it waits. A response that the application has \
              handed over as a whole never holds its worker, whatever its size.",
        kind: Kind::Size {
            min: 0,
            max: u64::MAX,
            set: |draft, bytes| draft.config.delivery.reply_spool_bytes_max = bytes,
        },
        ..PLAIN
    },
    Setting {
        key: "stream_wait_timeout",
        group: Group::Bodies,
        placeholder: "TIME",
        default: "60s",
        help: "Maximum time in all that a worker waits for the client of one streamed response",
        doc: "A stream that is beyond `reply_spool_bytes_max` for longer is cut, counted and named in the log.",
        kind: Kind::Duration {
            min: NONE,
            max: DAY,
            set: |draft, span| draft.config.delivery.stream_wait_timeout = span,
        },
        ..PLAIN
    },
    Setting {
        key: "reply_memory_max",
        group: Group::Bodies,
        placeholder: "SIZE",
        default: "256M",
        help: "Memory for all responses that wait for slow clients",
        doc: "Above half of it, the responses whose clients have taken nothing for longest move to unnamed files in \
              `spool_dir`. Above all of it, where the disk does not keep up, these are cut. A buffer that several \
              responses share counts once.",
        kind: Kind::Size {
            min: M,
            max: 1024 * G,
            set: |draft, bytes| draft.config.delivery.replies_memory_bytes_max = bytes as usize,
        },
        ..PLAIN
    },
    Setting {
        key: "compress",
        group: Group::Compression,
        placeholder: "LIST",
        default: "off",
        help: "Compress the application's replies: br, zstd, gzip, the preferred first, or off",
        doc: "Where a client likes several alike, this order decides. A stream is compressed piece by \
              piece, and nothing of it is held back. Left as they are: replies with a \
              Content-Encoding, with `no-transform`, and parts (206).",
        kind: Kind::Joined {
            expected: "some of `br`, `zstd`, `gzip`, the preferred first, or `off`",
            set: set::compress,
        },
        ..PLAIN
    },
    Setting {
        key: "compress_size_min",
        group: Group::Compression,
        placeholder: "SIZE",
        default: "1K",
        help: "Smallest body of known length that is compressed",
        kind: Kind::Size {
            min: 0,
            max: G,
            set: |draft, bytes| draft.config.compression.bytes_min = bytes as usize,
        },
        ..PLAIN
    },
    Setting {
        key: "compress_level_br",
        group: Group::Compression,
        placeholder: "LEVEL",
        default: "4",
        help: "Effort of br: 0 is the fastest, 11 the smallest",
        kind: Kind::Count {
            min: 0,
            max: 11,
            set: |draft, count| draft.config.compression.brotli_level = count as u32,
        },
        ..PLAIN
    },
    Setting {
        key: "compress_level_zstd",
        group: Group::Compression,
        placeholder: "LEVEL",
        default: "3",
        help: "Effort of zstd",
        kind: Kind::Count {
            min: 1,
            max: 19,
            set: |draft, count| draft.config.compression.zstd_level = count as i32,
        },
        ..PLAIN
    },
    Setting {
        key: "compress_level_gzip",
        group: Group::Compression,
        placeholder: "LEVEL",
        default: "6",
        help: "Effort of gzip",
        kind: Kind::Count {
            min: 1,
            max: 9,
            set: |draft, count| draft.config.compression.gzip_level = count as u32,
        },
        ..PLAIN
    },
    Setting {
        key: "compress_types",
        group: Group::Compression,
        placeholder: "LIST",
        default: "text/*, application/json, application/ld+json, application/manifest+json, \
                  application/problem+json, application/javascript, application/xml, application/xhtml+xml, \
                  application/rss+xml, application/atom+xml, application/wasm, image/svg+xml",
        help: "Media types that are compressed",
        doc: "`text/*` stands for all that begin with `text/`.",
        kind: Kind::Joined {
            expected: "media types (as `text/*,application/json`)",
            set: set::compress_types,
        },
        ..PLAIN
    },
    Setting {
        key: "access_log",
        aliases: &["access_logfile"],
        group: Group::Log,
        placeholder: "LOG",
        default: "off",
        help: "Access log: a file, -, stderr, syslog or journald, and options (repeatable)",
        doc: "TARGET is a file, `-` or `stdout`, `stderr`, `syslog` or `syslog:FACILITY`, `journald`, or \
              `off`. Behind it: `format=` as `access_log_format`; `route=` names of routes (`app`, \
              `status`, `rules`, `none`, and the URLs of folders), `status=` (`404`, `5xx`, `400-499`, \
              `none` for no reply) with commas between, and `slower=` a duration: only the requests that \
              fit all of them are in it. A name or a value with spaces stands in quotes (`\"` or `'`), in \
              which `\\` makes the next quote or `\\` a letter. In the environment logs are separated by line \
              breaks where there is one, else by `;`. In TOML a log is also a table: \
              `{to = \"slow.log\", format = \"json\", route = [\"app\"], status = \"5xx\", slower = \"1s\"}`.",
        kind: Kind::List {
            expected: set::ACCESS_LOG,
            entries: Entries::WithOptions {
                lead: "to",
                keys: set::ACCESS_KEYS,
            },
            clear: |draft| draft.access_logs.clear(),
            add: set::add_access_log,
        },
        ..PLAIN
    },
    Setting {
        key: "access_log_format",
        group: Group::Log,
        placeholder: "FORM",
        default: "phases",
        help: "Form of a line where its log names none: a name, or a text with {field}s",
        doc: "`phases` is combined and the phases; `naviserver` is combined and NaviServer's partial times. A \
              text is a template, as `{time_iso} {peer} \"{request}\" {status} {total}`.",
        kind: Kind::Named {
            names: set::FORM_NAMES,
            expected: set::FORM,
            set: set::log_form,
        },
        ..PLAIN
    },
    Setting {
        key: "error_log",
        aliases: &["error_logfile"],
        group: Group::Log,
        placeholder: "LOG",
        default: "stderr",
        help: "Error log: a target as of access_log, and its level (repeatable)",
        doc: "`level=error`, `warning` or `info` is this level and the worse ones, `only=` this one alone. \
              Without either it has all. Separated in the environment and written in TOML as `access_log`: \
              `{to = \"error.log\", level = \"warning\"}`.",
        kind: Kind::List {
            expected: set::ERROR_LOG,
            entries: Entries::WithOptions {
                lead: "to",
                keys: set::ERROR_KEYS,
            },
            clear: |draft| draft.error_logs.clear(),
            add: set::add_error_log,
        },
        ..PLAIN
    },
    Setting {
        key: "log_buffer",
        group: Group::Log,
        placeholder: "SIZE",
        default: "64M",
        help: "Lines that may wait for slow targets, for the process",
        kind: Kind::Size {
            min: 64 * K,
            max: 64 * G,
            set: |draft, bytes| draft.config.logs.buffer_bytes_max = bytes as usize,
        },
        ..PLAIN
    },
    Setting {
        key: "log_overflow",
        group: Group::Log,
        placeholder: "HOW",
        default: "drop",
        help: "What happens to lines beyond log_buffer: drop (and count them) or wait",
        doc: "With `wait` no line is lost, and requests wait for the log's target.",
        kind: Kind::Choice {
            names: &["drop", "wait"],
            set: set::log_overflow,
        },
        ..PLAIN
    },
    Setting {
        key: "log_flush",
        group: Group::Log,
        placeholder: "DURATION",
        default: "1s",
        help: "Longest time that a line waits to be written",
        kind: Kind::Duration {
            min: MS,
            max: HOUR,
            set: |draft, span| draft.config.logs.flush = span,
        },
        ..PLAIN
    },
    Setting {
        key: "log_mask_v4",
        group: Group::Log,
        placeholder: "BITS",
        default: "32",
        help: "Leading bits of a client's IPv4 address that are logged; the others are 0",
        doc: "24 makes 192.0.2.77 into 192.0.2.0.",
        kind: Kind::Count {
            min: 0,
            max: 32,
            set: |draft, count| draft.config.logs.privacy.prefix_v4 = count as u8,
        },
        ..PLAIN
    },
    Setting {
        key: "log_mask_v6",
        group: Group::Log,
        placeholder: "BITS",
        default: "128",
        help: "Leading bits of a client's IPv6 address that are logged; the others are 0",
        doc: "48 makes 2001:db8:1234:5678::1 into 2001:db8:1234::.",
        kind: Kind::Count {
            min: 0,
            max: 128,
            set: |draft, count| draft.config.logs.privacy.prefix_v6 = count as u8,
        },
        ..PLAIN
    },
    Setting {
        key: "log_query",
        group: Group::Log,
        placeholder: "BOOL",
        default: "true",
        help: "Whether queries (`?name=value`) of targets and referers are logged",
        kind: Kind::Switch {
            set: |draft, yes| draft.config.logs.privacy.query = yes,
        },
        ..PLAIN
    },
    Setting {
        key: "log_rotate_size",
        group: Group::Log,
        placeholder: "SIZE",
        default: "off",
        help: "Size from which a log file is renamed and begun anew, or off",
        doc: "The old file's name gets the time in UTC: `access.log.20261121T120739Z`.",
        kind: Kind::Text {
            expected: "a size from 4K (as `100M`), or `off`",
            set: set::log_rotate_size,
        },
        ..PLAIN
    },
    Setting {
        key: "log_rotate_every",
        group: Group::Log,
        placeholder: "DURATION",
        default: "off",
        help: "How often log files are renamed and begun anew, or off",
        doc: "At each multiple of it since 1970 in UTC: `1h` is on the hour, `1d` at midnight. With \
              `log_rotate_size` whatever comes first.",
        kind: Kind::Text {
            expected: "a duration from 1s to 366d (as `1h`, `1d`), or `off`",
            set: set::log_rotate_every,
        },
        ..PLAIN
    },
    Setting {
        key: "log_keep",
        group: Group::Log,
        placeholder: "N",
        default: "off",
        help: "Old files kept of each log, or off for all; the oldest are deleted",
        doc: "Only files with a name that the server gives are ever deleted.",
        kind: Kind::Text {
            expected: "a count from 1 to 1000000, or `off`",
            set: set::log_keep,
        },
        ..PLAIN
    },
    Setting {
        key: "log_keep_age",
        group: Group::Log,
        placeholder: "DURATION",
        default: "off",
        help: "Age from which old files of logs are deleted, or off",
        kind: Kind::Text {
            expected: "a duration from 1s to 366d (as `14d`), or `off`",
            set: set::log_keep_age,
        },
        ..PLAIN
    },
    Setting {
        key: "log_compress",
        group: Group::Log,
        placeholder: "CODING",
        default: "off",
        help: "Compress old files of logs, in the background: gzip, zstd, or off",
        kind: Kind::Choice {
            names: set::COMPRESSIONS,
            set: set::log_compress,
        },
        ..PLAIN
    },
    Setting {
        key: "request_id_header",
        group: Group::Log,
        placeholder: "NAME",
        default: "off",
        help: "Header that has a request's id, as X-Request-Id, or off",
        doc: "Taken from clients in `request_id_trust` and on unix sockets, made for all others; replies \
              have it too. With `off` ids are made, and only logs and the application have them.",
        kind: Kind::Text {
            expected: "a header's name (as `X-Request-Id`), or `off`",
            set: set::request_id_header,
        },
        ..PLAIN
    },
    Setting {
        key: "request_id_trust",
        group: Group::Log,
        placeholder: "ADDRESS[/BITS]",
        help: "Clients whose request_id_header is taken: proxies in front (repeatable)",
        doc: "An address or a network, as `10.0.0.0/8`.",
        kind: Kind::List {
            expected: "an address or a network in digits (as `127.0.0.1`, `10.0.0.0/8`, `fd00::/8`)",
            entries: Entries::Plain,
            clear: |draft| draft.config.request_ids.trust.clear(),
            add: set::add_trust,
        },
        ..PLAIN
    },
    Setting {
        key: "server_header",
        group: Group::Replies,
        placeholder: "TEXT",
        default: "milepost",
        help: "Server header of replies that have none, or off",
        kind: Kind::Text {
            expected: "printable ASCII, or `off`",
            set: set::server_header,
        },
        ..PLAIN
    },
    Setting {
        key: "server_timing",
        group: Group::Replies,
        placeholder: "BOOL",
        default: "false",
        help: "Server-Timing header with the phases that have passed",
        kind: Kind::Switch {
            set: |draft, yes| draft.config.headers.server_timing = yes,
        },
        ..PLAIN
    },
    Setting {
        key: "status_path",
        group: Group::Replies,
        placeholder: "PATH",
        default: "off",
        help: "URL path that answers with the server's counters as JSON, or off",
        doc: "Everybody who can reach the server can read it.",
        kind: Kind::Text {
            expected: "a URL path (as `/status`), or `off`",
            set: set::status_path,
        },
        ..PLAIN
    },
];
