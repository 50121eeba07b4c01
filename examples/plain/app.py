"""A WSGI application without a framework: a page, a streamed body and an upload."""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    path = environ["PATH_INFO"]
    if path == "/lines":
        start_response("200 OK", [("Content-Type", "text/plain")])
        return (f"line {number}\n".encode() for number in range(1000))
    if path == "/digest" and environ["REQUEST_METHOD"] == "POST":
        body = hashlib.sha256(environ["wsgi.input"].read()).hexdigest().encode()
    elif path == "/":
        # Seconds that this request has waited for a thread.
        body = f"Hello, after {environ['milepost.phases'].queue:.6f} s\n".encode()
    else:
        start_response("404 Not Found", [("Content-Length", "0")])
        return []
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
