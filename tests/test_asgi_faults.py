"""Clients that leave at each await of an application, by each way to leave: nothing of them stays inside."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from frames import WebSocket, handshake
from http2 import Http2

from raw import Client, CutShort, request
from serving import APPS, LOOPS, until
from supervising import Supervised

SCRIPTED = ("--app-dir", str(APPS))
#: Short, so that clients that are silent are given up soon.
TIMES = (
    "--send-timeout=500ms",
    "--body-timeout=500ms",
    "--ws-ping-interval=200ms",
    "--ws-ping-timeout=200ms",
)
#: Words of the script, and the last thing that it notes before the client leaves.
HTTP = {
    "body": ("body", "receives"),
    "listens": ("receive+receive+receive", "receives"),
    "sleep": ("sleep+head+piece", "sleeps"),
    "head": ("head+sleep+piece", "sleeps"),
    "events": ("events+piece+sleep+piece", "sleeps"),
    "flood": ("receive+head+flood", "floods"),
    "endless": ("endless", None),
}
WEBSOCKET = {
    "unaccepted": ("receive+sleep+accept+receive", "sleeps"),
    "listens": ("receive+accept+receive", "receives"),
    "sleep": ("receive+accept+sleep+say", "sleeps"),
    "pour": ("receive+accept+pour", "pours"),
    "big": ("receive+accept+big", "sends"),
}
RESET = struct.pack("ii", 1, 0)


@pytest.fixture(params=LOOPS)
def server(supervise: Callable[..., Supervised], request: pytest.FixtureRequest) -> Iterator[Supervised]:
    # A send behind the end of a client does nothing up to 2.3, and raises from 2.4 on.
    spec = "2.5" if request.param == "uvloop" else "2.3"
    more = ("--loop", request.param, "--asgi-http-spec", spec)
    yield supervise(*more, *SCRIPTED, *TIMES, app="scripted:app", log=None)


def seen(server: Supervised, name: str) -> list[Any]:
    with server.connect() as client:
        reply = client.ask("GET", f"/seen/{name}", "Connection: close")
        assert reply.status == 200, (reply, server.errors)
        found: list[Any] = json.loads(reply.body)
        return found


def descriptors(server: Supervised) -> int:
    return len(os.listdir(f"/proc/{server.serving_pid}/fd"))


def is_empty(server: Supervised) -> bool:
    """No connection, no request and no WebSocket connection is open."""
    told = server.status()
    (process,) = told["processes"]
    (driver,) = told["counters"]["drivers"]
    return not (
        process["event_loop"]["inside"]
        or process["event_loop"]["websockets"]
        or driver["open"]
        or any(driver["connections"].values())
        or any(pool["waiting"] or pool["running"] for pool in process["pools"])
    )


def left(server: Supervised) -> str:
    """What is still open."""
    told = server.status()
    loop, pools = (told["processes"][0][name] for name in ("event_loop", "pools"))
    # How far the scripts of the storm have come.
    storms = {number: Counter(map(str, seen(server, f"storm-{number}"))) for number in range(len(STORM))}
    return json.dumps([storms, loop, pools, told["counters"]["drivers"][0]["connections"]])


def check_is_empty(server: Supervised, before: int) -> None:
    assert until(lambda: is_empty(server)), left(server)
    assert until(lambda: descriptors(server) <= before), (descriptors(server), before)
    assert "Traceback" not in server.errors and "never retrieved" not in server.errors, server.errors


def leave(client: Client, how: str) -> None:
    if how == "reset":
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    if how == "half":
        # The server may have given it up before.
        with contextlib.suppress(OSError):
            client.sock.shutdown(socket.SHUT_WR)
    if how != "silence":
        client.sock.close()


def has_left(server: Supervised, name: str) -> bool:
    """Whether the script has come to its end, or was told by an exception that its client is gone."""
    told = seen(server, name)
    # A `receive()` that waits in a task of its own may be told so after a `send()` has raised.
    if len(told) > 1 and told[-1] == ["disconnect", None, None]:
        told.pop()
    return told[-1:] in (["ends"], ["ClientDisconnected"], ["CancelledError"])


def test_clients_of_requests_leave_at_each_await(server: Supervised) -> None:
    seen(server, "nothing")
    before = descriptors(server)
    silent = []
    names = []
    for how in ("reset", "close", "half", "silence"):
        for at, (words, last) in HTTP.items():
            if how == "silence" and at in ("listens", "endless"):
                # A client that reads nothing of little is no fault: that waits until it leaves.
                continue
            name = f"{at}-{how}"
            names.append(name)
            client = server.connect(receive_buffer_bytes=1 << 16)
            # Of a long body, which is received while it arrives, a part.
            lengths = (1_000_000, 200_000) if at == "body" else (1, 1)
            client.send(
                request("POST", f"/{name}?{words}", f"Content-Length: {lengths[0]}") + bytes(lengths[1])
            )
            if last is None:
                client.head()
            else:
                assert until(lambda name=name, last=last: last in seen(server, name)), name
            leave(client, how)
            silent.append(client)
            # The others are served meanwhile.
            assert seen(server, "nothing") == []
    assert until(lambda: all(has_left(server, name) for name in names)), [
        (name, seen(server, name)[-3:]) for name in names if not has_left(server, name)
    ]
    for client in silent:
        client.sock.close()
    check_is_empty(server, before)


def test_clients_of_websockets_leave_at_each_await(server: Supervised) -> None:
    seen(server, "nothing")
    before = descriptors(server)
    clients, names = [], []
    for how in ("reset", "close", "half", "silence"):
        for at, (words, last) in WEBSOCKET.items():
            name = f"ws-{at}-{how}"
            names.append(name)
            client = server.connect(receive_buffer_bytes=1 << 16)
            client.send(handshake(f"/{name}?{words}"))
            assert until(lambda name=name, last=last: last in seen(server, name)), name
            leave(client, how)
            clients.append(client)
    assert until(lambda: all(has_left(server, name) for name in names)), [
        (name, seen(server, name)[-3:]) for name in names if not has_left(server, name)
    ]
    for client in clients:
        client.sock.close()
    check_is_empty(server, before)


def test_a_stream_without_another_wait_leaves_the_loop_to_others(server: Supervised) -> None:
    with server.connect() as client:
        client.send(request("GET", "/stream?endless"))
        client.head()
        client.chunk()
    assert until(lambda: has_left(server, "stream"))


#: What 2,000 clients ask for before they leave.
STORM = [
    request("GET", "/storm-0?receive+sleep+head+piece+end"),
    request("GET", "/storm-1?receive+timeouts+head+scopes"),
    request("GET", "/storm-2?receive+head+flood"),
    request("GET", "/storm-3?head+cancelled+end"),
    request("GET", "/storm-4?endless"),
    request("POST", "/storm-5?receive+body+head+end", "Content-Length: 1000000") + bytes(200_000),
    handshake("/storm-6?receive+accept+echo+echo"),
    handshake("/storm-7?receive+timeouts+accept+pours_in_scopes"),
    handshake("/storm-8?receive+sleep+accept+say+close"),
]


async def storm(address: tuple[str, int], seed: int) -> None:
    """Clients that send a request and leave within 20 ms, 100 at a time."""
    chance = random.Random(seed)
    turns = asyncio.Semaphore(100)

    async def one() -> None:
        async with turns:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(chance.choice(STORM))
            with contextlib.suppress(asyncio.TimeoutError, ConnectionError):
                await asyncio.wait_for(reader.read(chance.choice((1, 1000, 100_000))), chance.random() / 50)
            await asyncio.sleep(chance.random() / 50)
            if chance.random() < 0.5:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                writer.transport.abort()
            writer.close()

    await asyncio.gather(*[one() for _ in range(2000)])


def test_a_storm_of_clients_that_leave_leaves_nothing(server: Supervised) -> None:
    seen(server, "nothing")
    before = descriptors(server)
    assert isinstance(server.address, tuple)
    seed = random.randrange(1 << 32)
    print("seed", seed)
    asyncio.run(storm(server.address, seed))
    # Until then it may refuse, as under each overload.
    assert until(lambda: server.ask("/seen/nothing").status == 200)
    check_is_empty(server, before)


@pytest.mark.parametrize("words", ["head+cancelled+end", "head+timeouts+end", "receive+head+timeouts+end"])
def test_an_application_that_cancels_its_own_waits_answers(server: Supervised, words: str) -> None:
    with server.connect() as client:
        for _ in range(20):
            reply = client.ask("GET", f"/cancels?{words}")
            assert (reply.status, reply.body) == (200, b"piece" * ("cancelled" in words) + b"end")
        websocket = WebSocket(client, "/cancels?receive+accept+timeouts+say+echo")
        assert websocket.text() == "said"
    assert "Traceback" not in server.errors


def test_each_message_is_a_step_of_the_task(server: Supervised) -> None:
    with server.connect() as client:
        websocket = WebSocket(client, "/turns?receive+accept+turns")
        for turn, (word, more) in enumerate(
            [
                ("plain", ""),
                ("plain", ""),
                ("sleep", ""),
                ("plain", ""),
                ("yield", ""),
                ("cancel", " cancelled"),
                ("plain", ""),
                ("cancel a sleep", " cancelled"),
                ("plain", ""),
                ("child", " of the child"),
                ("plain", ""),
            ],
            1,
        ):
            websocket.send(1, word.encode())
            if word == "child":
                assert websocket.text() == "child"
                websocket.send(1, b"of the child")
            assert websocket.text() == f"{word} True {turn}{more}"
    assert "Traceback" not in server.errors


def test_an_event_stream_lives_through_a_reload_until_the_drain_ends(
    supervise: Callable[..., Supervised],
) -> None:
    server = supervise(*SCRIPTED, "--drain-timeout", "3s", app="scripted:app", log=None)
    with server.connect() as stream, server.connect() as watch:
        stream.send(request("GET", "/sse?events+piece+wait+piece+receive+receive"))
        assert stream.head()[0] == 200
        assert stream.chunk() == b"piece"
        # A connection to the same process, which it keeps as long as it is used.
        watch.send(request("GET", "/watch?events+wait+piece+receive+receive"))
        watch.head()
        assert until(lambda: seen(server, "watch")[-1:] == ["waits"])
        (old,) = server.pids()
        with server.connect() as kept:
            kept.send(request("GET", "/go/sse"))
            server.done("reload")
            kept.reply()
        # The pieces of the old process still come, and new clients get the new one.
        assert stream.chunk() == b"piece"
        with server.connect() as again:
            again.send(request("GET", "/sse?events+piece+receive+receive"))
            again.head()
            assert again.chunk() == b"piece"
            assert old not in server.pids()
            with pytest.raises(CutShort):
                while stream.chunk():
                    pass
        assert until(lambda: seen(server, "sse")[-1] == "ends")
    server.settled(1)
    assert "Traceback" not in server.errors


def test_contexts_are_clean_in_each_request_of_an_http2_connection(
    supervise: Callable[..., Supervised],
) -> None:
    server = supervise(*SCRIPTED, app="asgi_zoo:app", log=None)
    with Http2(server) as client:
        for who in ("first", "second", "third"):
            found = json.loads(client.ask(f"/context?who={who}").body)
            assert found == ["nobody", who, "set at startup"]
        # Two at once, of which each begins before the other ends.
        streams = [client.begin(f"/context?who={who}") for who in ("fourth", "fifth")]
        found = [json.loads(client.response(stream).body) for stream in streams]
        server.count(2)
        assert found == [["nobody", "fourth", "set at startup"], ["nobody", "fifth", "set at startup"]]
