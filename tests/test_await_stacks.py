"""Where a request stands that waits for tasks of its own: the stack of its awaits goes on in these."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from raw import request
from serving import LOOPS, until
from supervising import Supervised

APP = """
import asyncio
from pathlib import Path

import anyio


async def wait_for_end():
    while not Path("end").exists():
        await asyncio.sleep(0.01)


async def fetch():
    await wait_for_end()  # fetch


async def both():
    await asyncio.gather(fetch(), wait_for_end())  # both


async def endless():
    await wait_for_end()
    yield b"end"


async def gather():
    await asyncio.gather(*[fetch() for _ in range(17)])


async def nested():
    await asyncio.gather(both(), fetch())


async def one_left():
    await asyncio.gather(asyncio.sleep(0), fetch())


async def group():
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(fetch())


async def open_group():
    tasks = asyncio.TaskGroup()
    async with tasks:
        tasks.create_task(fetch())
        del tasks
        await wait_for_end()  # beside


async def anyio_group():
    async with anyio.create_task_group() as group:
        group.start_soon(fetch)
        group.start_soon(both)


async def wait_for():
    await asyncio.wait_for(fetch(), 60)


async def timeout():
    async with asyncio.timeout(60):
        await fetch()


async def shield():
    await asyncio.shield(fetch())


async def wait():
    await asyncio.wait({asyncio.create_task(fetch()), asyncio.create_task(both())})


async def generator():
    async for _ in endless():
        pass


async def nothing():
    async with anyio.create_task_group():
        pass


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        raise ValueError("no lifespan")
    await globals()[scope["path"][1:]]()  # app
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"done"})
"""

MORE = "Tasks that it waits for (innermost line of each):"
needs_3_11 = pytest.mark.skipif(not hasattr(asyncio, "TaskGroup"), reason="needs Python 3.11")


@pytest.mark.parametrize("event_loop", LOOPS)
@pytest.mark.parametrize(
    ("kind", "expect"),
    [
        # Frames of the application from outside in; behind MORE the innermost one of each task.
        ("gather", ["app", "gather", MORE, *["wait_for_end"] * 5, "and 12 more"]),
        ("nested", ["app", "nested", MORE, *["wait_for_end"] * 3]),
        ("one_left", ["app", "one_left", "fetch", "wait_for_end"]),
        pytest.param("group", ["app", "group", MORE, *["wait_for_end"] * 3], marks=needs_3_11),
        pytest.param(
            "open_group", ["app", "open_group", "wait_for_end", MORE, "wait_for_end"], marks=needs_3_11
        ),
        ("anyio_group", ["app", "anyio_group", MORE, *["wait_for_end"] * 3]),
        ("wait_for", ["app", "wait_for", "fetch", "wait_for_end"]),
        pytest.param("timeout", ["app", "timeout", "fetch", "wait_for_end"], marks=needs_3_11),
        ("shield", ["app", "shield", "fetch", "wait_for_end"]),
        ("wait", ["app", "wait", MORE, *["wait_for_end"] * 3]),
        ("generator", ["app", "generator", "endless", "wait_for_end"]),
    ],
)
def test_the_stack_of_awaits_goes_on_in_tasks(
    tmp_path: Path, event_loop: str, kind: str, expect: list[str]
) -> None:
    (tmp_path / "app.py").write_text(APP)
    flags = ("--loop", event_loop, "--slow-request", "300ms")
    with Supervised(tmp_path, "app:app", *flags) as server, server.connect() as client:
        # Whatever is imported late is there, so that nothing blocks the loop.
        assert client.ask("GET", "/nothing").body == b"done"
        client.send(request("GET", f"/{kind}"))
        # The line of the log has the same as what is asked for.
        assert until(lambda: ": slow: running for " in server.errors)
        (one,) = server.status()["running"]
        asked = server.done("status", "--stack", one["id"])
        (tmp_path / "end").touch()
        assert client.reply().body == b"done"
    for shown in (asked, server.errors):
        _, title, stack = shown.partition("Stack of its awaits (most recent call last):\n")
        assert title
        assert lines(stack) == expect, shown


def lines(stack: str) -> list[str]:
    """The functions of the application in a stack (the log indents it), and the lines that are no frames."""
    found = []
    for line in stack.splitlines():
        frame = re.fullmatch(r' *File "(?P<file>.+)", line \d+, in (?P<name>\w+)', line)
        if frame and frame["file"].endswith("app.py"):
            found.append(frame["name"])
        elif MORE in line or line.strip().startswith("and "):
            found.append(line.strip())
    return found
