"""What nobody should send, on files and on bodies: each has its status, and none leaves anything behind."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raw import Client, chunked, request
from serving import APPS, Milepost, until

TEXT = b"0123456789" * 10
BIG = random.Random(2).randbytes(300_000)
# A sibling may hold anything; this one really is the text, compressed.
PACKED = gzip.compress(TEXT * 30, 1, mtime=0)
POST = b"POST /body HTTP/1.1\r\nHost: a\r\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is served, what is beside it, and the folder of spooled bodies."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "spool").mkdir()
    (folder / "secret.txt").write_text("secret")
    (folder / "beside").mkdir()
    (folder / "beside" / "secret.txt").write_text("secret")
    www = folder / "www"
    (www / "sub").mkdir(parents=True)
    (www / "a.txt").write_bytes(TEXT)
    (www / "big.bin").write_bytes(BIG)
    (www / "sub" / "b.txt").write_bytes(b"b")
    (www / "c.txt").write_bytes(TEXT * 30)
    (www / "c.txt.gz").write_bytes(PACKED)
    (www / "link").symlink_to("../secret.txt")
    (www / "link-folder").symlink_to("../beside")
    (www / "link-absolute").symlink_to(folder / "secret.txt")
    (www / "link-magic").symlink_to("/proc/self/root")
    (www / "link-loop").symlink_to("link-loop")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Milepost]:
    """An application and a folder; bodies over 4 KB are spooled."""
    with Milepost(
        folder,
        *("zoo:app", "--app-dir", str(APPS), "--threads", "2:2", "--static", "/files=www"),
        *("--body-memory-max", "4K", "--spool-dir", "spool", "--status-path", "/-/status"),
        *("--log-flush", "10ms"),
    ) as server:
        yield server


@pytest.fixture
def client(server: Milepost) -> Iterator[Client]:
    with server.connect() as client:
        yield client


# Ranges


def comma(count: int, spec: Callable[[int], str]) -> str:
    return ",".join(map(spec, range(count)))


# Of a hundred bytes: what of them is sent, or nothing for 416.
RANGES = {
    "overlapping": ("0-50,10-60,5-5", 206, TEXT[:61]),
    "the same again and again": (comma(32, lambda n: "3-9"), 206, TEXT[3:10]),
    "all of it twice": ("0-,0-", 206, TEXT),
    "touching": ("10-19,0-9", 206, TEXT[:20]),
    "reversed": ("5-1", 200, TEXT),
    "one of two reversed": ("0-1,5-3", 200, TEXT),
    "a thousand single bytes": (comma(1000, lambda n: f"{n % 100}-{n % 100}"), 200, TEXT),
    "a thousand times everything": (comma(1000, lambda n: "0-"), 200, TEXT),
    "a thousand times nothing": ("," * 1000, 200, TEXT),
    "a thousand outside": (comma(1000, lambda n: f"{n + 100}-"), 200, TEXT),
    "an end that overflows": ("0-99999999999999999999999", 206, TEXT),
    "a start that overflows": ("99999999999999999999999-", 416, b""),
    "a suffix that overflows": ("-99999999999999999999999", 206, TEXT),
    "outside": ("100-,200-300", 416, b""),
    "an empty suffix": ("-0", 416, b""),
}


@pytest.mark.parametrize("name", RANGES)
def test_odd_ranges_have_their_status(client: Client, name: str) -> None:
    spec, status, sent = RANGES[name]
    reply = client.ask("GET", "/files/a.txt", f"Range: bytes={spec}")
    assert reply.status == status
    if status == 416:
        assert reply.header("content-range") == "bytes */100"
    else:
        assert reply.body == sent
    assert client.ask("GET", "/hello").status == 200


def test_ranges_cannot_ask_for_more_than_the_file_has(client: Client) -> None:
    for shift in range(5):
        spec = comma(
            32, lambda n, shift=shift: f"{n * 9_000 % 290_000}-{n * 9_000 % 290_000 + 9_999 + shift}"
        )
        reply = client.ask("GET", "/files/big.bin", f"Range: bytes={spec}")
        assert reply.status == 206
        assert len(reply.body) < len(BIG) + 32 * 200


GZIP = "Accept-Encoding: gzip"


@pytest.mark.parametrize(
    ("fields", "status", "body"),
    [
        (["Range: bytes=10-19"], 206, PACKED[10:20]),
        (["Range: bytes=-5"], 206, PACKED[-5:]),
        (["Range: bytes=0-0,5-6"], 200, PACKED),
        (["Range: bytes=7-3"], 200, PACKED),
        ([f"Range: bytes={len(PACKED)}-"], 416, None),
        (["Range: bytes=10-19", "If-Range: {plain}"], 200, PACKED),
        (["Range: bytes=10-19", "If-Range: {packed}"], 206, PACKED[10:20]),
        (["Range: bytes=10-19", "If-Range: W/{packed}"], 200, PACKED),
        (["Range: bytes=10-19", "If-Match: {plain}"], 412, None),
    ],
)
def test_ranges_of_a_compressed_variant_are_of_its_own_bytes(
    client: Client, fields: list[str], status: int, body: bytes | None
) -> None:
    plain = client.ask("GET", "/files/c.txt").header("etag")
    packed = client.ask("GET", "/files/c.txt", GZIP).header("etag")
    assert plain != packed
    fields = [field.format(plain=plain, packed=packed) for field in fields]
    reply = client.ask("GET", "/files/c.txt", GZIP, *fields)
    assert reply.status == status
    if body is None:
        assert reply.header("content-range") == (f"bytes */{len(PACKED)}" if status == 416 else None)
        return
    assert (reply.header("content-encoding"), reply.header("etag"), reply.body) == ("gzip", packed, body)
    if status == 206:
        assert reply.header("content-range").endswith(f"/{len(PACKED)}")


# Paths


PATHS = {
    "dots": (404, "/files/../secret.txt"),
    "dots behind a folder": (404, "/files/sub/../../secret.txt"),
    "dots inside": (404, "/files/sub/../a.txt"),
    "many dots": (400, "/files/" + "../" * 30 + "etc/passwd"),
    "encoded dots": (404, "/files/%2e%2e/secret.txt"),
    "half encoded dots": (404, "/files/.%2E/secret.txt"),
    "twice encoded dots": (404, "/files/%252e%252e/secret.txt"),
    "overlong dots": (404, "/files/%c0%ae%c0%ae/secret.txt"),
    "encoded slash": (404, "/files/sub%2fb.txt"),
    "encoded slash and dots": (404, "/files/..%2fsecret.txt"),
    "encoded backslash": (404, "/files/..%5csecret.txt"),
    "all encoded": (404, "/files/%2e%2e%2fsecret.txt"),
    "absolute": (404, "/files//etc/passwd"),
    "encoded absolute": (404, "/files/%2fetc%2fpasswd"),
    "nul behind a name": (404, "/files/a.txt%00"),
    "nul before an ending": (404, "/files/a.txt%00.html"),
    "nul alone": (404, "/files/%00"),
    "raw nul": (400, "/files/a.txt\0"),
    "bare percent": (400, "/files/a.txt%"),
    "half an escape": (400, "/files/a.txt%0"),
    "escape of other letters": (400, "/files/%zz"),
    "escape of a code point": (400, "/files/%u002e%u002e/secret.txt"),
    "raw backslash": (400, "/files/..\\secret.txt"),
    "raw double quote": (400, '/files/"a.txt"'),
    "raw angle brackets": (400, "/files/<a.txt>"),
    "file as a folder": (404, "/files/a.txt/"),
    "long name": (404, "/files/" + "n" * 300),
    "symlink": (404, "/files/link"),
    "symlink of a folder": (404, "/files/link-folder/secret.txt"),
    "symlink that is absolute": (404, "/files/link-absolute"),
    "symlink of the root": (404, "/files/link-magic/etc/passwd"),
    "symlink in a circle": (404, "/files/link-loop"),
}


@pytest.mark.parametrize("name", PATHS)
def test_no_path_leads_out_of_the_folder(server: Milepost, name: str) -> None:
    status, target = PATHS[name]
    for method in ("GET", "HEAD"):
        with server.connect() as client:
            reply = client.ask(method, target)
            assert reply.status == status
            assert b"secret" not in reply.body and b"root:" not in reply.body


# Bodies


def lines_of(server: Milepost, what: str) -> list[str]:
    """Lines of the access log with `what` in them, once there is one."""
    assert until(lambda: any(what in line for line in server.lines)), f"no line of {what}"
    return [line for line in server.lines if what in line]


EARLY = {
    "in memory": POST + b"Content-Length: 1000\r\n\r\n" + b"x" * 999,
    "in a file": POST + b"Content-Length: 100000\r\n\r\n" + b"x" * 50_000,
    "before any byte": POST + b"Content-Length: 5\r\n\r\n",
    "in a chunk": POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n123",
    "before the last chunk": POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
    "in a chunk in a file": POST + b"Transfer-Encoding: chunked\r\n\r\nfffff\r\n" + b"x" * 20_000,
}


def close(client: Client) -> None:
    """An orderly end of both sides."""
    client.sock.close()


def half_close(client: Client) -> None:
    """An end of the client's side alone; nothing more comes from the server."""
    client.sock.shutdown(socket.SHUT_WR)
    assert client.is_closed()
    client.sock.close()


def reset(client: Client) -> None:
    """An end as of a client that crashed."""
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.sock.close()


@pytest.mark.parametrize("end", [close, half_close, reset])
@pytest.mark.parametrize("name", EARLY)
def test_an_upload_that_ends_early_never_reaches_the_application(
    server: Milepost, name: str, end: Callable[[Client], None]
) -> None:
    data = EARLY[name].replace(
        b"POST /body ", b"POST /body?%s-%s " % (name.replace(" ", "-").encode(), end.__name__.encode())
    )
    client = server.connect()
    client.send(data)
    end(client)
    server.count()
    (line,) = lines_of(server, f"{name.replace(' ', '-')}-{end.__name__} ")
    assert '" - 0 ' in line and "end=peer-gone" in line


def test_a_client_that_half_closes_gets_what_it_asked_for(server: Milepost) -> None:
    for ask, bytes_ in (
        (request("GET", "/hello"), 5),
        (request("GET", "/files/a.txt"), len(TEXT)),
        (request("GET", "/files/big.bin"), len(BIG)),
        (request("GET", "/large?bytes=3000000"), 3_000_000),
        (request("POST", "/echo", body=b"x" * 200_000), 200_000),
        (request("POST", "/echo", "Transfer-Encoding: chunked") + chunked(b"x" * 50_000), 50_000),
    ):
        with server.connect() as client:
            client.send(ask)
            client.sock.shutdown(socket.SHUT_WR)
            assert len(client.reply().body) == bytes_
            assert client.is_closed()
    with server.connect() as client:
        client.send(request("GET", "/hello") * 3)
        client.sock.shutdown(socket.SHUT_WR)
        assert [client.reply().body for _ in range(3)] == [b"hello"] * 3
        assert client.is_closed()


def test_half_a_head_and_a_half_close_are_an_end_without_a_reply(server: Milepost) -> None:
    with server.connect() as client:
        client.send(b"GET /hello?half-a-head HTTP/1.1\r\nHo")
        client.sock.shutdown(socket.SHUT_WR)
        assert client.is_closed()
    server.count()
    (line,) = lines_of(server, "half-a-head")
    assert '" - 0 ' in line and "end=peer-gone" in line


def test_a_length_that_is_too_short_leaves_a_broken_request_behind(server: Milepost) -> None:
    with server.connect() as client:
        client.send(POST + b"Content-Length: 5\r\n\r\n12345 and more\r\n\r\n")
        first, second = client.reply(), client.reply()
        assert (first.status, json.loads(first.body)["bytes"]) == (200, 5)
        assert (second.status, second.closes) == (400, True)
        assert client.is_closed()


def test_a_length_that_is_too_long_waits_for_the_rest_and_then_gives_up(
    serve: Callable[..., Milepost],
) -> None:
    server = serve("zoo:app", "--body-timeout", "200ms")
    for length in (6, 1000, 1_000_000):
        with server.connect() as client:
            client.send(POST + b"Content-Length: %d\r\n\r\n12345" % length)
            reply = client.reply()
            assert (reply.status, reply.closes) == (408, True)
            assert client.is_closed()
    assert server.stop() == 0
    assert all('cause="body stopped coming"' in line for line in server.lines)


LENGTHS = {
    "negative": b"Content-Length: -5\r\n\r\n",
    "several": b"Content-Length: 5\r\nContent-Length: 7\r\n\r\n12345",
    "several alike": b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n12345",
    "a list": b"Content-Length: 5, 5\r\n\r\n12345",
    "with chunks": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "behind chunks": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "no number": b"Content-Length: five\r\n\r\n12345",
    "overflowing": b"Content-Length: 18446744073709551616\r\n\r\n12345",
}


@pytest.mark.parametrize("path", ["/body", "/files/a.txt"])
@pytest.mark.parametrize("name", LENGTHS)
def test_a_length_that_lies_is_refused(server: Milepost, name: str, path: str) -> None:
    with server.connect() as client:
        client.send(POST.replace(b"/body", path.encode()) + LENGTHS[name] + request("GET", "/hello"))
        reply = client.reply()
        assert (reply.status, reply.closes) == (400, True)
        assert client.is_closed()


# What is left behind


class Footprint:
    """What a server holds, as the kernel and the server itself tell it."""

    def __init__(self, server: Milepost, watcher: Client, spool: Path) -> None:
        process = Path("/proc") / str(server.serving_pid)
        self.descriptors = Counter(filter(None, map(link, (process / "fd").iterdir())))
        self.threads = Counter((task / "comm").read_text().strip() for task in (process / "task").iterdir())
        self.spooled = sorted(os.listdir(spool))
        self.deleted = [name for name in self.descriptors if name.endswith("(deleted)")]
        status = json.loads(watcher.ask("GET", "/-/status").body)
        self.connections = Counter(*(driver["connections"] for driver in status["drivers"][:1]))
        for driver in status["drivers"][1:]:
            self.connections.update(driver["connections"])
        self.waiting = (status["waiting"], status["pool"]["waiting"], status["pool"]["running"])
        found = re.search(r"VmRSS:\s*(\d+) kB", (process / "status").read_text())
        self.resident_bytes = int(found[1]) << 10

    def held(self) -> tuple[object, ...]:
        """Everything that must come back to what it was."""
        return (
            self.descriptors,
            self.threads,
            self.spooled,
            self.deleted,
            self.connections,
            self.waiting,
        )


def link(path: Path) -> str | None:
    """What a descriptor is, without the number that tells one socket from the next; it may be gone."""
    try:
        return re.sub(r"^(socket|pipe):\[\d+\]", r"\1", os.readlink(path))
    except OSError:
        return None


def expect(*statuses: int) -> Callable[[Client], None]:
    """Reads a reply for each status; then the client leaves."""

    def read(client: Client) -> None:
        assert tuple(client.reply().status for _ in statuses) == statuses

    return read


def expect_the_end(*statuses: int) -> Callable[[Client], None]:
    """The same, and then the server closes."""

    def read(client: Client) -> None:
        expect(*statuses)(client)
        assert client.is_closed()

    return read


def gone(end: Callable[[Client], None]) -> Callable[[Client], None]:
    """The client goes without having read anything; there is a line all the same."""

    def leave(client: Client) -> None:
        end(client)
        client.count()

    return leave


def kinds() -> list[tuple[bytes, Callable[[Client], None], int]]:
    """All kinds of bad input: what is sent, what becomes of it, and how many requests it is."""
    ranges = [
        (request("GET", "/files/a.txt", f"Range: bytes={spec}"), status)
        for spec, status, _ in RANGES.values()
    ]
    variants = [
        (request("GET", "/files/c.txt", GZIP, f"Range: bytes={spec}"), status)
        for spec, status in (("0-5", 206), ("0-1,4-5", 200), ("9-5", 200), ("99999-", 416))
    ]
    large = [(request("GET", "/files/big.bin", "Range: bytes=0-70000,80000-290000"), 206)]
    paths = [(request("GET", target), status) for status, target in PATHS.values() if status == 404]
    pipelined = [*ranges, *variants, *large, *paths]
    many = (
        b"".join(data for data, _ in pipelined),
        expect(*(status for _, status in pipelined)),
        len(pipelined),
    )
    lies = [(POST + data + request("GET", "/hello"), expect_the_end(400), 1) for data in LENGTHS.values()]
    uploads = [(data, gone(end), 1) for data in EARLY.values() for end in (close, half_close, reset)]
    short = (POST + b"Content-Length: 5\r\n\r\n12345 and more\r\n\r\n", expect_the_end(200, 400), 2)
    half = [
        (b"GET /hello HTTP/1.1\r\nHo", gone(half_close), 1),
        (b"GET /files/a.txt\0 HTTP/1.1\r\nHost: a\r\n\r\n", expect_the_end(400), 1),
        # Leaving in the middle of what is far too large to have been taken.
        (request("GET", "/large?bytes=9000000"), gone(close), 1),
        (request("GET", "/large?bytes=9000000"), gone(leave_midway), 1),
        (request("POST", "/echo", body=bytes(900_000)), gone(leave_midway), 1),
        (request("GET", "/files/big.bin") * 40, leave_midway, 1),
    ]
    return [many, *lies, *uploads, short, *half]


def leave_midway(client: Client) -> None:
    """Reads a little of the first reply."""
    client.head()
    client.sock.close()


def test_ten_thousand_of_them_leave_nothing_behind(serve: Callable[..., Milepost], folder: Path) -> None:
    spool = folder / "spool"
    server = serve(
        *("zoo:app", "--threads", "2:2", "--static", f"/files={folder / 'www'}", "--drivers", "1"),
        *("--body-memory-max", "4K", "--spool-dir", str(spool), "--status-path", "/-/status"),
        *("--reply-memory-max", "1M", "--access-log-format", "json"),
    )
    every = kinds()
    watcher = server.connect()

    def send_all(rounds: int) -> int:
        sent = 0
        for _ in range(rounds):
            for data, read, requests in every:
                with server.connect() as client:
                    client.send(data)
                    read(client)
                sent += requests
        return sent

    # Once before: what is kept on purpose (open files, buffers, arenas) is there then.
    send_all(2)
    before = settled(server, watcher, spool, None)
    sent: list[int] = []
    threads = [threading.Thread(target=lambda: sent.append(send_all(40))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sent) == 4, "a thread has failed"
    assert sum(sent) >= 10_000
    after = settled(server, watcher, spool, before)
    assert after.held() == before.held()
    assert after.deleted == []
    # The allocator keeps what three objects of 9 MB took: one for each worker, and one that is let go of.
    assert after.resident_bytes < before.resident_bytes + (32 << 20)
    watcher.sock.close()
    # Everything has exactly one line; how many of the forty files were begun only those can tell.
    assert server.stop() == 0
    lines = [json.loads(line) for line in server.lines]
    server.count(sum(line["target"] == "/files/big.bin" and line["status"] != 206 for line in lines))


def settled(server: Milepost, watcher: Client, spool: Path, like: Footprint | None) -> Footprint:
    """The footprint once nothing is under way; like another one, if that comes."""
    found = [Footprint(server, watcher, spool)]

    def is_quiet() -> bool:
        found[0] = Footprint(server, watcher, spool)
        if like is not None:
            return found[0].held() == like.held()
        connections = found[0].connections
        return sum(connections.values()) == connections["idle"] == 1 and not found[0].deleted

    until(is_quiet)
    return found[0]
