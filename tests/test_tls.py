"""HTTPS: handshakes, requests over TLS, and what clients do that speak it badly or not at all."""

from __future__ import annotations

import hashlib
import json
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from http2 import Http2

from raw import Client, CutShort, request
from serving import DEADLINE_S, Milepost, until
from supervising import Supervised, calling

PATIENCE = ("--queue-target", "10s", "--overload-timeout", "30s")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def files(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The flags of a certificate for `localhost`."""
    folder = tmp_path_factory.mktemp("tls")
    made = authority.issue_cert("localhost")
    made.private_key_pem.write_to_path(folder / "key.pem")
    # A key that others may read is refused.
    (folder / "key.pem").chmod(0o600)
    for part in made.cert_chain_pems:
        part.write_to_path(folder / "cert.pem", append=True)
    return "--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem")


def trusting(authority: trustme.CA, *alpn: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


@pytest.fixture
def server(serve: Callable[..., Milepost], authority: trustme.CA, files: tuple[str, ...]) -> Milepost:
    arguments = ("--threads", "2:2", "--drivers", "1", *PATIENCE)
    return serve("zoo:app", *arguments, *files, tls=trusting(authority))


def plain(server: Milepost) -> socket.socket:
    """A connection on which nothing has begun."""
    sock = socket.create_connection(server.address, DEADLINE_S)
    sock.settimeout(DEADLINE_S)
    return sock


def hello(context: ssl.SSLContext) -> bytes:
    """A ClientHello."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def test_an_address_speaks_https_and_says_so(server: Milepost) -> None:
    assert server.url.startswith("https://127.0.0.1:")
    with server.connect() as client:
        assert client.ask("GET", "/hello").body == b"hello"
        environ = json.loads(client.ask("GET", "/environ", "SSL-Protocol: forged", "HTTPS: off").body)
        assert environ["wsgi.url_scheme"] == "https"
        found = {key: environ[key] for key in environ if key.startswith(("SSL_", "HTTPS"))}
        assert found == {
            "HTTPS": "on",
            "SSL_CLIENT_VERIFY": "NONE",
            "SSL_PROTOCOL": "TLSv1.3",
            "SSL_CIPHER": "TLS13_AES_128_GCM_SHA256",
            "SSL_SESSION_RESUMED": "Initial",
            "SSL_TLS_SNI": "localhost",
        }
    server.stop()
    first, second = (line for line in server.lines if '"GET ' in line)
    assert " tls=1.3 resumed=no handshake=" in first
    assert " tls=" not in second


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_are_spoken(server: Milepost, version: ssl.TLSVersion) -> None:
    assert server.tls
    server.tls.minimum_version = server.tls.maximum_version = version
    with server.connect() as client:
        assert client.sock.version() == {771: "TLSv1.2", 772: "TLSv1.3"}[version]
        assert client.ask("GET", "/hello").body == b"hello"


def test_http_2_and_1_are_agreed_on_and_nothing_else(server: Milepost, authority: trustme.CA) -> None:
    server.tls = trusting(authority, "h9", "http/1.1")
    with server.connect() as client:
        assert client.sock.selected_alpn_protocol() == "http/1.1"
    server.tls = trusting(authority, "http/1.1", "h2")
    with server.connect() as client:
        assert client.sock.selected_alpn_protocol() == "h2"
    server.tls = trusting(authority, "h9")
    with pytest.raises(ssl.SSLError, match="(?i)no.application.protocol"):
        server.connect()
    # Both connections ended without a request.
    assert until(lambda: "failed" in server.errors), server.errors
    assert "TLS handshake with 127.0.0.1 for `localhost` failed" in server.errors


def test_http_2_over_tls_is_as_without_it(server: Milepost, authority: trustme.CA) -> None:
    server.tls = trusting(authority, "h2")
    with Http2(server) as client:
        environ = json.loads(client.ask("/environ").body)
        body = bytes(range(256)) * 20_000
        facts = json.loads(client.post("/body", body).body)
        # More than the socket takes: what is left of the ciphertext leaves in its time.
        streams = [client.begin("/large?bytes=3000000") for _ in range(8)]
        server.count(8)
        large = [client.response(stream) for stream in streams]
    assert (environ["wsgi.url_scheme"], environ["SERVER_PROTOCOL"]) == ("https", "HTTP/2")
    assert (environ["HTTPS"], environ["SSL_PROTOCOL"]) == ("on", "TLSv1.3")
    assert facts["sha256"] == hashlib.sha256(body).hexdigest()
    assert [len(response.body) for response in large] == [3_000_000] * 8
    assert all(response.is_ended for response in large)
    assert server.stop() == 0
    assert all('HTTP/2.0" 200 ' in line for line in server.lines)
    # The handshake is told of once, with the first request.
    assert [" tls=1.3 " in line for line in server.lines] == [True] + [False] * 9, server.lines


def test_a_client_certificate_is_in_the_environ_and_no_header_forges_it(
    serve: Callable[..., Milepost], authority: trustme.CA, files: tuple[str, ...], tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    demand = ("--tls-client-ca", str(tmp_path / "ca.pem"), "--tls-client-auth", "request")
    server = serve("zoo:app", *files, *demand, tls=trusting(authority))
    forged = ("SSL-Client-Verify: SUCCESS", "SSL-Client-S-DN: CN=root")
    with server.connect() as client:
        environ = json.loads(client.ask("GET", "/environ", *forged).body)
    assert environ["SSL_CLIENT_VERIFY"] == "NONE"
    assert "SSL_CLIENT_S_DN" not in environ
    own = authority.issue_cert("ops@shop.example", common_name="ops")
    server.tls = trusting(authority)
    own.configure_cert(server.tls)
    with server.connect() as client:
        environ = json.loads(client.ask("GET", "/environ", *forged).body)
    assert environ["SSL_CLIENT_VERIFY"] == "SUCCESS"
    assert "CN=ops" in environ["SSL_CLIENT_S_DN"]
    assert environ["SSL_CLIENT_CERT"] == own.cert_chain_pems[0].bytes().decode()
    assert int(environ["SSL_CLIENT_M_SERIAL"], 16) > 0


def test_requests_follow_each_other_on_a_connection(server: Milepost) -> None:
    with server.connect() as client:
        for n in range(50):
            assert json.loads(client.ask("POST", f"/body?n={n}", body=b"x" * n).body)["n"] == str(n)
        client.send(b"".join(request("GET", f"/body?n={n}") for n in range(100)))
        for n in range(100):
            assert json.loads(client.reply().body)["n"] == str(n)


def test_bytes_may_come_one_by_one(server: Milepost) -> None:
    """Each in a record of its own."""
    with server.connect() as client:
        for byte in request("POST", "/body?n=7", body=b"abc"):
            client.send(bytes([byte]))
        assert json.loads(client.reply().body)["n"] == "7"


def test_a_handshake_may_come_byte_by_byte(server: Milepost) -> None:
    assert server.tls
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = server.tls.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with plain(server) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def flush() -> None:
            for byte in outgoing.read():
                sock.sendall(bytes([byte]))

        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                flush()
                incoming.write(sock.recv(1))
        flush()
        assert tls.version() == "TLSv1.3"


@pytest.mark.parametrize("bytes_len", [10_000, 100_000, 5_000_000])
def test_bodies_of_all_sizes_pass_both_ways(server: Milepost, bytes_len: int) -> None:
    body = bytes(range(251)) * (bytes_len // 251)
    with server.connect() as client:
        found = json.loads(client.ask("POST", "/body?n=1", body=body).body)
        assert (found["bytes"], found["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
        reply = client.ask("GET", f"/large?bytes={bytes_len}&length=1")
        assert len(reply.body) == bytes_len


def test_files_of_all_sizes(
    serve: Callable[..., Milepost], authority: trustme.CA, files: tuple[str, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    contents = {f"{size}": bytes(range(256)) * (size // 256) for size in (0, 1024, 65536, 1 << 20, 30 << 20)}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    server = serve("--static", f"/={folder}", *files, tls=trusting(authority))
    with server.connect() as client:
        for _ in range(2):
            for name, content in contents.items():
                reply = client.ask("GET", f"/{name}")
                assert hashlib.md5(reply.body).digest() == hashlib.md5(content).digest(), name
        reply = client.ask("GET", f"/{1 << 20}", "Range: bytes=70000-199999")
        assert (reply.status, reply.body) == (206, contents[f"{1 << 20}"][70_000:200_000])


def test_readers_that_never_read_hold_no_worker(server: Milepost) -> None:
    slow = [server.connect(receive_buffer_bytes=4096) for _ in range(20)]
    for client in slow:
        client.send(request("GET", "/large?bytes=4000000"))
    for _ in range(20):
        with server.connect() as client:
            assert client.ask("GET", "/hello").body == b"hello"
    for client in slow:
        client.sock.close()
    server.count(len(slow))


def test_a_slow_reader_gets_all_of_it(server: Milepost) -> None:
    with server.connect(receive_buffer_bytes=4096) as client:
        assert len(client.ask("GET", "/large?bytes=3000000").body) == 3_000_000


def test_silent_and_trickling_clients_hold_up_nobody(server: Milepost) -> None:
    assert server.tls
    first = hello(server.tls)
    silent = [plain(server) for _ in range(60)]
    for number, sock in enumerate(silent):
        sock.sendall(first[: number * 3])
    for _ in range(5):
        with server.connect() as client:
            assert client.ask("GET", "/hello").body == b"hello"
    for sock in silent:
        sock.close()


def test_a_handshake_has_its_time(
    serve: Callable[..., Milepost], authority: trustme.CA, files: tuple[str, ...]
) -> None:
    server = serve(
        "zoo:app",
        *files,
        "--tls-handshake-timeout",
        "2s",
        "--status-path",
        "/status",
        tls=trusting(authority),
    )
    assert server.tls
    with plain(server) as silent, plain(server) as halfway:
        halfway.sendall(hello(server.tls)[:100])
        assert silent.recv(1) == b""
        assert halfway.recv(1) == b""
    with server.connect() as client:
        status = client.ask("GET", "/status").text
    assert '"handshake":2' in status.replace(" ", "")
    assert '"handshakes":1' in status.replace(" ", "")


def test_http_without_tls_gets_an_answer_that_says_so(server: Milepost) -> None:
    with plain(server) as sock:
        sock.sendall(request("GET", "/hello"))
        reply = b""
        while data := sock.recv(1000):
            reply += data
    head, _, body = reply.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert body == b"This address speaks HTTPS: the URL begins with https://\n"
    assert until(lambda: "speaks no TLS on an address that does" in server.errors)


def test_tls_where_it_is_not_spoken_is_closed_and_named(
    serve: Callable[..., Milepost], authority: trustme.CA
) -> None:
    server = serve("zoo:app")
    with plain(server) as sock:
        sock.sendall(hello(trusting(authority)))
        try:
            assert sock.recv(1) == b""
        except ConnectionResetError:
            pass
    assert until(lambda: "speaks TLS on an address without TLS" in server.errors)


def test_bytes_that_are_no_tls_are_closed(server: Milepost) -> None:
    for junk in (b"\x00" * 20, b"\x16\x03\x01\x00\x02\xff\xff", b"\x16\x03\x01\xff\xff" + b"a" * 70_000):
        with plain(server) as sock:
            try:
                sock.sendall(junk)
                while sock.recv(1000):
                    pass
            except ConnectionError:
                pass
    with server.connect() as client:
        assert client.ask("GET", "/hello").body == b"hello"


@pytest.mark.parametrize("is_reset", [False, True])
def test_clients_may_leave_at_any_point(server: Milepost, is_reset: bool) -> None:
    assert server.tls
    first = hello(server.tls)
    for length in (0, 1, 5, 50, len(first)):
        with plain(server) as sock:
            sock.sendall(first[:length])
            leave(sock, is_reset)
    for sent in (b"", request("GET", "/hello")[:20], request("POST", "/body?n=1", "Content-Length: 9")):
        client = server.connect()
        client.send(sent or b"")
        leave(client.sock, is_reset)
        # A request that has begun has a line.
        server.count(1 if sent else 0)
    client = server.connect()
    client.send(request("GET", "/large?bytes=4000000"))
    client.sock.recv(1000)
    leave(client.sock, is_reset)
    server.count()
    with server.connect() as client:
        assert client.ask("GET", "/hello").body == b"hello"


def leave(sock: socket.socket, is_reset: bool) -> None:
    if is_reset:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def test_the_end_of_a_connection_is_said(server: Milepost) -> None:
    """By close_notify: `recv` would raise an error without it."""
    with server.connect() as client:
        assert client.ask("GET", "/hello", "Connection: close").body == b"hello"
        assert client.sock.recv(1) == b""
    with server.connect() as client:
        assert client.ask("GET", "/hello", version="HTTP/1.0").body == b"hello"
        assert client.sock.recv(1) == b""


def test_a_response_that_is_cut_never_looks_complete(server: Milepost) -> None:
    with server.connect() as client:
        client.send(request("GET", "/raises-midway"))
        with pytest.raises((CutShort, ssl.SSLError, ConnectionError)):
            client.reply()
    server.count()


def test_reloads_under_load_lose_nothing(
    supervise: Callable[..., Supervised], authority: trustme.CA, files: tuple[str, ...]
) -> None:
    server = supervise("--processes", "2", *files, tls=trusting(authority))
    with calling(server) as callers:
        for _ in range(3):
            server.done("reload")
    assert not callers.lost, callers.lost
    with server.connect() as client:
        assert client.ask("GET", "/").status == 200


def test_a_proxy_header_comes_before_the_handshake(
    serve: Callable[..., Milepost], authority: trustme.CA, files: tuple[str, ...]
) -> None:
    server = serve("zoo:app", "--proxy-protocol-from", "127.0.0.1", *files, tls=trusting(authority))
    assert server.tls
    for pause in (False, True):
        sock = plain(server)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        header = b"PROXY TCP4 192.0.2.1 192.0.2.2 1000 443\r\n"
        for part in [bytes([byte]) for byte in header] if pause else [header]:
            sock.sendall(part)
        with Client(server.tls.wrap_socket(sock, server_hostname="localhost"), server.count) as client:
            environ = json.loads(client.ask("GET", "/environ").body)
        assert (environ["REMOTE_ADDR"], environ["wsgi.url_scheme"]) == ("192.0.2.1", "https")


def test_sessions_are_resumed(server: Milepost) -> None:
    assert server.tls
    server.tls.maximum_version = ssl.TLSVersion.TLSv1_2
    with server.connect() as client:
        session = client.sock.session
    sock = server.tls.wrap_socket(plain(server), server_hostname="localhost", session=session)
    with Client(sock, server.count) as client:
        assert client.sock.session_reused
        environ = json.loads(client.ask("GET", "/environ").body)
        assert environ["SSL_SESSION_RESUMED"] == "Resumed"


def test_a_certificate_that_is_none_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("no certificate")
    with pytest.raises(
        AssertionError, match="`--tls-cert`: `.*cert.pem`: there is no certificate in PEM in the file"
    ):
        Milepost(
            tmp_path, "zoo:app", "--app-dir", str(Path(__file__).parent / "apps"), "--tls-cert", "cert.pem"
        )
