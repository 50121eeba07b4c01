"""Preloading: imported once, forked before any thread exists, and the memory is shared."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from serving import run, until
from supervising import Supervised, calling, parent, write_app

COUNT = "open('imports', 'a').write('%d\\n' % os.getpid())"
BIG = "import array\nbig = array.array('q', range(8_000_000))"


def imports(folder: Path) -> list[int]:
    """Which processes have imported the application."""
    return [int(line) for line in (folder / "imports").read_text().split()]


def test_it_is_imported_once_for_all(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    write_app(tmp_path, before=COUNT)
    server = supervise("--preload", "--processes", "3")
    pids = server.settled(3)
    assert set(server.who_answer(200)) == pids
    (template,) = imports(tmp_path)
    assert template not in pids
    assert {parent(pid) for pid in pids} <= {template, server.pid}


def test_without_it_each_imports_for_itself(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    write_app(tmp_path, before=COUNT)
    server = supervise("--processes", "3")
    assert server.settled(3) == set(imports(tmp_path))


def test_memory_is_shared_and_status_shows_it(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    """64 MB in each of four processes are 16 MB each of the machine's."""
    write_app(tmp_path, before=BIG)
    server = supervise("--preload", "--processes", "4")
    server.settled(4)
    server.who_answer(40)
    for one in server.processes():
        assert one["resident_bytes"] > 64 << 20
        assert one["proportional_bytes"] < 40 << 20


@pytest.mark.parametrize(("options", "frozen"), [(["--preload"], True), ([], False)])
def test_the_collector_is_frozen_before_the_fork(
    supervise: Callable[..., Supervised], options: list[str], frozen: bool
) -> None:
    """Or its first run would write to every object and copy every page."""
    count = int(supervise(*options).eval("__import__('gc').get_freeze_count()"))
    assert (count > 1000) is frozen


def test_forks_have_chances_of_their_own(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    write_app(tmp_path, before="import random\nrandom.seed(5)")
    server = supervise("--preload", "--processes", "3")
    server.settled(3)
    rolled = {server.eval("(os.getpid(), __import__('random').random())") for _ in range(60)}
    values = [text.split(", ")[1] for text in rolled]
    assert len(set(values)) == len(values)


def test_hooks_of_the_fork_run_in_the_child(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    before = "forked = []\nos.register_at_fork(after_in_child=lambda: forked.append(os.getpid()))"
    write_app(tmp_path, before=before)
    server = supervise("--preload", "--processes", "2")
    server.settled(2)
    for _ in range(20):
        assert server.eval("forked == [os.getpid()]") == "True"


def test_an_application_that_starts_threads_is_refused(tmp_path: Path) -> None:
    """A fork has none of them, and every lock that they held."""
    thread = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    write_app(tmp_path, before=thread)
    # Several: each place that was to be forked into is given up by a notice of its own.
    done = run(tmp_path, "serve", "app:app", "--preload", "--processes", "3", "--bind", "127.0.0.1:0")
    assert (done.returncode, done.stdout) == (2, "")
    assert "thread" in done.stderr and "hook `post_fork`" in done.stderr.partition("hint: ")[2]


def test_a_killed_process_is_forked_again_without_an_import(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    write_app(tmp_path, before=COUNT)
    server = supervise("--preload", "--processes", "2", log=None)
    victim = min(server.settled(2))
    write_app(tmp_path, "two", COUNT)
    os.kill(victim, 9)
    assert until(lambda: victim not in server.pids() and len(server.pids()) == 2)
    assert server.serves_only("one")
    assert len(imports(tmp_path)) == 1


def test_all_forks_killed_at_once_are_forked_again(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    """The template tells of all of them in one batch."""
    write_app(tmp_path, before=COUNT)
    server = supervise("--preload", "--processes", "4", log=None)
    victims = server.settled(4)
    for victim in victims:
        os.kill(victim, 9)
    assert until(lambda: len(server.pids() - victims) == 4), server.errors
    assert len(imports(tmp_path)) == 1


def test_a_killed_template_is_replaced_when_it_is_needed(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    write_app(tmp_path, before=COUNT)
    server = supervise("--preload", "--processes", "2", log=None)
    pids = server.settled(2)
    (template,) = imports(tmp_path)
    os.kill(template, 9)
    # Those that it has forked go on, and whoever is needed comes.
    assert server.answers()[1] in pids
    os.kill(min(pids), 9)
    assert until(lambda: min(pids) not in server.pids() and len(server.pids()) == 2)


def test_a_reload_imports_anew_and_loses_nothing(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    server = supervise("--preload", "--processes", "2")
    with calling(server) as callers:
        for number in range(3):
            write_app(tmp_path, f"word{number}")
            server.done("reload")
            assert server.words(8) == {f"word{number}"}
    assert callers.lost == []
    write_app(tmp_path, "broken", "raise RuntimeError('no such luck')")
    assert "no such luck" in server.refused("reload")
    assert server.serves_only("word2")


def test_more_processes_are_forks_as_well(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    write_app(tmp_path, before=COUNT)
    server = supervise("--preload", "--processes", "1")
    server.done("scale", "--processes", "4")
    assert set(server.who_answer(200)) == server.settled(4)
    assert len(imports(tmp_path)) == 1


def test_nothing_to_import_is_said(tmp_path: Path) -> None:
    (tmp_path / "www").mkdir()
    done = run(tmp_path, "check", "--static", "/=www", "--preload")
    assert done.returncode == 0 and "preload has no effect" in done.stdout


def test_a_fork_logs_and_stops_as_every_process(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--preload", "--processes", "2")
    assert len(server.who_answer(100)) == 2
    server.done("stop")
    assert server.wait() == 0
    assert len(server.lines) == 100
