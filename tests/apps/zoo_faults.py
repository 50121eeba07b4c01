"""Animals that fail: before, in the middle of and after their reply."""

from __future__ import annotations

import sys

from zoo_base import Closing, animal, as_json, query


@animal
def raises(environ, start_response):
    """Fails before start_response."""
    raise RuntimeError("a secret of the zoo")


@animal
def raises_after_start(environ, start_response):
    """Fails after start_response, before any output."""
    gone = [("X-Gone", "1"), ("Date", "never"), ("Server", "zoo"), ("Content-Length", "5")]
    start_response("200 OK", gone)
    raise RuntimeError("a secret of the zoo")


@animal
def raises_in_first_next(environ, start_response):
    """Fails in the iterable, before any output."""
    start_response("200 OK", [("X-Gone", "1")])

    def failing():
        yield b""
        raise RuntimeError("a secret of the zoo")

    return Closing(environ, failing())


@animal
def raises_midway(environ, start_response):
    """Fails after output."""
    headers = [("Content-Length", "100")] if query(environ, "length") else []
    start_response("200 OK", headers)

    def failing():
        yield b"the beginning"
        raise RuntimeError("a secret of the zoo")

    return Closing(environ, failing())


@animal
def raises_behind_its_client(environ, start_response):
    """Writes until its client has gone, and then has a fault of its own."""
    write = start_response("200 OK", [])
    try:
        while True:
            write(bytes(1 << 16))
    except OSError:
        pass
    raise ValueError("a fault behind its client")


@animal
def raises_in_close(environ, start_response):
    """Fails in close(), when all output is there."""

    class Bad(Closing):
        def close(self):
            super().close()
            raise RuntimeError("a secret of close")

    start_response("200 OK", [])
    return Bad(environ, [b"all ", b"there"])


@animal
def exits(environ, start_response):
    """sys.exit() must not stop the server."""
    sys.exit(3)


@animal
def interrupts(environ, start_response):
    """KeyboardInterrupt must not stop it either."""
    raise KeyboardInterrupt


@animal
def raises_surrogates(environ, start_response):
    """Fails with a message that is no UTF-8, as names of files give."""
    raise OSError("a secret of the zoo: \udcff")


@animal
def tools(environ, start_response):
    """Which objects it was given: the server uses them again as long as nobody has kept them."""
    given = (start_response, environ["wsgi.input"], environ["milepost.phases"])
    return as_json(start_response, [id(tool) for tool in given])


class UnprintableError(Exception):
    """An error whose text cannot be had."""

    def __str__(self):
        raise ValueError("no text")


@animal
def raises_unprintable(environ, start_response):
    """Fails with an error that fails when shown."""
    raise UnprintableError
