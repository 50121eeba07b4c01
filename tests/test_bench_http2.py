"""What `milepost bench --http2` does, against milepost, nginx, and servers that speak something else."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benching import Going, Peer, answering, bench
from certificates import Authority
from serving import DEADLINE_S, Milepost, free_port, in_foreground, run
from supervising import Supervised


def static(folder: Path) -> str:
    """A folder with one file of 1,000 bytes, as a mount."""
    (folder / "files").mkdir()
    (folder / "files" / "a.txt").write_text("x" * 1_000)
    return f"/={folder / 'files'}"


def test_speaks_by_prior_knowledge(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    server = serve("--static", static(tmp_path))
    page = tmp_path / "run.html"
    streams = ("--http2", "-c", "2", "--streams", "8", "--expect-length", "1000", "--html", str(page))
    done = bench(tmp_path, "-n", "200", *streams, f"{server.url}/a.txt")
    server.count(200)
    assert (done.counts["answered"], done.failures, done.counts["connections"]) == (200, {}, 2)
    asked = done.run["asked"]
    assert (asked["protocol"], asked["in_flight"]) == ("HTTP/2", 8)
    assert done.counts["streams_max"] >= 8
    said = "2 connections, HTTP/2 with 8 streams each"
    assert said in done.out and said in page.read_text()


def test_speaks_over_tls(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    authority = Authority(tmp_path)
    server = serve("--static", static(tmp_path), *authority.flags("shop", "localhost"))
    url = f"https://localhost:{server.address[1]}/a.txt"
    done = bench(tmp_path, "-n", "200", "--http2", "-c", "2", "-m", "8", "--cacert", str(authority.pem), url)
    server.count(200)
    assert (done.counts["answered"], done.failures, done.counts["connections"]) == (200, {}, 2)


def test_an_application_gets_bodies_and_answers_what_is_expected(
    tmp_path: Path, serve: Callable[..., Milepost]
) -> None:
    server = serve("zoo:app", "--threads", "4:4")
    body = ("--body-size", "300K", "--expect-status", "200", "--expect-body", "same")
    done = bench(tmp_path, "-n", "60", "--http2", "-c", "2", "-m", "6", *body, f"{server.url}/body")
    server.count(60)
    assert (done.counts["answered"], done.failures) == (60, {})
    assert done.counts["sent_bytes"] > 60 * 300 * 1024


def test_a_rate_is_kept_over_streams(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    server = serve("--static", static(tmp_path))
    rate = ("--rate", "500", "-n", "250", "--http2", "-c", "1", "-m", "4")
    done = bench(tmp_path, *rate, f"{server.url}/a.txt")
    server.count(250)
    assert (done.counts["answered"], done.failures, done.counts["connections"]) == (250, {}, 1)
    # Each stream is idle most of the time: what is due goes out when it is due.
    assert done.run["times"]["late"]["count"] >= 1


def test_opens_connections_for_so_many_requests_each(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    server = serve("--static", static(tmp_path))
    each = ("--http2", "-c", "2", "-m", "5", "--requests-per-connection", "5", "--close", "rst")
    done = bench(tmp_path, "-n", "100", *each, f"{server.url}/a.txt")
    server.count(100)
    assert (done.counts["answered"], done.failures, done.counts["connections"]) == (100, {}, 20)


def test_fewer_streams_than_asked_for_are_told(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    server = serve("--static", static(tmp_path), "--http2-streams-max", "3")
    done = bench(tmp_path, "-n", "100", "--http2", "-c", "2", "-m", "50", f"{server.url}/a.txt")
    server.count(100)
    assert (done.counts["answered"], done.failures, done.counts["streams_max"]) == (100, {}, 3)
    assert done.remarks["streams"] == "note"


def test_a_reload_under_load_loses_no_request(tmp_path: Path, supervise: Callable[..., Supervised]) -> None:
    # Without a log: what the end of the run leaves unfinished may have a line or not.
    server = supervise("--processes", "1", log=None)
    load = ("--http2", "-c", "3", "-m", "4", "--close", "fin", "-d", f"{DEADLINE_S}s")
    going = Going(tmp_path, *load, server.url)
    end = time.monotonic() + DEADLINE_S
    for _ in range(2):
        before = server.serving_pid
        server.signal(signal.SIGHUP)
        while time.monotonic() < end and before in [one["pid"] for one in server.processes(None)]:
            pass
    going.process.send_signal(signal.SIGINT)
    done = going.end()
    assert done.counts["answered"] > 0 and done.failures == {}
    assert set(done.counts["goaways"]) == {"NO_ERROR"}


@contextmanager
def nginx(folder: Path, listens: str, more: str = "") -> Iterator[int]:
    """nginx with files of this folder; gives its port."""
    if not shutil.which("nginx"):
        pytest.skip("needs nginx")
    port = free_port()
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"daemon off; pid nginx.pid; error_log stderr; {user} worker_processes 1; events {{}}\n"
        f"http {{ access_log off; {temporary} {more}\n"
        f"server {{ listen 127.0.0.1:{port} {listens}; root {folder}/files; }} }}\n"
    )
    with in_foreground("nginx", "-p", str(folder), "-c", "nginx.conf", port=port, folder=folder):
        yield port


def test_what_a_goaway_left_unprocessed_is_sent_again(tmp_path: Path) -> None:
    """nginx ends each connection after ten requests, whatever else is on its way."""
    static(tmp_path)
    with nginx(tmp_path, "http2", "keepalive_requests 10;") as port:
        streams = ("--http2", "-c", "2", "-m", "8", "--expect-length", "1000")
        done = bench(tmp_path, "-n", "500", *streams, f"http://127.0.0.1:{port}/a.txt")
    assert (done.counts["answered"], done.failures) == (500, {})
    assert done.counts["connections"] >= 50
    assert done.counts["resent"] > 0 and set(done.counts["goaways"]) == {"NO_ERROR"}
    assert "sent again after a GOAWAY" in done.out and "GOAWAY" in done.out


def test_a_server_that_does_not_choose_http2_ends_the_run(tmp_path: Path) -> None:
    static(tmp_path)
    authority = Authority(tmp_path)
    pem, key = authority.pair("shop", "localhost")
    with nginx(tmp_path, "ssl", f"ssl_certificate {pem}; ssl_certificate_key {key};") as port:
        done = run(tmp_path, "bench", "-q", "--http2", "--insecure", f"https://localhost:{port}/")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the server does not choose HTTP/2 (ALPN `h2`)" in done.stderr
    assert "\nhint: " in done.stderr


def test_a_server_of_http1_ends_the_run(tmp_path: Path) -> None:
    with Peer(answering()) as peer:
        done = run(tmp_path, "bench", "-q", "--http2", peer.url)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the server does not answer in HTTP/2" in done.stderr
    assert "\nhint: " in done.stderr


def test_sweeps_over_streams(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    server = serve("--static", static(tmp_path))
    numbers = ("--http2", "-c", "1", "-m", "1,4", "-n", "50", "--repeat", "1")
    done = run(tmp_path, "bench", "sweep", *numbers, f"{server.url}/a.txt")
    server.count(100)
    assert done.returncode == 0, done
    assert "streams" in done.stdout


def test_a_server_that_leaves_at_once_has_a_hint(tmp_path: Path) -> None:
    with Peer(lambda caller: None) as peer:
        done = run(tmp_path, "bench", "-q", "--http2", "-c", "1", "-n", "3", peer.url)
    assert (done.returncode, done.stdout) == (2, "")
    assert "does it speak HTTP/2 without TLS?" in done.stderr
