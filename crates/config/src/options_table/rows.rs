//! The rows of the table, by topic: a uniform table, and the only place where a setting is described.
//!
//! To add a setting, add its field to `typed`, its row here, and run `make docs`; everything else follows.

use telemetry::Nanos;

use super::SettingGroup::*;
use super::row::row;
use super::{ListForm, Setting, set};

use crate::tables;

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

/// All settings, in the order of help texts.
pub static SETTINGS: &[Setting] = &[
    row("app", Application)
        .help("Python application to serve, as MODULE:ATTRIBUTE")
        .daily()
        .placeholder("APP")
        .doc(
            "Without an attribute, the server tries `application` and then `app`. \
             `module:create()` calls a factory. The attribute may contain dots.",
        )
        .text("MODULE:ATTRIBUTE (as `shop.wsgi:app`)", set::app),
    // The command reads it before there is a configuration.
    row("config", Application)
        .help("Configuration file in TOML")
        .daily()
        .short('c')
        .placeholder("FILE")
        .doc(
            "Its keys are the flags' names with underscores. Environment variables override \
             the file, and flags override both. Relative paths in the file start at the \
             working folder.",
        )
        .text("a file", |_, _| Ok(())),
    row("chdir", Application)
        .help("Working folder of the server")
        .placeholder("DIR")
        .doc(
            "The server changes to it before it reads anything else. All relative paths, \
             except the path of the configuration file, start there.",
        )
        .text("a folder", |draft, text| {
            set::folder(text).map(|dir| draft.chdir = Some(dir))
        }),
    row("app_dir", Application)
        .help("Folder to put first on sys.path")
        .daily()
        .placeholder("DIR")
        .default(".")
        .text("a folder", |draft, text| {
            set::folder(text).map(|dir| draft.app_dir = dir)
        }),
    row("factory", Application)
        .help("Call APP without arguments to make the application")
        .default("false")
        .switch(|draft, yes| draft.factory = yes),
    row("root_path", Application)
        .help("URL prefix of the application (SCRIPT_NAME)")
        .aliases(&["url_path_prefix"])
        .placeholder("PATH")
        .doc(
            "The prefix moves from the front of PATH_INFO to SCRIPT_NAME. Paths without the \
             prefix stay as they are.",
        )
        .text("a URL path (as `/shop`)", set::root_path),
    row("trace_requests", Application)
        .help("Pass TRACE requests to the application instead of answering 405")
        .default("false")
        .doc(
            "A TRACE response repeats the request with its cookies and credentials, so \
             scripts and logs can see them. Files and the server's own pages always answer \
             405.",
        )
        .switch(|draft, yes| draft.config.trace_requests = yes),
    row("static", Files)
        .help("Folder of files to serve under a URL (repeatable)")
        .daily()
        .placeholder("/URL=DIR")
        .doc(
            "The longest matching URL wins. Requests that match no folder go to the \
             application. In TOML the setting may also be a table: `[static]` with `\"/url\" \
             = \"dir\"`.",
        )
        .list(
            "/URL=DIR (as `/static=./static`)",
            ListForm::Pairs,
            |draft| draft.statics.clear(),
            set::add_static,
        ),
    row("static_index", Files)
        .help("File to serve for a folder's own URL")
        .placeholder("NAME")
        .default("index.html")
        .text("a file's name without a slash", set::static_index),
    row("static_fallback", Files)
        .help("File to serve, with 200, for paths of a folder that has no such file")
        .doc(
            "A single-page application needs it: every path shows the same page. `url` is the \
             URL of a `static`, and `file` is a path beneath its folder.",
        )
        .tables(
            "[[static_fallback]]\n\
                      url = \"/\"\n\
                      file = \"index.html\"",
            |draft| draft.fallbacks.clear(),
            tables::add::<set::FallbackTable>,
        ),
    row("static_encodings", Files)
        .help("Precompressed copies of files to look for, best first, or off")
        .default("br,zstd,gzip")
        .doc(
            "The server answers `app.css` with `app.css.br`, `.zst` or `.gz` if the copy \
             exists and the client accepts it.",
        )
        .joined(
            "some of `br`, `zstd`, `gzip`, the preferred first, or `off`",
            set::static_encodings,
        ),
    row("static_listing", Files)
        .help("List the files of folders that have no index file")
        .default("false")
        .switch(|draft, yes| draft.config.file_serving.listing = yes),
    row("cache_control", Files)
        .help("Cache-Control header of files, by path")
        .doc(
            "`path` is a glob over the decoded path: `*` matches within a folder, `**` \
             matches across folders, `{css,js}` matches either. A glob without a slash at its \
             beginning matches in every folder. The first matching table counts.",
        )
        .tables(
            "[[cache_control]]\n\
                      path = \"/static/**\"\n\
                      value = \"max-age=3600\"",
            |draft| draft.cache_rules.clear(),
            tables::add::<set::CacheRuleTable>,
        ),
    row("file_cache_bytes_max", Files)
        .help("Memory of each driver for small files")
        .default("64M")
        .size(0, 1024 * G, |draft, bytes| {
            draft.config.file_cache.bytes_max = bytes as usize;
        }),
    row("file_cache_entry_bytes_max", Files)
        .help("Largest file to keep in memory")
        .default("64K")
        .size(0, G, |draft, bytes| {
            draft.config.file_cache.entry_bytes_max = bytes as usize;
        }),
    row("file_cache_revalidate", Files)
        .help("Time after which the server checks a cached file for changes")
        .default("1s")
        .duration(NONE, DAY, |draft, span| {
            draft.config.file_cache.revalidate = span;
        }),
    row("file_cache_stale_max", Files)
        .help("Maximum age of a cached file that is served while its check runs")
        .default("10s")
        .doc(
            "The age counts from the last finished check. The setting matters on slow storage \
             such as network file systems, because a check of a local file takes no time. \
             With 0 every request waits for the check.",
        )
        .duration(NONE, DAY, |draft, span| {
            draft.config.file_cache.stale_max = span;
        }),
    row("writers", Files)
        .help("Threads that send large files; 0 lets drivers send them")
        .default("1")
        .doc("These threads wait for slow storage, so that drivers do not have to.")
        .count(0, 64, |draft, count| {
            draft.config.file_serving.writers = count as usize;
        }),
    row("writer_size", Files)
        .help("Smallest file to send from disk; smaller files are read as a whole")
        .default("64K")
        .doc("Files in the cache (`file_cache_entry_bytes_max`) are always sent from memory.")
        .size(0, 64 * M, |draft, bytes| {
            draft.config.file_serving.writer_bytes_min = bytes as usize;
        }),
    row("openers", Files)
        .help("Threads that find, open and read files; 0 lets drivers do so")
        .default("4")
        .doc("A cached file that was checked recently needs none of them.")
        .count(0, 64, |draft, count| {
            draft.config.file_serving.openers = count as usize;
        }),
    row("redirect", Rules)
        .help("Redirect requests to another path or site")
        .doc(
            "`from` is a path, or `/old/*` for all paths below `/old/`. `to` is a path or an \
             absolute URL; a `*` in it stands for the rest of the path. A `to` without a \
             query keeps the query of the request. `status` is 302 by default, or 301, 303, \
             307 or 308. The first matching table counts.",
        )
        .tables(
            "[[redirect]]\n\
                      from = \"/old/*\"\n\
                      to = \"/new/*\"\n\
                      status = 301",
            |draft| draft.redirects.clear(),
            tables::add::<set::RedirectTable>,
        ),
    row("respond", Rules)
        .help("Answer requests with a fixed status and text")
        .doc(
            "`path` is a path, or `/old/*` for all paths below `/old/`. Redirects come first. \
             A status from 400 on without `text` shows its error page.",
        )
        .tables(
            "[[respond]]\n\
                      path = \"/ping\"\n\
                      status = 200\n\
                      text = \"pong\"",
            |draft| draft.replies.clear(),
            tables::add::<set::RespondTable>,
        ),
    row("rewrite", Rules)
        .help("Rewrite the request path internally")
        .doc(
            "`from` and `to` are as in `redirect`, but `to` must be a path. Redirects and \
             fixed responses come first. A rewritten request is neither redirected nor \
             rewritten again.",
        )
        .tables(
            "[[rewrite]]\n\
                      from = \"/v1/*\"\n\
                      to = \"/api/*\"",
            |draft| draft.rewrites.clear(),
            tables::add::<set::RewriteTable>,
        ),
    row("error_page", Rules)
        .help("Error pages for statuses that the server itself answers with")
        .doc(
            "`status` is one status (`404`), a class (`5xx`) or a range (`400-499`). The \
             narrowest match counts. The status code stays, and responses of the application \
             stay as they are. The page may contain `{status}` and `{reason}`. The server \
             reads the file at start-up; it may have up to 1M and needs an extension that \
             shows its type.",
        )
        .tables(
            "[[error_page]]\n\
                      status = 404\n\
                      file = \"404.html\"",
            |draft| draft.error_pages.clear(),
            tables::add::<set::ErrorPageTable>,
        ),
    row("bind", Listening)
        .help("Address to listen on (repeatable)")
        .daily()
        .short('b')
        .placeholder("ADDRESS")
        .default("127.0.0.1:8000")
        .doc(
            "HOST:PORT, [V6]:PORT, :PORT, PORT, unix:PATH or systemd. `:PORT` means every \
             IPv4 address, a port alone means 127.0.0.1, and port 0 means a free port. The \
             server resolves a name at start-up, to all its addresses. `systemd` means every \
             socket that the service manager has opened (LISTEN_FDS), and `systemd:NAME` \
             means those of that name (FileDescriptorName).",
        )
        .list(
            "HOST:PORT, [V6]:PORT, :PORT, PORT, unix:PATH, systemd or systemd:NAME",
            ListForm::Texts,
            |draft| draft.binds.clear(),
            set::add_bind,
        ),
    row("drivers", Listening)
        .help("I/O threads of each process")
        .placeholder("N")
        .default("auto")
        .doc(
            "Driver threads accept connections, read requests, write responses and serve \
             files. `auto` is half of the processors, divided by `processes`, from 1 to 8.",
        )
        .text("a count from 1 to 256, or `auto`", set::drivers),
    row("driver_cpus", Listening)
        .help("Processors to pin drivers to, as 0,2-3, auto or off")
        .default("off")
        .doc("`auto` takes the processors that the process may run on, in order.")
        .joined(
            "a list of processors (as `0,2-3`), `auto` or `off`",
            set::driver_cpus,
        ),
    row("accept_batch", Listening)
        .help("Connections to accept before the driver serves the others again")
        .default("32")
        .doc(
            "A driver without this bound would neglect open connections during a burst of new \
             ones.",
        )
        .count(1, 65_536, |draft, count| {
            draft.config.listen.accept_batch = count as usize;
        }),
    row("backlog", Listening)
        .help("Length of the kernel's accept queue")
        .default("4096")
        .doc(
            "The kernel limits it to net.core.somaxconn. The server reports the effective \
             value at start-up.",
        )
        .count(1, 65_535, |draft, count| {
            draft.config.listen.backlog = count as u32;
        }),
    row("defer_accept", Listening)
        .help("Time the kernel holds a connection without data; 0 is off")
        .default("0s")
        .doc("TCP_DEFER_ACCEPT, in whole seconds, rounded up.")
        .duration(NONE, HOUR, set::defer_accept),
    row("nodelay", Listening)
        .help("Set TCP_NODELAY on accepted connections")
        .default("true")
        .switch(|draft, yes| draft.config.listen.nodelay = yes),
    row("connections_max", Listening)
        .help("Maximum number of open connections of each process")
        .aliases(&["max_connections"])
        .default("10000")
        .doc(
            "At the limit the server closes idle connections first, and answers 503 to \
             connections that sent nothing within a second. The limit of open files (ulimit \
             -n) may lower it.",
        )
        .count(1, 10_000_000, |draft, count| {
            draft.config.listen.connections_max = count as usize;
        }),
    row("reuseport_steering", Listening)
        .help("Choice of the driver for a TCP connection: hash or cpu")
        .default("hash")
        .doc(
            "`hash` is the kernel's default, by the addresses of both ends. `cpu` keeps a \
             connection on the processor that receives its packets. It helps only with pinned \
             drivers (`driver_cpus`) and network cards with one queue per processor.",
        )
        .choice(&["hash", "cpu"], set::steering),
    row("accept_stall_timeout", Listening)
        .help("Time after which other drivers accept for a stalled driver")
        .default("500ms")
        .doc(
            "A driver counts as stalled if connections wait for it and it has accepted none \
             for this long.",
        )
        .duration(STALL_LEAST, HOUR, |draft, span| {
            draft.config.listen.driver_stall = span;
        }),
    row("processes", Processes)
        .help("Number of serving processes, or auto for one per processor")
        .daily()
        .short('w')
        .aliases(&["workers"])
        .placeholder("N")
        .default("1")
        .doc(
            "Each process has its own drivers, worker threads, limits and caches. The product \
             of processes and drivers may be up to 1024.",
        )
        .text("a count from 1 to 512, or `auto`", set::processes),
    row("user", Processes)
        .help("User to run as, by name or number, or off")
        .placeholder("USER")
        .default("off")
        .doc(
            "A server that root starts can listen on ports below 1024 and then drop its \
             rights. The process gets the groups of the user; `group` replaces the first one.",
        )
        .text("a user's name or number, or `off`", set::user),
    row("group", Processes)
        .help("SettingGroup to run as, by name or number, or off for the user's own")
        .placeholder("GROUP")
        .default("off")
        .text("a group's name or number, or `off`", set::group),
    row("preload", Processes)
        .help("Import the application once and fork the serving processes from it")
        .aliases(&["preload_app"])
        .default("false")
        .doc(
            "The processes share the memory of the import until they change it. The \
             application must not start threads during its import, and connections that it \
             opens there are shared by all processes. A replaced process is forked again \
             without an import; a reload imports the application again.",
        )
        .switch(|draft, yes| draft.config.processes.preload = yes),
    row("start_timeout", Processes)
        .help("Maximum time a new process may take to start, or off")
        .placeholder("DURATION")
        .default("2m")
        .doc(
            "Most of this time is the import of the application. A process that exceeds it \
             counts as failed.",
        )
        .text(
            "a duration from 1s to 24h (as `2m`), or `off`",
            set::start_timeout,
        ),
    row("heartbeat_timeout", Processes)
        .help("Time after which an unresponsive process is replaced, or off")
        .placeholder("DURATION")
        .default("30s")
        .doc(
            "The drivers answer the heartbeat and run no application code, so slow requests \
             do not trigger it.",
        )
        .text(
            "a duration from 1s to 24h (as `30s`), or `off`",
            set::heartbeat_timeout,
        ),
    row("process_requests_max", Processes)
        .help("Requests after which a process is replaced, or off")
        .aliases(&["max_requests"])
        .placeholder("N")
        .default("off")
        .doc(
            "Processes are replaced one at a time. The new process is ready before the old \
             one stops.",
        )
        .text("a count from 1, or `off`", set::process_requests_max),
    row("process_age_max", Processes)
        .help("Age at which a process is replaced, or off")
        .placeholder("DURATION")
        .default("off")
        .doc("Processes are replaced as with `process_requests_max`.")
        .text(
            "a duration from 1s to 366d (as `12h`, `7d`), or `off`",
            set::process_age_max,
        ),
    row("process_resident_max", Processes)
        .help("Resident memory at which a process is replaced, or off")
        .placeholder("SIZE")
        .default("off")
        .doc(
            "Processes are replaced as with `process_requests_max`. Shared memory counts in \
             every process.",
        )
        .text(
            "a size from 16M (as `512M`, `2G`), or `off`",
            set::process_resident_max,
        ),
    row("recycle_jitter", Processes)
        .help("Random extra, up to this percentage, on each process's recycling limits")
        .placeholder("PERCENT")
        .default("10%")
        .doc(
            "The limits are `process_requests_max`, `process_age_max` and \
             `process_resident_max`. The jitter keeps processes that started together from \
             being replaced together.",
        )
        .text("a share from 0% to 100%", set::recycle_jitter),
    row("reload", Processes)
        .help("Restart when the code or the configuration changes, for development")
        .daily()
        .default("false")
        .doc(
            "The server watches the application's modules and their folders, the \
             configuration file, and `reload_dir`. Browsers see the traceback of code that \
             fails to import.",
        )
        .switch(|draft, yes| draft.reload = yes),
    row("reload_dir", Processes)
        .help("Additional folder for `reload` to watch (repeatable)")
        .placeholder("DIR")
        .list(
            "a folder",
            ListForm::Texts,
            |draft| draft.reload_dirs.clear(),
            set::add_reload_dir,
        ),
    row("control", Processes)
        .help("Unix socket for control commands (milepost reload ...), auto or off")
        .placeholder("FILE")
        .default("auto")
        .doc(
            "`auto` is a socket in the runtime folder (`$XDG_RUNTIME_DIR/milepost`, \
             `/run/milepost` for root, or `/tmp/milepost-UID`), named after the configuration \
             file. Only root, the server's user and the user that started it may use it. With \
             `off` the server obeys signals only.",
        )
        .named(&["auto", "off"], "a file, `auto` or `off`", set::control),
    row("pid_file", Processes)
        .help("File for the process id of the running server, or off")
        .aliases(&["pid"])
        .placeholder("FILE")
        .default("off")
        .doc(
            "The id is the supervisor's, which handles signals and commands. The server \
             writes the file after it has opened its addresses. A file with the id of another \
             running server is an error.",
        )
        .text("a file, or `off`", set::pid_file),
    row("threads", Pool)
        .help("Worker threads that run the application, as MIN:MAX or one number")
        .daily()
        .default("4:4")
        .doc(
            "The pool grows and shrinks between MIN and MAX by the time that requests wait \
             for a thread. This setting and those up to `request_timeout` apply to the pool \
             `default`, and to other pools unless their tables say otherwise.",
        )
        .range(4096, |draft, min, max| {
            draft.config.pools[0].threads_min = min as usize;
            draft.config.pools[0].threads_max = max as usize;
        }),
    row("queue_len_max", Pool)
        .help("Maximum number of requests in the queue before clients get 503")
        .default("1024")
        .count(1, 1_000_000, |draft, count| {
            draft.config.pools[0].queue_len_max = count as usize;
        }),
    row("queue_target", Pool)
        .help("Queue time that the pool aims for; longer waits make it grow")
        .default("5ms")
        .doc(
            "The pool grows if more than 5 of 100 requests wait longer. The pool counts as \
             overloaded if all threads are busy and every request of half a second waited \
             longer.",
        )
        .duration(WAIT_LEAST, HOUR, |draft, span| {
            draft.config.pools[0].queue_target = span;
        }),
    row("queue_timeout", Pool)
        .help("Maximum time in the queue before the client gets 503")
        .daily()
        .default("30s")
        .duration(MS, HOUR, |draft, span| {
            draft.config.pools[0].queue_timeout = span;
        }),
    row("overload_timeout", Pool)
        .help("Maximum time in the queue of an overloaded pool before the client gets 503")
        .default("10s")
        .doc(
            "Twice the `queue_target` keeps all waits short if clients or a proxy retry. The \
             value may not exceed `queue_timeout`, and follows it if only `queue_timeout` is \
             set.",
        )
        .duration(MS, HOUR, |draft, span| {
            draft.config.pools[0].overload_timeout = span;
        }),
    row("health_reserve", Pool)
        .help("Threads, and places in the queue, reserved for health checks")
        .placeholder("THREADS[:PLACES]")
        .default("0")
        .doc(
            "One number stands for both. A `[[pool_rule]]` with `class = \"health\"` says \
             which requests are health checks. Other pools keep the same reserve if a rule \
             sends health checks to them.",
        )
        .text(set::RESERVE, set::health_reserve),
    row("request_timeout", Pool)
        .help("Maximum time the application may spend on a request before a 504, or off")
        .daily()
        .placeholder("DURATION")
        .default("off")
        .text(
            "a duration from 1ms to 24h (as `30s`, `2m`), or `off`",
            set::request_timeout,
        ),
    row("pool", Pool)
        .help("Additional pool of worker threads")
        .doc(
            "`name` is required. Other keys override the settings of the same name for this \
             pool: `threads`, `queue_len_max`, `queue_target`, `queue_timeout`, \
             `overload_timeout`, `health_reserve` and `request_timeout`. `[[pool_rule]]` \
             tables choose its requests.",
        )
        .tables(
            "[[pool]]\n\
                      name = \"reports\"\n\
                      threads = \"1:8\"",
            |draft| draft.pools.clear(),
            tables::add::<set::PoolTable>,
        ),
    row("pool_rule", Pool)
        .help("Rule that sends requests to a pool or changes their priority")
        .doc(
            "`pool` is required. A request matches if all conditions match: `path` (a path, \
             or a glob: `*` matches within a segment, `/reports/**` matches everything \
             below), `method`, `host` (`*.` matches all subdomains), `header` (a name, or \
             `name: value`) and `from` (addresses or networks). `class` is `health`, `high`, \
             `normal` or `low`. If several rules match, the most specific one counts: first \
             by path, exact paths before globs, then by the longer text before the first \
             wildcard, then by host, header, network and method; among equals the first one \
             counts. Paths are compared as sent, or as rewritten. Requests that match no rule \
             go to `default`.",
        )
        .tables(
            "[[pool_rule]]\n\
                      pool = \"reports\"\n\
                      path = \"/reports/**\"",
            |draft| draft.pool_rules.clear(),
            tables::add::<set::PoolRuleTable>,
        ),
    row("slow_pool", Pool)
        .help("Pool for routes that have become slow, or off")
        .placeholder("NAME")
        .default("off")
        .doc(
            "A route is a method and a path; digits, hex numbers and UUIDs in the path do not \
             matter. Requests of a route move to this pool if the median of its last 16 runs \
             exceeds `slow_after`, and return if the median is below half of it. The error \
             log reports both.",
        )
        .text("a pool's name, or `off`", set::slow_pool),
    row("slow_after", Pool)
        .help("Median run time at which a route moves to `slow_pool`")
        .default("1s")
        .duration(MS, HOUR, |draft, span| draft.slow_after = span),
    row("slow_request", Pool)
        .help("Run time after which a request's stack goes to the error log, or off")
        .placeholder("DURATION")
        .default("off")
        .text(
            "a duration from 1ms to 24h (as `5s`), or `off`",
            set::slow_request,
        ),
    row("request_start_from", Pool)
        .help("Proxies whose X-Request-Start counts as queue time (repeatable)")
        .placeholder("ADDRESS[/BITS]")
        .doc(
            "The value is an address or a network, such as `10.0.0.0/8`. Clients on unix \
             sockets are trusted.",
        )
        .list(
            "an address or a network in digits (as `127.0.0.1`, `10.0.0.0/8`, `fd00::/8`)",
            ListForm::Texts,
            |draft| draft.config.request_start_from.clear(),
            set::add_request_start_from,
        ),
    row("body_bytes_max", Limits)
        .help("Maximum size of a request body before the client gets 413")
        .daily()
        .default("256M")
        .size(0, u64::MAX, |draft, bytes| {
            draft.config.limits.body_bytes_max = bytes;
        }),
    row("head_bytes_max", Limits)
        .help("Maximum size of a request head before the client gets 431")
        .default("32K")
        .size(256, HEAD_BYTES_MOST, |draft, bytes| {
            draft.config.limits.head_bytes_max = bytes as usize;
        }),
    row("target_bytes_max", Limits)
        .help("Maximum length of a path with its query before the client gets 414")
        .aliases(&["limit_request_line"])
        .default("8K")
        .size(64, HEAD_BYTES_MOST, |draft, bytes| {
            draft.config.limits.target_bytes_max = bytes as usize;
        }),
    row("header_bytes_max", Limits)
        .help("Maximum size of one header field before the client gets 431")
        .aliases(&["limit_request_field_size"])
        .default("16K")
        .size(64, HEAD_BYTES_MOST, |draft, bytes| {
            draft.config.limits.header_bytes_max = bytes as usize;
        }),
    row("headers_len_max", Limits)
        .help("Maximum number of header fields before the client gets 431")
        .aliases(&["limit_request_fields"])
        .default("100")
        .count(1, 32_768, |draft, count| {
            draft.config.limits.headers_len_max = count as usize;
        }),
    row("chunk_line_bytes_max", Limits)
        .help("Maximum length of a chunk's size line, with extensions")
        .default("256")
        .size(18, 64 * K, |draft, bytes| {
            draft.config.limits.chunk_line_bytes_max = bytes as usize;
        }),
    row("trailer_bytes_max", Limits)
        .help("Maximum size of the trailer fields after a chunked body")
        .default("8K")
        .size(2, M, |draft, bytes| {
            draft.config.limits.trailer_bytes_max = bytes as usize;
        }),
    row("head_timeout", Timeouts)
        .help("Maximum time a client may take to send a request head")
        .default("30s")
        .doc(
            "The time counts from the first byte, and for the first request of a connection \
             from its accept. Further bytes do not extend it. The client gets 408.",
        )
        .duration(MS, DAY, |draft, span| draft.config.timeouts.head = span),
    row("body_timeout", Timeouts)
        .help("Maximum time a request body may lag behind `body_rate_min`")
        .aliases(&["body_grace"])
        .default("30s")
        .doc(
            "The value is also the longest pause. A body that keeps the rate may take any \
             time. A body that stops gets 408 after this time, and a body at half the rate \
             after twice this time.",
        )
        .duration(MS, DAY, |draft, span| draft.config.timeouts.body = span),
    row("body_rate_min", Timeouts)
        .help("Minimum rate of a request body, in bytes a second; 0 allows any")
        .default("256")
        .doc("With 0 only pauses count: every byte restarts `body_timeout`.")
        .per_second(G, |draft, bytes| {
            draft.config.timeouts.body_rate_min = bytes;
        }),
    row("idle_timeout", Timeouts)
        .help("Time after which an idle keep-alive connection is closed")
        .aliases(&["keep_alive", "timeout_keep_alive"])
        .default("60s")
        .doc(
            "The time is shorter if more than half of `connections_max` are open, down to a \
             second at 15/16 of it. At the limit the server closes the connections that have \
             been idle longest.",
        )
        .duration(MS, DAY, |draft, span| draft.config.timeouts.idle = span),
    row("send_timeout", Timeouts)
        .help("Maximum time a response may lag behind `send_rate_min`")
        .default("30s")
        .doc(
            "The value is also the longest pause, counted by the bytes that the client \
             acknowledges. The server cuts a response that stops after this time, and a \
             response at half the rate after twice this time. Waits for the application or \
             for a bandwidth limit do not count.",
        )
        .duration(MS, DAY, |draft, span| draft.config.timeouts.send = span),
    row("send_rate_min", Timeouts)
        .help("Minimum rate at which clients take responses, bytes a second; 0 allows any")
        .default("256")
        .doc("With 0 only pauses count: every byte restarts `send_timeout`.")
        .per_second(G, |draft, bytes| {
            draft.config.timeouts.send_rate_min = bytes;
        }),
    row("linger_timeout", Timeouts)
        .help("Time the server reads and drops the rest of a refused body")
        .default("2s")
        .doc("The client can then read the response instead of a connection reset.")
        .duration(NONE, HOUR, |draft, span| {
            draft.config.timeouts.linger = span;
        }),
    row("drain_timeout", Timeouts)
        .help("Time a process may take to finish requests after SIGTERM or a replacement")
        .daily()
        .aliases(&["graceful_timeout"])
        .default("30s")
        .doc(
            "The server answers requests that it has already received, and counts the cut \
             ones in one log line.",
        )
        .duration(NONE, DAY, |draft, span| draft.config.timeouts.drain = span),
    row("client_connections_max", Sharing)
        .help("Maximum number of open connections of one client before a 429, or off")
        .placeholder("N")
        .default("off")
        .doc(
            "The address identifies a client (`client_prefix_v4`, `client_prefix_v6`), so all \
             clients behind a proxy are one. Connections on unix sockets do not count. Each \
             process counts for itself.",
        )
        .text(
            "a count from 1 to 10000000, or `off`",
            set::client_connections_max,
        ),
    row("client_prefix_v4", Sharing)
        .help("Leading bits of an IPv4 address that identify a client")
        .placeholder("BITS")
        .default("32")
        .count(0, 32, |draft, count| {
            draft.config.listen.client_prefix_v4 = count as u8;
        }),
    row("client_prefix_v6", Sharing)
        .help("Leading bits of an IPv6 address that identify a client")
        .placeholder("BITS")
        .default("64")
        .doc("The owner of one IPv6 address usually owns all of its /64.")
        .count(0, 128, |draft, count| {
            draft.config.listen.client_prefix_v6 = count as u8;
        }),
    row("rate_connection", Sharing)
        .help("Bandwidth limit of each connection, in bytes a second, or off")
        .placeholder("RATE")
        .doc(
            "There is no limit by default. The first of `rate_connection`, `rate_route` and \
             `rate_pool` that is set counts alone, also if it is `off`.",
        )
        .text(set::RATE, set::rate_connection),
    row("rate_route", Sharing)
        .help("Bandwidth limit of all responses of one route")
        .doc(
            "Each process counts for itself. `url` is the URL of a `static`, or `/` for the \
             application. `rate` is in bytes a second, or `off`.",
        )
        .tables(
            "[[rate_route]]\n\
                      url = \"/static\"\n\
                      rate = \"10M\"",
            |draft| draft.rate_routes.clear(),
            tables::add::<set::RouteRateTable>,
        ),
    row("rate_pool", Sharing)
        .help("Bandwidth limit of all responses of the application, or off")
        .placeholder("RATE")
        .doc(
            "There is no limit by default. Each process counts for itself. `rate_route` \
             limits files.",
        )
        .text(set::RATE, set::rate_pool),
    row("body_memory_max", Bodies)
        .help("Largest request body to keep in memory; larger ones go to a file")
        .default("64K")
        .size(0, G, |draft, bytes| {
            draft.config.spool.body_memory_bytes = bytes as usize;
        }),
    row("spoolers", Bodies)
        .help("Threads that write request bodies and waiting responses to files")
        .default("1")
        .count(1, 64, |draft, count| {
            draft.config.spool.spoolers = count as usize;
        }),
    row("spool_dir", Bodies)
        .help("Folder of temporary files (default: the system's)")
        .placeholder("DIR")
        .doc(
            "The default is TMPDIR, or /tmp. A file system in memory would defeat the \
             purpose.",
        )
        .text("a folder", |draft, text| {
            set::folder(text).map(|dir| draft.config.spool.dir = dir)
        }),
    row("reply_spool_bytes_max", Bodies)
        .help("Unsent bytes of a streamed response at which its worker waits for the client")
        .aliases(&["reply_spool_max"])
        .default("1G")
        .doc(
            "Only a stream that the application is still producing can wait. A response that \
             the application has handed over as a whole never blocks its worker.",
        )
        .size(0, u64::MAX, |draft, bytes| {
            draft.config.delivery.reply_spool_bytes_max = bytes;
        }),
    row("stream_wait_timeout", Bodies)
        .help("Maximum time a worker waits for the client of a streamed response")
        .placeholder("TIME")
        .default("60s")
        .doc(
            "The server cuts, counts and logs a stream that exceeds `reply_spool_bytes_max` \
             for longer.",
        )
        .duration(NONE, DAY, |draft, span| {
            draft.config.delivery.stream_wait_timeout = span;
        }),
    row("reply_memory_max", Bodies)
        .help("Memory for all responses that wait for slow clients")
        .default("256M")
        .doc(
            "Above half of it, the responses that have made no progress for longest move to \
             temporary files in `spool_dir`. Above all of it, if the disk is too slow, the \
             server cuts such responses. A buffer that several responses share counts once.",
        )
        .size(M, 1024 * G, |draft, bytes| {
            draft.config.delivery.replies_memory_bytes_max = bytes as usize;
        }),
    row("compress", Compression)
        .help("Compress the application's responses: br, zstd, gzip, best first, or off")
        .daily()
        .default("off")
        .doc(
            "The order decides if a client accepts several equally. The server compresses a \
             stream piece by piece and delays none of it. Responses with a Content-Encoding, \
             with `no-transform` and partial ones (206) stay as they are.",
        )
        .joined(
            "some of `br`, `zstd`, `gzip`, the preferred first, or `off`",
            set::compress,
        ),
    row("compress_size_min", Compression)
        .help("Smallest response to compress, if its length is known")
        .default("1K")
        .size(0, G, |draft, bytes| {
            draft.config.compression.bytes_min = bytes as usize;
        }),
    row("compress_level_br", Compression)
        .help("Compression level of br, from 0 (fastest) to 11 (smallest)")
        .placeholder("LEVEL")
        .default("4")
        .count(0, 11, |draft, count| {
            draft.config.compression.brotli_level = count as u32;
        }),
    row("compress_level_zstd", Compression)
        .help("Compression level of zstd, from 1 (fastest) to 19 (smallest)")
        .placeholder("LEVEL")
        .default("3")
        .count(1, 19, |draft, count| {
            draft.config.compression.zstd_level = count as i32;
        }),
    row("compress_level_gzip", Compression)
        .help("Compression level of gzip, from 1 (fastest) to 9 (smallest)")
        .placeholder("LEVEL")
        .default("6")
        .count(1, 9, |draft, count| {
            draft.config.compression.gzip_level = count as u32;
        }),
    row("compress_types", Compression)
        .help("Media types to compress")
        .default(
            "text/*, application/json, application/ld+json, \
             application/manifest+json, application/problem+json, \
             application/javascript, application/xml, application/xhtml+xml, \
             application/rss+xml, application/atom+xml, application/wasm, \
             image/svg+xml",
        )
        .doc("`text/*` stands for all types that begin with `text/`.")
        .joined(
            "media types (as `text/*,application/json`)",
            set::compress_types,
        ),
    row("access_log", Log)
        .help("Access log: a file, -, stderr, syslog or off (repeatable)")
        .daily()
        .aliases(&["access_logfile"])
        .placeholder("TARGET")
        .default("off")
        .doc(
            "`-` is standard output, `syslog:FACILITY` names a facility. In TOML a log may \
             also be a table with `to`, `format` (as `access_log_format`) and filters: \
             `route` (`app`, `status`, `rules`, `none`, or the URL of a folder), `status` \
             (`404`, `5xx`, `400-499`, `none` for no response) and `slower` (a duration). A \
             request is logged if it passes all filters.",
        )
        .list(
            set::LOG,
            ListForm::Tables {
                example: set::ACCESS_LOG_TABLE,
                add: tables::add::<set::AccessLogTable>,
            },
            |draft| draft.access_logs.clear(),
            set::add_access_log,
        ),
    row("access_log_format", Log)
        .help("Format of access-log lines: a name, or a text with {field}s")
        .placeholder("FORM")
        .default("phases")
        .doc(
            "`phases` is the combined format with the phases. `naviserver` is the combined \
             format with NaviServer's partial times. A text is a template, such as \
             `{time_iso} {peer} \"{request}\" {status} {total}`. A log's own `format` \
             overrides it.",
        )
        .named(set::FORM_NAMES, set::FORM, set::log_form),
    row("error_log", Log)
        .help("Error log: a file, -, stderr, syslog or off (repeatable)")
        .daily()
        .aliases(&["error_logfile"])
        .placeholder("TARGET")
        .default("stderr")
        .doc(
            "In TOML a log may also be a table with `to` and either `level` (`error`, \
             `warning` or `info`: this level and worse) or `only` (this level alone).",
        )
        .list(
            set::LOG,
            ListForm::Tables {
                example: set::ERROR_LOG_TABLE,
                add: tables::add::<set::ErrorLogTable>,
            },
            |draft| draft.error_logs.clear(),
            set::add_error_log,
        ),
    row("log_buffer", Log)
        .help("Memory of each process for log lines that wait to be written")
        .default("64M")
        .size(64 * K, 64 * G, |draft, bytes| {
            draft.config.logs.buffer_bytes_max = bytes as usize;
        }),
    row("log_overflow", Log)
        .help("What happens if `log_buffer` is full: drop lines or wait")
        .default("drop")
        .doc(
            "Dropped lines are counted. With `wait` no line is lost, but requests wait for \
             the log.",
        )
        .choice(&["drop", "wait"], set::log_overflow),
    row("log_flush", Log)
        .help("Maximum time a log line waits to be written")
        .default("1s")
        .duration(MS, HOUR, |draft, span| draft.config.logs.flush = span),
    row("log_mask_v4", Log)
        .help("Leading bits of client IPv4 addresses to log; the others become 0")
        .placeholder("BITS")
        .default("32")
        .doc("24 logs 192.0.2.77 as 192.0.2.0.")
        .count(0, 32, |draft, count| {
            draft.config.logs.privacy.prefix_v4 = count as u8;
        }),
    row("log_mask_v6", Log)
        .help("Leading bits of client IPv6 addresses to log; the others become 0")
        .placeholder("BITS")
        .default("128")
        .doc("48 logs 2001:db8:1234:5678::1 as 2001:db8:1234::.")
        .count(0, 128, |draft, count| {
            draft.config.logs.privacy.prefix_v6 = count as u8;
        }),
    row("log_query", Log)
        .help("Log the query (`?name=value`) of targets and referers")
        .default("true")
        .switch(|draft, yes| draft.config.logs.privacy.query = yes),
    row("log_rotate_size", Log)
        .help("Size at which a log file is renamed and a new one begins, or off")
        .placeholder("SIZE")
        .default("off")
        .doc(
            "The name of the old file gets the time in UTC, such as \
             `access.log.20261121T120739Z`.",
        )
        .text("a size from 4K (as `100M`), or `off`", set::log_rotate_size),
    row("log_rotate_every", Log)
        .help("Interval at which log files are renamed and new ones begin, or off")
        .placeholder("DURATION")
        .default("off")
        .doc(
            "Intervals count from 1970 in UTC: `1h` is on the hour, `1d` is at midnight. \
             Together with `log_rotate_size`, the earlier of both counts.",
        )
        .text(
            "a duration from 1s to 366d (as `1h`, `1d`), or `off`",
            set::log_rotate_every,
        ),
    row("log_keep", Log)
        .help("Number of old files to keep of each log, or off for all")
        .placeholder("N")
        .default("off")
        .doc(
            "The server deletes the oldest files first, and only files that it has named \
             itself.",
        )
        .text("a count from 1 to 1000000, or `off`", set::log_keep),
    row("log_keep_age", Log)
        .help("Age at which old log files are deleted, or off")
        .placeholder("DURATION")
        .default("off")
        .text(
            "a duration from 1s to 366d (as `14d`), or `off`",
            set::log_keep_age,
        ),
    row("log_compress", Log)
        .help("Compression of old log files: gzip or off")
        .placeholder("CODING")
        .default("off")
        .choice(set::COMPRESSIONS, set::log_compress),
    row("request_id_header", Log)
        .help("Header for the request id, such as X-Request-Id, or off")
        .placeholder("NAME")
        .default("off")
        .doc(
            "The server takes the id from clients in `request_id_trust` and on unix sockets, \
             makes one for all others, and repeats it in the response. With `off` ids appear \
             only in logs and in the application's environment.",
        )
        .text(
            "a header's name (as `X-Request-Id`), or `off`",
            set::request_id_header,
        ),
    row("request_id_trust", Log)
        .help("Proxies whose `request_id_header` is trusted (repeatable)")
        .placeholder("ADDRESS[/BITS]")
        .doc("The value is an address or a network, such as `10.0.0.0/8`.")
        .list(
            "an address or a network in digits (as `127.0.0.1`, `10.0.0.0/8`, `fd00::/8`)",
            ListForm::Texts,
            |draft| draft.config.request_ids.trust.clear(),
            set::add_trust,
        ),
    row("server_header", Replies)
        .help("Server header of responses that have none, or off")
        .default("milepost")
        .text("printable ASCII, or `off`", set::server_header),
    row("server_timing", Replies)
        .help("Add a Server-Timing header with the request's phases")
        .default("false")
        .switch(|draft, yes| draft.config.headers.server_timing = yes),
    row("status_path", Replies)
        .help("URL path of the server's counters as JSON, or off")
        .placeholder("PATH")
        .default("off")
        .doc("Every client that can reach the server can read it.")
        .text("a URL path (as `/status`), or `off`", set::status_path),
];
