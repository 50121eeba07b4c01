"""Clients that misbehave, as a process of their own: many connections on one epoll.

    python -m lab.slow.bad_clients stalled  PORT COUNT DEADLINE_S        ask for 64 KB, never read
    python -m lab.slow.bad_clients trickle  PORT COUNT DEADLINE_S        a byte every 5 s of a head or a body
    python -m lab.slow.bad_clients upload   PORT COUNT                   100 MB each, as fast as it is taken
    python -m lab.slow.bad_clients download PORT COUNT                   one cold file after the other
    python -m lab.slow.bad_clients shared   PORT COUNT                   ask for 8 MB of one object
    python -m lab.slow.bad_clients own      PORT COUNT                   ask for 8 MB of an object each
    python -m lab.slow.bad_clients fetch    PORT PATH                    one download for each line of stdin

`shared` and `own` never read either. Prints `ready` when all have begun; these two once before that, and wait
for a line. A line on stdin is answered by one line of JSON about the clients until then; the end of stdin
ends the program. It judges no more than whether a close was in time. `milepost bench --bad-clients` does not
replace it: that has no uploads and no downloads, and does not say when each connection was closed after its
last progress.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import json
import os
import select
import socket
import statistics
import struct
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from lab import held_clients, process

LARGE_PATHS = ("/64k.txt", "/files/64k.txt")
SMALL_PATH = "/1k.txt"
COLD_PATH = "/slow/cold-%d.bin"
# Modes that begin with the first line of stdin, so that they come when a load is under way.
ON_ORDER = ("shared", "own")
# Modes that never read, and what they ask for by turns.
UNREAD_PATHS = {"stalled": LARGE_PATHS, "shared": ("/shared",), "own": ("/own",)}
# As on Ethernet, see lab/measure.py; and the least window that the kernel gives.
SEGMENT_BYTES = 1460
RECEIVE_BYTES = 1
TRICKLE_EVERY_S = 5.0
# One body fits into the server's memory, the next goes to its spool file.
TRICKLE_BODY_BYTES = (60_000, 10_000_000)
UPLOAD_BYTES = 100 * 1000 * 1000
TOLERANCE_S = 1.0
STDIN = 0
GONE = select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP
# Where tcpi_last_data_recv is in struct tcp_info: eight bytes, then the twelfth number.
LAST_DATA_OFFSET = 8 + 11 * 4
TCP_INFO_BYTES = 104
_CHUNK = bytes(256 * 1024)
_SINK = bytearray(4 << 20)


@dataclass
class Connection:
    """One connection and what it has to go on with; `began_s` is when its deadline started."""

    peer: socket.socket
    kind: str
    began_s: float
    to_send: int = 0
    to_read: int = 0
    head: bytes = b""


@dataclass
class Counts:
    """What has happened so far; `held_s` by kind, from the last progress to the close."""

    held_s: dict[str, list[float]] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)
    bytes_moved: int = 0
    completed: int = 0
    lost: int = 0

    def line(self, open_count: int, deadline_s: float) -> str:
        """As one line of JSON; `outside` are those not closed at their deadline, the open ones too."""
        held = [value for values in self.held_s.values() for value in values]
        outside = sum(abs(value - deadline_s) > TOLERANCE_S for value in held) + open_count
        by_kind = {
            kind: [round(f(values), 3) for f in (min, statistics.median, max)]
            for kind, values in self.held_s.items()
        }
        return json.dumps(
            {
                "open": open_count,
                "closed": len(held),
                "outside": outside,
                "held_s": by_kind,
                "statuses": dict(self.statuses),
                "bytes": self.bytes_moved,
                "completed": self.completed,
                "lost": self.lost,
            }
        )


class BadClients:
    """All connections of one mode and the loop that they live in."""

    def __init__(self, mode: str, port: int, deadline_s: float) -> None:
        self.mode, self.port, self.deadline_s = mode, port, deadline_s
        self.epoll = select.epoll()
        self.connections: dict[int, Connection] = {}
        self.counts = Counts()
        self.due: list[tuple[float, int]] = []
        self.cold = itertools.count()

    def begin(self, count: int) -> None:
        """Connects all of them, and looks after those that are there meanwhile."""
        for index in range(count):
            self.join(index)
            if index % 64 == 63:
                self.turn(0.0)

    def join(self, index: int) -> None:
        """One more connection of the mode."""
        unread = UNREAD_PATHS.get(self.mode)
        segment_bytes, receive_bytes = (SEGMENT_BYTES, RECEIVE_BYTES) if unread else (0, 0)
        peer = held_clients.connect(self.port, index, segment_bytes, receive_bytes)
        connection = Connection(peer, self.mode, time.monotonic())
        events = GONE
        if unread:
            peer.sendall(process.request(self.port, unread[index % len(unread)]))
        elif self.mode == "trickle":
            self.start_trickle(connection, index)
        elif self.mode == "upload":
            peer.sendall(post(UPLOAD_BYTES))
            connection.to_send, events = UPLOAD_BYTES, GONE | select.EPOLLOUT
        else:
            peer.sendall(process.request(self.port, COLD_PATH % next(self.cold)))
            events = GONE | select.EPOLLIN
        peer.setblocking(False)
        self.connections[peer.fileno()] = connection
        self.epoll.register(peer.fileno(), events)

    def start_trickle(self, connection: Connection, index: int) -> None:
        """Every other one sends a head byte by byte, the rest a body."""
        if index % 2 == 0:
            connection.kind, connection.head = "head", process.request(self.port, SMALL_PATH)
        else:
            connection.kind, connection.head = "body", b"x" * 1000
            connection.peer.sendall(post(TRICKLE_BODY_BYTES[index // 2 % 2]))
        heapq.heappush(self.due, (connection.began_s, connection.peer.fileno()))

    def turn(self, timeout_s: float) -> bool:
        """Waits for something to happen and deals with it; False at the end of stdin."""
        if self.due:
            timeout_s = min(timeout_s, max(0.0, self.due[0][0] - time.monotonic()))
        for fd, events in self.epoll.poll(timeout_s, 256):
            if fd == STDIN:
                if not os.read(STDIN, 4096):
                    return False
                print(self.counts.line(len(self.connections), self.deadline_s), flush=True)
            elif events & select.EPOLLIN and not self.read(self.connections[fd]):
                self.close(fd)
            elif events & GONE:
                self.close(fd)
            elif events & select.EPOLLOUT:
                self.send(self.connections[fd])
        while self.due and self.due[0][0] <= time.monotonic():
            self.send_byte(heapq.heappop(self.due)[1])
        return True

    def send_byte(self, fd: int) -> None:
        """The next byte of a trickle; what it meets is seen by epoll."""
        connection = self.connections.get(fd)
        if connection is None:
            return
        if connection.head:
            try:
                connection.peer.send(connection.head[:1])
            except OSError:
                return
            connection.head = connection.head[1:]
            heapq.heappush(self.due, (time.monotonic() + TRICKLE_EVERY_S, fd))

    def send(self, connection: Connection) -> None:
        """As much of an upload as the kernel takes at once."""
        try:
            sent = connection.peer.send(_CHUNK[: min(len(_CHUNK), connection.to_send)])
        except OSError:
            return
        connection.to_send -= sent
        self.counts.bytes_moved += sent
        if connection.to_send == 0:
            self.counts.completed += 1
            self.epoll.modify(connection.peer.fileno(), GONE)

    def read(self, connection: Connection) -> bool:
        """Whatever is there of a download, and the next request after its end; False: the end."""
        try:
            if connection.to_read == 0:
                connection.to_read = begin_reply(connection.peer)
            received = skip(connection.peer, connection.to_read)
        except BlockingIOError:
            return True
        except OSError:
            return False
        connection.to_read -= received
        self.counts.bytes_moved += received
        if connection.to_read == 0:
            self.counts.completed += 1
            connection.peer.sendall(process.request(self.port, COLD_PATH % next(self.cold)))
        return received > 0

    def close(self, fd: int) -> None:
        """The server has closed this one: when, and with what last words."""
        connection = self.connections.pop(fd)
        self.epoll.unregister(fd)
        if self.mode in ("stalled", "trickle"):
            now_s = time.monotonic()
            quiet_s = (
                since_last_data_s(connection.peer) if self.mode == "stalled" else now_s - connection.began_s
            )
            self.counts.held_s.setdefault(connection.kind, []).append(quiet_s)
        else:
            self.counts.lost += 1
        self.counts.statuses[last_words(connection.peer)] += 1
        connection.peer.close()


def main() -> int:
    """Runs one mode until stdin ends."""
    mode, port = sys.argv[1], int(sys.argv[2])
    if mode == "fetch":
        return fetch_for_each_line(port, sys.argv[3])
    clients = BadClients(mode, port, float(sys.argv[4]) if len(sys.argv) > 4 else 0.0)
    if mode in ON_ORDER:
        print("ready", flush=True)
        os.read(STDIN, 4096)
    clients.begin(int(sys.argv[3]))
    clients.epoll.register(STDIN, select.EPOLLIN)
    print("ready", flush=True)
    while clients.turn(1.0):
        pass
    return 0


def fetch_for_each_line(port: int, path: str) -> int:
    """Downloads without a copy to user space: TCP takes MSG_TRUNC for "throw it away"."""
    peer = held_clients.connect(port, 0)
    print("ready", flush=True)
    for _ in sys.stdin:
        began_s = time.monotonic()
        peer.sendall(process.request(port, path))
        total = left = whole_head(peer)
        while left:
            left -= skip(peer, left) or sys.exit("cut in the middle of a reply")
        print(json.dumps({"bytes": total, "seconds": time.monotonic() - began_s}), flush=True)
    return 0


def whole_head(peer: socket.socket) -> int:
    """As begin_reply, on a blocking socket."""
    while True:
        try:
            return begin_reply(peer)
        except BlockingIOError:
            time.sleep(0.001)


def post(body_bytes: int) -> bytes:
    """The head of an upload to the application."""
    return f"POST {SMALL_PATH} HTTP/1.1\r\nHost: slow\r\nContent-Length: {body_bytes}\r\n\r\n".encode()


def begin_reply(peer: socket.socket) -> int:
    """Takes the head of a 200 from the socket, and not a byte more; gives the body's length.

    Raises OSError when there is something else, BlockingIOError while the head is not whole.
    """
    seen = peer.recv(4096, socket.MSG_PEEK)
    head, end, _ = seen.partition(b"\r\n\r\n")
    if seen and not end:
        raise BlockingIOError(errno.EAGAIN, "the head is not whole yet")
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:])
    if not head.startswith(b"HTTP/1.1 200 ") or b"content-length" not in fields:
        raise OSError(f"refused: {head[:40]!r}")
    peer.recv(len(head) + len(end))
    return int(fields[b"content-length"])


def skip(peer: socket.socket, bytes_max: int) -> int:
    """Throws away what has arrived, at most `bytes_max`; how much it was."""
    return peer.recv_into(_SINK, min(bytes_max, len(_SINK)), socket.MSG_TRUNC)


def since_last_data_s(peer: socket.socket) -> float:
    """How long ago the last byte of data was taken in: the reply's last progress, to the
    millisecond and by the kernel's own clock. Reset or not, the socket still knows."""
    info = peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    return float(struct.unpack_from("I", info, LAST_DATA_OFFSET)[0]) / 1000


def last_words(peer: socket.socket) -> str:
    """The status of the reply that is there to be read, or what there is instead."""
    try:
        head = peer.recv(64, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError as cause:
        return errno.errorcode.get(cause.errno or 0, "unknown")
    return head.split(b" ")[1].decode("latin-1") if head.startswith(b"HTTP/") else "nothing"


if __name__ == "__main__":
    sys.exit(main())
