"""Several runs of `milepost bench`: compared, swept over servers that it starts, in scenario files."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from benching import Peer, answering, bench
from serving import run

SCENARIO = """
shows = "one driver beside two"
repeat = 2
rest = "10ms"

[load]
url = "http://127.0.0.1:{port}/1k.txt"
requests = 100

[[point]]
name = "{clients}"
each = { clients = [2, 4] }
load = { connections = "{clients}" }

[[file]]
path = "www/1k.txt"
fill = 1024

[[server]]
name = "one"
start = ["{milepost}", "serve", "--static", "/={folder}/www", "--drivers", "1", "--bind", "127.0.0.1:{port}"]

[[server]]
name = "two"
start = ["{milepost}", "serve", "--static", "/={folder}/www", "--drivers", "2", "--bind", "127.0.0.1:{port}"]

[[server]]
name = "absent"
needs = ["no-such-program"]
start = ["no-such-program", "{port}"]

[[table]]
title = "Requests that were answered"
grid = { head = "clients", value = "answered", over = "sum" }
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three runs in `a.json`, and in `slow.json` the same with twice the latencies."""
    folder = tmp_path_factory.mktemp("stored")
    with Peer(answering()) as peer:
        bench(folder, "-c", "2", "-n", "1200", "--repeat", "5", peer.url)
    whole = json.loads((folder / "bench.json").read_text())
    for made in whole["runs"]:
        # Whether this host was quiet enough to be quoted is not the question here.
        made["remarks"] = []
        made["counts"]["disturbed"] = 0
    (folder / "a.json").write_text(json.dumps(whole))
    slow = copy.deepcopy(whole)
    for made in slow["runs"]:
        made["seconds"] *= 2
        for key in ("mean_us", "p50_us"):
            made["times"]["latency"][key] *= 2
    (folder / "slow.json").write_text(json.dumps(slow))
    return folder


def test_compares_like_with_like_and_says_what_is_worse(stored: Path) -> None:
    done = run(stored, "bench", "compare", "a.json", "slow.json", "--metrics", "rps,p50", "--json")
    assert done.returncode == 0, done
    assert json.loads(done.stdout)
    text = run(stored, "bench", "compare", "a.json", "slow.json", "--metrics", "rps,p50")
    assert text.returncode == 0
    rows = {line.split()[0]: line for line in text.stdout.splitlines() if line}
    assert "worse" in rows["rps"] and "0.5" in rows["rps"]
    assert "worse" in rows["p50"] and "2.0" in rows["p50"]
    failing = run(stored, "bench", "compare", "a.json", "slow.json", "--fail-on", "worse")
    assert failing.returncode == 1


def test_a_file_beside_itself_differs_by_noise_alone(stored: Path) -> None:
    done = run(stored, "bench", "compare", "a.json", "a.json", "--fail-on", "worse")
    assert done.returncode == 0, done
    assert " worse" not in done.stdout and " better" not in done.stdout


def test_runs_that_asked_for_different_things_are_not_compared(stored: Path) -> None:
    other = json.loads((stored / "a.json").read_text())
    for made in other["runs"]:
        made["asked"]["connections"] = 64
    (stored / "other.json").write_text(json.dumps(other))
    done = run(stored, "bench", "compare", "a.json", "other.json")
    assert "connections 2 and 64" in done.stdout + done.stderr
    judged = run(stored, "bench", "compare", "a.json", "other.json", "--fail-on", "worse")
    assert judged.returncode == 2, judged
    # They take nothing away from those that did ask for the same.
    both = run(stored, "bench", "compare", "a.json", "slow.json", "other.json", "--fail-on", "worse")
    assert both.returncode == 1, both
    assert both.stdout.count("asked for different things: connections") == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"schema": 999, "runs": []}', "999"),
        ("{", "broken.json"),
        ('{"schema": 1, "runs": []}', "broken.json"),
    ],
    ids=["another schema", "no json", "no run"],
)
def test_what_is_no_result_is_refused(stored: Path, text: str, says: str) -> None:
    (stored / "broken.json").write_text(text)
    done = run(stored, "bench", "compare", "a.json", "broken.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("milepost: ") and says in done.stderr


def test_sweeps_over_a_server_that_it_starts(tmp_path: Path) -> None:
    (tmp_path / "1k.txt").write_bytes(b"x" * 1024)
    numbers = ("-c", "2,4", "-n", "100", "--repeat", "1")
    server = ("--server", f"--static /={tmp_path}", "--matrix", "drivers=1,2")
    done = run(tmp_path, "bench", "sweep", *numbers, *server, "--json", "sweep.json", "/1k.txt")
    assert done.returncode == 0, done
    assert "drivers=1" in done.stdout and "drivers=2" in done.stdout
    findings = json.loads((tmp_path / "sweep.json").read_text())
    assert json.dumps(findings).count('"answered": 100') + json.dumps(findings).count('"answered":100') >= 4


def test_sweeps_over_a_server_that_is_there(tmp_path: Path) -> None:
    with Peer(answering()) as peer:
        done = run(
            tmp_path,
            "bench",
            "sweep",
            "-c",
            "1..2:1",
            "-n",
            "20",
            "--repeat",
            "2",
            "--svg",
            "a.svg",
            peer.url,
        )
        assert done.returncode == 0, done
        # More where others used the processors meanwhile: such a run is made once more.
        assert peer.requests >= 2 * 2 * 20
    heads = ("clients", "min", "ave", "max", "time")
    assert all(head in done.stdout for head in heads), done.stdout
    assert (tmp_path / "a.svg").read_text().startswith("<svg")


def test_runs_a_scenario_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(SCENARIO)
    done = run(tmp_path, "bench", "run", "mine.toml", "--out", "results")
    assert done.returncode == 0, done
    page = (tmp_path / "results" / "mine.md").read_text()
    assert done.stdout == page
    assert "| 2 | 200 | 200 |" in page and "| 4 | 200 | 200 |" in page
    assert "absent" in page and "no-such-program" in page
    findings = json.loads((tmp_path / "results" / "mine.json").read_text())["findings"]
    # The second repetition goes through the servers backwards.
    turns = [(found["repetition"], found["server"]) for found in findings]
    assert turns == [(1, "one")] * 2 + [(1, "two")] * 2 + [(2, "two")] * 2 + [(2, "one")] * 2


def test_lists_the_scenarios_of_the_project(tmp_path: Path) -> None:
    done = run(tmp_path, "bench", "run", "--list")
    assert done.returncode == 0
    names = {line for line in done.stdout.splitlines() if line and not line.startswith(" ")}
    kept = Path(__file__).resolve().parent.parent / "benches" / "scenarios"
    assert names == {path.stem for path in kept.glob("*.toml")}


def test_a_scenario_with_an_unknown_key_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(SCENARIO.replace('rest = "10ms"', 'pause = "10ms"'))
    done = run(tmp_path, "bench", "run", "mine.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "mine" in done.stderr and "4" in done.stderr and "pause" in done.stderr
