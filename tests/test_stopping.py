"""Stopping: what has been received is answered, what waits is served, what is cut is counted."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import select
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raw import Client, CutShort, request
from serving import DEADLINE_S, Milepost, until
from supervising import UNTIL_GO, Supervised


def gates(folder: Path, count: int) -> list[Path]:
    """FIFOs that hold a request each until they are opened and closed for writing."""
    made = [folder / f"gate{n}" for n in range(count)]
    for gate in made:
        os.mkfifo(gate)
    return made


def held(server: Milepost, gate: Path, path: str = "/gate") -> tuple[Client, int]:
    """A request that runs now, and the descriptor that holds it."""
    client = server.connect()
    client.send(request("GET", f"{path}?name={gate}"))
    # Opening waits for the application to have opened the other side.
    return client, os.open(gate, os.O_WRONLY)


def refuses_connections(server: Milepost) -> bool:
    """At once: whoever is not answered at all waits for long, and so does everybody behind a proxy."""
    with socket.socket() as probe:
        # Less than a client waits before it asks again.
        probe.settimeout(0.5)
        return probe.connect_ex(server.address) == errno.ECONNREFUSED


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_stops_at_once(serve: Callable[..., Milepost], number: signal.Signals) -> None:
    server = serve("zoo:app")
    with server.connect() as client:
        client.ask("GET", "/hello")
        server.signal(number)
        # The idle connection is closed in order, not reset.
        assert client.is_closed()
        assert server.wait() == 0
    assert refuses_connections(server)


def test_connections_close_at_once_however_long_they_have_been_idle(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    """A second after each response, the server looks whether the client has taken it: it may be about to."""
    (tmp_path / "a.txt").write_text("a")
    server = serve("--static", f"/={tmp_path}", "--drain-timeout", "10m", "--idle-timeout", "10m")
    clients: list[Client] = []
    until_s = time.monotonic() + 1.3
    # One after the other, so that the looks at some are due at any moment.
    while time.monotonic() < until_s:
        clients.append(server.connect())
        assert clients[-1].ask("GET", "/a.txt").status == 200
        select.select([], [], [], 0.005)
    server.signal()
    for client in clients:
        with client:
            assert client.is_closed()
    assert server.wait() == 0


def test_what_runs_and_what_waits_is_answered(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    """One request runs, others wait in the pool's queue, others in the kernel: none is lost."""
    server = serve("zoo:app", "--threads", "1:1", "--drivers", "1")
    (gate,) = gates(tmp_path, 1)
    first, holder = held(server, gate)
    queued = [server.connect() for _ in range(20)]
    for client in queued:
        client.send(request("GET", "/hello"))
    backlog = [server.connect() for _ in range(20)]
    for client in backlog:
        client.send(request("GET", "/hello"))
    server.signal()
    os.close(holder)
    assert first.reply().body == b"released"
    for client in (*queued, *backlog):
        with client:
            reply = client.reply()
            assert (reply.status, reply.body) == (200, b"hello")
    assert server.wait() == 0


def test_replies_after_the_signal_announce_the_end(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    server = serve("zoo:app", "--threads", "1:1")
    (gate,) = gates(tmp_path, 1)
    client, holder = held(server, gate)
    other = server.connect()
    server.signal()
    # An idle connection being closed shows that the signal has been seen.
    assert other.is_closed()
    os.close(holder)
    assert client.reply().closes
    assert client.is_closed()
    assert server.wait() == 0


def test_a_burst_of_connections_during_the_signal_loses_nothing(serve: Callable[..., Milepost]) -> None:
    """Connections that the kernel has completed before the listener is closed are served."""
    server = serve("zoo:app", "--drivers", "2")
    clients = []
    held_up = set()
    for n in range(300):
        begun = time.monotonic()
        try:
            client = server.connect()
        except (ConnectionRefusedError, ConnectionResetError):
            # It was never connected: the listener is closed, or was while the handshake was under way.
            assert n > 150, n
            break
        client.send(request("GET", "/hello", "Connection: close"))
        clients.append(client)
        # From the signal on, one that sends nothing is closed after a second.
        if time.monotonic() - begun > 0.5:
            held_up.add(n)
        if n == 150:
            server.signal()
    assert len(clients) > 150
    lost = 0
    for n, client in enumerate(clients):
        with client:
            try:
                assert client.reply().body == b"hello"
            except CutShort:
                # A connection that was completed after the signal may meet a closed listener.
                assert n > 150, n
                lost += n not in held_up
    assert server.wait() == 0
    assert lost == 0


def test_a_large_reply_is_delivered_to_its_end(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app")
    with server.connect(receive_buffer_bytes=8192) as client:
        client.send(request("GET", "/large?bytes=20000000&length=1"))
        _, _, headers = client.head()
        server.signal()
        body = client.exactly(20_000_000)
        server.exchanges += 1
        assert hashlib.sha256(body).hexdigest() == dict(headers)["X-Sha256"]
    assert server.wait() == 0


def test_an_upload_under_way_is_finished(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", "--body-memory-max", "1K")
    with server.connect() as client, server.connect() as other:
        client.send(request("POST", "/body", "Expect: 100-continue", "Content-Length: 100000"))
        assert client.head()[0] == 100
        client.send(bytes(50_000))
        server.signal()
        assert other.is_closed()
        client.send(bytes(50_000))
        reply = client.reply()
        assert (reply.status, reply.closes) == (200, True)
        assert b"100000" in reply.body
    assert server.wait() == 0


def test_pipelined_requests_that_were_received_are_answered(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    server = serve("zoo:app", "--threads", "1:1", "--drivers", "1")
    (gate,) = gates(tmp_path, 1)
    client = server.connect()
    client.send(request("GET", f"/gate?name={gate}") + request("GET", "/hello"))
    holder = os.open(gate, os.O_WRONLY)
    server.signal()
    os.close(holder)
    assert client.reply().body == b"released"
    # Answered, or announced by the first reply that it will not be: never silently dropped.
    try:
        assert client.reply().body == b"hello"
    except CutShort as cut:
        assert cut.so_far == b""
    client.sock.close()
    assert server.wait() == 0


def test_the_deadline_cuts_and_counts(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    server = serve("zoo:app", "--threads", "3:3", "--drain-timeout", "300ms")
    made = gates(tmp_path, 3)
    holding = [held(server, gate) for gate in made]
    server.signal()
    for client, _ in holding:
        with pytest.raises(CutShort):
            client.reply()
    server.exchanges += 3
    code = server.wait()
    for _, holder in holding:
        os.close(holder)
    assert code in (0, 1)
    assert len([line for line in server.lines if "end=shutdown" in line]) == 3
    counted = [line for line in server.stderr if re.search(r"\b3 cut off\b", line)]
    assert len(counted) == 1, server.errors


def test_a_second_signal_ends_at_once(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    server = serve("zoo:app", "--drain-timeout", "1h")
    (gate,) = gates(tmp_path, 1)
    client, holder = held(server, gate)
    other = server.connect()
    server.signal()
    assert other.is_closed()
    assert server.process.poll() is None

    def is_over() -> bool:
        # Further ones do not put the end off.
        server.signal()
        return server.process.poll() is not None

    assert until(is_over, DEADLINE_S / 3)
    server.wait()
    os.close(holder)
    assert server.process.returncode != 0 or "cut" in server.errors
    client.sock.close()
    # What was cut has its line all the same.
    server.exchanges = len(server.lines)


def test_the_log_is_complete_after_a_stop_under_load(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", "--log-flush", "1h")
    clients = [server.connect() for _ in range(50)]
    for client in clients:
        client.send(request("GET", "/hello") * 20)
    for client in clients:
        for _ in range(20):
            client.reply()
    server.signal()
    for client in clients:
        assert client.is_closed()
    assert server.wait() == 0
    assert len(server.lines) == 1000


def test_atexit_of_the_application_runs(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    (tmp_path / "leaving.py").write_text(
        "import atexit, threading\n"
        "atexit.register(lambda: open('left', 'w').write(threading.current_thread().name))\n"
        "def app(environ, start_response):\n"
        "    start_response('200 OK', [])\n"
        "    return [b'here']\n"
    )
    server = serve("leaving:app")
    with server.connect() as client:
        client.ask("GET", "/")
    assert server.stop() == 0
    assert (tmp_path / "left").read_text() == "MainThread"


def test_nothing_is_left_behind(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    server = serve(
        "zoo:app", "--body-memory-max", "1K", "--spool-dir", str(tmp_path), bind=f"unix:{tmp_path}/s"
    )
    with server.connect() as client:
        client.ask("POST", "/body", body=bytes(100_000))
    assert server.stop() == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["access.log"]
    with pytest.raises(ProcessLookupError):
        os.killpg(server.pid, 0)


def test_a_stopping_server_does_not_wait_for_a_client_that_never_reads(
    serve: Callable[..., Milepost],
) -> None:
    server = serve("zoo:app", "--drain-timeout", "300ms")
    with server.connect(receive_buffer_bytes=4096) as client:
        client.send(request("GET", "/large?bytes=20000000"))
        client.head()
        server.signal()
        server.exchanges += 1
        assert server.wait() in (0, 1)
        assert select.select([client.sock], [], [], DEADLINE_S)[0]
    assert "end=shutdown" in server.lines[0]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_who_comes_while_the_rest_is_answered_is_refused_and_does_not_wait(
    supervise: Callable[..., Supervised], processes: str
) -> None:
    """A proxy in front goes on to the next server at once; one that nobody answers costs it seconds."""
    server = supervise("--processes", processes, "--drivers", "2")
    client, holder, _ = server.held()
    server.signal()

    assert until(lambda: refuses_connections(server))
    assert all(refuses_connections(server) for _ in range(16))
    os.close(holder)
    with client:
        assert client.reply().status == 200
    assert server.wait() == 0


def test_threads_that_a_request_has_started_are_waited_for(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    """As behind other servers: work that goes on after the reply is not lost by a restart."""
    (tmp_path / "app.py").write_text(
        "import threading\n\n"
        "def work():\n"
        "    with open('gate') as gate:\n"
        "        gate.read()\n"
        "    open('done', 'w').close()\n\n"
        "def app(environ, start_response):\n"
        "    threading.Thread(target=work).start()\n"
        "    start_response('200 OK', [('Content-Length', '0')])\n"
        "    return []\n"
    )
    os.mkfifo(tmp_path / "gate")
    server = serve("app:app")
    with server.connect() as client:
        assert client.ask("GET", "/").status == 200
    # Opening waits for the thread to have opened the other side.
    gate = os.open(tmp_path / "gate", os.O_WRONLY)
    server.signal()
    assert until(lambda: refuses_connections(server))
    os.close(gate)
    assert server.wait() == 0
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "unix"])
def test_what_waits_for_room_at_the_signal_is_served(
    supervise: Callable[..., Supervised], tmp_path: Path, bind: str
) -> None:
    """The bound on connections is no reason to lose those that the kernel has completed."""
    server = supervise(
        *("--connections-max", "4", "--threads", "4:4", "--drivers", "2"),
        # They come together, and nobody is to be refused for what a busy machine takes.
        *("--queue-target", "10s", "--overload-timeout", "30s"),
        bind=bind.replace("unix", f"unix:{tmp_path}/s"),
    )

    def asked(target: str) -> Client:
        client = server.connect()
        client.send(request("GET", target, "Connection: close"))
        return client

    clients = [asked(UNTIL_GO) for _ in range(4)]
    assert until(lambda: server.processes()[0]["pools"][0]["running"] == 4)
    clients += [asked("/") for _ in range(20)]
    server.signal()
    with server.go():
        for client in clients:
            with client:
                assert client.reply().status == 200
    assert server.wait() == 0


def status(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(client.ask("GET", "/-/status").body)
    return found


def test_half_a_request_is_cut_at_the_deadline(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", "--drain-timeout", "300ms", "--status-path", "/-/status")
    with server.connect() as half, server.connect() as other:
        half.send(b"GET /half HTTP/1.1\r\nHos")
        server.count()
        assert until(lambda: sum(one["connections"]["reading"] for one in status(other)["drivers"]) == 1)
        server.signal()
        assert server.wait() in (0, 1)
    assert sum("end=shutdown" in line for line in server.lines) == 1


@pytest.mark.parametrize(("target", "size"), [("/asked-for?token=cut", 9), ("/burst?token=cut", 9_000_000)])
def test_what_a_client_has_of_a_cut_reply_is_logged(
    serve: Callable[..., Milepost], target: str, size: int
) -> None:
    """Whoever sent it: the thread of the application, or a driver what no socket takes at once."""
    server = serve("zoo:app", "--threads", "1:1", "--drain-timeout", "300ms")
    with server.connect() as client:
        client.send(request("GET", "/hello") + request("GET", target))
        assert client.reply().body == b"hello"
        client.head()
        seen = 0
        while seen < size:
            seen += len(client.chunk())
        server.count()
        server.signal()
        assert server.wait() in (0, 1)
    (line,) = (line for line in server.lines if "token=cut" in line)
    # With what stands around the chunk.
    sent = size + len(b"%x\r\n\r\n" % size)
    assert f'" 200 {sent} ' in line and "end=shutdown" in line


def test_what_was_logged_as_cut_does_not_run_afterwards(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(
        "import time\n\n"
        "def app(environ, start_response):\n"
        "    with open('runs', 'a') as runs:\n"
        "        runs.write('.')\n"
        "    time.sleep(0.2)\n"
        "    start_response('200 OK', [])\n"
        "    return [b'done']\n"
    )
    runs = tmp_path / "runs"
    runs.touch()
    server = serve(
        *("app:app", "--threads", "1:1", "--drivers", "1", "--queue-target", "10s"),
        *("--drain-timeout", "100ms", "--status-path", "/-/status"),
    )
    clients = [server.connect() for _ in range(10)]
    for client in clients:
        client.send(request("GET", "/"))
    server.count(10)
    with server.connect() as other:
        assert until(lambda: status(other)["pool"]["waiting"] + runs.stat().st_size >= 10)
    server.signal()
    assert server.wait() in (0, 1)
    lines = [line for line in server.lines if '"GET / ' in line]
    not_run = sum(" run=0.000000 " in line for line in lines)
    assert (len(lines), not_run + runs.stat().st_size) == (10, 10)
