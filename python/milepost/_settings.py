"""The keyword arguments of `milepost.serve`: a name and a type for each setting.

Written by `milepost reference` (`make docs`); change crates/config/src/options_table/rows.rs instead.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Literal, TypeAlias, TypedDict

#: A text, or what is written as one.
Text: TypeAlias = str | int | PathLike[str]


class Settings(TypedDict, total=False):
    """What `milepost.serve` takes; docs/reference/options.md explains each."""

    config: Text
    """Configuration file in TOML."""
    chdir: Text
    """Working folder of the server."""
    app_dir: Text
    """Folder to put first on sys.path."""
    factory: bool
    """Call APP without arguments to make the application."""
    root_path: Text
    """URL prefix of the application (SCRIPT_NAME)."""
    env: Text | Sequence[Text] | Mapping[str, Text | Sequence[Text]]
    """Environment variable of the application, as NAME=VALUE (repeatable)."""
    trace_requests: bool
    """Pass TRACE requests to the application instead of answering 405."""
    interface: Literal["auto", "asgi", "asgi2", "wsgi"]
    """Interface of the application."""
    loop: Literal["auto", "asyncio", "uvloop"]
    """Event loop of an ASGI application."""
    asgi_concurrency: Text
    """Requests inside the ASGI applications of a process, MIN:MAX or one number."""
    request_buffering: bool
    """Receive request bodies whole before the ASGI application begins."""
    lifespan: Literal["auto", "on", "off"]
    """Lifespan events of the ASGI application."""
    lifespan_timeout: float | str
    """Maximum time the startup of the ASGI application may take."""
    asgi_http_spec: Literal["2.3", "2.5"]
    """Version of the ASGI specification for HTTP."""
    disconnect_cancel: Text
    """Time until the task of a request whose client has gone is cancelled, or off."""
    slow_step: Text
    """Time that a request may block the event loop before it is logged, or off."""
    ws_max: Text
    """Maximum number of open WebSocket connections of each process, or off."""
    ws_max_size: float | str
    """Maximum size of a message of a WebSocket client."""
    ws_ping_interval: Text
    """Time without a message after which a WebSocket client gets a ping, or off."""
    ws_ping_timeout: float | str
    """Time a WebSocket client has to answer a ping."""
    ws_per_message_deflate: bool
    """Compress messages for WebSocket clients that support it."""
    ws_drain: float | str
    """Time over which a process that ends closes its WebSocket connections."""
    ws_close_timeout: float | str
    """Time the application has to end behind the end of its WebSocket connection."""
    static: Text | Sequence[Text] | Mapping[str, Text | Sequence[Text]]
    """Folder of files to serve under a URL (repeatable)."""
    static_index: Text
    """File to serve for a folder's own URL."""
    static_encodings: Text | Sequence[str]
    """Precompressed copies of files to look for, best first, or off."""
    static_listing: bool
    """List the files of folders that have no index file."""
    file_cache_bytes_max: float | str
    """Memory of each driver for small files."""
    file_cache_entry_bytes_max: float | str
    """Largest file to keep in memory."""
    file_cache_revalidate: float | str
    """Time after which the server checks a cached file for changes."""
    file_cache_stale_max: float | str
    """Maximum age of a cached file that is served while its check runs."""
    writers: int
    """Threads that send large files; 0 lets drivers send them."""
    writer_size: float | str
    """Smallest file to send from disk; smaller files are read as a whole."""
    openers: int
    """Threads that find, open and read files; 0 lets drivers do so."""
    proxy: Text | Sequence[Text] | Mapping[str, Text | Sequence[Text]]
    """Server to pass requests on to, as PATH=URL or URL (repeatable)."""
    bind: Text | Sequence[Text]
    """Address to listen on (repeatable)."""
    drivers: Text
    """I/O threads of each process."""
    driver_cpus: Text | Sequence[str]
    """Processors to pin drivers to, as 0,2-3, auto or off."""
    accept_batch: int
    """Connections to accept before the driver serves the others again."""
    backlog: int
    """Length of the kernel's accept queue."""
    defer_accept: float | str
    """Time the kernel holds a connection without data; 0 is off."""
    nodelay: bool
    """Set TCP_NODELAY on accepted connections."""
    http2: bool
    """Accept HTTP/2."""
    connections_max: int
    """Maximum number of open connections of each process."""
    reuseport_steering: Literal["hash", "cpu"]
    """Choice of the driver for a TCP connection: hash or cpu."""
    accept_stall_timeout: float | str
    """Time after which other drivers accept for a stalled driver."""
    domain: Text | Sequence[Text]
    """Name to serve over HTTPS with an automatic certificate (repeatable)."""
    acme_terms: bool
    """Agree to the terms of service of the certificate authority."""
    acme_email: Text
    """E-mail address for messages of the certificate authority, or off."""
    acme_directory: Text
    """URL of the certificate authority's ACME directory."""
    acme_staging: Text
    """URL of the ACME directory that a second try goes to first, auto or off."""
    acme_ca: Text
    """File with the roots of a private certificate authority, or off."""
    acme_challenges: Text | Sequence[str]
    """Challenges that prove the names to the authority, the preferred first."""
    acme_storage: Text
    """Folder for certificates, keys and accounts, or auto."""
    tls_cert: Text
    """Certificate chain (PEM); switches HTTPS on."""
    tls_key: Text
    """Private key of `tls_cert`, in PEM."""
    tls_key_password_file: Text
    """File with the password of the private key, or env:NAME for a variable."""
    tls_unknown_name: Literal["default", "reject"]
    """Certificate for names that no certificate is for: default or reject."""
    tls_versions: Text | Sequence[str]
    """Versions of TLS."""
    tls_client_ca: Text
    """Authorities whose client certificates are accepted, in PEM."""
    tls_client_auth: Literal["require", "request"]
    """Whether clients must show a certificate: require or request."""
    tls_crl: Text
    """Revoked client certificates, as lists (CRL) of their authorities."""
    tls_ocsp: Text
    """OCSP response to staple to the certificate, in DER."""
    tls_ticket_keys: Text
    """File with the keys of session tickets, or auto."""
    https_redirect: Text
    """Redirect requests over plain HTTP to HTTPS: on, off, or the port of HTTPS."""
    hsts: Text
    """Time that browsers use HTTPS only (Strict-Transport-Security), or off."""
    tls_handshake_timeout: float | str
    """Maximum time a client may take for the TLS handshake."""
    trusted_proxies: Text | Sequence[str]
    """Proxies whose word about their clients is believed."""
    trusted_proxy_groups: Text | Sequence[str]
    """Groups whose processes are trusted on unix sockets."""
    forwarded_headers: Text | Sequence[str]
    """Headers of trusted proxies that describe the client."""
    proxy_protocol_from: Text | Sequence[str]
    """Peers that begin each connection with a PROXY protocol header, or off."""
    processes: Text
    """Number of serving processes, or auto for one per processor."""
    user: Text
    """User to run as, by name or number, or off."""
    group: Text
    """Group to run as, by name or number, or off for the user's own."""
    umask: Text
    """File mode creation mask of the serving processes, in octal, or off."""
    preload: bool
    """Import the application once and fork the serving processes from it."""
    hooks: Text | Sequence[Text] | Mapping[str, Text | Sequence[Text]]
    """Function to call at a moment of a process's life (repeatable)."""
    start_timeout: Text
    """Maximum time a new process may take to start, or off."""
    heartbeat_timeout: Text
    """Time after which an unresponsive process is replaced, or off."""
    process_requests_max: Text
    """Requests after which a process is replaced, or off."""
    process_age_max: Text
    """Age at which a process is replaced, or off."""
    process_resident_max: Text
    """Resident memory at which a process is replaced, or off."""
    recycle_jitter: Text
    """Random extra, up to this percentage, on each process's recycling limits."""
    reload: bool
    """Restart when the code or the configuration changes, for development."""
    reload_dir: Text | Sequence[Text]
    """Additional folder for `reload` to watch (repeatable)."""
    reload_file: Text | Sequence[Text]
    """Additional file for `reload` to watch (repeatable)."""
    control: Text
    """Unix socket for control commands (milepost reload ...), auto or off."""
    admin_bind: Text
    """Address for metrics and the state of the server, or off."""
    admin_token_file: Text
    """File with the token that admin_bind asks for."""
    statsd: Text
    """Address of a StatsD server, or off."""
    statsd_prefix: Text
    """First part of the names that statsd gets."""
    pid_file: Text
    """File for the process id of the running server, or off."""
    threads: Text
    """Worker threads that run the application, as MIN:MAX or one number."""
    queue_len_max: int
    """Maximum number of requests in the queue before clients get 503."""
    queue_target: float | str
    """Queue time that the pool aims for; longer waits make it grow."""
    queue_timeout: float | str
    """Maximum time in the queue before the client gets 503."""
    overload_timeout: Text
    """Maximum queue time of an overloaded pool before a 503, or auto."""
    health_reserve: Text
    """Threads, and places in the queue, reserved for health checks."""
    request_timeout: Text
    """Maximum time the application may spend on a request before a 504, or off."""
    slow_pool: Text
    """Pool for routes that have become slow, or off."""
    slow_after: float | str
    """Median run time at which a route moves to `slow_pool`."""
    slow_request: Text
    """Run time after which a request's stack goes to the error log, or off."""
    body_bytes_max: float | str
    """Maximum size of a request body before the client gets 413."""
    head_bytes_max: float | str
    """Maximum size of a request head before the client gets 431."""
    target_bytes_max: float | str
    """Maximum length of a path with its query before the client gets 414."""
    header_bytes_max: float | str
    """Maximum size of one header field before the client gets 431."""
    headers_len_max: int
    """Maximum number of header fields before the client gets 431."""
    chunk_line_bytes_max: float | str
    """Maximum length of a chunk's size line, with extensions."""
    trailer_bytes_max: float | str
    """Maximum size of the trailer fields after a chunked body."""
    http2_streams_max: int
    """Maximum number of requests under way on one HTTP/2 connection."""
    head_timeout: float | str
    """Maximum time a client may take to send a request head."""
    body_timeout: float | str
    """Maximum time a request body may lag behind `body_rate_min`."""
    body_rate_min: float | str
    """Minimum rate of a request body, in bytes a second; 0 allows any."""
    idle_timeout: float | str
    """Time after which an idle keep-alive connection is closed."""
    connection_age_max: Text
    """Age at which a connection is closed after the request under way, or off."""
    send_timeout: float | str
    """Maximum time a response may lag behind `send_rate_min`."""
    send_rate_min: float | str
    """Minimum rate at which clients take responses, bytes a second; 0 allows any."""
    linger_timeout: float | str
    """Time the server reads and drops the rest of a refused body."""
    drain_timeout: float | str
    """Time a process may take to finish requests after SIGTERM or a replacement."""
    client_connections_max: Text
    """Maximum number of open connections of one client before a 429, or off."""
    client_prefix_v4: int
    """Leading bits of an IPv4 address that identify a client."""
    client_prefix_v6: int
    """Leading bits of an IPv6 address that identify a client."""
    rate_connection: Text
    """Bandwidth limit of each connection, in bytes a second, or off."""
    rate_pool: Text
    """Bandwidth limit of all responses of the application, or off."""
    body_memory_max: float | str
    """Largest request body to keep in memory; larger ones go to a file."""
    spoolers: int
    """Threads that write request bodies and waiting responses to files."""
    spool_dir: Text
    """Folder of temporary files (default: the system's)."""
    reply_spool_bytes_max: float | str
    """Unsent bytes of a streamed response at which its worker waits for the client."""
    stream_wait_timeout: float | str
    """Maximum time a worker waits for the client of a streamed response."""
    reply_memory_max: float | str
    """Memory for all responses that wait for slow clients."""
    compress: Text | Sequence[str]
    """Compress the application's responses: br, zstd, gzip, best first, or off."""
    compress_size_min: float | str
    """Smallest response to compress, if its length is known."""
    compress_level_br: int
    """Compression level of br, from 0 (fastest) to 11 (smallest)."""
    compress_level_zstd: int
    """Compression level of zstd, from 1 (fastest) to 19 (smallest)."""
    compress_level_gzip: int
    """Compression level of gzip, from 1 (fastest) to 9 (smallest)."""
    compress_types: Text | Sequence[str]
    """Media types to compress."""
    access_log: Text | Sequence[Text]
    """Access log: a file, -, stderr, syslog, auto or off (repeatable)."""
    access_log_format: Text
    """Format of access-log lines: a name, or a text with {field}s."""
    error_log: Text | Sequence[Text]
    """Error log: a file, -, stderr, syslog or off (repeatable)."""
    error_log_format: Literal["text", "json"]
    """Format of error-log entries: text or json."""
    error_log_level: Literal["error", "warning", "info"]
    """Level of error logs that name none: error, warning or info."""
    log_buffer: float | str
    """Memory of each process for log lines that wait to be written."""
    log_overflow: Literal["drop", "wait"]
    """What happens if `log_buffer` is full: drop lines or wait."""
    log_flush: float | str
    """Maximum time a log line waits to be written."""
    log_mask_v4: int
    """Leading bits of client IPv4 addresses to log; the others become 0."""
    log_mask_v6: int
    """Leading bits of client IPv6 addresses to log; the others become 0."""
    log_query: bool
    """Log the query (`?name=value`) of targets and referers."""
    log_rotate_size: Text
    """Size at which a log file is renamed and a new one begins, or off."""
    log_rotate_every: Text
    """Interval at which log files are renamed and new ones begin, or off."""
    log_keep: Text
    """Number of old files to keep of each log, or off for all."""
    log_keep_age: Text
    """Age at which old log files are deleted, or off."""
    log_compress: Literal["off", "gzip"]
    """Compression of old log files: gzip or off."""
    request_id_header: Text
    """Header for the request id, such as X-Request-Id, or off."""
    traces: Text
    """Traces: off, ids, otel or the URL of a collector."""
    traces_sample: Text
    """Share of the traces to record that begin at this server."""
    traces_parents: Literal["all", "trusted"]
    """Clients whose traces are continued: all or trusted."""
    server_header: Text
    """Server header of responses that have none, or off."""
    server_timing: bool
    """Add a Server-Timing header with the request's phases."""
    status_path: Text
    """URL path of the server's counters as JSON, or off."""
    health_path: Text
    """Path at which the server answers 200 without the application, or off."""
    ready_path: Text
    """Path at which the server answers 200 if it can serve requests, or off."""
    load_report: Literal["trusted", "off"]
    """Load of the server in responses to trusted_proxies: trusted or off."""
    load_path: Text
    """Path that answers with the load of the server as JSON, or off."""
