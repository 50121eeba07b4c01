"""Requests that take long: their stack in the error log, 504 at `request_timeout`, and what becomes of
the threads that run them."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raw import CutShort, request
from serving import Milepost, until

APP = """
import ctypes, os, threading, time

caught = []

def plain(start_response, text):
    body = text.encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]

def spin_for_ever():
    while True:
        pass

def wait_for_file(name):
    while not os.path.exists(name):
        time.sleep(0.01)

def stream(start_response):
    start_response("200 OK", [])
    yield b"first"
    while True:
        time.sleep(0.01)

class Lingering:
    # Goes on after its last piece.
    def __init__(self, start_response, body):
        start_response("200 OK", [("Content-Length", str(len(body)))])
        self.body = body

    def __iter__(self):
        return iter([self.body])

    def close(self):
        wait_for_file("go")

def endless(start_response):
    start_response("200 OK", [])
    while True:
        yield b"x" * 65536

def app(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/slow":
        wait_for_file("go")
    elif path == "/spin":
        try:
            spin_for_ever()
        except Exception:
            caught.append("Exception")
        except BaseException as error:
            caught.append(type(error).__name__)
            raise
    elif path == "/deaf":
        # A call into C that nothing interrupts; it lets go of the interpreter.
        while True:
            ctypes.CDLL(None).sleep(3600)
    elif path == "/hold":
        # The same, holding the interpreter.
        ctypes.PyDLL(None).usleep(4_000_000)
    elif path == "/stream":
        return stream(start_response)
    elif path == "/lingers":
        return Lingering(start_response, b"x" * int(environ["QUERY_STRING"]))
    elif path == "/endless":
        return endless(start_response)
    elif path == "/caught":
        return plain(start_response, ",".join(caught))
    return plain(start_response, str(threading.get_native_id()))
"""


@pytest.fixture
def start(tmp_path: Path, serve: Callable[..., Milepost]) -> Callable[..., Milepost]:
    """Serves the application above from the test's folder."""
    (tmp_path / "app.py").write_text(APP)

    def begin(*arguments: str, **options: object) -> Milepost:
        own = ("--access-log-format", "json", "--log-flush", "10ms", "--drain-timeout", "5s")
        return serve("app:app", *own, *arguments, **options)

    return begin


def records(server: Milepost, path: str, count: int = 1) -> list[dict[str, object]]:
    """The access records of a path, once there are so many."""

    def found() -> list[dict[str, object]]:
        return [one for one in map(json.loads, server.lines) if one.get("target", one.get("path")) == path]

    assert until(lambda: len(found()) >= count), server.lines
    return found()


def told(server: Milepost, pattern: str, count: int = 1) -> bool:
    """Whether the error log says that, so often, in time."""
    return until(lambda: len(re.findall(pattern, server.errors)) >= count)


def test_a_slow_request_is_told_once_with_its_stack(tmp_path: Path, start: Callable[..., Milepost]) -> None:
    # The quick ones are not to be slow because the machine is.
    server = start("--slow-request", "2s", "--threads", "2:2")
    with server.connect() as client:
        client.send(request("GET", "/slow?secret=1"))
        assert told(server, "in wait_for_file"), server.errors
        with server.connect() as quick:
            for _ in range(20):
                assert quick.ask("GET", "/").status == 200
        (tmp_path / "go").touch()
        assert client.reply().status == 200
    assert server.stop() == 0
    told_of = [line for line in server.errors.splitlines() if ": slow: " in line]
    assert len(told_of) == 1, server.errors
    said = re.search(
        r"GET /slow \[id \w+\]: slow: running for (\d+\.\d+) s \(receive .*, queue .*, cpu (.*) s\) "
        r"on worker \d+\.\d+ \(mp-default-\d+\);",
        told_of[0],
    )
    # It only waits, looking now and then.
    assert said and float(said[2]) < float(said[1]) / 5, told_of
    assert "secret" not in server.errors
    assert server.errors.index("in app") < server.errors.index("in wait_for_file")


def threads(pid: int) -> set[str]:
    """The names of the threads of the process."""
    return {(task / "comm").read_text().strip() for task in Path(f"/proc/{pid}/task").iterdir()}


def wakeups(pid: int, name: str) -> int:
    """How often that thread of the process has gone to sleep."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            found = re.search(
                r"^voluntary_ctxt_switches:\s*(\d+)", (task / "status").read_text(), re.MULTILINE
            )
            assert found
            return int(found[1])
    raise AssertionError(f"no thread {name}")


def test_nobody_watches_while_nothing_runs(tmp_path: Path, start: Callable[..., Milepost]) -> None:
    """The controller, which looks at idle pools once a second, is the clock."""
    server = start("--slow-request", "5ms", "--threads", "2:2")
    with server.connect() as client:
        thread = client.ask("GET", "/").text
    found = re.search(r"^Tgid:\s*(\d+)", Path(f"/proc/{thread}/status").read_text(), re.MULTILINE)
    assert found
    pid = int(found[1])
    # A thread gives itself its name: one that has not run yet has none.
    assert until(lambda: {"mp-watchdog", "mp-controller"} <= threads(pid))
    for _ in range(2):
        watched, looked = wakeups(pid, "mp-watchdog"), wakeups(pid, "mp-controller")
        assert until(lambda looked=looked: wakeups(pid, "mp-controller") >= looked + 3)
    assert wakeups(pid, "mp-watchdog") - watched <= 1
    # Whoever begins then is seen.
    with server.connect() as client:
        client.send(request("GET", "/slow"))
        assert told(server, "in wait_for_file"), server.errors
        (tmp_path / "go").touch()
        assert client.reply().status == 200


def test_a_loop_is_answered_with_504_and_interrupted(start: Callable[..., Milepost]) -> None:
    server = start("--request-timeout", "2s", "--threads", "1:1")
    with server.connect() as client:
        reply = client.ask("GET", "/spin")
        assert (reply.status, reply.closes) == (504, True)
    # The only thread is back, and goes on with the next.
    with server.connect() as client:
        assert client.ask("GET", "/caught").text == "RequestTimeout"
        thread = client.ask("GET", "/").text
        assert {client.ask("GET", "/").text for _ in range(5)} == {thread}
    (record,) = records(server, "/spin")
    assert record["status"] == 504
    assert record["cause"] == "the application took longer than request_timeout"
    assert server.stop() == 0
    assert (
        len(re.findall(r"the application took longer than request_timeout: running for", server.errors)) == 1
    )
    assert "in spin_for_ever" in server.errors
    assert "Traceback" not in server.errors


def test_what_waits_for_a_thread_has_all_its_time_before_it(
    start: Callable[..., Milepost],
) -> None:
    server = start("--request-timeout", "2s", "--threads", "1:1", "--overload-timeout", "20s")
    with server.connect() as first, server.connect() as second:
        first.send(request("GET", "/spin"))
        second.send(request("GET", "/"))
        assert first.reply().status == 504
        assert second.reply().status == 200


def test_a_reply_that_has_begun_is_cut(start: Callable[..., Milepost]) -> None:
    server = start("--request-timeout", "1500ms", "--threads", "2:2")
    for path in ["/stream", "/endless"]:
        with server.connect() as client:
            client.send(request("GET", path))
            with pytest.raises((CutShort, ConnectionError)):
                client.reply()
        server.count()
        (record,) = records(server, path)
        assert (record["status"], record["end"]) == (200, "timeout"), record
        assert record["cause"] == "the application took longer than request_timeout"
    with server.connect() as client:
        assert client.ask("GET", "/").status == 200


@pytest.mark.parametrize("size", [10, 8_000_000])
def test_a_reply_that_is_out_by_the_deadline_is_not_cut(
    tmp_path: Path, start: Callable[..., Milepost], size: int
) -> None:
    server = start("--request-timeout", "1500ms", "--threads", "1:1")
    with server.connect() as client:
        assert len(client.ask("GET", f"/lingers?{size}").body) == size
    time.sleep(2)
    (tmp_path / "go").touch()
    (record,) = (one for one in map(json.loads, server.lines) if one["target"].startswith("/lingers"))
    assert (record["status"], record["bytes"], record["end"]) == (200, size, "complete")


def test_a_thread_that_does_not_come_back_is_replaced(start: Callable[..., Milepost]) -> None:
    server = start("--request-timeout", "1500ms", "--threads", "4:4")
    with server.connect() as client:
        assert client.ask("GET", "/deaf").status == 504
    assert told(server, r"did not come back within 5 s .* is given up"), server.errors
    pid = server.serving_pid
    with server.connect() as client:
        seen = {client.ask("GET", "/").text for _ in range(5)}
    assert seen and server.serving_pid == pid
    # What was given up is not waited for at the end; the stop itself is checked by the fixture.
    assert "another thread takes its place" in server.errors


def test_a_process_with_too_few_threads_left_is_replaced(start: Callable[..., Milepost]) -> None:
    server = start("--request-timeout", "1500ms", "--threads", "1:1")
    before = server.serving_pid
    with server.connect() as client:
        assert client.ask("GET", "/deaf").status == 504
    assert told(server, "is replaced with 1 threads that did not come back"), server.errors

    def another() -> bool:
        try:
            return server.serving_pid != before
        except ValueError:
            # Both are there.
            return False

    assert until(another), server.errors
    with server.connect() as client:
        assert client.ask("GET", "/").status == 200


def test_an_interpreter_that_somebody_holds_is_told(start: Callable[..., Milepost]) -> None:
    server = start("--slow-request", "200ms", "--threads", "2:2")
    with server.connect() as client:
        assert client.ask("GET", "/hold").status == 200
        is_free = "free-threaded" in server.errors
    held = r"slow: .* somebody held the interpreter for longer than a second; its thread \d+ is \w"
    assert is_free or told(server, held), server.errors


def test_only_so_many_names_of_things_downstream_are_kept() -> None:
    import milepost

    assert not issubclass(milepost.RequestTimeout, Exception)
    milepost.downstream("database", 1, 5)
    with pytest.raises(ValueError, match="1 to 256 bytes"):
        milepost.downstream("", 1, 5)
    with pytest.raises(OverflowError):
        milepost.downstream("database", -1, 5)
    milepost.downstream("database", 0, 0)


def test_threads_that_are_let_go_finish_what_they_have(start: Callable[..., Milepost]) -> None:
    """Many requests around the deadline, each answered once: by the application or with 504."""
    server = start("--request-timeout", "1500ms", "--threads", "8:8")
    statuses: list[int] = []

    def visit() -> None:
        for path in ["/", "/spin", "/"]:
            with server.connect() as client:
                statuses.append(client.ask("GET", path).status)

    visitors = [threading.Thread(target=visit) for _ in range(8)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    assert sorted(set(statuses)) == [200, 504]
    assert statuses.count(504) >= 8
