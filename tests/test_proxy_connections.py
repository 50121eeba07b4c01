"""Connections to upstreams: TLS with its certificates, PROXY protocol headers, and idle ones."""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from http2_upstreams import Http2Peer, over_http2
from upstreams import Connection, Request, Upstream, answering

from certificates import Authority
from raw import CutShort, request
from serving import COMMAND, Milepost, environment, tables, until

UPGRADE = ("Connection: Upgrade", "Upgrade: echo/1")
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo/1\r\n\r\n"


def toml_for(url: str, **options: object) -> str:
    """A configuration that passes everything on to this server."""
    toml = tables("route", {"path": "/", "upstream": "back"})
    return toml + tables("upstream", {"name": "back", "servers": [url]} | options)


def context_of(authority: Authority, *names: str, **life: object) -> ssl.SSLContext:
    """A server's side with a certificate for these names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.ca.issue_cert(*names, **life).configure_cert(context)  # type: ignore[arg-type]
    return context


def secured(context: ssl.SSLContext, serve: Callable[[Connection], None]) -> Callable[[Connection], None]:
    """The same connections under TLS; those whose handshake fails are over."""

    def serve_one(connection: Connection) -> None:
        try:
            connection.sock = context.wrap_socket(connection.sock, server_side=True)
        except (ssl.SSLError, OSError):
            return
        with contextlib.suppress(ssl.SSLError):
            serve(connection)

    return serve_one


def url_of(upstream: Upstream) -> str:
    return upstream.url.replace("http:", "https:")


def echo_body(connection: Connection, asked: Request) -> None:
    connection.reply(asked.body or b"hello")


def test_a_server_is_known_by_its_certificate(serve: Callable[..., Milepost], authority: Authority) -> None:
    context, asked = context_of(authority, "shop.internal"), []
    context.sni_callback = lambda _sock, name, _context: asked.append(name)
    body = os.urandom(3_000_000)
    with Upstream(secured(context, answering(echo_body))) as upstream:
        options = {"tls_ca": str(authority.pem), "tls_name": "shop.internal"}
        with serve(toml=toml_for(url_of(upstream), **options)).connect() as client:
            assert client.ask("GET", "/").body == b"hello"
            assert client.ask("POST", "/", body=body).body == body
            assert client.ask("GET", "/").body == b"hello"
        assert upstream.connections == 1
        assert asked == ["shop.internal"]


def test_an_address_may_be_what_a_certificate_is_for(
    serve: Callable[..., Milepost], authority: Authority
) -> None:
    with Upstream(secured(context_of(authority, "127.0.0.1"), answering(echo_body))) as upstream:
        server = serve(toml=toml_for(url_of(upstream), tls_ca=str(authority.pem)))
        with server.connect() as client:
            assert client.ask("GET", "/").body == b"hello"


LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
FAULTS = {
    "issuer": "unknown issuer",
    "name": "for another name",
    "time": "has expired",
    "plain": "TLS handshake with the upstream failed",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_with_a_server_is_said(
    serve: Callable[..., Milepost], authority: Authority, tmp_path: Path, fault: str
) -> None:
    name = "other.example" if fault == "name" else "127.0.0.1"
    life = {"not_before": LONG_AGO, "not_after": LONG_AGO + datetime.timedelta(days=9)}
    own = context_of(authority, name, **(life if fault == "time" else {}))
    trusted = authority.pem
    if fault == "issuer":
        (tmp_path / "others").mkdir()
        trusted = Authority(tmp_path / "others").pem
    seen: list[Request] = []

    def plain(connection: Connection) -> None:
        connection.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        connection.sock.recv(1 << 16)

    respond = answering(lambda one, asked: seen.append(asked) or one.reply())
    with Upstream(plain if fault == "plain" else secured(own, respond)) as upstream:
        server = serve(toml=toml_for(url_of(upstream), tls_ca=str(trusted)))
        with server.connect() as client:
            assert client.ask("POST", "/", body=b"secret").status == 502
        assert until(lambda: FAULTS[fault] in server.errors), server.errors
        assert until(lambda: any(FAULTS[fault] in line for line in server.lines))
        assert not seen


def test_nothing_is_verified_where_that_is_asked_for(
    serve: Callable[..., Milepost], authority: Authority
) -> None:
    with Upstream(secured(context_of(authority, "x"), answering(echo_body))) as upstream:
        server = serve(toml=toml_for(url_of(upstream), tls_verify=False))
        with server.connect() as client:
            assert client.ask("GET", "/").body == b"hello"


def test_a_server_may_ask_for_a_certificate(serve: Callable[..., Milepost], authority: Authority) -> None:
    context = context_of(authority, "127.0.0.1")
    context.load_verify_locations(authority.pem)
    context.verify_mode = ssl.CERT_REQUIRED
    cert, key = authority.pair("proxy", "proxy.internal")
    shown: list[object] = []

    def respond(connection: Connection, asked: Request) -> None:
        shown.append(connection.sock.getpeercert()["subjectAltName"])  # type: ignore[attr-defined]
        connection.reply(b"hello")

    with Upstream(secured(context, answering(respond))) as upstream:
        trusted = {"tls_ca": str(authority.pem)}
        stranger = serve(toml=toml_for(url_of(upstream), **trusted))
        with stranger.connect() as client:
            assert client.ask("GET", "/").status == 502
        assert stranger.stop() == 0
        own = {"tls_cert": str(cert), "tls_key": str(key)}
        with serve(toml=toml_for(url_of(upstream), **trusted, **own), log="own.log").connect() as client:
            assert client.ask("GET", "/").body == b"hello"
        assert shown == [(("DNS", "proxy.internal"),)]


def test_sessions_are_resumed(serve: Callable[..., Milepost], authority: Authority) -> None:
    resumed: list[bool] = []

    def once(connection: Connection) -> None:
        resumed.append(connection.sock.session_reused)  # type: ignore[attr-defined]
        connection.request()
        connection.reply(b"hello", "Connection: close")

    with Upstream(secured(context_of(authority, "127.0.0.1"), once)) as upstream:
        server = serve(toml=toml_for(url_of(upstream), tls_ca=str(authority.pem)))
        with server.connect() as client:
            for _ in range(3):
                assert client.ask("GET", "/").body == b"hello"
    assert resumed == [False, True, True]


@pytest.mark.parametrize("is_whole", [True, False])
def test_an_end_without_a_notice_is_a_cut(
    serve: Callable[..., Milepost], authority: Authority, is_whole: bool
) -> None:
    """What ends with its connection is whole under TLS only where the server has said so."""

    def until_close(connection: Connection) -> None:
        connection.request()
        connection.send(b"HTTP/1.1 200 OK\r\n\r\nhello")
        if is_whole:
            connection.sock.unwrap()  # type: ignore[attr-defined]
        else:
            socket.socket(fileno=connection.sock.detach()).close()

    with Upstream(secured(context_of(authority, "127.0.0.1"), until_close)) as upstream:
        server = serve(toml=toml_for(url_of(upstream), tls_ca=str(authority.pem)))
        with server.connect() as client:
            if is_whole:
                assert client.ask("GET", "/").body == b"hello"
            else:
                client.send(request())
                with pytest.raises(CutShort):
                    client.reply()
                server.count()


def test_tunnels_pass_tls(serve: Callable[..., Milepost], authority: Authority) -> None:
    def echo(connection: Connection) -> None:
        connection.request()
        connection.send(SWITCHED)
        while data := connection.sock.recv(1 << 16):
            connection.send(data)
        connection.sock.unwrap()  # type: ignore[attr-defined]

    with Upstream(secured(context_of(authority, "127.0.0.1"), echo)) as upstream:
        server = serve(toml=toml_for(url_of(upstream), tls_ca=str(authority.pem)))
        with server.connect() as client:
            client.send(request("GET", "/", *UPGRADE))
            assert client.head()[0] == 101
            for size in (1, 50_000, 1):
                data = os.urandom(size)
                client.send(data)
                assert client.exactly(size) == data
            client.sock.shutdown(socket.SHUT_WR)
            assert client.is_closed()
            server.count()


BAD_STARTS = {
    "file": ({"tls_ca": "bad.pem"}, "bad.pem"),
}


@pytest.mark.parametrize("bad", BAD_STARTS)
def test_what_cannot_be_served_is_found_at_the_start(tmp_path: Path, bad: str) -> None:
    options, said = BAD_STARTS[bad]
    (tmp_path / "bad.pem").write_text("nothing")
    config = tmp_path / "bad.toml"
    config.write_text(toml_for("https://127.0.0.1:1", **options))
    ran = subprocess.run(
        [str(COMMAND), "serve", "--bind", "127.0.0.1:0", "--config", str(config)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(),
        timeout=60,
        check=False,
    )
    assert ran.returncode != 0
    assert "upstream `back`" in ran.stderr and said in ran.stderr, ran.stderr


SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


def test_each_connection_names_its_client(serve: Callable[..., Milepost]) -> None:
    headers: list[tuple[object, ...]] = []

    def named(connection: Connection) -> None:
        assert connection.exactly(12) == SIGNATURE
        kind, family, length = struct.unpack("!BBH", connection.exactly(4))
        ends = struct.unpack("!4s4sHH", connection.exactly(length)) if length else ()
        headers.append((kind, family, *ends))
        answering(echo_body)(connection)

    with Upstream(named) as upstream:
        server = serve(toml=toml_for(upstream.url, send_proxy=True))
        with server.connect() as one, server.connect() as other:
            for client in (one, other, one):
                assert client.ask("GET", "/").body == b"hello"
            home = socket.inet_aton("127.0.0.1")
            port = one.sock.getpeername()[1]
            ports = [client.sock.getsockname()[1] for client in (one, other, one)]
        assert headers == [(0x21, 0x11, home, home, client, port) for client in ports]
        assert upstream.connections == 3


def test_checks_name_nobody(serve: Callable[..., Milepost]) -> None:
    first: list[bytes] = []

    def named(connection: Connection) -> None:
        first.append(connection.exactly(16))
        answering(echo_body)(connection)

    with Upstream(named) as upstream:
        serve(toml=toml_for(upstream.url, send_proxy=True, check="/health", check_interval="100ms"))
        assert until(lambda: len(upstream.seen) >= 2)
        assert set(first) == {SIGNATURE + b"\x20\0\0\0"}


def test_the_header_stands_in_front_of_tls(serve: Callable[..., Milepost], authority: Authority) -> None:
    def named(connection: Connection) -> None:
        header = b""
        while len(header) < 28:
            header += connection.sock.recv(28 - len(header))
        assert header.startswith(SIGNATURE)
        secured(context_of(authority, "127.0.0.1"), answering(echo_body))(connection)

    with Upstream(named) as upstream:
        options = {"tls_ca": str(authority.pem), "send_proxy": True}
        with serve(toml=toml_for(url_of(upstream), **options)).connect() as client:
            assert client.ask("GET", "/").body == b"hello"


@pytest.mark.parametrize("protocol", ["http1", "http2"])
def test_an_idle_connection_is_closed_while_no_client_is_connected(
    serve: Callable[..., Milepost], protocol: str
) -> None:
    ended = threading.Event()

    def by_http1(connection: Connection) -> None:
        answering(echo_body)(connection)
        ended.set()

    def by_http2(peer: Http2Peer) -> None:
        peer.reply(peer.request(), b"hello")
        try:
            peer.until(lambda: False)
        finally:
            ended.set()

    with Upstream(by_http1 if protocol == "http1" else over_http2(by_http2)) as upstream:
        # Long enough that the driver has found by then that it has no client any more.
        server = serve(toml=toml_for(upstream.url, protocol=protocol, idle_timeout="1500ms"))
        with server.connect() as client:
            assert client.ask("GET", "/", "Connection: close").body == b"hello"
        assert ended.wait(30)
