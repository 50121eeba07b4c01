"""`milepost whatif`: from the log of a real server to an answer, and what it says of logs that have none."""

from __future__ import annotations

import heapq
import json
import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from raw import request
from serving import Milepost, run

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
COMBINED = '10.0.0.{client} - - [{date}] "GET {path} HTTP/1.1" 200 5 "-" "-"'


def naviserver(threads: int, requests: int, *, slow_share: float = 0.0) -> Iterator[str]:
    """What a server with so many threads and one queue logs of 150 requests a second of 20 ms each."""
    chance = random.Random(7)
    free = [0.0] * threads
    at, lines = NOON, []
    for _ in range(requests):
        at += chance.expovariate(150)
        is_slow = chance.random() < slow_share
        duration = 1.0 if is_slow else chance.uniform(0.01, 0.03)
        soonest = heapq.heappop(free)
        begin = at + 0.00009 if soonest <= at else soonest + 0.00003
        heapq.heappush(free, begin + duration)
        head = COMBINED.format(
            client=chance.randrange(200),
            date=datetime.fromtimestamp(at, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000"),
            path="/reports/1" if is_slow else "/books",
        )
        times = f'"{at:.6f} 0.000050 {begin - at:.6f} 0.000001 {duration:.6f}"'
        lines.append((begin + duration, f"{head} {times}\n"))
    return (line for _, line in sorted(lines))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """5,000 requests on four threads."""
    path = tmp_path_factory.mktemp("whatif") / "four.log"
    path.write_text("".join(naviserver(4, 5000)))
    return path


def whatif(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run it to its end, which has to be `code`."""
    done = run(folder, "whatif", *arguments)
    assert done.returncode == code, done
    return done


def told(folder: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    """What it says as JSON."""
    return json.loads(whatif(folder, *arguments, "--json", code=code).stdout)


def test_repeats_a_log_and_answers(tmp_path: Path, log: Path) -> None:
    found = told(tmp_path, str(log), "--threads", "3,4,8,2:8")
    assert found["schema"] == 1
    assert found["log"]["requests"] == 5000
    assert found["log"]["pools"] == [{"name": "default", "threads": "4", "event_loop": False}]
    assert not found["log"]["sharing"]["depends"]
    assert found["calibration"]["holds"]
    # Whose log it is is not in it.
    assert found["calibration"]["simulated"]["control"] == "off"
    for error in found["calibration"]["errors"]:
        off = abs(error["simulated_ms"] - error["measured_ms"])
        assert off <= max(0.5, 0.05 * error["measured_ms"]), error
    three, four, eight, elastic = found["answers"]
    assert three["queue"]["p95_ms"] > four["queue"]["p95_ms"] > eight["queue"]["p95_ms"]
    assert eight["queue"]["p95_ms"] < 1
    assert elastic["threads"] == "2:8" and 2 <= elastic["threads_mean"] <= 8


def test_predicts_what_another_number_of_threads_gives(tmp_path: Path, log: Path) -> None:
    other = tmp_path / "five.log"
    other.write_text("".join(naviserver(5, 5000)))
    measured = told(tmp_path, str(other), "--threads", "5")["log"]["queue"]
    (predicted,) = told(tmp_path, str(log), "--threads", "5", "--controller", "off")["answers"]
    for name in ("p50_ms", "p95_ms", "p99_ms"):
        off = abs(predicted["queue"][name] - measured[name])
        assert off <= max(2, 0.15 * measured[name]), name


def test_finds_the_fewest_threads(tmp_path: Path, log: Path) -> None:
    wish = ("--objective", "p99 queue < 20ms", "--objective", "refused < 0.1%")
    found = told(tmp_path, str(log), *wish, "--rate", "x1,x2")
    one, two = found["searches"]
    threads = [int(search["found"]["threads"]) for search in (one, two)]
    assert 4 <= threads[0] <= 8 and threads[0] < threads[1] <= 2 * threads[0]
    for search in (one, two):
        assert search["found"]["queue"]["p99_ms"] < 20
        for tried in search["tried"]:
            if int(tried["threads"]) < int(search["found"]["threads"]):
                too_long = tried["queue"]["p99_ms"] >= 20
                assert too_long or tried["refused"] >= 0.001 * tried["arrived"]
    none = whatif(tmp_path, str(log), "--objective", "p50 total < 1ms", code=1)
    assert "do not meet it" in none.stdout


def test_a_pool_of_its_own_keeps_slow_requests_away(tmp_path: Path) -> None:
    path = tmp_path / "slow.log"
    path.write_text("".join(naviserver(8, 5000, slow_share=0.01)))
    apart = ("--threads", "6", "--pools", "slow=2 /reports/*", "--controller", "off")
    (answer,) = told(tmp_path, str(path), *apart)["answers"]
    rest, slow = answer["pools"]
    assert (rest["name"], slow["name"]) == ("default", "slow")
    assert slow["total"]["p50_ms"] >= 999 and rest["total"]["max_ms"] < 999
    assert rest["arrived"] + slow["arrived"] == 5000


def test_leads_with_what_to_do_and_needs_no_flag(tmp_path: Path) -> None:
    path = tmp_path / "slow.log"
    path.write_text("".join(naviserver(5, 5000, slow_share=0.01)))
    done = whatif(tmp_path, str(path), "--threads-now", "5", "--html", "slow.html")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Now: 5 threads. 1 request in 100 waits "), done.stdout
    tried = next(line for line in lines if line.startswith("Try: "))
    threads = int(tried.removeprefix("Try: `--threads ").rstrip("`"))
    assert 6 <= threads <= 20
    assert f"With {threads} threads: " in lines[1] or f"With {threads} threads: " in lines[2]
    assert "correlation" not in done.stdout
    assert "correlation" in whatif(tmp_path, str(path), "--threads-now", "5", "--why").stdout
    found = told(tmp_path, str(path), "--threads-now", "5")
    assert found["verdict"]["threads"] == str(threads)
    if pool := found["verdict"]["pool"]:
        assert pool["path"] == "/reports/*" and pool["threads"] + pool["others_threads"] == 5
    page = (tmp_path / "slow.html").read_text()
    assert "now: 5" in page and "<code>--threads" in page
    # Enough threads need no advice, and few requests allow none.
    path.write_text("".join(naviserver(16, 3000)))
    calm = whatif(tmp_path, str(path), "--threads-now", "16").stdout
    assert "More threads: no gain." in calm and "Try:" not in calm
    path.write_text("".join(naviserver(2, 150)))
    few = whatif(tmp_path, str(path), "--threads-now", "2").stdout
    too_few = "150 requests are too few to say what other threads would do. The table is a rough estimate."
    assert too_few in few and "Try:" not in few


def test_writes_a_page_that_needs_no_network(tmp_path: Path, log: Path) -> None:
    done = whatif(tmp_path, str(log), "--threads", "3,4,2:8", "--html", "whatif.html")
    assert "Checked: " in done.stdout and "2:8" in done.stdout
    page = (tmp_path / "whatif.html").read_text()
    assert page.count("<svg") == page.count("</svg>") >= 4
    assert page.count("<script>") == 1 and "src=" not in page and "@import" not in page and "://" not in page


def test_synthetic_requests_need_no_log(tmp_path: Path) -> None:
    spec = ("--synthetic", "poisson rate=100 run=exp:10ms for=60s")
    found = told(tmp_path, *spec, "--threads", "1,2", "--controller", "off")
    assert found["log"] is None and found["calibration"] is None
    one, two = found["answers"]
    assert 5000 < one["arrived"] < 7000
    assert one["queue"]["mean_ms"] > 10 * two["queue"]["mean_ms"] > 0


@pytest.mark.parametrize("form", [(), ("--access-log-format", "json")], ids=["default", "json"])
def test_the_log_of_a_server_is_answered(
    tmp_path: Path, serve: Callable[..., Milepost], form: tuple[str, ...]
) -> None:
    (tmp_path / "napper.py").write_text(
        "import time\n"
        "def app(environ, start_response):\n"
        "    time.sleep(0.01)\n"
        "    start_response('200 OK', [('Content-Length', '2')])\n"
        "    return [b'ok']\n"
    )
    server = serve("napper:app", "--threads", "2:2", *form)

    def ask() -> None:
        with server.connect() as client:
            for _ in range(50):
                assert client.ask("GET", "/nap").status == 200

    clients = [threading.Thread(target=ask) for _ in range(4)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    server.stop()
    found = told(tmp_path, str(server.log), "--threads", "1,2,4", "--force")
    assert found["log"]["requests"] == 200
    assert found["log"]["pools"] == [{"name": "default", "threads": "2", "event_loop": False}]
    # Arrivals are known to the microsecond.
    assert not any("whole seconds" in remark for remark in found["remarks"])
    # Nobody was refused, and yet it was a server that turns a standing queue around.
    assert found["calibration"]["simulated"]["control"] == "on"
    waits = [answer["queue"]["mean_ms"] for answer in found["answers"]]
    assert waits[0] > waits[1] > waits[2]


def test_computing_in_a_log_is_done_one_at_a_time(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    (tmp_path / "adder.py").write_text(
        "def app(environ, start_response):\n"
        "    sum(range(200_000))\n"
        "    start_response('200 OK', [('Content-Length', '2')])\n"
        "    return [b'ok']\n"
    )
    server = serve("adder:app", "--threads", "2:2", "--access-log-format", "json")
    with server.connect() as client:
        for _ in range(50):
            assert client.ask("GET", "/add").status == 200
    # Two at once, so that one waits for the interpreter: else the log would not say that there is one.
    with server.connect() as one, server.connect() as other:
        for client in (one, other):
            client.send(request("GET", "/add"))
        assert [client.reply().status for client in (one, other)] == [200, 200]
    server.stop()
    lock = told(tmp_path, str(server.log), "--threads", "2,4", "--force")["log"]["lock"]
    assert lock["slice_seconds"] == 0.005
    assert 0 < lock["before_share"] < 1
    # One client at a time: hardly anybody had to wait for the lock, unless who had it for a moment lost its
    # processor in it. How much of a run was off its processor is up to the machine.
    assert 0.02 < lock["computing_share"] <= 1
    assert lock["waiting_share"] < 0.2
    spec = (
        "--synthetic",
        "poisson rate=40 run=20ms cpu={}% for=60s",
        "--threads",
        "8",
        "--controller",
        "off",
    )
    all_of_it, none_of_it = (
        told(tmp_path, *(part.format(share) for part in spec))["answers"][0]["total"]["mean_ms"]
        for share in (100, 0)
    )
    assert none_of_it < 25 < 2 * none_of_it < all_of_it


@pytest.mark.parametrize(
    ("arguments", "expect"),
    [
        (("--threads", "-3"), "`--threads`: expected a number from 1 to 4096, found `-3`"),
        (("--pools", "default=2 /books"), "`--pools`: the log has a pool `default` already"),
        (("--synthetic", "even rate=1 run=1ms"), "`--synthetic`: takes the place of a log"),
    ],
)
def test_says_what_is_wrong_with_a_flag(
    tmp_path: Path, log: Path, arguments: tuple[str, ...], expect: str
) -> None:
    done = whatif(tmp_path, str(log), *arguments, code=2)
    assert done.stdout == ""
    assert done.stderr.startswith("milepost: ") and expect in done.stderr


def test_says_why_a_log_has_no_answer(tmp_path: Path) -> None:
    def check(text: str, *expect: str) -> None:
        (tmp_path / "a.log").write_text(text)
        done = whatif(tmp_path, "a.log", code=2)
        assert done.stdout == ""
        assert all(part in done.stderr for part in expect), done.stderr

    check("", "there is no request in it")
    check("nonsense\n", "there is no request in it", "hint: ")
    date = "21/Nov/2026:12:00:01 +0000"
    untimed = COMBINED.format(client=1, date=date, path="/") + "\n"
    check(untimed, "there are no run times in it", "hint: ", "--access-log-format phases")
    missing = whatif(tmp_path, "missing.log", code=2)
    assert "no such file" in missing.stderr


def test_run_times_can_be_made_up(tmp_path: Path) -> None:
    dates = [f"21/Nov/2026:12:00:{second:02} +0000" for second in range(60) for _ in range(20)]
    lines = [COMBINED.format(client=1, date=date, path="/") + "\n" for date in dates]
    (tmp_path / "a.log").write_text("".join(lines))
    found = told(tmp_path, "a.log", "--run", "40ms", "--threads", "1,4")
    assert found["calibration"] is None
    one, four = found["answers"]
    assert one["arrived"] == 1200 and abs(one["total"]["p50_ms"] - 40) < 20
    assert four["queue"]["p95_ms"] <= one["queue"]["p95_ms"]


def test_does_not_answer_what_it_cannot_repeat(tmp_path: Path, log: Path) -> None:
    done = whatif(tmp_path, str(log), "--threads-now", "16", code=2)
    assert done.stdout == "" and "does not repeat this log" in done.stderr and "--force" in done.stderr
    forced = whatif(tmp_path, str(log), "--threads-now", "16", "--force")
    assert "TOO FAR OFF" in forced.stdout
