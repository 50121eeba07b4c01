"""What runs beside a measured server: the slow disk, the misfits, the client of constant rate, and
what keeps the processors awake. Each is a process of its own on the load's core, ended (and the
disk unmounted) with its block.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crowd
import generator
import process
from measure import Ground
from toolbox import BENCHES, Toolbox

ANSWER_TIMEOUT_S = 30.0
# Beyond its own time, for a server that answers late.
PACE_GRACE_S = 25.0
POLL_S = 0.25
# The client of constant rate goes before all others on its core, or they would be its latency.
REALTIME = ("chrt", "-f", "10")
# Everybody goes before these: they only keep a processor from falling asleep, whose waking up in
# a virtual machine takes longer than a request.
IDLE_CLASS = ("chrt", "-i", "0")
POLITE = ("nice", "-n", "10")
CLONE_NEWNS = 0x20000
MS_REC_PRIVATE = (1 << 14) | (1 << 18)
MNT_DETACH = 2
MOUNTPOINT = "slow"
AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")
_LIBC = ctypes.CDLL(None, use_errno=True)


class PaceFailed(generator.GeneratorFailed):
    """The client of constant rate gave no result."""


@dataclass(frozen=True)
class Disk:
    """How slow a disk is."""

    read_ms: int
    write_ms: int
    # More of what slowfs takes.
    options: tuple[str, ...] = ()


def keep_mounts_private() -> bool:
    """From now on what this process and its children mount is seen by them alone and gone with
    the last of them, however they end. False where that is not allowed."""
    if _LIBC.unshare(CLONE_NEWNS) != 0:
        return False
    return bool(_LIBC.mount(b"none", b"/", None, MS_REC_PRIVATE, None) == 0)


@contextlib.contextmanager
def mounted(disk: Disk, box: Toolbox, ground: Ground, folder: Path) -> Iterator[crowd.Crowd]:
    """`folder`, as a slow disk at a fixed place; nothing of it is in memory yet. Gives its program,
    which takes orders."""
    mountpoint = mountpoint_of(ground)
    mountpoint.mkdir(exist_ok=True)
    delays = (str(disk.read_ms), str(disk.write_ms))
    argv = [box.programs["slowfs"], str(folder), str(mountpoint), *delays, *disk.options]
    command = process.Command(argv, ground.directory / "slowfs.out", ground.directory)
    try:
        with crowd.gathered(command, ground.client_core) as program:
            yield program
    finally:
        unmount(mountpoint)


def mountpoint_of(ground: Ground) -> Path:
    """Where the slow disk is; its name is its URL too."""
    return ground.directory / MOUNTPOINT


def mount(kind: bytes, mountpoint: Path, options: str) -> None:
    """Mounts a file system of the kernel's. Raises NotReady."""
    if _LIBC.mount(kind, os.fsencode(mountpoint), kind, 0, options.encode()) != 0:
        why = os.strerror(ctypes.get_errno())
        raise process.NotReady(f"{kind.decode()} cannot be mounted here: {why}; root may")


def unmount(mountpoint: Path) -> None:
    """Detaches the mount point if its program could not, so that no dead mount is left."""
    if not os.path.ismount(mountpoint) and _is_alive(mountpoint):
        return
    if _LIBC.umount2(os.fsencode(mountpoint), MNT_DETACH) != 0 and (helper := shutil.which("fusermount3")):
        subprocess.run([helper, "-u", "-z", str(mountpoint)], capture_output=True, check=False)


@contextlib.contextmanager
def misfits(mode: str, port: int, ground: Ground, *arguments: str) -> Iterator[crowd.Crowd]:
    """Clients of a mode of misfit.py that have begun."""
    argv = [sys.executable, "-m", "slow.misfit", mode, str(port), *arguments]
    output = ground.directory / f"{mode}.out"
    environ = {"PYTHONPATH": str(BENCHES)}
    command = process.Command([*POLITE, *argv], output, ground.directory, environ)
    with crowd.gathered(command, ground.client_core) as crowded:
        yield crowded


def told(crowded: crowd.Crowd) -> dict[str, Any]:
    """What the misfits have seen until now."""
    answer: dict[str, Any] = json.loads(crowded.ask("?", ANSWER_TIMEOUT_S))
    return answer


@contextlib.contextmanager
def in_one_group() -> Iterator[bool]:
    """Has the kernel share a processor between threads alone. Otherwise it shares it between
    sessions first, each of our programs has one of its own, and the idle class counts within a
    session only: what keeps a processor awake would get a server's turn of 3 ms. False where
    that cannot be had."""
    before = _sessions_share()
    if before != "1":
        yield True
        return
    try:
        AUTOGROUP.write_text("0")
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        AUTOGROUP.write_text(before)


def _sessions_share() -> str:
    """What the kernel says of it; nothing where it knows of no such thing."""
    try:
        return AUTOGROUP.read_text().strip()
    except OSError:
        return ""


@contextlib.contextmanager
def awake(ground: Ground) -> Iterator[None]:
    """Keeps both processors from sleeping, where that takes nothing from anybody."""
    if _sessions_share() == "1":
        yield
        return
    argv = [*IDLE_CLASS, sys.executable, "-c", "while True: pass"]
    command = process.Command(argv, ground.directory / "awake.out", ground.directory)
    with process.started(command, ground.server_core), process.started(command, ground.client_core):
        yield


@dataclass(frozen=True)
class Load:
    """Requests of a constant rate for some paths by turns."""

    port: int
    paths: Sequence[str]
    seconds: int
    rate: int = 1000
    connections: int = 32


def pace(load: Load, box: Toolbox, ground: Ground, meanwhile: Callable[[], None]) -> dict[str, Any]:
    """What the client of constant rate counted; `meanwhile` is called again and again beside it.

    Raises PaceFailed.
    """
    argv = [box.programs["pace"], *map(str, (load.port, load.rate, load.seconds, load.connections))]
    output = ground.directory / "pace.out"
    output.write_bytes(b"")
    command = process.Command(
        [*(REALTIME if may_be_realtime() else ()), *argv, *load.paths], output, ground.directory
    )
    deadline_s = time.monotonic() + load.seconds + PACE_GRACE_S
    with process.started(command, ground.client_core) as child:
        while child.poll() is None and time.monotonic() < deadline_s:
            meanwhile()
            time.sleep(POLL_S)
    try:
        counted: dict[str, Any] = json.loads(output.read_text())
    except json.JSONDecodeError as cause:
        raise PaceFailed(f"pace said: {output.read_text().strip()[:200]}") from cause
    return counted


def may_be_realtime() -> bool:
    """Whether this user may have a real-time priority."""
    return subprocess.run([*REALTIME, "true"], capture_output=True, check=False).returncode == 0


def _is_alive(path: Path) -> bool:
    """A mount whose program has ended gives "transport endpoint is not connected"."""
    try:
        os.stat(path)
    except OSError:
        return False
    return True
