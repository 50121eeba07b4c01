"""A process of many WebSocket clients that are silent, and note how their connections end.

    crowd.py HOST PORT COUNT TARGET [--deflate] [--again]

Says `open` on standard output when all are connected, once. Ends when all are closed; with `--again` it opens
each connection that was closed again, until standard input ends. Then it writes a line of JSON: close codes
with their counts, connections that were cut without a close frame, handshakes that were refused, and when
close frames came, in seconds since the first.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import socket
import struct
import sys
import time
from collections import Counter

from frames import close, handshake

#: Connections from one source address: the kernel has some 28,000 ports for each pair of addresses.
FROM_ONE_ADDRESS = 5000
BATCH = 100
DEFLATE = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"


class Crowd:
    """All connections of this process."""

    def __init__(self, address: tuple[str, int], request: bytes) -> None:
        self.address = address
        self.request = request
        self.opened = 0
        self.open: dict[int, socket.socket] = {}
        self.poll = select.epoll()
        self.codes: Counter[str] = Counter()
        self.cut = self.refused = 0
        self.times: list[float] = []

    def connect(self, count: int) -> None:
        """Opens so many connections."""
        new = []
        for _ in range(count):
            sock = socket.socket()
            source = f"127.0.0.{1 + self.opened // FROM_ONE_ADDRESS % 200}"
            # The port is chosen at the connect: a port that is in use for another peer will do.
            sock.setsockopt(socket.SOL_IP, 24, 1)
            sock.bind((source, 0))
            sock.settimeout(60)
            sock.connect(self.address)
            sock.sendall(self.request)
            new.append(sock)
            self.opened += 1
        for sock in new:
            head = b""
            # By single bytes at its end: frames that follow it are not for this.
            while not head.endswith(b"\r\n\r\n"):
                data = sock.recv(1 if len(head) > 100 else 100)
                if not data:
                    break
                head += data
            if not head.startswith(b"HTTP/1.1 101"):
                self.refused += 1
                sock.close()
                continue
            sock.setblocking(False)
            self.open[sock.fileno()] = sock
            self.poll.register(sock, select.EPOLLIN)

    def look(self, timeout_s: float) -> int:
        """Takes what has come; how many connections have ended."""
        ended = 0
        for fd, _ in self.poll.poll(timeout_s):
            if fd not in self.open:
                continue
            sock = self.open[fd]
            try:
                data = sock.recv(4096)
            except OSError:
                data = b""
            if data[:1] == b"\x88" and len(data) >= 4:
                (code,) = struct.unpack("!H", data[2:4])
                self.codes[str(code)] += 1
                self.times.append(time.monotonic())
                with contextlib.suppress(OSError):
                    sock.sendall(close(code))
            elif data:
                # A ping: it is answered as the server does not say how long it waits.
                sock.sendall(b"\x8a\x80\0\0\0\0")
                continue
            else:
                self.cut += 1
            del self.open[fd]
            self.poll.unregister(fd)
            sock.close()
            ended += 1
        return ended

    def report(self) -> str:
        first = min(self.times, default=0.0)
        times = sorted(round(at - first, 3) for at in self.times)
        told = {"codes": self.codes, "cut": self.cut, "refused": self.refused, "times": times}
        return json.dumps(told | {"open": len(self.open)})


def main() -> None:
    host, port, count, target, *options = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    headers = [DEFLATE] if "--deflate" in options else []
    crowd = Crowd((host, int(port)), handshake(target, *headers))
    for _ in range(0, int(count), BATCH):
        crowd.connect(BATCH)
    print("open", flush=True)
    if "--again" in options:
        crowd.poll.register(sys.stdin, select.EPOLLIN | select.EPOLLHUP)
        stdin = sys.stdin.fileno()
        os.set_blocking(stdin, False)
        while True:
            ended = crowd.look(0.1)
            crowd.connect(ended)
            with contextlib.suppress(BlockingIOError):
                if os.read(stdin, 1) == b"":
                    break
    else:
        while crowd.open:
            crowd.look(1)
    print(crowd.report(), flush=True)


if __name__ == "__main__":
    main()
