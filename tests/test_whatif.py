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
    assert found["log"]["pools"] == [{"name": "default", "threads": "4"}]
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
    (predicted,) = told(tmp_path, str(log), "--threads", "5", "--control", "off")["answers"]
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
    assert "do not hold it" in none.stdout


def test_a_pool_of_its_own_keeps_slow_requests_away(tmp_path: Path) -> None:
    path = tmp_path / "slow.log"
    path.write_text("".join(naviserver(8, 5000, slow_share=0.01)))
    apart = ("--threads", "6", "--pools", "slow=2 /reports/*", "--control", "off")
    (answer,) = told(tmp_path, str(path), *apart)["answers"]
    rest, slow = answer["pools"]
    assert (rest["name"], slow["name"]) == ("default", "slow")
    assert slow["total"]["p50_ms"] >= 999 and rest["total"]["max_ms"] < 999
    assert rest["arrived"] + slow["arrived"] == 5000


def test_writes_a_page_that_needs_no_network(tmp_path: Path, log: Path) -> None:
    done = whatif(tmp_path, str(log), "--threads", "3,4,2:8", "--html", "whatif.html")
    assert "repeated" in done.stdout and "2:8" in done.stdout
    page = (tmp_path / "whatif.html").read_text()
    assert page.count("<svg") == page.count("</svg>") >= 4
    assert "http://www.w3.org/2000/svg" in page
    assert "<script" not in page and "src=" not in page and "@import" not in page


def test_a_law_needs_no_log(tmp_path: Path) -> None:
    law = ("--law", "poisson rate=100 run=exp:10ms for=60s")
    found = told(tmp_path, *law, "--threads", "1,2", "--control", "off")
    assert found["log"] is None and found["calibration"] is None
    one, two = found["answers"]
    assert 5000 < one["arrived"] < 7000
    assert one["queue"]["mean_ms"] > 10 * two["queue"]["mean_ms"] > 0


def paged(requests: int) -> Iterator[str]:
    """What a server that is never full logs of pages of eight requests, a millisecond apart."""
    chance = random.Random(5)
    arrivals: list[float] = []
    page = NOON
    while len(arrivals) < requests:
        page += chance.expovariate(150 / 8)
        at = page
        arrivals.append(at)
        while chance.random() < 7 / 8:
            at += 0.001
            arrivals.append(at)
    for at in sorted(arrivals):
        day = datetime.fromtimestamp(at, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
        head = COMBINED.format(client=1, date=day, path="/books")
        yield f'{head} "{at:.6f} 0.000050 0.000090 0.000001 {chance.expovariate(50):.6f}"\n'


def test_a_law_fits_its_log_and_can_be_given_back(tmp_path: Path, log: Path) -> None:
    found = told(tmp_path, str(log), "--law", "fitted", "--threads", "4,6", "--control", "off")
    assert found["log"]["requests"] == 5000 and found["calibration"]["holds"]
    fitted = found["fitted"]
    assert fitted["fits"], fitted
    assert fitted["law"].startswith("poisson rate=1") and " run=uniform:1" in fitted["law"]
    (route,) = fitted["routes"]
    assert route["requests"] == 5000 and route["distance"] < 0.03 and "/books" in route["name"]
    assert [pair["percentile"] for pair in fitted["runs"]] == [50, 95, 99]
    for pair in fitted["waits"]:
        least, most = pair["law_interval_ms"]
        assert least <= pair["law_ms"] <= most
    again = told(tmp_path, "--law", fitted["law"], "--threads", "4,6", "--control", "off")
    assert [one["arrived"] for one in again["answers"]] == [one["arrived"] for one in found["answers"]]
    assert [one["total"]["p50_ms"] for one in again["answers"]] == pytest.approx(
        [one["total"]["p50_ms"] for one in found["answers"]], rel=0.05
    )


def test_a_fitted_law_goes_on_for_longer_than_its_log(tmp_path: Path, log: Path) -> None:
    ask = (str(log), "--law", "fitted for=5m", "--threads", "4", "--rate", "x1,x2")
    found = told(tmp_path, *ask)
    assert found == told(tmp_path, *ask)
    assert found["fitted"]["law"].endswith(" for=300s")
    per_second = found["log"]["per_second"]
    for answer, factor in zip(found["answers"], (1, 2), strict=True):
        assert answer["arrived"] == pytest.approx(300 * factor * per_second, rel=0.05)


def test_bursts_of_a_log_are_not_taken_for_chance(tmp_path: Path) -> None:
    (tmp_path / "pages.log").write_text("".join(paged(20000)))
    ask = ("pages.log", "--law", "fitted", "--threads-now", "60", "--threads", "8")
    done = whatif(tmp_path, *ask, "--force")
    assert "law         bursts rate=" in done.stdout and "run=exp:" in done.stdout
    assert "law comes   index of dispersion" in done.stdout
    law = told(tmp_path, *ask, "--force")["fitted"]["law"]
    words = dict(word.split("=") for word in law.split()[1:])
    assert 6 < float(words["len"]) < 10
    assert words["gap"].endswith(("us", "ms")) and 0.9 < milliseconds(words["gap"]) < 1.1


def milliseconds(text: str) -> float:
    """Of `950us` or `1.05ms`."""
    unit = 1000 if text.endswith("us") else 1
    return float(text[:-2]) / unit


def test_says_when_no_law_fits(tmp_path: Path) -> None:
    lines = []
    for index in range(4000):
        at = NOON + index * 0.02
        day = datetime.fromtimestamp(at, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
        head = COMBINED.format(client=1, date=day, path="/books")
        lines.append(f'{head} "{at:.6f} 0.00005 0.00009 0.000001 {0.2 if index % 4 else 0.001}"\n')
    (tmp_path / "two.log").write_text("".join(lines))
    ask = ("two.log", "--law", "fitted", "--threads-now", "16", "--threads", "16")
    done = whatif(tmp_path, *ask, "--force")
    assert "law         even rate=50 " in done.stdout
    assert "NO LAW OF RUN TIMES FITS" in done.stdout and "TOO FAR OFF" in done.stdout
    assert not told(tmp_path, *ask, "--force")["fitted"]["fits"]
    (tmp_path / "few.log").write_text("".join(lines[:50]))
    few = whatif(tmp_path, "few.log", "--law", "fitted", "--force", code=2)
    assert "expected a log of at least 100 requests" in few.stderr and few.stdout == ""


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
    assert found["log"]["pools"] == [{"name": "default", "threads": "2"}]
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
    server.stop()
    lock = told(tmp_path, str(server.log), "--threads", "2,4", "--force")["log"]["lock"]
    assert lock["slice_seconds"] == 0.005
    assert 0 < lock["before_share"] < 1
    # One client at a time: hardly anybody had to wait for the lock, unless who had it for a moment lost its
    # processor in it. How much of a run was off its processor is up to the machine.
    assert 0.02 < lock["computing_share"] <= 1
    assert lock["waiting_share"] < 0.2
    law = ("--law", "poisson rate=40 run=20ms cpu={}% for=60s", "--threads", "8", "--control", "off")
    all_of_it, none_of_it = (
        told(tmp_path, *(part.format(share) for part in law))["answers"][0]["total"]["mean_ms"]
        for share in (100, 0)
    )
    assert none_of_it < 25 < 2 * none_of_it < all_of_it


@pytest.mark.parametrize(
    ("arguments", "expect"),
    [
        (("--threads", "-3"), "`--threads`: expected a number from 1 to 4096, found `-3`"),
        (("--objective", "fast"), "`--objective`: expected an objective"),
        (("--objective", "p42 queue < 1s"), "`--objective`: expected an objective"),
        (("--pools", "slow"), "`--pools`: expected a pool"),
        (("--pools", "default=2 /books"), "`--pools`: there is a pool `default` in the log"),
        (("--rate", "x-1"), "`--rate`: expected a factor"),
        (("--law", "often"), "`--law`"),
        (("--law", "fitted rate=3"), "`--law`: expected `fitted` or `fitted for=1h`"),
        (("--law", "even rate=1 run=1ms"), "`--law`: stands in place of a log"),
        (("--control", "perhaps"), "`--control`: expected on or off"),
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
    assert done.stdout == "" and "does not repeat it" in done.stderr and "--force" in done.stderr
    forced = whatif(tmp_path, str(log), "--threads-now", "16", "--force")
    assert "TOO FAR OFF" in forced.stdout
