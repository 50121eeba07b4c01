"""The page of the chat: a WSGI application, which runs on worker threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

PAGE = (Path(__file__).parent / "chat.html").read_bytes()


def app(environ: dict[str, object], start_response: Callable[..., object]) -> Iterable[bytes]:
    if environ["PATH_INFO"] != "/":
        start_response("404 Not Found", [("Content-Type", "text/plain"), ("Content-Length", "9")])
        return [b"Not found"]
    headers = [("Content-Type", "text/html; charset=utf-8"), ("Content-Length", str(len(PAGE)))]
    start_response("200 OK", headers)
    return [PAGE]
