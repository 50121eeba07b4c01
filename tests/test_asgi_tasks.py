"""Tasks and the event loop as an application finds them: what works with those of asyncio works here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raw import Client, request
from serving import LOOPS, Milepost, until
from supervising import Supervised

APP = """
import asyncio
import contextlib
import contextvars
import inspect
import os
import signal
import socket
import json
import multiprocessing
import threading
import time

word = contextvars.ContextVar("word", default="unset")
factories = {
    "plain": lambda loop, coro, **more: asyncio.Task(coro, loop=loop, **more),
    "wraps": lambda loop, coro, **more: asyncio.Task(wrapped(coro), loop=loop, **more),
    "eager": getattr(asyncio, "eager_task_factory", None),
}


async def wrapped(coro):
    return await coro


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        asyncio.get_running_loop().set_task_factory(factories.get(os.environ["FACTORY"]))
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        return await send({"type": "lifespan.shutdown.complete"})
    try:
        found = await globals()[scope["path"][1:]]()
    except ValueError as error:
        found = repr(error)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(found).encode()})


async def current():
    # All of it in the first step.
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    return [task in asyncio.all_tasks(), task.get_loop() is loop, task.done(), not task.get_coro() is None]


async def states():
    # What tools such as anyio ask a task for, while it runs and while it waits.
    coro = asyncio.current_task().get_coro()
    found, waited = [inspect.getcoroutinestate(coro)], asyncio.Event()

    async def look():
        await asyncio.sleep(0)
        found.append(inspect.getcoroutinestate(coro))
        waited.set()

    looks = asyncio.create_task(look())
    await waited.wait()
    await looks
    return found


async def context():
    before = word.get()
    word.set("own")

    async def child():
        return word.get()

    of_child = await asyncio.create_task(child())
    await asyncio.sleep(0)
    return [before, of_child, word.get()]


async def cancels():
    # In its first step, of which the loop has not heard yet.
    asyncio.current_task().cancel()
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        if hasattr(asyncio.current_task(), "uncancel"):
            asyncio.current_task().uncancel()
        await asyncio.sleep(0.01)
        return "cancelled"


async def stops():
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.01)
    return "goes on"


async def many():
    # More descriptors are ready than one wait gives.
    loop, count, seen = asyncio.get_running_loop(), 700, set()
    pairs, done = [socket.socketpair() for _ in range(count)], loop.create_future()

    def ready(number):
        pairs[number][0].recv(1)
        seen.add(number)
        if len(seen) == count:
            done.set_result(len(seen))

    for number, (reader, _) in enumerate(pairs):
        loop.add_reader(reader, ready, number)
    for _, writer in pairs:
        writer.send(b"x")
    await done
    for reader, writer in pairs:
        loop.remove_reader(reader)
        reader.close()
        writer.close()
    return len(seen)


async def signals():
    # While the loop waits: a handler of the loop, one of Python, and one of Python that raises.
    loop = asyncio.get_running_loop()
    of_loop = loop.create_future()
    loop.add_signal_handler(signal.SIGUSR1, of_loop.set_result, "loop")
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    found = [await of_loop]
    loop.remove_signal_handler(signal.SIGUSR1)

    def handles(*_):
        found.append("python")
        raise LookupError("of a handler")

    signal.signal(signal.SIGUSR1, handles)
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    while len(found) < 2:
        # The signal may come in this coroutine too, where the loop has just ended its wait; or in the
        # callback of a timer, which then does nothing else: there are two.
        with contextlib.suppress(LookupError):
            await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0.1))], timeout=0.2)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    return found


def run_in_child(pipe):
    async def asynchronous():
        await asyncio.sleep(0.01)
        return "of the child"

    pipe.send(asyncio.run(asynchronous()))


async def forks():
    # The child has the loop's descriptors, and a loop of its own.
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    child = fork.Process(target=run_in_child, args=(theirs,))
    child.start()
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(None, ours.recv)
    await loop.run_in_executor(None, child.join)
    return [found, child.exitcode]


async def blocks():
    open("blocks", "w").close()
    while not os.path.exists("enough"):
        time.sleep(0.01)


async def sweeps():
    # Requests that have come meanwhile have a task, and no step yet.
    requests = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in requests:
        if "Lifespan" not in repr(task):
            task.cancel()


async def raises():
    async def child():
        raise ValueError("of a child")

    await asyncio.gather(asyncio.sleep(0.01), child())
"""

HAS_EAGER = sys.version_info >= (3, 12)
EXPECTED = {
    "current": [True, True, False, True],
    "states": ["CORO_RUNNING", "CORO_SUSPENDED"],
    "context": ["unset", "own", "own"],
    "cancels": "cancelled",
    "stops": "goes on",
    "many": 700,
    "signals": ["loop", "python"],
    "forks": ["of the child", 0],
    "raises": "ValueError('of a child')",
}


def settings() -> Iterator[object]:
    for factory in ("none", "plain", "wraps", "eager"):
        for loop in LOOPS:
            name, marks = (loop, ()) if isinstance(loop, str) else (loop.values[0], loop.marks)
            if factory == "eager" and (name == "uvloop" or not HAS_EAGER):
                # uvloop 0.23 gives this factory an argument that those of Python before 3.13.3 do not take.
                continue
            yield pytest.param((name, factory, ""), marks=marks, id=f"{name}-{factory}")
    yield pytest.param(("asyncio", "none", "1"), id="asyncio-debug")


@pytest.fixture(scope="module", params=settings())
def server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Milepost]:
    loop, factory, debug = request.param
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "tasks_app.py").write_text(APP)
    env = {"FACTORY": factory, "PYTHONASYNCIODEBUG": debug}
    with Milepost(folder, "tasks_app:app", "--app-dir", str(folder), "--loop", loop, env=env) as server:
        yield server
        assert server.stop() == 0
        # That of the handler that raises on purpose.
        assert server.errors.count("Traceback") == server.errors.count("LookupError: of"), server.errors


@pytest.fixture
def client(server: Milepost) -> Iterator[Client]:
    with server.connect() as connection:
        yield connection


@pytest.mark.parametrize("name", EXPECTED)
def test_what_works_with_asyncio_works_here(client: Client, name: str) -> None:
    for _ in range(3):
        assert json.loads(client.ask("GET", f"/{name}").body) == EXPECTED[name]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_task_that_is_cancelled_before_its_first_step_costs_its_request(
    supervise: Callable[..., Supervised], tmp_path: Path, loop: str
) -> None:
    (tmp_path / "app.py").write_text(APP)
    # The coroutine of the factory ends without having awaited that of the request.
    server = supervise("--loop", loop, "--queue-target", "20s", env={"FACTORY": "wraps"})

    def waiting_len() -> int:
        (process,) = server.processes()
        return int(process["pools"][0]["waiting"])

    with server.connect() as blocking, server.connect() as sweeping, server.connect() as swept:
        blocking.send(request("GET", "/blocks"))
        assert until((tmp_path / "blocks").exists)
        sweeping.send(request("GET", "/sweeps"))
        assert until(lambda: waiting_len() == 1)
        swept.send(request("GET", "/current"))
        assert until(lambda: waiting_len() == 2)
        (tmp_path / "enough").touch()
        assert (blocking.reply().status, sweeping.reply().status) == (200, 200)
        assert swept.reply().status == 500
    assert until(lambda: "the task of the request was cancelled" in server.errors)


def test_a_factory_that_makes_no_task_costs_the_request(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    (tmp_path / "broken_app.py").write_text(APP + "factories['broken'] = lambda loop, coro, **more: 1 / 0\n")
    # The lifespan's own tasks are made before the application has set it.
    server = serve("broken_app:app", "--app-dir", str(tmp_path), env={"FACTORY": "broken"})
    with server.connect() as client:
        for _ in range(3):
            assert client.ask("GET", "/current").status == 500
    assert until(lambda: server.errors.count("ZeroDivisionError") >= 3)
