"""What `milepost report` and `milepost whatif` make of the log of an ASGI application on a real server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benching import bench
from raw import request
from serving import Milepost, run, tables

# `/sleep` waits and `/report` blocks the loop; the others stay open.
APP = """
import asyncio
import time


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        raise ValueError("no lifespan")
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (event := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": event["text"], "bytes": event["bytes"]})
        return
    path, headers = scope["path"], []
    if path == "/sleep":
        await asyncio.sleep(0.03)
    elif path == "/report":
        time.sleep(0.25)
    elif path == "/events":
        headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if path == "/events":
        await send({"type": "http.response.body", "body": b"data: 1\\n\\n", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
    await send({"type": "http.response.body", "body": b"ok"})
"""

BLOCKING = tables("request", {"target": "/sleep", "weight": 19}, {"target": "/report", "weight": 1})

#: A pool of threads beside the loop.
WSGI = (
    "import time\n"
    "def app(environ, start_response):\n"
    "    time.sleep(0.02)\n"
    "    start_response('200 OK', [('Content-Length', '2')])\n"
    "    return [b'ok']\n"
)


@pytest.fixture
def served(tmp_path: Path, serve: Callable[..., Milepost]) -> Callable[..., Milepost]:
    (tmp_path / "napper.py").write_text(APP)
    (tmp_path / "mix.toml").write_text(BLOCKING)
    return lambda *more, **options: serve("napper:app", *more, **options)


def load(folder: Path, server: Milepost, *more: str, path: str = "/", each: str = "40") -> int:
    """Requests by chance, so many a second; gives how many there were."""
    arrivals = ("--rate", each, "--arrivals", "poisson", "-c", "200")
    done = bench(folder, *arrivals, *more, f"{server.url.rstrip('/')}{path}")
    server.count(done.counts["answered"])
    return int(done.counts["answered"])


def chat(folder: Path, server: Milepost, messages_len: int) -> int:
    """Messages on three WebSocket connections; gives how many connections there were."""
    target = f"{server.url.rstrip('/')}/chat"
    done = bench(folder, "-n", str(messages_len), "--websocket", "-c", "3", target)
    assert done.counts["answered"] == messages_len
    server.count(done.counts["connections"])
    return int(done.counts["connections"])


def told(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = run(folder, *arguments)
    assert done.returncode == code, done
    return done


def answers(folder: Path, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told(folder, "whatif", *arguments, "--json").stdout)
    return found


def open_and_close(server: Milepost) -> None:
    """An event stream whose client leaves when it has an event."""
    client = server.connect()
    client.send(request("GET", "/events"))
    assert client.head()[0] == 200 and client.chunk() == b"data: 1\n\n"
    client.sock.close()
    server.count(1)


@pytest.mark.parametrize("form", [(), ("--access-log-format", "json")], ids=["default", "json"])
def test_a_report_names_what_blocks_the_loop_and_leaves_open_connections_apart(
    tmp_path: Path, served: Callable[..., Milepost], form: tuple[str, ...]
) -> None:
    server = served(*form)
    sent = load(tmp_path, server, "--duration", "6s", "--requests-file", str(tmp_path / "mix.toml"))
    connections = chat(tmp_path, server, 60)
    open_and_close(server)
    server.stop()

    found = json.loads(told(tmp_path, "report", str(server.log), "--json").stdout)
    requests = sum(page["counts"]["requests"] for page in found["pages"] if page["name"] != "-")
    assert requests == sent
    loops = found["event_loops"]
    assert loops["requests"] == sent
    (page,) = [page for page in loops["pages"] if page["blocked"]]
    assert page["name"] == "GET /report" and page["long_steps"] == page["requests"] >= 5
    assert 0.25 <= page["long_step"] <= page["longest"]
    # Each blocks those that come within a quarter of a second: ten, in the mean.
    assert page["blocked"] >= page["requests"]
    assert loops["loop_seconds"] <= loops["queue_seconds"]
    kinds = {one["name"]: one for one in loops["connections"]}
    assert (kinds["/chat"]["kind"], kinds["/events"]["kind"]) == ("WebSocket", "event stream")
    assert kinds["/chat"]["connections"] == sum(loops["close_codes"].values()) == connections
    assert kinds["/chat"]["messages_in"] == kinds["/chat"]["messages_out"] >= 60
    assert found["waiting"]["for_event_loop"] == found["waiting"]["requests"] > 0
    causes = {route["name"]: route["caused"] for route in found["waiting"]["routes"]}
    assert causes["GET /report"] > 0.8 * found["waiting"]["seconds"]

    text = told(tmp_path, "report", str(server.log), "--html", "report.html").stdout
    assert text.startswith("GET /report blocks the event loop for 2"), text
    assert "`await asyncio.to_thread(...)`" in text and "(blocked the loop)" in text
    assert "close codes of WebSockets: " in text and "event stream" in text
    assert "worker" not in text and "free thread" not in text
    assert "WebSockets and event streams" in (tmp_path / "report.html").read_text()


def test_whatif_repeats_the_log_of_a_loop_and_says_what_threads_would_do(
    tmp_path: Path, served: Callable[..., Milepost]
) -> None:
    server = served()
    sent = load(tmp_path, server, "--duration", "8s", "--requests-file", str(tmp_path / "mix.toml"))
    chat(tmp_path, server, 30)
    open_and_close(server)
    server.stop()

    # Neighbours of this test that compute lengthen what no log shows.
    log = (str(server.log), "--error-max", "60%,20ms")
    found = answers(tmp_path, *log)
    assert found["log"]["requests"] >= sent + 4
    assert found["log"]["event_loop"]["blocker"]["path"] == "/report"
    # How long a client keeps a connection is no part of these.
    assert found["log"]["total"]["max_ms"] < 60_000
    assert found["calibration"]["holds"], found["calibration"]
    assert found["verdict"]["to_thread"] == "/report"
    now, *_, moved = found["answers"]
    assert now["queue"]["p95_ms"] > 4 * moved["queue"]["p95_ms"]
    text = told(tmp_path, "whatif", *log).stdout
    assert "Now: an event loop, with up to 1000 requests inside. " in text
    assert "/report blocks the loop for 2" in text and "`await asyncio.to_thread(...)`" in text

    # The same by flags, and a pool of threads for it.
    (moved,) = answers(tmp_path, *log, "--to-thread", "/report")["answers"]
    assert now["queue"]["p95_ms"] > 4 * moved["queue"]["p95_ms"]
    (apart,) = answers(tmp_path, *log, "--pools", "slow=8 /report")["answers"]
    assert {pool["name"]: pool["concurrency"] is None for pool in apart["pools"]} == {
        "default": False,
        "slow": True,
    }
    assert now["queue"]["p95_ms"] > 4 * apart["pools"][0]["queue"]["p95_ms"]
    one, two = answers(tmp_path, *log, "--processes", "1,2")["answers"]
    assert two["queue"]["mean_ms"] < one["queue"]["mean_ms"]


@pytest.mark.parametrize(
    ("flags", "expect"),
    [
        (("--threads", "2,4"), "`--threads`: an event loop is one thread"),
        (("--threads-now", "2"), "`--threads-now`: an event loop is one thread"),
        (("--objective", "p99 queue < 1ms"), "`--objective`: looks for a number of threads"),
        (("--concurrency", "9:2"), "expected the smaller number first"),
        (("--to-thread", "report"), "expected a path as /report"),
    ],
)
def test_questions_that_make_no_sense_for_a_loop_are_refused(
    tmp_path: Path, loop_log: Path, flags: tuple[str, ...], expect: str
) -> None:
    done = told(tmp_path, "whatif", str(loop_log), "--force", *flags, code=2)
    assert done.stdout == "" and expect in done.stderr, done


def test_questions_about_loops_make_no_sense_without_one(tmp_path: Path) -> None:
    line = (
        '127.0.0.1 - - [21/Nov/2026:12:00:01 +0000] "GET / HTTP/1.1" 200 5 "-" "-" receive=0.000069 '
        "queue=0.000034 run=0.004072 send=0.000044 total=0.004219 id=a route=app pool=default waiting=0 "
        "threads=1 idle=1 worker=7.1 at=1795262401.482193\n"
    )
    (tmp_path / "a.log").write_text(line)
    for flags in (("--concurrency", "8"), ("--to-thread", "/")):
        done = told(tmp_path, "whatif", "a.log", *flags, code=2)
        assert f"`{flags[0]}`: no request of the log has run on an event loop" in done.stderr, done


@pytest.fixture(scope="module")
def loop_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 requests of a loop that runs one after another, written as the server does."""
    path = tmp_path_factory.mktemp("loop") / "loop.log"
    lines = []
    for number in range(300):
        at = 1795262401.0 + number / 10 + 0.000123
        date = f"21/Nov/2026:12:00:{1 + number // 10:02} +0000"
        lines.append(
            f'127.0.0.1 - - [{date}] "GET /a HTTP/1.1" 200 5 "-" "-" receive=0.000069 '
            f"queue=0.000100 run=0.010000 send=0.000044 total=0.010213 id=a{number} route=app pool=default "
            "waiting=0 threads=1 idle=1 loop=0.000020 steps=2 busy=0.001000 longest=0.000800 "
            f"worker=7.1 at={at:.6f}\n"
        )
    path.write_text("".join(lines))
    return path


def test_threads_and_a_loop_in_one_log_are_simulated_side_by_side(
    tmp_path: Path, served: Callable[..., Milepost]
) -> None:
    (tmp_path / "old.py").write_text(WSGI)
    both = tables("route", {"path": "/old", "app": "old:app"})
    mix = tables("request", {"target": "/sleep", "weight": 1}, {"target": "/old", "weight": 2})
    (tmp_path / "mix.toml").write_text(mix)
    server = served("--threads", "2", toml=both)
    load(tmp_path, server, "--duration", "6s", "--requests-file", str(tmp_path / "mix.toml"), each="60")
    server.stop()
    found = answers(tmp_path, str(server.log), "--threads", "1,2", "--error-max", "50%,50ms")
    pools = {pool["name"]: pool for pool in found["log"]["pools"]}
    assert sum(pool["event_loop"] for pool in pools.values()) == 1 and len(pools) == 2
    one, two = found["answers"]
    # Twice as many requests go to the threads, so that they are what varies.
    assert one["concurrency"] is None
    assert one["queue"]["mean_ms"] > two["queue"]["mean_ms"]
    assert sorted(pool["concurrency"] is None for pool in two["pools"]) == [False, True]


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("flags", "path", "other", "asked"),
    [
        (("--asgi-concurrency", "3"), "/sleep", ("--asgi-concurrency", "5"), ("--concurrency", "5")),
        ((), "mix", ("--processes", "2"), ("--processes", "2")),
    ],
    ids=["concurrency", "processes"],
)
def test_predicts_what_a_second_run_measures(
    tmp_path: Path,
    served: Callable[..., Milepost],
    flags: tuple[str, ...],
    path: str,
    other: tuple[str, ...],
    asked: tuple[str, ...],
) -> None:
    def measured(more: tuple[str, ...]) -> Path:
        server = served(*more, log=f"run-{len(list(tmp_path.glob('run-*')))}.log")
        if path == "mix":
            mix = ("--requests-file", str(tmp_path / "mix.toml"))
            load(tmp_path, server, "--duration", "30s", *mix, each="40")
        else:
            load(tmp_path, server, "--duration", "30s", path=path, each="85")
        server.stop()
        assert server.log
        return server.log

    # A machine that others use is another one from run to run: what a stall has made of one run, the log of
    # the other one cannot know.
    for _ in range(3):
        first, second = measured(flags), measured(other)
        repeated = answers(tmp_path, str(first), "--processes", "1", "--force")
        (present,) = repeated["answers"]
        (predicted,) = answers(tmp_path, str(first), *asked, "--force")["answers"]
        found = answers(tmp_path, str(second), "--force", *asked)["log"]["queue"]
        # Twice the bounds of the command itself: two runs by chance differ as well.
        off = {
            name: (predicted["queue"][name], found[name])
            for name in ("p50_ms", "p95_ms", "p99_ms")
            if abs(predicted["queue"][name] - found[name]) > max(10, 0.4 * found[name])
        }
        # It is another server that was asked about.
        is_other = found["p95_ms"] < 0.8 * present["queue"]["p95_ms"]
        if repeated["calibration"]["holds"] and is_other and not off:
            return
    raise AssertionError((off, found, repeated["calibration"]["errors"]))
