"""The applications that every Python server here runs: the same bytes from the same code.

`small` is the one that is measured; `sizes` also gives 64 KB, for the slow readers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SMALL = b"x" * 1024
LARGE = b"x" * (64 * 1024)


def small(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    """1 KB whatever is asked."""
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "1024")])
    return [SMALL]


def sizes(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    """64 KB for its path, 1 KB for all others."""
    body = LARGE if environ["PATH_INFO"] == "/64k.txt" else SMALL
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
