"""One started program: pinned to its core, ready when it answers, gone when the block ends.

Nothing is ended by name: only processes that were started here, by their ids.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab import cpu

READY_TIMEOUT_S = 20.0
TERM_GRACE_S = 3.0
KILL_GRACE_S = 5.0
REPLY_TIMEOUT_S = 5.0
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class NotReady(Exception):
    """The program ended, or did not answer in time; the text ends with its last words."""


@dataclass(frozen=True)
class Command:
    """How to start a program; `output` receives stdout and stderr, `cwd` is where it runs."""

    argv: Sequence[str]
    output: Path
    cwd: Path
    environ: dict[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def started(command: Command, core: int) -> Iterator[subprocess.Popen[bytes]]:
    """Runs `command` on `core` in a session of its own and ends that whole session afterwards."""
    with command.output.open("ab") as output:
        child = subprocess.Popen(
            ["taskset", "-c", str(core), *command.argv],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=command.cwd,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **command.environ},
            start_new_session=True,
            preexec_fn=_prepare_child,
        )
    try:
        yield child
    finally:
        end(child)


def end(child: subprocess.Popen[bytes]) -> None:
    """Asks the child to stop, then kills what remains of its session, by process id."""
    members = set(cpu.tree(child.pid))
    if child.stdin:
        child.stdin.close()
    if child.poll() is None:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(TERM_GRACE_S)
    for pid in members | set(cpu.tree(child.pid)):
        # An id may have been given to a stranger since; only members of our session are ours.
        with contextlib.suppress(ProcessLookupError):
            if pid == child.pid:
                child.kill()
            elif os.getsid(pid) == child.pid:
                os.kill(pid, signal.SIGKILL)
    child.wait(KILL_GRACE_S)


def wait_ready(
    child: subprocess.Popen[bytes], command: Command, port: int, path: str, tls: ssl.SSLContext | None = None
) -> bytes:
    """The raw reply to the first GET of `path` that is answered 200. Raises NotReady."""
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    cause = "no answer"
    while time.monotonic() < deadline_s:
        if child.poll() is not None:
            cause = f"ended with status {child.returncode}"
            break
        try:
            reply = fetch(port, path, tls)
        except OSError as fault:
            cause = str(fault)
        else:
            status = reply.split(b"\r\n", 1)[0]
            if b" 200 " in status + b" ":
                return reply
            cause = status.decode("latin-1")[:80]
        time.sleep(0.05)
    words = " | ".join(command.output.read_text(errors="replace").strip().splitlines()[-3:])
    raise NotReady(f"{cause}: {words}" if words else cause)


def fetch(port: int, path: str, tls: ssl.SSLContext | None = None) -> bytes:
    """One keep-alive GET as the generator sends it; the raw reply, framed by its Content-Length."""
    plain = socket.create_connection(("127.0.0.1", port), REPLY_TIMEOUT_S)
    with tls.wrap_socket(plain, server_hostname="localhost") if tls else plain as client:
        client.sendall(request(port, path))
        return read_reply(client)


def request(port: int, path: str) -> bytes:
    """The bytes that the generator sends, for the same cost of parsing."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()


def read_reply(client: socket.socket) -> bytes:
    """One reply that has a Content-Length. Raises OSError when it is cut."""
    reply = b""
    while b"\r\n\r\n" not in reply:
        reply += _some(client)
    head = reply.split(b"\r\n\r\n", 1)[0]
    lengths = [
        line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
    ]
    if not lengths:
        raise OSError("reply without Content-Length")
    while len(reply) < len(head) + 4 + int(lengths[0]):
        reply += _some(client)
    return reply


def free_port() -> int:
    """A port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _some(client: socket.socket) -> bytes:
    data = client.recv(65536)
    if not data:
        raise OSError("connection closed in the middle of a reply")
    return data


def _prepare_child() -> None:
    # All descriptors that we may have: 10,000 connections need them on either side.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # If this program is killed without a chance to clean up, its children end as well.
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
