"""What `milepost bench` sends and when: rates beside what stands still, mixes, bodies, recorded
logs, misbehaving clients."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from benching import PATIENCE_S, Going, Peer, answering, bench
from serving import Milepost, run, until


@pytest.fixture
def files(tmp_path: Path, serve: Callable[..., Milepost]) -> Milepost:
    """A server of one file, whose lines are not compared with a count: that is another file's test."""
    folder = tmp_path / "www"
    folder.mkdir()
    (folder / "index.html").write_text("hello")
    return serve("--static", f"/={folder}")


def close(server: Milepost) -> None:
    """Stops it and takes its log as it is."""
    assert server.stop() == 0
    server.exchanges = len(server.lines)


def stopped(pid: int, seconds: float) -> None:
    """Stops a process for a time. The stop is what is measured, nothing is waited for."""
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


def beside_a_stop(server: Milepost, folder: Path, *load: str) -> dict[str, object]:
    """A run of 6 s beside a server that stands still for 1 s of them, however late this test is with it."""
    before = len(server.lines)
    going = Going(folder, *load, "-d", "6s", server.url)
    assert until(lambda: len(server.lines) > before)
    stopped(server.serving_pid, 1)
    done = going.end()
    assert done.code == 0, done
    return done.run


def test_a_rate_does_not_forgive_a_server_that_stands_still(files: Milepost, tmp_path: Path) -> None:
    """A sixth of the requests was due in the second of the stop: 99 % of all waited up to 0.94 s."""

    def is_told() -> bool:
        made = beside_a_stop(files, tmp_path, "-r", "500", "-c", "50")
        counts = made["counts"]
        # Whatever the server did, so many were due.
        due = counts["answered"] + counts["unsent"] + counts["unfinished"]
        assert 2990 <= due <= 3010
        return bool(made["times"]["latency"]["p99_us"] >= 800_000)

    # Where the generator was held up during the stop, those who waited are in no distribution: one run in
    # which it was not decides. One that forgives would tell of the stop in none.
    assert until(is_told, PATIENCE_S)
    close(files)


def test_a_closed_load_forgives_it_and_sends_less(files: Milepost, tmp_path: Path) -> None:
    """The same stop: only the requests under way notice, which is why a rate has to be asked for."""
    made = beside_a_stop(files, tmp_path, "-c", "4")
    latency = made["times"]["latency"]
    # What the generator itself held up as well is left out of the distributions, and counted as such.
    assert latency["max_us"] >= 800_000 or made["counts"]["disturbed"] > 0
    assert latency["p99_us"] < 500_000
    answered = [second["answered"] for second in made["series"][:6]]
    assert min(answered) < 0.8 * max(answered)
    close(files)


def test_a_generator_that_stood_still_says_so(files: Milepost, tmp_path: Path) -> None:
    going = Going(tmp_path, "-r", "500", "-d", "60s", files.url)
    assert until(lambda: len(files.lines) > 20)
    stopped(going.process.pid, 0.6)
    before = len(files.lines)
    assert until(lambda: len(files.lines) > before + 20)
    going.process.send_signal(signal.SIGINT)
    done = going.end()
    assert done.remarks["stalled"] == "invalid"
    assert "INVALID" in done.out and "stood still" in done.out
    assert done.run["generator"]["stalled_s"] >= 0.5
    assert done.counts["disturbed"] > 0
    close(files)


def test_what_was_due_before_the_end_is_sent_after_it(files: Milepost, tmp_path: Path) -> None:
    """It stands still over the end of its time. What was due is neither forgotten nor waited for."""
    load = ("-r", "100", "-d", "1s")
    going = Going(tmp_path, *load, files.url)
    assert until(lambda: len(files.lines) > 20)
    stopped(going.process.pid, 1.2)
    done = going.end()
    assert done.counts["answered"] + done.counts["unsent"] == 100
    assert (done.failures, done.counts["unsent"]) == ({}, 0)
    close(files)


def test_a_rate_ends_with_its_number_of_requests(tmp_path: Path) -> None:
    with Peer(answering()) as peer:
        done = bench(tmp_path, "-r", "200", "-n", "30", "-c", "4", peer.url)
        assert peer.requests == 30
    assert done.counts["answered"] == 30


def test_poisson_gaps_come_from_their_seed(tmp_path: Path) -> None:
    counts = []
    with Peer(answering()) as peer:
        for seed in ("7", "7", "8"):
            poisson = ("-r", "400", "--arrivals", "poisson", "--seed", seed, "-d", "500ms")
            done = bench(tmp_path, "-c", "8", *poisson, peer.url)
            counts.append(done.counts["answered"] + done.counts["unfinished"] + done.counts["unsent"])
            assert done.run["asked"]["load"] == "open, poisson"
    assert counts[0] == counts[1]
    assert 120 <= counts[2] <= 280


def test_warm_up_does_not_count(tmp_path: Path) -> None:
    with Peer(answering()) as peer:
        done = bench(tmp_path, "-c", "2", "-r", "100", "--warm-up", "500ms", "-d", "500ms", peer.url)
        assert peer.requests >= done.counts["answered"] + 20
    assert 40 <= done.counts["answered"] <= 60
    assert min(second["at_s"] for second in done.run["series"]) < 0


def test_posts_the_body_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "order.json").write_bytes(b'{"book": 1}' * 20_000)
    with Peer(answering()) as peer:
        body = ("--body-file", "order.json", "-H", "Content-Type: application/json", "-H", "X-Shop: 7")
        done = bench(tmp_path, "-c", "2", "-n", "6", *body, peer.url + "orders?x=1")
        assert {body for _, body in peer.seen} == {b'{"book": 1}' * 20_000}
        heads = {head for head, _ in peer.seen}
    (head,) = heads
    assert head.startswith("POST /orders?x=1 HTTP/1.1\r\n")
    assert "Content-Type: application/json" in head and "X-Shop: 7" in head
    assert done.counts["answered"] == 6


@pytest.mark.parametrize(
    ("flags", "method", "length"),
    [
        (("-X", "HEAD"), "HEAD", 0),
        (("-X", "PUT", "--body", "abc"), "PUT", 3),
        (("--body-size", "3K"), "POST", 3072),
    ],
    ids=["HEAD", "PUT", "made body"],
)
def test_sends_any_method_and_body(tmp_path: Path, flags: tuple[str, ...], method: str, length: int) -> None:
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + (b"" if method == "HEAD" else b"ok")
    with Peer(answering(reply)) as peer:
        done = bench(tmp_path, "-c", "1", "-n", "4", *flags, peer.url)
        assert {(head.split()[0], len(body)) for head, body in peer.seen} == {(method, length)}
    assert done.counts["answered"] == 4


def test_draws_a_mix_by_weight(tmp_path: Path) -> None:
    (tmp_path / "mix.toml").write_text(
        '[[request]]\ntarget = "/often"\nweight = 9\n'
        '[[request]]\nmethod = "POST"\ntarget = "/seldom"\nbody = "x"\nheaders = ["X-Kind: 2"]\n'
        '[[request]]\ntarget = "/never"\nweight = 0\n'
    )
    with Peer(answering()) as peer:
        done = bench(tmp_path, "-c", "2", "-n", "1000", "--requests-file", "mix.toml", peer.url)
        seen = Counter(" ".join(head.split()[:2]) for head, _ in peer.seen)
    assert set(seen) == {"GET /often", "POST /seldom"}
    # Five standard deviations of 1,000 draws.
    assert 50 <= seen["POST /seldom"] <= 150
    assert done.counts["answered"] == 1000


def test_a_fault_in_a_mix_has_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "mix.toml").write_text('[[request]]\ntarget = "/"\n\n[[request]]\nwait = 9\n')
    done = run(tmp_path, "bench", "--requests-file", "mix.toml", "http://127.0.0.1:9/")
    assert (done.returncode, done.stdout) == (2, "")
    assert "mix.toml" in done.stderr and "5" in done.stderr and "wait" in done.stderr


def test_replays_a_log_that_milepost_wrote(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    """The same requests in the same order; what is not safe to send again is refused first."""
    (tmp_path / "index.html").write_text("hello")
    server = serve("--static", f"/={tmp_path}")
    targets = [f"/index.html?number={number}" for number in range(30)]
    with server.connect() as client:
        for target in targets:
            client.ask("GET", target)
        client.ask("POST", "/index.html", body=b"x")
    server.stop()
    log = tmp_path / "access.log"
    safe = [line for line in server.lines if "POST" not in line]
    (tmp_path / "safe.log").write_text("\n".join(safe) + "\n")
    with Peer(answering()) as peer:
        refused = run(tmp_path, "bench", "--replay", str(log), peer.url)
        assert (refused.returncode, peer.requests) == (2, 0)
        assert "--replay-methods" in refused.stderr
        done = bench(tmp_path, "-c", "1", "--replay", "safe.log", "--replay-speed", "4", peer.url)
        assert [head.split()[1] for head, _ in peer.seen] == targets
        bench(tmp_path, "-c", "1", "--replay", str(log), "--replay-methods", "all", peer.url)
        assert [head.split()[0] for head, _ in peer.seen[30:]] == ["GET"] * 30 + ["POST"]
    assert done.counts["answered"] == 30
    assert done.run["asked"]["load"] == "recorded"


def test_misbehaving_clients_leave_the_measured_ones_alone(files: Milepost, tmp_path: Path) -> None:
    """Clients that misbehave are a load of their own: the measured one counts as without them."""
    kinds = ("never-reads", "reads-at=1K", "trickles=100ms", "idle", "half-closes", "resets=50ms")
    bad_clients = [word for kind in kinds for word in ("--bad-clients", f"2:{kind}")]
    done = bench(tmp_path, "-c", "2", "-r", "200", "-d", "4s", *bad_clients, files.url)
    assert done.failures == {}
    assert 790 <= done.counts["answered"] <= 810
    groups = done.run["bad_clients"]
    assert len(groups) == len(kinds)
    assert all(group["made"] >= 2 for group in groups)
    by_name = {group["name"]: group for group in groups}
    (resetting,) = [group for name, group in by_name.items() if "reset" in name]
    # Each of the two comes back after its reset.
    assert resetting["made"] > 4
    close(files)
