"""Connections spread evenly over drivers and processes, and a fresh one goes to who has least to do."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from raw import Client, request
from serving import until
from supervising import UNTIL_GO, Supervised

CLOSE = request("GET", "/", "Connection: close")


def spread(server: Supervised, connections: int) -> list[int]:
    """What each driver accepted of so many short-lived connections."""
    before = [driver["accepted"] for driver in server.drivers()]
    for _ in range(connections):
        server.ask()
    return [after["accepted"] - one for after, one in zip(server.drivers(), before)]


@pytest.mark.parametrize("options", [("1", "8"), ("4", "2")], ids=["one process", "four processes"])
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_short_lived_connections_spread_evenly(
    supervise: Callable[..., Supervised], options: tuple[str, str], host: str
) -> None:
    processes, drivers = options
    server = supervise("--processes", processes, "--drivers", drivers, bind=f"{host}:0")
    server.settled(int(processes))
    each = spread(server, 2000)
    assert (len(each), sum(each)) == (8, 2000)
    # Five standard deviations of a fair hash: 250 +- 15.
    assert all(175 <= count <= 325 for count in each), each


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "unix"])
def test_sixteen_long_connections_on_four_drivers_are_four_each(
    supervise: Callable[..., Supervised], tmp_path: Path, bind: str
) -> None:
    """Whatever the hash said; ten times, from other ports each time."""
    place = bind.replace("unix", f"unix:{tmp_path}/s")
    server = supervise("--processes", "1", "--drivers", "4", bind=place)
    for _ in range(10):
        assert until(lambda: sum(driver["open"] for driver in server.drivers()) == 0)
        with contextlib.ExitStack() as stack:
            for _ in range(16):
                client = stack.enter_context(server.connect())
                assert client.ask("GET", "/").status == 200
            assert [driver["open"] for driver in server.drivers()] == [4, 4, 4, 4]


def test_a_unix_socket_is_shared_by_all_drivers_of_all_processes(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    server = supervise("--processes", "2", "--drivers", "2", bind=f"unix:{tmp_path}/s")
    pids = server.settled(2)
    with contextlib.ExitStack() as stack:
        answered = set()
        # Drivers beyond the processors come into use one after the other. 64 are enough where nobody is late.
        for _ in range(8):
            for _ in range(64):
                client = stack.enter_context(server.connect())
                answered.add(int(client.ask("GET", "/").text.split()[1]))
            if all(driver["open"] > 0 for driver in server.drivers()):
                break
        assert answered == pids
        assert all(driver["open"] > 0 for driver in server.drivers()), server.drivers()
    (address,) = server.status()["addresses"]
    assert address["sockets"] == 1


def test_processes_take_turns_at_a_shared_socket_however_slowly_connections_come(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    """Of those who wait the kernel tells the first, every time: one process would do all the work."""
    server = supervise("--processes", "4", bind=f"unix:{tmp_path}/s")
    server.settled(4)
    answered: Counter[int] = Counter()
    # Forty are enough where nobody is late for a turn.
    for _ in range(400):
        answered[server.answers()[1]] += 1
        if len(answered) == 4 and min(answered.values()) >= 10:
            break
        time.sleep(0.005)
    else:
        pytest.fail(f"answered by each process: {answered}")


def test_processes_share_a_burst_on_a_shared_socket(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    """The first to wake would take in all of it, and have it for as long as the connections stay."""
    server = supervise("--processes", "4", bind=f"unix:{tmp_path}/s")
    server.settled(4)
    most = []
    for _ in range(15):
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(server.connect()) for _ in range(64)]
            for client in clients:
                client.send(request("GET", "/"))
            answered = Counter(client.reply().text.split()[1] for client in clients)
        most.append(max(answered.values()))
    # Sixteen each, where all wake at once; one alone had 64 in most of them.
    assert statistics.median(most) <= 32, most


def test_one_that_was_alone_takes_turns_with_those_that_come(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    """It waits for the socket as the others do then, and is not told of each connection before them."""
    server = supervise("--processes", "1", "--drivers", "1", bind=f"unix:{tmp_path}/s")
    (first,) = server.settled(1)
    assert server.answers()[1] == first
    server.done("scale", "--processes", "4")
    server.settled(4)
    answered: Counter[int] = Counter()
    for _ in range(200):
        answered[server.answers()[1]] += 1
        time.sleep(0.005)
    assert len(answered) == 4
    # A quarter, and not more than half.
    assert answered[first] <= 80, (first, answered)


@pytest.mark.parametrize(("bind", "drivers"), [("127.0.0.1:0", "1"), ("unix", "2")])
def test_room_that_comes_back_is_used_at_once(
    supervise: Callable[..., Supervised], tmp_path: Path, bind: str, drivers: str
) -> None:
    """Where accepting began again with a look at the clock, each would wait for a quarter of a second."""
    place = bind.replace("unix", f"unix:{tmp_path}/s")
    # One queue, so that they are accepted in the order in which they are read.
    server = supervise("--processes", "1", "--drivers", drivers, "--connections-max", "1", bind=place)
    clients = [server.connect() for _ in range(240)]
    for client in clients:
        client.send(request("GET", "/"))
    began = time.monotonic()
    for client in clients:
        with client:
            assert client.reply().status == 200
    assert time.monotonic() - began < 15


def test_one_wakes_for_a_connection_on_a_shared_socket(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    """Without EPOLLEXCLUSIVE each of a hundred connections would wake both processes."""
    server = supervise("--processes", "2", bind=f"unix:{tmp_path}/s", log=None)
    pids = server.settled(2)

    def wakes() -> int:
        total = 0
        for pid in pids:
            for task in Path(f"/proc/{pid}/task").iterdir():
                if (task / "comm").read_text().strip() == "mp-accept":
                    status = (task / "status").read_text()
                    total += int(status.split("voluntary_ctxt_switches:")[1].split()[0])
        return total

    before = wakes()
    for _ in range(100):
        server.ask()
    assert wakes() - before <= 150


def test_status_says_how_often_steering_by_processor_succeeds(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--drivers", "2", "--driver-cpus", "auto", "--reuseport-steering", "cpu")
    for _ in range(64):
        assert server.ask().status == 200
    assert "% of connections" in server.status()["steering"]


def test_bursts_are_accepted_in_batches_and_all_answered(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--processes", "2", "--drivers", "2", "--accept-batch", "2")
    clients = [server.connect() for _ in range(200)]
    for client in clients:
        client.send(CLOSE)
    for client in clients:
        with client:
            assert client.reply().status == 200


def test_connections_max_holds_for_each_process_with_handing_over(
    supervise: Callable[..., Supervised],
) -> None:
    """Those beyond it wait; none is refused, and all are answered in the end."""
    server = supervise("--processes", "1", "--drivers", "4", "--connections-max", "8")
    clients = [server.connect() for _ in range(24)]
    for client in clients:
        client.send(CLOSE)
    for client in clients:
        with client:
            assert client.reply().status == 200
    held = [server.connect() for _ in range(12)]
    for client in held[:8]:
        client.send(request("GET", "/"))
    open_most = 0

    def all_there() -> bool:
        nonlocal open_most
        found = sum(driver["open"] for driver in server.drivers())
        open_most = max(open_most, found)
        return found == 8

    assert until(all_there)
    assert open_most == 8
    for client in held:
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.sock.close()
    # Whoever was read has its line, whether or not its client waited for the reply.
    assert server.stop() == 0
    server.exchanges = len(server.lines)


def running(server: Supervised) -> int:
    """Requests that the application has, in all processes."""
    return sum(pool["running"] for process in server.processes() for pool in process["pools"])


def waiting(server: Supervised) -> Client:
    """A request that waits. One that sends nothing for a second makes room at the bound."""
    client = server.connect()
    client.send(request("GET", UNTIL_GO, "Connection: close"))
    return client


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "unix"])
def test_no_more_connections_are_open_than_may_be(
    supervise: Callable[..., Supervised], tmp_path: Path, bind: str
) -> None:
    """Wherever one is on its way: accepted, or handed over to another driver."""
    server = supervise(
        *("--processes", "1", "--drivers", "4", "--connections-max", "8", "--threads", "16:16"),
        bind=bind.replace("unix", f"unix:{tmp_path}/s"),
    )
    clients = [waiting(server) for _ in range(12)]
    assert until(lambda: running(server) == 8)
    # As long as a driver that rests takes to look for room.
    end = time.monotonic() + 0.6
    while time.monotonic() < end:
        assert (running(server), sum(driver["open"] for driver in server.drivers())) == (8, 8)
    with server.go():
        for client in clients:
            with client:
                assert client.reply().status == 200


def test_a_full_process_leaves_a_shared_socket_to_the_other(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    """It waits for the socket and takes nothing from it: the kernel tells the other one."""
    server = supervise(
        *("--processes", "2", "--drivers", "2", "--connections-max", "4", "--threads", "8:8"),
        bind=f"unix:{tmp_path}/s",
    )
    pids = server.settled(2)
    # Of seven one process has four.
    clients = [waiting(server) for _ in range(7)]
    assert until(lambda: running(server) == 7)
    assert len(server.who_answer(20)) == 1
    with server.go():
        for client in clients:
            with client:
                assert client.reply().status == 200
    assert until(lambda: set(server.who_answer()) == pids)


@pytest.mark.parametrize(("steering", "expect"), [("cpu", 5), ("hash", 0)])
def test_connections_of_a_drivers_own_processor_are_counted(
    supervise: Callable[..., Supervised], steering: str, expect: int
) -> None:
    """A client's processor is the one that its packets come in on."""
    mine = os.sched_getaffinity(0)
    cpu = min(mine)
    options = ("--reuseport-steering", steering, "--status-path", "/-/status")
    server = supervise("--drivers", "1", "--driver-cpus", str(cpu), *options)
    os.sched_setaffinity(0, {cpu})
    try:
        for _ in range(4):
            assert server.ask().status == 200
        page = server.ask("/-/status").text
    finally:
        os.sched_setaffinity(0, mine)
    (driver,) = json.loads(page)["drivers"]
    assert (driver["accepted"], driver["local_cpu"]) == (5, expect)
