"""An ASGI application that does one thing for each path, and what was seen of it under `/seen`."""

from __future__ import annotations

import asyncio
import contextvars
import io
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

#: What requests have left behind, by a name that the test chose.
SEEN: dict[str, list[Any]] = defaultdict(list)
GATES: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
WHO = contextvars.ContextVar("WHO", default="nobody")
OF_LIFESPAN = contextvars.ContextVar("OF_LIFESPAN", default="unset")


async def answer(send: Send, body: bytes, status: int = 200, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


async def say(send: Send, what: object) -> None:
    await answer(send, json.dumps(what).encode(), 200, (b"content-type", b"application/json"))


def shown(value: object) -> object:
    """A value of a scope as JSON, with what JSON has not."""
    if isinstance(value, bytes):
        return f"bytes:{value.decode('latin-1')}"
    if isinstance(value, dict):
        return {key: shown(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(one) for one in value]
    return value


async def scope_(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    types = {key: type(value).__name__ for key, value in scope.items()}
    pairs = {type(pair).__name__ for pair in scope["headers"]}
    await say(send, {"scope": shown(scope), "types": types, "pairs": sorted(pairs), "pid": os.getpid()})
    # Nothing of this may be in another scope.
    scope["asgi"]["version"] = scope["state"]["mark"] = "changed"
    scope["extensions"].clear()
    scope["headers"].clear()


async def echo(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    """The body, and the lengths of its pieces."""
    pieces, more = [], True
    while more:
        event = await receive()
        assert event["type"] == "http.request", event
        pieces.append(event["body"])
        more = event["more_body"]
    lengths = ",".join(str(len(piece)) for piece in pieces)
    await answer(send, b"".join(pieces), 200, (b"x-pieces", lengths.encode()))


async def stream(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    """`count` pieces of `bytes` bytes; how many were handed over is in SEEN."""
    kind = query.get("type", "text/plain").encode()
    name = query.get("name", "stream")
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    for number in range(int(query.get("count", 3))):
        await send(
            {"type": "http.response.body", "body": b"x" * int(query.get("bytes", 5)), "more_body": True}
        )
        SEEN[name] = [number + 1]
        await asyncio.sleep(0)
    await send({"type": "http.response.body"})


async def event_stream(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    """A head at once, one event when the gate opens, and then the end of the client."""
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await GATES[query["name"]].wait()
    await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
    event = await receive()
    while event["type"] != "http.disconnect":
        event = await receive()
    SEEN[query["name"]].append("disconnect")
    await send({"type": "http.response.body", "body": b"data: late\n\n", "more_body": True})
    SEEN[query["name"]].append("sent late")


async def wrong(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    """Sends events until one raises; answers with what it has said."""
    start = {"type": "http.response.start", "status": 200}
    with open("three", "wb+") as closed:
        closed.write(b"123")
    three, folder, (pipe, end) = open("three", "rb"), os.open(".", os.O_RDONLY), os.pipe()
    span = {"type": "http.response.zerocopysend", "file": three}
    sequences: dict[str, list[Any]] = {
        "no-dict": [["type"]],
        "no-type": [{}],
        "type-no-str": [{"type": 3}],
        "other-type": [{"type": "websocket.accept"}],
        "debug": [{"type": "http.response.debug", "info": {}}],
        "body-first": [{"type": "http.response.body", "body": b"x"}],
        "no-status": [{"type": "http.response.start"}],
        "status-text": [{"type": "http.response.start", "status": "200"}],
        "status-100": [{"type": "http.response.start", "status": 100}],
        "status-1000": [{"type": "http.response.start", "status": 1000}],
        "headers-int": [start | {"headers": 3}],
        "header-single": [start | {"headers": [(b"a",)]}],
        "name-str": [start | {"headers": [("a", b"b")]}],
        "value-str": [start | {"headers": [(b"a", "b")]}],
        "name-space": [start | {"headers": [(b"a b", b"c")]}],
        "value-newline": [start | {"headers": [(b"a", b"b\r\nc: d")]}],
        "length-text": [start | {"headers": [(b"content-length", b"x")]}],
        "length-twice": [start | {"headers": [(b"content-length", b"1"), (b"content-length", b"1")]}],
        "start-twice": [start, start],
        "body-str": [start, {"type": "http.response.body", "body": "x"}],
        "body-long": [
            start | {"headers": [(b"content-length", b"3")]},
            {"type": "http.response.body", "body": b"four"},
        ],
        "path-first": [{"type": "http.response.pathsend", "path": "/"}],
        "path-none": [start, {"type": "http.response.pathsend"}],
        "span-first": [span],
        "span-none": [start, {"type": "http.response.zerocopysend"}],
        "span-bytes": [start, span | {"file": b"x"}],
        "span-memory": [start, span | {"file": io.BytesIO(b"x")}],
        "span-closed": [start, span | {"file": closed}],
        "span-fd": [start, span | {"file": 999_999}],
        "span-negative-fd": [start, span | {"file": -1}],
        "span-folder": [start, span | {"file": folder}],
        "span-pipe": [start, span | {"file": pipe}],
        "span-offset": [start, span | {"offset": -1}],
        "span-offset-text": [start, span | {"offset": "1"}],
        "span-count": [start, span | {"count": True}],
        "span-count-huge": [start, span | {"count": 1 << 63}],
        "span-beyond": [start, span | {"offset": 2, "count": 2}],
        "span-behind": [start, span | {"offset": 4}],
        "span-long": [start | {"headers": [(b"content-length", b"2")]}, span],
        "trailers-first": [{"type": "http.response.trailers"}],
        "trailers-undeclared": [start, {"type": "http.response.trailers"}],
        "trailers-early": [start | {"trailers": True}, {"type": "http.response.trailers"}],
        "trailers-body": [
            start | {"trailers": True},
            {"type": "http.response.body", "body": b"x"},
            {"type": "http.response.body", "body": b"y"},
        ],
    }
    try:
        for event in sequences[query["case"]]:
            await send(event)
    except Exception as error:
        three.close()
        for fd in (folder, pipe, end):
            os.close(fd)
        if query.get("raise"):
            raise
        text = f"{type(error).__name__}: {error}"
        SEEN[query["case"]].append(text)
        is_open = query["case"].startswith("span-") and query["case"] not in ("span-first", "span-long")
        if query["case"] in ("start-twice", "body-str", "path-none", "trailers-undeclared") or is_open:
            await send({"type": "http.response.body", "body": text.encode()})
        elif query["case"] in ("trailers-early", "trailers-body"):
            if query["case"] == "trailers-early":
                await send({"type": "http.response.body"})
            await send({"type": "http.response.trailers"})
        elif query["case"] in ("body-long", "span-long"):
            body = b"123" if query["case"] == "body-long" else b"12"
            await send({"type": "http.response.body", "body": body})
        else:
            await answer(send, text.encode())


async def late(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    """A body behind the end of the body."""
    await answer(send, b"all")
    try:
        await send({"type": "http.response.body", "body": b"more"})
    except RuntimeError as error:
        SEEN["late"].append(str(error))
    SEEN["late"].append((await receive())["type"])
    SEEN["late"].append((await receive())["type"])


async def raises(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    kind = {"exit": SystemExit, "interrupt": KeyboardInterrupt, "cancel": asyncio.CancelledError}
    error = kind.get(query.get("kind", ""), ValueError)
    at = query.get("at", "begin")
    if at != "begin":
        headers = [(b"x-gone", b"1")]
        if length := query.get("length"):
            headers.append((b"content-length", length.encode()))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
    if at == "middle":
        await send({"type": "http.response.body", "body": b"the beginning", "more_body": True})
    if at == "end":
        await send({"type": "http.response.body", "body": b"all"})
    raise error("a secret of the zoo")


async def returns(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    """Returns too early."""
    at = query.get("at", "begin")
    headers = [(b"content-length", query["length"].encode())] if "length" in query else []
    if at != "begin":
        await send({"type": "http.response.start", "status": 200, "headers": headers})
    if at == "middle":
        await send({"type": "http.response.body", "body": b"a part", "more_body": True})
    if at == "end":
        await send({"type": "http.response.body", "body": b"a part"})


async def waits(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    """Waits until the gate opens, and says when it is there, and how it ended."""
    name = query["name"]
    SEEN[name].append("waits")
    try:
        await GATES[name].wait()
    except asyncio.CancelledError:
        SEEN[name].append("cancelled")
        raise
    await answer(send, query.get("say", "waited").encode())
    SEEN[name].append("answered")


async def innermost(name: str) -> None:
    await GATES[name].wait()


async def nested(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    """Waits in a task of its own."""
    await asyncio.create_task(innermost(query["name"]))
    await answer(send, b"nested")


async def until_file(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    """Waits for a file, and says the order in which it was begun."""
    SEEN[query["file"]].append("begun")
    number = len(SEEN[query["file"]])
    while not Path(query["file"]).exists():
        await asyncio.sleep(0.01)
    await answer(send, str(number).encode())


async def disconnect(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    """Waits for the client's end."""
    name = query["name"]
    SEEN[name].append((await receive())["type"])
    SEEN[name].append((await receive())["type"])
    SEEN[name].append((await receive())["type"])
    await answer(send, b"nobody reads this")
    SEEN[name].append("sent")


async def cancelled_receive(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    """A receive that is cancelled loses no event, and several may wait."""
    found: list[str] = []
    task = asyncio.create_task(receive())
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        found.append("cancelled before")
    found.append((await receive())["type"])
    first, second, third = (asyncio.create_task(receive()) for _ in range(3))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    try:
        await first
    except asyncio.CancelledError:
        found.append("cancelled")
    try:
        await asyncio.wait_for(receive(), 0.01)
    except asyncio.TimeoutError:
        found.append("timed out")
    await say(send, found)
    SEEN[query["name"]] += [(await task)["type"] for task in (second, third)]


async def context(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    """Who was here before, of this request's context; and what the lifespan has set."""
    before = WHO.get()
    WHO.set(query["who"])
    await asyncio.sleep(0)
    await say(send, [before, WHO.get(), OF_LIFESPAN.get()])


async def blocks(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    """Blocks the loop until a file is there."""
    SEEN["blocks"].append("begun")
    Path("blocks").touch()
    while not Path("goes-on").exists():
        time.sleep(0.005)
    await answer(send, b"blocked")


async def pathsend(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    path = Path(query["path"])
    if query["path"].startswith("sent"):
        path = path.absolute()
    headers = [(b"content-type", b"text/x-sent"), (b"x-kept", b"yes")]
    if length := query.get("length"):
        headers.append((b"content-length", length.encode()))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.pathsend", "path": str(path)})
    SEEN["pathsend"].append(path.name)


async def hint(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    await send({"type": "http.response.early_hint", "links": [b"</a.css>; rel=preload"]})
    await answer(send, b"hinted")


async def zerocopy(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    """Events of the body: `kind:offset:count` is a span of `path`, by file or descriptor; or `=bytes`."""
    headers = [(b"content-type", b"text/x-sent")]
    if length := query.get("length"):
        headers.append((b"content-length", length.encode()))
    start = {"type": "http.response.start", "status": 200, "headers": headers}
    await send(start | {"trailers": "trailers" in query})
    plan = query["plan"].split(",")
    for number, piece in enumerate(plan, 1):
        more = number < len(plan)
        if piece.startswith("="):
            await send({"type": "http.response.body", "body": piece[1:].encode(), "more_body": more})
            continue
        kind, *numbers = piece.split(":")
        event: dict[str, Any] = {"type": "http.response.zerocopysend", "more_body": more}
        event |= {name: int(one) for name, one in zip(("offset", "count"), numbers) if one}
        with open(query["path"], "rb") as file:
            file.read(int(query.get("read", 0)))
            if kind == "fd":
                os.lseek(file.fileno(), file.tell(), os.SEEK_SET)
            # Closed before the client can have it.
            await send(event | {"file": file.fileno() if kind == "fd" else file})
            if kind == "twice":
                await send(event | {"file": file})
    if "trailers" in query:
        await send({"type": "http.response.trailers", "headers": [(b"x-sum", b"1")]})


async def trailers(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    """A body of `pieces`, or the file `path`, with trailers behind it; what `send` raised is in SEEN."""
    headers = [(b"content-type", b"text/plain"), (b"trailer", b"x-sum")]
    if length := query.get("length"):
        headers.append((b"content-length", length.encode()))
    status = int(query.get("status", 200))
    start = {"type": "http.response.start", "status": status, "headers": headers, "trailers": True}
    try:
        await send(start)
    except RuntimeError as error:
        return await answer(send, str(error).encode())
    if path := query.get("path"):
        await send({"type": "http.response.pathsend", "path": str(Path(path).absolute())})
    pieces = query.get("pieces", "").split(",")
    for number, piece in enumerate(() if path else pieces, 1):
        event = {"type": "http.response.body", "body": piece.encode(), "more_body": number < len(pieces)}
        await send(event)
    if query.get("end") == "returns":
        return
    if query.get("end") == "raises":
        raise ValueError("a secret of the zoo")
    name = query.get("name", "x-sum").encode()
    try:
        fields = [(name, query.get("value", "1").encode())]
        await send({"type": "http.response.trailers", "headers": fields, "more_trailers": True})
    except ValueError as error:
        SEEN["trailers"].append(str(error))
    await send({"type": "http.response.trailers", "headers": [(b"x-last", b"2")]})
    SEEN["trailers"].append("sent")


async def background(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    """Goes on behind its response."""
    await answer(send, b"answered")
    await GATES[query["name"]].wait()
    SEEN[query["name"]].append("done")


async def fields(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    """Headers that belong to the connection, and others."""
    await answer(
        send,
        b"body",
        int(query.get("status", 200)),
        (b"transfer-encoding", b"chunked"),
        (b"keep-alive", b"timeout=5"),
        (b"connection", query.get("connection", "keep-alive").encode()),
        (b"x-twice", b"1"),
        (b"x-twice", b"2"),
    )


async def kinds(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    """Bodies that are no bytes but nearly, and headers that are no list."""
    headers = ([name, b"yes"] for name in (b"x-a", b"x-b"))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": bytearray(b"one"), "more_body": True})
    await send({"type": "http.response.body", "body": memoryview(b"two")})


async def thread(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    """Where it runs."""
    loop = asyncio.get_running_loop()
    name = await loop.run_in_executor(None, lambda: threading.current_thread().name)
    is_main = threading.current_thread() is threading.main_thread()
    await say(send, {"is_main": is_main, "executor": name, "loop": type(loop).__module__, "pid": os.getpid()})


async def tasks(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    """What tools see of the tasks of other requests."""
    out = io.StringIO()
    for task in asyncio.all_tasks():
        out.write(f"{task!r}\n")
        task.print_stack(file=out)
    await answer(send, out.getvalue().encode())


async def seen(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    await say(send, SEEN[query["name"]])


async def opens(scope: Scope, receive: Receive, send: Send, query: dict[str, str]) -> None:
    GATES[query["name"]].set()
    await answer(send, b"open")


PATHS = {
    "scope": scope_,
    "cancelled-receive": cancelled_receive,
    "event-stream": event_stream,
    "until-file": until_file,
    **{
        one.__name__: one
        for one in (
            echo, stream, wrong, late, raises, returns, waits, disconnect, context, blocks, pathsend, hint,
            background, fields, kinds, trailers, zerocopy, nested, thread, tasks, seen, opens,
        )
    },
}  # fmt: skip


def note(what: str) -> None:
    """A line of what the lifespan did, which outlives the process."""
    with Path("lifespan.txt").open("a") as file:
        file.write(f"{os.getpid()} {what}\n")


async def lifespan(scope: Scope, receive: Receive, send: Send) -> None:
    assert (await receive())["type"] == "lifespan.startup"
    OF_LIFESPAN.set("set at startup")
    scope["state"]["mark"] = "of the lifespan"
    note("startup")
    await send({"type": "lifespan.startup.complete"})
    assert (await receive())["type"] == "lifespan.shutdown"
    note("shutdown")
    await send({"type": "lifespan.shutdown.complete"})


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        return await lifespan(scope, receive, send)
    name = scope["path"].strip("/").split("/")[0]
    query = {key: values[-1] for key, values in parse_qs(scope["query_string"].decode()).items()}
    if name not in PATHS:
        return await answer(send, b"hello")
    await PATHS[name](scope, receive, send, query)
