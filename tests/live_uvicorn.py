"""A plugin of pytest that has the tests of uvicorn run against Milepost.

Takes the source of uvicorn on the import path, with its tests. Where these start uvicorn (`run_server`), the
command `milepost serve` is started for the same application, which stays where it is: `apps/relay.py` is its
half in the serving process. Settings of uvicorn that the tests use become flags. Clients and assertions
are uvicorn's.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import tests.protocols.test_websocket as suite
import tests.utils

sys.path.append(str(Path(__file__).parent / "apps"))
import relay  # noqa: E402

#: Tests that cannot apply, and why.
OTHERWISE = {
    "test_missing_handshake": "an application that returns without an answer refuses: 403, as documented",
    "test_duplicate_handshake": "uvicorn drops the connection; an exception is a close frame with 1011",
    "test_asgi_return_value": "uvicorn drops the connection; a return is a close frame with 1000",
    "test_close_transport_on_asgi_return": "a return is a close frame with 1000, here too",
    "test_connection_lost_before_handshake_complete": "its connection is lost by the end of uvicorn, "
    "which waits for no handshake",
    "test_send_close_on_server_shutdown": "the end of the server is 1001; 1012 is a reload",
    "test_server_reject_connection_with_invalid_status": "700 is sent; and the text of a 500 is another one",
    "test_default_server_headers": "a 101 names no server",
    "test_multiple_server_header": "a 101 names no server",
    # The head leaves with the first body, so that a failure before it is 500; uvicorn sends it at once.
    "test_server_reject_connection_with_invalid_msg": "is 500",
    "test_server_reject_connection_with_missing_body": "is 500",
    "test_server_multiple_websocket_http_response_start_events": "is 500, and the sentence is another one",
    "test_server_keepalive_ping_timeout": "the reason is another one",
    "test_lifespan_state": "objects of the state do not pass the relay",
    # What these look for is tested in test_websocket.py by bytes.
    "test_frame_after_close_handshake_is_ignored": "looks into uvicorn",
    "test_server_keepalive_ping_pong": "looks into uvicorn",
    "test_server_keepalive_disabled": "looks into uvicorn",
}
#: What replaces the network of tests that run a part of uvicorn without a server.
PARTS = "MockWebSocketConnection"
#: uvicorn has two codecs and three parsers; here there is one of each.
CODEC, PARSER = "websockets-sansio-h11", "h11"

DEADLINE_S = 60
#: Pauses of the tests are for a server of the same process.
PAUSES = 4


class Relay:
    """The test's half of applications."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.tasks: set[asyncio.Task[None]] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened = await relay.read(reader)
        if opened is None:
            return
        numbers = itertools.count()
        answers: dict[int, asyncio.Future[Any]] = {}

        async def call(kind: str, argument: Any = None) -> Any:
            number = next(numbers)
            answers[number] = asyncio.get_running_loop().create_future()
            relay.write(writer, kind, number, argument)
            try:
                return await answers[number]
            except asyncio.CancelledError:
                relay.write(writer, "cancels", number, None)
                raise

        async def receive() -> dict[str, Any]:
            event = await call("receive")
            # uvicorn gives a reason only where the client has sent a close frame.
            if event["type"] == "websocket.disconnect" and event["code"] == 1006:
                assert event.pop("reason") == ""
            return event

        async def send(event: dict[str, Any]) -> None:
            await call("send", event)

        async def run() -> None:
            fault = None
            try:
                await self.app(opened[0], receive, send)
            except BaseException as error:
                fault = error if isinstance(error, Exception) else RuntimeError(repr(error))
            relay.write(writer, "ends", None, fault)

        task = asyncio.create_task(run())
        self.tasks.add(task)
        while (answer := await relay.read(reader)) is not None:
            number, error, result = answer
            if not answers[number].done():
                answers[number].set_result(result) if error is None else answers[number].set_exception(error)
        for one in answers.values():
            if not one.done():
                one.set_exception(ConnectionError("the serving process has ended"))
        writer.close()


def flags(config: Any) -> list[str]:
    interval = config.ws_ping_interval
    given = {
        "--bind": f"127.0.0.1:{config.port}",
        "--app-dir": str(Path(relay.__file__).parent),
        "--lifespan": config.lifespan,
        "--ws-max-size": str(config.ws_max_size),
        "--ws-ping-interval": f"{round(interval * 1000)}ms" if interval else "off",
        "--ws-ping-timeout": f"{round(config.ws_ping_timeout * 1000)}ms",
        "--drain-timeout": "2s",
        "--ws-drain": "0s",
    }
    words = [f"{name}={value}" for name, value in given.items()]
    if not config.ws_per_message_deflate:
        words.append("--ws-per-message-deflate=false")
    return words


class Server:
    """A running `milepost serve`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def shutdown(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        assert await asyncio.wait_for(self.process.wait(), DEADLINE_S) == 0


@contextlib.asynccontextmanager
async def run_server(config: Any, sockets: None = None) -> AsyncIterator[Server]:
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/errors", "wb") as errors:
        path = f"{folder}/relay"
        ours = Relay(config.app)
        listener = await asyncio.start_unix_server(ours.connected, path)
        command = Path(sys.executable).parent / "milepost"
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MILEPOST_"))}
        process = await asyncio.create_subprocess_exec(
            command,
            "serve",
            "relay:app",
            *flags(config),
            cwd=folder,
            env=env | {"RELAY": path, "XDG_RUNTIME_DIR": folder},
            stderr=errors,
        )
        server = Server(process)
        said = Path(folder, "errors")
        try:
            for _ in range(DEADLINE_S * 20):
                if "listening on" in said.read_text() or process.returncode is not None:
                    break
                await _sleep(0.05)
            assert process.returncode is None, said.read_text()
            yield server
        finally:
            await server.shutdown()
            await asyncio.wait(ours.tasks, timeout=DEADLINE_S) if ours.tasks else None
            listener.close()
            # Shown by pytest where the test fails.
            sys.stderr.write(said.read_text())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept, left = [], []
    for item in items:
        assert isinstance(item, pytest.Function)
        is_ours = (CODEC if "ws_protocol_cls" in item.fixturenames else PARSER) in item.name
        applies = item.originalname not in OTHERWISE and PARTS not in inspect.getsource(item.function)
        (kept if is_ours and applies else left).append(item)
    unknown = OTHERWISE.keys() - {item.originalname for item in left if isinstance(item, pytest.Function)}
    assert not unknown, unknown
    items[:] = kept
    config.hook.pytest_deselected(items=left)


_sleep = asyncio.sleep


async def pause(delay: float, result: Any = None) -> Any:
    return await _sleep(delay * PAUSES, result)


asyncio.sleep = pause  # type: ignore[assignment]
tests.utils.run_server = run_server  # type: ignore[assignment]
suite.run_server = run_server  # type: ignore[assignment]
