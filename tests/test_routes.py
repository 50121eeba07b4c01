"""Several applications in one server: which requests each gets, and what they share."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from frames import TEXT, WebSocket
from http2 import Http2

from raw import Client, request
from serving import Milepost, run, tables, until
from supervising import Supervised

# A WSGI application: says where it runs and what it was asked for.
SITE = """
import json
import threading


def app(environ, start_response):
    with open("/proc/self/task/%d/comm" % threading.get_native_id()) as comm:
        thread = comm.read().strip()
    told = ["shop", thread, environ["SCRIPT_NAME"], environ["PATH_INFO"]]
    body = json.dumps(told).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""

# An ASGI application: the same, and an echo of messages. It notes its lifespan, and blocks on request.
CHAT = """
import json
import threading
import time
from pathlib import Path

NAME = __name__


def note(text):
    with open("notes", "a") as notes:
        notes.write(f"{NAME} {text}\\n")


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        note("starts")
        if Path(f"{NAME}.broken").exists():
            await send({"type": "lifespan.startup.failed", "message": "no database"})
            return
        scope["state"]["own"] = NAME
        await send({"type": "lifespan.startup.complete"})
        await receive()
        note("ends")
        await send({"type": "lifespan.shutdown.complete"})
    elif scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": NAME + " " + message["text"]})
    else:
        if scope["query_string"].startswith(b"block="):
            with open(scope["query_string"].removeprefix(b"block=")) as gate:
                gate.read()
        main = threading.current_thread() is threading.main_thread()
        told = [scope["state"]["own"], main, scope["root_path"], scope["path"]]
        body = json.dumps(told).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})
"""

ROUTES = tables(
    "route",
    {"path": "/ws", "app": "chat:app"},
    {"path": "/files/live", "app": "chat:app"},
    {"path": "/api", "app": "api:app", "root_path": "/api"},
    {"path": "/", "host": "*.example.org", "app": "other:app", "pool": "others"},
) + tables("pool", {"name": "others", "threads": 2})


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """A folder with two applications of each interface."""
    for name, text in (("shop", SITE), ("chat", CHAT), ("api", CHAT), ("other", SITE)):
        (tmp_path / f"{name}.py").write_text(text.replace('"shop"', f'"{name}"'))
    (tmp_path / "public").mkdir()
    (tmp_path / "public" / "a.txt").write_text("a file")
    return tmp_path


def told(client: Client, target: str, host: str = "x") -> list[object]:
    return json.loads(client.ask("GET", target, host=host).body)


def start(serve: Callable[..., Milepost], *more: str) -> Milepost:
    return serve("shop:app", "--static", "/files=public", "--threads", "3", *more, toml=ROUTES)


def test_each_request_reaches_its_application(several: Path, serve: Callable[..., Milepost]) -> None:
    server = start(serve)
    with server.connect() as client:
        name, thread, script_name, path = told(client, "/wsx/a%20b")
        assert (name, script_name, path) == ("shop", "", "/wsx/a b")
        assert str(thread).startswith("mp-default-")
        assert told(client, "/ws") == ["chat", True, "", "/ws"]
        assert told(client, "/ws/a") == ["chat", True, "", "/ws/a"]
        assert told(client, "/api/v1") == ["api", True, "/api", "/api/v1"]
        # The longer path counts, of routes and of folders.
        assert told(client, "/files/live/x") == ["chat", True, "", "/files/live/x"]
        assert client.ask("GET", "/files/a.txt").body == b"a file"
        # A host comes first, but folders are there for all.
        for host in ("a.example.org", "A.b.EXAMPLE.org:81"):
            name, thread, _, path = told(client, "/ws/a", host=host)
            assert (name, path) == ("other", "/ws/a")
            assert str(thread).startswith("mp-others-")
        assert client.ask("GET", "/files/a.txt", host="a.example.org").body == b"a file"
        assert told(client, "/ws", host="example.org")[0] == "chat"
    assert server.stop() == 0
    routes = [line.split(" route=")[1].split(" ")[0] for line in server.lines]
    assert routes == [
        "app", "/ws", "/ws", "/api", "/files/live", "/files",
        "*.example.org/", "*.example.org/", "/files", "/ws",
    ]  # fmt: skip
    pools = [line.split(" pool=")[1].split(" ")[0] for line in server.lines if " pool=" in line]
    assert [pool for pool in pools if pool != "-"] == [
        "default", "chat", "chat", "api", "chat", "others", "others", "chat",
    ]  # fmt: skip
    shown = "".join(server.stderr)
    assert "app      shop:app, WSGI on 3 threads, CPython" in shown
    assert "app      chat:app for /files/live and /ws, ASGI on an event loop" in shown
    assert "app      api:app for /api under /api, ASGI on an event loop" in shown
    assert "app      other:app for *.example.org/, WSGI on 2 threads\n" in shown


def test_messages_of_one_path_go_to_the_loop(several: Path, serve: Callable[..., Milepost]) -> None:
    server = start(serve)
    with server.connect() as client:
        connection = WebSocket(client, "/ws/room")
        connection.send(TEXT, b"hello")
        assert connection.text() == "chat hello"
    with server.connect() as client:
        # A WSGI application knows no WebSocket: the request is one like any other.
        reply = client.ask("GET", "/room", "Connection: Upgrade", "Upgrade: websocket")
        assert json.loads(reply.body)[0] == "shop"
    with Http2(server) as client:
        streams = [client.begin(target) for target in ("/ws", "/", "/api/x", "/files/a.txt")]
        server.count(len(streams))
        bodies = [client.response(stream).body for stream in streams]
        assert [json.loads(body)[0] for body in bodies[:3]] == ["chat", "shop", "api"]
        assert bodies[3] == b"a file"


def test_each_lifespan_is_its_own_and_the_last_ends_first(
    several: Path, serve: Callable[..., Milepost]
) -> None:
    server = start(serve)
    assert server.stop() == 0
    assert (several / "notes").read_text() == "chat starts\napi starts\napi ends\nchat ends\n"


def test_a_lifespan_that_fails_ends_those_before_it(several: Path) -> None:
    (several / "api.broken").touch()
    (several / "milepost.toml").write_text("app = 'shop:app'\n" + ROUTES)
    done = run(several, "serve", "--config", "milepost.toml", "--bind", "127.0.0.1:0")
    assert done.returncode == 2
    assert "the startup of `api:app` failed: no database" in done.stderr
    assert (several / "notes").read_text() == "chat starts\napi starts\nchat ends\n"


def test_an_application_that_does_not_end_holds_no_failed_start_up(several: Path) -> None:
    chat = (several / "chat.py").read_text()
    assert 'note("ends")' in chat
    never = "import asyncio\n        await asyncio.Event().wait()"
    (several / "chat.py").write_text(chat.replace('note("ends")', never))
    (several / "api.broken").touch()
    (several / "milepost.toml").write_text("app = 'shop:app'\nlifespan_timeout = '300ms'\n" + ROUTES)
    done = run(several, "serve", "--config", "milepost.toml", "--bind", "127.0.0.1:0")
    assert done.returncode == 2
    assert "the shutdown of `chat:app` took longer than 0.3 s" in done.stderr
    assert "the startup of `api:app` failed: no database" in done.stderr


def test_a_blocked_loop_holds_no_worker(several: Path, serve: Callable[..., Milepost]) -> None:
    os.mkfifo(several / "gate")
    server = start(serve)
    with server.connect() as blocking, server.connect() as client:
        blocking.send(request("GET", "/ws?block=gate"))
        with (several / "gate").open("w") as gate:
            # The loop reads from here on.
            for _ in range(20):
                assert told(client, "/")[0] == "shop"
            assert client.ask("GET", "/files/a.txt").body == b"a file"
            gate.write("on")
        assert json.loads(blocking.reply().body)[0] == "chat"


def test_rules_of_pools_stay_within_an_application(several: Path, serve: Callable[..., Milepost]) -> None:
    toml = ROUTES + tables("pool", {"name": "reports", "threads": 1}, {"name": "urgent"})
    toml += tables("route", {"path": "/urgent", "app": "chat:app", "pool": "urgent"})
    toml += tables(
        "pool_rule",
        {"pool": "reports", "path": "/**/reports"},
        {"pool": "urgent", "path": "/ws/now", "class": "high"},
    )
    server = serve("shop:app", toml=toml)
    with server.connect() as client:
        assert str(told(client, "/a/reports")[1]).startswith("mp-reports-")
        # This route's application has no pool `reports`.
        assert told(client, "/ws/reports")[0] == "chat"
        assert told(client, "/ws/now")[0] == "chat"
        assert told(client, "/urgent")[0] == "chat"
    assert server.stop() == 0
    pools = [line.split(" pool=")[1].split(" ")[0] for line in server.lines]
    assert pools == ["reports", "chat", "urgent", "urgent"]


def test_applications_are_replaced_together(several: Path, supervise: Callable[..., Supervised]) -> None:
    server = supervise("--static", "/files=public", app="shop:app", toml=ROUTES)
    stop, errors = threading.Event(), []

    def ask_on(target: str, name: str) -> None:
        while not stop.is_set():
            try:
                if json.loads(server.ask(target).body)[0] != name:
                    errors.append(target)
            except (OSError, ValueError) as error:
                errors.append(f"{target}: {error}")
                return

    asked = (("/", "shop"), ("/ws", "chat"), ("/api", "api"))
    threads = [threading.Thread(target=ask_on, args=one) for one in asked]
    for thread in threads:
        thread.start()
    try:
        server.done("reload")
        (several / "other.py").write_text("raise RuntimeError('a broken module')")
        assert "a broken module" in server.refused("reload")
        (several / "other.py").write_text(SITE)
        (several / "chat.broken").touch()
        assert "the startup of `chat:app` failed: no database" in server.refused("reload")
        (several / "chat.broken").unlink()
        server.done("reload")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []


def test_routes_alone_serve_and_the_rest_is_not_found(several: Path, serve: Callable[..., Milepost]) -> None:
    server = serve(toml=tables("route", {"path": "/ws", "app": "chat:app"}))
    with server.connect() as client:
        assert told(client, "/ws/x") == ["chat", True, "", "/ws/x"]
        assert client.ask("GET", "/").status == 404
    assert server.stop() == 0
    assert [line.split(" route=")[1].split(" ")[0] for line in server.lines] == ["/ws", "none"]


def test_faults_of_applications_are_named(several: Path) -> None:
    def check(toml: str) -> str:
        (several / "milepost.toml").write_text(toml)
        return run(several, "check", "--config", "milepost.toml").stderr

    first = "app = 'shop:app'\n"
    wrong = first + tables("route", {"path": "/a", "app": "chat:ap"})
    assert "`chat:ap`: `chat` has no attribute `ap`" in check(wrong)
    # Threads have no meaning where all is on a loop.
    threads = "threads = 4\n"
    alone = tables("route", {"app": "chat:app"})
    assert "an ASGI application runs on one event loop, which has no threads" in check(threads + alone)
    (several / "milepost.toml").write_text(first + threads + ROUTES)
    good = run(several, "check", "--config", "milepost.toml")
    assert good.returncode == 0, good.stderr
    assert "chat:app for /files/live and /ws, ASGI on an event loop" in good.stdout


def test_only_pools_of_threads_have_a_size(several: Path, supervise: Callable[..., Supervised]) -> None:
    server = supervise(app="shop:app", toml=ROUTES)
    assert "pool `chat` has no threads: an event loop runs its requests" in server.refused(
        "scale", "--pool", "chat", "--threads", "2"
    )
    server.done("scale", "--pool", "others", "--threads", "3")
    (process,) = server.processes()
    sizes = {pool["name"]: pool["threads_max"] for pool in process["pools"]}
    assert sizes == {"default": 4, "others": 3, "chat": 1, "api": 1}


def test_preloaded_applications_are_forked_with_all_others(
    several: Path, supervise: Callable[..., Supervised]
) -> None:
    server = supervise("--preload", "--processes", "2", app="shop:app", toml=ROUTES)
    server.settled(2)
    with server.connect() as client:
        assert told(client, "/")[0] == "shop"
        assert told(client, "/ws")[0] == "chat"
    server.signal(signal.SIGHUP)
    assert until(lambda: (several / "notes").read_text().count("chat ends") == 2)
