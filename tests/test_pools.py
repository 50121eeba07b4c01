"""Several pools: which requests each takes, what is refused, and other sizes while the server runs."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raw import Client, request
from serving import run, tables, until
from supervising import Supervised, calling

# Says which pool's thread has answered.
APP = """
import os
import threading
import time


def app(environ, start_response):
    if environ["PATH_INFO"].endswith("/gate"):
        with open(environ["QUERY_STRING"]) as gate:
            gate.read()
    if environ["PATH_INFO"].startswith("/slow/"):
        time.sleep(0.03)
    with open("/proc/self/task/%d/comm" % threading.get_native_id()) as comm:
        pool = comm.read().strip().removeprefix("mp-").rpartition("-")[0]
    body = ("%s %d" % (pool, os.getpid())).encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
"""


@pytest.fixture
def pools(tmp_path: Path, supervise: Callable[..., Supervised]) -> Callable[..., Supervised]:
    """Starts that application."""
    (tmp_path / "app.py").write_text(APP)
    return supervise


def who(server: Supervised, target: str, *headers: str, method: str = "GET", host: str = "test") -> str:
    """The pool that answers this."""
    with server.connect() as client:
        client.send(request(method, target, *headers, host=host))
        reply = client.reply()
    assert reply.status == 200, reply
    return reply.text.split()[0]


def pool(server: Supervised, name: str, process: int = 0) -> dict[str, Any]:
    """What `status` tells of it."""
    (found,) = (one for one in server.processes()[process]["pools"] if one["name"] == name)
    return found


def bounds(server: Supervised, name: str) -> list[tuple[int, int]]:
    """Fewest and most threads in each process."""
    found = [one for process in server.processes() for one in process["pools"] if one["name"] == name]
    return [(one["threads_min"], one["threads_max"]) for one in found]


def reports(threads: str) -> str:
    """A pool of this size for what is beneath /reports/."""
    own = tables("pool", {"name": "reports", "threads": threads})
    return own + tables("pool_rule", {"pool": "reports", "path": "/reports/**"})


def hold(server: Supervised, target: str, name: str) -> tuple[Any, int]:
    """A request that runs now, and the descriptor that ends it."""
    gate = server.folder / name
    os.mkfifo(gate)
    client = server.connect()
    client.send(request("GET", f"{target}?{gate}"))
    # Opening waits for the application to have opened the other side.
    return client, os.open(gate, os.O_WRONLY)


def test_each_pool_takes_what_its_rules_say(pools: Callable[..., Supervised]) -> None:
    names = ["paths", "reads", "batch", "site", "near", "exact"]
    rules = tables(
        "pool_rule",
        {"pool": "paths", "path": "/reports/**"},
        {"pool": "exact", "path": "/reports/one"},
        {"pool": "reads", "path": "/things/*", "method": "GET"},
        {"pool": "batch", "header": "x-batch: yes"},
        {"pool": "site", "host": "*.shop.example"},
        {"pool": "near", "path": "/net", "from": "127.0.0.0/8"},
        {"pool": "paths", "path": "/far", "from": ["10.0.0.0/8"]},
    )
    own = tables("pool", *({"name": name, "threads": 1} for name in names))
    rewrite = tables("rewrite", {"from": "/old/*", "to": "/reports/*"})
    server = pools(toml=own + rules + rewrite)
    assert who(server, "/") == "default"
    assert who(server, "/reports/a/b?x") == "paths"
    assert who(server, "/reports") == "default"
    assert who(server, "/reports/one") == "exact"
    assert who(server, "/old/x") == "paths"
    assert who(server, "/things/1") == "reads"
    assert who(server, "/things/1", method="POST") == "default"
    assert who(server, "/things/1/2") == "default"
    assert who(server, "/", "X-Batch: yes") == "batch"
    assert who(server, "/", "X-Batch: no") == "default"
    assert who(server, "/", host="a.SHOP.example:8000") == "site"
    assert who(server, "/", host="shop.example") == "default"
    assert who(server, "/net") == "near"
    assert who(server, "/far") == "default"
    told = {one["name"]: one["completed"] for one in server.processes()[0]["pools"]}
    assert list(told) == ["default", *names]
    assert (told["paths"], told["exact"], told["near"]) == (2, 1, 1)


def test_a_full_pool_refuses_and_the_others_do_not(pools: Callable[..., Supervised]) -> None:
    server = pools(
        toml=tables("pool", {"name": "tiny", "threads": 1, "queue_len_max": 1})
        + tables("pool_rule", {"pool": "tiny", "path": "/tiny/**"}),
    )
    client, gate = hold(server, "/tiny/gate", "gate")
    waiting = server.connect()
    waiting.send(request("GET", "/tiny/waits"))
    assert until(lambda: pool(server, "tiny")["waiting"] == 1)
    refused = server.ask("/tiny/more")
    assert refused.status == 503
    assert int(refused.header("retry-after") or 0) >= 1
    assert who(server, "/") == "default"
    os.close(gate)
    for one in (client, waiting):
        with one:
            assert one.reply().text.split()[0] == "tiny"
    assert pool(server, "tiny")["refused"] == 1
    assert pool(server, "default")["refused"] == 0


def test_who_matters_more_is_not_refused_for_those_behind_it(pools: Callable[..., Supervised]) -> None:
    """An overloaded pool refuses whoever would wait in vain: the others, and not who goes before them."""
    server = pools(
        *("--threads", "1", "--queue-timeout", "5m", "--overload-timeout", "5m"),
        toml=tables("pool_rule", {"pool": "default", "path": "/high", "class": "high"}),
    )

    def asked(target: str) -> Client:
        client = server.connect()
        client.send(request("GET", target))
        return client

    # Who has left the queue is in nobody's way.
    assert {server.ask("/high").status for _ in range(3)} == {200}
    first, gate = hold(server, "/gate", "gate")
    others = [asked("/")]
    # The queue grows one by one: a slow machine would see the overload when many were refused already.
    while (seen := pool(server, "default"))["shed"] == 0:
        if seen["waiting"] == len(others):
            others.append(asked("/"))
    urgent = asked("/high")
    assert until(lambda: pool(server, "default")["waiting"] == len(others))
    os.close(gate)
    found = []
    for one in (first, urgent, *others):
        with one:
            found.append(one.reply().status)
    assert found == [200] * (1 + len(others)) + [503]
    assert pool(server, "default")["shed"] == 1


def test_questions_about_health_pass_a_full_queue(pools: Callable[..., Supervised]) -> None:
    server = pools(
        *("--threads", "2", "--queue-len-max", "4", "--health-reserve", "1:1", "--queue-target", "10s"),
        toml=tables("pool_rule", {"pool": "default", "path": "/health", "class": "health"}),
    )
    # One runs, three wait: the other thread and the last place are kept.
    first, gate = hold(server, "/gate", "gate")
    waiting = [server.connect() for _ in range(3)]
    for client in waiting:
        client.send(request("GET", "/"))
    assert until(lambda: pool(server, "default")["waiting"] == 3)
    assert server.ask("/").status == 503
    for _ in range(3):
        assert server.ask("/health").status == 200
    assert pool(server, "default")["waiting"] == 3
    os.close(gate)
    for one in (first, *waiting):
        with one:
            assert one.reply().status == 200


def test_a_burst_for_idle_threads_passes_the_shortest_queue(pools: Callable[..., Supervised]) -> None:
    """Each has a thread, and none has to wait for one."""
    server = pools("--threads", "8", "--queue-len-max", "1", "--drivers", "1")
    clients = [server.connect() for _ in range(8)]
    for _ in range(20):
        assert until(lambda: pool(server, "default")["idle"] == 8)
        for client in clients:
            client.send(request("GET", "/"))
        assert {client.reply().status for client in clients} == {200}
    for client in clients:
        client.sock.close()


def test_who_waited_too_long_is_refused(pools: Callable[..., Supervised]) -> None:
    server = pools(
        # Long enough for the first, which has its thread at once.
        toml=tables("pool", {"name": "tiny", "threads": 1, "queue_timeout": "2s"})
        + tables("pool_rule", {"pool": "tiny", "path": "/tiny/**"}),
    )
    client, gate = hold(server, "/tiny/gate", "gate")
    refused = server.ask("/tiny/waits")
    assert refused.status == 503
    assert int(refused.header("retry-after") or 0) >= 1
    os.close(gate)
    with client:
        assert client.reply().status == 200
    assert pool(server, "tiny")["expired"] == 1


def test_a_pool_has_another_size_until_the_next_reload(pools: Callable[..., Supervised]) -> None:
    server = pools(
        *("--processes", "2", "--drain-timeout", "5s"),
        toml=reports("1:2"),
    )
    server.settled(2)
    assert bounds(server, "reports") == [(1, 2)] * 2
    said = server.done("scale", "--pool", "reports", "--threads", "3:5")
    assert "pool `reports` has 3 to 5 threads in 2 processes" in said
    # All had confirmed it when the command returned.
    assert bounds(server, "reports") == [(3, 5)] * 2
    assert until(lambda: [pool(server, "reports", at)["threads"] for at in (0, 1)] == [3, 3])
    # Processes that come later have it too.
    server.done("scale", "--processes", "3")
    server.settled(3)
    assert until(lambda: bounds(server, "reports") == [(3, 5)] * 3)
    assert "3 of 3:5" in server.done("status")
    server.done("scale", "--threads", "2")
    assert bounds(server, "default") == [(2, 2)] * 3
    # What has crashed comes back with it,
    victim = min(server.settled(3))
    os.kill(victim, signal.SIGKILL)
    assert until(lambda: victim not in server.pids() and len(server.pids()) == 3)
    assert until(lambda: bounds(server, "reports") == [(3, 5)] * 3)
    # and the generation of other drivers keeps it.
    said = server.done("scale", "--drivers", "2")
    assert "; pool `default` keeps 2 threads; pool `reports` keeps 3 to 5 threads" in said
    server.settled(3)
    assert bounds(server, "reports") == [(3, 5)] * 3
    assert bounds(server, "default") == [(2, 2)] * 3
    said = server.done("reload")
    assert "; pool `reports` returns to its configured 1 to 2 threads" in said
    server.settled(2)
    assert bounds(server, "reports") == [(1, 2)] * 2
    assert who(server, "/reports/1") == "reports"


def test_processes_that_do_not_confirm_a_size_are_named(pools: Callable[..., Supervised]) -> None:
    server = pools("--processes", "2", "--threads", "2", "--heartbeat-timeout", "off")
    stopped = min(server.settled(2))
    os.kill(stopped, signal.SIGSTOP)
    try:
        said = server.refused("scale", "--threads", "3")
    finally:
        os.kill(stopped, signal.SIGCONT)
    expect = "milepost: scale: 1 process has not confirmed within 5 s that pool `default` has 3 threads: "
    found = re.match(re.escape(expect) + r"process \d \(pid (\d+)\)\n", said)
    assert found and int(found[1]) == stopped, said
    assert until(lambda: bounds(server, "default") == [(3, 3)] * 2)


def test_nothing_is_lost_while_pools_change(pools: Callable[..., Supervised], tmp_path: Path) -> None:
    """By commands, and by a reload that sends all requests to another pool."""
    config = tmp_path / "milepost.toml"
    plain = "app = 'app:app'\nthreads = '2:4'\ndrain_timeout = '10s'\n"
    config.write_text(plain)
    server = pools("--config", str(config), app=None)
    with calling(server) as callers:
        for threads in ("1", "6", "1:8", "3:3", "2:4"):
            server.done("scale", "--pool", "default", "--threads", threads)
            before = callers.answered
            assert until(lambda before=before: callers.answered > before + 20)
        other = "[[pool]]\nname = 'other'\nthreads = 2\n[[pool_rule]]\npool = 'other'\npath = '/**'\n"
        config.write_text(plain + other)
        server.done("reload")
        assert until(lambda: who(server, "/") == "other")
        config.write_text(plain)
        server.done("reload")
        assert until(lambda: who(server, "/") == "default")
    assert callers.lost == []


def test_slow_routes_move_by_themselves_and_it_is_said(pools: Callable[..., Supervised]) -> None:
    slow = tables("pool", {"name": "slow", "threads": 1})
    server = pools("--slow-pool", "slow", "--slow-after", "10ms", toml=slow)
    # More than half of the last sixteen tell, and those that have not been count as quick.
    assert [who(server, f"/slow/{number}") for number in range(9)] == ["default"] * 9
    # The ninth is noted when its client has the reply already.
    assert until(lambda: who(server, "/slow/10") == "slow")
    assert [who(server, f"/slow/{number}") for number in range(10, 14)] == ["slow"] * 4
    assert who(server, "/quick") == "default"
    told = [line for line in server.stderr if "slow route: GET /slow/* goes to pool `slow`" in line]
    assert len(told) == 1, server.stderr
    counted = {one["name"]: one for one in server.status()["counters"]["pools"]}
    assert (counted["slow"]["routes_moved"], counted["slow"]["routes_returned"]) == (1, 0)


def test_sizes_that_cannot_be_are_refused(pools: Callable[..., Supervised]) -> None:
    server = pools(toml=reports("2:4"))
    said = server.refused("scale", "--pool", "report", "--threads", "1:2")
    assert said == "milepost: scale: no pool `report`\nhint: did you mean `reports`?\n"
    for words, expect in [
        (("--pool", "reports", "--threads", "4:2"), "hint: the smaller number comes first: `2:4`"),
        (
            ("--pool", "reports", "--threads", "0"),
            "expected MIN:MAX or one number, from 1 to 4096, found `0`",
        ),
        (("--pool", "reports"), "hint: `--pool reports --threads MIN:MAX`"),
        (("--threads", "2", "--processes", "2"), "`--threads`: cannot stand beside `--processes`"),
    ]:
        done = server.do("scale", *words)
        assert (done.returncode, done.stdout) == (2, ""), done
        assert expect in done.stderr, done
    assert bounds(server, "reports") == [(2, 4)]


@pytest.mark.parametrize(
    ("toml", "expect"),
    [
        (
            tables("pool_rule", {"pool": "reports", "path": "/a"}),
            "milepost.toml:1: `pool_rule`: no pool `reports`",
        ),
        (tables("pool", {"name": "a", "threads": "8:2"}), "hint: the smaller number comes first: `2:8`"),
        (tables("pool", {"name": "a"}, {"name": "a"}), "milepost.toml:3: `pool`: there are two pools `a`"),
        (
            tables("pool_rule", {"pool": "default", "path": "reports/*"}),
            "hint: a path begins with a slash: `/reports/*`",
        ),
        (
            tables("pool_rule", {"pool": "default", "path": "/a", "clas": "low"}),
            "milepost.toml:4: `pool_rule.clas`: unknown key\nhint: did you mean `class`?",
        ),
        ("slow_pool = 'slow'", "no pool `slow`"),
        ("health_reserve = 4", "health_reserve takes 4 of 4 threads"),
        ("overload_timeout = '1m'", "overload_timeout (1m) is longer than queue_timeout (30s)"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_write(tmp_path: Path, toml: str, expect: str) -> None:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "milepost.toml").write_text(toml)
    done = run(tmp_path, "serve", "app:app", "--bind", "127.0.0.1:0", "--config", "milepost.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert expect in done.stderr, done.stderr
