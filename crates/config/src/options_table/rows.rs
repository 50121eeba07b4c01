//! The rows of the table, by topic: a uniform table, and the only place where a setting is described.
//!
//! To add a setting, add its field to `typed`, its row here, and run `make docs`; everything else follows.

use telemetry::Nanos;

use super::macros::{BLANK, comment, kind, settings};
use super::table_keys;
use super::{
    DAY, G, HOUR, K, ListForm, M, MS, NO_BOUND, SECOND, Setting, SettingGroup, SettingKind,
    TextForm, WAIT_LEAST, YEAR,
};
use crate::builder::{KeyedTable, Placed};
use crate::parse;
use crate::parse::asgi::CONCURRENCY;
use crate::parse::clients::{RATE, RouteRateTable};
use crate::parse::files::FallbackTable;
use crate::parse::logs::{
    ACCESS_LOG, ACCESS_LOG_TABLE, AccessLogTable, ERROR_LOG, ERROR_LOG_TABLE, ErrorLogTable, FORM,
    FORM_NAMES,
};
use crate::parse::pools::{PoolRuleTable, PoolTable, RESERVE, THREADS};
use crate::parse::proxies::{FORWARDED_HEADERS, GROUPS, PEERS};
use crate::parse::routes;
use crate::parse::rules::ErrorPageTable;
use crate::parse::tls::{self, TlsTable};
use crate::parse::traces::TRACES;
use crate::parse::upstreams::{self, PROXY, UPSTREAM_TABLE};
use crate::parse::value::Unit;
use crate::tables;
use crate::typed::{
    CacheRule, ClientDemand, ErrorLogForm, EventLoopKind, FixedReply, HttpSpec, Interface, Level,
    LifespanMode, LoadReports, LogOverflow, PROCESSES_MAX, RedirectConfig, Rewrite, Steering,
    TraceParents, UnknownName,
};

const NONE: u64 = 0;
/// The kernel keeps a connection waiting for less than this in good health, too.
const STALL_LEAST: u64 = 50 * MS;
/// Offsets in a head have 32 bits; far below that a head is an attack.
const HEAD_BYTES_MOST: u64 = 16 * M;

const ADDRESS: &str = "HOST:PORT, [V6]:PORT, :PORT, PORT, unix:PATH, systemd or systemd:NAME";
const CODINGS: &str = "some of `br`, `zstd`, `gzip`, the preferred first, or `off`";
const OWN_PATH: &str = "a URL path (as `/status`), or `off`";
pub(crate) const COMPRESS_TYPES: &str = "text/*, application/json, application/ld+json, application/manifest+json, application/problem+json, \
    application/javascript, application/xml, application/xhtml+xml, application/rss+xml, \
    application/atom+xml, application/wasm, image/svg+xml";

settings! {
    /// Python application to serve, as MODULE:ATTRIBUTE
    /// Without an attribute, the server tries `application` and then `app`. `module:create()` calls a factory.
    /// The attribute may contain dots.
    app in Application { placeholder: "APP", is_daily: true }
        = text("MODULE:ATTRIBUTE (as `shop.wsgi:app`)", parse::app) => app;
    /// Configuration file in TOML
    /// Its keys are the flags' names with underscores. Environment variables override the file, and flags
    /// override both. Relative paths in the file start at the working folder.
    config in Application { short: Some('c'), placeholder: "FILE", is_daily: true } = unread("a file");
    /// Working folder of the server
    /// The server changes to it before it reads anything else. All relative paths, except the path of the
    /// configuration file, start there.
    chdir in Application { placeholder: "DIR" }
        = text("a folder", |text| parse::folder(text).map(Some)) => chdir;
    /// Folder to put first on sys.path
    app_dir in Application { placeholder: "DIR", default: ".", is_daily: true }
        = text("a folder", parse::folder) => app_dir;
    /// Call APP without arguments to make the application
    factory in Application { default: "false" } = switch() => factory;
    /// URL prefix of the application (SCRIPT_NAME)
    /// The prefix moves from the front of PATH_INFO to SCRIPT_NAME. Paths without the prefix stay as they are.
    root_path in Application { aliases: &["url_path_prefix"], placeholder: "PATH" }
        = text("a URL path (as `/shop`)", parse::root_path) => root_path;
    /// Environment variable of the application, as NAME=VALUE (repeatable)
    /// The server sets the variables before it imports the application. In TOML the setting may also be a table:
    /// `[env]` with `NAME = "value"`.
    env in Application { short: Some('e'), aliases: &["raw_env"], placeholder: "NAME=VALUE" }
        = list("NAME=VALUE", ListForm::Pairs, parse::env) => env;
    /// Pass TRACE requests to the application instead of answering 405
    /// A TRACE response repeats the request with its cookies and credentials, so scripts and logs can see them.
    /// Files and the server's own pages always answer 405.
    trace_requests in Application { default: "false" } = switch() => config.trace_requests;

    /// Route that sends requests to an application, an upstream or a folder of files
    /// Routes with a `host` are looked at first. Then the longest `path` counts, of routes and of `static` folders, then
    /// `header`, `from` and `methods`. The setting `app` gets all other requests. Applications and upstreams get the whole
    /// path. All ASGI applications of a process share one event loop.
    route in Application { table_keys: table_keys::ROUTE }
        = read_tables("[[route]]\npath = \"/ws\"\napp = \"chat:app\"", routes::route) => routes;
    /// Interface of the application
    /// `auto` finds out: an asynchronous callable is ASGI, any other callable is WSGI. ASGI runs on an event loop, WSGI
    /// on worker threads. `asgi2` is the old form of ASGI, a callable that returns a callable, which is never found.
    interface in Asgi { default: "auto", is_daily: true } = choice(
        ["auto", "asgi", "asgi2", "wsgi"],
        [Interface::Auto, Interface::Asgi, Interface::Asgi2, Interface::Wsgi]
    ) => interface;
    /// Event loop of an ASGI application
    /// `auto` is uvloop where it is installed, and asyncio otherwise.
    loop in Asgi { aliases: &["asgi_loop"], default: "auto" } = choice(
        ["auto", "asyncio", "uvloop"],
        [EventLoopKind::Auto, EventLoopKind::Asyncio, EventLoopKind::Uvloop]
    ) => config.asgi.event_loop;
    /// Requests inside the ASGI applications of a process, MIN:MAX or one number
    /// Beyond MIN, requests begin only while the event loop keeps up: while what is ready waits for less than 20 ms, and
    /// the loop uses less than 95 % of a processor. More requests wait in the queue of their pool, where `queue_timeout`
    /// and priorities apply. Those with the class `health` always begin. A request counts until its task ends.
    asgi_concurrency in Asgi { placeholder: "MIN:MAX", default: "100:1000" }
        = text(CONCURRENCY, parse::concurrency) => config.asgi.concurrency;
    /// Receive request bodies whole before the ASGI application begins
    /// Otherwise the application begins at once with bodies that are chunked or larger than 64 KB, and takes them while
    /// they arrive: a slow client occupies one of the `asgi_concurrency` places.
    request_buffering in Asgi { default: "false" } = switch() => config.asgi.buffers_requests;
    /// Lifespan events of the ASGI application
    /// `auto` sends them and serves without them if the application raises an error before it asks for the first
    /// one. `on` treats that as a failed start. `off` sends none.
    lifespan in Asgi { aliases: &["asgi_lifespan"], default: "auto" } = choice(
        ["auto", "on", "off"],
        [LifespanMode::Auto, LifespanMode::On, LifespanMode::Off]
    ) => config.asgi.lifespan;
    /// Maximum time the startup of the ASGI application may take
    lifespan_timeout in Asgi { default: "30s" } = duration(MS, HOUR) => config.asgi.lifespan_timeout;
    /// Version of the ASGI specification for HTTP
    /// It differs in `send()` to a client that has gone: with 2.3 it does nothing, with 2.5 it raises an `OSError`.
    asgi_http_spec in Asgi { default: "2.3" }
        = choice(["2.3", "2.5"], [HttpSpec::V2_3, HttpSpec::V2_5]) => config.asgi.http_spec;
    /// Time until the task of a request whose client has gone is cancelled, or off
    /// The application hears of it by `receive()` at once, and with `off` in no other way. A client that ends only its own
    /// side of the connection counts as gone, as with nginx and uvicorn; after this time it gets no response. A `[[route]]`
    /// or a `[[pool]]` may have another time for its requests; that of the route counts first. WebSocket connections are not concerned, nor is work behind a complete
    /// response.
    disconnect_cancel in Asgi { placeholder: "DURATION", default: "off" }
        = text("a duration from 1ms to 24h (as `3s`), or `off`", parse::run_time) => pool.disconnect_cancel;
    /// Time that a request may block the event loop before it is logged, or off
    /// The error log names the request and the innermost line of the application, and again after 1 s and 10 s.
    slow_step in Asgi { placeholder: "DURATION", default: "100ms" }
        = text("a duration from 1ms to 24h (as `250ms`), or `off`", parse::run_time) => config.asgi.slow_step;
    /// Maximum number of open WebSocket connections of each process, or off
    /// Handshakes under way count. Beyond it a handshake gets 503, before the application runs. A connection counts
    /// until it is closed. `connections_max` bounds those over HTTP/1.1 as well; over HTTP/2 one connection may carry many.
    ws_max in Asgi { placeholder: "N", default: "10000" }
        = text("a count from 1 to 10000000, or `off`", parse::count_or_off)
        => config.asgi.websocket.open_max;
    /// Maximum size of a message of a WebSocket client
    /// A compressed message counts with its size after decompression. A larger one closes the connection with code
    /// 1009.
    ws_max_size in Asgi { aliases: &["websocket_max_message_size"], default: "16M" }
        = size(1, G) => config.asgi.websocket.message_bytes_max;
    /// Time without a message after which a WebSocket client gets a ping, or off
    ws_ping_interval in Asgi { aliases: &["websocket_ping_interval"], placeholder: "DURATION", default: "20s" }
        = text("a duration from 1ms to 24h (as `20s`), or `off`", parse::run_time)
        => config.asgi.websocket.ping_interval;
    /// Time a WebSocket client has to answer a ping
    /// A client that sends nothing within that time is closed with code 1011.
    ws_ping_timeout in Asgi { default: "20s" } = duration(MS, HOUR) => config.asgi.websocket.ping_timeout;
    /// Compress messages for WebSocket clients that support it
    /// Messages of less than 128 bytes are never compressed.
    ws_per_message_deflate in Asgi { default: "true" } = switch() => config.asgi.websocket.is_deflated;
    /// Time over which a process that ends closes its WebSocket connections
    /// The close frames are spread evenly over that time, so that not all clients reconnect at once. Their code is
    /// 1012 where another process takes over, and 1001 where the server ends. At most 9/10 of `drain_timeout`.
    ws_drain in Asgi { default: "30s" } = duration(NONE, HOUR) => config.asgi.websocket.drain;
    /// Time the application has to end behind the end of its WebSocket connection
    /// Its task is cancelled then.
    ws_close_timeout in Asgi { default: "10s" } = duration(MS, HOUR) => config.asgi.websocket.close_timeout;

    /// Folder of files to serve under a URL (repeatable)
    /// The longest matching URL wins. Requests that match no folder go to the application. In TOML the setting
    /// may also be a table: `[static]` with `"/url" = "dir"`.
    static in Files { placeholder: "/URL=DIR", is_daily: true }
        = list("/URL=DIR (as `/static=./static`)", ListForm::Pairs, parse::mount) => statics;
    /// File to serve for a folder's own URL
    static_index in Files { placeholder: "NAME", default: "index.html" }
        = text("a file's name without a slash", parse::file_name) => static_index;
    /// File to serve, with 200, for paths of a folder that has no such file
    /// A single-page application needs it: every path shows the same page. `url` is the URL of a `static`, and
    /// `file` is a path beneath its folder.
    static_fallback in Files {}
        = tables("[[static_fallback]]\nurl = \"/\"\nfile = \"index.html\"", FallbackTable) => fallbacks;
    /// Precompressed copies of files to look for, best first, or off
    /// The server answers `app.css` with `app.css.br`, `.zst` or `.gz` if the copy exists and the client accepts
    /// it.
    static_encodings in Files { default: "br,zstd,gzip" }
        = joined(CODINGS, parse::codings) => config.file_serving.encodings;
    /// List the files of folders that have no index file
    static_listing in Files { default: "false" } = switch() => config.file_serving.listing;
    /// Cache-Control header of files, by path
    /// `path` is a glob over the decoded path: `*` matches within a folder, `**` matches across folders,
    /// `{css,js}` matches either. A glob without a slash at its beginning matches in every folder. The first
    /// matching table counts.
    cache_control in Files {}
        = tables("[[cache_control]]\npath = \"/static/**\"\nvalue = \"max-age=3600\"", CacheRule) => cache_rules;
    /// Memory of each driver for small files
    file_cache_bytes_max in Files { default: "64M" } = size(0, 1024 * G) => config.file_cache.bytes_max;
    /// Largest file to keep in memory
    file_cache_entry_bytes_max in Files { default: "64K" } = size(0, G) => config.file_cache.entry_bytes_max;
    /// Time after which the server checks a cached file for changes
    file_cache_revalidate in Files { default: "1s" } = duration(NONE, DAY) => config.file_cache.revalidate;
    /// Maximum age of a cached file that is served while its check runs
    /// The age counts from the last finished check. The setting matters on slow storage such as network file
    /// systems, because a check of a local file takes no time. With 0 every request waits for the check.
    file_cache_stale_max in Files { default: "10s" } = duration(NONE, DAY) => config.file_cache.stale_max;
    /// Threads that send large files; 0 lets drivers send them
    /// These threads wait for slow storage, so that drivers do not have to.
    writers in Files { default: "1" } = count(0, 64) => config.file_serving.writers;
    /// Smallest file to send from disk; smaller files are read as a whole
    /// Files in the cache (`file_cache_entry_bytes_max`) are always sent from memory.
    writer_size in Files { default: "64K" } = size(0, 64 * M) => config.file_serving.writer_bytes_min;
    /// Threads that find, open and read files; 0 lets drivers do so
    /// A cached file that was checked recently needs none of them.
    openers in Files { default: "4" } = count(0, 64) => config.file_serving.openers;

    /// Server to pass requests on to, as PATH=URL or URL (repeatable)
    /// `/api=http://127.0.0.1:9000` passes on `/api` and everything below it, with its whole path; a URL alone takes all
    /// requests. Several servers stand between commas. A URL is `http://`, `https://` or `unix:` with the path of a
    /// socket. In the environment, entries stand between spaces. In TOML the setting may also be a table, `[proxy]`
    /// with `"/api" = ["http://..."]`. The upstream is called `proxy`, or `proxy-api` for `/api`. `[[upstream]]` and
    /// `[[route]]` say the same, and more.
    proxy in Upstreams { placeholder: "[PATH=]URL", is_daily: true } = list(PROXY, ListForm::Lists, parse::proxy) => proxies;
    /// Group of servers that routes pass requests on to
    /// An upstream has a queue of its name, in which requests wait for a server, as they wait for a thread in that of a
    /// pool. `[[pool_rule]]` may set the priority of its requests.
    upstream in Upstreams { table_keys: table_keys::UPSTREAM } = read_tables(UPSTREAM_TABLE, upstreams::upstream) => upstreams;

    /// Redirect requests to another path or site
    /// `from` is a path, or `/old/*` for all paths below `/old/`. `to` is a path or an absolute URL; a `*` in it
    /// stands for the rest of the path. A `to` without a query keeps the query of the request. `status` is 302 by
    /// default, or 301, 303, 307 or 308. `except` lists paths of `from` that are not redirected, such as
    /// `["/.well-known/*"]`. The first matching table counts.
    redirect in Rules {}
        = tables("[[redirect]]\nfrom = \"/old/*\"\nto = \"/new/*\"\nstatus = 301", RedirectConfig) => redirects;
    /// Answer requests with a fixed status and text
    /// `path` is a path, or `/old/*` for all paths below `/old/`. Redirects come first. A status from 400 on
    /// without `text` shows its error page.
    respond in Rules {}
        = tables("[[respond]]\npath = \"/ping\"\nstatus = 200\ntext = \"pong\"", FixedReply) => replies;
    /// Rewrite the request path internally
    /// `from` and `to` are as in `redirect`, but `to` must be a path. Redirects and fixed responses come first. A
    /// rewritten request is neither redirected nor rewritten again.
    rewrite in Rules {} = tables("[[rewrite]]\nfrom = \"/v1/*\"\nto = \"/api/*\"", Rewrite) => rewrites;
    /// Error pages for statuses that the server itself answers with
    /// `status` is one status (`404`), a class (`5xx`) or a range (`400-499`). The narrowest match counts. The
    /// status code stays, and responses of the application stay as they are. The page may contain `{status}` and
    /// `{reason}`. The server reads the file at start-up; it may have up to 1M and needs an extension that shows
    /// its type.
    error_page in Rules {}
        = tables("[[error_page]]\nstatus = 404\nfile = \"404.html\"", ErrorPageTable) => error_pages;

    /// Address to listen on (repeatable)
    /// HOST:PORT, [V6]:PORT, :PORT, PORT, unix:PATH or systemd. `:PORT` means every IPv4 address, a port alone
    /// means 127.0.0.1, and port 0 means a free port. The server resolves a name at start-up, to all its
    /// addresses. Behind a unix socket's path, `mode=0660` sets the rights of the socket and `group=www-data` its
    /// group; without a mode every user may connect, as far as `umask` lets them. `systemd` means every socket that the service manager has opened (LISTEN_FDS), and
    /// `systemd:NAME` means those of that name (FileDescriptorName). `tls=on` or `tls=off` behind an address decides
    /// whether it speaks TLS; without either, TCP addresses do if there is a `tls_cert`, except port 80.
    bind in Listening { short: Some('b'), placeholder: "ADDRESS", default: "127.0.0.1:8000", is_daily: true }
        = list(ADDRESS, ListForm::Texts, parse::address) => binds;
    /// I/O threads of each process
    /// Driver threads accept connections, read requests, write responses and serve files. `auto` is half of the
    /// processors, divided by `processes`, from 1 to 8.
    drivers in Listening { placeholder: "N", default: "auto" }
        = text("a count from 1 to 256, or `auto`", |text| parse::count_or_auto(text, 256)) => drivers;
    /// Processors to pin drivers to, as 0,2-3, auto or off
    /// `auto` takes the processors that the process may run on, in order.
    driver_cpus in Listening { default: "off" }
        = joined("a list of processors (as `0,2-3`), `auto` or `off`", parse::cpus) => cpus;
    /// Connections to accept before the driver serves the others again
    /// A driver without this bound would neglect open connections during a burst of new ones.
    accept_batch in Listening { default: "32" } = count(1, 65_536) => config.listen.accept_batch;
    /// Length of the kernel's accept queue
    /// The kernel limits it to net.core.somaxconn. The server reports the effective value at start-up.
    backlog in Listening { default: "4096" } = count(1, 65_535) => config.listen.backlog;
    /// Time the kernel holds a connection without data; 0 is off
    /// TCP_DEFER_ACCEPT, in whole seconds, rounded up.
    defer_accept in Listening { default: "0s" } = seconds(NONE, HOUR) => config.listen.defer_accept_secs;
    /// Set TCP_NODELAY on accepted connections
    nodelay in Listening { default: "true" } = switch() => config.listen.nodelay;
    /// Accept HTTP/2
    /// On plain listeners from clients that begin with it (prior knowledge), with TLS by ALPN. Without it, such
    /// clients get 505, and TLS clients HTTP/1.1.
    http2 in Listening { default: "true" } = switch() => config.http2.is_on;
    /// Maximum number of open connections of each process
    /// At the limit the server closes idle connections first, and answers 503 to connections that sent nothing
    /// within a second. The limit of open files (ulimit -n) may lower it.
    connections_max in Listening { aliases: &["max_connections"], default: "10000" }
        = count(1, 10_000_000) => config.listen.connections_max;
    /// Choice of the driver for a TCP connection: hash or cpu
    /// `hash` is the kernel's default, by the addresses of both ends. `cpu` keeps a connection on the processor
    /// that receives its packets. It helps only with pinned drivers (`driver_cpus`) and network cards with one
    /// queue per processor.
    reuseport_steering in Listening { default: "hash" }
        = choice(["hash", "cpu"], [Steering::Hash, Steering::Cpu]) => config.listen.steering;
    /// Time after which other drivers accept for a stalled driver
    /// A driver counts as stalled if connections wait for it and it has accepted none for this long.
    accept_stall_timeout in Listening { default: "500ms" }
        = duration(STALL_LEAST, HOUR) => config.listen.driver_stall;

    /// Name to serve over HTTPS with an automatic certificate (repeatable)
    /// The server gets the certificate from `acme_directory` and renews it. It starts without a missing
    /// certificate. Without `bind` it listens on the ports 80 and 443. `localhost` and names below it get
    /// certificates of a local authority (`milepost trust`) and, when they are all, the address 127.0.0.1:8443.
    domain in Certificates { placeholder: "NAME", is_daily: true }
        = list("a name of the DNS (as `shop.example`)", ListForm::Texts, parse::acme::domain) => domains;
    /// Agree to the terms of service of the certificate authority
    /// Without this agreement, the server asks for no certificate and does not start.
    acme_terms in Certificates { default: "false" } = switch() => acme.agrees_to_terms;
    /// E-mail address for messages of the certificate authority, or off
    acme_email in Certificates { placeholder: "ADDRESS", default: "off" }
        = text("an address (as `ops@shop.example`), or `off`", parse::acme::email) => acme.email;
    /// URL of the certificate authority's ACME directory
    acme_directory in Certificates { placeholder: "URL", default: "https://acme-v02.api.letsencrypt.org/directory" }
        = text("an https URL", parse::acme::directory) => acme.directory;
    /// URL of the ACME directory that a second try goes to first, auto or off
    /// Failures there do not count against the limits of `acme_directory`. `auto` is the staging directory of
    /// Let's Encrypt, where certificates come from Let's Encrypt.
    acme_staging in Certificates { placeholder: "URL", default: "auto" }
        = text("an https URL, `auto` or `off`", parse::acme::staging) => acme.staging;
    /// File with the roots of a private certificate authority, or off
    /// The certificate of the directory's own HTTPS is checked against them, in the place of the system's roots. The
    /// file is PEM.
    acme_ca in Certificates { placeholder: "FILE", default: "off" }
        = text("a file, or `off`", parse::acme::roots) => acme.roots;
    /// Challenges that prove the names to the authority, the preferred first
    /// `http-01` needs port 80 of the name to lead to this server, `tls-alpn-01` port 443. After a failure, the
    /// next try uses the next challenge.
    acme_challenges in Certificates { default: "http-01,tls-alpn-01" }
        = joined("`http-01`, `tls-alpn-01`, or both", parse::acme::challenges) => acme.challenges;
    /// Folder for certificates, keys and accounts, or auto
    /// Several machines may share it. `auto` is the first of: the folder of systemd (STATE_DIRECTORY),
    /// /var/lib/milepost for root and for a server with `user`, `milepost` in XDG_DATA_HOME or ~/.local/share.
    acme_storage in Certificates { placeholder: "DIR", default: "auto" }
        = text("a folder, or `auto`", parse::acme::storage) => acme.storage;
    /// Certificate chain (PEM); switches HTTPS on
    /// The file holds the server's own certificate first, and then those that certify it. With a certificate, TCP
    /// addresses speak TLS, except port 80; `tls=on` and `tls=off` in `bind` decide otherwise.
    tls_cert in Tls { placeholder: "FILE", is_daily: true }
        = text(tls::FILE, |text| tls::file(text).map(Some)) => tls_default.cert;
    /// Private key of `tls_cert`, in PEM
    /// Without this setting, the key is in the file of the certificate. Only the owner may have rights to the file; a
    /// group may read it if root owns it. Chain and key are read again when the files change.
    tls_key in Tls { placeholder: "FILE", is_daily: true }
        = text(tls::FILE, |text| tls::file(text).map(Some)) => tls_default.key;
    /// File with the password of the private key, or env:NAME for a variable
    /// The password is the first line of the file. As for the key, other users may not read the file.
    tls_key_password_file in Tls { placeholder: "FILE" }
        = text(tls::PASSWORD, |text| tls::key_password(text).map(Some)) => tls_default.key_password_file;
    /// Certificates for further names
    /// `names` are the names of the server (`shop.example`, or `*.shop.example` for any one label); without them, the
    /// names in the certificate count. Two tables with the same names and different kinds of keys (ECDSA and RSA)
    /// stand side by side. The other keys are as the settings `tls_...`: `cert`, `key`, `key_password_file`,
    /// `client_ca`, `client_auth`, `crl`, `ocsp`. Clients that name no server get the certificate of `tls_cert`, or
    /// without that setting the first of these tables.
    tls in Tls {} = keyed_tables(
        "[[tls]]\nnames = [\"shop.example\", \"*.shop.example\"]\ncert = \"shop.pem\"\nkey = \"shop.key\"",
        TlsTable
    ) => tls_tables;
    /// Certificate for names that no certificate is for: default or reject
    /// With `reject` the handshake of such a client fails (alert `unrecognized_name`). Clients that name no server
    /// get the default certificate either way.
    tls_unknown_name in Tls { default: "default" }
        = choice(["default", "reject"], [UnknownName::Default, UnknownName::Reject])
        => config.tls.unknown_name;
    /// Versions of TLS
    /// TLS 1.0 and 1.1 are not available. The cipher suites all have forward secrecy, and cannot be chosen.
    tls_versions in Tls { placeholder: "LIST", default: "1.2,1.3" }
        = joined(tls::VERSIONS, tls::versions) => config.tls.versions;
    /// Authorities whose client certificates are accepted, in PEM
    /// With this setting, clients must show a certificate (`tls_client_auth`).
    tls_client_ca in Tls { placeholder: "FILE" }
        = text(tls::FILE, |text| tls::file(text).map(Some)) => tls_default.client_ca;
    /// Whether clients must show a certificate: require or request
    /// With `request` the server asks, and serves clients without one. An invalid certificate is refused either way.
    /// With `tls_client_ca` the default is `require`.
    tls_client_auth in Tls {}
        = choice(["require", "request"], [Some(ClientDemand::Require), Some(ClientDemand::Request)])
        => tls_default.client_auth;
    /// Revoked client certificates, as lists (CRL) of their authorities
    /// The file holds lists in PEM, or one in DER. Each authority that signs certificates of clients needs one.
    tls_crl in Tls { placeholder: "FILE" }
        = text("a file", |text| tls::file(text).map(Some)) => tls_default.crl;
    /// OCSP response to staple to the certificate, in DER
    /// A job writes the file regularly (`openssl ocsp -respout`). Public authorities no longer need it.
    tls_ocsp in Tls { placeholder: "FILE" }
        = text("a file in DER", |text| tls::file(text).map(Some)) => tls_default.ocsp;
    /// File with the keys of session tickets, or auto
    /// With `auto` the server makes the keys and changes them every 6 hours. Several machines behind one name need a
    /// file that is the same on all of them: a key in each line (`openssl rand -base64 48`). The first key encrypts
    /// tickets; the others only decrypt them. The server reads the file again when it changes.
    tls_ticket_keys in Tls { placeholder: "FILE", default: "auto" }
        = text("a file, or `auto`", tls::ticket_keys) => config.tls.ticket_keys;
    /// Redirect requests over plain HTTP to HTTPS: on, off, or the port of HTTPS
    /// Requests on TCP addresses without TLS get 308, except paths below `/.well-known/acme-challenge/` and the
    /// server's own paths. With `on` the port is that of the first address with TLS; give the port where clients see
    /// another one, as behind a container's port mapping.
    https_redirect in Tls { placeholder: "PORT", default: "off" }
        = named(["on", "off"], tls::REDIRECT, tls::https_redirect) => config.https_redirect;
    /// Time that browsers use HTTPS only (Strict-Transport-Security), or off
    /// Responses over HTTPS get the header unless they have one. `subdomains` and `preload` may follow, as in
    /// `2y, subdomains`. Begin with a short time: browsers do not forget it earlier.
    hsts in Tls { placeholder: "DURATION", default: "off" } = text(tls::HSTS, tls::hsts) => config.headers.hsts;
    /// Maximum time a client may take for the TLS handshake
    /// The time counts from the accept. The server closes the connection after it.
    tls_handshake_timeout in Tls { default: "10s" } = duration(MS, HOUR) => config.timeouts.tls_handshake;

    /// Proxies whose word about their clients is believed
    /// Addresses, networks and `unix`, between commas; `*` is every peer. From these peers the server takes the
    /// `forwarded_headers`, X-Request-Start (queue time) and `request_id_header`. The client is the rightmost address
    /// that is not trusted. The application does not see X-Forwarded-*, Forwarded and X-Real-IP of other peers. With
    /// `*` the leftmost address counts, so every client must pass a proxy that overwrites it. Peers on unix sockets
    /// are trusted only if they run as root, as the server's own user or in one of the `trusted_proxy_groups`.
    trusted_proxies in Proxies {
        aliases: &["forwarded_allow_ips"], placeholder: "LIST", default: "127.0.0.0/8, ::1, unix"
    } = joined(PEERS, parse::peers) => config.proxies.trusted;
    /// Groups whose processes are trusted on unix sockets
    /// Names or numbers, between commas, of the main group of the proxy's processes. Names that do not exist on the
    /// machine do not count.
    trusted_proxy_groups in Proxies { placeholder: "GROUPS", default: "www-data, nginx, caddy, haproxy, apache, http" }
        = joined(GROUPS, parse::groups) => config.proxies.groups;
    /// Headers of trusted proxies that describe the client
    /// `x-forwarded-for` and `x-forwarded-proto` set the client's address and the scheme; `x-forwarded-host`, `-port`
    /// and `-prefix` set the host, the port and SCRIPT_NAME. `forwarded` (RFC 7239) sets address, scheme and host, and
    /// stands alone. Add only headers that the proxy overwrites: nginx without a line for X-Forwarded-Host passes on
    /// the client's own, and the client could choose the host of links in mails.
    forwarded_headers in Proxies { placeholder: "LIST", default: "x-forwarded-for, x-forwarded-proto" }
        = joined(FORWARDED_HEADERS, parse::forwarded_headers) => config.proxies.fields;
    /// Peers that begin each connection with a PROXY protocol header, or off
    /// The header is of version 1 or 2. Peers are written as in `trusted_proxies`. The header's addresses are then those of the connection. A connection of these
    /// peers without a header is closed, and a header of any other peer gets 400.
    proxy_protocol_from in Proxies { aliases: &["proxy_allow_ips"], placeholder: "LIST", default: "off" }
        = joined(PEERS, parse::peers) => config.proxies.proxy_protocol_from;

    /// Number of serving processes, or auto for one per processor
    /// Each process has its own drivers, worker threads, limits and caches. The product of processes and drivers
    /// may be up to 1024.
    processes in Processes { short: Some('w'), aliases: &["workers"], placeholder: "N", default: "1", is_daily: true }
        = text("a count from 1 to 512, or `auto`", |text| parse::count_or_auto(text, PROCESSES_MAX as u64))
        => processes;
    /// User to run as, by name or number, or off
    /// A server that root starts can listen on ports below 1024 and then drop its rights. The process gets the
    /// groups of the user; `group` replaces the first one.
    user in Processes { placeholder: "USER", default: "off" }
        = text("a user's name or number, or `off`", parse::user) => config.processes.user;
    /// Group to run as, by name or number, or off for the user's own
    group in Processes { placeholder: "GROUP", default: "off" }
        = text("a group's name or number, or `off`", parse::account) => config.processes.group;
    /// File mode creation mask of the serving processes, in octal, or off
    /// Unix sockets without a `mode` of their own get 0777 without these bits. With `off` the mask is the one of
    /// the start, and unix sockets get 0777.
    umask in Processes { short: Some('m'), placeholder: "MODE", default: "off" }
        = text("an octal number from 0 to 0777 (as `027`), or `off`", parse::umask) => config.processes.umask;
    /// Import the application once and fork the serving processes from it
    /// The processes share the memory of the import until they change it. The application must not start threads
    /// during its import, and connections that it opens there are shared by all processes. A replaced process is
    /// forked again without an import; a reload imports the application again.
    preload in Processes { aliases: &["preload_app"], default: "false", is_daily: true } = switch() => config.processes.preload;
    /// Function to call at a moment of a process's life (repeatable)
    /// `post_fork` runs in each serving process, right after the fork with `preload`, otherwise before the import of
    /// the application. `worker_ready` runs before the first request, `worker_exit` after the last. `on_reload` runs
    /// once in the first new process of a reload. The functions take no arguments. In TOML the setting may also be a
    /// table: `[hooks]` with `post_fork = "shop.hooks:connect"`.
    hooks in Processes { aliases: &["hook"], placeholder: "HOOK=NAME" }
        = list("HOOK=MODULE:FUNCTION (as `post_fork=shop.hooks:connect`)", ListForm::Pairs, parse::hook) => hooks;
    /// Maximum time a new process may take to start, or off
    /// Most of this time is the import of the application. A process that exceeds it counts as failed.
    start_timeout in Processes { placeholder: "DURATION", default: "2m" }
        = text("a duration from 1s to 24h (as `2m`), or `off`", parse::span_or_zero)
        => config.processes.start_timeout;
    /// Time after which an unresponsive process is replaced, or off
    /// The drivers answer the heartbeat and run no application code, so slow requests do not trigger it.
    heartbeat_timeout in Processes { placeholder: "DURATION", default: "30s" }
        = text("a duration from 1s to 24h (as `30s`), or `off`", parse::span_or_zero)
        => config.processes.heartbeat_timeout;
    /// Requests after which a process is replaced, or off
    /// Processes are replaced one at a time. The new process is ready before the old one stops.
    process_requests_max in Processes { aliases: &["max_requests"], placeholder: "N", default: "off" }
        = text("a count from 1, or `off`", |text| parse::or_off(text, Unit::Count, 1..=u64::MAX, NO_BOUND))
        => config.processes.recycling.requests_max;
    /// Age at which a process is replaced, or off
    /// Processes are replaced as with `process_requests_max`.
    process_age_max in Processes { placeholder: "DURATION", default: "off" }
        = text("a duration from 1s to 366d (as `12h`, `7d`), or `off`", |text| parse::span_or_off(text, SECOND..=YEAR, NO_BOUND))
        => config.processes.recycling.age_max;
    /// Resident memory at which a process is replaced, or off
    /// Processes are replaced as with `process_requests_max`. Shared memory counts in every process.
    process_resident_max in Processes { placeholder: "SIZE", default: "off" }
        = text("a size from 16M (as `512M`, `2G`), or `off`", parse::resident)
        => config.processes.recycling.resident_bytes_max;
    /// Random extra, up to this percentage, on each process's recycling limits
    /// The limits are `process_requests_max`, `process_age_max` and `process_resident_max`. The jitter keeps
    /// processes that started together from being replaced together.
    recycle_jitter in Processes { placeholder: "PERCENT", default: "10%" }
        = text("a share from 0% to 100%", parse::share) => config.processes.recycling.jitter;
    /// Restart when the code or the configuration changes, for development
    /// The server watches the application's modules and their folders, the configuration file, and `reload_dir`.
    /// Browsers see the traceback of code that fails to import.
    reload in Processes { default: "false", is_daily: true } = switch() => reload;
    /// Additional folder for `reload` to watch (repeatable)
    reload_dir in Processes { placeholder: "DIR" }
        = list("a folder", ListForm::Texts, parse::folder) => reload_dirs;
    /// Additional file for `reload` to watch (repeatable)
    reload_file in Processes { aliases: &["reload_extra_file"], placeholder: "FILE" }
        = list("a file", ListForm::Texts, parse::file) => reload_files;
    /// Unix socket for control commands (milepost reload ...), auto or off
    /// `auto` is a socket in the runtime folder (`$XDG_RUNTIME_DIR/milepost`, `/run/milepost` for root, or
    /// `/tmp/milepost-UID`), named after the configuration file. Only root, the server's user and the user that
    /// started it may use it. With `off` the server obeys signals only.
    control in Processes { placeholder: "FILE", default: "auto" }
        = named(["auto", "off"], "a file, `auto` or `off`", parse::control) => config.processes.control;
    /// Address for metrics and the state of the server, or off
    /// `127.0.0.1:9901` or `unix:/run/milepost/admin.sock`. It answers `/metrics` for Prometheus, `/status`, `/health`,
    /// `/ready` and `/load`, for all processes together. A process of its own answers, so that it does even when all
    /// threads are busy. Other hosts can reach an address that is not a loopback address: it needs `admin_token_file`.
    /// Only root and the server's user can use a unix socket without a token.
    admin_bind in Processes { placeholder: "ADDRESS", default: "off" }
        = text("IP:PORT, `unix:FILE` or `off`", parse::admin_bind) => config.admin.bind;
    /// File with the token that admin_bind asks for
    /// Clients send it as `Authorization: Bearer TOKEN`. The file has one line of at least 16 characters, and is read
    /// for each request.
    admin_token_file in Processes { placeholder: "FILE" }
        = text("a file", |text| parse::file(text).map(Some)) => config.admin.token_file;
    /// Address of a StatsD server, or off
    /// `127.0.0.1:8125`. Once a second the server sends it what has happened, by UDP: requests by status, durations,
    /// and each pool. An address and port, because names are not resolved.
    statsd in Processes { aliases: &["statsd_host"], placeholder: "ADDRESS", default: "off" }
        = text("IP:PORT, or `off`", parse::statsd) => config.statsd.address;
    /// First part of the names that statsd gets
    /// `shop` makes `shop.requests` of `requests`.
    statsd_prefix in Processes { placeholder: "NAME", default: "milepost" }
        = text("letters, digits, `_`, `-` and `.`", parse::statsd_prefix) => config.statsd.prefix;
    /// File for the process id of the running server, or off
    /// The id is the supervisor's, which handles signals and commands. The server writes the file after it has
    /// opened its addresses. A file with the id of another running server is an error.
    pid_file in Processes { aliases: &["pid"], placeholder: "FILE", default: "off" }
        = text("a file, or `off`", parse::pid_file) => config.pid_file;

    /// Worker threads that run the application, as MIN:MAX or one number
    /// The pool grows and shrinks between MIN and MAX by the time that requests wait for a thread. This setting
    /// and those up to `request_timeout` apply to the pool `default`, and to other pools unless their tables say
    /// otherwise.
    threads in Pool { default: "4:4", is_daily: true } = range(THREADS, parse::threads) => threads;
    /// Maximum number of requests in the queue before clients get 503
    queue_len_max in Pool { default: "1024" } = count(1, 1_000_000) => pool.queue_len_max;
    /// Queue time that the pool aims for; longer waits make it grow
    /// The pool grows if more than 5 of 100 requests wait longer. The pool counts as overloaded if every
    /// request of half a second waited longer while more requests arrived than were completed.
    queue_target in Pool { default: "5ms" } = duration(WAIT_LEAST, HOUR) => pool.queue_target;
    /// Maximum time in the queue before the client gets 503
    queue_timeout in Pool { default: "30s", is_daily: true } = duration(MS, HOUR) => pool.queue_timeout;
    /// Maximum queue time of an overloaded pool before a 503, or auto
    /// A pool is overloaded if all requests wait longer than `queue_target` and more requests arrive than it
    /// completes. `auto` is 1 s, or three times the median run time if that is longer, and never more than
    /// `queue_timeout`. A duration may not exceed `queue_timeout`. Twice the `queue_target` keeps all waits short
    /// if clients or a proxy retry.
    overload_timeout in Pool { placeholder: "DURATION", default: "auto" }
        = text("a duration from 1ms to 1h (as `2s`), or `auto`", parse::overload_timeout) => pool.overload_timeout;
    /// Threads, and places in the queue, reserved for health checks
    /// One number stands for both. A `[[pool_rule]]` with `class = "health"` says which requests are health
    /// checks. Other pools keep the same reserve if a rule sends health checks to them.
    health_reserve in Pool { placeholder: "THREADS[:PLACES]", default: "0" }
        = text(RESERVE, parse::reserve) => health_reserve;
    /// Maximum time the application may spend on a request before a 504, or off
    request_timeout in Pool { placeholder: "DURATION", default: "off", is_daily: true }
        = text("a duration from 1ms to 24h (as `30s`, `2m`), or `off`", parse::run_time) => pool.request_timeout;
    /// Additional pool of worker threads
    /// `name` is required. Other keys override the settings of the same name for this pool: `threads`,
    /// `queue_len_max`, `queue_target`, `queue_timeout`, `overload_timeout`, `health_reserve`, `request_timeout` and
    /// `disconnect_cancel`. `[[pool_rule]]` tables choose its requests.
    pool in Pool {} = tables("[[pool]]\nname = \"reports\"\nthreads = \"1:8\"", PoolTable) => pools;
    /// Rule that sends requests to a pool or changes their priority
    /// `pool` is required. A request matches if all conditions match: `path` (a path, or a glob: `*` matches
    /// within a segment, `/reports/**` matches everything below), `method`, `host` (`*.` matches all subdomains),
    /// `header` (a name, or `name: value`) and `from` (addresses or networks). `class` is `health`, `high`,
    /// `normal` or `low`. If several rules match, the most specific one counts: first by path, exact paths before
    /// globs, then by the longer text before the first wildcard, then by host, header, network and method; among
    /// equals the first one counts. Paths are compared as routes compare them. Requests that match no rule go
    /// to `default`.
    pool_rule in Pool {}
        = tables("[[pool_rule]]\npool = \"reports\"\npath = \"/reports/**\"", PoolRuleTable) => pool_rules;
    /// Pool for routes that have become slow, or off
    /// A route is a method and a path; digits, hex numbers and UUIDs in the path do not matter. Requests of a
    /// route move to this pool if the median of its last 16 runs exceeds `slow_after`, and return if the median
    /// is below half of it. The error log reports both.
    slow_pool in Pool { placeholder: "NAME", default: "off" }
        = text("a pool's name, or `off`", parse::slow_pool) => slow_pool;
    /// Median run time at which a route moves to `slow_pool`
    slow_after in Pool { default: "1s" } = duration(MS, HOUR) => slow_after;
    /// Run time after which a request's stack goes to the error log, or off
    slow_request in Pool { placeholder: "DURATION", default: "off" }
        = text("a duration from 1ms to 24h (as `5s`), or `off`", parse::run_time) => config.slow_request;

    /// Maximum size of a request body before the client gets 413
    body_bytes_max in Limits { default: "256M", is_daily: true }
        = size(0, u64::MAX) => config.limits.body_bytes_max;
    /// Maximum size of a request head before the client gets 431
    head_bytes_max in Limits { default: "32K" } = size(256, HEAD_BYTES_MOST) => config.limits.head_bytes_max;
    /// Maximum length of a path with its query before the client gets 414
    target_bytes_max in Limits { aliases: &["limit_request_line"], default: "8K" }
        = size(64, HEAD_BYTES_MOST) => config.limits.target_bytes_max;
    /// Maximum size of one header field before the client gets 431
    header_bytes_max in Limits { aliases: &["limit_request_field_size"], default: "16K" }
        = size(64, HEAD_BYTES_MOST) => config.limits.header_bytes_max;
    /// Maximum number of header fields before the client gets 431
    headers_len_max in Limits { aliases: &["limit_request_fields"], default: "100" }
        = count(1, 32_768) => config.limits.headers_len_max;
    /// Maximum length of a chunk's size line, with extensions
    chunk_line_bytes_max in Limits { default: "256" } = size(18, 64 * K) => config.limits.chunk_line_bytes_max;
    /// Maximum size of the trailer fields after a chunked body
    trailer_bytes_max in Limits { default: "8K" } = size(2, M) => config.limits.trailer_bytes_max;
    /// Maximum number of requests under way on one HTTP/2 connection
    /// A request that the client gave up counts until its work has ended. Clients with fewer than 100 requests at
    /// once load pages more slowly.
    http2_streams_max in Limits { default: "128" } = count(1, 1_000) => config.http2.streams_max;

    /// Maximum time a client may take to send a request head
    /// The time counts from the first byte, and for the first request of a connection from its accept. Further
    /// bytes do not extend it. The client gets 408.
    head_timeout in Timeouts { default: "30s" } = duration(MS, DAY) => config.timeouts.head;
    /// Maximum time a request body may lag behind `body_rate_min`
    /// The value is also the longest pause. A body that keeps the rate may take any time. A body that stops gets
    /// 408 after this time, and a body at half the rate after twice this time.
    body_timeout in Timeouts { aliases: &["body_grace"], default: "30s" }
        = duration(MS, DAY) => config.timeouts.body;
    /// Minimum rate of a request body, in bytes a second; 0 allows any
    /// With 0 only pauses count: every byte restarts `body_timeout`.
    body_rate_min in Timeouts { default: "256" } = per_second(G) => config.timeouts.body_rate_min;
    /// Time after which an idle keep-alive connection is closed
    /// The time is shorter if more than half of `connections_max` are open, down to a second at 15/16 of it. At
    /// the limit the server closes the connections that have been idle longest.
    idle_timeout in Timeouts { aliases: &["keep_alive", "timeout_keep_alive"], default: "60s" }
        = duration(MS, DAY) => config.timeouts.idle;
    /// Age at which a connection is closed after the request under way, or off
    /// The age of each connection is up to 10% longer or shorter, so that clients do not all connect again at once.
    /// HTTP/1 clients get `Connection: close` with the next response, HTTP/2 clients a GOAWAY.
    connection_age_max in Timeouts { placeholder: "DURATION", default: "1h" }
        = text("a duration from 1s to 366d (as `10m`, `1h`), or `off`", |text| parse::span_or_off(text, SECOND..=YEAR, NO_BOUND))
        => config.timeouts.connection_age_max;
    /// Maximum time a response may lag behind `send_rate_min`
    /// The value is also the longest pause, counted by the bytes that the client acknowledges. The server cuts a
    /// response that stops after this time, and a response at half the rate after twice this time. Waits for the
    /// application or for a bandwidth limit do not count.
    send_timeout in Timeouts { default: "30s" } = duration(MS, DAY) => config.timeouts.send;
    /// Minimum rate at which clients take responses, bytes a second; 0 allows any
    /// With 0 only pauses count: every byte restarts `send_timeout`.
    send_rate_min in Timeouts { default: "256" } = per_second(G) => config.timeouts.send_rate_min;
    /// Time the server reads and drops the rest of a refused body
    /// The client can then read the response instead of a connection reset.
    linger_timeout in Timeouts { default: "2s" } = duration(NONE, HOUR) => config.timeouts.linger;
    /// Time a process may take to finish requests after SIGTERM or a replacement
    /// The server answers requests that it has already received, and counts the cut ones in one log line.
    drain_timeout in Timeouts { aliases: &["graceful_timeout"], default: "30s", is_daily: true }
        = duration(NONE, DAY) => config.timeouts.drain;

    /// Maximum number of open connections of one client before a 429, or off
    /// The address identifies a client (`client_prefix_v4`, `client_prefix_v6`). Connections of `trusted_proxies`
    /// do not count. Of a client that such a proxy names, requests that are under way count instead; the next one
    /// gets 429. Connections on unix sockets do not count. Each process counts for itself.
    client_connections_max in Sharing { placeholder: "N", default: "off" }
        = text("a count from 1 to 10000000, or `off`", parse::count_or_off)
        => config.listen.client_connections_max;
    /// Leading bits of an IPv4 address that identify a client
    client_prefix_v4 in Sharing { placeholder: "BITS", default: "32" }
        = count(0, 32) => config.listen.client_prefix_v4;
    /// Leading bits of an IPv6 address that identify a client
    /// The owner of one IPv6 address usually owns all of its /64.
    client_prefix_v6 in Sharing { placeholder: "BITS", default: "64" }
        = count(0, 128) => config.listen.client_prefix_v6;
    /// Bandwidth limit of each connection, in bytes a second, or off
    /// There is no limit by default. The first of `rate_connection`, `rate_route` and `rate_pool` that is set
    /// counts alone, also if it is `off`.
    rate_connection in Sharing { placeholder: "RATE" }
        = text(RATE, |text| parse::rate(text).map(Some)) => config.rates.connection;
    /// Bandwidth limit of all responses of one route
    /// Each process counts for itself. `url` is the URL of a `static`, or `/` for the application. `rate` is in
    /// bytes a second, or `off`.
    rate_route in Sharing {}
        = tables("[[rate_route]]\nurl = \"/static\"\nrate = \"10M\"", RouteRateTable) => rate_routes;
    /// Bandwidth limit of all responses of the application, or off
    /// There is no limit by default. Each process counts for itself. `rate_route` limits files.
    rate_pool in Sharing { placeholder: "RATE" }
        = text(RATE, |text| parse::rate(text).map(Some)) => config.rates.pool;

    /// Largest request body to keep in memory; larger ones go to a file
    body_memory_max in Bodies { default: "64K" } = size(0, G) => config.spool.body_memory_bytes;
    /// Threads that write request bodies and waiting responses to files
    spoolers in Bodies { default: "1" } = count(1, 64) => config.spool.spoolers;
    /// Folder of temporary files (default: the system's)
    /// The default is TMPDIR, or /tmp. A file system in memory would defeat the purpose.
    spool_dir in Bodies { placeholder: "DIR" } = text("a folder", parse::folder) => config.spool.dir;
    /// Unsent bytes of a streamed response at which its worker waits for the client
    /// Only a stream that the application is still producing can wait. A response that the application has handed
    /// over as a whole never blocks its worker.
    reply_spool_bytes_max in Bodies { aliases: &["reply_spool_max"], default: "1G" }
        = size(0, u64::MAX) => config.delivery.reply_spool_bytes_max;
    /// Maximum time a worker waits for the client of a streamed response
    /// The server cuts, counts and logs a stream that exceeds `reply_spool_bytes_max` for longer.
    stream_wait_timeout in Bodies { placeholder: "TIME", default: "60s" }
        = duration(NONE, DAY) => config.delivery.stream_wait_timeout;
    /// Memory for all responses that wait for slow clients
    /// Above half of it, the responses that have made no progress for longest move to temporary files in
    /// `spool_dir`. Above all of it, if the disk is too slow, the server cuts such responses. A buffer that
    /// several responses share counts once.
    reply_memory_max in Bodies { default: "256M" }
        = size(M, 1024 * G) => config.delivery.replies_memory_bytes_max;

    /// Compress the application's responses: br, zstd, gzip, best first, or off
    /// The order decides if a client accepts several equally. The server compresses a stream piece by piece and
    /// delays none of it. Responses with a Content-Encoding, with `no-transform` and partial ones (206) stay as
    /// they are.
    compress in Compression { default: "off", is_daily: true }
        = joined(CODINGS, parse::codings) => config.compression.codings;
    /// Smallest response to compress, if its length is known
    compress_size_min in Compression { default: "1K" } = size(0, G) => config.compression.bytes_min;
    /// Compression level of br, from 0 (fastest) to 11 (smallest)
    compress_level_br in Compression { placeholder: "LEVEL", default: "4" }
        = count(0, 11) => config.compression.brotli_level;
    /// Compression level of zstd, from 1 (fastest) to 19 (smallest)
    compress_level_zstd in Compression { placeholder: "LEVEL", default: "3" }
        = count(1, 19) => config.compression.zstd_level;
    /// Compression level of gzip, from 1 (fastest) to 9 (smallest)
    compress_level_gzip in Compression { placeholder: "LEVEL", default: "6" }
        = count(1, 9) => config.compression.gzip_level;
    /// Media types to compress
    /// `text/*` stands for all types that begin with `text/`.
    compress_types in Compression { default: COMPRESS_TYPES }
        = joined("media types (as `text/*,application/json`)", parse::media_types) => config.compression.types;

    /// Access log: a file, -, stderr, syslog, auto or off (repeatable)
    /// `auto` logs to standard output if that is a terminal. `-` is standard output, `syslog:FACILITY` names a facility. In TOML a log may also be a table with `to`,
    /// `format` (as `access_log_format`) and filters: `route` (`app`, `status`, `rules`, `none`, or the URL of a
    /// folder), `status` (`404`, `5xx`, `400-499`, `none` for no response) and `slower` (a duration). A request
    /// is logged if it passes all filters.
    access_log in Log { aliases: &["access_logfile"], placeholder: "TARGET", default: "auto", is_daily: true }
        = logs(ACCESS_LOG, ACCESS_LOG_TABLE, AccessLogTable) => access_logs;
    /// Format of access-log lines: a name, or a text with {field}s
    /// `phases` is the combined format with the phases. `naviserver` is the combined format with NaviServer's
    /// partial times. A text is a template, such as `{time_iso} {peer} "{request}" {status} {total}`. A log's own
    /// `format` overrides it.
    access_log_format in Log { placeholder: "FORM", default: "phases" }
        = named(FORM_NAMES, FORM, |text| parse::form(text).map(Some)) => log_form;
    /// Error log: a file, -, stderr, syslog or off (repeatable)
    /// In TOML a log may also be a table with `to`, `format` (as `error_log_format`) and either `level` (`error`,
    /// `warning` or `info`: this level and worse) or `only` (this level alone).
    error_log in Log { placeholder: "TARGET", default: "stderr", is_daily: true }
        = logs(ERROR_LOG, ERROR_LOG_TABLE, ErrorLogTable) => error_logs;
    /// Format of error-log entries: text or json
    /// With `json`, each entry is one line with one object, also a traceback: `time`, `level`, `id` of the request if
    /// there is one, and `message`. A log's own `format` overrides it.
    error_log_format in Log { default: "text" }
        = choice(["text", "json"], [ErrorLogForm::Text, ErrorLogForm::Json]) => error_log_form;
    /// Level of error logs that name none: error, warning or info
    /// A log has the lines of its level and of worse ones.
    error_log_level in Log { aliases: &["log_level"], default: "info" }
        = choice(["error", "warning", "info"], [Level::Error, Level::Warning, Level::Info]) => error_level;
    /// Memory of each process for log lines that wait to be written
    log_buffer in Log { default: "64M" } = size(64 * K, 64 * G) => config.logs.buffer_bytes_max;
    /// What happens if `log_buffer` is full: drop lines or wait
    /// Dropped lines are counted. With `wait` no line is lost, but requests wait for the log.
    log_overflow in Log { default: "drop" }
        = choice(["drop", "wait"], [LogOverflow::Drop, LogOverflow::Wait]) => config.logs.overflow;
    /// Maximum time a log line waits to be written
    /// Lines for a terminal do not wait.
    log_flush in Log { default: "1s" } = duration(MS, HOUR) => config.logs.flush;
    /// Leading bits of client IPv4 addresses to log; the others become 0
    /// 24 logs 192.0.2.77 as 192.0.2.0.
    log_mask_v4 in Log { placeholder: "BITS", default: "32" } = count(0, 32) => config.logs.privacy.prefix_v4;
    /// Leading bits of client IPv6 addresses to log; the others become 0
    /// 48 logs 2001:db8:1234:5678::1 as 2001:db8:1234::.
    log_mask_v6 in Log { placeholder: "BITS", default: "128" } = count(0, 128) => config.logs.privacy.prefix_v6;
    /// Log the query (`?name=value`) of targets and referers
    log_query in Log { default: "true" } = switch() => config.logs.privacy.query;
    /// Size at which a log file is renamed and a new one begins, or off
    /// The name of the old file gets the time in UTC, such as `access.log.20261121T120739Z`.
    log_rotate_size in Log { placeholder: "SIZE", default: "off" }
        = text("a size from 4K (as `100M`), or `off`", parse::rotate_size) => config.logs.rotation.bytes;
    /// Interval at which log files are renamed and new ones begin, or off
    /// Intervals count from 1970 in UTC: `1h` is on the hour, `1d` is at midnight. Together with
    /// `log_rotate_size`, the earlier of both counts.
    log_rotate_every in Log { placeholder: "DURATION", default: "off" }
        = text("a duration from 1s to 366d (as `1h`, `1d`), or `off`", |text| parse::interval(text, "for never"))
        => config.logs.rotation.every;
    /// Number of old files to keep of each log, or off for all
    /// The server deletes the oldest files first, and only files that it has named itself.
    log_keep in Log { placeholder: "N", default: "off" }
        = text("a count from 1 to 1000000, or `off`", parse::keep_len) => config.logs.rotation.keep_len;
    /// Age at which old log files are deleted, or off
    log_keep_age in Log { placeholder: "DURATION", default: "off" }
        = text("a duration from 1s to 366d (as `14d`), or `off`", |text| parse::interval(text, "for any age"))
        => config.logs.rotation.keep_age;
    /// Compression of old log files: gzip or off
    log_compress in Log { placeholder: "CODING", default: "off" }
        = choice(["off", "gzip"], [false, true]) => config.logs.rotation.compress;
    /// Header for the request id, such as X-Request-Id, or off
    /// The server takes the id from `trusted_proxies`, makes one for all other clients, and repeats it in the response. With `off` ids appear only in logs and in the application's environment.
    request_id_header in Log { placeholder: "NAME", default: "off" }
        = text("a header's name (as `X-Request-Id`), or `off`", parse::request_id_header)
        => config.request_ids.header;
    /// Traces: off, ids, otel or the URL of a collector
    /// With `ids`, each request has a trace id, in logs and in the header `traceparent` (W3C Trace Context) of the
    /// application and of upstreams. With a URL, spans are sent there as well, by OTLP over HTTP (JSON), to `/v1/traces`
    /// unless the URL has a path. `otel` takes the collector from `OTEL_EXPORTER_OTLP_ENDPOINT` and the other variables
    /// of OpenTelemetry. With `off` the header passes unchanged.
    traces in Log { placeholder: "URL", default: "off" } = text(TRACES, parse::traces::traces) => traces;
    /// Share of the traces to record that begin at this server
    /// Traces of clients and proxies are recorded where `traceparent` says so. Requests that fail with a 5xx status, or
    /// are slower than `slow_request`, send their spans always.
    traces_sample in Log { placeholder: "SHARE", default: "1%" }
        = text("a share in percent (as `1%`)", parse::traces::sample) => config.traces.share;
    /// Clients whose traces are continued: all or trusted
    /// With `trusted`, `traceparent` counts only if it comes from `trusted_proxies`; for all other clients a new trace
    /// begins.
    traces_parents in Log { placeholder: "WHO", default: "all" }
        = choice(["all", "trusted"], [TraceParents::All, TraceParents::Trusted]) => config.traces.parents;

    /// Server header of responses that have none, or off
    server_header in Replies { default: "milepost" }
        = text("printable ASCII, or `off`", parse::server_header) => config.headers.server;
    /// Add a Server-Timing header with the request's phases
    server_timing in Replies { default: "false" } = switch() => config.headers.server_timing;
    /// URL path of the server's counters as JSON, or off
    /// Every client that can reach the server can read it.
    status_path in Replies { placeholder: "PATH", default: "off" }
        = text(OWN_PATH, parse::own_path) => config.status_path;
    /// Path at which the server answers 200 without the application, or off
    /// For liveness probes: it answers as long as the process serves, whatever the threads of the application do.
    /// Redirects and other rules do not apply to this path.
    health_path in Replies { placeholder: "PATH", default: "off" }
        = text(OWN_PATH, parse::own_path) => config.health_path;
    /// Path at which the server answers 200 if it can serve requests, or off
    /// For readiness probes and load balancers: 503 while the process finishes its last requests, and while the
    /// application cannot be loaded (`reload`). Redirects and other rules do not apply to this path.
    ready_path in Replies { placeholder: "PATH", default: "off" }
        = text(OWN_PATH, parse::own_path) => config.ready_path;
    /// Load of the server in responses to trusted_proxies: trusted or off
    /// The header `endpoint-load-metrics` says how many requests run and wait, how many threads there are, and how long
    /// this request has waited and run, so that a proxy can hold requests back and log where they waited. Responses to
    /// requests with one of the `forwarded_headers` have it.
    load_report in Replies { placeholder: "WHO", default: "trusted" }
        = choice(["trusted", "off"], [LoadReports::Trusted, LoadReports::Off]) => config.headers.load_report;
    /// Path that answers with the load of the server as JSON, or off
    /// For balancers and autoscalers, with the numbers of `load_report`. Every client that can reach the server can
    /// read it.
    load_path in Replies { placeholder: "PATH", default: "off" }
        = text(OWN_PATH, parse::own_path) => config.load_path;
}
