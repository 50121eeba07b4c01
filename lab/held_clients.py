"""Clients that hold many connections and do nothing, for `idle` and `slow-readers`.

`milepost bench --bad-clients` does not replace them: its idle clients send no request, and nothing is to be
measured beside them when memory is.

    python -m lab.held_clients idle PORT PATH COUNT             one request each, reply read, then silence
    python -m lab.held_clients slow PORT PATH COUNT [MSS]       one request each, the reply is never read

Prints `ready COUNT` when all are there. Every line on stdin is answered by `open COUNT`, the
connections that the server has not closed. The end of stdin ends it.
"""

from __future__ import annotations

import socket
import sys

from lab import process

CONNECT_TIMEOUT_S = 10.0
# Requests that are under way at once while idle connections are made.
BATCH_LEN = 64
# About 28,000 ports per source address and target: stay under half of them.
CONNECTIONS_PER_SOURCE = 12_000
# The kernel rounds this up to its least receive buffer.
RECEIVE_BYTES = 1
TCP_ESTABLISHED = 1
# Named in Python's socket module from 3.12 on only.
IP_BIND_ADDRESS_NO_PORT = 24


def main() -> int:
    """Holds the connections until stdin ends."""
    mode, port, path, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    segment_bytes = int(sys.argv[5]) if len(sys.argv) > 5 else 0
    clients = hold_idle(port, path, count) if mode == "idle" else hold_slow(port, path, count, segment_bytes)
    print(f"ready {len(clients)}", flush=True)
    for _ in sys.stdin:
        print(f"open {sum(map(is_open, clients))}", flush=True)
    return 0


def hold_idle(port: int, path: str, count: int) -> list[socket.socket]:
    """Connections that have had one reply each."""
    clients: list[socket.socket] = []
    while len(clients) < count:
        batch = [connect(port, len(clients) + i) for i in range(min(BATCH_LEN, count - len(clients)))]
        for client in batch:
            client.sendall(process.request(port, path))
        for client in batch:
            process.read_reply(client)
        clients += batch
    return clients


def hold_slow(port: int, path: str, count: int, segment_bytes: int) -> list[socket.socket]:
    """Connections that have asked and will not read."""
    clients = []
    for index in range(count):
        client = connect(port, index, segment_bytes, RECEIVE_BYTES)
        client.sendall(process.request(port, path))
        clients.append(client)
    return clients


def connect(port: int, index: int, segment_bytes: int = 0, receive_bytes: int = 0) -> socket.socket:
    """A connection from a source address of its own group; 0 leaves the kernel's default."""
    client = socket.socket()
    client.settimeout(CONNECT_TIMEOUT_S)
    # Both must be set before the handshake, which announces them.
    if receive_bytes:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    if segment_bytes:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment_bytes)
    # Sources differ from run to run, or closed connections of the last ones would hold the ports;
    # the kernel chooses the port at connect, where it must be free for this target only.
    client.setsockopt(socket.SOL_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    client.bind((f"127.0.{1 + port % 250}.{1 + index // CONNECTIONS_PER_SOURCE}", 0))
    client.connect(("127.0.0.1", port))
    return client


def is_open(client: socket.socket) -> bool:
    """Asks the kernel, since unread data would hide the server's close from `recv`."""
    return client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == TCP_ESTABLISHED


if __name__ == "__main__":
    sys.exit(main())
