"""What scrapers read of requests, servers of upstreams and logs: numbers, and labels of bounded number."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from serving import Milepost, free_port, until
from supervising import Supervised, calling
from test_admin import OPEN, answers, ask, samples, value

DURATIONS = "http_server_request_duration_seconds_count"


def test_durations_have_the_labels_of_opentelemetry(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    port = free_port()
    server = serve("--static", f"/={tmp_path}", "--processes", "2", "--admin-bind", f"127.0.0.1:{port}")
    assert until(lambda: answers(port))
    for method, path, status in (
        ("GET", "/a.txt", 200),
        ("GET", "/a.txt", 200),
        ("GET", "/none", 404),
        ("POST", "/a.txt", 405),
        ("BREW", "/a.txt", 501),
    ):
        with server.connect() as client:
            assert client.ask(method, path).status == status

    def series() -> dict[tuple[str, str, str], float]:
        return {
            (
                labels["http_request_method"],
                labels["http_response_status_code"],
                labels["url_scheme"],
            ): number
            for name, labels, number in samples(ask(port, "/metrics", Accept=OPEN)[1])
            if name == DURATIONS and labels["http_route"] == "/"
        }

    expect = {
        ("GET", "200", "http"): 2,
        ("GET", "404", "http"): 1,
        ("POST", "405", "http"): 1,
        ("_OTHER", "501", "http"): 1,
    }
    assert until(lambda: series() == expect), series()


def test_clients_do_not_choose_how_many_series_there_are(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    port = free_port()
    (tmp_path / "a.txt").write_text("text")
    server = serve("--static", f"/={tmp_path}", "--admin-bind", f"127.0.0.1:{port}")
    assert until(lambda: answers(port))
    methods = [f"M{number}" for number in range(40)]
    for method in methods:
        with server.connect() as client:
            assert client.ask(method, "/a.txt").status == 501
    assert until(lambda: value(port, DURATIONS, http_route="/", http_request_method="_OTHER") == 40)
    text = ask(port, "/metrics", Accept=OPEN)[1]
    assert len([name for name, _, _ in samples(text) if name == DURATIONS]) == 1


def test_each_server_of_an_upstream_is_counted(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    """One of the two servers is not there: requests for it are tried at the other one."""
    (tmp_path / "a.txt").write_text("text")
    behind = serve("--static", f"/={tmp_path}", log=None)
    host, there = behind.address
    nobody = free_port()
    port = free_port()
    server = serve(
        "--proxy",
        f"/=http://{host}:{there},http://{host}:{nobody}",
        "--processes",
        "2",
        "--admin-bind",
        f"127.0.0.1:{port}",
    )
    assert until(lambda: answers(port))
    for _ in range(20):
        with server.connect() as client:
            assert client.ask("GET", "/a.txt").status == 200
    one, other = f"{host}:{there}", f"{host}:{nobody}"
    requests = "milepost_upstream_requests_total"
    assert until(lambda: value(port, requests, server=one, result="answered") == 20)
    failed = value(port, requests, server=other, result="connect")
    assert failed >= 1
    assert value(port, requests, server=other) == failed
    assert value(port, requests, server=one) == 20
    assert value(port, "milepost_upstream_retries_total", server=one) == failed
    opened = value(port, "milepost_upstream_connections_opened_total", server=one)
    assert opened >= 1
    assert opened + value(port, "milepost_upstream_connections_reused_total", server=one) == 20
    assert value(port, "milepost_upstream_connections_opened_total", server=other) == 0
    assert value(port, "milepost_upstream_connect_seconds_total", server=one) > 0
    assert value(port, "milepost_upstream_response_seconds_total", server=one) > 0
    assert value(port, "milepost_upstream_response_seconds_total", server=other) == 0
    assert value(port, "milepost_upstream_in_flight") == 0
    assert value(port, "milepost_upstream_limit", server=one) > 0
    # They go on over a reload.
    server.signal(signal.SIGHUP)
    assert until(lambda: value(port, "milepost_generation") == 2)
    assert until(lambda: value(port, "milepost_processes", state="draining") == 0)
    assert value(port, requests, server=one, result="answered") == 20


def test_writes_to_the_spool_folder_and_its_space_are_counted(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(
        "def app(environ, start_response):\n"
        "    size = str(len(environ['wsgi.input'].read()))\n"
        "    start_response('200 OK', [('Content-Length', str(len(size)))])\n"
        "    return [size.encode()]\n"
    )
    spool = tmp_path / "spool"
    spool.mkdir()
    port = free_port()
    admin = ("--admin-bind", f"127.0.0.1:{port}")
    server = serve("app:app", "--body-memory-max", "64k", "--spool-dir", str(spool), *admin)
    assert until(lambda: answers(port))
    space = os.statvfs(spool)
    size = space.f_blocks * space.f_frsize
    # The first look is taken at the start, by a thread that nothing waits for.
    assert until(lambda: value(port, "milepost_spool_size_bytes") == size)
    assert 0 < value(port, "milepost_spool_free_bytes") < size
    written = "milepost_spool_written_bytes_total"
    with server.connect() as client:
        assert client.ask("POST", "/", body=b"x" * 60_000).body == b"60000"
        assert value(port, written) == 0
        assert client.ask("POST", "/", body=b"x" * 300_000).body == b"300000"
        assert client.ask("POST", "/", body=b"x" * 200_000).body == b"200000"
        # An answer of the admin listener is up to a quarter of a second old.
        assert until(lambda: value(port, written) == 500_000)
        assert value(port, "milepost_spool_write_seconds_total") > 0
        slowest = value(port, "milepost_spool_slowest_write_seconds")
        assert 0 < slowest <= value(port, "milepost_spool_write_seconds_total")
        # Files cannot be made any more.
        spool.rmdir()
        assert client.ask("POST", "/", body=b"x" * 300_000).status == 500
    assert until(lambda: value(port, "milepost_spool_writes_failed_total") == 1)
    assert value(port, written) == 500_000
    assert value(port, "milepost_spool_waiting") == 0


def test_lines_that_a_log_has_lost_are_counted(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    """Nobody reads the pipe: what it and the memory of the log do not take is dropped."""
    (tmp_path / "a.txt").write_text("text")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    port = free_port()
    server = serve(
        "--static",
        f"/={tmp_path}",
        "--access-log",
        str(pipe),
        "--log-buffer",
        "64k",
        "--admin-bind",
        f"127.0.0.1:{port}",
        log=None,
    )
    assert until(lambda: answers(port))
    sent = 0
    path = "/" + "x" * 4000

    def has_dropped() -> bool:
        nonlocal sent
        with server.connect() as client:
            for _ in range(20):
                assert client.ask("GET", path).status == 404
                sent += 1
        return value(port, "milepost_log_dropped_total", log="access") > 0

    assert until(has_dropped)
    assert value(port, "milepost_log_writes_incomplete_total", log="access") >= 1
    assert value(port, "milepost_log_waiting_bytes", log="access") > 0
    slowest = value(port, "milepost_log_slowest_write_seconds", log="access")
    assert 0 < slowest <= value(port, "milepost_log_write_seconds_total", log="access")
    # Once the pipe is read, each line is either written or dropped.
    read = b""

    def all_told() -> bool:
        nonlocal read
        try:
            while piece := os.read(reader, 1 << 16):
                read += piece
        except BlockingIOError:
            pass
        return (
            value(port, "milepost_log_lines_total", log="access")
            + value(port, "milepost_log_dropped_total", log="access")
            == sent
        )

    assert until(all_told)
    os.close(reader)
    assert read.count(b"\n") == value(port, "milepost_log_lines_total", log="access")
    assert until(lambda: value(port, "milepost_log_waiting_bytes", log="access") == 0)


def proxy(
    serve: Callable[..., Milepost], supervise: Callable[..., Supervised], folder: Path, port: int
) -> tuple[Supervised, Path]:
    """Two processes in front of an application, and their access log."""
    behind = serve("app:app", log=None)
    host, there = behind.address
    log = folder / "access.log"
    server = supervise(
        *("--proxy", f"/=http://{host}:{there}", "--processes", "2"),
        *("--access-log", str(log), "--admin-bind", f"127.0.0.1:{port}"),
        app=None,
        log=None,
    )
    server.settled(2)
    assert until(lambda: answers(port))
    return server, log


ANSWERED = {"name": "milepost_upstream_requests_total", "result": "answered"}
LOGGED = {"name": "milepost_log_lines_total", "log": "access"}
#: Of each kind of connection; a request of each is under way at most.
CALLERS = 2


def test_counters_of_upstreams_and_logs_outlive_killed_processes(
    serve: Callable[..., Milepost], supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    port, kills = free_port(), 3
    server, log = proxy(serve, supervise, tmp_path, port)
    seen: list[tuple[float, float]] = []

    def look() -> None:
        seen.append((value(port, **ANSWERED), value(port, **LOGGED)))

    with calling(server, each=CALLERS) as callers:
        for _ in range(kills):
            before = callers.answered
            assert until(lambda before=before: callers.answered > before + 50)
            look()
            os.kill(min(server.pids()), signal.SIGKILL)
            look()
            server.settled(2)
            look()
    # What is under way when a process is killed is in no counter, or has no answer.
    in_flight = kills * 2 * CALLERS
    sent = callers.answered + len(callers.lost)
    assert callers.answered > kills * 50
    assert len(callers.lost) <= in_flight, callers.lost
    # An answer may be of a quarter of a second ago, when requests were still under way.
    assert until(lambda: abs(value(port, **ANSWERED) - callers.answered) <= in_flight), seen[-1]
    assert until(lambda: value(port, "milepost_log_waiting_bytes", log="access") == 0)
    assert until(lambda: abs(value(port, **LOGGED) - log.read_bytes().count(b"\n")) <= in_flight)
    look()
    assert seen[-1][0] <= sent
    # Neither of them ever falls.
    assert [sorted(column) for column in zip(*seen)] == [list(column) for column in zip(*seen)]


def test_counters_of_upstreams_and_logs_stay_over_reload_and_upgrade(
    serve: Callable[..., Milepost], supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    port = free_port()
    server, _ = proxy(serve, supervise, tmp_path, port)
    for _ in range(40):
        assert server.ask().status == 200

    def counters() -> dict[str, float]:
        """All that only grows, but for what the server says in its own log."""
        prefixes = ("milepost_upstream_", "milepost_log_", "milepost_request", "http_server_")
        return {
            f"{name} {sorted(labels.items())}": number
            for name, labels, number in samples(ask(port, "/metrics", Accept=OPEN)[1])
            if name.startswith(prefixes)
            and name.endswith(("_total", "_count", "_sum", "_bucket"))
            and labels.get("log") != "error"
        }

    assert until(lambda: value(port, **ANSWERED) == 40 and value(port, **LOGGED) == 40)
    # An answer may be a quarter of a second old: two that are the same are not of the same moment.
    assert until(lambda: value(port, "milepost_upstream_in_flight") == 0)
    before = counters()
    assert len(before) > 50
    for verb in ("reload", "upgrade", "upgrade", "reload"):
        old = server.pids()
        server.done(verb)
        assert until(lambda old=old: not old & server.settled(2))
        assert until(lambda: answers(port))
        assert until(lambda: counters() == before), {
            key: (number, before.get(key)) for key, number in counters().items() if before.get(key) != number
        }
    for _ in range(10):
        assert server.ask().status == 200
    assert until(lambda: value(port, **ANSWERED) == 50 and value(port, **LOGGED) == 50)
