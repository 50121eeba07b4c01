"""WebSocket connections of all kinds, by the path of the request, and what their applications have seen."""

from __future__ import annotations

import asyncio
import contextvars
import json

#: Events that applications have received, by the query of the connection.
SEEN: dict[str, list[object]] = {}
MARK: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="clean")
OPEN: set[object] = set()
#: What connections wait for, by their query.
GATES: dict[str, asyncio.Event] = {}


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["type"] == "http":
        await http(scope, receive, send)
    else:
        await PATHS[scope["path"]](scope, receive, send)


async def lifespan(receive, send):
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


async def http(scope, receive, send):
    name = scope["query_string"].decode()
    if scope["path"] == "/open":
        GATES.setdefault(name, asyncio.Event()).set()
    body = json.dumps(SEEN.get(name, []) if scope["path"] == "/seen" else scope["path"]).encode()
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]}
    )
    await send({"type": "http.response.body", "body": body})


def note(scope, thing):
    SEEN.setdefault(scope["query_string"].decode(), []).append(thing)


async def echo(scope, receive, send):
    assert await receive() == {"type": "websocket.connect"}
    await send({"type": "websocket.accept"})
    while True:
        event = await receive()
        if event["type"] == "websocket.disconnect":
            return note(scope, [event["code"], event["reason"]])
        await send({"type": "websocket.send", "bytes": event["bytes"], "text": event["text"]})


async def broadcasts(scope, receive, send):
    """Each message goes to all connections."""
    await receive()
    await send({"type": "websocket.accept"})
    OPEN.add(send)
    try:
        while (event := await receive())["type"] != "websocket.disconnect":
            for peer in list(OPEN):
                await peer({"type": "websocket.send", "text": event["text"]})
            if event["text"].endswith("last"):
                for peer in list(OPEN - {send}):
                    await peer({"type": "websocket.close", "code": 4000})
    finally:
        OPEN.discard(send)


async def show_scope(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    shown = {
        key: f"bytes:{value.decode()}" if isinstance(value, bytes) else value
        for key, value in scope.items()
        if key not in ("headers", "state")
    }
    await send({"type": "websocket.send", "text": json.dumps(shown)})
    await receive()


async def chooses(scope, receive, send):
    await receive()
    headers = [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"sec-websocket-accept", b"forged")]
    await send({"type": "websocket.accept", "subprotocol": scope["subprotocols"][-1], "headers": headers})
    await receive()


async def wrong_choice(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept", "subprotocol": "never-offered"})


async def refuses(scope, receive, send):
    await receive()
    await send({"type": "websocket.close"})
    note(scope, (await receive())["type"])


async def denies(scope, receive, send):
    await receive()
    start = {"type": "websocket.http.response.start", "status": 401, "headers": [(b"x-why", b"no token")]}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": b"no ", "more_body": True})
    await send({"type": "websocket.http.response.body", "body": b"token"})


async def returns_early(scope, receive, send):
    await receive()


async def fails_early(scope, receive, send):
    await receive()
    raise ValueError("broken before it accepts")


async def speaks_early(scope, receive, send):
    await receive()
    await send({"type": "websocket.send", "text": "too early"})


async def accepted(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})


async def returns(scope, receive, send):
    await accepted(scope, receive, send)


async def fails(scope, receive, send):
    await accepted(scope, receive, send)
    raise ValueError("broken behind the handshake")


async def closes(scope, receive, send):
    await accepted(scope, receive, send)
    await send({"type": "websocket.close", "code": 4321, "reason": "enough"})
    event = await receive()
    note(scope, [event["code"], event["reason"]])
    try:
        await send({"type": "websocket.send", "text": "more"})
    except OSError as error:
        note(scope, type(error).__name__)


async def wrong_events(scope, receive, send):
    await accepted(scope, receive, send)
    for event in [
        {"type": "websocket.send"},
        {"type": "websocket.send", "text": "a", "bytes": b"a"},
        {"type": "websocket.send", "text": b"a"},
        {"type": "websocket.send", "bytes": "a"},
        {"type": "websocket.close", "code": 1005},
        {"type": "websocket.accept"},
        {"type": "http.response.start", "status": 200},
        {"type": "websocket.sent", "text": "a"},
    ]:
        try:
            await send(event)
        except Exception as error:
            await send({"type": "websocket.send", "text": f"{type(error).__name__}: {error}"})


async def late(scope, receive, send):
    """Takes nothing until it is asked over another connection, and then all of it."""
    await accepted(scope, receive, send)
    OPEN.add(scope["query_string"])
    await send({"type": "websocket.send", "text": "open"})
    while scope["query_string"] in OPEN:
        await asyncio.sleep(0.01)
    total = 0
    while (event := await receive())["type"] == "websocket.receive":
        total += len(event["bytes"])
        if event["bytes"].endswith(b"last"):
            await send({"type": "websocket.send", "text": str(total)})


async def release(scope, receive, send):
    await accepted(scope, receive, send)
    OPEN.discard(scope["query_string"])


async def floods(scope, receive, send):
    """Sends 64 MB to a client that may not read, and notes how far it came."""
    await accepted(scope, receive, send)
    sent = 0
    try:
        for _ in range(1024):
            await asyncio.wait_for(send({"type": "websocket.send", "bytes": bytes(64 << 10)}), 0.5)
            sent += 1
    except asyncio.TimeoutError:
        note(scope, sent)
        return
    note(scope, "all")


async def cancelled(scope, receive, send):
    """Waits for messages by calls that it cancels: none may be lost."""
    await accepted(scope, receive, send)
    await send({"type": "websocket.send", "text": "open"})
    got = []
    while len(got) < 50:
        waiting = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        waiting.cancel()
        try:
            await waiting
        except asyncio.CancelledError:
            await asyncio.sleep(0.001)
            continue
        got.append(int(waiting.result()["text"]))
    await send({"type": "websocket.send", "text": json.dumps(got)})


async def waits_first(scope, receive, send):
    """Waits for messages before it accepts, in a task of its own, as Quart does."""
    await receive()
    waiting = asyncio.ensure_future(receive())
    await asyncio.sleep(0)
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": (await waiting)["text"]})


async def context(scope, receive, send):
    await accepted(scope, receive, send)
    await send({"type": "websocket.send", "text": MARK.get()})
    MARK.set("dirty")
    await receive()


async def lingers(scope, receive, send):
    """Does not end by itself behind the end of its connection."""
    await accepted(scope, receive, send)
    while (await receive())["type"] != "websocket.disconnect":
        pass
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        note(scope, "cancelled")
        raise


async def decides(scope, receive, send):
    """Accepts once `/open` is asked for, or refuses where its query ends with `-`."""
    name = scope["query_string"].decode()
    await receive()
    note(scope, "begun")
    await GATES.setdefault(name, asyncio.Event()).wait()
    if name.endswith("-"):
        return await send({"type": "websocket.close"})
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


PATHS = {
    "/decides": decides,
    "/broadcasts": broadcasts,
    "/echo": echo,
    "/scope": show_scope,
    "/chooses": chooses,
    "/wrong-choice": wrong_choice,
    "/refuses": refuses,
    "/denies": denies,
    "/returns-early": returns_early,
    "/fails-early": fails_early,
    "/speaks-early": speaks_early,
    "/returns": returns,
    "/fails": fails,
    "/closes": closes,
    "/wrong-events": wrong_events,
    "/late": late,
    "/release": release,
    "/floods": floods,
    "/cancelled": cancelled,
    "/waits-first": waits_first,
    "/context": context,
    "/lingers": lingers,
}
