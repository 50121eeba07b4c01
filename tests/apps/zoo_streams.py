"""Animals that stream without an end, and tell when they were closed."""

from __future__ import annotations

import time

from zoo_base import NOTES, animal, as_json, pattern, query


class Endless:
    """Parts for ever, each made by `make`; notes the moment of its `close()`."""

    def __init__(self, environ, make):
        self.token, self.make, self.made = query(environ, "token"), make, 0

    def __iter__(self):
        return self

    def __next__(self):
        self.made += 1
        return self.make(self.made)

    def close(self):
        NOTES.add(self.token, f"closed {time.monotonic()}")
        NOTES.add(self.token, "closed")


@animal
def events(environ, start_response):
    """Server-sent events, one every `every` seconds, each with the moment at which it was made."""
    every = float(query(environ, "every", "0.05"))

    def make(number):
        if number > 1:
            time.sleep(every)
        return b"data: %d %.6f\n\n" % (number, time.monotonic())

    start_response("200 OK", [("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache")])
    return Endless(environ, make)


@animal
def asked_for(environ, start_response):
    """Server-sent events, the next one when `next` was noted again."""
    token, asked = query(environ, "token"), 0

    def make(number):
        nonlocal asked
        if number > 1:
            asked += 1
            NOTES.wait(token, f"next {asked}")
        return b"data: %d\n\n" % number

    start_response("200 OK", [("Content-Type", "text/event-stream")])
    return Endless(environ, make)


@animal
def note(environ, start_response):
    """Notes `what` under the token."""
    NOTES.add(query(environ, "token"), query(environ, "what"))
    return as_json(start_response, True)


@animal
def flood(environ, start_response):
    """As much as there is room for, for ever; each part an object of its own, or all of them would be one."""
    start_response("200 OK", [("Content-Type", "application/octet-stream")])
    return Endless(environ, lambda number: bytes(bytearray(pattern(65_536))))


@animal
def burst(environ, start_response):
    """Far more than a socket takes, and then nothing until `go` was noted."""
    start_response("200 OK", [("Content-Type", "application/octet-stream")])
    yield pattern(9_000_000)
    NOTES.wait(query(environ, "token"), "go")
    yield b"the end"


@animal
def limited(environ, start_response):
    """`bytes` bytes at the pace that the application chose, by X-Accel-Limit-Rate."""
    length = int(query(environ, "bytes"))
    start_response(
        "200 OK", [("Content-Length", str(length)), ("X-Accel-Limit-Rate", query(environ, "rate"))]
    )
    return [pattern(length)]
