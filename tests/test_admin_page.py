"""The page of the admin listener and its live view: what clients get, and what those that misbehave cost."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from serving import Milepost, free_port, until
from test_admin import answers, ask, listens

READERS_MAX = 16


@pytest.fixture
def port() -> int:
    return free_port()


class Events:
    """A reader of `/live`."""

    def __init__(self, port: int, *fields: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        lines = ["GET /live HTTP/1.1", f"Host: 127.0.0.1:{port}", *fields, "", ""]
        self._socket.sendall("\r\n".join(lines).encode())
        self._file = self._socket.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        self.fields = dict(self._head())

    def _head(self) -> Iterator[tuple[str, str]]:
        while line := self._file.readline().decode().strip():
            name, _, value = line.partition(": ")
            yield name.lower(), value

    def _chunk(self) -> bytes:
        """One chunk (RFC 9112 section 7.1), as each event is one."""
        size = int(self._file.readline(), 16)
        chunk = self._file.read(size)
        assert self._file.readline() == b"\r\n"
        return chunk

    def event(self) -> tuple[str, Any]:
        """The next one."""
        name, data, *rest = self._chunk().decode().split("\n")
        assert rest == ["", ""]
        return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))

    def status_where(self, wanted: Callable[[Any], bool]) -> Any:
        """The first of the next states of the server that is as wanted."""
        for _ in range(60):
            name, data = self.event()
            if name == "status" and wanted(data):
                return data
        raise AssertionError("there was none")

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()


@pytest.fixture
def site(serve: Callable[..., Milepost], tmp_path: Path, port: int) -> Milepost:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "file").write_text("text")
    server = serve("--static", f"/={tmp_path / 'site'}", "--admin-bind", f"127.0.0.1:{port}")
    assert until(lambda: answers(port))
    return server


def head_of_page(port: int) -> tuple[str, str]:
    """The head of the answer with the page, and the page."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/html,*/*;q=0.8\r\nConnection: close\r\n\r\n"
        )
        answer = b"".join(iter(lambda: client.recv(65536), b"")).decode()
    head, _, page = answer.partition("\r\n\r\n")
    return head.lower(), page


def test_the_page_is_one_file_that_only_its_own_script_may_change(site: Milepost, port: int) -> None:
    head, page = head_of_page(port)
    assert head.startswith("http/1.1 200")
    assert "content-type: text/html; charset=utf-8" in head
    assert "cache-control: no-store" in head
    policy = re.search(r"content-security-policy: (.*)", head)
    assert policy
    for part in ("default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
        assert part in policy[1], part
    assert "unsafe" not in policy[1]
    nonces = set(re.findall(r"'nonce-([0-9a-f]{32})'", policy[1]))
    assert len(nonces) == 1
    assert re.findall(r"<(?:style|script)\b[^>]*nonce=([0-9a-f]+)>", page) == [*nonces, *nonces]
    assert page.count("<script") == 1
    assert len(page) <= 120 << 10
    # Clients that do not ask for HTML get the list of paths.
    assert ask(port, "/")[1].startswith("/metrics")
    assert "/live" in ask(port, "/")[1]


def test_each_second_says_what_clients_have_counted(site: Milepost, port: int) -> None:
    with Events(port) as reader:
        assert reader.status == 200
        assert reader.fields["content-type"] == "text/event-stream"
        assert reader.fields["cache-control"] == "no-store"
        name, past = reader.event()
        assert (name, past["columns"]) == ("past", [])
        first = reader.status_where(lambda _: True)
        assert (first["requests"], first["sentences"]) == (0, [])
        with site.connect() as client:
            for _ in range(25):
                assert client.ask("GET", "/file").status == 200
            assert client.ask("GET", "/none").status == 404
        counted = reader.status_where(lambda now: now["requests"] == 26)
        [route] = counted["routes"]
        assert (route["route"], route["requests"], route["failed"]) == ("/", 26, 0)
        # Each request is in one second of the heat map, which is there once the second is over.
        reader.status_where(lambda now: in_columns(now) == 26)
        assert counted["sentences"][0].startswith("No trouble seen in the last ")
        assert [phase["name"] for phase in counted["phases"]][:5] == [
            "receive",
            "queue",
            "run",
            "send",
            "total",
        ]
        # A second page gets the time line of the first one.
        with Events(port) as other:
            _, past = other.event()
            assert sum(sum(counts) for _, counts in past["columns"]) == 26


def in_columns(event: Any) -> int:
    """Requests in the columns of the heat map of an event."""
    return sum(sum(counts) for _, counts in event["columns"])


def test_a_request_of_any_moment_is_in_one_second_of_the_heat_map(site: Milepost, port: int) -> None:
    sent = 0
    enough = threading.Event()

    def send() -> None:
        nonlocal sent
        with site.connect() as client:
            while not enough.is_set():
                assert client.ask("GET", "/file").status == 200
                sent += 1
                # Few enough that each count is exact in the history (2,047 of a kind in a second).
                time.sleep(0.002)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        # Pages that begin and end at different moments of a second, one after the other and at the same time.
        columns: dict[int, list[int]] = {}
        for _ in range(3):
            with Events(port) as page, Events(port) as other:
                for reader in (page, other):
                    columns |= dict(reader.event()[1]["columns"])
                    for _ in range(2):
                        columns |= dict(reader.status_where(lambda _: True)["columns"])
    finally:
        enough.set()
        thread.join()
    # What a page that is opened when all is over gets is the same as what the others have got in pieces.
    assert until(lambda: sleeps(admin_pid(site, port)))
    late: dict[int, list[int]] = {}
    with Events(port) as page:
        for _ in range(5):
            _, event = page.event()
            late |= dict(event["columns"])
    assert sum(sum(counts) for counts in late.values()) == sent > 0
    columns |= {at: counts for at, counts in late.items() if at >= max(columns)}
    with_requests = [{at: counts for at, counts in all_.items() if sum(counts)} for all_ in (columns, late)]
    assert with_requests[0] == with_requests[1]


def test_a_reader_that_takes_nothing_is_dropped_and_counted_and_others_get_each_second(
    serve: Callable[..., Milepost], tmp_path: Path, port: int
) -> None:
    # Long events, of which few fit into the kernel's buffers.
    (tmp_path / "file").write_text("text")
    urls = [f"/{number}{'x' * 300}" for number in range(40)]
    mounts = [argument for url in urls for argument in ("--static", f"{url}={tmp_path}")]
    server = serve(*mounts, "--admin-bind", f"127.0.0.1:{port}")
    assert until(lambda: answers(port))

    def dropped() -> int:
        found = re.search(r"^milepost_admin_clients_dropped_total (\d+)$", ask(port, "/metrics")[1], re.M)
        assert found
        return int(found[1])

    with socket.socket() as stalled, Events(port) as reader:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        stalled.connect(("127.0.0.1", port))
        stalled.sendall(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        reader.status_where(lambda _: True)
        with server.connect() as client:
            for url in urls:
                assert client.ask("GET", f"{url}/file").status == 200
        columns: dict[int, list[int]] = {}
        seen: list[int] = []
        while dropped() == 0:
            now = reader.status_where(lambda _: True)
            seen.append(now["at"])
            columns |= dict(now["columns"])
            assert len(seen) < 50, "nobody was dropped"
        assert dropped() == 1
        # The other one has missed nothing meanwhile: neither an event nor a request.
        assert seen == sorted(set(seen))
        assert seen[-1] - seen[0] <= len(seen)
        assert sum(sum(counts) for counts in columns.values()) == len(urls)
        # It was given the time that the guide says.
        assert len(seen) >= 9
        stalled.settimeout(20)
        with contextlib.suppress(ConnectionResetError):
            while stalled.recv(1 << 20):
                pass


def later_marks(now: Any) -> list[str]:
    """What has happened after the start, whose mark is there once its second is over."""
    return [mark["kind"] for mark in now["marks"] if mark["kind"] != "start"]


def test_reloads_and_crashes_are_marked(site: Milepost, port: int) -> None:
    with Events(port) as reader:
        now = reader.status_where(lambda now: now["generation"] == 1)
        assert later_marks(now) == []
        site.signal(signal.SIGHUP)
        now = reader.status_where(lambda now: now["generation"] == 2 and later_marks(now))
        assert later_marks(now) == ["reload"]
        reader.status_where(lambda now: [one["state"] for one in now["processes"]] == ["ready"])
        os.kill(json.loads(ask(port, "/status")[1])["processes"][0]["pid"], signal.SIGKILL)
        now = reader.status_where(lambda now: len(later_marks(now)) == 2)
        assert later_marks(now) == ["reload", "crash"]
        assert now["crashes"] == 1
        assert any("1 process ended unexpectedly" in sentence for sentence in now["sentences"])


def test_readers_are_bounded_and_leave_their_place(site: Milepost, port: int) -> None:
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(Events(port)) for _ in range(READERS_MAX)]
        assert [reader.status for reader in readers] == [200] * READERS_MAX
        for _ in range(3):
            with Events(port) as refused:
                assert refused.status == 503
        assert ask(port, "/ready")[0] == 200
        # All of them get the answer to one question, those that have begun later from then on.
        seconds = [[reader.status_where(lambda _: True) for _ in range(3)] for reader in readers]
        [first, *others] = [{json.dumps(event) for event in events} for events in seconds]
        assert all(first & other for other in others)
        assert len(first.union(*others)) <= 5
    assert until(lambda: admitted(port))
    # Without a reader the process has nothing to do, and asks nothing.
    assert until(lambda: sleeps(admin_pid(site, port)))


def admin_pid(site: Milepost, port: int) -> int:
    children = Path(f"/proc/{site.pid}/task/{site.pid}/children").read_text().split()
    [pid] = [int(pid) for pid in children if listens(int(pid), port)]
    return pid


def sleeps(pid: int) -> bool:
    """Whether a process does not even wake up, for longer than the time between two questions."""

    def switches() -> list[str]:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return [line for line in lines if "ctxt_switches" in line]

    before = switches()
    time.sleep(1.5)
    return switches() == before


def admitted(port: int) -> bool:
    with Events(port) as reader:
        return reader.status == 200


def test_readers_that_take_nothing_hold_up_nobody(site: Milepost, port: int) -> None:
    with contextlib.ExitStack() as stack:
        slow = []
        for _ in range(READERS_MAX - 1):
            client = socket.socket()
            stack.callback(client.close)
            # Next to nothing fits between the server and a client that does not read.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            client.connect(("127.0.0.1", port))
            client.sendall(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            slow.append(client)
        with Events(port) as reader:
            assert reader.status == 200
            # One that reads gets each second, whatever the others do.
            seen = [reader.status_where(lambda _: True)["at"] for _ in range(5)]
            assert sorted(set(seen)) == seen
            assert ask(port, "/load")[0] == 200


def test_live_needs_the_token_and_the_page_does_not(
    serve: Callable[..., Milepost], tmp_path: Path, port: int
) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    serve(
        *("--static", f"/={tmp_path}"),
        *("--admin-bind", f"127.0.0.1:{port}", "--admin-token-file", str(token)),
    )
    assert until(lambda: answers(port))
    head, page = head_of_page(port)
    assert head.startswith("http/1.1 200")
    # It holds nothing of the server.
    assert str(tmp_path) not in page
    assert str(port) not in page
    with Events(port) as reader:
        assert reader.status == 401
    wrong = base64.b64encode(b"user:0123456789abcdef").decode()
    with Events(port, f"Authorization: Basic {wrong}") as reader:
        assert reader.status == 401
    with Events(port, "Authorization: Bearer 0123456789abcdef") as reader:
        assert reader.status == 200
        assert reader.event()[0] == "past"


def test_a_page_of_another_site_takes_no_place(site: Milepost, port: int) -> None:
    for foreign in ("cross-site", "same-site"):
        with Events(port, f"Sec-Fetch-Site: {foreign}") as reader:
            assert reader.status == 403, foreign
    for own in ("same-origin", "none"):
        with Events(port, f"Sec-Fetch-Site: {own}") as reader:
            assert reader.status == 200, own
