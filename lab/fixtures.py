"""What runs beside a measured server: the slow disk, the bad clients, the load of constant rate, and what
keeps the processors awake. Each is a process of its own on the load's core, ended (and the disk unmounted)
with its block.
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

from lab import client_process, generator, process
from lab.scenario import Ground
from lab.toolbox import CHECKOUT, Toolbox

ANSWER_TIMEOUT_S = 30.0
# Beyond its own time, for a server that answers late.
PACE_GRACE_S = 25.0
PACE_TIMEOUT_S = 10
POLL_S = 0.25
# The load of constant rate goes before all others on its core, or they would be its latency.
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
    """The load of constant rate gave no result."""


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
def mounted(disk: Disk, box: Toolbox, ground: Ground, folder: Path) -> Iterator[client_process.ClientProcess]:
    """`folder`, as a slow disk at a fixed place; nothing of it is in memory yet. Gives its program,
    which takes orders."""
    mountpoint = mountpoint_of(ground)
    mountpoint.mkdir(exist_ok=True)
    delays = (str(disk.read_ms), str(disk.write_ms))
    argv = [box.programs["slowfs"], str(folder), str(mountpoint), *delays, *disk.options]
    command = process.Command(argv, ground.directory / "slowfs.out", ground.directory)
    try:
        with client_process.gathered(command, ground.client_core) as program:
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
def bad_clients(
    mode: str, port: int, ground: Ground, *arguments: str
) -> Iterator[client_process.ClientProcess]:
    """Clients of a mode of slow/bad_clients.py that have begun."""
    argv = [sys.executable, "-m", "lab.slow.bad_clients", mode, str(port), *arguments]
    output = ground.directory / f"{mode}.out"
    environ = {"PYTHONPATH": str(CHECKOUT)}
    command = process.Command([*POLITE, *argv], output, ground.directory, environ)
    with client_process.gathered(command, ground.client_core) as clients:
        yield clients


def answer(clients: client_process.ClientProcess) -> dict[str, Any]:
    """What the bad clients have seen until now."""
    counted: dict[str, Any] = json.loads(clients.ask("?", ANSWER_TIMEOUT_S))
    return counted


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
    """Keeps both processors from sleeping, where that takes nothing from the server."""
    if _sessions_share() == "1":
        yield
        return
    argv = [*IDLE_CLASS, sys.executable, "-c", "while True: pass"]
    command = process.Command(argv, ground.directory / "awake.out", ground.directory)
    with process.started(command, ground.server_core), process.started(command, ground.client_core):
        yield


@dataclass(frozen=True)
class Load:
    """Requests of a constant rate, an equal share of them for each path."""

    port: int
    paths: Sequence[str]
    seconds: int
    rate: int = 1000
    connections: int = 32


def paced(load: Load, box: Toolbox, ground: Ground, meanwhile: Callable[[], None]) -> dict[str, Any]:
    """What a `milepost bench` for each path counted, at a constant rate: latencies from the time at which a
    request was due. `meanwhile` is called again and again beside it.

    Raises PaceFailed.
    """
    share = len(load.paths)
    words = ["--rate", str(load.rate // share), "--duration", f"{load.seconds}s", "--threads", "1"]
    words += ["--connections", str(load.connections // share), "--timeout", f"{PACE_TIMEOUT_S}s"]
    deadline_s = time.monotonic() + load.seconds + PACE_GRACE_S
    with contextlib.ExitStack() as stack:
        generators = []
        for number, path in enumerate(load.paths):
            output = ground.directory / f"paced-{number}.json"
            argv = [str(box.milepost), "bench", "--quiet", "--json", str(output), *words]
            argv += ["--cpus", str(ground.client_core), f"http://127.0.0.1:{load.port}{path}"]
            before = REALTIME if may_be_realtime() else ()
            text = ground.directory / f"paced-{number}.out"
            text.write_bytes(b"")
            command = process.Command([*before, *argv], text, ground.directory)
            generators.append(
                (stack.enter_context(process.started(command, ground.client_core)), output, text)
            )
        while any(child.poll() is None for child, _, _ in generators) and time.monotonic() < deadline_s:
            meanwhile()
            time.sleep(POLL_S)
        outcomes = [_outcome(output, text) for _, output, text in generators]
    by_path = {path: _paced_values(outcome) for path, outcome in zip(load.paths, outcomes)}
    summed = {key: sum(values[key] for values in by_path.values()) for key in ("failed", "unsent")}
    worst = {key: max(values[key] for values in by_path.values()) for key in ("p99_us", "lag_p99_us")}
    return {**summed, **worst, "paths": by_path}


def _outcome(output: Path, text: Path) -> dict[str, Any]:
    try:
        outcome: dict[str, Any] = json.loads(output.read_text())["runs"][0]
    except (OSError, json.JSONDecodeError, KeyError, IndexError) as cause:
        raise PaceFailed(f"the generator said: {text.read_text().strip()[:200]}") from cause
    output.unlink()
    return outcome


def _paced_values(outcome: dict[str, Any]) -> dict[str, float]:
    """A failed request counts as one that waited for its reply as long as it may."""
    latency, late, counts = outcome["times"]["latency"], outcome["times"]["late"], outcome["counts"]
    failed = sum(counts["failures"].values()) + counts["unfinished"]
    longest = PACE_TIMEOUT_S * 1e6
    is_beyond_p99 = failed * 99 >= counts["answered"]
    p99_us = latency["max_us"] if latency["p99_us"] is None else latency["p99_us"]
    return {
        "failed": failed,
        "unsent": counts["unsent"],
        "p50_us": latency["p50_us"],
        "p99_us": max(p99_us, longest) if failed and is_beyond_p99 else p99_us,
        "max_us": longest if failed else latency["max_us"],
        "lag_p99_us": late["max_us"] if late["p99_us"] is None else late["p99_us"],
    }


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
