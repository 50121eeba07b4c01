"""Clients that are too slow are let go at their deadline, each for its own reason, busy or not.

All cases run at once against one server, without and with other traffic: deadlines have to hold whether
or not anything else wakes the thread.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import select
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from raw import Client, CutShort, request
from serving import APPS, DEADLINE_S, Milepost, until

# Longer than a busy machine holds anybody up who is to be in time.
HEAD_S, BODY_S, SEND_S, IDLE_S = 2.0, 2.4, 2.5, 3.0
BODY_RATE, SEND_RATE = 1_000, 500_000
# Too early is always wrong. How late one is let go is the machine's affair as well: whoever was forgotten
# stays for ever, or ends for another reason, which is counted and logged as such.
EARLY_S, LATE_S = 0.1, 15.0

SETTINGS = [
    *("--head-timeout", f"{HEAD_S}s", "--body-timeout", f"{BODY_S}s", "--body-rate-min", str(BODY_RATE)),
    *("--send-timeout", f"{SEND_S}s", "--send-rate-min", str(SEND_RATE), "--idle-timeout", f"{IDLE_S}s"),
    *("--body-memory-max", "16K", "--reply-spool-bytes-max", "24M"),
    *("--drivers", "1", "--threads", "8:8", "--static", "/files=www", "--status-path", "/-/status"),
    *("--access-log-format", "json", "--log-flush", "10ms"),
]


class Case(NamedTuple):
    """A slow client: what it does, and when and why it is let go."""

    play: Callable[[Milepost], float]
    """Does it; gives the seconds to the end of its connection from the beginning of its deadline, or from
    before it, without those that its bytes have paid for."""
    after_s: float
    """Where its deadline is."""
    counter: str
    """What counts it on the status page."""
    end: str | None = None
    """How its record ends; nothing where there is no record, or one of a complete exchange."""
    cause: str | None = None
    late_s: float = LATE_S


def ended(client: Client) -> float:
    """The moment at which the server ends the connection, with an end or a reset; nothing is read."""
    poll = select.poll()
    poll.register(client.sock, select.POLLRDHUP)
    assert poll.poll(DEADLINE_S * 1000), "the connection is still open"
    return time.monotonic()


def trickle(client: Client, piece: bytes, every_s: float) -> float:
    """Sends `piece` now and then, until something comes; gives that moment."""
    while not select.select([client.sock], [], [], every_s)[0]:
        client.send(piece)
    return time.monotonic()


# Heads and bodies


def silent(server: Milepost) -> float:
    began = time.monotonic()
    with server.connect() as client:
        return ended(client) - began


def refused(
    begin: bytes, piece: bytes = b"", every_s: float = DEADLINE_S, before: bytes = b""
) -> Callable[[Milepost], float]:
    """A client that sends `begin` and then `piece` again and again, and is refused with 408."""

    def play(server: Milepost) -> float:
        with server.connect() as client:
            if before:
                client.send(before)
                assert client.reply().status == 200
            began = time.monotonic()
            client.send(begin)
            answered = trickle(client, piece, every_s)
            reply = client.reply()
            assert (reply.status, reply.closes) == (408, True)
            assert client.is_closed()
            return answered - began

    return play


def post(name: str, *headers: str) -> bytes:
    return request("POST", f"/body?case={name}", *headers)


# Replies


def unread(target: str) -> Callable[[Milepost], float]:
    """A client that asks and never reads."""

    def play(server: Milepost) -> float:
        with server.connect(receive_buffer_bytes=4096) as client:
            began = time.monotonic()
            client.send(request("GET", target))
            server.count()
            return ended(client) - began

    return play


def read_slowly(target: str, bytes_: int, every_s: float) -> Callable[[Milepost], float]:
    """A client that asks, and reads so many bytes now and then."""

    def play(server: Milepost) -> float:
        with server.connect(receive_buffer_bytes=65_536) as client:
            began, read = time.monotonic(), 0
            client.send(request("GET", target))
            server.count()
            poll = select.poll()
            poll.register(client.sock, 0)
            # A reset is an error, which is told whatever is asked for.
            while not poll.poll(every_s * 1000) and (data := client.sock.recv(bytes_)):
                read += len(data)
            return time.monotonic() - began - read / SEND_RATE

    return play


# Idle connections


def idle(server: Milepost) -> float:
    with server.connect() as client:
        began = time.monotonic()
        client.ask("GET", "/hello")
        return ended(client) - began


def idle_but_for_an_empty_line(server: Milepost) -> float:
    """RFC 9112 section 2.2: an empty line is no beginning of a request, and renews nothing."""
    with server.connect() as client:
        began = time.monotonic()
        client.ask("GET", "/hello")
        assert not select.select([client.sock], [], [], LINE_S)[0]
        client.send(b"\r\n")
        return ended(client) - began


HEAD_LATE = ("refused", "head not complete in time")
SILENT = ("refused", "body stopped coming")
TRICKLED = ("refused", "body came too slowly")
UNREAD = ("send-timeout", "the client took nothing of the response")
SLOWLY = ("send-timeout", "the client took the response too slowly")
# So late that a time which it renewed would end far behind the one it did not.
LINE_S = 0.85 * IDLE_S

CASES = {
    "silent-from-the-start": Case(silent, HEAD_S, "head"),
    "half-a-head": Case(refused(b"GET /?case=half-a-head HTTP/1.1\r\nHo"), HEAD_S, "head", *HEAD_LATE),
    "trickled-head": Case(
        refused(b"GET /?case=trickled-head HTTP/1.1\r\nX: ", b"x", 0.05), HEAD_S, "head", *HEAD_LATE
    ),
    "second-head": Case(
        refused(b"GET /?case=second-head HTTP/1.1\r\nX: ", b"x", 0.05, before=request("GET", "/hello")),
        HEAD_S,
        "head",
        *HEAD_LATE,
    ),
    "silent-body": Case(refused(post("silent-body", "Content-Length: 1000") + b"x"), BODY_S, "body", *SILENT),
    "silent-spooled-body": Case(
        refused(post("silent-spooled-body", "Content-Length: 1000000") + bytes(100_000)),
        BODY_S,
        "body",
        *SILENT,
    ),
    "silent-chunks": Case(
        refused(post("silent-chunks", "Transfer-Encoding: chunked") + b"5\r\n123"), BODY_S, "body", *SILENT
    ),
    "trickled-body": Case(
        refused(post("trickled-body", "Content-Length: 1000000"), b"x" * 5, 0.05),
        BODY_S,
        "body",
        *TRICKLED,
    ),
    "trickled-spooled-body": Case(
        refused(post("trickled-spooled-body", "Content-Length: 1000000") + bytes(100_000), b"x" * 5, 0.05),
        BODY_S,
        "body",
        *TRICKLED,
    ),
    "trickled-chunks": Case(
        # A chunk of nothing but framing is bytes as well.
        refused(post("trickled-chunks", "Transfer-Encoding: chunked"), b"1\r\nx\r\n", 0.06),
        BODY_S,
        "body",
        *TRICKLED,
    ),
    # What the kernel has taken is complete for the log; the client is let go all the same.
    "unread-in-the-kernel": Case(
        unread("/large?case=unread-in-the-kernel&bytes=30000&length=1"), SEND_S, "send"
    ),
    "unread-small-file-in-the-kernel": Case(unread("/files/small?case=unread-small-file"), SEND_S, "send"),
    "unread-in-memory": Case(
        unread("/large?case=unread-in-memory&bytes=6000000&part=6000000&length=1"), SEND_S, "send", *UNREAD
    ),
    "unread-in-a-file": Case(unread("/large?case=unread-in-a-file&bytes=16000000"), SEND_S, "send", *UNREAD),
    "unread-from-a-writer": Case(unread("/files/huge?case=unread-from-a-writer"), SEND_S, "send", *UNREAD),
    "unread-without-an-end": Case(
        unread("/flood?case=unread-without-an-end&token=f"), SEND_S, "send", *UNREAD
    ),
    # The application says nothing more, for longer than the deadline.
    "unread-of-a-silent-application": Case(
        unread("/burst?case=unread-of-a-silent-application&token=silent"), SEND_S, "send", *UNREAD
    ),
    "read-too-slowly": Case(
        read_slowly("/files/huge?case=read-too-slowly", SEND_RATE // 20, 0.1), SEND_S, "send", *SLOWLY
    ),
    "idle": Case(idle, IDLE_S, "idle"),
    "idle-but-for-an-empty-line": Case(idle_but_for_an_empty_line, IDLE_S, "idle", late_s=LINE_S - EARLY_S),
}


# Those who are slow, but not too slow


def upload_just_fast_enough(server: Milepost) -> None:
    with server.connect() as client:
        client.send(post("fast-enough", "Content-Length: 5000"))
        for _ in range(25):
            assert trickle_once(client), "it was answered early"
            client.send(bytes(200))
        assert client.reply().status == 200


def trickle_once(client: Client) -> bool:
    return not select.select([client.sock], [], [], 0.12)[0]


def download_just_fast_enough(server: Milepost) -> None:
    with server.connect(receive_buffer_bytes=65_536) as client:
        client.send(request("GET", "/files/half?case=fast-enough"))
        client.head()
        missing = 4_000_000 - len(client.exactly(1))
        pause = threading.Event()
        while missing > 0:
            missing -= len(client.exactly(min(100_000, missing)))
            pause.wait(0.1)
        server.count()


def app_just_slow(server: Milepost) -> None:
    """Time in which the application makes the client wait is not the client's."""
    with server.connect() as client:
        client.send(request("GET", "/asked-for?case=app-slow&token=slow"))
        client.head()
        assert client.chunk() == b"data: 1\n\n"
        # Longer than any of the deadlines.
        assert not select.select([client.sock], [], [], IDLE_S + 0.5)[0]
        with server.connect() as other:
            other.ask("GET", "/note?token=slow&what=next%201")
        assert client.chunk() == b"data: 2\n\n"
        server.count()
        with server.connect() as other:
            client.sock.close()
            other.ask("GET", "/note?token=slow&what=next%202")
            other.ask("GET", "/note?token=slow&what=next%203")
            assert "closed" in json.loads(other.ask("GET", "/noted?token=slow&what=closed").body)


PATIENT = [upload_just_fast_enough, download_just_fast_enough, app_just_slow]


class Seen(NamedTuple):
    """What became of all cases that were played at once."""

    seconds: dict[str, float]
    faults: dict[str, BaseException]
    records: list[dict[str, object]]
    counters: Counter[str]
    others: int
    """Requests of other clients that were answered meanwhile."""


def together(server: Milepost, plays: dict[str, Callable[[Milepost], object]]) -> Seen:
    """Plays them at once."""
    seen = Seen({}, {}, [], Counter(), 0)

    def run(name: str, play: Callable[[Milepost], object]) -> None:
        try:
            seen.seconds[name] = play(server)  # type: ignore[assignment]
        except BaseException as fault:
            seen.faults[name] = fault

    threads = [threading.Thread(target=run, args=pair) for pair in plays.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def counters(server: Milepost) -> Counter[str]:
    with server.connect() as client:
        status = json.loads(client.ask("GET", "/-/status").body)
    total: Counter[str] = Counter()
    for driver in status["drivers"]:
        total.update(driver["timeouts"])
    return total


@pytest.fixture(scope="module", params=["alone", "among others"])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("slow")
    www = folder / "www"
    www.mkdir()
    for name, bytes_ in (("small", 30_000), ("half", 4_000_000), ("huge", 40_000_000)):
        with (www / name).open("wb") as file:
            file.truncate(bytes_)
    with Milepost(folder, "zoo:app", "--app-dir", str(APPS), *SETTINGS) as server:
        done = threading.Event()
        others = [0]

        def traffic() -> None:
            with server.connect() as client:
                while not done.is_set():
                    assert client.ask("GET", "/hello").body == b"hello"
                    assert client.ask("GET", "/files/small").status == 200
                    others[0] += 2

        other = threading.Thread(target=traffic)
        if request.param == "among others":
            other.start()
        plays = {name: case.play for name, case in CASES.items()}
        seen = together(server, plays | {play.__name__: play for play in PATIENT})
        done.set()
        if other.ident:
            other.join()
        with server.connect() as client:
            client.ask("GET", "/note?token=silent&what=go")
        seen.counters.update(counters(server))
        assert server.stop() == 0
        seen.records.extend(json.loads(line) for line in server.lines)
        yield seen._replace(others=others[0])


@pytest.mark.parametrize("name", CASES)
def test_is_let_go_at_the_deadline_and_not_before(seen: Seen, name: str) -> None:
    case = CASES[name]
    if name in seen.faults:
        raise seen.faults[name]
    assert case.after_s - EARLY_S < seen.seconds[name] < case.after_s + case.late_s


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.end])
def test_the_record_tells_why(seen: Seen, name: str) -> None:
    case = CASES[name]
    marks = (f"case={name} ", f"case={name}&")
    (record,) = (
        record
        for record in seen.records
        if any(mark in f"{record['target']} {record.get('request_line', '')} " for mark in marks)
    )
    assert (record["end"], record["cause"]) == (case.end, case.cause)
    assert record["status"] == (408 if case.end == "refused" else 200)
    if case.end == "send-timeout":
        assert case.after_s - EARLY_S < record["total"]  # type: ignore[operator]


def test_each_is_counted_once_by_its_reason(seen: Seen) -> None:
    expect = Counter(case.counter for case in CASES.values())
    # Connections of those who were in time are left open by none.
    assert {name: seen.counters[name] for name in expect} == expect
    assert seen.counters["evicted_idle"] == 0


@pytest.mark.parametrize("play", PATIENT, ids=lambda play: play.__name__)
def test_who_keeps_the_pace_has_all_the_time_it_needs(seen: Seen, play: Callable[..., None]) -> None:
    if play.__name__ in seen.faults:
        raise seen.faults[play.__name__]
    assert play.__name__ in seen.seconds


def test_others_were_served_meanwhile(seen: Seen) -> None:
    assert seen.others == 0 or seen.others > 100


# A full server

PATIENT_S = 60


def is_open(client: Client) -> bool:
    poll = select.poll()
    poll.register(client.sock, select.POLLRDHUP)
    return not poll.poll(0)


def test_idle_time_shrinks_as_the_table_fills(serve: Callable[..., Milepost]) -> None:
    server = serve(
        *("zoo:app", "--connections-max", "32", "--idle-timeout", f"{PATIENT_S}s", "--drivers", "1"),
        *("--status-path", "/-/status"),
    )
    clients = [server.connect() for _ in range(29)]
    began = time.monotonic()
    for client in clients:
        client.ask("GET", "/hello")
    busy, old = clients[::10], [client for n, client in enumerate(clients) if n % 10]
    # Of 16 (all the time) to 30 (a second) so many are open; it is for those who do not use it.
    left_s = PATIENT_S - (PATIENT_S - 1) * 13 / 14
    while all(map(is_open, old)):
        for client in busy:
            client.ask("GET", "/hello")
        assert time.monotonic() < began + PATIENT_S / 2
    assert left_s - EARLY_S < time.monotonic() - began
    for client in busy:
        assert client.ask("GET", "/hello").status == 200
    closed = [client for client in old if not is_open(client)]
    assert counters(server)["evicted_idle"] >= len(closed) > 0
    for client in clients:
        client.sock.close()


@pytest.mark.parametrize("target", ["/files/f", "/hello"], ids=["files", "app"])
def test_at_the_bound_the_oldest_goes_first(
    serve: Callable[..., Milepost], tmp_path: Path, target: str
) -> None:
    """And at once, not when its second is over; an attempt that the machine held up proves neither."""
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "f").write_bytes(b"file")
    logs = (f"{number}.log" for number in itertools.count())
    assert until(lambda: place_at_the_bound(serve, target, next(logs)) < 1)


def place_at_the_bound(serve: Callable[..., Milepost], target: str, log: str) -> float:
    """Fills a server, and gives the seconds in which one more client was served."""
    server = serve(
        *("zoo:app", "--connections-max", "32", "--idle-timeout", "40s", "--drivers", "1"),
        *("--static", "/files=www", "--status-path", "/-/status"),
        log=log,
    )
    clients = [server.connect() for _ in range(16)]
    # Not in the order in which they came. Up to here nobody has to hurry.
    clients.reverse()
    for client in clients:
        client.ask("GET", target)
    for _ in range(16):
        clients.append(server.connect())
        clients[-1].ask("GET", target)
    began = time.monotonic()
    with server.connect() as late:
        assert late.ask("GET", target).status == 200
        waited = time.monotonic() - began
        opened = [is_open(client) for client in clients]
    assert opened == sorted(opened), "others than the oldest were closed"
    assert opened.count(False) >= 2
    assert until(lambda: counters(server)["evicted_idle"] >= opened.count(False))
    for client in clients:
        client.sock.close()
    return waited


def test_an_idle_connection_makes_room_where_all_others_are_busy(serve: Callable[..., Milepost]) -> None:
    server = serve(
        *("zoo:app", "--connections-max", "16", "--threads", "16:16", "--drivers", "1"),
        *("--queue-target", "10s", "--status-path", "/-/status"),
    )
    idle = server.connect()
    idle.ask("GET", "/hello")
    busy = []
    for _ in range(15):
        busy.append(server.connect())
        busy[-1].send(request("GET", "/noted?token=busy&what=go"))
    assert idle.is_closed()
    # By then the server has looked whether their replies are out.
    time.sleep(1.5)

    def is_served_at_once() -> bool:
        """Not when a second is over that those who leave would have had."""
        began = time.monotonic()
        with server.connect() as client:
            assert client.ask("GET", "/-/status", "Connection: close").status == 200
        return time.monotonic() - began < 0.9

    assert until(is_served_at_once)
    with server.connect() as client:
        client.ask("GET", "/note?token=busy&what=go")
    for client in busy:
        with client:
            assert client.reply().status == 200


@pytest.mark.parametrize("target", ["/-/status", "/hello"])
def test_connections_that_are_never_idle_for_long_make_room_as_well(
    serve: Callable[..., Milepost], target: str
) -> None:
    """Whichever driver has them, and whichever of them is asking when the server looks."""
    server = serve(
        *("zoo:app", "--connections-max", "32", "--drivers", "2", "--status-path", "/-/status"), log=None
    )
    entered, is_over = threading.Barrier(33), threading.Event()

    def visit() -> None:
        with server.connect() as client, contextlib.suppress(CutShort, ConnectionError):
            client.ask("GET", target)
            entered.wait(DEADLINE_S)
            while not is_over.wait(0.3):
                client.ask("GET", target)

    visitors = [threading.Thread(target=visit) for _ in range(32)]
    for visitor in visitors:
        visitor.start()
    entered.wait(DEADLINE_S)
    with server.connect() as late:
        assert late.ask("GET", "/hello").body == b"hello"
    is_over.set()
    for visitor in visitors:
        visitor.join()


# Requests behind others on one connection


@pytest.mark.parametrize(
    ("begin", "rest"),
    [
        (b"GET /-/status HTTP/1.1\r\n", b"Host: a\r\n\r\n"),
        (b"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nabc", b"d"),
    ],
    ids=["answered at once", "an upload"],
)
def test_a_head_behind_another_request_has_its_own_time(
    serve: Callable[..., Milepost], begin: bytes, rest: bytes
) -> None:
    server = serve("zoo:app", "--head-timeout", "4s", "--status-path", "/-/status")
    with server.connect() as client:
        client.send(begin)
        time.sleep(2.5)
        client.send(rest + b"GET /hello HTTP/1.1\r\n")
        time.sleep(2.5)
        client.send(b"Host: a\r\n\r\n")
        assert client.reply().status == 200
        assert client.reply().body == b"hello"


def test_the_time_of_a_slow_head_is_in_the_record_of_its_refused_body(
    serve: Callable[..., Milepost],
) -> None:
    server = serve("zoo:app", "--body-timeout", "300ms", "--access-log-format", "json")
    with server.connect() as client:
        client.send(b"POST /body HTTP/1.1\r\n")
        time.sleep(3)
        client.send(b"Host: a\r\nContent-Length: 5\r\n\r\n")
        assert client.reply().status == 408
    assert server.stop() == 0
    (line,) = server.lines
    # It began when the server accepted it, which may be later than the client connected.
    assert json.loads(line)["receive"] > 1.6
