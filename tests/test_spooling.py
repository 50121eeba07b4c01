"""Bodies and replies beyond memory: a full disk is told to those it concerns; streams without an end."""

from __future__ import annotations

import itertools
import json
import os
import random
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raw import Client, CutShort, chunked, request
from serving import DEADLINE_S, Milepost, until

DISK_BYTES = 2 << 20
# Two of them fit at most once on the disk.
UPLOAD_BYTES = 1_500_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of its own, of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError as error:
        pytest.skip(f"a small disk cannot be mounted: {error}")
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def free_bytes(disk: Path) -> int:
    seen = os.statvfs(disk)
    return seen.f_bfree * seen.f_frsize


@pytest.fixture
def small(serve: Callable[..., Milepost], disk: Path) -> Iterator[Milepost]:
    """A server that spools to the small disk; afterwards all of it is free again, without a restart."""
    whole = free_bytes(disk)
    server = serve(
        *("zoo:app", "--threads", "2:2", "--drivers", "1", "--spool-dir", str(disk)),
        *("--body-memory-max", "16K", "--reply-memory-max", "1M", "--log-flush", "10ms"),
    )
    yield server
    assert until(lambda: free_bytes(disk) == whole), f"{whole - free_bytes(disk)} bytes are lost"
    assert os.listdir(disk) == []


class Others:
    """Clients that go on meanwhile, by the memory of the server alone, and must not notice."""

    def __init__(self, server: Milepost) -> None:
        self.server = server
        self.answered = 0
        self.fault: BaseException | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            with self.server.connect() as client:
                while not self._done.is_set():
                    assert client.ask("GET", "/hello").body == b"hello"
                    # Just too small for the disk.
                    assert json.loads(client.ask("POST", "/body", body=bytes(16_384)).body)["bytes"] == 16_384
                    self.answered += 2
        except BaseException as fault:
            self.fault = fault

    def __enter__(self) -> Others:
        self._thread.start()
        assert until(lambda: self.answered or self.fault)
        return self

    def __exit__(self, *_: object) -> None:
        before = self.answered
        assert until(lambda: self.answered > before or self.fault)
        self._done.set()
        self._thread.join()
        if self.fault:
            raise self.fault


def test_a_full_disk_is_507_and_nobody_else_notices(small: Milepost) -> None:
    replies: list[tuple[int, bool]] = []
    body = bytes(UPLOAD_BYTES)
    framings = [
        request("POST", "/body", body=body),
        request("POST", "/body", "Transfer-Encoding: chunked") + chunked(*[body[:50_000]] * 30),
    ]

    def upload(data: bytes) -> None:
        with small.connect() as client:
            client.send(data[: len(data) // 2])
            # Together they have filled the disk before any of them is complete.
            half_way.wait(DEADLINE_S)
            client.send(data[len(data) // 2 :])
            reply = client.reply()
            replies.append((reply.status, reply.closes))

    half_way = threading.Barrier(6)
    with Others(small):
        threads = [threading.Thread(target=upload, args=(framings[n % 2],)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(replies) == 6, "a client did not see its answer"
    assert set(replies) <= {(200, False), (507, True)}
    # Six halves are more than twice what the disk holds.
    assert replies.count((507, True)) >= 3
    # What was refused has left its room to the next.
    with small.connect() as client:
        assert until(lambda: json.loads(client.ask("POST", "/body", body=body).body)["bytes"] == UPLOAD_BYTES)
    refused = replies.count((507, True))
    assert until(lambda: sum('" 507 ' in line for line in small.lines) == refused)
    told = [line for line in small.lines if '" 507 ' in line]
    assert all('end=refused cause="no space for the request body"' in line for line in told)
    assert "request body could not be stored" in small.errors


def never_reading(server: Milepost, target: str) -> Client:
    client = server.connect(receive_buffer_bytes=4096)
    client.send(request("GET", target))
    return client


def test_a_reply_that_outgrows_memory_on_a_full_disk_is_cut(small: Milepost) -> None:
    causes = (
        'end=cut cause="no space in spool_dir for the response to a slow client"',
        'end=cut cause="reply_memory_max is used up, and the client had taken nothing for longest"',
    )
    with Others(small):
        slow = [
            never_reading(small, f"/large?bytes=20000000&token={n}&length={n % 2 or ''}") for n in range(4)
        ]
        # The application is told at once, whatever the clients do.
        for number in range(4):
            closed_at(small, str(number))
        for client in slow:
            with client, pytest.raises(CutShort) as cut:
                client.reply()
            assert len(cut.value.so_far) < 20_000_000
            small.count()
        assert until(lambda: sum(any(cause in line for cause in causes) for line in small.lines) == 4)


def test_a_reader_that_keeps_up_needs_no_disk(small: Milepost, disk: Path) -> None:
    hog = disk / "hog"
    with pytest.raises(OSError), hog.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(65_536))
    with small.connect() as client:
        # In lock-step nothing waits anywhere.
        client.send(request("GET", "/asked-for?token=keep"))
        client.head()
        for number in range(1, 20):
            assert client.chunk() == b"data: %d\n\n" % number
            note(small, "keep", f"next%20{number}")
        small.count()
    end_stream(small, "keep", 20)
    with small.connect() as client:
        assert client.ask("POST", "/body", body=bytes(UPLOAD_BYTES)).status == 507
    hog.unlink()


# Streams without an end


@pytest.fixture
def server(serve: Callable[..., Milepost]) -> Milepost:
    return serve(
        *("zoo:app", "--threads", "4:4", "--drivers", "1"),
        *("--reply-memory-max", "1M", "--reply-spool-bytes-max", "1M"),
    )


def note(server: Milepost, token: str, what: str) -> None:
    with server.connect() as client:
        assert client.ask("GET", f"/note?token={token}&what={what}").status == 200


def end_stream(server: Milepost, token: str, number: int) -> None:
    """Has the next parts made until the server notices that nobody takes them."""
    parts = itertools.count(number)

    def is_closed() -> bool:
        # The driver sends when it has its turn: parts that were made before that are only kept.
        what = f"next%20{next(parts)}"
        note(server, token, what)
        with server.connect() as client:
            return "closed" in json.loads(client.ask("GET", f"/noted?token={token}&what={what}").body)

    assert until(is_closed)
    closed_at(server, token)


def closed_at(server: Milepost, token: str) -> float:
    """When the application's `close()` ran, on the clock that all processes share."""
    with server.connect() as client:
        noted = json.loads(client.ask("GET", f"/noted?token={token}&what=closed").body)
    assert noted.count("closed") == 1
    return float(next((what.split()[1] for what in noted if what.startswith("closed ")), "nan"))


def test_each_event_arrives_before_the_next_is_made(server: Milepost) -> None:
    with server.connect() as client:
        client.send(request("GET", "/asked-for?token=lock"))
        status, _, headers = client.head()
        assert (status, ("Transfer-Encoding", "chunked") in headers) == (200, True)
        for number in range(1, 30):
            # Nothing but this one can have been made: the application waits for our word.
            assert client.chunk() == b"data: %d\n\n" % number
            note(server, "lock", f"next%20{number}")
        server.count()
    end_stream(server, "lock", 30)


def test_each_event_arrives_at_once(server: Milepost) -> None:
    def lateness(token: str) -> list[float]:
        late = []
        with server.connect() as client:
            client.send(request("GET", f"/events?every=0.05&token={token}"))
            client.head()
            for number in range(1, 21):
                word, seen, made = client.chunk().split()
                late.append(time.monotonic() - float(made))
                assert (word, int(seen)) == (b"data:", number)
            server.count()
        closed_at(server, token)
        return sorted(late)

    # Some delays may be the machine's, for a whole stream even; a buffer would delay them all, always.
    streams = itertools.count()
    assert until(lambda: lateness(f"at-once-{next(streams)}")[10] < 0.04)


def test_an_old_client_gets_each_event_as_well(server: Milepost) -> None:
    with server.connect() as client:
        client.send(request("GET", "/asked-for?token=old", version="HTTP/1.0"))
        client.head()
        for number in range(1, 10):
            event = b"data: %d\n\n" % number
            assert client.exactly(len(event)) == event
            note(server, "old", f"next%20{number}")
        server.count()
    end_stream(server, "old", 10)


def leave(client: Client) -> None:
    client.sock.close()


def leave_by_reset(client: Client) -> None:
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.sock.close()


@pytest.mark.parametrize("how", [leave, leave_by_reset])
@pytest.mark.parametrize(
    ("target", "reads"),
    [
        # One that reads all there is, one that has never read, one that stopped in the middle; of a quiet
        # stream and of one that is held up because its file is full.
        ("/events?every=0.1", 3),
        ("/events?every=0.1", 0),
        ("/flood?", 3),
        ("/flood?", 0),
    ],
)
def test_a_stream_is_closed_soon_after_its_client_has_left(
    server: Milepost, target: str, reads: int, how: Callable[[Client], None]
) -> None:
    client = server.connect(receive_buffer_bytes=4096)
    client.send(request("GET", f"{target}&token=t"))
    # Something of it is there.
    assert client.sock.recv(1, socket.MSG_PEEK)
    if reads:
        client.head()
    for _ in range(reads):
        client.chunk()
    if target.startswith("/flood"):
        # Its application waits for room: memory, file and socket are full.
        assert until(lambda: spooled_bytes(server) > 400_000)
    left = time.monotonic()
    how(client)
    server.count()
    # Long before `send_timeout` (30 s) ends it, at which one would be whose leaving nobody noticed.
    assert closed_at(server, "t") - left < 15
    assert until(lambda: spooled_bytes(server) == 0)
    assert server.stop() == 0
    assert sum("end=peer-gone" in line for line in server.lines) == 1


def spooled_bytes(server: Milepost) -> int:
    """What lies in files that have no name."""
    folder, total = Path("/proc") / str(server.serving_pid) / "fd", 0
    for entry in folder.iterdir():
        try:
            if os.readlink(entry).endswith("(deleted)"):
                total += entry.stat().st_size
        except FileNotFoundError:
            continue
    return total


def test_a_slow_reader_of_a_stream_loses_nothing(server: Milepost) -> None:
    """It is behind by a full file when it begins to read; what it reads is in order."""
    from_zoo = random.Random(65_536).randbytes(65_536)
    with server.connect(receive_buffer_bytes=4096) as client:
        client.send(request("GET", "/flood?token=slow"))
        assert until(lambda: spooled_bytes(server) > 400_000)
        client.head()
        seen = b""
        while len(seen) < 6_000_000:
            seen += client.chunk()
        server.count()
    assert seen == (from_zoo * (len(seen) // 65_536 + 1))[: len(seen)]
    closed_at(server, "slow")


def test_a_stream_whose_client_takes_nothing_is_cut_when_it_was_waited_for(
    serve: Callable[..., Milepost],
) -> None:
    server = serve(
        *("zoo:app", "--threads", "2:2", "--drivers", "1", "--status-path", "/-/status"),
        *("--reply-spool-bytes-max", "1M", "--stream-wait-timeout", "300ms"),
    )
    with never_reading(server, "/flood?token=waits") as client:
        closed_at(server, "waits")
        with pytest.raises(CutShort):
            client.reply()
        server.count()
    with server.connect() as client:
        assert json.loads(client.ask("GET", "/-/status").body)["pool"]["stream_waits"] == 1
    assert server.stop() == 0
    assert ["end=cut" in line for line in server.lines if "/flood" in line] == [True]


def test_a_stream_of_limited_bandwidth_is_closed_when_its_client_has_left(
    serve: Callable[..., Milepost],
) -> None:
    """A driver sends it, and the application hears of it all the same."""
    server = serve("zoo:app", "--threads", "4:4", "--rate-pool", "100000")
    with server.connect() as client:
        client.send(request("GET", "/asked-for?token=limited"))
        client.head()
        assert client.chunk() == b"data: 1\n\n"
        server.count()
    end_stream(server, "limited", 1)
