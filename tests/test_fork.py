"""Forks in a handler: the process that took a request answers it, and a child holds up nobody.

A child that comes back to the server leaves; one that lives on has no connection, no listener and no
signal handler of the server.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raw import Client, CutShort, request
from serving import APPS, Milepost, until
from supervising import is_running

#: Bounds a stop that must not wait for a child; far below `drain_timeout`, far above what a stop takes.
PROMPTLY_S = 30


@pytest.fixture(scope="module")
def forking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Milepost]:
    """One server for the module. At its end there is exactly one line for each reply."""
    folder = tmp_path_factory.mktemp("forking")
    with Milepost(folder, "forking:app", "--app-dir", str(APPS), "--threads", "4:4") as server:
        yield server
        # What a child has no part in: neither Python's own shutdown nor the server's threads complain.
        assert "Exception ignored" not in server.errors
        assert "panicked" not in server.errors


@pytest.fixture
def start(serve: Callable[..., Milepost]) -> Callable[..., Milepost]:
    """A server of the test's own."""

    def started(*arguments: str) -> Milepost:
        return serve("forking:app", "--app-dir", str(APPS), *arguments)

    return started


@contextlib.contextmanager
def holder(server: Milepost, path: str = "/hold") -> Iterator[int]:
    """A child of the application that lives as long as the block."""
    with server.connect() as client:
        pid = int(client.ask("GET", path, "Connection: close").text)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)


def check_kept(client: Client, server: Milepost) -> None:
    """The connection carries the next request, and then nothing more."""
    assert client.ask("GET", "/hello").text == str(server.serving_pid)
    assert client.ask("GET", "/hello", "Connection: close").text == str(server.serving_pid)
    assert client.is_closed()


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("return", "0"),
        ("raise", "1"),
        ("exit&code=0", "0"),
        ("exit&code=7", "7"),
        ("words", "1"),
        ("os-exit", "9"),
        ("interrupted", "-2"),
    ],
)
@pytest.mark.parametrize("where", ["/call", "/part", "/close"])
def test_a_child_that_comes_back_leaves_and_the_parent_answers(
    forking: Milepost, where: str, how: str, code: str
) -> None:
    with forking.connect() as client:
        reply = client.ask("GET", f"{where}?how={how}")
        body = {"/call": code, "/part": f"first,{code}", "/close": "whole"}[where]
        assert (reply.status, reply.text) == (200, body)
        if where == "/close":
            assert client.ask("GET", "/last").text == code
        check_kept(client, forking)


def test_a_child_whose_generator_ends_leaves(forking: Milepost) -> None:
    with forking.connect() as client:
        assert client.ask("GET", "/part?how=end").text == "first,0"
        check_kept(client, forking)


def test_a_child_that_calls_write_gets_an_exception(forking: Milepost) -> None:
    with forking.connect() as client:
        assert client.ask("GET", "/writing").text == "1"
        check_kept(client, forking)
    assert until(lambda: "RuntimeError: this process was forked" in forking.errors)


def test_a_child_says_why_it_leaves(forking: Milepost) -> None:
    with forking.connect() as client:
        client.ask("GET", "/call?how=raise")
        assert until(lambda: "LookupError: raised in the child" in forking.errors)
        client.ask("GET", "/call?how=words")
        assert until(lambda: "said by the child" in forking.errors)


@pytest.mark.parametrize(("how", "expect"), [("atexit", "at exit"), ("thread", "a thread")])
def test_a_child_leaves_as_an_interpreter_does(
    forking: Milepost, tmp_path: Path, how: str, expect: str
) -> None:
    file = tmp_path / how
    file.touch()
    with forking.connect() as client:
        assert client.ask("GET", f"/call?how={how}&file={file}").text == "0"
    assert file.read_text() == expect


def test_a_child_of_a_preloaded_process_leaves(start: Callable[..., Milepost]) -> None:
    server = start("--preload")
    with server.connect() as client:
        assert client.ask("GET", "/call?how=return").text == "0"
        assert client.ask("GET", "/call?how=signals").text == "0"
        assert client.ask("GET", "/hello", "Connection: close").status == 200
        assert client.is_closed()


def test_a_child_has_the_signal_handlers_of_the_import(forking: Milepost) -> None:
    with forking.connect() as client:
        assert client.ask("GET", "/call?how=signals").text == "0"


def test_a_child_has_no_socket_of_the_server(forking: Milepost) -> None:
    others = [forking.connect() for _ in range(20)]
    for other in others:
        other.ask("GET", "/hello")
    with forking.connect() as client:
        assert client.ask("GET", "/call?how=descriptors").text == "0"
    for other in others:
        with other:
            check_kept(other, forking)


def test_a_child_on_a_unix_socket_has_no_connection(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    server = serve("forking:app", "--app-dir", str(APPS), bind=f"unix:{tmp_path}/socket")
    with server.connect() as client:
        client.ask("GET", "/hello")
        with holder(server):
            assert client.ask("GET", "/hello", "Connection: close").status == 200
            assert client.is_closed()


def test_a_client_sees_the_end_while_a_child_lives(forking: Milepost) -> None:
    """The connections are older than the child, which would have them all."""
    clients = [forking.connect() for _ in range(4)]
    for client in clients:
        client.ask("GET", "/hello")
    announced, unframed, cut, refused = clients
    with holder(forking):
        assert announced.ask("GET", "/hello", "Connection: close").status == 200
        assert announced.is_closed()
        unframed.send(request("GET", "/stream", version="HTTP/1.0"))
        reply = unframed.reply()
        assert (reply.framing, reply.text) == ("close", "part")
        cut.send(request("GET", "/stream?then=raise"))
        with pytest.raises(CutShort):
            cut.reply()
        forking.count()
        refused.send(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
        assert refused.reply().status == 400
        assert refused.is_closed()


def test_a_reset_stays_one_while_a_child_lives(forking: Milepost) -> None:
    """HTTP/1.0 has no other sign that a reply without a length is not whole."""
    with forking.connect() as client:
        client.send(request("GET", "/hello", "Connection: keep-alive", version="HTTP/1.0"))
        client.reply()
        with holder(forking):
            client.send(request("GET", "/stream?then=raise", version="HTTP/1.0"))
            client.head()
            with pytest.raises(ConnectionResetError):
                while client.sock.recv(1 << 16):
                    pass
            forking.count()


def test_an_idle_client_sees_the_end_while_a_child_lives(start: Callable[..., Milepost]) -> None:
    server = start("--idle-timeout", "1s")
    with server.connect() as client:
        client.ask("GET", "/hello")
        with holder(server):
            assert client.is_closed()


def test_the_client_of_the_request_that_forked_sees_the_end(forking: Milepost) -> None:
    with forking.connect() as client:
        pid = int(client.ask("GET", "/hold", "Connection: close").text)
        assert client.is_closed()
    os.kill(pid, signal.SIGKILL)


def test_a_process_ends_by_terminate_and_a_pool_too(forking: Milepost) -> None:
    with forking.connect() as client:
        for _ in range(5):
            # At once: no moment after the fork loses a signal.
            assert client.ask("GET", "/process").text == "-15"
        assert client.ask("GET", "/process?signal=kill").text == "-9"
        assert client.ask("GET", "/process?signal=none").text == "0"
        assert client.ask("GET", "/pool").text == "terminated"
        check_kept(client, forking)


def test_a_child_that_leaves_ends_no_sibling(forking: Milepost) -> None:
    """It has its parent's list of daemonic processes, which Python ends at an interpreter's end."""
    with holder(forking, "/kept-process?daemon=yes") as pid, forking.connect() as client:
        assert client.ask("GET", "/call?how=return").text == "0"
        assert client.ask("GET", "/call?how=raise").text == "1"
        assert is_running(pid)


def test_programs_start_as_ever(forking: Milepost) -> None:
    with forking.connect() as client:
        assert client.ask("GET", "/program").text == "plain\nprepared\n"
        check_kept(client, forking)


@pytest.mark.parametrize("path", ["/hold", "/kept-process"])
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_stop_waits_for_no_child_and_ends_none(
    start: Callable[..., Milepost], path: str, processes: str
) -> None:
    server = start("--drain-timeout", "120s", "--processes", processes)
    with holder(server, path) as pid:
        server.signal()
        try:
            assert server.process.wait(PROMPTLY_S) == 0
        except subprocess.TimeoutExpired:
            os.kill(pid, signal.SIGKILL)
            raise
        assert is_running(pid)
        # Nothing of it is left at the address either.
        with pytest.raises(ConnectionRefusedError):
            server.connect()
    assert server.wait() == 0
    assert "still running" not in server.errors


def test_a_stop_ends_daemonic_processes_as_python_does(start: Callable[..., Milepost]) -> None:
    server = start("--drain-timeout", "120s")
    with server.connect() as client:
        pid = int(client.ask("GET", "/kept-process?daemon=yes", "Connection: close").text)
    server.signal()
    assert server.process.wait(PROMPTLY_S) == 0
    assert until(lambda: not is_running(pid))
