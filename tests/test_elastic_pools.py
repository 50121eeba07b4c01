"""Pools that size themselves, and what keeps them from growing: those who know that it is useless.

Each load is seen to make a pool grow that nobody has told anything; the one that was told does not.
"""

from __future__ import annotations

import contextlib
import os
import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raw import Client, request
from serving import DEADLINE_S, tables, until
from supervising import Supervised

# Two pools with an engine each, of two connections; of one its use is told. A request holds a connection as
# long as its gate is shut, or holds none and sleeps for a moment.
ORDERS = """
import time

import milepost
from sqlalchemy import create_engine, event, text
from sqlalchemy.pool import QueuePool

SIZE = 2


def engine(name):
    made = create_engine(
        "sqlite:///%s.db" % name,
        poolclass=QueuePool, pool_size=SIZE, max_overflow=0, pool_timeout=60,
        connect_args={"check_same_thread": False},
    )
    assert type(made.pool) is QueuePool
    return made


engines = {"told": engine("told"), "untold": engine("untold")}
pool = engines["told"].pool


@event.listens_for(engines["told"], "checkout")
def taken(*_):
    milepost.downstream("database", pool.checkedout(), SIZE)


@event.listens_for(engines["told"], "checkin")
def given_back(*_):
    milepost.downstream("database", pool.checkedout() - 1, SIZE)


def app(environ, start_response):
    _, name, what = environ["PATH_INFO"].split("/")
    if what == "holds":
        with engines[name].connect() as connection, open(environ["QUERY_STRING"]) as gate:
            body = b"%d" % connection.execute(text("select 42")).scalar()
            gate.read()
    elif what == "taken":
        body = b"%d" % engines[name].pool.checkedout()
    else:
        time.sleep(0.02)
        body = b"slept"
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
"""

# Sleeps or computes.
WORK = """
import time


def app(environ, start_response):
    if environ["PATH_INFO"] == "/sleep":
        time.sleep(0.02)
    else:
        sum(range(300_000))
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "4")])
    return [b"done"]
"""

PATIENT = ("--overload-timeout", "60s", "--queue-timeout", "60s")


def started(server: Supervised, name: str) -> int:
    """Threads that a pool has ever had."""
    (found,) = (one for one in server.status()["counters"]["pools"] if one["name"] == name)
    threads: int = found["threads_started"]
    return threads


def asked(server: Supervised, target: str) -> Client:
    """A connection on which this was asked."""
    client = server.connect()
    client.send(request("GET", target, "Connection: close"))
    return client


def answered(clients: list[Client]) -> list[str]:
    """What each was answered."""
    texts = []
    for client in clients:
        with client:
            reply = client.reply()
        assert reply.status == 200, reply
        texts.append(reply.text)
    return texts


def holding(server: Supervised, name: str, count: int) -> tuple[list[Client], list[Path]]:
    """Requests that each have or want a connection until their gates open."""
    gates = [server.folder / f"{name}{number}" for number in range(count)]
    for gate in gates:
        os.mkfifo(gate)
    return [asked(server, f"/{name}/holds?{gate}") for gate in gates], gates


def running(server: Supervised, name: str) -> int:
    (process,) = server.processes()
    (found,) = (one for one in process["pools"] if one["name"] == name)
    count: int = found["running"]
    return count


def test_a_pool_whose_connections_are_used_up_does_not_grow(
    tmp_path: Path, supervise: Callable[..., Supervised]
) -> None:
    """Two threads have the connections, the third waits for one, the fourth does what needs none."""
    pytest.importorskip("sqlalchemy")
    (tmp_path / "app.py").write_text(ORDERS)
    names = ["told", "untold"]
    toml = tables("pool", *({"name": name, "threads": "4:12"} for name in names))
    toml += tables("pool_rule", *({"pool": name, "path": f"/{name}/**"} for name in names))
    server = supervise(*PATIENT, toml=toml)
    held: dict[str, tuple[list[Client], list[Path]]] = {}
    for name in names:
        held[name] = holding(server, name, 3)
        assert until(lambda name=name: server.ask(f"/{name}/taken").text == "2")
        assert until(lambda name=name: running(server, name) == 3)
    # Where threads wake up late it may have grown before anything was used up.
    before = {name: started(server, name) for name in names}
    waiting = {name: [asked(server, f"/{name}/sleeps") for _ in range(150)] for name in names}
    assert all(set(answered(waiting[name])) == {"slept"} for name in names)
    for clients, gates in held.values():
        with contextlib.ExitStack() as opened:
            # Opening waits for the application to have opened the other side: each once it has a connection.
            openers = [threading.Thread(target=lambda gate=gate: open(gate, "w").close()) for gate in gates]
            for opener in openers:
                opener.start()
                opened.callback(opener.join)
            assert answered(clients) == ["42"] * 3
    assert started(server, "untold") > before["untold"]
    assert started(server, "told") == before["told"]


@contextlib.contextmanager
def asking(server: Supervised, target: str, callers: int) -> Iterator[None]:
    """So many ask without a pause, each on one connection."""
    over = threading.Event()
    faults: list[Any] = []

    def call() -> None:
        with server.connect() as client:
            while not over.is_set():
                reply = client.ask("GET", target)
                if reply.status != 200:
                    faults.append(reply)
                    return

    threads = [threading.Thread(target=call) for _ in range(callers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert faults == []


@pytest.mark.skipif(bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="threads compute at once")
def test_a_pool_that_computes_under_the_interpreters_lock_does_not_stay_at_its_maximum(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    """It may try; by queue latency alone it would grow to the maximum and stay there."""
    (tmp_path / "app.py").write_text(WORK)
    server = supervise("--threads", "1:16", *PATIENT)
    with asking(server, "/compute", 24):
        # Milliseconds each, one after the other: there are dozens of looks at the pool meanwhile.
        assert until(lambda: pool_of(server)["completed"] >= 150)
        assert until(lambda: pool_of(server)["threads"] <= 8)


def test_a_pool_that_sleeps_grows_for_the_same_callers(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(WORK)
    server = supervise("--threads", "1:16", *PATIENT)
    with asking(server, "/sleep", 24):
        assert until(lambda: pool_of(server)["threads"] > 8)


def pool_of(server: Supervised) -> dict[str, Any]:
    """The only pool of the only process."""
    (pool,) = server.processes()[0]["pools"]
    return dict(pool)


# Whoever comes at its end waits for the interpreter until that ends, which takes a moment.
LATE = """
import atexit
import ctypes
import os
import time

atexit.register(ctypes.PyDLL(None).usleep, 300_000)


class Late:
    def __del__(self, sleep=time.sleep):
        sleep(0.5)


late = Late()


def app(environ, start_response):
    while environ["PATH_INFO"] == "/go" and not os.path.exists("finish"):
        time.sleep(0.01)
    start_response("200 OK", [("Content-Length", "4")])
    return [b"done"]
"""


def test_nobody_comes_to_an_interpreter_that_ends(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    """Whoever measures the waits for it, which is done while a pool that may grow has something to do."""
    (tmp_path / "app.py").write_text(LATE)
    # Who looks after requests that take long keeps what it knows of the application until the very end.
    server = supervise("--threads", "2:4", "--slow-request", "1m")
    with server.connect() as client:
        assert client.ask("GET", "/").body == b"done"
        client.send(request("GET", "/go"))
        assert until(lambda: pool_of(server)["running"] == 1)
        server.signal()
        (tmp_path / "finish").touch()
        assert client.reply().body == b"done"
        assert server.wait() == 0
    assert "was killed" not in server.errors, server.errors


@pytest.mark.long
def test_a_pool_without_work_shrinks_to_its_fewest_threads(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(WORK)
    server = supervise("--threads", "2:4", *PATIENT)
    assert pool_of(server)["threads"] == 2
    with asking(server, "/sleep", 12):
        assert until(lambda: pool_of(server)["threads"] > 2)
    # It takes its time on purpose: ten seconds, and then some for each thread.
    assert until(lambda: pool_of(server)["threads"] == 2, 2 * DEADLINE_S)
    assert server.ask().status == 200
