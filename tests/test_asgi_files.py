"""Spans of files in ASGI responses (`http.response.zerocopysend`), over TLS and HTTP/2 too."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from http2 import Http2

from raw import CutShort, request
from serving import APPS, Milepost, until

DATA = bytes(number % 251 for number in range(3_000_000))
ZOO = ("asgi_zoo:app", "--app-dir", str(APPS))


@pytest.fixture(scope="module", params=["plain", "tls"])
def server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Milepost]:
    folder = tmp_path_factory.mktemp("spans")
    flags, tls = [], None
    if request.param == "tls":
        pytest.importorskip("trustme", exc_type=ImportError)
        from certificates import Authority

        authority = Authority(tmp_path_factory.mktemp("keys"))
        flags, tls = authority.flags("server", "localhost"), authority.context()
        tls.set_alpn_protocols(["h2", "http/1.1"])
    with Milepost(folder, *ZOO, *flags, tls=tls) as server:
        (folder / "large").write_bytes(DATA)
        (folder / "empty").touch()
        yield server


@pytest.fixture(params=["http/1.1", "h2"])
def ask(server: Milepost, request: pytest.FixtureRequest) -> Callable[[str], tuple[int, bytes, str | None]]:
    """Asks for a target; gives status, body and declared length."""

    def over_http_1(target: str) -> tuple[int, bytes, str | None]:
        with server.connect() as client:
            reply = client.ask("GET", target)
            # The connection lives on.
            assert client.ask("GET", "/").body == b"hello"
            return reply.status, reply.body, reply.header("content-length")

    def over_http_2(target: str) -> tuple[int, bytes, str | None]:
        with Http2(server) as client:
            response = client.ask(target)
            assert response.is_ended and response.reset is None
            return response.status, response.body, response.header("content-length")

    return over_http_1 if request.param == "http/1.1" else over_http_2


@pytest.fixture(autouse=True)
def protocols(server: Milepost, request: pytest.FixtureRequest) -> None:
    """Under TLS the protocol is agreed on: that of the test's client."""
    params = getattr(request.node, "callspec", None)
    if server.tls and params:
        is_http_2 = params.params.get("ask") == "h2"
        server.tls.set_alpn_protocols(["h2"] if is_http_2 else ["http/1.1"])


@pytest.mark.parametrize(
    ("plan", "body"),
    [
        ("file", DATA),
        ("file:100:200", DATA[100:300]),
        ("file:100:2000000", DATA[100:2_000_100]),
        ("fd::70000", DATA[:70_000]),
        ("fd:2999999", DATA[-1:]),
        ("file:3000000", b""),
        ("file:0:0", b""),
    ],
)
def test_one_span_is_the_response(ask: Callable[..., Any], plan: str, body: bytes) -> None:
    assert ask(f"/zerocopy?path=large&plan={plan}") == (200, body, str(len(body)))
    assert ask(f"/zerocopy?path=large&plan={plan}&length={len(body)}") == (200, body, str(len(body)))


@pytest.mark.parametrize(
    ("plan", "body"),
    [
        ("=head,file,=tail", b"head" + DATA + b"tail"),
        ("file:5:5,=between,file:0:2500000", DATA[5:10] + b"between" + DATA[:2_500_000]),
        ("fd::1000000,fd:1:1,=", DATA[:1_000_000] + DATA[1:2]),
        ("=,file:0:0,file:1:1", DATA[1:2]),
        ("file:7:3,=", DATA[7:10]),
    ],
)
def test_spans_and_bytes_are_mixed(ask: Callable[..., Any], plan: str, body: bytes) -> None:
    for length in ("", f"&length={len(body)}"):
        status, came, declared = ask(f"/zerocopy?path=large&plan={plan}{length}")
        assert (status, came == body, declared) == (200, True, str(len(body)) if length else None)


def test_a_span_begins_where_the_file_was_read_to(ask: Callable[..., Any]) -> None:
    for kind in ("file", "fd"):
        assert ask(f"/zerocopy?path=large&plan={kind}&read=10")[1] == DATA[10:]
    # And the next one begins behind it.
    assert ask("/zerocopy?path=large&plan=twice::4,=&read=10")[1] == DATA[10:18]
    assert ask("/zerocopy?path=empty&plan=file")[1] == b""


def test_a_span_behind_a_compressed_piece_is_compressed(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO, "--compress", "gzip")
    (server.folder / "large").write_bytes(DATA)
    checks = [
        ("=head,file,=tail", b"head" + DATA + b"tail"),
        ("=head,fd:100:1", b"head" + DATA[100:101]),
        ("=head,file:5:70000,file:0:0,=,fd:1:2000000", b"head" + DATA[5:70_005] + DATA[1:2_000_001]),
        ("=head,twice::4,=tail&read=10", b"head" + DATA[10:18] + b"tail"),
        (f"=head,file&length={4 + len(DATA)}", b"head" + DATA),
    ]
    with server.connect() as client:
        for plan, body in checks:
            reply = client.ask("GET", f"/zerocopy?path=large&plan={plan}", "Accept-Encoding: gzip")
            assert (reply.framing, reply.header("content-encoding")) == ("chunked", "gzip")
            assert (gzip.decompress(reply.body) == body, len(reply.body) < len(body) + 64) == (True, True), (
                plan
            )
        # One that begins with a span, or that the client wants plain, is sent from the file.
        for plan, accepts in [("file,=tail", "gzip"), ("=,file,=tail", "identity")]:
            reply = client.ask("GET", f"/zerocopy?path=large&plan={plan}", f"Accept-Encoding: {accepts}")
            assert (reply.header("content-encoding"), reply.body == DATA + b"tail") == (None, True)
    with server.connect() as client:
        # Longer than the length that was declared: refused, and the response does not look complete.
        target = "/zerocopy?path=large&plan=%3Dhead,file&length=104"
        client.send(request("GET", target, "Accept-Encoding: gzip"))
        server.count()
        client.head()
        with pytest.raises(CutShort):
            list(iter(client.chunk, b""))


def test_trailers_follow_a_span(server: Milepost) -> None:
    if server.tls:
        server.tls.set_alpn_protocols(["h2"])
    with Http2(server) as client:
        response = client.ask("/zerocopy?path=large&plan=file&trailers=1")
        assert (response.body == DATA, response.trailers) == (True, [("x-sum", "1")])


def test_head_has_no_body(server: Milepost) -> None:
    with server.connect() as client:
        for _ in range(2):
            assert client.ask("HEAD", "/zerocopy?path=large&plan=file:0:7").header("content-length") == "7"


def test_a_file_that_becomes_shorter_cuts_the_response(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO)
    (server.folder / "shrinks").write_bytes(bytes(30_000_000))
    with server.connect(receive_buffer_bytes=4096) as client:
        client.send(request("GET", "/zerocopy?path=shrinks&plan=file"))
        server.count()
        client.head()
        client.exactly(1000)
        (server.folder / "shrinks").write_bytes(b"")
        with pytest.raises(CutShort):
            client.exactly(30_000_000 - 1000)


def test_a_client_that_does_not_read_holds_up_the_spans_behind_it(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO)
    (server.folder / "large").write_bytes(bytes(30_000_000))
    with server.connect(receive_buffer_bytes=4096) as client:
        client.send(request("GET", "/zerocopy?path=large&plan=file,file,=end"))
        server.count()
        client.head()
        with server.connect() as other:
            assert other.ask("GET", "/").body == b"hello"
        body = b"".join(iter(client.chunk, b""))
        assert len(body) == 60_000_003 and body.endswith(b"end")
        assert client.ask("GET", "/").body == b"hello"


def test_no_descriptor_is_left_open(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO)
    (server.folder / "large").write_bytes(DATA)

    def opened() -> int:
        folder = f"/proc/{server.serving_pid}/fd"
        return sum(
            os.readlink(f"{folder}/{fd}").endswith("large") for fd in os.listdir(folder) if fd.isdigit()
        )

    with server.connect() as client:
        for _ in range(5):
            assert client.ask("GET", "/zerocopy?path=large&plan=file,file").body == DATA + DATA
        assert until(lambda: opened() == 0)


#: What `send` says of each wrong span.
WRONG = {
    "span-first": "RuntimeError: `http.response.zerocopysend` was sent before `http.response.start`",
    "span-none": "ValueError: `http.response.zerocopysend` has no `file`",
    "span-bytes": "TypeError: `file` of `http.response.zerocopysend` must be an open file or its",
    "span-memory": "ValueError: `file` of `http.response.zerocopysend` is no open file, but BytesIO: fileno",
    "span-closed": "is no open file, but BufferedRandom: I/O operation on closed file",
    "span-fd": "is no open file, but int: Bad file descriptor (os error 9)",
    "span-negative-fd": "is no open file, but int: the descriptor is -1",
    "span-folder": "`file` of `http.response.zerocopysend` must be a regular file",
    "span-pipe": "`file` of `http.response.zerocopysend` must be a regular file",
    "span-offset": "`offset` of `http.response.zerocopysend` must be an integer from 0 on, not -1",
    "span-offset-text": "must be an integer from 0 on, not '1'",
    "span-count": "`count` of `http.response.zerocopysend` must be an integer from 0 on, not True",
    "span-count-huge": "must be an integer from 0 on, not 9223372036854775808",
    "span-beyond": "asks for 2 bytes from offset 2 on, and the file has 3",
    "span-behind": "asks for 0 bytes from offset 4 on, and the file has 3",
    "span-long": "the body is longer than its Content-Length: 2 bytes are left, and 3 were sent",
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_span_raises_what_is_wrong(server: Milepost, case: str) -> None:
    with server.connect() as client:
        assert client.ask("GET", f"/wrong?case={case}").status == 200
        text = json.loads(client.ask("GET", f"/seen?name={case}").body)[-1]
        assert WRONG[case] in text


def test_a_span_that_is_compressed_is_read_by_another_thread(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO, "--compress", "gzip", "--loop", "asyncio")
    # Nothing that compresses.
    data = random.Random(1).randbytes(8_000_000)
    (server.folder / "large").write_bytes(data)
    # The loop runs on the main thread, which the kernel counts for itself.
    pid = server.serving_pid
    counts = Path(f"/proc/{pid}/task/{pid}/io")

    def read_bytes() -> int:
        return int(counts.read_text().split("rchar: ")[1].split()[0])

    with server.connect() as client:
        # Small first pieces of the file are not read on the loop either.
        target = "/zerocopy?path=large&plan=%3Dhead,file:0:100,file,%3Dtail"
        before = read_bytes()
        reply = client.ask("GET", target, "Accept-Encoding: gzip")
        assert gzip.decompress(reply.body) == b"head" + data[:100] + data + b"tail"
        assert read_bytes() - before < 100_000


def test_a_client_that_reads_nothing_holds_up_a_span_that_is_compressed(
    serve: Callable[..., Milepost],
) -> None:
    server = serve(*ZOO, "--compress", "gzip", "--reply-spool-bytes-max", "1M", "--loop", "asyncio")
    data = random.Random(1).randbytes(30_000_000)
    file = server.folder / "large"
    file.write_bytes(data)
    pid = server.serving_pid
    counts = Path(f"/proc/{pid}/io")

    def read_bytes() -> int:
        return int(counts.read_text().split("rchar: ")[1].split()[0])

    target = "/zerocopy?path=large&plan=%3Dhead,file,%3Dtail"
    with server.connect() as client, server.connect() as gone, server.connect() as other:
        before = read_bytes()
        for one in (client, gone):
            one.send(request("GET", target, "Accept-Encoding: gzip"))
        # What the sockets take, and the bound; then nothing more is read, however often the loop comes to it.
        assert until(lambda: read_bytes() - before > 2_000_000)
        assert until(lambda: len({(other.ask().body, read_bytes())[1] // 60_000 for _ in range(20)}) == 1)
        assert read_bytes() - before < 40_000_000
        gone.sock.close()
        assert gzip.decompress(client.reply().body) == b"head" + data + b"tail"
    server.count()
    server.stop()
    assert "Traceback" not in server.errors
    assert sorted(" end=peer-gone" in line for line in server.lines if "zerocopy" in line) == [False, True]


def test_a_file_that_was_cut_behind_a_compressed_piece_cuts_the_response(
    serve: Callable[..., Milepost],
) -> None:
    server = serve(*ZOO, "--compress", "gzip", "--reply-spool-bytes-max", "64K")
    file = server.folder / "large"
    file.write_bytes(random.Random(1).randbytes(20_000_000))
    with server.connect() as client:
        # The application may be later than this: then it hears that the file is too short.
        target = "/zerocopy?path=large&plan=%3Dhead,file:0:20000000"
        client.send(request("GET", target, "Accept-Encoding: gzip"))
        client.head()
        os.truncate(file, 70_000)
        server.count()
        with pytest.raises(CutShort):
            while client.chunk():
                pass
    with server.connect() as client:
        assert client.ask().body == b"hello"
