"""A WSGI application whose replies are worth compressing; the path says what is odd about one."""

from __future__ import annotations

import random
import threading
import urllib.parse

PROSE = b"".join(b"line %d of a long text\n" % number for number in range(200))
ETAG = '"v1"'

go = threading.Semaphore(0)
closed = threading.Event()
through = threading.Event()


def app(environ, start_response):
    """The application."""
    page = PAGES[environ["PATH_INFO"]]
    query = dict(urllib.parse.parse_qsl(environ["QUERY_STRING"]))
    return page(environ, start_response, query)


def headers(query):
    """`Content-Type` and what the query adds."""
    kind = query.pop("type", "text/plain; charset=utf-8")
    return [("Content-Type", kind), *query.items()]


def whole(environ, start_response, query):
    """A list of one, with the headers of the query; `bytes` of it."""
    length = int(query.pop("bytes", len(PROSE)))
    body = (PROSE * (length // len(PROSE) + 1))[:length]
    start_response("200 OK", headers(query))
    return [body]


def noise(environ, start_response, query):
    """`bytes` that no coding makes smaller, as a list of one."""
    body = random.Random(1).randbytes(int(query.pop("bytes")))
    start_response("200 OK", headers(query))
    return [body]


def many(environ, start_response, query):
    """A list of many parts, far more than leave as one."""
    start_response("200 OK", headers(query))
    return [b"part %d " % number for number in range(30_000)]


def words(environ, start_response, query):
    """Words in no order."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b" ".join(random.Random(1).choices(PROSE.split(), k=20_000))]


def stream(environ, start_response, query):
    """Events; the next is made when `/go` was asked for."""
    start_response("200 OK", [("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache")])
    for number in range(4):
        yield b"data: event %d\n\n" % number
        assert go.acquire(timeout=60)


def let_go(environ, start_response, query):
    """Lets the next event be made."""
    go.release()
    start_response("204 No Content", [])
    return []


def endless(environ, start_response, query):
    """Events without an end; `/closed` tells that the generator was closed."""
    start_response("200 OK", [("Content-Type", "text/event-stream")])
    try:
        while True:
            yield b"data: again\n\n"
    finally:
        closed.set()


def was_closed(environ, start_response, query):
    """Waits for the end of `/endless`."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"yes" if closed.wait(60) else b"no"]


def conditional(environ, start_response, query):
    """An ETag, and a 304 for those who hold it; weak comparison, as RFC 9110 section 13.1.2 has it."""
    held = [tag.strip().removeprefix("W/") for tag in environ.get("HTTP_IF_NONE_MATCH", "").split(",")]
    if ETAG in held:
        start_response("304 Not Modified", [("ETag", ETAG)])
        return []
    start_response("200 OK", [("Content-Type", "text/plain"), ("ETag", ETAG)])
    return [PROSE]


def declared(environ, start_response, query):
    """Declares one length and gives another, in two pieces; `first` is the length of the first one."""
    first = int(query.get("first", 1000))
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", query["length"])])
    yield PROSE[:first]
    yield PROSE[first : int(query["bytes"])]


def heavy(environ, start_response, query):
    """Far more than a socket takes, compressed as well; `/through` tells that all of it was given."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    for number in range(80):
        yield PROSE * 20 + random.Random(number).randbytes(100_000)
    through.set()


def was_given(environ, start_response, query):
    """Waits for the end of `/heavy`."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"yes" if through.wait(60) else b"no"]


def broken(environ, start_response, query):
    """Fails in the middle."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    yield PROSE
    raise RuntimeError("broken on purpose")


def file(environ, start_response, query):
    """A file, after something written when the query says so."""
    write = start_response("200 OK", [("Content-Type", "text/plain")])
    if "first" in query:
        write(query["first"].encode())
    return environ["wsgi.file_wrapper"](open(query["name"], "rb"))


PAGES = {
    "/whole": whole,
    "/many": many,
    "/noise": noise,
    "/heavy": heavy,
    "/through": was_given,
    "/words": words,
    "/stream": stream,
    "/go": let_go,
    "/endless": endless,
    "/closed": was_closed,
    "/conditional": conditional,
    "/declared": declared,
    "/broken": broken,
    "/file": file,
}
