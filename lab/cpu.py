"""Processor time and memory, read from the kernel: of one process tree, and of everything else.

Processor time comes from each process's CPU clock (`clock_getcpuclockid(3)`), which counts in
nanoseconds, is exact at the moment of reading, and keeps the time of threads that have ended;
/proc/PID/task/*/schedstat shows the same sum for living threads only. Child processes that
ended and were waited for are in their parent's `cutime` and `cstime`.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")
# Above this share of one CPU taken by others, a repetition does not count (noise passes 10 %).
FOREIGN_SHARE_MAX = 0.08


@dataclass(frozen=True)
class Spent:
    """What a process tree has used so far. User and system time are tick-sampled by the kernel;
    `sleeps` are the voluntary context switches of its living threads."""

    total_s: float
    user_s: float
    system_s: float
    sleeps: int


@dataclass(frozen=True)
class Usage:
    """What happened on the machine during a window. Shares are of one CPU, except `user_share`."""

    elapsed_s: float
    server_s: float
    user_share: float
    foreign_share: float
    sleeps: int


class Window:
    """Opened before a load, closed after it: the difference is the load's."""

    def __init__(self, root_pid: int) -> None:
        self._root_pid = root_pid
        self._busy_s = _busy_s()
        self._spent = spent(root_pid)
        self._harness_s = time.process_time()
        self._began_s = time.monotonic()

    def close(self, generator_s: float) -> Usage:
        """`generator_s` is what the load generator spent, which is neither server nor foreign."""
        after = spent(self._root_pid)
        elapsed_s = time.monotonic() - self._began_s
        server_s = after.total_s - self._spent.total_s
        user_s = after.user_s - self._spent.user_s
        system_s = after.system_s - self._spent.system_s
        own_s = server_s + generator_s + time.process_time() - self._harness_s
        foreign_s = max(0.0, _busy_s() - self._busy_s - own_s)
        return Usage(
            elapsed_s=elapsed_s,
            server_s=server_s,
            user_share=user_s / max(1e-9, user_s + system_s),
            foreign_share=foreign_s / elapsed_s,
            sleeps=max(0, after.sleeps - self._spent.sleeps),
        )


class Helpers:
    """The processor time of everything that was started here but the server and this program."""

    def __init__(self, server_pid: int) -> None:
        self._server_pid = server_pid
        self._before_s = self._now_s()

    def spent_s(self) -> float:
        """Since it was made."""
        return self._now_s() - self._before_s

    def _now_s(self) -> float:
        ours_s = spent(os.getpid()).total_s - time.process_time()
        return ours_s - spent(self._server_pid).total_s


def tree(root_pid: int) -> list[int]:
    """`root_pid` and its descendants, and whatever else lives in the session that it leads."""
    parents: dict[int, int] = {}
    found = {root_pid}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (fields := stat(int(entry.name))):
            parents[int(entry.name)] = int(fields[1])
            if int(fields[3]) == root_pid:
                found.add(int(entry.name))
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return sorted(found)


def spent(root_pid: int) -> Spent:
    """The tree's processor time, its ended and reaped members included."""
    total_s = user_s = system_s = 0.0
    sleeps = 0
    for pid in tree(root_pid):
        fields = stat(pid)
        if fields is None:
            continue
        reaped_s = (int(fields[13]) + int(fields[14])) / TICKS_PER_S
        user_s += (int(fields[11]) + int(fields[13])) / TICKS_PER_S
        system_s += (int(fields[12]) + int(fields[14])) / TICKS_PER_S
        sleeps += _sleeps(pid)
        try:
            total_s += time.clock_gettime(clock_of(pid)) + reaped_s
        except OSError:
            continue  # ended since: its time is in its parent's fields at the next reading
    return Spent(total_s, user_s, system_s, sleeps)


def anonymous_bytes(root_pid: int) -> int:
    """RssAnon of the tree: user-space memory that is really there, without files and sockets."""
    total = 0
    for pid in tree(root_pid):
        total += status_field(PROC / str(pid), "RssAnon") * 1024
    return total


def wait_quiet(patience_s: float) -> bool:
    """Waits until no other program computes, at most `patience_s`; whether it became quiet."""
    deadline_s = time.monotonic() + patience_s
    while True:
        before_s, began_s = _busy_s(), time.monotonic()
        time.sleep(0.4)
        if (_busy_s() - before_s) / (time.monotonic() - began_s) < FOREIGN_SHARE_MAX:
            return True
        if time.monotonic() > deadline_s:
            return False


def _sleeps(pid: int) -> int:
    try:
        tasks = list((PROC / str(pid) / "task").iterdir())
    except OSError:
        return 0
    return sum(status_field(task, "voluntary_ctxt_switches") for task in tasks)


def status_field(process: Path, name: str) -> int:
    """A number of a `status` file; 0 when the process has ended."""
    try:
        status = (process / "status").read_text()
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    return 0


def clock_of(pid: int) -> int:
    """The clock of a process's processor time, for time.clock_gettime."""
    # The kernel's encoding of a process's CPU clock: CPUCLOCK_SCHED is 2.
    return (~pid << 3) | 2


def stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat after the name: 0 state, 1 parent, 3 session, 11-14 times."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def _busy_s() -> float:
    """Busy time of all CPUs since boot; stolen time counts, since it disturbs as well."""
    fields = (PROC / "stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) for field in fields[:8])
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S
