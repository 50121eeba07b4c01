"""Animals that answer with files, by `wsgi.file_wrapper`."""

from __future__ import annotations

import io
import tempfile

from zoo_base import NOTES, animal, pattern, query


@animal
def file(environ, start_response):
    """A file by wsgi.file_wrapper, from offset `from`; `length` declares a length."""
    handle = open(query(environ, "name"), "rb")
    handle.seek(int(query(environ, "from", "0")))
    headers = [("Content-Length", query(environ, "length"))] if query(environ, "length") else []
    start_response("200 OK", headers)
    return environ["wsgi.file_wrapper"](Noted(handle, query(environ, "token")), 4096)


@animal
def file_itself(environ, start_response):
    """A file that nothing wraps, read as it lies."""
    start_response("200 OK", [])
    return environ["wsgi.file_wrapper"](open(query(environ, "name"), "rb"))


@animal
def file_changed(environ, start_response):
    """A file that is read and written, whose last bytes are not on the disk yet."""
    handle = tempfile.TemporaryFile()
    for data in (b"old" * 1000, b"new" * 1000):
        handle.seek(0)
        handle.write(data)
        handle.seek(0)
        handle.read(10)
    handle.seek(0)
    start_response("200 OK", [])
    return environ["wsgi.file_wrapper"](handle)


@animal
def file_part(environ, start_response):
    """The first `length` bytes of a file, by its Content-Length."""
    start_response("200 OK", [("Content-Length", query(environ, "length"))])
    return environ["wsgi.file_wrapper"](open(query(environ, "name"), "rb"))


class Noted:
    """A file that notes its close(), and otherwise is the file."""

    def __init__(self, handle, token):
        self.handle, self.token = handle, token

    def __getattr__(self, name):
        return getattr(self.handle, name)

    def close(self):
        self.handle.close()
        NOTES.add(self.token, "closed")


@animal
def file_like(environ, start_response):
    """Something with read() but without a descriptor."""
    start_response("200 OK", [])
    return environ["wsgi.file_wrapper"](io.BytesIO(pattern(100_000)))


@animal
def file_without_close(environ, start_response):
    """Something that has read() and nothing else."""

    class Reader:
        def __init__(self):
            self.parts = [b"read ", b"only"]

        def read(self, size):
            return self.parts.pop(0) if self.parts else b""

    start_response("200 OK", [])
    return environ["wsgi.file_wrapper"](Reader())


@animal
def file_wrapper_iterated(environ, start_response):
    """The wrapper's own iteration, as a middleware uses it that changes the bytes."""
    start_response("200 OK", [])
    wrapped = environ["wsgi.file_wrapper"](io.BytesIO(b"abcdefgh"), 3)
    return [part.upper() for part in wrapped]
