//! Whole loads: every key, its good and its bad values, and what does not go together.

use telemetry::Nanos;

use super::*;
use crate::tests::{check_cases, fault_text};

/// `body` holds `abc`; `log` has two requests, `posts` one that may change something. Some names have addresses.
pub(super) struct Folder;

impl Files for Folder {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        match path.to_str() {
            Some("body") => Ok(b"abc".to_vec()),
            Some("mix") => Ok(b"[[request]]\ntarget = '/m'\n".to_vec()),
            _ => Err(io::Error::from_raw_os_error(2)),
        }
    }

    fn recording(&self, path: &Path) -> Result<Recording, Fault> {
        let mut recording = Recording::default();
        let second = match path.to_str() {
            Some("log") => "HEAD",
            Some("posts") => "POST",
            _ => return Err(Fault::new("`no`: cannot be read")),
        };
        recording.push(Nanos::from_ms(500), "GET", "/a").unwrap();
        recording.push(Nanos::from_ms(1_500), second, "/b").unwrap();
        Ok(recording)
    }

    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let found: &[&str] = match host {
            "localhost" => &["::1", "127.0.0.1"],
            "six" => &["fd00::1"],
            "half" => &["10.0.0.1", "93.184.215.14"],
            "mapped" => &["::ffff:8.8.8.8"],
            "public" => &["93.184.215.14"],
            "nowhere" => &[],
            "unknown" => return Err(io::Error::other("unknown name")),
            address => &[address],
        };
        let found = found.iter();
        Ok(found
            .map(|ip| SocketAddr::new(ip.parse().unwrap(), port))
            .collect())
    }
}

/// `key=value` for each word; words are separated by ` | `.
fn written(line: &str) -> LoadSpec {
    let mut written = LoadSpec::default();
    for word in line.split(" | ").filter(|word| !word.starts_with('(')) {
        let (name, text) = word.split_once('=').unwrap();
        assert!(written.put(name, text), "{name}");
    }
    if written.texts("url").is_empty() && line != "(nothing)" {
        written.put("url", "http://127.0.0.1:8000/x");
    }
    written
}

#[track_caller]
fn plan(line: &str) -> Plan {
    match written(line).plan(&Folder) {
        Ok(plan) => plan,
        Err(faults) => panic!("{line}: {faults:?}"),
    }
}

/// The parts of a plan that are not as by default, but for the requests.
fn changed(line: &str) -> String {
    let shown = |line| {
        format!(
            "{:?}",
            Plan {
                requests: Vec::new(),
                ..plan(line)
            }
        )
    };
    let (usual, all) = (shown("(default)"), shown(line));
    let usual: Vec<&str> = usual.split(", ").collect();
    let parts = all.split(", ").filter(|part| !usual.contains(part));
    parts.collect::<Vec<_>>().join(", ")
}

fn faults(line: &str) -> String {
    let faults = written(line).plan(&Folder).map(|_| ()).unwrap_err();
    let texts: Vec<String> = faults.into_iter().map(fault_text).collect();
    texts.join("\n")
}

#[test]
fn has_the_defaults_that_the_table_says() {
    let plain = plan("(default)");
    let mut said = LoadSpec::default();
    for key in keys().iter().filter(|key| !key.default.is_empty()) {
        // They mean something only beside another one.
        let others = [
            "arrivals",
            "seed",
            "replay_speed",
            "replay_methods",
            "spin",
            "streams",
        ];
        if !others.contains(&key.name) {
            assert!(said.put(key.name, key.default), "{}", key.name);
        }
    }
    said.put("url", "http://127.0.0.1:8000/x");
    let mut said = said.plan(&Folder).unwrap();
    // Two ways to say the same.
    assert_eq!(said.expect.statuses, (200..400).collect::<Vec<_>>());
    said.expect.statuses.clear();
    assert_eq!(format!("{plain:?}"), format!("{said:?}"));
    for (line, same) in [
        ("rate=5", "rate=5 | arrivals=constant | spin=0"),
        ("http2=true", "http2=true | streams=1"),
        (
            "replay=log",
            "replay=log | replay_speed=1 | replay_methods=safe",
        ),
    ] {
        assert_eq!(changed(line), changed(same));
    }
}

#[test]
fn understands_streams() {
    assert_eq!(
        changed("http2=true | streams=32"),
        "in_flight: 32, protocol: Http2"
    );
}

#[test]
fn a_websocket_load_has_one_message_and_a_handshake() {
    let plan = plan("websocket=true | body=hi | header=Authorization: x");
    let [kind] = plan.requests.as_slice() else {
        panic!("{:?}", plan.requests);
    };
    // A text in one masked frame.
    assert_eq!(
        (kind.name.as_str(), kind.bytes[0], kind.bytes[1]),
        ("message of 2 bytes", 0x81, 0x82)
    );
    assert_eq!(kind.bytes.len(), 2 + 4 + 2);
    let upgrade = plan.upgrade.unwrap();
    let upgrade = str::from_utf8(&upgrade).unwrap();
    assert!(upgrade.ends_with("\r\nAuthorization: x\r\n"), "{upgrade}");
    assert!(!upgrade.contains("\r\n\r\n"), "{upgrade}");
    assert_eq!(plan.expect.statuses, [101]);
}

#[test]
fn understands_every_key() {
    let cases = r#"
rate=2000 | arrivals=poisson | seed=7
    load: Open { arrivals: Poisson { seed: 7 }, rate: Profile { legs: [], rest: 2000.0 } }
rate=5 | spin=60us
    load: Open { arrivals: Constant, rate: Profile { legs: [], rest: 5.0 } }, spin: Nanos(60000)
rate=50:20s,60:10s
    load: Open { arrivals: Constant, rate: Profile { legs: [Leg { from: 50.0, to: 50.0, lasts: Nanos(20000000000) }, Leg { from: 60.0, to: 60.0, lasts: Nanos(10000000000) }], rest: 60.0 } }, duration: Some(Nanos(30000000000))
rate=50:20s | warm_up=5s
    load: Open { arrivals: Constant, rate: Profile { legs: [Leg { from: 50.0, to: 50.0, lasts: Nanos(20000000000) }], rest: 50.0 } }, length: Length { begin: After(Nanos(5000000000)), duration: Some(Nanos(15000000000))
replay=log | replay_speed=2
    load: Recorded { arrivals: [Arrival { offset: Nanos(0), kind: 0 }, Arrival { offset: Nanos(500000000), kind: 1 }] }, duration: None, requests: Some(2) }
replay=log | warm_up=500ms
    load: Recorded { arrivals: [Arrival { offset: Nanos(0), kind: 0 }, Arrival { offset: Nanos(1000000000), kind: 1 }] }, length: Length { begin: After(Nanos(500000000)), duration: None, requests: Some(1) }
replay=log | duration=3s
    load: Recorded { arrivals: [Arrival { offset: Nanos(0), kind: 0 }, Arrival { offset: Nanos(1000000000), kind: 1 }] }, duration: Some(Nanos(3000000000))
burst=true | connections=7 | pipeline=2
    load: Burst, connections: Connections { len: 7, in_flight: 2, duration: None, requests: Some(14) }
duration=3
    duration: Some(Nanos(3000000000))
duration=1m | requests=5
    duration: Some(Nanos(60000000000)), requests: Some(5) }
requests=5
    duration: None, requests: Some(5) }
begin=now
begin=open
    length: Length { begin: AllOpen
warm_up=2s
    length: Length { begin: After(Nanos(2000000000))
warm_up=2s | begin=warm-up
    length: Length { begin: After(Nanos(2000000000))
connections=250 | pipeline=4 | requests_per_connection=8 | close=server
    connections: Connections { len: 250, in_flight: 4, requests_each: Some(8), closing: Server
connect_rate=0.5 | timeout=2s | close=rst
    closing: Rst, opened_per_s: Some(0.5), timeout: Nanos(2000000000) }
source=127.0.0.2
    sources: [127.0.0.2]
source=127.0.0.2-127.0.0.4, 127.0.1.1
    sources: [127.0.0.2, 127.0.0.3, 127.0.0.4, 127.0.1.1]
source=127.0.0.255-127.0.1.0
    sources: [127.0.0.255, 127.0.1.0]
expect_status=200,204 | expect_length=1K | expect_body=sha256:00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff
    expect: Expect { statuses: [200, 204], body_bytes: Some(1024), body: Sha256([0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255]) }
expect_body=same
    body: SameAsFirst }
expect_body=any
threads=4 | cpus=1,2 | timestamps=kernel
    machine: Machine { threads: 4, cpus: [1, 2], timestamps: Kernel
server_pid=7 | server_pid=8 | bad_clients=3:idle
    bad_clients: [BadClients { len: 3, misbehaviour: Idle, receive_buffer_bytes: None }], server_pids: [7, 8] } }
url=http://localhost:8000/
    Plan { target: Target { url: "http://localhost:8000/", host: "localhost:8000", path: "/" }
url=http://six/
    Plan { target: Target { url: "http://six/", address: Ip([fd00::1]:80), host: "six", path: "/" }
url=http://[::1]:81/
    Plan { target: Target { url: "http://[::1]:81/", address: Ip([::1]:81), host: "[::1]:81", path: "/" }
url=http://a.b/c | unix=/s
    Plan { target: Target { url: "http://a.b/c", address: Unix("/s"), host: "a.b", path: "/c" }
url=http://public/ | i_own_this_target=true
    Plan { target: Target { url: "http://public/", address: Ip(93.184.215.14:80), host: "public", path: "/" }
url=https://localhost/ | cacert=ca.pem
    Plan { target: Target { url: "https://localhost/", scheme: Https(Tls { server_name: "localhost", trust: Authority("ca.pem"), resumes: true }), address: Ip(127.0.0.1:443), host: "localhost", path: "/" }
url=https://127.0.0.1/ | insecure=true
    Plan { target: Target { url: "https://127.0.0.1/", scheme: Https(Tls { server_name: "127.0.0.1", trust: Anybody, resumes: true }), address: Ip(127.0.0.1:443), host: "127.0.0.1", path: "/" }
url=https://[::1]/ | insecure=true | no_resumption=true
    Plan { target: Target { url: "https://[::1]/", scheme: Https(Tls { server_name: "::1", trust: Anybody, resumes: false }), address: Ip([::1]:443), host: "[::1]", path: "/" }
url=https://127.0.0.1/ | insecure=true | server_name=shop.example
    Plan { target: Target { url: "https://127.0.0.1/", scheme: Https(Tls { server_name: "shop.example", trust: Anybody, resumes: true }), address: Ip(127.0.0.1:443), host: "127.0.0.1", path: "/" }
"#;
    check_cases(cases, changed);
}

#[test]
fn makes_the_requests() {
    let cases = r"
(default)
    GET /x HTTP/1.1\r\n... \r\n
method=DELETE
    DELETE /x HTTP/1.1\r\n... \r\n
header=A:b:c | header=Host: z
    GET /x HTTP/1.1\r\nA: b:c\r\nHost: z\r\n\r\n
body=
    POST /x HTTP/1.1\r\n... Content-Length: 0\r\n\r\n
body_file=body | method=PUT
    PUT /x HTTP/1.1\r\n... Content-Length: 3\r\n\r\nabc
body_size=38
    POST /x HTTP/1.1\r\n... Content-Length: 38\r\n\r\nabcdefghijklmnopqrstuvwxyz0123456789ab
requests_file=mix
    GET /m HTTP/1.1\r\n... \r\n
replay=posts | replay_methods=all | body=q
    GET /a HTTP/1.1\r\n... \r\n
    POST /b HTTP/1.1\r\n... Content-Length: 1\r\n\r\nq
";
    let bytes = |request: &crate::plan::Request| request.bytes.escape_ascii().to_string();
    check_cases(cases, |line| {
        let all: Vec<String> = plan(line).requests.iter().map(bytes).collect();
        all.join("\n").replace(r"Host: 127.0.0.1:8000\r\n", "... ")
    });
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn says_for_every_key_what_it_expected() {
    let cases = "
duration=soon
    `--duration`: expected a time as `10s` or `500ms`, at most 30d, found `soon`
duration=0
    `--duration`: expected a time of more than 0, found `0`
requests=0
    `--requests`: expected a count from 1 to 1000000000000, found `0`
rate=fast
    `--rate`: expected a number up to 100000000, steps as `500:10s,1000:10s` or a ramp as `100..2000:30s`, found `fast`
rate=1 | arrivals=often
    `--arrivals`: expected one of constant, poisson, found `often`
rate=1 | spin=long
    `--spin`: expected a time as `10s` or `500ms`, at most 30d, found `long`
replay=log | replay_speed=0 | replay_methods=some
    `--replay-speed`: expected a number of more than 0, at most 1000000, found `0`
    `--replay-methods`: expected one of safe, all, found `some`
warm_up=x
    `--warm-up`: expected a time as `10s` or `500ms`, at most 30d, found `x`
begin=later
    `--begin`: expected one of now, warm-up, open, found `later`
connections=many
    `--connections`: expected a count from 1 to 4000000, found `many`
connections=1.5
    `--connections`: expected a count from 1 to 4000000, found `1.5`
pipeline=0
    `--pipeline`: expected a count from 1 to 1024, found `0`
requests_per_connection=0
    `--requests-per-connection`: expected a count from 1 to 1000000000000, found `0`
close=gently
    `--close`: expected one of rst, fin, server, found `gently`
connect_rate=0
    `--connect-rate`: expected a number of more than 0, at most 100000000, found `0`
timeout=0
    `--timeout`: expected a time of more than 0, found `0`
source=127.0.0.4-127.0.0.2
    `--source`: expected addresses as `127.0.0.2-127.0.0.9,127.0.1.1`, at most 65536, found `127.0.0.4-127.0.0.2`
source=localhost
    `--source`: expected addresses as `127.0.0.2-127.0.0.9,127.0.1.1`, at most 65536, found `localhost`
source=127.0.0.2-::1
    `--source`: expected addresses as `127.0.0.2-127.0.0.9,127.0.1.1`, at most 65536, found `127.0.0.2-::1`
source=127.0.0.0-127.1.0.0
    `--source`: expected addresses as `127.0.0.2-127.0.0.9,127.0.1.1`, at most 65536, found `127.0.0.0-127.1.0.0`
source=1.2.3
    `--source`: expected addresses as `127.0.0.2-127.0.0.9,127.0.1.1`, at most 65536, found `1.2.3`
source=
    `--source`: expected addresses as `127.0.0.2-127.0.0.9,127.0.1.1`, at most 65536, found ``
header=nothing
    `--header`: expected a header as `Name: value`, found `nothing`
header= A: b
    `--header`: expected a header as `Name: value`, found ` A: b`
body_size=1G
    `--body-size`: expected bytes as `1024` or `64K`, at most 268435456, found `1G`
expect_status=ok
    `--expect-status`: expected statuses as `200,304`, `2xx` or `200-204`, found `ok`
expect_length=-1
    `--expect-length`: expected bytes as `1024` or `64K`, at most 1099511627776, found `-1`
expect_body=sha256:00
    `--expect-body`: expected same, any, or sha256: and 64 hexadecimal digits, found `sha256:00`
expect_body=md5:0
    `--expect-body`: expected same, any, or sha256: and 64 hexadecimal digits, found `md5:0`
expect_body=sha256:00000000000000000000000000000000000000000000000000000000000000é
    `--expect-body`: expected same, any, or sha256: and 64 hexadecimal digits, found `sha256:00000000000000000000000000000000000000000000000000000000000000é`
threads=0
    `--threads`: expected a count from 1 to 1024, found `0`
cpus=all
    `--cpus`: expected processors as `0,2-3`, found `all`
timestamps=never
    `--timestamps`: expected one of read, kernel, found `never`
server_pid=0
    `--server-pid`: expected a process id, found `0`
url=ftp://a/ | connections=0 | timeout=never | header=x | bad_clients=some
    `ftp://a/`: `ftp` is not spoken here > http and https are; `--unix PATH` names a unix socket
    `--header`: expected a header as `Name: value`, found `x`
    `--connections`: expected a count from 1 to 4000000, found `0`
    `--timeout`: expected a time as `10s` or `500ms`, at most 30d, found `never`
    `--bad-clients`: expected N:WHAT, where WHAT is never-reads, reads-at=SIZE, trickles=TIME, idle, half-closes or resets=TIME, and may be followed by :receive-buffer=SIZE, found `some`
method=G T
    request: `G T` is no method
method=CONNECT
    request: CONNECT is not sent > it makes a tunnel of the connection
header=Expect: 100-continue
    request: `Expect` is made by the generator itself
body_file=no
    `--body-file`: `no` cannot be read: no such file or directory > it has to be a file that this user may read
requests_file=no
    `--requests-file`: `no` cannot be read: no such file or directory > it has to be a file that this user may read
replay=no
    `no`: cannot be read
";
    check_cases(cases, faults);
}

#[test]
fn says_all_that_does_not_go_together() {
    let cases = "
rate=5 | burst=true
    `--rate` and `--burst`: exclude each other > requests leave by a clock, by a recording, or all at once: keep one of them
arrivals=poisson
    `--arrivals`: means nothing without `--rate` > `--rate 2000` has requests leave by a clock
rate=5 | seed=1
    `--seed`: constant arrivals have none > `--arrivals poisson` has gaps that come from a seed
spin=1ms
    `--spin`: means nothing without `--rate` > requests of a rate are due at a time, others are not
replay_speed=2
    `--replay-speed`: means nothing without `--replay` > `--replay FILE` names a recording
replay=log | method=GET
    `--method` and `--replay`: exclude each other > a recording has its own methods
replay=log | requests_file=mix
    `--requests-file` and `--replay`: exclude each other > each says what is asked for: keep one of them
requests_file=mix | body=x
    `--body` and `--requests-file`: exclude each other > write the bodies into the file
body=x | body_file=body
    `--body` and `--body-file`: exclude each other > a request has one body: keep one of them
replay=posts
    `--replay`: requests that may change something: 1 POST > `--replay-methods all` sends them with the body of `--body`, or an empty one
close=server
    `--close`: means nothing without `--requests-per-connection` > the server ends a connection after its last request: `--requests-per-connection 1`
burst=true | requests=5
    `--requests`: a burst has as many as connections may have in flight > more connections, or more requests in flight on each (`--pipeline`, `--streams`)
streams=5
    `--streams`: means nothing without `--http2` > `--http2 --streams 32`; requests of HTTP/1.1 in flight are `--pipeline`
http2=true | pipeline=5 | close=server | requests_per_connection=1 | bad_clients=1:idle
    `--pipeline`: HTTP/2 does not pipeline requests > `--streams` is the number of requests in flight on each connection
    `--close server`: a request of HTTP/2 cannot ask the server to end the connection > `--close fin` or `--close rst`
    `--bad-clients`: the misbehaving clients speak HTTP/1.1 only > leave `--http2` out, or have a second `milepost bench` run them
http2=true | header=Upgrade: x
    request: HTTP/2 has no header `Upgrade: x` > leave `--http2` out, or change the request
websocket=true | http2=true
    `--http2` and `--websocket`: exclude each other > each is a protocol of its own: keep one of them
websocket=true | method=POST | expect_status=200 | close=server | requests_per_connection=1
    `--method` and `--websocket`: exclude each other > the requests of `--websocket` are messages
    `--expect-status` and `--websocket`: exclude each other > the requests of `--websocket` are messages
    `--close server`: a message cannot ask the server to end the connection > `--close fin` or `--close rst`
begin=warm-up
    `--begin warm-up`: how long is not said > `--warm-up 2s`, for example
begin=open | warm_up=1s
    `--begin open` and `--warm-up`: exclude each other > leave one of them out
rate=5:1s | warm_up=1s
    `--warm-up`: the last step is over before > a shorter one, or `--duration`
replay=log | warm_up=2s
    `--warm-up`: the recording is over before > a shorter one, or none
threads=3 | connections=2
    load: more threads than connections: give fewer threads or more connections
pipeline=5 | requests_per_connection=4
    load: more requests in flight than a connection may send: lower `--pipeline` or `--streams`
rate=5 | begin=open
    load: only a closed load can begin to count when all connections are open
timestamps=kernel | unix=/s
    load: a unix socket has no timestamps of the kernel: use `--timestamps read`
url=https://127.0.0.1/ | insecure=true | timestamps=kernel
    load: the kernel's timestamps are of packets, not of what TLS makes of them: use `--timestamps read`
";
    check_cases(cases, faults);
}

#[test]
fn says_what_is_wrong_with_a_target() {
    let cases = "
(nothing)
    `URL`: is missing > `milepost bench http://127.0.0.1:8000/`
url=http://8.8.8.8/
    `8.8.8.8`: is neither loopback nor a private or test address > a load may take a server away from others: `--i-own-this-target` if it is yours
url=http://[2606:4700::1111]/
    `2606:4700::1111`: is neither loopback nor a private or test address > a load may take a server away from others: `--i-own-this-target` if it is yours
url=http://public/
    `public`: leads to 93.184.215.14, which is neither loopback nor a private or test address > a load may take a server away from others: `--i-own-this-target` if it is yours
url=http://half/
    `half`: leads to 93.184.215.14, which is neither loopback nor a private or test address > a load may take a server away from others: `--i-own-this-target` if it is yours
url=http://mapped/
    `mapped`: leads to ::ffff:8.8.8.8, which is neither loopback nor a private or test address > a load may take a server away from others: `--i-own-this-target` if it is yours
url=https://public/
    `public`: leads to 93.184.215.14, which is neither loopback nor a private or test address > a load may take a server away from others: `--i-own-this-target` if it is yours
url=http://unknown/
    `unknown`: no address is known: unknown name > see /etc/hosts and /etc/resolv.conf, or write the address
url=http://nowhere/
    `nowhere`: no address is known
url=http://0.0.0.0:1/
    `0.0.0.0`: is where servers listen, and nowhere to connect to > ask 127.0.0.1 or [::1]
url=http://[::]/
    `::`: is where servers listen, and nowhere to connect to > ask 127.0.0.1 or [::1]
url=http://localhost/ | unix=
    `--unix`: expected a path, found ``
url=https://localhost/
    https: it is not said whose certificates are trusted > `--cacert FILE` with the authority's certificate (the system's: /etc/ssl/certs/ca-certificates.crt), or `--insecure`
url=https://localhost/ | cacert=a | insecure=true
    `--cacert` and `--insecure`: exclude each other > leave `--insecure` out to have the certificate checked
cacert=a | insecure=true | no_resumption=true | server_name=a
    `--cacert`: only an https target speaks TLS > begin the URL with `https://`, or leave it out
    `--insecure`: only an https target speaks TLS > begin the URL with `https://`, or leave it out
    `--no-resumption`: only an https target speaks TLS > begin the URL with `https://`, or leave it out
    `--server-name`: only an https target speaks TLS > begin the URL with `https://`, or leave it out
unix=/s | source=127.0.0.2
    `--source`: a unix socket has no local addresses > leave `--source` out
url=http://six/ | source=127.0.0.2
    `--source`: the target is [fd00::1]:80: not both IPv4 or both IPv6 > write the URL with an address of the same kind
";
    check_cases(cases, faults);
}

#[test]
fn resolves_names_of_this_machine() {
    struct Here;
    impl Files for Here {
        fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
            Err(io::ErrorKind::NotFound.into())
        }
        fn recording(&self, _: &Path) -> Result<Recording, Fault> {
            Err(Fault::new("no recording"))
        }
    }
    let resolved = Here.resolve("127.0.0.1", 80);
    assert_eq!(resolved.unwrap(), ["127.0.0.1:80".parse().unwrap()]);
}

#[test]
fn says_something_about_every_key() {
    for key in keys() {
        let name = key.name;
        assert!(!key.help.is_empty() && !key.help.ends_with('.'), "{name}");
        assert!(key.doc.is_empty() || key.doc.ends_with('.'), "{name}");
        let has_value = key.form != FlagForm::Switch;
        assert_eq!(has_value, !key.placeholder.is_empty(), "{name}");
    }
}
