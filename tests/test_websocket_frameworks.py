"""WebSocket of real frameworks, unmodified: echo, refusals, ends, and what they send to many."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import frames
import pytest
from frames import TEXT, WebSocket, handshake

from raw import Client
from serving import LOOPS, Milepost, until

STARLETTE = """
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route, WebSocketRoute
from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

GONE = []


async def echo(websocket: WebSocket):
    await websocket.accept(subprotocol="chat")
    try:
        while True:
            await websocket.send_text("got " + await websocket.receive_text())
    except WebSocketDisconnect as gone:
        GONE.append(gone.code)


async def data(websocket: WebSocket):
    await websocket.accept()
    await websocket.send_json({"sum": sum(await websocket.receive_json())})
    await websocket.close(code=4001, reason="summed")


async def fails(websocket: WebSocket):
    await websocket.accept()
    raise ZeroDivisionError


async def denied(websocket: WebSocket):
    raise HTTPException(status_code=401)


async def gone(request):
    return PlainTextResponse(",".join(map(str, GONE)))


app = Starlette(routes=[
    WebSocketRoute("/echo", echo), WebSocketRoute("/data", data), WebSocketRoute("/fails", fails),
    WebSocketRoute("/denied", denied), Route("/gone", gone),
])
"""

FASTAPI = """
from fastapi import Depends, FastAPI, HTTPException, WebSocket, WebSocketDisconnect, WebSocketException

app = FastAPI()
GONE = []


def user(token: str | None = None):
    if token == "wrong":
        raise WebSocketException(code=1008)
    return token


@app.websocket("/echo")
async def echo(websocket: WebSocket, name: str | None = Depends(user)):
    await websocket.accept("chat")
    try:
        while True:
            await websocket.send_text("got " + await websocket.receive_text())
    except WebSocketDisconnect as gone:
        GONE.append(gone.code)


@app.websocket("/data")
async def data(websocket: WebSocket):
    await websocket.accept()
    await websocket.send_json({"sum": sum(await websocket.receive_json())})
    await websocket.close(4001, "summed")


@app.websocket("/fails")
async def fails(websocket: WebSocket):
    await websocket.accept()
    raise ZeroDivisionError


@app.websocket("/denied")
async def denied(websocket: WebSocket):
    raise HTTPException(status_code=401)


@app.get("/gone")
async def gone():
    from fastapi.responses import PlainTextResponse

    return PlainTextResponse(",".join(map(str, GONE)))
"""

LITESTAR = """
from litestar import Litestar, WebSocket, get, websocket
from litestar.exceptions import NotAuthorizedException, WebSocketDisconnect

GONE = []


@websocket("/echo")
async def echo(socket: WebSocket) -> None:
    await socket.accept(subprotocols="chat")
    try:
        while True:
            await socket.send_text("got " + await socket.receive_text())
    except WebSocketDisconnect as gone:
        GONE.append(gone.code)


@websocket("/data")
async def data(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_json({"sum": sum(await socket.receive_json())})
    await socket.close(code=4001, reason="summed")


@websocket("/fails")
async def fails(socket: WebSocket) -> None:
    await socket.accept()
    raise ZeroDivisionError


@get("/gone", media_type="text/plain")
async def gone() -> str:
    return ",".join(map(str, GONE))


app = Litestar([echo, data, fails, gone])
"""

QUART = """
import asyncio
from quart import Quart, abort, websocket

app = Quart(__name__)
GONE = []


@app.websocket("/echo")
async def echo():
    await websocket.accept(subprotocol="chat")
    try:
        while True:
            await websocket.send("got " + await websocket.receive())
    except asyncio.CancelledError:
        GONE.append("cancelled")
        raise


@app.websocket("/data")
async def data():
    await websocket.accept()
    await websocket.send_json({"sum": sum(await websocket.receive_json())})
    await websocket.close(4001, "summed")


@app.websocket("/fails")
async def fails():
    await websocket.accept()
    raise ZeroDivisionError


@app.websocket("/denied")
async def denied():
    abort(401)


@app.get("/gone")
async def gone():
    return ",".join(GONE)
"""

FALCON = """
import falcon.asgi
from falcon import WebSocketDisconnected

GONE = []


class Echo:
    async def on_websocket(self, request, socket):
        try:
            await socket.accept("chat")
            while True:
                await socket.send_text("got " + await socket.receive_text())
        except WebSocketDisconnected as gone:
            GONE.append(gone.code)


class Data:
    async def on_websocket(self, request, socket):
        await socket.accept()
        await socket.send_text('{"sum": %d}' % sum(__import__("json").loads(await socket.receive_text())))
        await socket.close(4001, "summed")


class Fails:
    async def on_websocket(self, request, socket):
        await socket.accept()
        raise ZeroDivisionError


class Gone:
    async def on_get(self, request, response):
        response.text = ",".join(map(str, GONE))


app = falcon.asgi.App()
app.add_route("/echo", Echo())
app.add_route("/data", Data())
app.add_route("/fails", Fails())
app.add_route("/gone", Gone())
"""

APPS = {"starlette": STARLETTE, "fastapi": FASTAPI, "litestar": LITESTAR, "quart": QUART, "falcon": FALCON}
#: How each tells that its client has left by 3000.
GONE = {"quart": "cancelled"}
#: Status of a request that is denied before it is accepted; those that have no such thing are left out.
DENIED = {"starlette": 401, "fastapi": 401, "quart": 401}
#: Close codes of an exception: what the framework sends itself, else the server.
FAILED = {"litestar": 4500, "quart": 1000}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("framework", APPS)
def test_a_framework_has_its_connections(serve, tmp_path: Path, framework: str, loop: str) -> None:
    pytest.importorskip(framework)
    (tmp_path / "app.py").write_text(APPS[framework])
    server: Milepost = serve("app:app", "--loop", loop)
    with server.connect() as client:
        connection = WebSocket(client, "/echo", "Sec-WebSocket-Protocol: chat")
        assert ("Sec-WebSocket-Protocol", "chat") in connection.headers
        for word in ("one", "", "zwei €"):
            connection.send(TEXT, word.encode())
            assert connection.text() == f"got {word}"
        client.send(frames.close(3000))
        assert connection.closed() == (3000, "")
    with server.connect() as client:
        assert until(lambda: client.ask("GET", "/gone").body.decode() == GONE.get(framework, "3000"))
        connection = WebSocket(client, "/data")
        connection.send(TEXT, json.dumps([1, 2, 3]).encode())
        assert json.loads(connection.text()) == {"sum": 6}
        assert connection.closed() == (4001, "summed")
    with server.connect() as client:
        code, _ = WebSocket(client, "/fails").closed()
        assert code == FAILED.get(framework, 1011)
    if framework in DENIED:
        with server.connect() as client:
            client.send(handshake("/denied"))
            assert client.reply().status == DENIED[framework]
    assert server.stop() == 0
    assert "Task was destroyed" not in server.errors


CHAT = """
import contextlib
from fastapi import FastAPI, WebSocket, WebSocketDisconnect

app = FastAPI()
EVERYONE = []
SENDING = []


@app.websocket("/chat")
async def chat(websocket: WebSocket):
    await websocket.accept()
    EVERYONE.append(websocket)
    await websocket.send_text("here")
    with contextlib.suppress(WebSocketDisconnect):
        word = await websocket.receive_text()
        SENDING.append(word)
        for one in EVERYONE:
            # More than the buffers of the kernel take.
            await one.send_text(word * 6_000_000)
        SENDING.remove(word)
        await websocket.receive_text()


@app.get("/sending")
async def sending():
    return SENDING
"""


@pytest.mark.parametrize("loop", LOOPS)
def test_many_may_send_to_a_client_that_takes_nothing(serve, tmp_path: Path, loop: str) -> None:
    pytest.importorskip("fastapi")
    (tmp_path / "app.py").write_text(CHAT)
    server: Milepost = serve("app:app", "--loop", loop)
    with contextlib.ExitStack() as stack:
        silent, *others = [
            WebSocket(stack.enter_context(server.connect(receive_buffer_bytes=size)), "/chat")
            for size in (4096, 1 << 20, 1 << 20, 1 << 20)
        ]
        assert [one.text() for one in (silent, *others)] == ["here"] * 4
        for word, one in zip("abc", others):
            one.send(TEXT, word.encode())
        with server.connect() as client:
            found = until(lambda: len(json.loads(client.ask("GET", "/sending").body)) == 3)
            assert found, "all three wait for the first client"
        # Its client takes all after all, and nobody has been closed meanwhile.
        for one in (silent, *others):
            assert sorted(one.text()[-1] for _ in range(3)) == ["a", "b", "c"]
    assert server.stop() == 0
    assert "Traceback" not in server.errors


CHANNELS = """
import django
from django.conf import settings

settings.configure(
    SECRET_KEY="x", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"],
    INSTALLED_APPS=["channels"],
    CHANNEL_LAYERS={"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}},
)
django.setup()
from channels.auth import AuthMiddlewareStack
from channels.generic.websocket import AsyncJsonWebsocketConsumer, WebsocketConsumer
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application
from django.http import HttpResponse
from django.urls import path

LEFT = []


class Chat(AsyncJsonWebsocketConsumer):
    async def connect(self):
        await self.channel_layer.group_add("room", self.channel_name)
        await self.accept()

    async def disconnect(self, code):
        LEFT.append(code)
        await self.channel_layer.group_discard("room", self.channel_name)

    async def receive_json(self, content):
        await self.channel_layer.group_send("room", {"type": "said", "word": content["word"]})

    async def said(self, event):
        await self.send_json({"word": event["word"]})


class Synchronous(WebsocketConsumer):
    def receive(self, text_data=None, bytes_data=None):
        self.send(text_data=text_data.upper())


class Rejects(WebsocketConsumer):
    def connect(self):
        self.close()


urlpatterns = [path("left", lambda request: HttpResponse(",".join(map(str, LEFT))))]
routes = [
    path("chat", Chat.as_asgi()), path("sync", Synchronous.as_asgi()), path("rejects", Rejects.as_asgi()),
]
app = ProtocolTypeRouter({
    "http": get_asgi_application(),
    "websocket": AllowedHostsOriginValidator(URLRouter(routes)),
})
"""


def test_channels_has_a_room(serve, tmp_path: Path) -> None:
    pytest.importorskip("channels")
    (tmp_path / "app.py").write_text(CHANNELS)
    server: Milepost = serve("app:app")
    clients = [server.connect() for _ in range(5)]
    room = [WebSocket(client, "/chat") for client in clients]
    for number, speaker in enumerate(room):
        speaker.send(TEXT, json.dumps({"word": f"word {number}"}).encode())
        for one in room:
            assert json.loads(one.text()) == {"word": f"word {number}"}
    room[0].client.send(frames.close(1000))
    assert room[0].closed() == (1000, "")
    room[1].client.sock.close()
    with server.connect() as client:
        assert until(lambda: client.ask("GET", "/left").body in (b"1000,1006", b"1006,1000"))
        connection = WebSocket(client, "/sync")
        connection.send(TEXT, b"loud")
        assert connection.text() == "LOUD"
    with server.connect() as client:
        client.send(handshake("/rejects"))
        assert client.reply().status == 403
    for client in clients[2:]:
        client.sock.close()


SOCKET_IO = """
import socketio

sio = socketio.AsyncServer(async_mode="asgi", cors_allowed_origins="*")
app = socketio.ASGIApp(sio)


@sio.event
async def connect(sid, environ):
    await sio.enter_room(sid, "all")


@sio.event
async def say(sid, word):
    await sio.emit("said", word, room="all")
    return "taken"
"""


def polled(client: Client, target: str, *args: str, **options: object) -> str:
    reply = client.ask(*(args or ("GET",)), target, **options)  # type: ignore[arg-type]
    assert reply.status == 200, reply
    return reply.body.decode()


def test_socket_io_begins_by_polling_and_upgrades(serve, tmp_path: Path) -> None:
    pytest.importorskip("socketio")
    (tmp_path / "app.py").write_text(SOCKET_IO)
    server: Milepost = serve("app:app")
    base = "/socket.io/?EIO=4&transport="
    with server.connect() as polls, server.connect() as client:
        opened = polled(polls, base + "polling")
        sid = json.loads(opened[1:])["sid"]
        assert "websocket" in json.loads(opened[1:])["upgrades"]
        assert polled(polls, f"{base}polling&sid={sid}", "POST", body=b"40") == "OK"
        assert polled(polls, f"{base}polling&sid={sid}").startswith("40")
        connection = WebSocket(client, f"{base}websocket&sid={sid}")
        connection.send(TEXT, b"2probe")
        assert connection.text() == "3probe"
        connection.send(TEXT, b"5")
        connection.send(TEXT, b'421["say","hello"]')
        # Engine.IO ends the poll that its upgrade has left by a message without meaning.
        heard = {connection.text() for _ in range(3)}
        assert heard == {"6", '42["said","hello"]', '431["taken"]'}
        # One that begins with WebSocket hears the others.
        with server.connect() as direct:
            other = WebSocket(direct, base + "websocket")
            assert re.match(r"0\{", other.text())
            other.send(TEXT, b"40")
            assert other.text().startswith("40")
            connection.send(TEXT, b'42["say","again"]')
            assert other.text() == '42["said","again"]'
            assert connection.text() == '42["said","again"]'
