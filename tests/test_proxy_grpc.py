"""Calls of gRPC from a real client through the proxy to a real server: kinds, statuses, deadlines, ends."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from certificates import Authority, write
from serving import Milepost, tables, until

grpc = pytest.importorskip("grpc")

OPTIONS = [("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]


class Service:
    """A server whose methods take and give bytes."""

    def __init__(self, credentials: object = None) -> None:
        #: Calls whose client has left.
        self.cancelled = threading.Event()
        #: Seconds that the client of the last call waits.
        self.remaining: float | None = None
        handlers = {
            "Unary": grpc.unary_unary_rpc_method_handler(self.unary),
            "Fail": grpc.unary_unary_rpc_method_handler(self.fail),
            "Wait": grpc.unary_unary_rpc_method_handler(self.wait),
            "Count": grpc.unary_stream_rpc_method_handler(self.count),
            "Endless": grpc.unary_stream_rpc_method_handler(self.endless),
            "Sum": grpc.stream_unary_rpc_method_handler(self.sum),
            "Echo": grpc.stream_stream_rpc_method_handler(self.echo),
        }
        self._server = grpc.server(ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("test.Service", handlers)]
        )
        if credentials is None:
            self.port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            self.port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self._server.start()

    def unary(self, asked: bytes, context: object) -> bytes:
        context.set_trailing_metadata([("x-trailer", "behind")])  # type: ignore[attr-defined]
        context.send_initial_metadata([("x-initial", "before")])  # type: ignore[attr-defined]
        return asked

    def fail(self, asked: bytes, context: object) -> bytes:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now, ä")  # type: ignore[attr-defined]
        return asked

    def wait(self, asked: bytes, context: object) -> bytes:
        self.remaining = context.time_remaining()  # type: ignore[attr-defined]
        context.add_callback(self.cancelled.set)  # type: ignore[attr-defined]
        self.cancelled.wait(60)
        return asked

    def count(self, asked: bytes, _: object) -> Iterator[bytes]:
        for number in range(int(asked)):
            yield str(number).encode()

    def endless(self, asked: bytes, context: object) -> Iterator[bytes]:
        context.add_callback(self.cancelled.set)  # type: ignore[attr-defined]
        yield asked
        self.cancelled.wait(60)

    def sum(self, asked: Iterator[bytes], _: object) -> bytes:
        return str(sum(int(number) for number in asked)).encode()

    def echo(self, asked: Iterator[bytes], _: object) -> Iterator[bytes]:
        yield from asked

    def stop(self) -> None:
        """At once."""
        self._server.stop(0).wait(60)


@pytest.fixture
def service() -> Iterator[Service]:
    one = Service()
    yield one
    one.stop()


def proxy(serve: Callable[..., Milepost], url: str, *arguments: str, **options: object) -> Milepost:
    """A server that passes everything on."""
    toml = tables("route", {"path": "/", "upstream": "back"})
    toml += tables("upstream", {"name": "back", "servers": [url], "protocol": "http2"} | options)
    # Channels keep their connections, and close them as they like.
    return serve(*arguments, toml=toml, log=None)


@contextlib.contextmanager
def channel(server: Milepost, credentials: object = None) -> Iterator[object]:
    """A client's channel to a server."""
    host, port = server.address
    if credentials is None:
        opened = grpc.insecure_channel(f"{host}:{port}", OPTIONS)
    else:
        opened = grpc.secure_channel(f"localhost:{port}", credentials, OPTIONS)
    with opened:
        yield opened


def all_kinds(client: object) -> None:
    """Calls of each kind, with their messages and their metadata."""
    unary = client.unary_unary("/test.Service/Unary")  # type: ignore[attr-defined]
    for size in (0, 5, 3_000_000):
        answer, call = unary.with_call(b"x" * size, timeout=60)
        assert answer == b"x" * size
        assert ("x-initial", "before") in [(one.key, one.value) for one in call.initial_metadata()]
        assert ("x-trailer", "behind") in [(one.key, one.value) for one in call.trailing_metadata()]
    count = client.unary_stream("/test.Service/Count")  # type: ignore[attr-defined]
    assert list(count(b"500", timeout=60)) == [str(number).encode() for number in range(500)]
    assert list(count(b"0", timeout=60)) == []
    total = client.stream_unary("/test.Service/Sum")  # type: ignore[attr-defined]
    assert total((str(number).encode() for number in range(500)), timeout=60) == b"124750"
    echo = client.stream_stream("/test.Service/Echo")  # type: ignore[attr-defined]
    asked: queue.Queue[bytes | None] = queue.Queue()
    answers = echo(iter(asked.get, None), timeout=60)
    for number in range(20):
        # Each answer comes while the request goes on.
        asked.put(str(number).encode())
        assert next(answers) == str(number).encode()
    asked.put(None)
    assert list(answers) == []


def test_calls_of_all_kinds_pass(serve: Callable[..., Milepost], service: Service) -> None:
    with channel(proxy(serve, f"http://127.0.0.1:{service.port}")) as client:
        all_kinds(client)


def test_calls_pass_under_tls_on_both_sides(serve: Callable[..., Milepost], authority: Authority) -> None:
    cert = authority.issue("localhost", "127.0.0.1")
    key, chain = cert.private_key_pem.bytes(), b"".join(pem.bytes() for pem in cert.cert_chain_pems)
    service = Service(grpc.ssl_server_credentials([(key, chain)]))
    try:
        files = [
            write(authority.folder / name, data) for name, data in [("chain.pem", chain), ("key.pem", key)]
        ]
        arguments = ["--certfile", str(files[0]), "--keyfile", str(files[1])]
        url = f"https://127.0.0.1:{service.port}"
        server = proxy(serve, url, *arguments, tls_ca=str(authority.pem))
        root = grpc.ssl_channel_credentials(authority.pem.read_bytes())
        with channel(server, root) as client:
            all_kinds(client)
    finally:
        service.stop()


def test_the_status_of_a_call_passes(serve: Callable[..., Milepost], service: Service) -> None:
    with channel(proxy(serve, f"http://127.0.0.1:{service.port}")) as client:
        for method, code, details in [
            ("Fail", grpc.StatusCode.FAILED_PRECONDITION, "not now, ä"),
            ("Missing", grpc.StatusCode.UNIMPLEMENTED, "Method not found!"),
        ]:
            with pytest.raises(grpc.RpcError) as failed:
                client.unary_unary(f"/test.Service/{method}")(b"x", timeout=60)  # type: ignore[attr-defined]
            assert (failed.value.code(), failed.value.details()) == (code, details)


def test_a_deadline_passes_and_ends_the_call(serve: Callable[..., Milepost], service: Service) -> None:
    with channel(proxy(serve, f"http://127.0.0.1:{service.port}")) as client:
        with pytest.raises(grpc.RpcError) as failed:
            client.unary_unary("/test.Service/Wait")(b"x", timeout=0.5)  # type: ignore[attr-defined]
        assert failed.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert service.cancelled.wait(30)
        assert service.remaining is not None and service.remaining <= 0.5


def test_a_call_that_its_client_cancels_ends_at_the_server(
    serve: Callable[..., Milepost], service: Service
) -> None:
    with channel(proxy(serve, f"http://127.0.0.1:{service.port}")) as client:
        call = client.unary_stream("/test.Service/Endless")(b"x")  # type: ignore[attr-defined]
        assert next(call) == b"x"
        call.cancel()
        assert service.cancelled.wait(30)


def test_a_silent_call_stays_open(serve: Callable[..., Milepost], service: Service) -> None:
    url = f"http://127.0.0.1:{service.port}"
    toml = "body_timeout = '500ms'\n"
    toml += tables("route", {"path": "/", "upstream": "back"})
    back = {"name": "back", "servers": [url], "protocol": "http2", "response_timeout": "500ms"}
    server = serve(toml=toml + tables("upstream", back), log=None)
    with channel(server) as client:
        asked: queue.Queue[bytes | None] = queue.Queue()
        answers = client.stream_stream("/test.Service/Echo")(iter(asked.get, None))  # type: ignore[attr-defined]
        asked.put(b"one")
        assert next(answers) == b"one"
        # Deadlines are looked at four times a second: both have passed by far.
        assert not until(lambda: not answers.is_active(), within_s=2)
        asked.put(b"two")
        assert next(answers) == b"two"
        asked.put(None)
        assert list(answers) == []


def test_a_server_that_is_gone_is_unavailable(serve: Callable[..., Milepost], service: Service) -> None:
    server = proxy(serve, f"http://127.0.0.1:{service.port}")
    service.stop()
    with channel(server) as client:
        with pytest.raises(grpc.RpcError) as failed:
            client.unary_unary("/test.Service/Unary")(b"x", timeout=60)  # type: ignore[attr-defined]
        assert failed.value.code() == grpc.StatusCode.UNAVAILABLE
