"""The ASGI application that every server here runs: 1 KB, an echo of the body, and WebSocket messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

BODY = b"x" * 1024
LENGTH = (b"content-length", b"1024")
KIND = (b"content-type", b"text/plain")

Event = dict[str, Any]
Send = Callable[[Event], Awaitable[None]]
Receive = Callable[[], Awaitable[Event]]

#: The `send` of each connection that takes part in the broadcast.
PEERS: set[Send] = set()


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """By the type of the scope, and the path."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["type"] == "http" and scope["method"] == "POST":
        await echo(receive, send)
    elif scope["type"] == "http":
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [KIND, LENGTH]})
        await send({"type": "http.response.body", "body": BODY})
    else:
        await messages(scope["path"] == "/broadcast", receive, send)


async def lifespan(receive: Receive, send: Send) -> None:
    """Starts and ends at once."""
    while True:
        event = await receive()
        await send({"type": event["type"] + ".complete"})
        if event["type"] == "lifespan.shutdown":
            return


async def echo(receive: Receive, send: Send) -> None:
    """The body as it comes, piece by piece."""
    await send({"type": "http.response.start", "status": 200, "headers": [KIND]})
    more = True
    while more:
        event = await receive()
        more = event.get("more_body", False)
        await send({"type": "http.response.body", "body": event.get("body", b""), "more_body": more})


async def messages(is_broadcast: bool, receive: Receive, send: Send) -> None:
    """Each message goes back to its connection, or to all of them."""
    await receive()
    await send({"type": "websocket.accept"})
    peers = PEERS if is_broadcast else set()
    peers.add(send)
    try:
        while (event := await receive())["type"] == "websocket.receive":
            for peer in list(peers):
                await peer({"type": "websocket.send", "bytes": event["bytes"]})
    finally:
        peers.discard(send)
