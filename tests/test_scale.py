"""Other numbers of processes and drivers while the server runs: nobody who connects notices."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from raw import request
from serving import until
from supervising import Supervised, calling, is_running, listening_inodes


def test_more_and_fewer_processes_serve(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--processes", "2", "--drain-timeout", "5s")
    before = server.settled(2)
    server.done("scale", "--processes", "4")
    more = server.settled(4)
    assert set(server.who_answer(200)) == more
    # Those that were there stay.
    assert before < more
    server.done("scale", "--processes", "1")
    (last,) = server.settled(1)
    assert last in before
    assert set(server.who_answer()) == {last}
    assert not any(is_running(pid) for pid in more - {last})


def test_nothing_is_lost_while_processes_come_and_go(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--processes", "2", "--drivers", "2", "--drain-timeout", "10s")
    with calling(server) as callers:
        for count in (4, 1, 3, 2, 1, 4):
            server.done("scale", "--processes", str(count))
            server.settled(count)
    assert callers.lost == []
    assert callers.answered > 100


def test_nothing_is_lost_while_drivers_come_and_go(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--processes", "2", "--drivers", "1", "--drain-timeout", "10s")
    with calling(server) as callers:
        for count in (4, 1, 3):
            server.done("scale", "--drivers", str(count))
            assert until(lambda count=count: len(server.drivers()) == 2 * count)
            server.settled(2)
    assert callers.lost == []


def test_who_waits_for_a_process_that_leaves_is_served_by_another(
    supervise: Callable[..., Supervised],
) -> None:
    """All sockets are full of connections when three of four processes leave."""
    server = supervise("--processes", "4", "--connections-max", "2", "--threads", "2:2", log=None)
    holding = [server.held(f"gate{number}") for number in range(2)]
    # The process that stays takes them in two by two.
    waiting = [server.connect() for _ in range(80)]
    for client in waiting:
        client.send(request("GET", "/", "Connection: close"))
    server.done("scale", "--processes", "1")
    for client, holder, _ in holding:
        os.close(holder)
        assert client.reply().status == 200
        client.sock.close()
    for client in waiting:
        with client:
            assert client.reply().status == 200


def test_sockets_follow_and_none_is_without_an_acceptor(supervise: Callable[..., Supervised]) -> None:
    """New ones for more drivers; after less of them every socket that is left is still accepted from."""
    server = supervise("--processes", "1", "--drivers", "2")
    port = server.address[1]
    assert len(listening_inodes(port)) == 2
    server.done("scale", "--processes", "3")
    server.settled(3)
    assert len(listening_inodes(port)) == 6
    server.done("scale", "--processes", "1")
    server.settled(1)
    # Each socket gets some of so many, if the kernel still hands them any.
    for _ in range(200):
        assert server.ask().status == 200


def test_a_process_that_leaves_ends_what_it_has(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--processes", "2")
    client, holder, pid = server.held()
    other = (server.pids() - {pid}).pop()
    server.done("scale", "--processes", "1")
    # Whichever of the two was told to leave: what it runs is answered.
    assert set(server.who_answer()) <= {pid, other}
    os.close(holder)
    assert client.reply().text == f"one {pid}"
    client.sock.close()
    server.settled(1)


def test_the_number_outlives_a_crash_and_what_was_killed_comes_back(
    supervise: Callable[..., Supervised],
) -> None:
    server = supervise("--processes", "1", log=None)
    server.done("scale", "--processes", "3")
    victim = max(server.settled(3))
    os.kill(victim, 9)
    assert until(lambda: victim not in server.pids() and len(server.pids()) == 3)


@pytest.mark.parametrize(
    "words",
    [
        ["--processes", "0"],
        ["--processes", "many"],
        ["--processes", "-1"],
        ["--processes", "100000"],
        ["--drivers", "0"],
        ["--drivers", "100000"],
        ["--processes", "512", "--drivers", "256"],
        [],
    ],
    ids=" ".join,
)
def test_impossible_numbers_are_refused(supervise: Callable[..., Supervised], words: list[str]) -> None:
    server = supervise()
    before = server.settled(1)
    done = server.do("scale", *words)
    assert done.returncode in (1, 2), done
    assert done.stderr.startswith("milepost: ") and "panicked" not in done.stderr
    assert server.settled(1) == before
