"""A process that runs out of file descriptors: clients are told, nothing spins, and it recovers."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from serving import DEADLINE_S, Milepost

APP = """
import os
import resource

resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
held = []


def app(environ, start_response):
    if environ["PATH_INFO"] == "/hog":
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
    if environ["PATH_INFO"] == "/free":
        while held:
            os.close(held.pop())
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""


def test_clients_are_refused_while_there_are_none_and_served_afterwards(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    (tmp_path / "hog.py").write_text(APP)
    server = serve("hog:app", "--threads", "1:1")
    with server.connect() as client:
        assert client.ask("GET", "/hog").status == 200
        for _ in range(3):
            with socket.create_connection(server.address, timeout=DEADLINE_S) as refused:
                assert refused.recv(4096).startswith(b"HTTP/1.1 503 ")
        assert client.ask("GET", "/free").status == 200
        with server.connect() as late:
            assert late.ask("GET", "/").status == 200
    assert server.stop() == 0
    told = [line for line in server.stderr if "out of file descriptors" in line]
    assert len(told) == 3
