"""What `milepost bench` does with connections, as the server sees it: number, end, what is on them."""

from __future__ import annotations

import resource
import ssl
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from benching import OK, Caller, Peer, answering, bench
from serving import COMMAND, DEADLINE_S, Milepost, environment


@pytest.mark.parametrize("mode", ["rst", "fin"])
def test_ends_connections_as_asked(tmp_path: Path, mode: str) -> None:
    arguments = ("--requests-per-connection", "1", "--close", mode)
    with Peer(answering()) as peer:
        done = bench(tmp_path, "-c", "4", "-n", "60", *arguments, peer.url)
        assert Counter(peer.endings()) == {mode: 60}
    assert (done.counts["answered"], done.counts["connections"], done.failures) == (60, 60, {})


def test_leaves_the_close_to_the_server(tmp_path: Path) -> None:
    def talk(caller: Caller) -> None:
        while asked := caller.request():
            last = "connection: close" in asked[0].lower()
            caller.sock.sendall(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") if last else OK)
            if last:
                caller.ended = "closed here"
                return

    with Peer(talk) as peer:
        each = ("--requests-per-connection", "3", "--close", "server")
        done = bench(tmp_path, "-c", "1", "-n", "30", *each, peer.url)
        assert Counter(peer.endings()) == {"closed here": 10}
    assert (done.counts["answered"], done.counts["connections"], done.counts["left_open"]) == (30, 10, 0)


def test_says_that_a_server_left_connections_open(tmp_path: Path) -> None:
    with Peer(answering()) as peer:
        each = ("--requests-per-connection", "1", "--close", "server")
        done = bench(tmp_path, "-c", "2", "-d", "2500ms", *each, peer.url)
    assert done.counts["left_open"] > 0
    assert "left-open" in done.remarks


@pytest.mark.parametrize("each", [1, 3, 10])
def test_puts_so_many_requests_on_a_connection(tmp_path: Path, each: int) -> None:
    with Peer(answering()) as peer:
        done = bench(tmp_path, "-c", "2", "-n", "60", "--requests-per-connection", str(each), peer.url)
        peer.endings()
        assert sorted(caller.requests for caller in peer.callers)[len(peer.callers) // 2] == each
        assert max(caller.requests for caller in peer.callers) == each
        assert peer.requests == 60
    assert done.counts["answered"] == 60


def test_keeps_connections_without_a_number(tmp_path: Path) -> None:
    with Peer(answering()) as peer:
        done = bench(tmp_path, "-c", "3", "-n", "90", peer.url)
        assert len(peer.endings()) == 3
    assert done.counts["connections"] == 3


def test_opens_what_the_server_ended_between_two_requests(tmp_path: Path) -> None:
    """An end between requests is no failure, and is counted by itself."""

    def talk(caller: Caller) -> None:
        if caller.request():
            caller.sock.sendall(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))

    with Peer(talk) as peer:
        done = bench(tmp_path, "-c", "1", "-n", "10", peer.url)
        assert peer.requests == 10
    assert (done.counts["answered"], done.failures, done.counts["connections"]) == (10, {}, 10)


def test_pipelines_as_deep_as_asked(tmp_path: Path) -> None:
    """No reply leaves before four requests have come: at a lesser depth this would never end."""

    def talk(caller: Caller) -> None:
        while all(caller.request() for _ in range(4)):
            caller.sock.sendall(OK * 4)

    with Peer(talk) as peer:
        done = bench(tmp_path, "-c", "1", "-n", "40", "--pipeline", "4", "--timeout", "30s", peer.url)
        assert peer.requests == 40
    assert (done.counts["answered"], done.counts["connections"]) == (40, 1)


def test_a_burst_waits_for_all_connections(tmp_path: Path) -> None:
    """Nobody is answered before every connection has sent, and all were open before the first one did."""
    together = threading.Barrier(20)
    open_then: list[int] = []

    def talk(caller: Caller) -> None:
        while caller.request():
            open_then.append(len(peer.callers))
            together.wait(DEADLINE_S)
            caller.sock.sendall(OK)

    with Peer(talk) as peer:
        done = bench(tmp_path, "-c", "20", "--burst", peer.url)
        assert peer.requests == 20
    assert done.counts["answered"] == 20
    assert done.run["asked"]["load"] == "burst"
    assert len(open_then) == 20


def test_connects_from_several_addresses(tmp_path: Path) -> None:
    with Peer(answering()) as peer:
        sources = ("--source", "127.0.0.2-127.0.0.4,127.0.1.1")
        bench(tmp_path, "-c", "8", "-n", "80", *sources, peer.url)
        peer.endings()
        seen = Counter(caller.address[0] for caller in peer.callers)
    assert seen == {"127.0.0.2": 2, "127.0.0.3": 2, "127.0.0.4": 2, "127.0.1.1": 2}


def test_speaks_through_a_unix_socket(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    (tmp_path / "index.html").write_text("x")
    path = tmp_path / "s"
    server = serve("--static", f"/={tmp_path}", bind=f"unix:{path}")
    done = bench(tmp_path, "-c", "2", "-n", "40", "--unix", str(path), "http://shop/")
    server.count(40)
    assert (done.counts["answered"], done.failures) == (40, {})


def test_makes_tables_of_descriptors_where_one_is_too_small(tmp_path: Path) -> None:
    with Peer(answering()) as peer:
        done = limited(tmp_path, 200, "-c", "300", "-n", "600", "--connect-rate", "2000", peer.url)
    assert done.returncode == 0, done
    assert "600 answered" in done.stdout and "descriptors" in done.stdout


def test_too_many_connections_for_the_descriptors_have_a_remedy(tmp_path: Path) -> None:
    with Peer(answering()) as peer:
        done = limited(tmp_path, 200, "-c", "60000", "-n", "10", peer.url)
        assert peer.callers == []
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("milepost: ") and "200" in done.stderr
    assert "hint: `ulimit -n" in done.stderr


def limited(folder: Path, descriptors: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command with so many descriptors at most."""
    return subprocess.run(
        [str(COMMAND), "bench", *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors)),
    )


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 with its key, in one file."""
    folder = tmp_path_factory.mktemp("certificate")
    made = folder / "both.pem"
    subject = ("-subj", "/CN=shop", "-addext", "subjectAltName=IP:127.0.0.1,DNS:shop.test")
    # Of itself openssl makes one that may sign others, which strict clients do not take from a server.
    end = ("-addext", "basicConstraints=critical,CA:FALSE")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(made))
    try:
        subprocess.run(
            ["openssl", "req", "-x509", *key, "-out", str(folder / "cert.pem"), *subject, *end, "-days", "2"],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    made.write_bytes(made.read_bytes() + (folder / "cert.pem").read_bytes())
    return made


def secret(certificate: Path) -> ssl.SSLContext:
    """What a TLS server needs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("resumption", [(), ("--no-resumption",)], ids=["resumed", "full"])
def test_tls_sessions_are_resumed_unless_forbidden(
    tmp_path: Path, certificate: Path, resumption: tuple[str, ...], version: ssl.TLSVersion
) -> None:
    reused: list[bool] = []

    def talk(caller: Caller) -> None:
        reused.append(bool(caller.sock.session_reused))  # type: ignore[attr-defined]
        answering()(caller)

    context = secret(certificate)
    context.maximum_version = version
    with Peer(talk, context) as peer:
        trust = ("--cacert", str(certificate), *resumption)
        done = bench(tmp_path, "-c", "1", "-n", "20", "--requests-per-connection", "1", *trust, peer.url)
    assert (done.counts["answered"], done.failures, len(reused)) == (20, {}, 20)
    assert done.counts["resumed"] == sum(reused) == (0 if resumption else 19)


def test_tls_keeps_connections_and_pipelines(tmp_path: Path, certificate: Path) -> None:
    with Peer(answering(), secret(certificate)) as peer:
        done = bench(tmp_path, "-c", "3", "-n", "90", "--pipeline", "3", "--insecure", peer.url)
        assert len(peer.endings()) == 3
    assert (done.counts["answered"], done.counts["connections"]) == (90, 3)


def test_tls_refuses_a_certificate_that_nobody_vouches_for(tmp_path: Path, certificate: Path) -> None:
    with Peer(answering(), secret(certificate)) as peer:
        name = ("--cacert", str(certificate), "--server-name", "other.test")
        done = bench(tmp_path, "-c", "1", "-n", "3", *name, peer.url, code=2)
        assert peer.requests == 0
    assert done.failures == {"connect": 3}
