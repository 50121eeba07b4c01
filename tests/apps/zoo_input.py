"""Animals that read their input, and those that wait."""

from __future__ import annotations

import hashlib
import json

from zoo_base import NOTES, animal, as_json, query, text


@animal
def noted(environ, start_response):
    """Waits until `what` was noted under the token, then tells everything noted there."""
    return as_json(start_response, NOTES.wait(query(environ, "token"), query(environ, "what")))


@animal
def body(environ, start_response):
    """Length and SHA-256 of the body, and what the environ says of it."""
    data = environ["wsgi.input"].read()
    return as_json(
        start_response,
        {
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "length": environ.get("CONTENT_LENGTH"),
            "type": environ.get("CONTENT_TYPE"),
            "n": query(environ, "n"),
        },
    )


@animal
def unread(environ, start_response):
    """Does not look at the body."""
    return text(start_response, "unread")


@animal
def reads(environ, start_response):
    """Runs the calls in `script` on wsgi.input, and tells what each gave."""
    source = environ["wsgi.input"]
    gave = []
    for name, *arguments in json.loads(query(environ, "script")):
        if name == "iterate":
            value = list(source)
        elif name == "next":
            value = next(source, None)
        else:
            value = getattr(source, name)(*arguments)
        if isinstance(value, list):
            gave.append([line.decode("latin-1") for line in value])
        else:
            gave.append(value.decode("latin-1") if isinstance(value, bytes) else value)
    return as_json(start_response, gave)


@animal
def echo(environ, start_response):
    """The body back, in pieces as they were read."""
    start_response("200 OK", [])
    return iter(lambda: environ["wsgi.input"].read(10_000), b"")


@animal
def gate(environ, start_response):
    """Holds its thread until somebody has opened and closed the FIFO `name` for writing.

    Opening a FIFO waits for the other side: a test that has it open for writing knows that this
    animal runs.
    """
    with open(query(environ, "name"), "rb") as fifo:
        fifo.read()
    return text(start_response, "released")


@animal
def gate_midway(environ, start_response):
    """The same in the middle of a reply whose first part has left."""
    start_response("200 OK", [])
    yield b"before "
    with open(query(environ, "name"), "rb") as fifo:
        fifo.read()
    yield b"after"
