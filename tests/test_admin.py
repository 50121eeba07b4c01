"""The admin listener: metrics and the state of all processes over HTTP, beside what clients have counted."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from raw import request
from serving import COMMAND, Milepost, free_port, until

APP = """
def app(environ, start_response):
    status = environ["QUERY_STRING"] or "200"
    if environ["PATH_INFO"] == "/gate":
        with open(environ["QUERY_STRING"]) as gate:
            gate.read()
        status = "200"
    start_response(status + " x", [("Content-Type", "text/plain")])
    return [b"done"]
"""
#: An exemplar may follow.
SAMPLE = re.compile(r"^(?P<name>[a-z_0-9]+)(?:\{(?P<labels>[^#]*)\})? (?P<value>[0-9.e+-]+)(?: # \{.*)?$")
OPEN = "application/openmetrics-text;version=1.0.0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@pytest.fixture
def port() -> int:
    return free_port()


def ask(port: int, path: str, **fields: str) -> tuple[int, str]:
    """Status and body."""
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=named)
    try:
        with urllib.request.urlopen(asked, timeout=20) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def answers(port: int) -> bool:
    try:
        return ask(port, "/health")[0] == 200
    except OSError:
        return False


def samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        found = SAMPLE.match(line)
        assert found, line
        labels = dict(re.findall(r'([a-z_]+)="([^"]*)"', found["labels"] or ""))
        yield found["name"], labels, float(found["value"])


def value(port: int, name: str, **wanted: str) -> float:
    """The sum of the samples with these labels, as of now: answers may be a quarter of a second old."""
    status, text = ask(port, "/metrics", Accept=OPEN)
    assert status == 200
    found = [
        number
        for known, labels, number in samples(text)
        if known == name and wanted.items() <= labels.items()
    ]
    assert found, f"{name} {wanted}\n{text}"
    return sum(found)


def test_metrics_are_what_clients_have_counted_over_reloads_and_kills(
    serve: Callable[..., Milepost], folder: Path, port: int
) -> None:
    server = serve("app:app", "--processes", "2", "--admin-bind", f"127.0.0.1:{port}")
    assert until(lambda: answers(port))

    def load(count: int, status: str) -> None:
        for _ in range(count):
            with server.connect() as client:
                assert client.ask("GET", f"/?{status}").status == int(status)

    load(20, "200")
    load(5, "500")
    assert until(lambda: value(port, "milepost_requests_total", route="app") == 25)
    server.signal(signal.SIGHUP)

    def processes() -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = json.loads(ask(port, "/status")[1])["processes"]
        return told

    # The number of the configuration changes before its processes are ready.
    assert until(lambda: [(one["generation"], one["state"]) for one in processes()] == [(2, "ready")] * 2)
    load(10, "404")
    assert until(lambda: value(port, "milepost_requests_total", route="app") == 35)
    # What has not been written yet is lost with a process that is killed.
    assert until(lambda: len(server.lines) == 35)
    os.kill(processes()[0]["pid"], signal.SIGKILL)
    assert until(lambda: value(port, "milepost_process_restarts_total", reason="crash") == 1)
    assert until(lambda: value(port, "milepost_processes", state="ready") == 2)
    load(7, "200")
    for code, count in (("2xx", 27), ("4xx", 10), ("5xx", 5)):
        assert until(
            lambda c=code, n=count: value(port, "milepost_requests_total", route="app", code=c) == n
        ), code
    assert value(port, "http_server_request_duration_seconds_count", http_route="app") == 42
    assert value(port, "http_server_request_duration_seconds_bucket", http_route="app", le="+Inf") == 42
    assert value(port, "milepost_request_phase_seconds_count", route="app", phase="queue") == 42
    assert value(port, "milepost_requests_received_total") == 42
    assert value(port, "milepost_pool_requests_completed_total", pool="default") == 42


def test_a_full_pool_shows_while_it_is_full(serve: Callable[..., Milepost], folder: Path, port: int) -> None:
    server = serve("app:app", "--threads", "1", "--admin-bind", f"127.0.0.1:{port}")
    assert until(lambda: answers(port))
    gate = folder / "gate"
    os.mkfifo(gate)
    clients = [server.connect() for _ in range(3)]
    clients[0].send(request("GET", f"/gate?{gate}"))
    # Opening waits until the application has opened the other end.
    held = os.open(gate, os.O_WRONLY)
    for client in clients[1:]:
        client.send(request("GET", "/"))

    def load() -> dict[str, float]:
        status, text = ask(port, "/load")
        assert status == 200
        return json.loads(text)

    assert until(lambda: load()["work"] == 3)
    now = load()
    demand = now.pop("demand")
    assert now.pop("utilization") == demand
    assert now == {"work": 3, "running": 1, "waiting": 2, "capacity": 1}
    # One runs and two wait without an end: in the mean of the last seconds that is what there is to do.
    assert until(lambda: load()["demand"] == value(port, "milepost_utilization_ratio") == 3, 20)
    assert value(port, "milepost_pool_waiting", pool="default") == 2
    assert ask(port, "/ready") == (200, "ready\n")
    os.close(held)
    for client in clients:
        with client:
            assert client.reply().status == 200
    assert until(lambda: load()["work"] == 0)


def test_an_event_loop_can_do_as_much_as_it_takes(
    serve: Callable[..., Milepost], folder: Path, port: int
) -> None:
    (folder / "loop.py").write_text(
        "async def app(scope, receive, send):\n"
        "    assert scope['type'] == 'http'\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n"
        "    await send({'type': 'http.response.body', 'body': b'done'})\n"
    )
    options = ("--lifespan", "off", "--asgi-concurrency", "30", "--processes", "2")
    server = serve("loop:app", *options, "--admin-bind", f"127.0.0.1:{port}")
    assert until(lambda: answers(port))
    with server.connect() as client:
        assert client.ask("GET", "/").status == 200
    assert until(lambda: json.loads(ask(port, "/load")[1])["capacity"] == 60)


def test_a_server_of_files_has_no_work_to_report(
    serve: Callable[..., Milepost], folder: Path, port: int
) -> None:
    serve("--static", f"/={folder}", "--admin-bind", f"127.0.0.1:{port}")
    assert until(lambda: answers(port))
    load = {"utilization": 0.0, "demand": 0.0, "work": 0, "running": 0, "waiting": 0, "capacity": 0}
    assert json.loads(ask(port, "/load")[1]) == load
    assert ask(port, "/metrics")[0] == 200


def test_a_file_of_the_token_that_is_not_there_is_told_at_the_start(folder: Path) -> None:
    argv = [str(COMMAND), "check", "--static", f"/={folder}", "--admin-bind", "127.0.0.1:9901"]
    missing = subprocess.run(
        [*argv, "--admin-token-file", str(folder / "none")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert missing.returncode != 0
    assert "none` cannot be read" in missing.stderr


def test_the_status_is_that_of_the_command(serve: Callable[..., Milepost], folder: Path, port: int) -> None:
    server = serve("app:app", "--admin-bind", f"127.0.0.1:{port}")
    assert until(lambda: answers(port))
    status = json.loads(ask(port, "/status")[1])
    assert (status["pid"], status["doing"]) == (server.pid, "serving")
    assert status["processes"][0]["pools"][0]["name"] == "default"


def test_the_address_is_refused_without_a_token_where_others_reach_it() -> None:
    def check(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [str(COMMAND), "check", "--proxy", "http://127.0.0.1:1", *arguments]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)

    refused = check("--admin-bind", "0.0.0.0:9901")
    assert refused.returncode != 0
    assert "other hosts can reach `0.0.0.0:9901`" in refused.stderr + refused.stdout
    assert "admin_token_file" in refused.stderr + refused.stdout
    for wrong in ("9901", "localhost:9901", ":9901"):
        assert "127.0.0.1:9901" in check("--admin-bind", wrong).stderr, wrong


def test_a_token_opens_what_has_one(serve: Callable[..., Milepost], folder: Path, port: int) -> None:
    token = folder / "token"
    token.write_text("0123456789abcdef\n")
    server = serve("app:app", "--admin-bind", f"0.0.0.0:{port}", "--admin-token-file", str(token))
    assert until(lambda: answers(port))
    for path in ("/metrics", "/status", "/load", "/", "/nothing"):
        assert ask(port, path)[0] == 401, path
        assert ask(port, path, Authorization="Bearer 0123456789abcdeF")[0] == 401, path
    for path in ("/metrics", "/status", "/load", "/"):
        assert ask(port, path, Authorization="Bearer 0123456789abcdef")[0] == 200, path
    assert ask(port, "/ready")[0] == 200
    token.write_text("fedcba9876543210")
    assert ask(port, "/load", Authorization="Bearer 0123456789abcdef")[0] == 401
    assert ask(port, "/load", Authorization="Bearer fedcba9876543210")[0] == 200
    token.write_text("")
    assert ask(port, "/load", Authorization="Bearer ")[0] == 500
    assert until(lambda: "admin_token_file" in server.errors)


def test_a_page_of_somebody_else_cannot_ask(serve: Callable[..., Milepost], folder: Path, port: int) -> None:
    serve("app:app", "--admin-bind", f"127.0.0.1:{port}")
    assert until(lambda: answers(port))
    assert ask(port, "/metrics", Host="attacker.example")[0] == 403
    assert ask(port, "/metrics", Host="localhost")[0] == 200
    with closing(HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("POST", "/metrics")
        reply = connection.getresponse()
        assert (reply.status, reply.getheader("Allow")) == (405, "GET, HEAD")


def test_a_unix_socket_is_for_root_and_the_servers_user(serve: Callable[..., Milepost], folder: Path) -> None:
    path = folder / "admin.sock"
    serve("app:app", "--admin-bind", f"unix:{path}")

    def asked() -> bytes:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /load HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return b"".join(iter(lambda: client.recv(65536), b""))

    assert until(lambda: path.exists() and stat.S_ISSOCK(path.stat().st_mode))
    assert asked().startswith(b"HTTP/1.1 200")
    if os.getuid() == 0 and shutil.which("setpriv") and shutil.which("curl"):
        folder.chmod(0o755)
        other = [
            "setpriv",
            "--reuid=65534",
            "--clear-groups",
            "curl",
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
        ]
        said = subprocess.run(
            [*other, "--unix-socket", str(path), "http://x/load"], capture_output=True, text=True, check=False
        )
        # The folders above may not let it come so far.
        assert said.stdout in ("403", "000")


def test_the_file_of_a_unix_socket_goes_with_a_reload_and_a_stop(
    serve: Callable[..., Milepost], folder: Path
) -> None:
    toml, paths = folder / "admin.toml", [folder / "a.sock", folder / "b.sock"]

    def config(path: Path) -> str:
        toml.write_text(f'app = "app:app"\nadmin_bind = "unix:{path}"\n')
        return f"--config={toml}"

    server = serve(config(paths[0]))
    assert until(paths[0].exists)
    config(paths[1])
    server.signal(signal.SIGHUP)
    assert until(paths[1].exists)
    assert until(lambda: not paths[0].exists())
    assert server.stop() == 0
    assert not paths[1].exists()


def test_clients_that_never_read_hold_nobody(serve: Callable[..., Milepost], folder: Path, port: int) -> None:
    server = serve("app:app", "--admin-bind", f"127.0.0.1:{port}")
    assert until(lambda: answers(port))
    silent = []
    for _ in range(20):
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 200)
        silent.append(client)
    assert ask(port, "/load")[0] == 200
    with server.connect() as client:
        assert client.ask("GET", "/").status == 200
    for client in silent:
        client.close()


def test_an_address_that_is_taken_is_told_and_tried_again(
    serve: Callable[..., Milepost], folder: Path, port: int
) -> None:
    with socket.create_server(("127.0.0.1", port)):
        server = serve("app:app", "--admin-bind", f"127.0.0.1:{port}")
        told = f"admin_bind `127.0.0.1:{port}`: Address already in use"
        assert until(lambda: told in server.errors)
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
        seen: set[str] = set()

        def has_tried_again() -> bool:
            seen.update(children.read_text().split())
            return len(seen) >= 5

        # One process serves, and several have tried to listen.
        assert until(has_tried_again)
        assert server.errors.count(told) == 1
        assert server.errors.count("it is started again") == 1
        with server.connect() as client:
            assert client.ask("GET", "/").status == 200
    assert until(lambda: answers(port))


def test_the_process_comes_again_and_a_reload_moves_it(
    serve: Callable[..., Milepost], folder: Path, port: int
) -> None:
    toml = folder / "admin.toml"
    toml.write_text(f'app = "app:app"\nadmin_bind = "127.0.0.1:{port}"\n')
    server = serve("--config", str(toml))
    assert until(lambda: answers(port))
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    [admin] = [pid for pid in children if listens(int(pid), port)]
    os.kill(int(admin), 9)
    assert until(lambda: "admin process" in server.errors)
    assert until(lambda: answers(port))
    other = free_port(port + 1)
    toml.write_text(f'app = "app:app"\nadmin_bind = "127.0.0.1:{other}"\n')
    server.signal(signal.SIGHUP)
    assert until(lambda: answers(other))
    assert until(lambda: not answers(port))


def listens(pid: int, port: int) -> bool:
    """Whether a process has the socket that listens on a port."""
    inodes = {
        line.split()[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
    }
    links = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()]
    return any(f"socket:[{inode}]" in links for inode in inodes)
