"""Proxies in front: whose headers are believed, and what applications, logs and rules make of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import pytest
from test_deploy import connect as connect_tls
from test_deploy import nginx
from test_frameworks_django import project  # noqa: F401

from raw import Client, request
from serving import DEADLINE_S, Milepost, free_port, in_foreground, tables, until

FOR, PROTO = "X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https"
FORWARDING = re.compile(r"HTTP_(X_?)?(FORWARDED|REAL_IP).*", re.IGNORECASE)
HOST_PORT_PREFIX = ("--forwarded-headers", "x-forwarded-for,-proto,-host,-port,-prefix")
V2 = b"\r\n\r\n\0\r\nQUIT\n"


def from_address(server: Milepost, source: str) -> Client:
    sock = socket.create_connection(server.address, DEADLINE_S, source_address=(source, 0))
    return Client(sock, server.count)


def environ(client: Client, *headers: str) -> dict[str, str]:
    return json.loads(client.ask("GET", "/environ", *headers).text)


def seen(client: Client, *headers: str) -> list[str]:
    """Scheme, client, host, server's name and port, prefix."""
    got = environ(client, *headers)
    names = ("wsgi.url_scheme", "REMOTE_ADDR", "HTTP_HOST", "SERVER_NAME", "SERVER_PORT", "SCRIPT_NAME")
    return [got[name] for name in names]


@pytest.mark.parametrize(
    ("headers", "scheme", "client"),
    [
        ((), "http", "127.0.0.1"),
        ((FOR, PROTO), "https", "192.0.2.7"),
        ((PROTO,), "https", "127.0.0.1"),
        (("X-Forwarded-For: 203.0.113.9, 192.0.2.7, 127.0.0.9",), "http", "192.0.2.7"),
        (("X-Forwarded-For: 192.0.2.7", "X-Forwarded-For: 2001:db8::1"), "http", "2001:db8::1"),
        (("X-Forwarded-For: [2001:db8::1]:4711",), "http", "2001:db8::1"),
        (("X-Forwarded-For: 192.0.2.7, unknown",), "http", "127.0.0.1"),
        (("X-Forwarded-For: 192.0.2.7" + ", 127.0.0.1" * 40,), "http", "127.0.0.1"),
        (("X-Forwarded-For: ' OR 1=1", "X-Forwarded-Proto: gopher"), "http", "127.0.0.1"),
        # What the default does not believe.
        (("Forwarded: for=192.0.2.7;proto=https",), "http", "127.0.0.1"),
        (("X-Forwarded-Host: evil", "X-Forwarded-Port: 9", "X-Forwarded-Prefix: /x"), "http", "127.0.0.1"),
    ],
)
def test_a_proxy_on_loopback_names_the_client(zoo: Milepost, headers, scheme: str, client: str) -> None:
    host, port = zoo.address
    with zoo.connect() as connection:
        # The second answer comes from what the connection remembers, the last one must not.
        for given in (headers, headers, (), headers):
            expect = [scheme, client] if given else ["http", "127.0.0.1"]
            assert seen(connection, *given) == [*expect, "test", host, str(port), ""]


def test_host_port_and_prefix_count_where_they_are_named(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", *HOST_PORT_PREFIX, "--root-path", "/app")
    host = "X-Forwarded-Host: shop.example"
    for headers, expect in [
        ((PROTO, host), ["https", "shop.example", "shop.example", "443", "/app"]),
        (
            (PROTO, host, "X-Forwarded-Port: 8443"),
            ["https", "shop.example:8443", "shop.example", "8443", "/app"],
        ),
        ((host + ":81",), ["http", "shop.example:81", "shop.example", "81", "/app"]),
        ((PROTO, "X-Forwarded-Port: 443"), ["https", "test", "127.0.0.1", "443", "/app"]),
        (("X-Forwarded-Prefix: /shop/",), ["http", "test", "127.0.0.1", str(server.address[1]), "/shop/app"]),
    ]:
        with server.connect() as client:
            scheme, _, *rest = seen(client, *headers)
            assert [scheme, *rest] == expect, headers


def test_forwarded_counts_alone_where_it_is_named(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", "--forwarded-headers", "forwarded")
    said = "Forwarded: for=203.0.113.9, for=192.0.2.7;proto=https;host=shop.example, for=127.0.0.3"
    with server.connect() as client:
        expect = ["https", "192.0.2.7", "shop.example", "shop.example", "443", ""]
        assert seen(client, said, "X-Forwarded-For: 198.51.100.1") == expect
        assert seen(client, 'Forwarded: for="192.0.2.7')[:2] == ["http", "127.0.0.1"]


def test_strangers_are_neither_believed_nor_passed_on(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", *HOST_PORT_PREFIX, "--trusted-proxies", "127.0.0.9")
    spoofed = (FOR, PROTO, "x-Forwarded-host: evil", "X-Forwarded-Prefix: /evil", "X-Forwarded-Ssl: on")
    spoofed += ("X-Forwarded-Made-Up: 1", "Forwarded: for=192.0.2.7", "X-Real-IP: 192.0.2.7", "X-Other: kept")
    # Frameworks would read these as those above.
    spoofed += ("X_Forwarded_For: 192.0.2.7", "X_Forwarded-Proto: https", "X-Forwarded_Proto: https")
    for _ in range(3):
        with server.connect() as client:
            got = environ(client, *spoofed)
            assert [name for name in got if FORWARDING.fullmatch(name)] == []
            assert (got["wsgi.url_scheme"], got["REMOTE_ADDR"], got["SCRIPT_NAME"]) == (
                "http",
                "127.0.0.1",
                "",
            )
            assert (got["HTTP_HOST"], got["HTTP_X_OTHER"]) == ("test", "kept")
    with from_address(server, "127.0.0.9") as client:
        got = environ(client, FOR, "X-Forwarded-Ssl: on")
        assert (got["REMOTE_ADDR"], got["HTTP_X_FORWARDED_SSL"]) == ("192.0.2.7", "on")
    assert server.stop() == 0
    told = "127.0.0.1 sends X-Forwarded headers, which are not believed; if it is your proxy, add it to `tr"
    assert server.errors.count(told) == 1


def test_everybody_and_nobody_can_be_trusted(serve: Callable[..., Milepost]) -> None:
    chain = "X-Forwarded-For: 203.0.113.9, 192.0.2.7"
    for trusted, expect in [
        ("*", "203.0.113.9"),
        ("127.0.0.1,192.0.2.0/24", "203.0.113.9"),
        ("off", "127.0.0.1"),
    ]:
        with serve("zoo:app", "--forwarded-allow-ips", trusted, log=None).connect() as client:
            assert environ(client, chain)["REMOTE_ADDR"] == expect, trusted


def test_a_chain_that_cannot_be_followed_is_told_once(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app")
    with server.connect() as client:
        for _ in range(3):
            assert environ(client, "X-Forwarded-For: 192.0.2.7, x")["REMOTE_ADDR"] == "127.0.0.1"
    assert server.stop() == 0
    assert server.errors.count("an entry of the chain of addresses cannot be read") == 1


def test_log_and_report_know_the_client_and_the_peer(serve: Callable[..., Milepost]) -> None:
    format_ = "{client} {peer} {host} {status}"
    server = serve("zoo:app", "--access-log-format", format_, *HOST_PORT_PREFIX)
    with server.connect() as client:
        for headers in [(), (FOR,), (FOR, "X-Forwarded-Host: shop.example")]:
            assert client.ask("GET", "/nothing-here", *headers).status == 404
    assert server.stop() == 0
    assert server.lines == [
        "127.0.0.1 127.0.0.1 test 404",
        "192.0.2.7 127.0.0.1 test 404",
        "192.0.2.7 127.0.0.1 shop.example 404",
    ]


def test_the_usual_line_begins_with_the_client(zoo: Milepost) -> None:
    with zoo.connect() as client:
        assert client.ask("GET", "/hello", "X-Forwarded-For: 192.0.2.99").status == 200
    assert until(lambda: any(line.startswith("192.0.2.99 - - [") for line in zoo.lines))


def test_pool_rules_follow_the_client(serve: Callable[..., Milepost]) -> None:
    rule = {"pool": "near", "from": ["192.0.2.0/24"]}
    toml = tables("pool", {"name": "near"}) + tables("pool_rule", rule)
    server = serve("zoo:app", "--access-log-format", "{client} {pool}", toml=toml)
    with server.connect() as client:
        for headers in [(), (FOR,), ("X-Forwarded-For: 203.0.113.9",)]:
            assert client.ask("GET", "/hello", *headers).status == 200
    assert server.stop() == 0
    assert server.lines == ["127.0.0.1 default", "192.0.2.7 near", "203.0.113.9 default"]


HOLDING = """
import os, time
def app(environ, start_response):
    while environ["PATH_INFO"] == "/hold" and not os.path.exists("go"):
        time.sleep(0.01)
    start_response("200 OK", [("Content-Length", "0")])
    return []
"""


def test_requests_of_a_forwarded_client_are_counted(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    (tmp_path / "hold.py").write_text(HOLDING)
    server = serve(
        "hold:app", "--client-connections-max", "1", "--threads", "4:4", "--status-path", "/status"
    )
    # Connections of the proxy are not limited.
    clients = [server.connect() for _ in range(4)]
    clients[0].send(request("GET", "/hold", FOR))

    def is_refused() -> bool:
        with server.connect() as client:
            return client.ask("GET", "/hello", FOR).status == 429

    assert until(is_refused)
    assert clients[1].ask("GET", "/hello", "X-Forwarded-For: 192.0.2.8").status == 200
    assert clients[2].ask("GET", "/hello").status == 200
    (tmp_path / "go").touch()
    assert clients[0].reply().status == 200
    # Its place is free as soon as the response is out, also while the connection stays open.
    for client in clients:
        for _ in range(3):
            assert client.ask("GET", "/hello", FOR).status == 200
            assert client.ask("GET", "/status", FOR).status == 200
    for client in clients:
        client.sock.close()
    assert server.stop() == 0
    assert "client 192.0.2.7/32 has 1 requests under way: more are refused" in server.errors


ASK = """
import socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
client.sendall(sys.argv[2].encode())
while data := client.recv(65536):
    sys.stdout.buffer.write(data)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become other users")
@pytest.mark.parametrize(
    ("user", "groups", "expect"),
    [(0, "off", "192.0.2.7"), (65534, "off", ""), (65534, "7, 65534", "192.0.2.7"), (65534, "nonesuch", "")],
)
def test_processes_on_a_unix_socket_are_told_apart(
    serve: Callable[..., Milepost], user: int, groups: str, expect: str
) -> None:
    # A folder that another user can enter, which the test's own is not.
    path = Path("/tmp") / f"milepost-{os.getpid()}-{user}.sock"
    server = serve("zoo:app", "--trusted-proxy-groups", groups, bind=f"unix:{path}")
    ask = request("GET", "/environ", "Connection: close", FOR).decode()
    try:
        path.chmod(0o666)
        asked = subprocess.run(
            ["/usr/bin/python3" if user else sys.executable, "-c", ASK, str(path), ask],
            user=user,
            group=user,
            extra_groups=[],
            capture_output=True,
            check=True,
            cwd="/",
        )
    finally:
        server.count()
    assert json.loads(asked.stdout.partition(b"\r\n\r\n")[2])["REMOTE_ADDR"] == expect
    assert server.stop() == 0
    told = "a process of user 65534 and group 65534 on a unix socket sends X-Forwarded headers"
    assert (told in server.errors) == (expect == "")


def v2(command: int, family: int, body: bytes) -> bytes:
    return V2 + bytes([command, family]) + struct.pack(">H", len(body)) + body


def tcp4(*more: bytes) -> bytes:
    return bytes([192, 0, 2, 7, 198, 51, 100, 2]) + struct.pack(">HH", 4711, 443) + b"".join(more)


TCP4 = b"PROXY TCP4 192.0.2.7 198.51.100.2 4711 443\r\n"
PROXIED = ["http", "192.0.2.7", "test", "198.51.100.2", "443"]


@pytest.mark.parametrize(
    ("header", "expect"),
    [
        (TCP4, PROXIED),
        (b"PROXY TCP6 2001:db8::1 ::1 4711 443\r\n", ["http", "2001:db8::1", "test", "::1", "443"]),
        (b"PROXY UNKNOWN\r\n", None),
        (v2(0x21, 0x11, tcp4()), PROXIED),
        (v2(0x21, 0x11, tcp4(b"\x20\0\x05\x01\0\0\0\0")), ["https", *PROXIED[1:]]),
        (v2(0x20, 0x00, b""), None),
    ],
)
def test_a_proxy_header_names_the_client(serve: Callable[..., Milepost], header: bytes, expect) -> None:
    server = serve("zoo:app", "--proxy-protocol-from", "127.0.0.0/8", log=None)
    own = ["http", "127.0.0.1", "test", "127.0.0.1", str(server.address[1])]
    ask = request("GET", "/environ", "X-Forwarded-For: 203.0.113.9" if expect else "X-Any: 1")
    for pieces in ([header + ask], [header, ask], [bytes([byte]) for byte in header] + [ask]):
        with server.connect() as client:
            for piece in pieces:
                client.send(piece)
            got = json.loads(client.reply().text)
            names = ("wsgi.url_scheme", "REMOTE_ADDR", "HTTP_HOST", "SERVER_NAME", "SERVER_PORT")
            assert [got[name] for name in names] == (expect or own)
            # The client that the header names is no trusted proxy.
            assert "HTTP_X_FORWARDED_FOR" not in got
            assert seen(client)[:5] == (expect or own)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"PROXY TCP4 x\r\n",
        b"PROXY " + b"x" * 200,
        v2(0x31, 0x11, tcp4()),
        v2(0x21, 0x11, b"1"),
        V2 + b"\x21\x11\xff\xff",
    ],
)
def test_a_connection_without_its_proxy_header_is_closed(
    serve: Callable[..., Milepost], header: bytes
) -> None:
    server = serve("zoo:app", "--proxy-protocol-from", "127.0.0.1")
    for _ in range(2):
        with server.connect() as client:
            client.send(header + request("GET", "/hello"))
            try:
                assert client.sock.recv(1) == b""
            except ConnectionResetError:
                pass
    assert server.stop() == 0
    assert server.errors.count("127.0.0.1 is one of `proxy_protocol_from`, but the") == 1


@pytest.mark.parametrize("header", [TCP4, v2(0x21, 0x11, tcp4())])
def test_a_stranger_with_a_proxy_header_gets_400(serve: Callable[..., Milepost], header: bytes) -> None:
    server = serve("zoo:app", "--proxy-protocol-from", "127.0.0.9")
    for _ in range(2):
        with server.connect() as client:
            client.send(header + request("GET", "/hello"))
            assert client.reply().status == 400
    with server.connect() as client:
        assert client.ask("GET", "/hello").status == 200
    assert server.stop() == 0
    assert not any(line.startswith("192.0.2.7") for line in server.lines)
    assert server.errors.count("127.0.0.1 sends a PROXY protocol header and gets 400") == 1


def test_clients_of_proxy_headers_are_limited_as_others(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", "--proxy-protocol-from", "127.0.0.1", "--client-connections-max", "1")
    first, second, third = (server.connect() for _ in range(3))
    for client, line, status in [
        (first, TCP4, 200),
        (second, TCP4, 429),
        (third, TCP4.replace(b"2.7", b"2.8"), 200),
    ]:
        client.send(line + request("GET", "/hello"))
        assert client.reply().status == status
    for client in (first, second, third):
        client.sock.close()


def test_nginx_sends_proxy_headers(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    module = Path("/usr/lib/nginx/modules/ngx_stream_module.so")
    if not shutil.which("nginx") or not module.exists():
        pytest.skip("needs nginx with its stream module")
    server = serve("zoo:app", "--proxy-protocol-from", "127.0.0.1")
    port = free_port()
    (tmp_path / "nginx.conf").write_text(
        f"load_module {module}; daemon off; pid nginx.pid; error_log stderr; events {{}}\n"
        f"stream {{ server {{ listen 127.0.0.1:{port}; proxy_bind 127.0.0.1; proxy_protocol on;"
        f" proxy_pass {server.address[0]}:{server.address[1]}; }} }}\n"
    )
    with in_foreground("nginx", "-p", str(tmp_path), "-c", "nginx.conf", port=port, folder=tmp_path):
        sock = socket.create_connection(("127.0.0.1", port), DEADLINE_S, source_address=("127.0.0.77", 0))
        with Client(sock, server.count) as client:
            assert environ(client)["REMOTE_ADDR"] == "127.0.0.77"


def test_djangos_admin_lets_a_user_in_behind_nginx_with_tls(
    serve: Callable[..., Milepost],
    tmp_path: Path,
    project: Path,  # noqa: F811
) -> None:
    server = serve("shop.wsgi:application", "--app-dir", str(project), log=None)
    origin, cookies = "Origin: https://test", {}

    def ask(method: str, target: str, *headers: str, body: bytes | None = None) -> tuple[int, str]:
        with Client(connect_tls(port, "http/1.1"), lambda: None) as client:
            cookie = "Cookie: " + "; ".join(f"{name}={value}" for name, value in cookies.items())
            reply = client.ask(method, target, cookie, *headers, body=body)
            for found in reply.all("set-cookie"):
                name, _, value = found.partition(";")[0].partition("=")
                cookies[name] = value
            return reply.status, reply.text

    with nginx(tmp_path, server.address) as port:
        _, form = ask("GET", "/admin/login/")
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)[1]
        fields = {"username": "root", "password": "pass", "csrfmiddlewaretoken": token, "next": "/admin/"}
        kind = "Content-Type: application/x-www-form-urlencoded"
        referer = "Referer: https://test/admin/login/"
        body = urllib.parse.urlencode(fields).encode()
        assert ask("POST", "/admin/login/", "Origin: https://evil.example", kind, body=body)[0] == 403
        assert ask("POST", "/admin/login/", origin, referer, kind, body=body)[0] == 302
        assert "Site administration" in ask("GET", "/admin/")[1]
        assert json.loads(ask("GET", "/where/x")[1])["uri"] == "https://test/where/x"
