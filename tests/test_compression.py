"""Replies that are compressed on their way: which, how, and what a client can decode when."""

from __future__ import annotations

import importlib.util
import itertools
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raw import Client, CutShort, Reply, request
from serving import APPS, Milepost

# The body of most replies of `apps/coded.py`.
PROSE = b"".join(b"line %d of a long text\n" % number for number in range(200))

# Free-threaded interpreters have decoders of the standard library only.
DECODERS = {"gzip": "zlib", "br": "brotlicffi", "zstd": "zstandard"}
CODINGS = [coding for coding, module in DECODERS.items() if importlib.util.find_spec(module)]


class Decoder:
    """What a client makes of the bytes that have arrived."""

    def __init__(self, coding: str) -> None:
        self.coding = coding
        self.text = b""
        if coding == "gzip":
            self._decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)
        elif coding == "br":
            import brotlicffi

            self._decoder = brotlicffi.Decompressor()
        else:
            import zstandard

            self._decoder = zstandard.ZstdDecompressor().decompressobj()

    def feed(self, data: bytes) -> None:
        self.text += self._decoder.decompress(data)
        if self.coding == "br":
            # It holds back what it has decoded already until it is asked again.
            while more := self._decoder.decompress(b""):
                self.text += more

    @property
    def ended(self) -> bool:
        """The frame is complete, not only the bytes."""
        if self.coding == "br":
            return self._decoder.is_finished()
        return self._decoder.eof


def decoded(reply: Reply) -> bytes:
    """The body of a complete reply."""
    decoder = Decoder(reply.header("content-encoding") or "none")
    decoder.feed(reply.body)
    assert decoder.ended
    return decoder.text


def accepting(coding: str) -> str:
    return f"Accept-Encoding: {coding}"


@pytest.fixture(scope="module")
def coded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Milepost]:
    """`apps/coded.py` with all codings, the strongest first."""
    folder = tmp_path_factory.mktemp("coded")
    arguments = ["coded:app", "--app-dir", str(APPS), "--threads", "4:4", "--compress", "zstd,br,gzip"]
    with Milepost(folder, *arguments) as server:
        yield server


@pytest.fixture
def client(coded: Milepost) -> Iterator[Client]:
    with coded.connect() as connection:
        yield connection


# Which replies, and with which coding


@pytest.mark.parametrize("coding", CODINGS)
def test_a_whole_reply_is_compressed_and_has_a_length(client: Client, coding: str) -> None:
    # More than once on one connection: the threads use their encoders again.
    for _ in range(5):
        reply = client.ask("GET", "/whole?ETag=%22a%22&Accept-Ranges=bytes", accepting(coding))
        assert reply.header("content-encoding") == coding
        assert reply.header("vary") == "Accept-Encoding"
        assert reply.header("etag") == 'W/"a"'
        assert reply.header("accept-ranges") is None
        assert (reply.framing, decoded(reply)) == ("length", PROSE)
        assert len(reply.body) < len(PROSE) / 3


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip, br;q=0.9", "gzip"),
        ("br;q=0.5, gzip;q=0.4", "br"),
        ("*", "zstd"),
        ("zstd;q=0, *", "br"),
        ("GZIP", "gzip"),
        ("x-gzip", "gzip"),
        ("gzip;q=0.5, identity", None),
        ("gzip;q=0", None),
        ("*;q=0", None),
        ("deflate", None),
        ("gzip;q=2", None),
        ("", None),
        (None, None),
    ],
)
def test_the_clients_wishes_decide(client: Client, accept: str | None, coding: str | None) -> None:
    reply = client.ask("GET", "/whole", *([accepting(accept)] if accept is not None else []))
    assert reply.header("content-encoding") == coding
    assert reply.header("vary") == "Accept-Encoding"
    if coding is None:
        assert reply.body == PROSE


def test_several_field_lines_are_one_list(client: Client) -> None:
    reply = client.ask("GET", "/whole", accepting("zstd;q=0.1, br;q=0.2"), accepting("gzip;q=0.3"))
    assert reply.header("content-encoding") == "gzip"


@pytest.mark.parametrize(
    "query",
    [
        "type=image/png",
        "type=application/octet-stream",
        "Content-Encoding=identity",
        "Cache-Control=public,%20no-transform",
        "Content-Range=bytes%200-1/2",
        "Content-MD5=x",
        "bytes=1023",
        "bytes=0",
    ],
)
def test_what_must_not_or_need_not_be_compressed_is_left_alone(client: Client, query: str) -> None:
    reply = client.ask("GET", f"/whole?ETag=%22a%22&{query}", accepting("gzip"))
    assert reply.header("content-encoding") in (None, "identity")
    assert (reply.header("vary"), reply.header("etag")) == (None, '"a"')
    assert PROSE.startswith(reply.body)


@pytest.mark.parametrize("query", ["bytes=1024", "type=Application/JSON", "type=TEXT/css;x=y"])
def test_what_is_just_good_enough_is_compressed(client: Client, query: str) -> None:
    reply = client.ask("GET", f"/whole?{query}", accepting("gzip"))
    assert PROSE.startswith(decoded(reply))


@pytest.mark.parametrize("size", [3000, 3 << 20])
def test_what_would_not_become_smaller_is_sent_plain(client: Client, size: int) -> None:
    for coding in CODINGS:
        reply = client.ask("GET", f"/noise?bytes={size}&ETag=%22a%22", accepting(coding))
        assert (reply.header("content-encoding"), reply.header("etag")) == (None, '"a"')
        assert reply.header("vary") == "Accept-Encoding"
        assert reply.body == random.Random(1).randbytes(size)


def test_a_large_whole_reply_is_compressed_as_it_leaves(client: Client) -> None:
    reply = client.ask("GET", "/whole?bytes=3000001", accepting("gzip"))
    assert (reply.framing, reply.header("content-length")) == ("chunked", None)
    assert len(reply.body) < 1_000_000
    assert decoded(reply) == (PROSE * 1000)[:3_000_001]


@pytest.mark.parametrize("given", [4000, 4500])
@pytest.mark.parametrize("coding", CODINGS)
def test_a_first_piece_of_the_declared_length_is_the_whole(client: Client, coding: str, given: int) -> None:
    """As most frameworks give them: an iterable of one part, with its length."""
    reply = client.ask("GET", f"/declared?length=4000&bytes={given}&first=4000", accepting(coding))
    assert (reply.header("content-encoding"), reply.framing) == (coding, "length")
    assert decoded(reply) == PROSE[:4000]


def test_a_request_may_forbid_it(client: Client) -> None:
    reply = client.ask("GET", "/whole", accepting("gzip"), "Cache-Control: no-transform")
    assert (reply.header("content-encoding"), reply.body) == (None, PROSE)
    assert reply.header("vary") == "Accept-Encoding"


@pytest.mark.parametrize(
    ("vary", "expect"),
    [("Cookie", "Cookie, Accept-Encoding"), ("accept-encoding", "accept-encoding"), ("*", "*")],
)
def test_vary_is_merged(client: Client, vary: str, expect: str) -> None:
    for accept in ("gzip", "identity"):
        assert client.ask("GET", f"/whole?Vary={vary}", accepting(accept)).header("vary") == expect


def test_head_has_the_lines_of_get_without_a_length(client: Client) -> None:
    def lines(reply: Reply) -> list[tuple[str, str]]:
        return [pair for pair in reply.headers if pair[0] not in ("Date", "Content-Length")]

    for target in ("/whole", "/conditional"):
        get = client.ask("GET", target, accepting("br"))
        head = client.ask("HEAD", target, accepting("br"))
        assert lines(head) == lines(get)
        assert (head.header("content-length"), head.header("content-encoding")) == (None, "br")


def test_an_etag_survives_revalidation(client: Client) -> None:
    first = client.ask("GET", "/conditional", accepting("gzip"))
    assert (first.status, first.header("etag")) == (200, 'W/"v1"')
    again = client.ask("GET", "/conditional", accepting("gzip"), f"If-None-Match: {first.header('etag')}")
    # A strong ETag would be that of another representation, and update none (RFC 9111 section 4.3.4).
    assert (again.status, again.header("etag"), again.header("vary")) == (304, 'W/"v1"', "Accept-Encoding")
    plain = client.ask("GET", "/conditional")
    assert (plain.header("etag"), plain.header("vary")) == ('"v1"', "Accept-Encoding")
    again = client.ask("GET", "/conditional", f"If-None-Match: {plain.header('etag')}")
    assert (again.status, again.header("etag")) == (304, '"v1"')


# Streams


@pytest.mark.parametrize("coding", CODINGS)
def test_each_event_can_be_decoded_before_the_next_is_made(coded: Milepost, coding: str) -> None:
    decoder = Decoder(coding)
    with coded.connect() as client, coded.connect() as other:
        client.send(request("GET", "/stream", accepting(coding)))
        status, _, headers = client.head()
        assert (status, ("Content-Encoding", coding) in headers) == (200, True)
        for number in range(4):
            decoder.feed(client.chunk())
            assert decoder.text.endswith(b"data: event %d\n\n" % number)
            assert not decoder.ended
            assert other.ask("GET", "/go").status == 204
        while data := client.chunk():
            decoder.feed(data)
        coded.exchanges += 1
    assert decoder.ended
    assert decoder.text == b"".join(b"data: event %d\n\n" % number for number in range(4))


@pytest.mark.parametrize("coding", CODINGS)
def test_an_endless_stream_ends_when_its_client_leaves(coded: Milepost, coding: str) -> None:
    decoder = Decoder(coding)
    with coded.connect() as client:
        client.send(request("GET", "/endless", accepting(coding)))
        client.head()
        while decoder.text.count(b"again") < 1000:
            decoder.feed(client.chunk())
        coded.exchanges += 1
    with coded.connect() as other:
        assert other.ask("GET", "/closed").body == b"yes"


@pytest.mark.parametrize("coding", CODINGS)
def test_a_long_list_is_compressed_as_it_leaves(client: Client, coding: str) -> None:
    reply = client.ask("GET", "/many", accepting(coding))
    assert reply.framing == "chunked"
    # Its parts are small, and are not flushed one by one.
    assert len(reply.chunks) < 20
    assert decoded(reply) == b"".join(b"part %d " % number for number in range(30_000))


def test_a_slow_client_gets_all_of_a_compressed_reply(coded: Milepost) -> None:
    with coded.connect(receive_buffer_bytes=4096) as client, coded.connect() as other:
        client.send(request("GET", "/heavy", accepting("gzip")))
        # Not a byte is read before the application is through.
        assert other.ask("GET", "/through").body == b"yes"
        pieces = [PROSE * 20 + random.Random(number).randbytes(100_000) for number in range(80)]
        assert decoded(client.reply()) == b"".join(pieces)


@pytest.mark.parametrize("coding", CODINGS)
def test_an_old_client_gets_a_stream_that_ends_with_the_connection(coded: Milepost, coding: str) -> None:
    length = len(PROSE)
    with coded.connect() as client:
        target = f"/declared?length={length}&bytes={length}"
        reply = client.ask("GET", target, accepting(coding), version="HTTP/1.0")
        assert (reply.framing, reply.closes) == ("close", True)
        assert decoded(reply) == PROSE
    with coded.connect() as client:
        reply = client.ask("GET", "/whole", accepting(coding), version="HTTP/1.0")
        assert (reply.framing, decoded(reply)) == ("length", PROSE)


# Ends


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("target", ["/broken", "/declared?length=5000&bytes=4000"])
def test_a_reply_that_is_cut_does_not_look_complete(coded: Milepost, coding: str, target: str) -> None:
    with coded.connect() as client:
        client.send(request("GET", target, accepting(coding)))
        with pytest.raises(CutShort) as cut:
            client.reply()
        coded.exchanges += 1
    decoder = Decoder(coding)
    decoder.feed(cut.value.so_far)
    assert PROSE.startswith(decoder.text) and len(decoder.text) >= 4000
    assert not decoder.ended


@pytest.mark.parametrize("coding", CODINGS)
def test_what_exceeds_the_declared_length_is_dropped(coded: Milepost, client: Client, coding: str) -> None:
    reply = client.ask("GET", "/declared?length=3000&bytes=4000", accepting(coding))
    assert reply.header("content-length") is None
    assert decoded(reply) == PROSE[:3000]


@pytest.mark.parametrize("coding", CODINGS)
def test_a_file_is_plain_unless_something_went_before_it(client: Client, tmp_path: Path, coding: str) -> None:
    path = tmp_path / "file.txt"
    path.write_bytes(PROSE * 50)
    plain = client.ask("GET", f"/file?name={path}", accepting(coding))
    assert (plain.header("content-encoding"), plain.header("vary")) == (None, None)
    assert plain.body == PROSE * 50
    reply = client.ask("GET", f"/file?name={path}&first=written", accepting(coding))
    assert decoded(reply) == b"written" + PROSE * 50


# Settings


def test_nothing_is_compressed_unless_asked_for(serve: Callable[..., Milepost]) -> None:
    with serve("coded:app", "--app-dir", str(APPS)).connect() as client:
        reply = client.ask("GET", "/whole", accepting("gzip"))
    assert (reply.header("content-encoding"), reply.header("vary"), reply.body) == (None, None, PROSE)


def test_settings_choose_codings_types_sizes_and_levels(serve: Callable[..., Milepost]) -> None:
    logs = itertools.count()

    def server(*arguments: str) -> Client:
        log = f"{next(logs)}.log"
        return serve("coded:app", "--app-dir", str(APPS), *arguments, log=log).connect()

    with server("--compress", "gzip", "--compress-types", "application/x-mine") as client:
        assert client.ask("GET", "/whole", accepting("zstd, gzip")).header("content-encoding") is None
        reply = client.ask("GET", "/whole?type=application/x-mine", accepting("zstd, gzip"))
        assert (reply.header("content-encoding"), decoded(reply)) == ("gzip", PROSE)
    with server("--compress", "gzip", "--compress-size-min", "500") as client:
        for size, coding in ((499, None), (500, "gzip")):
            reply = client.ask("GET", f"/whole?bytes={size}", accepting("gzip"))
            assert reply.header("content-encoding") == coding
    sizes = []
    for level in ("1", "9"):
        with server("--compress", "gzip", "--compress-level-gzip", level) as client:
            sizes.append(len(client.ask("GET", "/words", accepting("gzip")).body))
    assert sizes[1] < sizes[0]
