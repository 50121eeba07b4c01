"""Replies that no client takes: 8 MB, the same object for all or one of its own for each, beside 1 KB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SMALL = b"x" * 1024
LARGE_BYTES = 8 << 20
LARGE = b"x" * LARGE_BYTES


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    """8 MB for two paths, 1 KB for all others."""
    path = environ["PATH_INFO"]
    # An object that was never written to would take no memory.
    body = LARGE if path == "/shared" else b"y" * LARGE_BYTES if path == "/own" else SMALL
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
