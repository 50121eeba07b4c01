"""An ASGI application whose steps are the words of its query: `/NAME?accept+receive+sleep+close`.

Takes over HTTP: `/seen/NAME` gives what the steps of that name have met, `/go/NAME` ends its `wait`.
"""

from __future__ import annotations

import asyncio
import contextvars
import json

import anyio

SEEN: dict[str, list[object]] = {}
GATES: dict[str, asyncio.Event] = {}
BIG = bytes(20_000_000)
MARK: contextvars.ContextVar[int] = contextvars.ContextVar("mark")
STATE = {"objects": [], "mark": "of the lifespan"}


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return await lifespan(scope, receive, send)
    kind, _, name = scope["path"][1:].partition("/")
    if scope["type"] == "http" and kind in ("seen", "go"):
        if kind == "go":
            gate(name).set()
        await start(send)
        return await send({"type": "http.response.body", "body": json.dumps(SEEN.get(name, [])).encode()})
    run = Run(scope, receive, send)
    for word in filter(None, scope["query_string"].decode().split("+")):
        try:
            await getattr(run, word)()
        except BaseException as error:
            run.note(type(error).__name__)
            raise
    run.note("ends")


async def lifespan(scope, receive, send):
    await receive()
    scope["state"].update(STATE)
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


async def start(send, *headers):
    await send({"type": "http.response.start", "status": 200, "headers": headers})


def gate(name):
    return GATES.setdefault(name, asyncio.Event())


class Run:
    """One request or connection on its way through its words."""

    def __init__(self, scope, receive, send):
        self.scope, self.receive_event, self.send_event = scope, receive, send
        self.name = scope["path"][1:]

    def note(self, thing):
        SEEN.setdefault(self.name, []).append(thing)

    # Of both.

    async def receive(self):
        self.note("receives")
        event = await self.receive_event()
        self.note([event["type"].partition(".")[2], event.get("code"), event.get("reason")])

    async def receive_all(self):
        """Until the end of the client."""
        while not (event := await self.receive_event())["type"].endswith("disconnect"):
            pass
        self.note(["disconnect", event.get("code"), event.get("reason")])

    async def wait(self):
        self.note("waits")
        await gate(self.name).wait()

    async def sleep(self):
        self.note("sleeps")
        await asyncio.sleep(0.3)

    async def ever(self):
        self.note("waits for ever")
        await asyncio.Event().wait()

    async def state(self):
        self.note(json.loads(json.dumps(self.scope["state"])))
        self.scope["state"]["own"] = True
        self.scope["state"]["objects"].append(len(self.scope["state"]["objects"]))

    # Of HTTP.

    async def head(self):
        await start(self.send_event)
        self.note("head")

    async def events(self):
        await start(self.send_event, (b"content-type", b"text/event-stream"))
        self.note("head")

    async def piece(self):
        await self.send_event({"type": "http.response.body", "body": b"piece", "more_body": True})
        self.note("piece")

    async def body(self):
        self.note("receives")
        while (event := await self.receive_event())["type"] == "http.request" and event["more_body"]:
            pass

    async def flood(self):
        """More than a client takes that does not read."""
        self.note("floods")
        listener = asyncio.ensure_future(self.receive_all())
        while not listener.done():
            await self.send_event({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})

    async def endless(self):
        """As frameworks stream: a task hears of the end; pieces are sent without another wait."""
        listener = asyncio.ensure_future(self.receive_all())
        await start(self.send_event)
        while not listener.done():
            await self.send_event({"type": "http.response.body", "body": b"piece", "more_body": True})

    async def cancelled(self):
        """Cancels its own task, and goes on."""
        asyncio.current_task().cancel()
        try:
            await self.send_event({"type": "http.response.body", "body": b"piece", "more_body": True})
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            pass

    async def timeouts(self):
        """Waits for events by calls that it gives up."""
        for _ in range(5):
            try:
                await asyncio.wait_for(self.receive_event(), 0.002)
            except asyncio.TimeoutError:
                pass
        # From Python 3.11 on: without a task of its own.
        for _ in range(5 if hasattr(asyncio, "timeout") else 0):
            try:
                async with asyncio.timeout(0.002):
                    await self.receive_event()
            except TimeoutError:
                pass

    async def scopes(self):
        """The same by scopes of anyio, around sends too."""
        for _ in range(5):
            with anyio.move_on_after(0.002):
                await self.receive_event()
        with anyio.move_on_after(0.01):
            while True:
                await self.send_event(
                    {"type": "http.response.body", "body": bytes(1 << 16), "more_body": True}
                )
                await asyncio.sleep(0)

    async def pours_in_scopes(self):
        with anyio.move_on_after(0.01):
            while True:
                await self.send_event({"type": "websocket.send", "bytes": bytes(1 << 16)})
                await asyncio.sleep(0)
        await self.timeouts()

    async def end(self):
        await self.send_event({"type": "http.response.body", "body": b"end"})

    # Of WebSocket.

    async def accept(self):
        await self.send_event({"type": "websocket.accept"})
        self.note("accepted")

    async def quiet(self):
        """Silent until the end, of which nothing is noted."""
        while (await self.receive_event())["type"] != "websocket.disconnect":
            pass

    async def echo(self):
        event = await self.receive_event()
        if event["type"] == "websocket.receive":
            await self.send_event({"type": "websocket.send", "text": event["text"], "bytes": event["bytes"]})

    async def turns(self):
        """Says of each message whether its step is one of the task, and in the context of it."""
        task = asyncio.current_task()
        MARK.set(0)
        while (event := await self.receive_event())["type"] == "websocket.receive":
            MARK.set(MARK.get() + 1)
            said = f"{event['text']} {asyncio.current_task() is task} {MARK.get()}"
            try:
                if event["text"] == "cancel":
                    # Between two messages: the next wait is the one that ends.
                    task.cancel()
                    await self.receive_event()
                elif event["text"] == "cancel a sleep":
                    task.cancel()
                    await asyncio.sleep(60)
                elif event["text"] == "sleep":
                    await asyncio.sleep(0.01)
                elif event["text"] == "yield":
                    await asyncio.sleep(0)
                elif event["text"] == "child":
                    # Waits for the next message in the place of its parent.
                    child = asyncio.ensure_future(self.receive_event())
                    await self.send_event({"type": "websocket.send", "text": "child"})
                    said += f" {(await child)['text']}"
            except asyncio.CancelledError:
                said += " cancelled"
            await self.send_event({"type": "websocket.send", "text": said})

    async def say(self):
        await self.send_event({"type": "websocket.send", "text": "said"})
        self.note("said")

    async def big(self):
        self.note("sends")
        await self.send_event({"type": "websocket.send", "bytes": BIG})
        self.note("sent")

    async def pour(self):
        """More messages than a client takes that does not read."""
        self.note("pours")
        while True:
            await self.send_event({"type": "websocket.send", "bytes": bytes(1 << 16)})

    async def close(self):
        await self.send_event({"type": "websocket.close", "code": 4000})
        self.note("closed")
