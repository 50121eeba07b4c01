"""System calls of a request on a kept connection: no more than ARCHITECTURE.md section 7 says.

Counts what the serving process calls, by strace, while a client asks again and again; the access log is on.
The table below is an upper bound for each call and for all calls that it does not name. Nothing here
measures time: calls by the clock (log pages, deadlines) have an allowance for each second that passes.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from certificates import Authority
from raw import Client
from serving import DEADLINE_S, Milepost, until

REQUESTS = 1000
WARM_UP = 200
BATCHES = 40
BATCH_LEN = 16
# What the threads without a request call on their own: in all when strace comes and goes, and in a second.
FREE_CALLS = 40
FREE_CALLS_PER_S = 40

FILE = {"recvfrom": 1, "sendto": 1, "epoll_wait": 1}
# The client's next request may come before the worker has given the connection back. Then the driver has been
# woken twice: by the request and by the worker, which writes into the driver's eventfd.
WSGI = {"recvfrom": 1, "sendto": 1, "clock_gettime": 1, "epoll_wait": 2, "futex": 2, "write": 1}
# The event loop is woken by its eventfd, and begins the request in the turn of its wait (`epoll_pwait`). The
# driver may be woken twice, as with a worker.
ASGI = {"recvfrom": 1, "sendto": 1, "write": 2, "epoll_pwait": 1, "epoll_wait": 2, "futex": 2}
PATHS = {"/static/small.txt": FILE, "/app": WSGI}

# Calls that a batch shares. A call that a signal interrupts does not count: it has found and woken nothing.
FOUND = re.compile(r"epoll_wait\(.*= [1-9]\d*$|futex\(.*FUTEX_WAKE.*= [1-9]\d*$", re.MULTILINE)
# A batch is found at once and handed over at once: one each on a quiet machine. What has been read for 100 µs
# is handed over before the rest, and a tracer makes every call slow.
SHARED = {
    "/static/small.txt": {"epoll_wait": 1, "futex": 0},
    "/app": {"epoll_wait": 2, "futex": BATCH_LEN / 2},
}

APP = """
BODY = b"x" * 1024

def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "1024")])
    return [BODY]
"""


class Traced(NamedTuple):
    """The calls of a process while it was traced: of each thread, line by line, and how long that took."""

    threads: dict[str, str]
    seconds: float

    def counted(self) -> Counter[str]:
        """How often each was called."""
        return Counter(
            name for text in self.threads.values() for name in re.findall(r"^(\w+)\(", text, re.MULTILINE)
        )

    def found(self) -> Counter[str]:
        """How often a call of a batch found or woke something."""
        calls = (match for text in self.threads.values() for match in FOUND.findall(text))
        return Counter(call.partition("(")[0] for call in calls)

    def sent_by(self, thread: str) -> int:
        """How often threads whose names begin so have offered bytes to a socket."""
        return sum(text.count("\nsendto(") for name, text in self.threads.items() if name.startswith(thread))

    def listed(self) -> str:
        """For a test that fails: what each thread has called."""
        each = {name: Counter(re.findall(r"^(\w+)\(", text, re.M)) for name, text in self.threads.items()}
        return "\n".join(f"{name}: {dict(calls)}" for name, calls in each.items() if calls.total() > 1)


@contextlib.contextmanager
def traced(server: Milepost, folder: Path) -> Iterator[list[Traced]]:
    """Traces the serving process within the block; what was seen is in the list behind it."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    tasks = Path(f"/proc/{server.serving_pid}/task")
    names = {task.name: (task / "comm").read_text().strip() for task in tasks.iterdir()}
    output = folder / "calls"
    argv = [strace, "-ff", "-qq", "-s", "0", "-o", str(output), "-p", str(server.serving_pid)]
    tracer = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    seen: list[Traced] = []
    try:
        assert until(lambda: tracer.poll() is not None or is_traced(tasks)), "strace did not come"
        if tracer.poll() is not None:
            assert tracer.stderr is not None
            pytest.skip(f"strace may not trace here: {tracer.stderr.read().strip()}")
        began_s = time.monotonic()
        yield seen
        seconds = time.monotonic() - began_s
    finally:
        tracer.terminate()
        tracer.communicate(timeout=DEADLINE_S)
    texts = {path.suffix[1:]: path.read_text() for path in folder.glob("calls.*")}
    threads = {f"{names.get(task, 'new')} {task}": text for task, text in texts.items()}
    seen.append(Traced(threads, seconds))


def is_traced(tasks: Path) -> bool:
    """Whether every thread has a tracer."""
    return all("TracerPid:\t0\n" not in (task / "status").read_text() for task in tasks.iterdir())


@pytest.fixture
def start(serve: Callable[..., Milepost], tmp_path: Path) -> Callable[..., Milepost]:
    (tmp_path / "hot_app.py").write_text(APP)
    (tmp_path / "files").mkdir()
    (tmp_path / "files/small.txt").write_bytes(b"x" * 1024)
    return partial(serve, "hot_app:app", "--static", "/static=files", "--threads", "1:1")


@pytest.fixture
def server(start: Callable[..., Milepost]) -> Milepost:
    return start()


@pytest.fixture
def server_under_tls(start: Callable[..., Milepost], tmp_path: Path) -> Milepost:
    authority = Authority(tmp_path)
    context = ssl.create_default_context()
    authority.ca.configure_trust(context)
    return start(*authority.flags("server", "localhost"), tls=context)


def ask(client: Client, path: str, times: int) -> None:
    for _ in range(times):
        reply = client.ask("GET", path)
        assert (reply.status, len(reply.body)) == (200, 1024)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("transport", ["server", "server_under_tls"])
def test_a_request_on_a_kept_connection_needs_no_more_calls(
    request: pytest.FixtureRequest, tmp_path: Path, path: str, transport: str
) -> None:
    server = request.getfixturevalue(transport)
    with server.connect() as client:
        ask(client, path, WARM_UP)
        with traced(server, tmp_path) as seen:
            ask(client, path, REQUESTS)
    (calls,) = seen
    check(calls, PATHS[path], silent="mp-driver" if path == "/app" else "mp-pool")


def check(calls: Traced, bounds: dict[str, int], silent: str) -> None:
    """Each request has needed no more than that, and these threads have sent nothing."""
    counted = calls.counted()
    free = FREE_CALLS + FREE_CALLS_PER_S * calls.seconds
    for name, most in bounds.items():
        assert counted[name] <= most * REQUESTS + free, (name, calls.listed())
    # That the tracer has seen the requests at all.
    assert min(counted["recvfrom"], counted["sendto"]) >= REQUESTS, calls.listed()
    others = Counter({name: count for name, count in counted.items() if name not in bounds})
    assert others.total() <= free, (others, calls.listed())
    # A response leaves from the thread that has made it, which wakes no other for it.
    assert calls.sent_by(silent) <= free, calls.listed()


@pytest.mark.parametrize("path", SHARED)
def test_requests_that_come_together_share_their_wake_ups(
    server: Milepost, tmp_path: Path, path: str
) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(BATCH_LEN)]
        for client in clients:
            ask(client, path, 1)
        with traced(server, tmp_path) as seen:
            for _ in range(BATCHES):
                ask_together(server, clients, path)
    (calls,) = seen
    found = calls.found()
    free = FREE_CALLS + FREE_CALLS_PER_S * calls.seconds
    for name, most in SHARED[path].items():
        assert found[name] <= most * BATCHES + free, (name, found, calls.listed())


def ask_together(server: Milepost, clients: list[Client], path: str) -> None:
    """The requests of a batch are all there before the server sees the first one."""
    os.kill(server.serving_pid, signal.SIGSTOP)
    try:
        assert until(lambda: is_stopped(server.serving_pid)), "the server did not stop"
        for client in clients:
            client.send(f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
    finally:
        os.kill(server.serving_pid, signal.SIGCONT)
    for client in clients:
        assert client.reply().status == 200


def is_stopped(pid: int) -> bool:
    """Whether none of its threads runs."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return all((task / "stat").read_text().rpartition(") ")[2][0] in "Tt" for task in tasks)


ASGI_APP = """
BODY = b"x" * 1024

async def app(scope, receive, send):
    assert scope["type"] == "http"
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"1024")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})
"""


@pytest.fixture
def asgi_server(serve: Callable[..., Milepost], tmp_path: Path) -> Milepost:
    (tmp_path / "hot_app.py").write_text(ASGI_APP)
    return serve("hot_app:app", "--loop", "asyncio")


def test_a_request_of_an_event_loop_needs_no_more_calls(asgi_server: Milepost, tmp_path: Path) -> None:
    with asgi_server.connect() as client:
        ask(client, "/", WARM_UP)
        with traced(asgi_server, tmp_path) as seen:
            ask(client, "/", REQUESTS)
    (calls,) = seen
    check(calls, ASGI, silent="mp-driver")


def test_requests_that_come_together_wake_an_event_loop_once(asgi_server: Milepost, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(asgi_server.connect()) for _ in range(BATCH_LEN)]
        for client in clients:
            ask(client, "/", 1)
        with traced(asgi_server, tmp_path) as seen:
            for _ in range(BATCHES):
                ask_together(asgi_server, clients, "/")
    (calls,) = seen
    counted = calls.counted()
    free = FREE_CALLS + FREE_CALLS_PER_S * calls.seconds
    # What has been read for 100 us is handed over before the rest, and a tracer makes every call slow.
    assert counted["write"] <= BATCHES * BATCH_LEN / 2 + free, calls.listed()
    assert counted["sendto"] >= BATCHES * BATCH_LEN, calls.listed()
