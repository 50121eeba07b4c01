"""What `milepost bench` says when it goes wrong: each failure has its class, and no request is sent again."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

import pytest

from benching import OK, Caller, Peer, Talk, answering, bench
from serving import run


def resets(caller: Caller) -> None:
    """Reads a request and resets."""
    caller.request()
    caller.reset()


def ends(caller: Caller) -> None:
    """Reads a request and ends the connection in good order, without a byte."""
    caller.request()


def breaks_off(caller: Caller) -> None:
    """Half a body, and the end."""
    caller.request()
    caller.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")


def breaks_off_chunks(caller: Caller) -> None:
    """A chunk, and the end without the last one."""
    caller.request()
    caller.sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")


def babbles(caller: Caller) -> None:
    """What is no HTTP."""
    caller.request()
    caller.sock.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n\r\n")


def is_silent(caller: Caller) -> None:
    """Reads, and answers nothing, until the client goes."""
    while caller.request():
        pass


def stops_in_the_middle(caller: Caller) -> None:
    """Half a reply, and then nothing until the client goes."""
    if caller.request():
        caller.sock.sendall(OK[:-1])
    is_silent(caller)


def replies(text: bytes) -> Talk:
    """Answers with this reply."""
    return answering(text)


GRACE = ("--timeout", "300ms")
FAILURES: list[tuple[str, Talk, tuple[str, ...], str]] = [
    ("reset", resets, (), "reset"),
    ("end without a byte", ends, (), "reset"),
    ("cut body", breaks_off, (), "short"),
    ("cut chunks", breaks_off_chunks, (), "short"),
    ("no http", babbles, (), "short"),
    ("silence", is_silent, GRACE, "timeout"),
    ("stop in the middle", stops_in_the_middle, GRACE, "timeout"),
    ("status", replies(OK.replace(b"200 OK", b"503 Oh")), (), "status"),
    ("unexpected status", replies(OK), ("--expect-status", "204,304"), "status"),
    ("length", replies(OK), ("--expect-length", "3"), "body"),
    ("checksum", replies(OK), ("--expect-body", "sha256:" + "0" * 64), "body"),
]


@pytest.mark.parametrize(
    ("talk", "flags", "why"), [case[1:] for case in FAILURES], ids=[c[0] for c in FAILURES]
)
def test_failures_are_classed_and_not_sent_again(
    tmp_path: Path, talk: Talk, flags: tuple[str, ...], why: str
) -> None:
    with Peer(talk) as peer:
        done = bench(tmp_path, "-c", "2", "-n", "6", *flags, peer.url, code=2)
        peer.endings()
        assert peer.requests == 6
    assert done.failures == {why: 6}
    assert done.counts["answered"] == 0
    assert f"{why} 6" in done.out
    assert done.err.startswith("milepost: ") and "no request was answered as expected" in done.err


def test_a_refused_connection_is_a_failed_connect(tmp_path: Path) -> None:
    # Bound, so that nobody else gets it, and nobody listens.
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        port = kept.getsockname()[1]
        done = bench(tmp_path, "-c", "2", "-n", "5", f"http://127.0.0.1:{port}/", code=2)
    assert done.failures == {"connect": 5}
    assert done.counts["connections"] == 0
    assert "hint: " in done.err


def test_what_succeeds_beside_failures_counts(tmp_path: Path) -> None:
    """Each second reply is wrong: both are counted, and the exit code does not mind."""

    def talk(caller: Caller) -> None:
        while caller.request():
            caller.sock.sendall(OK if caller.requests % 2 else OK.replace(b"200", b"500"))

    with Peer(talk) as peer:
        done = bench(tmp_path, "-c", "1", "-n", "10", peer.url)
        assert peer.requests == 10
    assert (done.counts["answered"], done.failures) == (5, {"status": 5})
    assert done.counts["statuses"] == {"200": 5, "500": 5}


def test_the_right_checksum_is_right(tmp_path: Path) -> None:
    sha256 = hashlib.sha256(b"ok").hexdigest()
    with Peer(answering()) as peer:
        right = ("--expect-body", f"sha256:{sha256}", "--expect-length", "2", "--expect-status", "200")
        done = bench(tmp_path, "-c", "1", "-n", "5", *right, peer.url)
    assert done.counts["answered"] == 5


def test_a_body_that_changes_is_not_the_same(tmp_path: Path) -> None:
    def talk(caller: Caller) -> None:
        while caller.request():
            caller.sock.sendall(OK if caller.requests != 3 else OK.replace(b"ok", b"no"))

    with Peer(talk) as peer:
        done = bench(tmp_path, "-c", "1", "-n", "5", "--expect-body", "same", peer.url)
    assert (done.counts["answered"], done.failures) == (4, {"body": 1})


TARGET = "http://127.0.0.1:9/"
BAD = [
    (["http://8.8.8.8/"], "`8.8.8.8`: is neither loopback nor a private or test address"),
    (["--rate", "5", "http://1.1.1.1/"], "--i-own-this-target"),
    (["ftp://127.0.0.1/"], "`ftp` is not spoken here"),
    (["http://127.0.0.1:99999/"], "expected a port from 1 to 65535, found `99999`"),
    (["--connections", "0", TARGET], "milepost: `--connections`: expected a count"),
    (["--duration", "soon", TARGET], "milepost: `--duration`: expected a time"),
    (["--rate", "5..x", TARGET], "milepost: `--rate`: expected a number"),
    (["--assert", "p99 << 5", TARGET], "`p99 << 5`: is no condition"),
    (["--search", "quick", TARGET], "`quick`: is no condition"),
    (["--body", "a", "--body-size", "5", TARGET], "`--body` and `--body-size`: exclude each other"),
    (["--rate", "5", "--burst", TARGET], "`--rate` and `--burst`: exclude each other"),
    (["--bad-clients", "5:dances", TARGET], "found `5:dances`"),
    (["--close", "maybe", TARGET], "expected one of rst, fin, server"),
    (["https://127.0.0.1:9/"], "it is not said whose certificates are trusted"),
    (["--pipeline", "0", TARGET], "`--pipeline`: expected a count from 1"),
    (["--streams", "4", TARGET], "`--streams`: means nothing without `--http2`"),
    (["--http2", "--pipeline", "4", TARGET], "`--pipeline`: HTTP/2 does not pipeline requests"),
    (["--http2", "--close", "server", "--requests-per-connection", "1", TARGET], "`--close server`"),
    (["--http2", "--bad-clients", "5:idle", TARGET], "the misbehaving clients speak HTTP/1.1 only"),
    (["--http2", "-H", "Upgrade: x", TARGET], "HTTP/2 has no header `Upgrade: x`"),
    (["--source", "127.0.0.300", TARGET], "found `127.0.0.300`"),
    (["--replay", "no.log", TARGET], "`no.log`: no such file"),
    (["--requests-file", "no.toml", TARGET], "`no.toml` cannot be read"),
    (["--expect-body", "md5:1", TARGET], "found `md5:1`"),
    (["--rat", "5", TARGET], "did you mean `--rate`?"),
    ([], "`URL`: is missing"),
    (["run", "no-such-scenario"], "no-such-scenario"),
    (["compare", "no.json"], "no.json"),
]


@pytest.mark.parametrize(("words", "text"), BAD, ids=[" ".join(words) or "nothing" for words, _ in BAD])
def test_bad_input_has_a_clear_answer(tmp_path: Path, words: list[str], text: str) -> None:
    done = run(tmp_path, "bench", *words)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert done.stderr.startswith("milepost: ") and text in done.stderr, done.stderr
    assert "panicked" not in done.stderr


def test_all_faults_are_said_at_once(tmp_path: Path) -> None:
    done = run(tmp_path, "bench", "-c", "none", "-d", "soon", "--close", "maybe", TARGET)
    assert done.returncode == 2
    assert done.stderr.count("milepost: ") == 3


def test_a_name_is_judged_by_its_addresses(tmp_path: Path) -> None:
    """`localhost` is one of this host; of a name that cannot be known nothing is sent."""
    with Peer(answering()) as peer:
        port = peer.url.rsplit(":", 1)[1]
        assert bench(tmp_path, "-n", "3", f"http://localhost:{port}").counts["answered"] == 3
    done = run(tmp_path, "bench", "-n", "1", "http://no-such-name.invalid/")
    assert (done.returncode, done.stdout) == (2, "")
    assert "`no-such-name.invalid`" in done.stderr and "hint: " in done.stderr
