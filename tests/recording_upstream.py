"""An upstream that is a process, to be killed and paused: it writes each request down before it answers.

Takes a port of 127.0.0.1 and a file that it appends to; says `ready`, and ends with its input.
"""

from __future__ import annotations

import os
import sys
import time

from upstreams import Connection, Request, Upstream, answering

#: Long enough that a signal finds requests inside.
WORK_S = 0.002


def main(port: int, record: str) -> None:
    """Serves until stdin ends."""
    file = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def respond(connection: Connection, asked: Request) -> None:
        os.write(file, f"{asked.method} {asked.target}\n".encode())
        time.sleep(WORK_S)
        connection.reply(asked.target.encode(), "Content-Type: text/plain")

    with Upstream(answering(respond), port):
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
