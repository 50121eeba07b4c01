"""Uploaded images on disk: each is kept once, under the SHA-256 of its bytes.

Takes a stream, gives a `shelf.Cover`. The visitor's file name is shown, never used as a path.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from typing import IO

from flask import Response, send_file

import shelf

CHUNK_BYTES = 64 * 1024

# First bytes of a file -> its type. What the visitor's browser claims is not asked.
KINDS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
)


def keep(name: str, stream: IO[bytes]) -> shelf.Cover | None:
    """Store the image that `stream` gives, or give None if it is no image."""
    first = stream.read(CHUNK_BYTES)
    mime = next((mime for magic, mime in KINDS if first.startswith(magic)), None)
    if mime is None:
        return None
    folder = shelf.DATA / "covers"
    folder.mkdir(exist_ok=True)
    digest, length = hashlib.sha256(), 0
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as out:
        while first:
            digest.update(first)
            length += out.write(first)
            first = stream.read(CHUNK_BYTES)
    sha256 = digest.hexdigest()
    # The rename makes it appear whole or not at all, also when two upload it at once.
    os.replace(out.name, folder / sha256)
    return shelf.Cover(sha256, os.path.basename(name)[:100], mime, length)


def send(upload) -> Response:
    """The stored image as a reply that may be cached for ever: its address is its content."""
    reply = send_file(
        shelf.DATA / "covers" / upload["sha256"],
        mimetype=upload["mime"],
        etag=upload["sha256"],
        max_age=31_536_000,
        conditional=True,
    )
    reply.headers["X-Content-Type-Options"] = "nosniff"
    return reply
