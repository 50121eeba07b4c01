"""The handlers of `app.py` on an event loop, which each of them blocks for as long as it takes."""

from __future__ import annotations

import urllib.parse

from app import KINDS

BODY = b"done\n"
HEADERS = [(b"content-type", b"text/plain"), (b"content-length", b"5")]


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return await lifespan(receive, send)
    work = KINDS.get(scope["path"])
    if work:
        query = urllib.parse.parse_qs(scope["query_string"].decode())
        work(float(query.get("ms", ["20"])[0]) / 1000)
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})


async def lifespan(receive, send):
    while True:
        event = await receive()
        await send({"type": event["type"] + ".complete"})
        if event["type"] == "lifespan.shutdown":
            return
