"""Several runs of `milepost bench`: compared, and over a range of one number."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from benching import Peer, answering, bench
from serving import run


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
        ('{"schema": 2, "runs": []}', "broken.json"),
    ],
    ids=["another schema", "no json", "no run"],
)
def test_what_is_no_result_is_refused(stored: Path, text: str, says: str) -> None:
    (stored / "broken.json").write_text(text)
    done = run(stored, "bench", "compare", "a.json", "broken.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("milepost: ") and says in done.stderr


def test_sweeps_over_a_range(tmp_path: Path) -> None:
    numbers = ("-c", "1..2:1", "-n", "20", "--repeat", "2")
    forms = ("--html", "a.html", "--json", "a.json")
    with Peer(answering()) as peer:
        done = run(tmp_path, "bench", "sweep", *numbers, *forms, peer.url)
        assert done.returncode == 0, done
        assert peer.requests == 2 * 2 * 20
    heads = ("clients", "min", "ave", "max", "time")
    assert all(head in done.stdout for head in heads), done.stdout
    assert "<svg" in (tmp_path / "a.html").read_text()
    runs = json.loads((tmp_path / "a.json").read_text())["runs"]
    # Each repetition goes through all values.
    asked = [(made["asked"]["connections"], made["asked"]["label"]) for made in runs]
    assert asked == [(1, "1 clients"), (2, "2 clients")] * 2
