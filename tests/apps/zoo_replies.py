"""Animals that answer in every way PEP 3333 allows, and in some that it forbids."""

from __future__ import annotations

import functools
import hashlib
import json
import sys

from zoo_base import NOTES, Closing, animal, pattern, query, text


@animal
def hello(environ, start_response):
    """The simplest one."""
    return text(start_response, "hello")


@animal
def late_start(environ, start_response):
    """A generator: start_response runs at the first `next()`."""
    start_response("201 Created", [("X-Late", "yes")])
    yield b"late"


@animal
def later_start(environ, start_response):
    """Empty chunks before start_response: the head is not due yet."""
    yield b""
    yield b""
    start_response("202 Accepted", [("X-Later", "yes")])
    yield b""
    yield b"later"


@animal
def no_start(environ, start_response):
    """Never calls start_response."""
    return [b"x"]


@animal
def start_after_output(environ, start_response):
    """Yields a chunk before start_response, which is an error."""
    yield b"too early"
    start_response("200 OK", [])


@animal
def start_twice(environ, start_response):
    """Calls start_response twice without exc_info, and tells what that raised."""
    start_response("200 OK", [])
    try:
        start_response("500 Twice", [])
    except Exception as error:
        return [type(error).__name__.encode()]
    return [b"nothing was raised"]


@animal
def odd_starts(environ, start_response):
    """Calls start_response with what PEP 3333 does not take, and tells what each call raised."""
    raised = []
    for headers, exc_info in [
        ((("X-A", "a"),), None),
        ({"X-A": "a"}, None),
        (iter([("X-A", "a")]), None),
        ([], ValueError("no tuple")),
        ([], [ValueError, ValueError(), None]),
        ([], True),
        ([], (ValueError,)),
    ]:
        try:
            start_response("200 OK", headers, exc_info)
        except TypeError as error:
            raised.append(str(error))
        else:
            raised.append("nothing")
    start_response("200 OK", [("Content-Type", "text/plain")], None)
    return ["\n".join(raised).encode()]


@animal
def replaced(environ, start_response):
    """Fails after start_response but before output, and starts again with exc_info."""
    start_response("200 OK", [("X-First", "1"), ("Content-Length", "5")])
    try:
        raise ValueError("before output")
    except ValueError:
        start_response("503 Replaced", [("X-Second", "2")], sys.exc_info())
    return [b"replaced"]


@animal
def replaced_in_generator(environ, start_response):
    """The same inside a generator, after an empty chunk."""
    start_response("200 OK", [("X-First", "1")])
    yield b""
    try:
        raise ValueError("before output")
    except ValueError:
        start_response("503 Replaced", [("X-Second", "2")], sys.exc_info())
    yield b"replaced"


@animal
def reraised(environ, start_response):
    """Fails after output: start_response with exc_info raises that error again."""
    token = query(environ, "token")
    start_response("200 OK", [("Content-Length", "1000")])
    yield b"some output"
    try:
        raise KeyError("after output")
    except KeyError:
        try:
            start_response("500 Too Late", [], sys.exc_info())
        except KeyError as error:
            NOTES.add(token, f"reraised {error}")
            raise


@animal
def writes(environ, start_response):
    """Uses write(), and an iterable after it."""
    write = start_response("200 OK", [("Content-Type", "text/plain")])
    write(b"one ")
    write(b"")
    write(b"two ")
    return [b"three", b" four"]


@animal
def writes_only(environ, start_response):
    """Uses write() and returns an empty list."""
    start_response("200 OK", [("Content-Length", "4")])(b"only")
    return []


@animal
def status(environ, start_response):
    """Any status line, with a body when asked for one."""
    start_response(query(environ, "line"), [])
    return [query(environ, "body").encode()] if query(environ, "body") else []


@animal
def header(environ, start_response):
    """Any one header, given as JSON of name and value; `how` varies the types."""
    name, value = json.loads(query(environ, "pair"))
    pair = [name, value] if query(environ, "how") == "list" else (name, value)
    headers = (pair,) if query(environ, "how") == "tuple" else [pair]
    start_response("200 OK", headers)
    return [b"sent"]


@animal
def many_headers(environ, start_response):
    """The same name twice, and values in latin-1."""
    start_response(
        "200 OK",
        [
            ("Set-Cookie", "a=1"),
            ("Set-Cookie", "b=2"),
            ("X-Latin", "caf\xe9"),
            ("x-lower", ""),
            ("Server", "zoo"),
        ],
    )
    return [b"many"]


@animal
def parts(environ, start_response):
    """Several chunks, some empty, no length."""
    start_response("200 OK", [])
    return Closing(environ, [b"a", b"", b"bb", b"ccc"])


@animal
def tuple_of_parts(environ, start_response):
    """A tuple."""
    start_response("200 OK", [])
    return (b"x", b"y")


@animal
def one_part(environ, start_response):
    """A list of one: the server knows the length."""
    start_response("200 OK", [])
    return [b"exactly one"]


@animal
def nothing(environ, start_response):
    """No chunk at all."""
    start_response("200 OK", [("X-Empty", "yes")])
    return Closing(environ, [])


class OnlyGetItem:
    """The old iteration protocol."""

    def __init__(self, *items):
        self.items = items

    def __getitem__(self, index):
        return self.items[index]


@animal
def get_item(environ, start_response):
    """An iterable with `__getitem__` only, and a lie for a length."""
    start_response("200 OK", [])
    return OnlyGetItem(b"old ", b"protocol")


class Unmeasured(Closing):
    """An iterable whose length cannot be told."""

    def __init__(self, environ, parts):
        super().__init__(environ, parts)
        self.error = query(environ, "error")

    def __len__(self):
        raise {
            "TypeError": TypeError,
            "AttributeError": AttributeError,
            "NotImplementedError": NotImplementedError,
            "RuntimeError": RuntimeError,
        }[self.error]


@animal
def unmeasured(environ, start_response):
    """Lazy sequences fail so; only those errors that mean "not known" may."""
    start_response("200 OK", [])
    return Unmeasured(environ, [b"a", b"bb"])


class LyingList(list):
    """A list whose iteration says something else than its items."""

    def __iter__(self):
        return iter([b"iterated"])


@animal
def lying_list(environ, start_response):
    """The server must iterate, not index."""
    start_response("200 OK", [])
    return LyingList([b"indexed"])


@animal
def bytes_itself(environ, start_response):
    """bytes iterate as ints, which are not bytes."""
    start_response("200 OK", [])
    return b"not a list"


@animal
def text_part(environ, start_response):
    """A str where bytes belong."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    return ["text"]


@animal
def not_iterable(environ, start_response):
    """None, as a forgotten return gives."""
    start_response("200 OK", [])


@functools.lru_cache(maxsize=8)
def digest(length):
    """SHA-256 of the pattern."""
    return hashlib.sha256(pattern(length)).hexdigest()


@animal
def large(environ, start_response):
    """`bytes` bytes as one part of `part` bytes each, with their SHA-256 first in a header."""
    length, part = int(query(environ, "bytes")), int(query(environ, "part", "65536"))
    data = pattern(length)
    headers = [("X-Sha256", digest(length))]
    if query(environ, "length"):
        headers.append(("Content-Length", str(length)))
    start_response("200 OK", headers)
    return Closing(environ, (data[at : at + part] for at in range(0, length, part)))


@animal
def longer(environ, start_response):
    """More bytes than Content-Length says."""
    start_response("200 OK", [("Content-Length", "5")])
    return Closing(environ, [b"123", b"45678", b"9"])


@animal
def shorter(environ, start_response):
    """Fewer bytes than Content-Length says."""
    start_response("200 OK", [("Content-Length", "50")])
    return Closing(environ, [b"only this"])


@animal
def shorter_list(environ, start_response):
    """The same as a plain list of one."""
    start_response("200 OK", [("Content-Length", "50")])
    return [b"only this"]


@animal
def empty_with_length(environ, start_response):
    """Content-Length and nothing at all, as HEAD handlers do."""
    start_response("200 OK", [("Content-Length", "50")])
    return []
