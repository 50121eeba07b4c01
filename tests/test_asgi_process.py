"""ASGI in a process: the lifespan, what is bounded, time limits, ends and reloads."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from frames import handshake
from http2 import Http2

from raw import Client, CutShort, request
from serving import APPS, LOOPS, Milepost, run, tables, until
from supervising import Supervised, calling, is_running

ZOO = ("asgi_zoo:app", "--app-dir", str(APPS))

#: Applications that answer requests with what their lifespan has left behind, by what their lifespan does.
LIFESPANS = {
    "unknown": "raise ValueError('only http here')",
    "assertion": "assert scope['type'] == 'http'",
    "returns": "return",
    "raises": "await receive()\n        raise ValueError('a broken startup')",
    "failed": (
        "await receive()\n        await send({'type': 'lifespan.startup.failed', 'message': 'no database'})"
    ),
    "silent": "await receive()\n        await never()",
    "blocks": "await receive()\n        import time\n        time.sleep(600)",
    "holds": "await receive()\n        sum(range(10**15))",
    "good": (
        "await receive()\n        await send({'type': 'lifespan.startup.complete'})\n"
        "        await receive()\n        await send({'type': 'lifespan.shutdown.complete'})"
    ),
    "raises-late": (
        "await receive()\n        await send({'type': 'lifespan.startup.complete'})\n"
        "        await receive()\n        raise ValueError('a broken shutdown')"
    ),
    "failed-late": (
        "await receive()\n        await send({'type': 'lifespan.startup.complete'})\n"
        "        await receive()\n"
        "        await send({'type': 'lifespan.shutdown.failed', 'message': 'not clean'})"
    ),
    "stuck-late": (
        "await receive()\n        await send({'type': 'lifespan.startup.complete'})\n"
        "        await receive()\n        await never()"
    ),
    "stops-late": (
        "await receive()\n        await send({'type': 'lifespan.startup.complete'})\n"
        "        await receive()\n        asyncio.get_running_loop().stop()\n"
        "        await asyncio.sleep(0.05)\n"
        "        print('stopped in the middle', file=sys.stderr, flush=True)\n"
        "        await send({'type': 'lifespan.shutdown.complete'})"
    ),
    "wrong": "await receive()\n        await send({'type': 'lifespan.shutdown.complete'})",
}
APP = """
import asyncio
import sys


async def never():
    await asyncio.Event().wait()


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        {lifespan}
        return
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    await send({{"type": "http.response.body", "body": b"served"}})
"""


def write(folder: Path, lifespan: str) -> None:
    (folder / "app.py").write_text(APP.format(lifespan=LIFESPANS[lifespan]))


@pytest.mark.parametrize(
    "lifespan", ["unknown", "assertion", "returns", "good", "raises-late", "failed-late", "stops-late"]
)
def test_an_application_is_served_after_its_startup(serve, tmp_path: Path, lifespan: str) -> None:
    write(tmp_path, lifespan)
    server = serve("app:app")
    with server.connect() as client:
        assert client.ask().body == b"served"
    assert server.stop() == 0
    said = {
        "raises-late": "the lifespan of the application failed: Traceback",
        "failed-late": "the shutdown of the application failed: not clean",
    }
    assert (said.get(lifespan) or "") in server.errors
    assert lifespan in said or "Traceback" not in server.errors, server.errors
    assert (lifespan == "stops-late") == ("stopped in the middle" in server.errors), server.errors


@pytest.mark.parametrize(
    ("lifespan", "mode", "said"),
    [
        ("unknown", "on", "ValueError: only http here"),
        ("returns", "on", "returned without an answer to `lifespan.startup`"),
        ("raises", "auto", "ValueError: a broken startup"),
        ("failed", "auto", "the startup of the application failed: no database"),
        ("silent", "auto", "took longer than 0.2 s, in "),
        ("blocks", "auto", "took longer than 0.2 s, and blocks the event loop, in "),
        ("holds", "auto", "and blocks the event loop, in a call that holds the interpreter"),
        ("wrong", "auto", "`lifespan.shutdown.complete` is not expected of the lifespan now"),
    ],
)
def test_an_application_is_not_served_after_a_failed_startup(
    tmp_path: Path, lifespan: str, mode: str, said: str
) -> None:
    write(tmp_path, lifespan)
    timeout = "200ms" if lifespan in ("silent", "blocks", "holds") else "30s"
    ended = run(
        tmp_path,
        "serve",
        "app:app",
        "--bind",
        "127.0.0.1:0",
        "--lifespan",
        mode,
        "--lifespan-timeout",
        timeout,
    )
    assert ended.returncode == 2, ended
    assert said in ended.stderr and "listening on" not in ended.stderr
    if lifespan == "silent":
        assert "(never)" in ended.stderr or "(app)" in ended.stderr or "wait" in ended.stderr
    if lifespan == "blocks":
        assert "app.py:14 (app)" in ended.stderr and "\n    time.sleep(600)" in ended.stderr
    if lifespan in ("unknown", "raises"):
        assert "in app" in ended.stderr


UNWINDS = """
import asyncio
import contextlib
import sys


@contextlib.asynccontextmanager
async def database():
    try:
        yield
    finally:
        await asyncio.sleep(0)
        print("closed the database", file=sys.stderr, flush=True)


async def app(scope, receive, send):
    assert scope["type"] == "lifespan"
    async with database():
        await receive()
        if FAILS:
            await send({"type": "lifespan.startup.failed"})
        await asyncio.Event().wait()
"""


@pytest.mark.parametrize("fails", [True, False])
def test_what_a_failed_startup_has_opened_is_closed(tmp_path: Path, fails: bool) -> None:
    (tmp_path / "app.py").write_text(f"{UNWINDS}\n\nFAILS = {fails}\n")
    timeout = "30s" if fails else "200ms"
    ended = run(tmp_path, "serve", "app:app", "--bind", "127.0.0.1:0", "--lifespan-timeout", timeout)
    assert ended.returncode == 2, ended
    assert ended.stderr.count("closed the database") == 1, ended.stderr


FORKS = """
import os
import time


async def app(scope, receive, send):
    assert scope["type"] == "http"
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": b"%d" % pid})
"""


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_child_of_the_application(serve, tmp_path: Path, loop: str, number: int) -> None:
    (tmp_path / "app.py").write_text(FORKS)
    server = serve("app:app", "--loop", loop)
    with server.connect() as client:
        pid = int(client.ask("GET", "/").body)
    try:
        # More than once: the child may not have its own handlers yet.
        assert until(lambda: not is_running(pid) or os.kill(pid, number))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


THREADED = """
import asyncio


async def app(scope, receive, send):
    assert scope["type"] == "http"
    loop = asyncio.get_running_loop()

    def put(event):
        asyncio.run_coroutine_threadsafe(send(event), loop).result(20)

    def answer():
        put({"type": "http.response.start", "status": 200})
        put({"type": "http.response.body", "body": b"from a thread"})

    await receive()
    end = asyncio.create_task(receive())
    await loop.run_in_executor(None, answer)
    assert (await end)["type"] == "http.disconnect"
"""


@pytest.mark.parametrize("loop", LOOPS)
def test_another_thread_may_have_the_loop_send(serve, tmp_path: Path, loop: str) -> None:
    (tmp_path / "app.py").write_text(THREADED)
    server = serve("app:app", "--loop", loop, env={"PYTHONASYNCIODEBUG": "1"})
    with server.connect() as client:
        for _ in range(3):
            assert client.ask("GET", "/").body == b"from a thread"
    assert server.stop() == 0
    assert "Traceback" not in server.errors


def test_no_lifespan_where_it_is_off(serve, tmp_path: Path) -> None:
    write(tmp_path, "silent")
    server = serve("app:app", "--lifespan", "off")
    with server.connect() as client:
        assert client.ask().body == b"served"


def lifespans(folder: Path) -> list[str]:
    file = folder / "lifespan.txt"
    return file.read_text().splitlines() if file.exists() else []


def test_a_reload_ends_the_lifespan_behind_the_last_request(supervise, tmp_path: Path) -> None:
    server = supervise(*ZOO[1:], app=ZOO[0])
    with server.connect() as client:
        first = int(json.loads(client.ask("GET", "/thread").body)["pid"])
        client.send(request("GET", "/waits?name=over"))
        # The same process: the request is inside before the reload begins.
        with server.connect() as other:
            assert until(lambda: json.loads(other.ask("GET", "/seen?name=over").body) == ["waits"])
            server.done("reload")
            assert lifespans(tmp_path)[0] == f"{first} startup"
            assert f"{first} shutdown" not in lifespans(tmp_path)
            assert other.ask("GET", "/opens?name=over").body == b"open"
        assert client.reply().body == b"waited"
    assert until(lambda: f"{first} shutdown" in lifespans(tmp_path))
    (now,) = server.settled(1)
    assert now != first
    assert server.stop() == 0
    assert lifespans(tmp_path) == [
        f"{first} startup",
        f"{now} startup",
        f"{first} shutdown",
        f"{now} shutdown",
    ]


def test_an_endless_stream_ends_at_the_drain_deadline(serve, tmp_path: Path) -> None:
    server = serve(*ZOO, "--drain-timeout", "1s")
    with server.connect() as client:
        client.send(request("GET", "/event-stream?name=es"))
        assert client.head()[0] == 200
        server.count()
        assert server.stop() == 0
        with pytest.raises(CutShort):
            client.chunk()
    assert [line.split()[1] for line in lifespans(tmp_path)] == ["startup", "shutdown"]


def test_a_task_that_waits_is_cancelled_at_the_drain_deadline(serve, tmp_path: Path) -> None:
    server = serve(*ZOO, "--drain-timeout", "500ms")
    with server.connect() as client:
        client.send(request("GET", "/background?name=ever"))
        assert client.reply().body == b"answered"
    assert server.stop() == 0
    assert [line.split()[1] for line in lifespans(tmp_path)] == ["startup", "shutdown"]
    assert "Task was destroyed" not in server.errors


def test_a_shutdown_that_never_ends_is_left_at_the_drain_deadline(serve, tmp_path: Path) -> None:
    write(tmp_path, "stuck-late")
    server = serve("app:app", "--drain-timeout", "500ms")
    with server.connect() as client:
        assert client.ask().body == b"served"
    assert server.stop() == 0


def test_a_blocked_loop_is_left_at_the_drain_deadline(serve, tmp_path: Path) -> None:
    server = serve(*ZOO, "--drain-timeout", "500ms")
    with server.connect() as client:
        client.send(request("GET", "/blocks"))
        assert until((tmp_path / "blocks").exists)
        server.count()
        assert server.stop() == 0
        with pytest.raises(CutShort):
            client.reply()


HOOKS = """
import threading

def hook(name):
    with open("hooks.txt", "a") as file:
        file.write(f"{name} {threading.current_thread() is threading.main_thread()}\\n")

def ready(): hook("ready")
def leaves(): hook("leaves")

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        raise ValueError
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": b"served"})
"""


def test_hooks_of_a_process_run_around_its_loop(serve, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(HOOKS)
    toml = '[hooks]\nworker_ready = "app:ready"\nworker_exit = "app:leaves"\n'
    server = serve("app:app", toml=toml)
    with server.connect() as client:
        assert client.ask().body == b"served"
    assert server.stop() == 0
    assert (tmp_path / "hooks.txt").read_text() == "ready True\nleaves True\n"


WORDS = """
import os

WORD = "{word}"

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({{"type": f"{{kind}}.complete"}})
            if kind == "lifespan.shutdown":
                return
    body = f"{{WORD}} {{os.getpid()}}".encode()
    await send({{"type": "http.response.start", "status": 200}})
    await send({{"type": "http.response.body", "body": body}})
"""


def test_reloads_under_load_lose_no_request(supervise, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(WORDS.format(word="one"))
    server: Supervised = supervise("--processes", "2")
    server.settled(2)
    with calling(server) as callers:
        for word in ("two", "three", "four"):
            (tmp_path / "app.new").write_text(WORDS.format(word=word))
            (tmp_path / "app.new").replace(tmp_path / "app.py")
            server.done("reload")
            assert server.serves_only(word)
    assert callers.lost == []
    assert "Traceback" not in server.errors


def test_an_interrupt_of_the_terminal_ends_no_loop(serve) -> None:
    server = serve(*ZOO)
    with server.connect() as client:
        pid = json.loads(client.ask("GET", "/thread").body)["pid"]
        os.kill(pid, signal.SIGINT)
        assert client.ask().body == b"hello"


def ask_seen(client: Client, name: str) -> list[str]:
    return json.loads(client.ask("GET", f"/seen?name={name}").body)


def waiting_len(server: Supervised) -> int:
    (process,) = server.processes()
    return int(process["pools"][0]["waiting"])


def test_requests_beyond_the_bound_wait_in_the_queue(supervise, tmp_path: Path) -> None:
    bounds = ("--asgi-concurrency", "2", "--queue-len-max", "2", "--queue-target", "20s")
    server = supervise(*ZOO[1:], *bounds, app=ZOO[0])
    clients = [server.connect() for _ in range(5)]
    for number, client in enumerate(clients[:4]):
        client.send(request("GET", "/until-file?file=now"))
        # Two are inside, the next ones wait.
        assert until(lambda number=number: waiting_len(server) == max(0, number - 1))
    refused = clients[4].ask("GET", "/")
    assert (refused.status, bool(refused.header("retry-after"))) == (503, True)
    (tmp_path / "now").touch()
    assert [client.reply().text for client in clients[:4]] == ["1", "2", "3", "4"]
    assert server.ask().body == b"hello"
    for client in clients:
        client.sock.close()


def test_a_blocked_loop_holds_up_no_file(serve, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_bytes(b"a file")
    server = serve(*ZOO, "--static", f"/f={tmp_path / 'files'}")
    with server.connect() as blocked, server.connect() as other:
        blocked.send(request("GET", "/blocks"))
        assert until((tmp_path / "blocks").exists)
        assert other.ask("GET", "/f/a.txt").body == b"a file"
        assert until(lambda: "blocks the event loop, for" in server.errors)
        (tmp_path / "goes-on").touch()
        assert blocked.reply().body == b"blocked"
    assert server.stop() == 0
    (line,) = (line for line in server.errors.splitlines() if "blocks the event loop" in line)
    assert "GET /blocks [id " in line and "asgi_zoo.py:" in line and "(blocks)" in line


def test_an_overdue_request_is_504_and_its_task_is_cancelled(serve) -> None:
    server = serve(*ZOO, "--request-timeout", "300ms")
    with server.connect() as client:
        reply = client.ask("GET", "/waits?name=overdue")
        assert (reply.status, reply.closes) == (504, True)
    with server.connect() as client:
        assert until(lambda: ask_seen(client, "overdue") == ["waits", "cancelled"])
        assert client.ask().body == b"hello"
    assert server.stop() == 0
    assert "Traceback" not in server.errors


def test_an_overdue_stream_is_cut(serve) -> None:
    server = serve(*ZOO, "--request-timeout", "300ms")
    with server.connect() as client:
        client.send(request("GET", "/event-stream?name=cut"))
        server.count()
        assert client.head()[0] == 200
        with pytest.raises(CutShort):
            client.chunk()


def test_over_tls(serve: Callable[..., Milepost], tmp_path: Path, authority: Any) -> None:
    server = serve(*ZOO, *authority.flags("server", "localhost"), tls=authority.context())
    with server.connect() as client:
        scope = json.loads(client.ask("GET", "/scope").body)["scope"]
        assert (scope["scheme"], scope["http_version"]) == ("https", "1.1")
        assert client.ask("POST", "/echo", body=b"x" * 300_000).body == b"x" * 300_000
        assert client.ask("GET", "/stream?count=4").chunks == [b"xxxxx"] * 4
        (server.folder / "file").write_bytes(b"y" * 200_000)
        assert client.ask("GET", "/pathsend?path=file").body == b"y" * 200_000
        client.send(request("GET", "/disconnect?name=tls"))
        server.count()
        with server.connect() as other:
            assert until(lambda: ask_seen(other, "tls") == ["http.request"])
            client.sock.close()
            assert until(lambda: ask_seen(other, "tls")[1:2] == ["http.disconnect"])


def test_over_http_2(serve: Callable[..., Milepost], tmp_path: Path, authority: Any) -> None:
    context = authority.context()
    context.set_alpn_protocols(["h2"])
    server = serve(*ZOO, *authority.flags("server", "localhost"), tls=context)
    with Http2(server) as client:
        cookies = [("cookie", "a=1"), ("x-more", "2"), ("cookie", "b=2")]
        found = json.loads(client.ask("/scope?x=1", *cookies).body)
        scope = found["scope"]
        assert (scope["scheme"], scope["http_version"], scope["path"]) == ("https", "2", "/scope")
        assert scope["headers"] == [
            ["bytes:host", "bytes:example.org"],
            ["bytes:x-more", "bytes:2"],
            ["bytes:cookie", "bytes:a=1; b=2"],
        ]
        assert sorted(scope["extensions"]) == [
            "http.response.early_hint",
            "http.response.pathsend",
            "http.response.trailers",
            "http.response.zerocopysend",
            "tls",
        ]
        known = ("trailers", "early_hint")
        known_text = "".join(f", `http.response.{name}`" for name in known).encode()
        assert client.ask("/wrong?case=debug").body.endswith(b"zerocopysend`" + known_text)
        hinted = client.ask("/hint")
        assert hinted.interim == [(103, [("link", "</a.css>; rel=preload")])]
        assert client.ask("/stream?count=3").body == b"x" * 15
        waits = client.begin("/disconnect?name=h2")
        with Http2(server) as other:

            def seen() -> list[str]:
                return json.loads(other.ask("/seen?name=h2").body)

            assert until(lambda: seen() == ["http.request"])
            client.machine.reset_stream(waits)
            client.flush()
            server.count()
            assert until(lambda: seen()[1:2] == ["http.disconnect"])


DETECTED = """
import functools

async def function(scope, receive, send): pass

class Object:
    async def __call__(self, scope, receive, send): pass

thing = Object()
partial = functools.partial(function)

def outer(first, scope, receive, send): return function(scope, receive, send)
def decorated(f):
    @functools.wraps(f)
    def wrapper(*args): return f(*args)
    return wrapper
wrapped = decorated(function)
def wsgi(environ, start_response): return []
def plain(scope, receive, send): return function(scope, receive, send)
def double(scope): return function
async def odd(request): pass
number = 3
"""


@pytest.mark.parametrize(
    ("name", "interface", "said"),
    [
        ("function", "auto", "ASGI on an event loop (asyncio)"),
        ("thing", "auto", "ASGI on an event loop (asyncio)"),
        ("partial", "auto", "ASGI on an event loop (asyncio)"),
        ("wrapped", "auto", "ASGI on an event loop (asyncio)"),
        ("plain", "asgi", "ASGI on an event loop (asyncio)"),
        ("double", "asgi2", "ASGI on an event loop (asyncio)"),
        ("wsgi", "auto", "WSGI on 4 threads"),
        ("wsgi", "asgi", "it cannot be called with scope, receive and send"),
        ("plain", "auto", "if it is an ASGI application: `--interface asgi`"),
        ("function", "wsgi", "it cannot be called with environ and start_response"),
        ("odd", "auto", "it cannot be called with scope, receive and send"),
        ("number", "auto", "an object of type `int` is not callable, so it is no application"),
    ],
)
def test_the_interface_is_found_out(tmp_path: Path, name: str, interface: str, said: str) -> None:
    (tmp_path / "app.py").write_text(DETECTED)
    checked = run(tmp_path, "check", f"app:{name}", "--interface", interface, "--loop", "asyncio")
    assert said in checked.stdout + checked.stderr
    assert checked.returncode == (0 if " on " in said else 1)


def test_threads_of_an_event_loop_are_refused(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(DETECTED)
    checked = run(tmp_path, "check", "app:thing", "--threads", "3")
    assert checked.returncode == 1
    assert "runs on one event loop, which has no threads" in checked.stderr
    assert "asgi_concurrency" in checked.stderr


PATHS = """
async def app(scope, receive, send):
    assert scope["type"] == "http"
    text = f"{scope['root_path']} {scope['path']} {scope['raw_path'].decode()}"
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": text.encode()})
"""

ASGI2 = """
VERSIONS = []


class app:
    def __init__(self, scope):
        VERSIONS.append(scope["asgi"]["version"])
        assert scope["type"] == "http", scope
        self.scope = scope

    async def __call__(self, receive, send):
        await send({"type": "http.response.start", "status": 200})
        text = f"{self.scope['path']} {self.scope['asgi']['version']} {VERSIONS[0]}"
        await send({"type": "http.response.body", "body": text.encode()})
"""


def test_asgi_2_where_it_is_asked_for(serve, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(ASGI2)
    server = serve("app:app", "--interface", "asgi2")
    with server.connect() as client:
        assert client.ask("GET", "/here").body == b"/here 2.0 2.0"


def test_a_root_path_is_at_the_beginning_of_the_path(serve, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PATHS)
    server = serve("app:app", "--root-path", "/shop")
    with server.connect() as client:
        for target in ("/a%20b?x", "/shop/a%20b?x"):
            assert client.ask("GET", target).text == "/shop /shop/a b /shop/a%20b"
        # The same path, spelt otherwise.
        assert client.ask("GET", "/s%68op/x").text == "/shop /shop/x /s%68op/x"


def test_a_root_path_with_escapes_is_decoded(serve, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PATHS)
    server = serve("app:app", "--root-path", "/my%20shop")
    with server.connect() as client:
        for target in ("/x", "/my%20shop/x"):
            assert client.ask("GET", target).text == "/my shop /my shop/x /my%20shop/x"


def test_the_application_s_processes_have_a_loop_each(supervise) -> None:
    server: Supervised = supervise(*ZOO[1:], "--processes", "2", app=ZOO[0])
    pids = server.settled(2)
    assert until(lambda: {json.loads(server.ask("/thread").body)["pid"] for _ in range(16)} == pids)


def test_a_template_forks_processes_with_a_loop_each(supervise) -> None:
    server: Supervised = supervise(*ZOO[1:], "--processes", "2", "--preload", app=ZOO[0])
    pids = server.settled(2)
    assert until(lambda: {json.loads(server.ask("/thread").body)["pid"] for _ in range(16)} == pids)


def test_an_application_on_a_unix_socket(serve, tmp_path: Path) -> None:
    path = tmp_path / "sock"
    server = serve(*ZOO, bind=f"unix:{path}")
    with server.connect() as client:
        scope = json.loads(client.ask("GET", "/scope").body)["scope"]
        assert scope["client"] is None
        assert scope["server"] == [str(path), None]


BLOCKS = """
import asyncio
import time


async def app(scope, receive, send):
    assert scope["type"] == "http"
    if scope["path"] == "/blocks":
        open("blocks", "w").close()
        time.sleep(0.5)
    if scope["path"] == "/waits":
        await asyncio.sleep(0.01)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
"""


def test_the_log_says_what_each_request_took_of_the_loop(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    (tmp_path / "blocks_app.py").write_text(BLOCKS)
    server = serve("blocks_app:app", "--app-dir", str(tmp_path), "--access-log-format", "json")
    with server.connect() as client, server.connect() as other:
        assert client.ask("GET", "/waits").status == 200
        client.send(request("GET", "/blocks"))
        assert until((server.folder / "blocks").exists)
        other.send(request("GET", "/victim"))
        assert client.reply().status == 200
        assert other.reply().status == 200
        assert client.ask("GET", "/after").status == 200
    assert server.stop() == 0
    lines = {line["target"]: line for line in map(json.loads, server.lines)}
    assert {target: line["steps"] for target, line in lines.items()} == {
        "/waits": 2,
        "/blocks": 1,
        "/victim": 1,
        "/after": 1,
    }
    assert lines["/blocks"]["longest"] >= 0.5 and lines["/blocks"]["busy"] >= 0.5
    assert lines["/victim"]["blocked_by"] == lines["/blocks"]["id"]
    assert "blocked_by" not in lines["/after"] and "blocked_by" not in lines["/blocks"]
    assert all(line["loop"] <= line["queue"] for line in lines.values())


STREAMS = """
import asyncio


async def app(scope, receive, send):
    assert scope["type"] == "http"
    await receive()
    head = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": b"data: begun\\n\\n", "more_body": True})
    if scope["path"] == "/deaf":
        await asyncio.Event().wait()
    while (await receive())["type"] != "http.disconnect":
        pass
    open(scope["path"][1:], "w").close()
"""


def test_event_streams_end_with_their_process(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    (tmp_path / "streams_app.py").write_text(STREAMS)
    flags = ("--ws-drain", "200ms", "--ws-close-timeout", "200ms", "--drain-timeout", "60s")
    server = supervise(*flags, "--app-dir", str(tmp_path), app="streams_app:app")
    clients = [server.connect() for _ in range(6)]
    for number, client in enumerate(clients):
        client.send(request("GET", "/deaf" if number == 5 else f"/{number}"))
        assert client.head()[0] == 200
        assert client.chunk() == b"data: begun\n\n"
        server.count()
    (old,) = server.pids()
    server.done("reload")
    for client in clients:
        with pytest.raises((CutShort, ConnectionResetError)):
            client.chunk()
    # Long before its drain timeout.
    assert server.settled(1) != {old}
    assert all((server.folder / str(number)).exists() for number in range(5))
    assert server.stop() == 0
    assert [" end=shutdown " in line for line in server.lines] == [True] * 6


def test_a_slow_request_is_logged_once_with_where_it_waits(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO, "--slow-request", "100ms")
    with server.connect() as client, server.connect() as other, server.connect() as stream:
        stream.send(request("GET", "/event-stream?name=endless"))
        client.send(request("GET", "/waits?name=slow"))
        other.send(request("GET", "/nested?name=nested"))
        assert until(lambda: server.errors.count(": slow: running for ") == 2)
        with server.connect() as asking:
            for _ in range(3):
                assert asking.ask("GET", "/").body == b"hello"
            for name in ("slow", "nested", "endless"):
                asking.ask("GET", f"/opens?name={name}")
        assert (client.reply().body, other.reply().body) == (b"waited", b"nested")
        server.count()
    assert server.stop() == 0
    assert server.errors.count(": slow: running for ") == 2
    lines = server.errors.splitlines()
    first = next(line for line in lines if "GET /waits" in line and ": slow: " in line)
    assert " on the event loop; Stack of its awaits (most recent call last):" in first
    assert "in waits" in server.errors and "await GATES[name].wait()" in server.errors
    # Tasks that it waits for are among it.
    assert "in nested" in server.errors and "in innermost" in server.errors


HANDSHAKES = """
import asyncio
from pathlib import Path


async def app(scope, receive, send):
    if scope["type"] != "websocket":
        raise ValueError("no lifespan")
    await receive()
    name = scope["path"][1:]
    Path(name).touch()
    if name == "deaf":
        await asyncio.Event().wait()
    elif name == "answers":
        while not Path("answer").exists():
            await asyncio.sleep(0.01)
    else:
        event = await receive()
        Path(name).write_text(f"{event['type']} {event['code']}")
    await send({"type": "websocket.accept"})
    await receive()
"""


def test_unanswered_handshakes_are_refused_at_the_end_of_their_process(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    (tmp_path / "handshakes.py").write_text(HANDSHAKES)
    flags = ("--ws-drain", "300ms", "--ws-close-timeout", "200ms", "--drain-timeout", "60s")
    server = supervise(*flags, "--app-dir", str(tmp_path), app="handshakes:app")
    clients = [server.connect() for _ in range(2)]
    for client, name in zip(clients, ("hears", "deaf"), strict=True):
        client.send(handshake(f"/{name}"))
        assert until((server.folder / name).exists)
    (old,) = server.pids()
    server.done("reload")
    for client in clients:
        assert client.reply().status == 503
        assert client.is_closed()
    # Long before its drain timeout.
    assert server.settled(1) != {old}
    assert (server.folder / "hears").read_text() == "websocket.disconnect 1006"
    assert server.stop() == 0
    assert [" 503 " in line for line in server.lines] == [True] * 2
    assert "Traceback" not in server.errors


def test_a_handshake_that_is_answered_soon_survives_the_end_of_its_process(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    (tmp_path / "handshakes.py").write_text(HANDSHAKES)
    server = supervise("--drain-timeout", "60s", "--app-dir", str(tmp_path), app="handshakes:app")
    with server.connect() as client:
        client.send(handshake("/answers"))
        assert until((server.folder / "answers").exists)
        server.done("reload")
        (server.folder / "answer").touch()
        assert client.head()[0] == 101
    server.count()


DESCRIPTORS = """
import asyncio
import os
import socket
import threading


async def app(scope, receive, send):
    loop = asyncio.get_running_loop()
    # A file object that is read, by its callback.
    reader, writer = os.pipe()
    readable = os.fdopen(reader, "rb", buffering=0)
    piped = loop.create_future()
    loop.add_reader(readable, lambda: piped.done() or piped.set_result(readable.read(9)))
    threading.Timer(0.02, os.write, (writer, b"pipe")).start()
    # A socket that is full until its peer reads.
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    sending = asyncio.create_task(loop.sock_sendall(ours, bytes(2_000_000)))
    got = 0
    while got < 2_000_000:
        got += len(await loop.sock_recv(theirs, 100_000))
    await sending
    # A process, its pipes and its end.
    child = await asyncio.create_subprocess_exec("printf", "child", stdout=asyncio.subprocess.PIPE)
    printed, _ = await child.communicate()
    # A thread's call, and a timer.
    called = loop.create_future()
    threading.Thread(target=loop.call_soon_threadsafe, args=(called.set_result, b"thread")).start()
    began = loop.time()
    await asyncio.sleep(0.05)
    # uvloop counts in milliseconds.
    slept = loop.time() - began >= 0.045
    found = [await piped, str(got).encode(), printed, await called, str(slept).encode()]
    loop.remove_reader(readable)
    readable.close()
    os.close(writer)
    ours.close()
    theirs.close()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b" ".join(found)})
"""


@pytest.mark.parametrize("loop", LOOPS)
def test_an_application_uses_the_loop_for_its_own_descriptors(
    supervise: Callable[..., Supervised], tmp_path: Path, loop: str
) -> None:
    (tmp_path / "app.py").write_text(DESCRIPTORS)
    server = supervise("--loop", loop, "--lifespan", "off")
    for _ in range(3):
        assert server.ask("/").body == b"pipe 2000000 child thread True"


def test_a_template_shows_what_the_loop_knows(serve: Callable[..., Milepost]) -> None:
    form = "{path} {loop} {steps} {busy} {longest} {blocked_by} {messages_in} {close_code}"
    server = serve(*ZOO, "--access-log-format", form)
    with server.connect() as client:
        assert client.ask("GET", "/context?who=me").status == 200
    assert server.stop() == 0
    seconds = r"[0-9]+\.[0-9]{6}"
    assert re.fullmatch(rf"/context {seconds} 2 {seconds} {seconds} - - -", server.lines[0]), server.lines


SHUTDOWNS = """
import asyncio
from pathlib import Path


async def close(name):
    if name == "stuck":
        await asyncio.Event().wait()  # stuck
    Path(f"{name}.txt").write_text("ended")


def make(name):
    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await close(name)
            await send({"type": "lifespan.shutdown.complete"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": name.encode()})

    return app


first, stuck, last = make("first"), make("stuck"), make("last")
"""


@pytest.mark.parametrize("loop", LOOPS)
def test_a_lifespan_that_never_ends_keeps_no_other_one_from_its_shutdown(
    serve, tmp_path: Path, loop: str
) -> None:
    (tmp_path / "shutdowns.py").write_text(SHUTDOWNS)
    routes = [{"app": f"shutdowns:{name}", "path": f"/{name}"} for name in ("stuck", "last")]
    toml = "".join(tables("route", route) for route in routes)
    server = serve("shutdowns:first", "--drain-timeout", "1s", "--loop", loop, toml=toml)
    with server.connect() as client:
        assert client.ask("GET", "/stuck").body == b"stuck"
    assert server.stop() == 0
    assert [(tmp_path / f"{name}.txt").exists() for name in ("first", "stuck", "last")] == [True, False, True]
    # One line, which has the place.
    assert server.errors.count("the shutdown of ") == 1
    place = f"in {tmp_path}/shutdowns.py:8 (close)"
    said = f"the shutdown of `shutdowns:stuck` took longer than `drain_timeout` allows, {place}"
    assert said in server.errors
    assert "Traceback" not in server.errors


BREAKS = """
import os


def polls():
    names = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd.isdigit()
             and os.path.islink(f"/proc/self/fd/{fd}")}
    return [int(fd) for fd, name in names.items() if "eventpoll" in name]


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        # The server's own threads have theirs later.
        app.polls = polls()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        return
    if scope["path"] == "/break":
        for fd in app.polls:
            os.close(fd)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"%d" % os.getpid()})
"""


@pytest.mark.parametrize("loop", LOOPS)
def test_a_process_whose_loop_has_lost_its_descriptor_is_replaced(
    supervise: Callable[..., Supervised], tmp_path: Path, loop: str
) -> None:
    (tmp_path / "breaks.py").write_text(BREAKS)
    server = supervise("--app-dir", str(tmp_path), "--loop", loop, app="breaks:app")
    (old,) = server.pids()
    with server.connect() as client:
        client.send(request("GET", "/break"))
        assert until(lambda: server.pids() and old not in server.pids())
    # uvloop aborts its process, with the line of the request.
    if loop == "asyncio":
        server.count()
        assert server.errors.count("the event loop cannot wait for descriptors: ") == 1
    assert until(lambda: pid_of(server) not in (None, old))


def pid_of(server: Supervised) -> int | None:
    try:
        with server.connect() as client:
            return int(client.ask().body)
    except OSError:
        return None
