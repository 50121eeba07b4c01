"""32 WebSocket clients whose messages all of them get: rounds, in which each sends one and waits for all."""

from __future__ import annotations

import select
import socket
import time

from lab.generator import Counted, GeneratorFailed, children_cpu_s

CLIENTS = 32
PAYLOAD_BYTES = 64
#: Masked with zeros, which leave the payload as it is.
FRAME = b"\x82" + bytes([0x80 | PAYLOAD_BYTES]) + bytes(4) + b"x" * PAYLOAD_BYTES
#: What a client gets of each message: a header of two bytes, and no mask.
MESSAGE_BYTES = 2 + PAYLOAD_BYTES
PATIENCE_S = 20
HANDSHAKE = (
    b"GET /broadcast HTTP/1.1\r\nHost: lab\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def run(port: int, seconds: float) -> Counted:
    """Rounds for so long; each message that a client gets counts. Raises GeneratorFailed."""
    began_cpu_s = time.process_time() + children_cpu_s()
    sockets = [connected(port) for _ in range(CLIENTS)]
    try:
        # All take part before the first message.
        time.sleep(0.2)
        began_s = time.monotonic()
        taken_bytes = played(sockets, began_s + seconds)
        duration_s = time.monotonic() - began_s
    finally:
        for one in sockets:
            one.close()
    cpu_s = time.process_time() + children_cpu_s() - began_cpu_s
    nothing = float("nan")
    return Counted(taken_bytes // MESSAGE_BYTES, duration_s, nothing, nothing, nothing, 0, 0, cpu_s, False)


def connected(port: int) -> socket.socket:
    """Behind its handshake."""
    one = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    one.sendall(HANDSHAKE)
    head = b""
    while b"\r\n\r\n" not in head:
        more = one.recv(4096)
        if not more:
            raise GeneratorFailed("the server closes the connection in its handshake")
        head += more
    if b" 101 " not in head.split(b"\r\n", 1)[0] + b" ":
        raise GeneratorFailed(f"the handshake is answered by {head[:60]!r}")
    one.setblocking(False)
    return one


def played(sockets: list[socket.socket], until_s: float) -> int:
    """Bytes of messages that have come when no round is begun any more."""
    waiting = select.epoll()
    by_number = {one.fileno(): one for one in sockets}
    for number in by_number:
        waiting.register(number, select.EPOLLIN)
    got = dict.fromkeys(by_number, 0)
    begun = dict.fromkeys(by_number, 1)
    for one in sockets:
        one.send(FRAME)
    # Each gets every message of all.
    while any(got[number] < sum(begun.values()) * MESSAGE_BYTES for number in by_number):
        ready = waiting.poll(PATIENCE_S)
        if not ready:
            raise GeneratorFailed("messages of the broadcast do not come")
        for number, _ in ready:
            data = by_number[number].recv(1 << 16)
            if not data:
                raise GeneratorFailed("the server has closed a connection")
            got[number] += len(data)
            is_over = got[number] >= begun[number] * CLIENTS * MESSAGE_BYTES
            if is_over and time.monotonic() < until_s:
                begun[number] += 1
                by_number[number].send(FRAME)
    waiting.close()
    return sum(got.values())
