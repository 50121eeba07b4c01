"""The room of the chat: an ASGI application, which runs on the event loop. It needs no framework.

Everybody in the room is told what somebody says. Each process has a room of its own: with more than one,
a broker such as Redis would pass messages between them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

Send = Callable[[dict[str, Any]], Awaitable[None]]

#: How to reach each guest.
guests: set[Send] = set()


async def tell(text: str) -> None:
    """To a guest who has left, `send` does nothing."""
    for send in list(guests):
        await send({"type": "websocket.send", "text": text})


async def app(scope: dict[str, Any], receive: Callable[[], Awaitable[dict[str, Any]]], send: Send) -> None:
    if scope["type"] != "websocket":
        raise ValueError(f"the room knows no {scope['type']}")
    await receive()
    await send({"type": "websocket.accept"})
    guests.add(send)
    await tell(f"{len(guests)} in the room")
    try:
        while (event := await receive())["type"] == "websocket.receive":
            await tell(event.get("text") or "")
    finally:
        guests.discard(send)
        await tell(f"{len(guests)} in the room")
