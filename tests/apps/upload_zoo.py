"""Applications that take bodies while they arrive, by the path of the request."""

from __future__ import annotations

import asyncio
import json

SEEN: dict[str, list[object]] = {}
HELD: dict[str, asyncio.Event] = {}


async def app(scope, receive, send):
    if scope["type"] != "http":
        raise RuntimeError("only http here")
    await PATHS[scope["path"]](scope, receive, send)


def name(scope):
    return scope["query_string"].decode()


async def answer(send, body: bytes, status: int = 200):
    head = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def echo(scope, receive, send):
    """Each piece goes back before the next one is asked for."""
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "more_body": True})
    more = True
    while more:
        event = await receive()
        if event["type"] == "http.disconnect":
            return
        more = event["more_body"]
        await send({"type": "http.response.body", "body": event["body"], "more_body": more})


async def count(scope, receive, send):
    total, more = 0, True
    SEEN.setdefault(name(scope), []).append("begun")
    while more:
        event = await receive()
        SEEN[name(scope)].append([event["type"], len(event.get("body", b""))])
        if event["type"] == "http.disconnect":
            return
        total += len(event["body"])
        more = event["more_body"]
    await answer(send, b"%d" % total)


async def held(scope, receive, send):
    """As `count`, once `/release` was asked for."""
    await HELD.setdefault(name(scope), asyncio.Event()).wait()
    await count(scope, receive, send)


async def release(scope, receive, send):
    HELD.setdefault(name(scope), asyncio.Event()).set()
    await answer(send, b"ok")


async def ignores(scope, receive, send):
    await answer(send, b"not read", 403)


async def large(scope, receive, send):
    """Answers with more than sockets take, and ends the response when the body has ended, however that is."""
    head = [(b"content-length", b"%d" % (32 << 20))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": bytes(32 << 20), "more_body": True})
    more, SEEN[name(scope)] = True, []
    while more:
        event = await receive()
        SEEN[name(scope)].append([event["type"], len(event.get("body", b""))])
        more = event.get("more_body", False)
    await send({"type": "http.response.body"})


async def seen(scope, receive, send):
    await answer(send, json.dumps(SEEN.get(name(scope), [])).encode())


async def early(scope, receive, send):
    """Begins its response before it asks for the body, and ends it with the length of that."""
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": b"begun", "more_body": True})
    total, more = 0, True
    while more:
        try:
            event = await receive()
        except asyncio.CancelledError:
            SEEN.setdefault(name(scope), []).append("cancelled")
            raise
        SEEN.setdefault(name(scope), []).append(event["type"])
        if event["type"] == "http.disconnect":
            return
        total += len(event["body"])
        more = event["more_body"]
    await send({"type": "http.response.body", "body": b"%d" % total})


PATHS = {
    "/echo": echo,
    "/count": count,
    "/held": held,
    "/release": release,
    "/ignores": ignores,
    "/large": large,
    "/early": early,
    "/seen": seen,
}
