"""A WSGI application whose replies are worth compressing; the path says what is odd about one."""

from __future__ import annotations

import random
import threading
import urllib.parse

PROSE = b"".join(b"line %d of a long text\n" % number for number in range(200))
ETAG = '"v1"'

go = threading.Semaphore(0)
closed = threading.Event()


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
    body = PROSE[: int(query.pop("bytes", len(PROSE)))]
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
    """Declares one length and gives another, in pieces."""
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", query["length"])])
    yield PROSE[:1000]
    yield PROSE[1000 : int(query["bytes"])]


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
