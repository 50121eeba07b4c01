"""The laboratory's files fit together: the page of figures, the scenario files and the published tables."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from serving import COMMAND

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))
# The scenario files are TOML, which Python reads from 3.11 on.
tomllib = pytest.importorskip("tomllib")

from lab import performance, report, weighttp  # noqa: E402
from lab.experiments import spec, tables  # noqa: E402
from lab.experiments.command import flags  # noqa: E402
from lab.experiments.tables import Finding, Findings  # noqa: E402
from lab.proxy import mix  # noqa: E402
from lab.scenario import Bar, Compared, Row, Sample, Scenario, worst  # noqa: E402
from lab.tls import callers, floods, frames, h2load  # noqa: E402
from lab.toolbox import Unusable  # noqa: E402

SCENARIO = """
shows = "one driver beside two"
takes = "a moment"

[load]
url = "http://127.0.0.1:{port}/1k.txt"
timeout = "1s"

[[point]]
name = "{clients}"
each = { clients = [2, 4] }
load = { connections = "{clients}" }

[[server]]
name = "one"
words = { drivers = "1" }
start = ["{milepost}", "serve", "--drivers", "{drivers}"]
ready = "/"

[[server]]
name = "two"
like = "one"
words = { drivers = "2" }

[[table]]
title = "Requests"
grid = { head = "clients", value = "answered" }

[[table]]
title = "Change"
column = [
    { head = "server", text = "{server}" },
    { head = "change", value = "per-second", against = "one" },
    { head = "slow", value = "fact.slow", yes_above = 1 },
]
"""


def lab(*words: str) -> subprocess.CompletedProcess[str]:
    """The command line, from the checkout."""
    return subprocess.run(
        [sys.executable, "-m", "lab", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_the_page_of_figures_is_that_of_its_results() -> None:
    done = lab("page", "--check")
    assert done.returncode == 0, done.stderr or "write it anew: python3 -m lab page"


def test_the_figures_of_a_report_become_rows_of_the_page() -> None:
    bar = {"scenario": "small", "text": "µs of a / b: at most 0.75", "least": 0.5, "greatest": 1.0}
    document = {
        "machine": ["date: 2026-11-27 15:42 +0000"],
        "bars": [{**bar, "measured": 0.8, "passed": False}, {**bar, "measured": None, "passed": None}],
    }
    (row,) = tomllib.loads(performance.rows(document))["section"]["row"]
    row = {**row, "date": row["date"].isoformat()}
    expect = {"what": "small: µs of a / b", "goal": "0.75", "ratio": "0.8 (0.5-1)", "missed": True}
    assert row == {**expect, "date": "2026-11-27"}


def test_the_requests_of_a_mix_are_the_same_for_everybody() -> None:
    one, other = (mix.sequence(mix.mixed, mix.rate(0.9), 20) for _ in range(2))
    assert one == other != mix.sequence(mix.mixed, mix.rate(0.9), 20, seed=2)
    busy_s = sum(asked.run_s for asked in one)
    assert 0.85 < busy_s / (20 * mix.THREADS * mix.UPSTREAMS) < 0.95


def test_the_central_queue_is_first_come_first_served() -> None:
    requests = [mix.Asked(at_s, run_s) for at_s, run_s in ((0.0, 2.0), (0.5, 1.0), (1.0, 1.0))]
    assert mix.central_queue(requests, 2) == [1e6, 1.5e6, 2e6]
    assert mix.central_queue(requests, 1) == [2e6, 2.5e6, 3e6]


def test_the_command_line_names_its_scenarios() -> None:
    done = lab("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("cost", "peers", "experiment", "slow", "reload", "control"))


@pytest.mark.parametrize("name", spec.names())
def test_a_scenario_file_can_be_read(name: str) -> None:
    experiment = spec.read(spec.FOLDER / f"{name}.toml")
    for server in experiment.servers:
        assert experiment.points_of(server)
        for file in (*experiment.files, *server.files):
            assert file.content()


@pytest.mark.parametrize("name", spec.names())
def test_every_key_of_a_load_is_a_flag_of_the_generator(name: str) -> None:
    done = subprocess.run([COMMAND, "bench", "--help"], capture_output=True, text=True, check=True)
    loads = [
        point.load
        for point in spec.read(spec.FOLDER / f"{name}.toml").points
        if point.generator == "milepost"
    ]
    used = {word for load in loads for word in flags(load) if word.startswith("--")}
    assert not {flag for flag in used if not re.search(rf"{flag}\b", done.stdout)}


def test_every_published_table_stands_in_an_experiment_with_all_its_columns() -> None:
    used = set()
    for name in spec.names():
        used |= {table.published for table in spec.read(spec.FOLDER / f"{name}.toml").tables}
    assert used - {""} == set(spec.published())


def test_published_rows_are_whole_and_their_totals_are_sums() -> None:
    published = spec.published()
    for name, table in published.items():
        assert all(len(row) == len(table.head) for row in table.rows), name
    for row in published["six-requests"].rows:
        queue, run, total = map(float, row[5:])
        assert abs(queue + run - total) < 2e-6, row
    least, average, most = (
        float(part.replace(",", "")) for part in published["drivers"].rows[0][1].split(" / ")
    )
    assert least <= average <= most


def experiment(folder: Path, text: str = SCENARIO) -> spec.Experiment:
    path = folder / "mine.toml"
    path.write_text(text)
    return spec.read(path)


def test_a_server_like_another_takes_its_keys_and_changes_its_words(tmp_path: Path) -> None:
    one, two = experiment(tmp_path).servers
    assert (one.start, one.ready) == (two.start, two.ready)
    assert (one.words, two.words) == ({"drivers": "1"}, {"drivers": "2"})


def test_a_point_for_each_value_has_its_load_over_the_common_one(tmp_path: Path) -> None:
    points = experiment(tmp_path).points
    assert [point.name for point in points] == ["2", "4"]
    assert points[1].load == {
        "url": "http://127.0.0.1:{port}/1k.txt",
        "timeout": "1s",
        "connections": "4",
    }


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('takes = "a moment"', 'pause = "10ms"', "pause"),
        ('ready = "/"', 'reddy = "/"', "reddy"),
        ('against = "one"', 'against = "three"', "three"),
        ('like = "one"', 'like = "three"', "three"),
        ('grid = { head = "clients"', 'published = "drivers"\ngrid = { head = "clients"', "1 driver"),
    ],
    ids=["key of the file", "key of a server", "unknown server", "unknown likeness", "published column"],
)
def test_a_scenario_file_with_a_fault_is_refused(tmp_path: Path, before: str, after: str, says: str) -> None:
    with pytest.raises(Unusable, match=says):
        experiment(tmp_path, SCENARIO.replace(before, after))


def finding(server: str, point: str, repetition: int, answered: int) -> Finding:
    outcome = {"counts": {"answered": answered, "failures": {}}, "seconds": 2.0, "times": {}, "remarks": []}
    return Finding(server, point, repetition, outcome, facts={"slow": float(answered > 100)})


def test_tables_compare_within_each_repetition(tmp_path: Path) -> None:
    findings = Findings(experiment(tmp_path))
    # The second repetition was half as quick for both.
    for repetition, (one, two) in enumerate([(100, 122), (50, 61)], start=1):
        findings.found += [finding("one", "2", repetition, one), finding("two", "2", repetition, two)]
    findings.skipped["two"] = "`no-such` is not installed"
    page = tables.page(findings, ["machine"])
    assert "| 2 | 50 / 75 / 100 | 61 / 92 / 122 |" in page
    assert "| two | +22 % | no |" in page
    assert "two was not measured: `no-such` is not installed" in page


def test_reads_what_weighttp_prints() -> None:
    counted = weighttp.read(
        "finished in 2 sec, 467 millisec and 893 microsec, 40519 req/s, 44516 kbyte/s\n"
        "requests: 100000 total, 100000 started, 100000 done, 99998 succeeded, 2 failed, 0 errored\n",
        cpu_s=1.5,
    )
    assert (counted.responses, counted.faults, counted.cpu_s) == (99_998, 2, 1.5)
    assert counted.duration_s == pytest.approx(2.467893)


def test_reads_what_h2load_prints() -> None:
    counted = h2load.read(
        "finished in 500.00ms, 15820.00 req/s, 16.20MB/s\n"
        "requests: 31640 total, 31680 started, 31640 done, 31637 succeeded, 3 failed, 2 errored, 1 timeout\n",
        cpu_s=1.5,
    )
    assert (counted.responses, counted.faults, counted.timeouts) == (31_637, 2, 1)
    assert counted.duration_s == pytest.approx(0.5)


@pytest.mark.parametrize("name", floods.FLOODS)
def test_a_flood_begins_with_whole_frames_of_streams_that_a_client_may_open(name: str) -> None:
    pieces = floods.FLOODS[name].pieces()
    sent = b"".join(next(pieces, b"") for _ in range(3))
    at = 0
    while at < len(sent):
        length, stream = (
            int.from_bytes(sent[at + first : at + last], "big") for first, last in ((0, 3), (5, 9))
        )
        assert length <= 16_384 and (stream == 0 or stream % 2 == 1)
        at += 9 + length
    assert at == len(sent) > 0


def test_a_request_over_http_2_is_what_the_h2_package_reads() -> None:
    connection = pytest.importorskip("h2.connection")
    config = pytest.importorskip("h2.config").H2Configuration(client_side=False, header_encoding="utf-8")
    server = connection.H2Connection(config)
    server.initiate_connection()
    events = server.receive_data(frames.opening(4096) + frames.request(1, "/1k.txt"))
    (head,) = [event.headers for event in events if hasattr(event, "headers")]
    assert dict(head) == {":method": "GET", ":scheme": "http", ":path": "/1k.txt", ":authority": "localhost"}


class ScriptedClient:
    """Reads what a test has written down, then the end of the connection."""

    session = None

    def __init__(self, *came: frames.Frame) -> None:
        self.came = list(came)

    def coming(self, count: int) -> range:
        return range(1, 1 + 2 * count, 2)

    def begin(self, path: str, count: int) -> range:
        return self.coming(count)

    def frames(self) -> list[frames.Frame]:
        if not self.came:
            raise ConnectionResetError
        return [self.came.pop(0)]


def heads(stream: int) -> frames.Frame:
    return frames.Frame(frames.HEADERS, frames.END_HEADERS, stream, bytes((frames.STATUS_200,)))


def body(stream: int, length: int) -> frames.Frame:
    return frames.Frame(frames.DATA, frames.END_STREAM, stream, b"x" * length)


@pytest.mark.parametrize(
    ("came", "answered", "refused", "lost"),
    [
        ([heads(1), body(1, 1024), heads(3), body(3, 1024)], 2, 0, []),
        ([heads(1), body(1, 1024)], 1, 0, ["closed"]),
        ([heads(1), body(1, 1000), heads(3), body(3, 1024)], 1, 0, ["wrong"]),
        ([body(1, 1024), heads(3), body(3, 1024)], 1, 0, ["wrong"]),
        (
            [frames.Frame(frames.GOAWAY, 0, 0, bytes((0, 0, 0, 1) + (0,) * 4)), heads(1), body(1, 1024)],
            1,
            1,
            [],
        ),
        ([frames.Frame(frames.GOAWAY, 0, 0, bytes((0, 0, 0, 1) + (0,) * 4))], 0, 1, ["closed"]),
        ([frames.Frame(frames.RST_STREAM, 0, 3, bytes((0, 0, 0, 7))), heads(1), body(1, 1024)], 1, 1, []),
        (
            [frames.Frame(frames.RST_STREAM, 0, 3, bytes((0, 0, 0, 2))), heads(1), body(1, 1024)],
            1,
            0,
            ["reset"],
        ),
    ],
    ids=["all", "closed", "short", "no head", "goaway", "goaway and closed", "refused", "reset"],
)
def test_a_request_over_http_2_is_lost_unless_the_server_has_not_begun_it(
    came: list[frames.Frame], answered: int, refused: int, lost: list[str]
) -> None:
    tally = callers.Tally()
    caller = callers.Caller(0, "/", 2, 2, tally, threading.Event())
    callers.Conversation(caller, ScriptedClient(*came)).run()  # type: ignore[arg-type]
    assert (tally.answered, tally.refused_streams) == (answered, refused)
    assert [fault["class"] for fault in tally.faults] == lost


def test_a_figure_may_be_a_difference_within_each_repetition() -> None:
    def row(name: str) -> Row:
        return Row(name, "milepost", lambda box, place: pytest.fail("not started"), take=pytest.fail)

    bar = Bar("p99_us", "storm", "alone", at_most=2000, compared=Compared.DIFFERENCE)
    results = report.Results(Scenario("mine", "two rows", (row("storm"), row("alone")), (bar,)))
    for name, p99_us in {"storm": (3000.0, 9000.0, 2500.0), "alone": (1000.0, 500.0, 1000.0)}.items():
        results.samples[name] = [Sample({"p99_us": value}, 0.0) for value in p99_us]
    (found,) = report.verdicts(results)
    assert (found.text, found.measured) == ("p99 ms of storm - alone: at most 2", pytest.approx(2.0))


def test_a_figure_is_judged_by_the_median_of_ratios_and_a_count_by_the_worst() -> None:
    def row(name: str) -> Row:
        return Row(name, "milepost", lambda box, place: pytest.fail("not started"), take=pytest.fail)

    bars = (
        Bar("cpu_us", "ours", "theirs", at_most=0.65),
        worst("lost", row("ours"), at_most=0),
        worst("peak_bytes", row("ours"), at_most=3e6),
    )
    results = report.Results(Scenario("mine", "two servers", (row("ours"), row("theirs")), bars))
    ours = [(4.0, 0.0, False), (9.0, 1.0, False), (90.0, 0.0, True)]
    results.samples["ours"] = [
        Sample({"cpu_us": cpu_us, "lost": lost, "peak_bytes": 2e6}, 0.5 if disturbed else 0.0)
        for cpu_us, lost, disturbed in ours
    ]
    results.samples["theirs"] = [Sample({"cpu_us": 10.0}, 0.0) for _ in ours]
    found = report.verdicts(results)
    # 0.4 and 0.9: the disturbed repetition is in no ratio, but its counts are among the worst.
    assert [(round(one.measured or 0, 2), one.passed) for one in found] == [
        (0.65, True),
        (1.0, False),
        (2.0, True),
    ]
    page = report.markdown("Mine", ["machine"], [results], found, {})
    assert "| mine | lost of ours: at most 0 | 1.00 | 0.00-1.00 | **missed** |" in page
    assert "3, 1 disturbed" in page


def test_what_top_takes_is_measured() -> None:
    """Whether it keeps the bars is asked in an hour of it, not here."""
    done = lab(
        "top", "--milepost", str(COMMAND), "--seconds", "4", "--at-most", "100", "--growth-at-most", "65536"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^4 s, 20 routes, [1-9]\d* requests/s over 16 connections$", done.stdout, re.MULTILINE)
    assert re.search(r"^top: \d+\.\d\d % of a processor, [1-9]\d* B/s", done.stdout, re.MULTILINE)
