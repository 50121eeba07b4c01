"""Clients that misbehave towards a proxy, as a process of their own: as many of each kind.

    python -m lab.proxy.clients PORT PATH COUNT

Prints `ready COUNT` when all have begun. Every line on stdin is answered by `open COUNT`, the clients that
have a connection. The end of stdin ends it. A client whose connection was closed opens another one.

None of them makes a load: those that ask do not take what they asked for, and those that reset ask rarely.
`milepost bench --bad-clients` does not replace it: its clients that half-close read everything and ask again
at once, so that they use upstreams as other clients do, and none sends a body slowly.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import time
from dataclasses import dataclass

from lab import held_clients, process

TICK_S = 0.1
# Of those that read slowly, each tick.
READ_BYTES = 100
RECEIVE_BYTES = 4096
# Ticks from one byte of a slow sender to the next.
SEND_EVERY = 10
# Ticks between two requests of a client that resets, and from such a request to its reset.
RESET_EVERY, RESET_AFTER = 50, 1
BODY_BYTES = 100_000
KINDS = (
    *("reads slowly", "never reads", "sends a head", "sends a body", "idle"),
    *("half-closes, reads slowly", "half-closes, never reads", "resets"),
)
READERS = ("reads slowly", "half-closes, reads slowly")
SENDERS = ("sends a head", "sends a body")
GONE = select.POLLHUP | select.POLLERR


@dataclass
class Client:
    """One client; `sock` is None while it waits for its next turn."""

    kind: str
    number: int
    sock: socket.socket | None = None
    opened_tick: int = 0


def main() -> int:
    """Misbehaves until stdin ends."""
    port, path, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    clients = [Client(KINDS[number % len(KINDS)], number) for number in range(count)]
    tick = 0
    for client in clients:
        step(client, tick, port, path)
    print(f"ready {len(clients)}", flush=True)
    while True:
        tick += 1
        deadline_s = time.monotonic() + TICK_S
        for client in clients:
            try:
                step(client, tick, port, path)
            except BlockingIOError:
                pass
            except OSError:
                close(client)
        while (left_s := deadline_s - time.monotonic()) > 0:
            if not select.select([sys.stdin], [], [], left_s)[0]:
                break
            if not sys.stdin.readline():
                return 0
            print(f"open {sum(client.sock is not None for client in clients)}", flush=True)


def step(client: Client, tick: int, port: int, path: str) -> None:
    """What a client does at a tick. Raises OSError when its connection is at an end."""
    if client.sock is None:
        # Those that reset do so one after the other.
        if client.kind != "resets" or (tick + client.number) % RESET_EVERY == 0:
            open_and_begin(client, tick, port, path)
        return
    if is_gone(client.sock):
        close(client)
    elif client.kind in READERS:
        if not client.sock.recv(READ_BYTES):
            close(client)
    elif client.kind in SENDERS and (tick + client.number) % SEND_EVERY == 0:
        client.sock.send(b"x")
    elif client.kind == "resets" and tick - client.opened_tick >= RESET_AFTER:
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        close(client)


def open_and_begin(client: Client, tick: int, port: int, path: str) -> None:
    """Opens a connection and sends what comes first."""
    client.sock = held_clients.connect(port, client.number, receive_bytes=RECEIVE_BYTES)
    client.opened_tick = tick
    request = process.request(port, path)
    head = request[: -len(b"\r\n")]
    if client.kind == "sends a head":
        client.sock.sendall(head + b"X-Slow: ")
    elif client.kind == "sends a body":
        client.sock.sendall(head.replace(b"GET", b"POST", 1) + b"Content-Length: %d\r\n\r\n" % BODY_BYTES)
    elif client.kind != "idle":
        client.sock.sendall(request)
    if client.kind.startswith("half-closes"):
        client.sock.shutdown(socket.SHUT_WR)
    client.sock.setblocking(False)


def is_gone(sock: socket.socket) -> bool:
    """Whether both sides, or a reset, have ended it; what has arrived and was not read does not hide that."""
    poll = select.poll()
    poll.register(sock, GONE)
    return bool(poll.poll(0))


def close(client: Client) -> None:
    """The client opens its next connection at a later tick."""
    if client.sock is not None:
        client.sock.close()
    client.sock = None


if __name__ == "__main__":
    sys.exit(main())
