"""Socket.IO with its JavaScript client: from polling to WebSocket, rooms, and coming again after a reload.

Run by `make conformance`; tools/conformance.sh installs the client that socketio/package-lock.json pins.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from serving import DEADLINE_S
from supervising import Supervised

pytestmark = pytest.mark.conformance

APP = """
import os

import socketio

sio = socketio.AsyncServer(async_mode="asgi", cookie="io")
inner = socketio.ASGIApp(sio)


async def app(scope, receive, send):
    async def sends(event):
        if event["type"] == "websocket.accept":
            headers = [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"x-from", b"accept")]
            event = event | {"headers": headers}
        await send(event)

    await inner(scope, receive, sends)


@sio.event
async def connect(sid, environ):
    await sio.enter_room(sid, "all")
    await sio.emit("headers", [environ["HTTP_COOKIE"], environ["HTTP_X_TOKEN"]], room=sid)


@sio.event
async def say(sid, word):
    await sio.emit("said", [word, os.getpid()], room="all")
    return "taken"
"""


class Node:
    """A running client.js."""

    def __init__(self, server: Supervised, name: str) -> None:
        modules = Path(os.environ["SOCKETIO_CLIENT"]) / "node_modules"
        script = Path(__file__).parent / "socketio" / "client.js"
        self.process = subprocess.Popen(
            ["node", str(script), server.url.rstrip("/"), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"NODE_PATH": str(modules)},
        )
        self.told: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.waiting: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.told.put(json.loads(line))

    def until(self, event: str) -> dict[str, Any]:
        """The next event of that name, whatever comes before it: an upgrade may be before the connect."""
        while True:
            for told in self.waiting:
                if told["event"] == event:
                    self.waiting.remove(told)
                    return told
            self.waiting.append(self.told.get(timeout=DEADLINE_S))

    def is_connected(self) -> None:
        """Waits until it is: by polling, then by WebSocket."""
        assert self.until("open")["transport"] == "polling"
        assert self.until("upgrade")["transport"] == "websocket"
        self.until("connect")

    def say(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(DEADLINE_S)


@pytest.fixture
def server(tmp_path: Path, supervise: Callable[..., Supervised]) -> Iterator[Supervised]:
    if "SOCKETIO_CLIENT" not in os.environ:
        pytest.skip("needs the client of Socket.IO (make conformance)")
    (tmp_path / "app.py").write_text(APP)
    yield supervise("--ws-drain", "0s", "--drain-timeout", "5s", log=None)


def test_clients_upgrade_meet_in_a_room_and_come_again_after_a_reload(server: Supervised) -> None:
    nodes = [Node(server, name) for name in ("one", "two")]
    try:
        for node, name in zip(nodes, ("one", "two")):
            node.is_connected()
            assert node.until("headers")["told"] == [f"who={name}; other=1", "t"]
            accepted = node.until("accepted")
            assert (accepted["cookies"], accepted["from"]) == (["a=1", "b=2"], "accept")
        (first,) = server.pids()
        nodes[0].say("hello")
        assert [node.until("said")["told"] for node in nodes] == [["hello", first]] * 2
        assert nodes[0].until("answer")["answer"] == "taken"
        for _ in range(3):
            server.done("reload")
            (now,) = server.settled(1)
            for node in nodes:
                left = node.until("disconnect")
                assert (left["reason"], left["code"]) == ("transport close", 1012)
                node.is_connected()
            nodes[1].say("again")
            assert [node.until("said")["told"] for node in nodes] == [["again", now]] * 2
            assert nodes[1].until("answer")["answer"] == "taken"
    finally:
        for node in nodes:
            node.stop()
    assert "Traceback" not in server.errors
