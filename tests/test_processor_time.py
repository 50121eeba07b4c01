"""How much of a run was processor time of its thread: in the log, on the status page, in the report, and
while it runs.

The application computes until its thread's own clock says that it has used so much, so nothing depends on
what else the machine does. A sleeping one is only asked for how little it used.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from serving import COMMAND, DEADLINE_S, Milepost, environment

APP = """
import time

USED_S = 0.1

def compute(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

def stream(start_response):
    start_response("200 OK", [])
    for _ in range(4):
        compute(USED_S / 4)
        yield b"part"

def app(environ, start_response):
    path = environ["PATH_INFO"]
    phases = environ["milepost.phases"]
    before = phases.cpu()
    if path == "/computes":
        compute(USED_S)
    elif path == "/sleeps":
        time.sleep(USED_S)
    elif path == "/streams":
        return stream(start_response)
    body = repr(phases.cpu() - before).encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
"""
USED_S = 0.1
PATHS = ("/computes", "/sleeps", "/streams", "/computes", "/sleeps")


@pytest.fixture
def server(serve: Callable[..., Milepost], tmp_path: Path, request: pytest.FixtureRequest) -> Milepost:
    (tmp_path / "cpu_app.py").write_text(APP)
    # One thread runs them all: what one has used is not the next one's.
    options = ("--threads", "1:1", "--status-path", "/-/status")
    return serve("cpu_app:app", *options, "--access-log-format", request.param)


def report(*files: Path) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    argv = [str(COMMAND), "report", "--json", *map(str, files)]
    done = subprocess.run(
        argv, env=environment(), capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    found: dict[str, dict[str, dict[str, dict[str, float]]]] = json.loads(done.stdout)
    return found


def spans_of(line: str) -> dict[str, float] | None:
    """Of a line of the log; `None` when it is not the application's."""
    if line.startswith("{"):
        record = json.loads(line)
        return record if record["route"] == "app" else None
    text = dict(re.findall(r" (\w+)=(\S+)", line))
    return {name: float(text[name]) for name in ("run", "cpu")} if text["route"] == "app" else None


@pytest.mark.parametrize(
    "server", ["phases", "json", "{route} route={route} run={run} cpu={cpu}"], indirect=True
)
def test_processor_time_is_that_of_the_run(server: Milepost, tmp_path: Path) -> None:
    with server.connect() as client:
        for path in PATHS:
            reply = client.ask("GET", path)
            if path == "/computes":
                assert float(reply.text) >= USED_S
            elif path == "/sleeps":
                assert 0 <= float(reply.text) < USED_S / 5
        (app,) = [
            route
            for route in json.loads(client.ask("GET", "/-/status").body)["routes"]
            if route["route"] == "app"
        ]
    assert server.stop() == 0
    # A driver answers by itself, and has no processor time of an application.
    assert not any("/-/status" in line and " cpu=" in line for line in server.lines)
    found = [spans for line in server.lines if (spans := spans_of(line))]
    assert len(found) == len(PATHS)
    for path, spans in zip(PATHS, found):
        if path == "/sleeps":
            assert 0 < spans["cpu"] < USED_S / 5 < spans["run"], (path, spans)
        else:
            assert USED_S <= spans["cpu"] <= spans["run"], (path, spans)
    assert app["seconds"]["cpu"]["count"] == len(PATHS)
    assert USED_S <= app["seconds"]["cpu"]["max"] <= app["seconds"]["run"]["max"]


@pytest.mark.parametrize("server", ["phases", "json"], indirect=True)
def test_the_report_reads_it_and_lines_without_it(server: Milepost, tmp_path: Path) -> None:
    with server.connect() as client:
        for path in PATHS:
            assert client.ask("GET", path).status == 200
    assert server.stop() == 0
    assert server.log is not None
    found = report(server.log)["all"]["seconds"]
    assert (found["cpu"]["count"], found["run"]["count"]) == (len(PATHS), len(PATHS))
    assert USED_S <= found["cpu"]["max"] <= found["run"]["max"]
    # As an older version would have written them.
    older = tmp_path / "older.log"
    older.write_text(re.sub(r' cpu=\S+|"cpu":[0-9.]+,', "", server.log.read_text()))
    assert "cpu" not in older.read_text().replace("cpu_app", "")
    found = report(older)["all"]["seconds"]
    assert (found["cpu"], found["run"]["count"]) == (None, len(PATHS))
    found = report(server.log, older)["all"]["seconds"]
    assert (found["cpu"]["count"], found["run"]["count"]) == (len(PATHS), 2 * len(PATHS))
