"""Recycling: a process in good health is replaced in time, and never one too many at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from serving import run, until
from supervising import Supervised, calling, write_app


def test_after_so_many_requests_a_process_is_replaced(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--process-requests-max", "20", "--recycle-jitter", "0%")
    (first,) = server.settled(1)
    assert until(lambda: server.answers()[1] != first)
    # Not before, and not by a crash.
    assert server.exchanges >= 20
    assert until(lambda: server.status()["totals"]["recycled"] >= 1)
    assert server.status()["totals"]["crashes"] == 0


def test_max_requests_is_another_name_for_it(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--max-requests", "5", "--recycle-jitter", "0%")
    (first,) = server.settled(1)
    assert until(lambda: server.answers()[1] != first)


def test_at_a_certain_age_a_process_is_replaced(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--process-age-max", "1s", "--recycle-jitter", "0%")
    # Where starting takes as long as that, there is never one alone.
    first = server.pids()
    assert until(lambda: (pids := server.pids()) and not pids & first)


def test_at_a_certain_size_a_process_is_replaced(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--process-resident-max", "200M", "--recycle-jitter", "0%")
    first = server.settled(1)
    assert server.eval("globals().setdefault('hog', bytearray(b'x' * (200 << 20))) is None") == "False"
    assert until(lambda: server.pids() and not server.pids() & first)
    assert server.answers()[0] == "one"


def test_nothing_is_lost_by_it(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--processes", "2", "--process-requests-max", "200", "--recycle-jitter", "0%")
    with calling(server) as callers:
        assert until(lambda: len(callers.pids) >= 8)
    assert callers.lost == []


def test_one_at_a_time_and_as_many_as_configured_are_always_ready(
    supervise: Callable[..., Supervised],
) -> None:
    """All three are due at the same time: the next one leaves when the one before has been replaced."""
    server = supervise("--processes", "3", "--process-age-max", "1s", "--recycle-jitter", "0%")
    first = server.pids()
    assert len(first) >= 3
    seen: list[list[str]] = []

    def all_new() -> bool:
        found = server.processes(None)
        seen.append([one["state"] for one in found])
        ready = {one["pid"] for one in found if one["state"] == "ready"}
        return len(ready) == 3 and not ready & first

    assert until(all_new)
    for states in seen:
        assert states.count("ready") >= 3, states
        assert states.count("starting") <= 1, states
        # Those that drain may take their time.
        assert states.count("ready") + states.count("starting") <= 4, states


def test_jitter_parts_those_that_were_started_together(supervise: Callable[..., Supervised]) -> None:
    """With a bound of 2 s and a jitter of all of it again they are not all due within one instant."""
    server = supervise("--processes", "4", "--process-age-max", "2s", "--recycle-jitter", "100%")
    first = server.pids()
    assert len(first) >= 4
    partly = threading.Event()

    def all_new() -> bool:
        left = server.pids() & first
        if 0 < len(left) < len(first):
            partly.set()
        return not left

    assert until(all_new)
    assert partly.is_set()


def test_a_replacement_that_cannot_start_leaves_the_old_one(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    """Better an old process than none: it is tried again, and told."""
    server = supervise("--process-requests-max", "5", "--recycle-jitter", "0%")
    first = server.settled(1)
    write_app(tmp_path, "two", "raise RuntimeError('no such luck')")
    assert server.who_answer(20).keys() == first
    # After more attempts than a slot without a process gets.
    assert until(lambda: "process 0 failed to start, 6 in a row" in server.errors)
    assert "no such luck" in server.errors
    assert server.who_answer(20).keys() == first
    assert server.status()["totals"]["recycled"] == 0
    write_app(tmp_path, "three")
    assert until(lambda: server.answers()[0] == "three")
    assert until(lambda: server.status()["totals"]["recycled"] >= 1)


def test_what_runs_long_in_an_old_process_is_not_cut(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--process-requests-max", "5", "--recycle-jitter", "0%", "--threads", "2:2")
    client, holder, pid = server.held()
    assert until(lambda: server.answers()[1] != pid)
    os.close(holder)
    assert client.reply().text == f"one {pid}"
    client.sock.close()
    server.settled(1)


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--process-requests-max", "-1"),
        ("--process-requests-max", "some"),
        ("--process-age-max", "0s"),
        ("--process-resident-max", "1"),
        ("--recycle-jitter", "101%"),
        ("--recycle-jitter", "-1%"),
        ("--recycle-jitter", "much"),
    ],
)
def test_impossible_bounds_are_refused(tmp_path: Path, flag: str, value: str) -> None:
    done = run(tmp_path, "serve", "app:app", f"{flag}={value}")
    assert (done.returncode, done.stdout) == (2, "")
    assert flag.lstrip("-") in done.stderr.replace("_", "-")
