"""What goes wrong around a proxy: upstreams that die, stop and lie, clients that are slow or malformed."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from readers import READERS, read
from upstreams import Connection, Request, Upstream, answering

from raw import CutShort, request
from serving import DEADLINE_S, Milepost, free_port, tables, until

SCRIPT = Path(__file__).parent / "recording_upstream.py"
LONG = [pytest.mark.conformance, pytest.mark.timeout(900)]


def proxy(serve: Callable[..., Milepost], *ports: int, **options: object) -> Milepost:
    """A server that passes everything on to these ports."""
    servers = [f"http://127.0.0.1:{port}" for port in ports]
    toml = tables("route", {"path": "/", "upstream": "back"})
    return serve(toml=toml + tables("upstream", {"name": "back", "servers": servers} | options))


class Recording:
    """An upstream that is a process."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._record = folder / f"record-{self.port}"
        self._record.touch()
        self.start()

    def start(self) -> None:
        """Until it takes connections."""
        argv = [sys.executable, str(SCRIPT), str(self.port), str(self._record)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self) -> None:
        """At once, as its machine would."""
        self.process.kill()
        self.process.communicate(timeout=DEADLINE_S)

    def seen(self) -> list[str]:
        """What it began to work on: method and target of each."""
        return self._record.read_text().splitlines()


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Callable[[], Recording]]:
    """Starts upstreams that are processes."""
    with contextlib.ExitStack() as stack:

        def start() -> Recording:
            one = Recording(tmp_path)
            stack.callback(one.end)
            return one

        yield start


class Load:
    """Clients that send numbered requests one after the other until they are stopped."""

    def __init__(self, server: Milepost, methods: str = "GET POST", clients: int = 4) -> None:
        self._server = server
        self._stop = threading.Event()
        #: Method, target, and the status; 0: the connection ended without a whole response.
        self.answers: list[tuple[str, str, int]] = []
        self._threads = [
            threading.Thread(target=self._ask, args=(method, f"/{method.lower()}-{number}"), daemon=True)
            for method in methods.split()
            for number in range(clients)
        ]

    def _ask(self, method: str, prefix: str) -> None:
        client = self._server.connect()
        count = 0
        while not self._stop.is_set():
            count += 1
            target = f"{prefix}-{count}"
            try:
                reply = client.ask(method, target, **({"body": b"x"} if method == "POST" else {}))
                assert reply.status != 200 or reply.body == target.encode(), reply
                self.answers.append((method, target, reply.status))
            except CutShort:
                self._server.count()
                self.answers.append((method, target, 0))
                client.__exit__()
                client = self._server.connect()
        client.__exit__()

    def more(self, count: int = 20) -> None:
        """Until so many further requests are answered."""
        wanted = len(self.answers) + count
        assert until(lambda: len(self.answers) >= wanted)

    def until_200(self) -> None:
        """Until requests of both methods are answered by an upstream again."""
        before = {method: self.statuses(method)[200] for method in ("GET", "POST")}
        assert until(lambda: all(self.statuses(method)[200] > count for method, count in before.items()))

    def statuses(self, method: str) -> Counter[int]:
        """How often each status came."""
        return Counter(status for asked, _, status in self.answers if asked == method)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)


def records(server: Milepost, status: int) -> int:
    """Records of that status whose cause is the upstream."""
    cause = re.compile(rf'" {status} .* cause="(the )?upstream\b')
    return sum(cause.search(line) is not None for line in server.lines)


@pytest.mark.parametrize("kills", [8, pytest.param(100, marks=LONG)])
def test_an_upstream_killed_again_and_again_loses_no_get_and_repeats_no_post(
    serve: Callable[..., Milepost], recording: Callable[[], Recording], kills: int
) -> None:
    mortal, other = recording(), recording()
    server = proxy(serve, mortal.port, other.port, retry_budget="100%")
    with Load(server) as load:
        for _ in range(kills):
            load.more()
            mortal.end()
            load.more()
            mortal.start()
        load.more()
    assert set(load.statuses("GET")) == {200}, load.statuses("GET")
    assert set(load.statuses("POST")) <= {200, 502}, load.statuses("POST")
    done = Counter(line for line in mortal.seen() + other.seen() if line.startswith("POST"))
    assert {line: count for line, count in done.items() if count > 1} == {}
    for method, target, status in load.answers:
        assert method != "POST" or status != 200 or done[f"POST {target}"] == 1
    assert until(lambda: records(server, 502) == load.statuses("POST")[502])


def test_an_only_upstream_that_is_killed_is_found_again(
    serve: Callable[..., Milepost], recording: Callable[[], Recording]
) -> None:
    mortal = recording()
    server = proxy(serve, mortal.port)
    with Load(server) as load:
        for _ in range(5):
            load.more()
            mortal.end()
            load.more()
            mortal.start()
            load.until_200()
    assert set(load.statuses("GET") | load.statuses("POST")) <= {200, 502, 503}
    assert max(Counter(line for line in mortal.seen() if line.startswith("POST")).values()) == 1


def test_an_upstream_that_stands_still_costs_its_own_requests_alone(
    serve: Callable[..., Milepost], recording: Callable[[], Recording]
) -> None:
    still, other = recording(), recording()
    server = proxy(serve, still.port, other.port, response_timeout="1s")
    with Load(server) as load:
        load.more()
        still.signal(signal.SIGSTOP)
        seen = len(other.seen())
        assert until(lambda: len(other.seen()) > seen + 20)
        assert until(lambda: load.statuses("GET")[504] + load.statuses("POST")[504] > 0)
        still.signal(signal.SIGCONT)
        seen = len(still.seen())
        load.more(200)
    for method in ("GET", "POST"):
        assert set(load.statuses(method)) <= {200, 504}, load.statuses(method)
    done = Counter(line for line in still.seen() + other.seen() if line.startswith("POST"))
    assert max(done.values()) == 1
    late = load.statuses("GET")[504] + load.statuses("POST")[504]
    assert until(lambda: records(server, 504) == late)


RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + b"b" * 20
HEAD_BYTES = RESPONSE.index(b"b" * 20)


def test_a_reset_after_any_number_of_bytes(serve: Callable[..., Milepost]) -> None:
    def cut(connection: Connection) -> None:
        asked = connection.request()
        assert asked is not None
        connection.send(RESPONSE[: int(asked.target[1:])])
        # What was sent has arrived before the reset does: both are on the same machine.
        connection.reset()

    with Upstream(cut) as upstream:
        server = proxy(serve, upstream.port, retries=0)
        for sent in range(len(RESPONSE) + 1):
            with server.connect() as client:
                client.send(request("GET", f"/{sent}"))
                if HEAD_BYTES < sent < len(RESPONSE):
                    with pytest.raises(CutShort):
                        client.reply()
                    server.count()
                elif sent == len(RESPONSE):
                    assert client.reply().body == b"b" * 20
                elif sent < HEAD_BYTES:
                    assert client.reply().status == 502, sent
                else:
                    # A head alone, whether it was passed on or not when the reset came.
                    with contextlib.suppress(CutShort):
                        assert client.reply().status == 502
                        continue
                    server.count()
        assert upstream.connections == len(RESPONSE) + 1


def test_a_side_that_is_closed_ends_a_connection_not_a_request(serve: Callable[..., Milepost]) -> None:
    """An upstream that sends no more after each response, and goes on reading."""
    sent, over = threading.Semaphore(0), threading.Event()

    def half(connection: Connection) -> None:
        if connection.request() is not None:
            connection.reply(b"one")
            connection.sock.shutdown(socket.SHUT_WR)
            sent.release()
            over.wait(DEADLINE_S)

    with Upstream(half) as upstream, proxy(serve, upstream.port).connect() as client:
        for method in ("GET", "POST") * 5:
            assert client.ask(method, "/", body=b"x").status == 200
            assert sent.acquire(timeout=DEADLINE_S)
        over.set()
        assert len(upstream.seen) == upstream.connections == 10


def test_lengths_that_are_lies(serve: Callable[..., Milepost]) -> None:
    def lie(connection: Connection, asked: Request) -> None:
        promised = 3 if asked.target == "/less" else 300
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nabcHTTP/1.1 200 OK\r\n\r\n" % promised)

    with Upstream(answering(lie)) as upstream:
        server = proxy(serve, upstream.port, response_timeout="500ms")
        for _ in range(3):
            with server.connect() as client:
                assert client.ask("GET", "/less").body == b"abc"
            with server.connect() as client, pytest.raises(CutShort):
                client.send(request("GET", "/more"))
                client.reply()
            server.count()
        assert upstream.connections == 6


def test_an_upstream_that_takes_nothing_is_a_504(serve: Callable[..., Milepost]) -> None:
    over = threading.Event()
    with Upstream(lambda _: over.wait(DEADLINE_S) and None) as upstream:
        server = proxy(serve, upstream.port, response_timeout="500ms")
        with server.connect() as client:
            assert client.ask("POST", "/", body=b"x" * 20_000_000).status == 504
            assert client.ask("GET", "/").status == 504
        over.set()
        assert len(upstream.seen) == 0


# Clients

BIG = 4_000_000
HALF_HEAD = b"GET /half HTTP/1.1\r\nHost: a\r\nX: "
HALF_BODY = b"POST /half HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nxxx"
HALF_CHUNK = b"POST /half HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nxxx"


def test_slow_clients_of_all_kinds_hold_no_slot(serve: Callable[..., Milepost]) -> None:
    """One slot, which each of them would hold for good."""
    inside, most = 0, 0
    lock = threading.Lock()

    def respond(connection: Connection, asked: Request) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        connection.reply(b"x" * BIG if asked.target == "/big" else b"ok")
        with lock:
            inside -= 1

    with Upstream(answering(respond)) as upstream, contextlib.ExitStack() as stack:
        server = proxy(serve, upstream.port, slots=1)
        never_read = [stack.enter_context(server.connect(receive_buffer_bytes=4096)) for _ in range(10)]
        for client in never_read:
            client.send(request("GET", "/big"))
        # All responses wait in the proxy: a client that sends no more before its turn counts as gone.
        assert until(lambda: len(upstream.seen) == 10 and inside == 0)
        # A client may say that it sends no more, and still wants its response.
        for client in never_read[::2]:
            client.sock.shutdown(socket.SHUT_WR)
        for start in (b"", HALF_HEAD, HALF_BODY, HALF_CHUNK):
            for _ in range(10):
                stack.enter_context(server.connect()).send(start)
        with server.connect() as client:
            for _ in range(20):
                assert client.ask("GET", "/").body == b"ok"
        for client in never_read:
            assert len(client.reply().body) == BIG
        assert (inside, most) == (0, 1)
        assert Counter(asked.target for asked in upstream.seen) == {"/big": 10, "/": 20}
        # Each request that breaks off is a record.
        server.count(30)


def test_a_client_that_resets_gives_its_slot_back_at_once(serve: Callable[..., Milepost]) -> None:
    """Whether its upstream has not begun to respond, or is in the middle of a response."""
    asked, over = threading.Semaphore(0), threading.Event()

    def respond(connection: Connection, head: Request) -> None:
        if head.target == "/begun":
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\nabc")
        if head.target == "/":
            connection.reply(b"ok")
        else:
            asked.release()
            over.wait(DEADLINE_S)

    with Upstream(answering(respond)) as upstream:
        server = proxy(serve, upstream.port, slots=1)
        for target in ("/held", "/begun") * 3:
            with server.connect() as client:
                client.send(request("GET", target))
                assert asked.acquire(timeout=DEADLINE_S)
                client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with server.connect() as other:
                # The upstream still has the request of the client before.
                assert other.ask("GET", "/").body == b"ok"
        over.set()
        # Those that were reset are records as well.
        server.count(6)


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(SMUGGLED)
LAST = b"0\r\n\r\n"
#: Behind each of them, so that a connection ends.
END = b"GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def post(*lines: bytes, body: bytes = SMUGGLED) -> bytes:
    return b"POST /one HTTP/1.1\r\nHost: a\r\n" + b"".join(lines) + b"\r\n" + body


#: Requests that two readers may read differently; `True`: it has one meaning after all, and may be passed on.
ODD: dict[str, tuple[bytes, bool]] = {
    "length and chunked": (post(LENGTH, CHUNKED, body=LAST + SMUGGLED), False),
    "chunked and length": (post(CHUNKED, b"Content-Length: 5\r\n", body=LAST + SMUGGLED), False),
    "two lengths": (post(b"Content-Length: 0\r\n", LENGTH), False),
    "one length twice": (post(LENGTH, LENGTH), False),
    "lengths in one line": (post(b"Content-Length: 0, %d\r\n" % len(SMUGGLED)), False),
    "length with a sign": (post(b"Content-Length: +%d\r\n" % len(SMUGGLED)), False),
    "length below zero": (post(b"Content-Length: -1\r\n"), False),
    "length in hexadecimal": (post(b"Content-Length: 0x24\r\n"), False),
    "length with an underscore": (post(b"Content-Length: 3_6\r\n"), False),
    "length of other digits": (post("Content-Length: ³\r\n".encode()), False),
    "length beyond all numbers": (post(b"Content-Length: 18446744073709551652\r\n"), False),
    "empty length": (post(b"Content-Length: \r\n"), False),
    "length with a tab": (post(b"Content-Length:\t%d\t\r\n" % len(SMUGGLED)), True),
    "leading zeros": (post(b"Content-Length: 000%d\r\n" % len(SMUGGLED)), True),
    "space before the colon": (post(b"Content-Length : %d\r\n" % len(SMUGGLED)), False),
    "tab before the colon": (post(b"Transfer-Encoding\t: chunked\r\n", LENGTH), False),
    "space before the name": (post(b" Content-Length: %d\r\n" % len(SMUGGLED)), False),
    "underscore for the hyphen": (post(b"Content_Length: 5\r\n", LENGTH), True),
    "chunked with an underscore": (post(b"Transfer_Encoding: chunked\r\n", LENGTH), True),
    "fold": (post(b"X: a\r\n Content-Length: 0\r\n", LENGTH), False),
    "folded coding": (post(b"Transfer-Encoding:\r\n chunked\r\n", body=LAST + SMUGGLED), False),
    "bare line feed in the head": (post(b"X: a\nContent-Length: 0\r\n", LENGTH), False),
    "bare carriage return": (post(b"X: a\rContent-Length: 0\r\n", LENGTH), False),
    "nul in a value": (post(b"X: a\0b\r\n", LENGTH), False),
    "bytes in a name": (post("Trans\u0131fer-Encoding: chunked\r\n".encode(), LENGTH), False),
    "no colon": (post(b"Content-Length\r\n", LENGTH), False),
    "empty name": (post(b": 0\r\n", LENGTH), False),
    "identity": (post(b"Transfer-Encoding: identity\r\n", LENGTH), False),
    "other coding": (post(b"Transfer-Encoding: gzip, chunked\r\n", body=LAST + SMUGGLED), False),
    "chunked twice": (post(CHUNKED, CHUNKED, body=LAST + SMUGGLED), False),
    "chunked, chunked": (post(b"Transfer-Encoding: chunked, chunked\r\n", body=LAST + SMUGGLED), False),
    "chunked not last": (post(b"Transfer-Encoding: chunked, gzip\r\n", body=LAST + SMUGGLED), False),
    "xchunked": (post(b"Transfer-Encoding: xchunked\r\n", LENGTH), False),
    "quoted chunked": (post(b'Transfer-Encoding: "chunked"\r\n', LENGTH), False),
    "chunked with a vertical tab": (post(b"Transfer-Encoding: \x0bchunked\r\n", LENGTH), False),
    "capitals": (post(b"TRANSFER-ENCODING: ChUnKeD\r\n", body=b"1\r\na\r\n" + LAST), True),
    "chunk with an extension": (post(CHUNKED, body=b'1;a="\\"";b\r\na\r\n' + LAST), True),
    "line feed in an extension": (post(CHUNKED, body=b"1;a\nb\r\na\r\n" + LAST + SMUGGLED), False),
    "size with a sign": (post(CHUNKED, body=b"+1\r\na\r\n" + LAST), False),
    "size with 0x": (post(CHUNKED, body=b"0x1\r\na\r\n" + LAST), False),
    "size with an underscore": (post(CHUNKED, body=b"1_0\r\n" + b"a" * 16 + b"\r\n" + LAST), False),
    "size with a space": (post(CHUNKED, body=b"1 \r\na\r\n" + LAST), False),
    "empty size": (post(CHUNKED, body=b"\r\n" + SMUGGLED), False),
    "size beyond all numbers": (post(CHUNKED, body=b"10000000000000001\r\na\r\n" + LAST), False),
    "size with a bare line feed": (post(CHUNKED, body=b"1\na\r\n" + LAST), False),
    "data beyond its size": (post(CHUNKED, body=b"1\r\nab\r\n" + LAST + SMUGGLED), False),
    "data without an end": (post(CHUNKED, body=b"1\r\na" + LAST + SMUGGLED), False),
    "trailers that frame": (post(CHUNKED, body=b"1\r\na\r\n0\r\nContent-Length: 9\r\n\r\n"), True),
    "trailer with a fold": (post(CHUNKED, body=b"0\r\nX: a\r\n b\r\n\r\n" + SMUGGLED), False),
    "named by Connection": (post(b"Connection: Content-Length\r\n", LENGTH), True),
    "chunked of HTTP/1.0": (b"POST /one HTTP/1.0\r\n" + CHUNKED + b"\r\n" + LAST + SMUGGLED, False),
    "a get with a body": (b"GET /one HTTP/1.1\r\nHost: a\r\n" + LENGTH + b"\r\n" + SMUGGLED, True),
    "two hosts": (b"GET /one HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", False),
    "host in the target": (b"GET http://b/one HTTP/1.1\r\nHost: a\r\n\r\n", True),
    "space in the target": (b"GET /one /two HTTP/1.1\r\nHost: a\r\n\r\n", False),
    "tab in the line": (b"GET\t/one\tHTTP/1.1\r\nHost: a\r\n\r\n", False),
    "carriage return in the target": (b"GET /one\rX HTTP/1.1\r\nHost: a\r\n\r\n", False),
    "line feeds before the line": (b"\n\nGET /one HTTP/1.1\r\nHost: a\r\n\r\n", False),
    "HTTP/1.9": (b"GET /one HTTP/1.9\r\nHost: a\r\n\r\n", True),
    "HTTP/0.9": (b"GET /one\r\n" + SMUGGLED, False),
    "expected body": (post(b"Expect: 100-continue\r\n", LENGTH), True),
    "upgrade to HTTP/2": (
        b"GET /one HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
        True,
    ),
}


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[bytes], tuple[int, bytes]]]:
    """Sends bytes through one proxy: the first status, and everything that the upstream received of them."""
    streams: list[bytearray] = []

    def serve_raw(connection: Connection) -> None:
        raw = bytearray()
        streams.append(raw)
        answered = 0
        while data := connection.sock.recv(1 << 20):
            raw += data
            for _ in read(bytes(raw), READERS["strict"])[answered:]:
                answered += 1
                connection.reply(b"ok")

    def send(data: bytes) -> tuple[int, bytes]:
        sent = [len(stream) for stream in streams]
        with server.connect() as client:
            client.send(data + END)
            answer = client.rest()
        server.count(answer.count(b"HTTP/1.1 ") - answer.count(b"HTTP/1.1 100 "))
        status = int(answer.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"").split(b" ", 2)[1]) if answer else 0
        sent += [0] * (len(streams) - len(sent))
        return status, b"".join(bytes(stream[begin:]) for stream, begin in zip(streams, sent))

    with Upstream(serve_raw) as upstream:
        toml = tables("route", {"path": "/", "upstream": "back"})
        toml += tables("upstream", {"name": "back", "servers": [upstream.url]})
        with Milepost(tmp_path_factory.mktemp("odd"), toml=toml) as server:
            yield send


@pytest.mark.parametrize("odd", ODD)
def test_nothing_is_passed_on_that_two_readers_could_split_differently(
    passed: Callable[[bytes], tuple[int, bytes]], odd: str
) -> None:
    data, has_one_meaning = ODD[odd]
    status, stream = passed(data)
    found = {name: read(stream, reader) for name, reader in READERS.items()}
    assert all(requests == found["strict"] for requests in found.values()), found
    targets = [target for _, target, _ in found["strict"]]
    if has_one_meaning:
        assert (status, targets) == (200, ["/one", "/end"]), (status, stream)
    else:
        assert status in (400, 501, 505), (status, stream)
        assert stream == b""
