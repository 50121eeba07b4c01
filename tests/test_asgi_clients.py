"""What an ASGI application may learn of its client: its TLS connection, and that it has gone."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from raw import request
from serving import LOOPS, Milepost, tables, until

# Streams until it is told to end, and notes how that was.
APP = """
import asyncio
import gc
import json

seen = []


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        raise ValueError("no lifespan")
    if scope["path"] == "/scope":
        told = {"spec": scope["asgi"]["spec_version"], "tls": scope["extensions"].get("tls")}
        return await answer(send, json.dumps(told).encode())
    if scope["path"] == "/seen":
        return await answer(send, json.dumps(seen).encode())
    if scope["path"] == "/timers":
        gc.collect()
        handles = [one for one in gc.get_objects() if type(one).__name__ == "TimerHandle"]
        return await answer(send, b"%d" % sum("cancel_unanswered" in repr(one) for one in handles))
    if scope["path"] == "/released":
        await receive()
        seen.append("begins")
        await receive()
        seen.append("ends")
        return
    try:
        if scope["path"] == "/waits":
            seen.append("begins")
            await asyncio.Event().wait()
        if scope["path"] == "/heard":
            await receive()
            seen.append("begins")
            seen.append((await receive())["type"])
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for number in range(3):
                await send({"type": "http.response.body", "body": b"heard", "more_body": number < 2})
            return
        if scope["path"] == "/behind":
            await receive()
            seen.append("begins")
            await receive()
            await answer(send, b"late")
            seen.append("answered")
            await asyncio.sleep(1)
            seen.append("still here")
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while scope["path"] == "/deaf":
            await send({"type": "http.response.body", "body": b"more", "more_body": True})
        if scope["path"] == "/large":
            await receive()
            await receive()
            for number in range(500):
                seen.append(number)
                await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": number < 499})
            return
        while scope["path"] == "/half":
            has_more = "cancelled" not in seen
            await send({"type": "http.response.body", "body": b"more", "more_body": has_more})
            await asyncio.sleep(0.05)
            if not has_more:
                return
        for number in range(1_000_000):
            await send({"type": "http.response.body", "body": b"more", "more_body": True})
            await asyncio.sleep(0.001)
            if number == 2000:
                seen.append("still here")
                return
    except asyncio.CancelledError:
        seen.append("cancelled")
        raise
    except OSError as error:
        seen.append(type(error).__name__)
        raise


async def answer(send, body):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def seen(server: Milepost) -> list[str]:
    with server.connect() as client:
        return json.loads(client.ask("GET", "/seen").body)


def test_the_scope_has_the_facts_of_tls(serve: Callable[..., Milepost], folder: Path) -> None:
    authority = pytest.importorskip("trustme", exc_type=ImportError).CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    own = authority.issue_cert("localhost")
    own.private_key_pem.write_to_path(folder / "key.pem")
    (folder / "key.pem").chmod(0o600)
    own.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    files = ("--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem"))
    demand = ("--tls-client-ca", str(folder / "ca.pem"), "--tls-client-auth", "request")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    server = serve("app:app", *files, *demand, tls=context)
    with server.connect() as client:
        found = json.loads(client.ask("GET", "/scope").body)["tls"]
        suite = client.sock.cipher()[0]
    assert suite.startswith("TLS_")
    assert found == {
        "server_cert": None,
        "client_cert_chain": [],
        "client_cert_name": None,
        "client_cert_error": None,
        "tls_version": 0x0304,
        "cipher_suite": found["cipher_suite"],
    }
    # Those of TLS 1.3 (RFC 8446 appendix B.4).
    numbers = {
        "TLS_AES_128_GCM_SHA256": 0x1301,
        "TLS_AES_256_GCM_SHA384": 0x1302,
        "TLS_CHACHA20_POLY1305_SHA256": 0x1303,
    }
    assert found["cipher_suite"] == numbers[suite]
    ops = authority.issue_cert("ops@shop.example", common_name="ops")
    ops.configure_cert(context)
    with server.connect() as client:
        found = json.loads(client.ask("GET", "/scope").body)["tls"]
    assert found["client_cert_chain"] == [ops.cert_chain_pems[0].bytes().decode()]
    assert "CN=ops" in found["client_cert_name"]


def test_without_tls_there_is_no_such_extension(serve: Callable[..., Milepost], folder: Path) -> None:
    server = serve("app:app")
    with server.connect() as client:
        assert json.loads(client.ask("GET", "/scope").body) == {"spec": "2.3", "tls": None}


def leave(server: Milepost, target: str) -> None:
    """A client that leaves in the middle of its response."""
    with server.connect() as client:
        client.send(request("GET", target))
        client.head()
        client.chunk()
    server.count()


def test_sending_to_a_client_that_has_gone_does_nothing(serve: Callable[..., Milepost], folder: Path) -> None:
    server = serve("app:app")
    leave(server, "/stream")
    assert until(lambda: seen(server) == ["still here"])
    assert "Traceback" not in server.errors


def test_or_raises_an_error_that_is_no_fault(serve: Callable[..., Milepost], folder: Path) -> None:
    server = serve("app:app", "--asgi-http-spec", "2.5")
    with server.connect() as client:
        assert json.loads(client.ask("GET", "/scope").body)["spec"] == "2.5"
    leave(server, "/stream")
    assert until(lambda: seen(server) == ["ClientDisconnected"])
    server.stop()
    assert "Traceback" not in server.errors
    assert any(" end=peer-gone" in line for line in server.lines)


@pytest.mark.parametrize("spec", ["2.3", "2.5"])
def test_a_client_that_has_ended_only_its_side_has_its_response(
    serve: Callable[..., Milepost], folder: Path, spec: str
) -> None:
    server = serve("app:app", "--asgi-http-spec", spec)
    with server.connect() as client:
        client.send(request("GET", "/heard"))
        assert until(lambda: seen(server) == ["begins"])
        client.sock.shutdown(socket.SHUT_WR)
        server.count()
        status, _, _ = client.head()
        assert (status, client.rest()) == (200, b"5\r\nheard\r\n" * 3 + b"0\r\n\r\n")
    assert seen(server)[1:] == ["http.disconnect"]


def test_the_task_of_a_client_that_has_gone_can_be_cancelled(
    serve: Callable[..., Milepost], folder: Path
) -> None:
    server = serve("app:app", "--disconnect-cancel", "1ms")
    leave(server, "/stream")
    assert until(lambda: seen(server) == ["cancelled"])
    with server.connect() as client:
        client.send(request("GET", "/waits"))
        assert until(lambda: seen(server)[1:] == ["begins"])
    server.count()
    assert until(lambda: seen(server)[2:] == ["cancelled"])
    server.stop()
    assert "Traceback" not in server.errors


def test_a_client_that_has_ended_its_side_is_cancelled_too(
    serve: Callable[..., Milepost], folder: Path
) -> None:
    server = serve("app:app", "--disconnect-cancel", "1ms")
    with server.connect() as client:
        client.send(request("GET", "/waits"))
        assert until(lambda: seen(server) == ["begins"])
        client.sock.shutdown(socket.SHUT_WR)
        assert until(lambda: seen(server) == ["begins", "cancelled"])
        # There is no response, although this client would have read one.
        assert client.rest() == b""
    server.count()
    server.stop()
    assert "Traceback" not in server.errors


def test_a_client_that_has_gone_is_answered_within_the_grace(
    serve: Callable[..., Milepost], folder: Path
) -> None:
    server = serve("app:app", "--disconnect-cancel", "60s")
    leave(server, "/stream")
    assert until(lambda: seen(server) == ["still here"])


def test_a_response_that_is_complete_is_left_alone(serve: Callable[..., Milepost], folder: Path) -> None:
    server = serve("app:app", "--disconnect-cancel", "500ms")
    with server.connect() as client:
        client.send(request("GET", "/behind"))
        assert until(lambda: seen(server) == ["begins"])
    server.count()
    # It answers nobody, and works on beyond the time.
    assert until(lambda: seen(server) == ["begins", "answered", "still here"])


def test_a_pool_has_a_time_of_its_own(serve: Callable[..., Milepost], folder: Path) -> None:
    toml = tables("pool", {"name": "kept", "disconnect_cancel": "off"})
    toml += tables("pool_rule", {"pool": "kept", "path": "/stream"})
    server = serve("app:app", "--disconnect-cancel", "1ms", toml=toml)
    leave(server, "/stream")
    assert until(lambda: seen(server) == ["still here"])
    leave(server, "/other")
    assert until(lambda: seen(server) == ["still here", "cancelled"])


def test_a_stream_that_never_listens_is_cancelled_in_the_end(
    serve: Callable[..., Milepost], folder: Path
) -> None:
    server = serve("app:app")
    with server.connect() as client:
        # It only ends its own side, and reads on.
        client.send(request("GET", "/half"))
        client.head()
        client.sock.shutdown(socket.SHUT_WR)
        for _ in range(20):
            assert client.chunk() == b"more"
        leave(server, "/deaf")
        assert until(lambda: seen(server) == ["cancelled"])
        while client.chunk():
            pass
    server.count()
    assert until(lambda: "whose client is long gone: its task is cancelled" in server.errors)
    server.stop()
    # On a busy computer the watchdog may have written about this request as well.
    written = [line for line in server.errors.splitlines() if "client is long gone" in line]
    assert len(written) == 1 and "GET /deaf " in written[0], written
    assert "Traceback" not in server.errors
    assert any(" end=peer-gone" in line for line in server.lines)


def test_a_client_that_has_ended_its_side_is_waited_for(serve: Callable[..., Milepost], folder: Path) -> None:
    server = serve("app:app", "--reply-spool-bytes-max", "1M")
    with server.connect() as client:
        client.send(request("GET", "/large"))
        client.sock.shutdown(socket.SHUT_WR)
        # It reads nothing: the application gets no further, however often the loop comes to it.
        assert until(lambda: len(seen(server)) > 16)
        assert until(lambda: len({len(seen(server)) for _ in range(50)}) == 1)
        assert len(seen(server)) < 400
        assert len(client.reply().body) == 500 << 16


def test_a_route_has_a_time_of_its_own_whatever_its_pool_has(
    serve: Callable[..., Milepost], folder: Path
) -> None:
    toml = tables("pool", {"name": "kept", "disconnect_cancel": "off"})
    toml += tables("pool_rule", {"pool": "kept", "path": "/pooled/**"})
    routes = {"/stream": "off", "/pooled": "1ms"}
    for path, time in routes.items():
        toml += tables("route", {"app": "app:app", "path": path, "disconnect_cancel": time})
    server = serve("app:app", "--disconnect-cancel", "1ms", toml=toml)
    leave(server, "/stream/x")
    assert until(lambda: seen(server) == ["still here"])
    leave(server, "/pooled/x")
    assert until(lambda: seen(server) == ["still here", "cancelled"])
    leave(server, "/other")
    assert until(lambda: seen(server) == ["still here", "cancelled", "cancelled"])


@pytest.mark.long
@pytest.mark.parametrize("loop", LOOPS)
def test_the_timer_of_a_task_ends_with_the_task(
    serve: Callable[..., Milepost], folder: Path, loop: str
) -> None:
    server = serve("app:app", "--disconnect-cancel", "24h", "--loop", loop)
    for _ in range(20):
        with server.connect() as client:
            client.send(request("GET", "/released"))
            assert until(lambda: seen(server)[-1:] == ["begins"])
        server.count()
        assert until(lambda: seen(server)[-1:] == ["ends"])
    with server.connect() as client:
        assert client.ask("GET", "/timers").body == b"0"
        # One whose client has gone, and which is still there, has its timer.
        client.send(request("GET", "/waits"))
        assert until(lambda: seen(server)[-1:] == ["begins"])
    server.count()
    with server.connect() as client:
        assert until(lambda: client.ask("GET", "/timers").body == b"1")
