"""Fair shares: bandwidth of connections, routes and the pool, and connections of one client.

Bandwidth is checked by arithmetic: so many bytes cannot have come sooner than the limit allows, and
what is not limited comes far sooner than the limit would allow.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from raw import Client, request
from serving import DEADLINE_S, Milepost, tables, until

RATE = 800_000
# A quarter of a second's worth leaves at once.
BURST = RATE // 4
SIZE = 600_000
# One reply, and two that share.
ONE_S = (SIZE - BURST) / RATE
BOTH_S = (2 * SIZE - BURST) / RATE
# What a limit that must not count would take: nobody would wait for it.
SLOW = "1000"


def download(server: Milepost, *targets: str) -> float:
    """Seconds until all are there, each over its own connection."""
    faults: list[BaseException] = []

    def ask(target: str) -> None:
        try:
            with server.connect() as client:
                assert len(client.ask("GET", target).body) == SIZE
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=ask, args=(target,)) for target in targets]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for fault in faults:
        raise fault
    return time.monotonic() - began


APP = f"/large?bytes={SIZE}"
LIST = f"/large?bytes={SIZE}&part={SIZE}&length=1"
FILE = "/files/some"


# What stands before a limit of a route, which no flag has.
ROUTE = "rate_route:"


@pytest.fixture
def limited(serve: Callable[..., Milepost], tmp_path: Path) -> Callable[..., Milepost]:
    """Starts a server with an application and two folders under these limits."""
    for name in ("files", "more"):
        (tmp_path / name).mkdir()
        with (tmp_path / name / "some").open("wb") as file:
            file.truncate(SIZE)

    def start(*limits: str) -> Milepost:
        routes = [limit.removeprefix(ROUTE).split("=") for limit in limits if limit.startswith(ROUTE)]
        others = [limit for limit in limits if not limit.startswith(ROUTE)]
        toml = tables("rate_route", *({"url": url, "rate": rate} for url, rate in routes))
        return serve("zoo:app", "--static", "/files=files", "--static", "/more=more", *others, toml=toml)

    return start


def is_limited(least: float, measure: Callable[[], float]) -> None:
    """It never takes less, and no more than another limit would make of it. A busy machine takes its time as
    well, so that one attempt in which it did not decides."""

    def is_no_slower() -> bool:
        seconds = measure()
        assert least * 0.95 < seconds
        return seconds < least * 2 + 1

    assert until(is_no_slower)


def is_free(measure: Callable[[], float]) -> None:
    """It takes less than any limit would let it; one attempt decides."""
    assert until(lambda: measure() < ONE_S)


@pytest.mark.parametrize(
    ("limits", "counted", "free"),
    [
        # Each scope by itself, and what it is not about.
        ([f"--rate-connection={RATE}"], [APP, LIST, FILE], []),
        ([f"rate_route:/={RATE}"], [APP], [FILE]),
        ([f"rate_route:/files={RATE}"], [FILE], [APP, "/more/some"]),
        ([f"--rate-pool={RATE}"], [LIST], [FILE]),
        # The narrowest that is set counts, alone: also when it is the faster one.
        ([f"--rate-connection={RATE}", f"rate_route:/={SLOW}", f"--rate-pool={SLOW}"], [APP], []),
        ([f"rate_route:/={RATE}", f"--rate-pool={SLOW}"], [APP], [FILE]),
        # `off` is set as well: it lifts what is wider.
        ([f"rate_route:/={SLOW}", f"--rate-pool={SLOW}", "--rate-connection=off"], [], [APP, FILE]),
        (["rate_route:/=off", f"--rate-pool={SLOW}"], [], [APP]),
        (["rate_route:/files=off", f"--rate-connection={RATE}"], [FILE], []),
    ],
    ids=" ".join,
)
def test_the_narrowest_limit_that_is_set_counts_alone(
    limited: Callable[..., Milepost], limits: list[str], counted: list[str], free: list[str]
) -> None:
    server = limited(*limits)
    for target in free:
        is_free(partial(download, server, target))
    # At once where they do not share.
    if "connection" in limits[0]:
        is_limited(ONE_S, partial(download, server, *counted))
    else:
        for target in counted:
            is_limited(ONE_S, partial(download, server, target))


@pytest.mark.parametrize(
    ("limits", "targets", "least"),
    [
        ([f"--rate-connection={RATE}"], [APP, APP], ONE_S),
        ([f"rate_route:/={RATE}"], [APP, LIST], BOTH_S),
        ([f"rate_route:/files={RATE}"], [FILE, FILE], BOTH_S),
        ([f"rate_route:/files={RATE}", f"rate_route:/more={RATE}"], [FILE, "/more/some"], ONE_S),
        ([f"--rate-pool={RATE}"], [APP, LIST], BOTH_S),
    ],
)
def test_replies_share_what_is_given_to_all_of_them(
    limited: Callable[..., Milepost], limits: list[str], targets: list[str], least: float
) -> None:
    measure = partial(download, limited(*limits), *targets)
    is_limited(least, measure)
    # Those who share nothing are done before those who share could be.
    assert least == BOTH_S or until(lambda: measure() < BOTH_S)


def test_a_connection_has_one_share_for_all_its_replies(limited: Callable[..., Milepost]) -> None:
    # Nor is its client blamed for taking no more than it is given.
    server = limited(f"--rate-connection={RATE}", "--send-timeout=300ms", "--send-rate-min=1G")

    def both() -> float:
        with server.connect() as client:
            began = time.monotonic()
            client.send(request("GET", FILE) + request("GET", APP))
            assert [len(client.reply().body) for _ in range(2)] == [SIZE, SIZE]
            return time.monotonic() - began

    is_limited(BOTH_S, both)


def test_small_replies_do_not_notice_a_limit(limited: Callable[..., Milepost]) -> None:
    server = limited("--rate-pool=40000")
    with server.connect() as client:
        began = time.monotonic()
        # Together less than the burst of 16 KB, heads included.
        for _ in range(80):
            assert client.ask("GET", "/hello").body == b"hello"
        # A pause for each, however short, would be more than that: drivers look four times a second.
        assert time.monotonic() - began < 15


def test_an_application_limits_a_reply_by_itself(limited: Callable[..., Milepost]) -> None:
    server = limited(f"--rate-connection={SLOW}", f"--rate-pool={SLOW}")

    def take(client: Client, rate: str) -> float:
        began = time.monotonic()
        reply = client.ask("GET", f"/limited?bytes={SIZE}&rate={rate}")
        seconds = time.monotonic() - began
        assert (len(reply.body), reply.framing) == (SIZE, "length")
        assert reply.header("x-accel-limit-rate") is None
        return seconds

    def in_a_row() -> bool:
        """On one connection; whether each came as quickly as it may."""
        with server.connect() as client:
            limited_s, *free_s = [take(client, rate) for rate in (str(RATE), "0", "off")]
        assert ONE_S * 0.95 < limited_s
        return limited_s < 2 * ONE_S + 1 and max(free_s) < ONE_S

    assert until(in_a_row)
    with server.connect() as client:
        assert client.ask("GET", "/limited?bytes=5&rate=fast").status == 500


def test_a_limit_holds_no_thread(limited: Callable[..., Milepost]) -> None:
    # Half a minute for all of it.
    server = limited("--threads=1:1", "--rate-connection=20000")
    slow = server.connect()
    slow.send(request("GET", APP))
    # The one thread is done with it long before its client is.
    with server.connect() as client:
        for _ in range(100):
            assert client.ask("GET", "/hello").body == b"hello"
    slow.sock.setblocking(False)
    began = len(slow.sock.recv(1 << 20))
    assert began < SIZE
    slow.sock.settimeout(DEADLINE_S)
    slow.sock.close()
    server.count()


def test_clients_that_leave_while_they_wait_for_their_share_are_noticed(
    serve: Callable[..., Milepost],
) -> None:
    server = serve("zoo:app", "--rate-pool=1000", "--status-path", "/-/status")
    clients = [server.connect() for _ in range(100)]
    for client in clients:
        client.send(request("GET", "/large?bytes=65536&length=1"))
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    server.count(100)
    with server.connect() as other:

        def sending() -> int:
            found = json.loads(other.ask("GET", "/-/status").body)
            return sum(driver["connections"]["sending"] for driver in found["drivers"])

        assert until(lambda: sending() == 100)
        for client in clients:
            client.sock.close()
        # The least of them would wait for a minute, and nobody waits for a share of theirs.
        assert until(lambda: sending() == 0, DEADLINE_S / 3)
        assert other.ask("GET", "/hello").body == b"hello"


# Connections of one client


def connect_from(server: Milepost, source: str) -> Client:
    """A connection from another of our own addresses."""
    host, port = server.address
    sock = socket.create_connection((host, port), timeout=DEADLINE_S, source_address=(source, 0))
    return Client(sock, server.count)


def is_welcome(server: Milepost, source: str) -> bool:
    """Whether a new connection from there is served; it is gone again afterwards, as is one refused."""
    with connect_from(server, source) as client, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        client.send(request("GET", "/hello"))
        status, _, _ = client.head()
        if status == 200:
            assert client.exactly(5) == b"hello"
            server.count()
        return status == 200
    return False


def is_refused(server: Milepost, source: str) -> None:
    with connect_from(server, source) as client:
        reply = client.reply()
        # It has no line in the access log.
        server.count(-1)
        assert (reply.status, reply.closes, reply.header("retry-after")) == (429, True, "1")
        assert client.is_closed()


def open_from(server: Milepost, *sources: str) -> list[Client]:
    clients = [connect_from(server, source) for source in sources]
    for client in clients:
        assert client.ask("GET", "/hello").status == 200
    return clients


def crowded(server: Milepost) -> int:
    with server.connect() as client:
        status = json.loads(client.ask("GET", "/-/status").body)
    return sum(driver["crowded_clients"] for driver in status["drivers"])


def test_a_client_with_many_connections_is_refused_and_others_are_not(
    serve: Callable[..., Milepost],
) -> None:
    server = serve(
        *(
            "zoo:app",
            "--trusted-proxies",
            "off",
            "--client-connections-max",
            "3",
            "--drivers",
            "2",
            "--status-path",
            "/-/status",
        ),
    )
    clients = open_from(server, *["127.0.0.2"] * 3)
    for _ in range(3):
        is_refused(server, "127.0.0.2")
    assert is_welcome(server, "127.0.0.1") and is_welcome(server, "127.0.0.3")
    assert crowded(server) == 3
    # Those that it has go on, and one that leaves makes room for one.
    for client in clients:
        assert client.ask("GET", "/hello").status == 200
    clients.pop().sock.close()
    assert until(lambda: is_welcome(server, "127.0.0.2"))
    clients += open_from_when_there_is_room(server, "127.0.0.2")
    is_refused(server, "127.0.0.2")
    for client in clients:
        client.sock.close()
    assert server.stop() == 0
    told = [line for line in server.stderr if "more are refused" in line]
    # At most once a second.
    assert told and "warning: client 127.0.0.2/32 has 3 connections: more are refused" in told[0]
    assert len(told) <= 3


def open_from_when_there_is_room(server: Milepost, source: str) -> list[Client]:
    """One that stays: the place of the one before it may not be free yet."""
    opened: list[Client] = []

    def attempt() -> bool:
        client = connect_from(server, source)
        client.send(request("GET", "/hello"))
        status, _, _ = client.head()
        if status != 200:
            client.sock.close()
            return False
        assert client.exactly(5) == b"hello"
        server.count()
        opened.append(client)
        return True

    assert until(attempt)
    return opened


def test_clients_are_told_apart_by_their_network(serve: Callable[..., Milepost]) -> None:
    server = serve(
        *("zoo:app", "--trusted-proxies", "off", "--client-connections-max", "2", "--client-prefix-v4", "24"),
        *("--status-path", "/-/status"),
    )
    clients = open_from(server, "127.0.5.1", "127.0.5.200")
    is_refused(server, "127.0.5.77")
    assert is_welcome(server, "127.0.6.1") and is_welcome(server, "127.0.4.255")
    for client in clients:
        client.sock.close()
    assert server.stop() == 0
    assert "client 127.0.5.0/24 has 2 connections: more are refused" in server.errors


def test_clients_of_one_v6_network_are_one(serve: Callable[..., Milepost]) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"no ::1 here: {error}")
    server = serve("zoo:app", "--trusted-proxies", "off", "--client-connections-max", "2", bind="[::1]:0")
    clients = open_from(server, "::1", "::1")
    is_refused(server, "::1")
    for client in clients:
        assert client.ask("GET", "/hello").status == 200
        client.sock.close()
    assert server.stop() == 0
    assert "client ::/64 has 2 connections: more are refused" in server.errors


def test_a_v4_client_of_a_v6_socket_is_its_v4_address(serve: Callable[..., Milepost]) -> None:
    try:
        server = serve("zoo:app", "--trusted-proxies", "off", "--client-connections-max", "2", bind="[::]:0")
    except AssertionError as error:
        pytest.skip(f"no v6 here: {error}")
    port = server.address[1]

    def connect(source: str) -> Client:
        sock = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S, source_address=(source, 0))
        return Client(sock, server.count)

    clients = [connect("127.0.0.1") for _ in range(2)]
    for client in clients:
        assert client.ask("GET", "/hello").status == 200
    with connect("127.0.0.1") as third:
        assert third.reply().status == 429
        server.count(-1)
    # With the prefix for v6 all of v4 would be one client.
    with connect("127.0.0.2") as other:
        assert other.ask("GET", "/hello").status == 200
    for client in clients:
        client.sock.close()


def test_unix_sockets_are_not_counted(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    server = serve("zoo:app", "--client-connections-max", "1", bind=f"unix:{tmp_path / 's'}")
    clients = [server.connect() for _ in range(5)]
    for client in clients:
        assert client.ask("GET", "/hello").status == 200
        client.sock.close()
