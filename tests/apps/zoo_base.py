"""What all animals of the zoo share: their register, small replies, and the notes."""

from __future__ import annotations

import collections
import functools
import json
import random
import threading
import urllib.parse

ANIMALS = {}


def animal(function):
    """Serve `function` under its name with dashes."""
    ANIMALS["/" + function.__name__.replace("_", "-")] = function
    return function


def query(environ, name, default=""):
    """One value of the query."""
    return urllib.parse.parse_qs(environ["QUERY_STRING"]).get(name, [default])[0]


def text(start_response, body, status="200 OK", *headers):
    """A small whole reply."""
    body = body if isinstance(body, bytes) else body.encode()
    start_response(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(body))), *headers])
    return [body]


def as_json(start_response, value):
    """A small JSON reply."""
    return text(start_response, json.dumps(value))


class Notes:
    """What happened after a reply had left, under a token."""

    def __init__(self):
        self.changed = threading.Condition()
        self.of = collections.defaultdict(list)

    def add(self, token, what):
        with self.changed:
            self.of[token].append(what)
            self.changed.notify_all()

    def wait(self, token, what, timeout=60):
        with self.changed:
            self.changed.wait_for(lambda: what in self.of[token], timeout)
            return list(self.of[token])


NOTES = Notes()


class Closing:
    """An iterable that notes its `close()`, and how far it was iterated."""

    def __init__(self, environ, parts):
        self.token = query(environ, "token")
        self.parts = iter(parts)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.parts)

    def close(self):
        NOTES.add(self.token, "closed")


@functools.lru_cache(maxsize=8)
def pattern(length):
    """Bytes in which no piece looks like another one, made in no time: deadlines are measured beside it."""
    return random.Random(length).randbytes(length)
