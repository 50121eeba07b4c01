"""The simulation of autoscaling: the formulas of the HPA, the queues of pods, and the rule of the chart."""

from __future__ import annotations

import math
import random
import sys
from array import array
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))
pytest.importorskip("tomllib", reason="the laboratory needs Python 3.11")

from lab.autoscaling import chart, controllers, hpa, loads  # noqa: E402
from lab.autoscaling.fleet import Fleet, Machine, controlled  # noqa: E402
from lab.autoscaling.hpa import Behavior, PodSeen, Policy, Scaler, Usage  # noqa: E402
from lab.autoscaling.pods import LOST, REFUSED, UNKNOWN, Requests  # noqa: E402
from lab.toolbox import Unusable  # noqa: E402


def requests(rate: float, seconds: float, work: float) -> Requests:
    """Poisson arrivals and exponential run times."""
    lots = random.Random(7)
    times, works, now = array("d"), array("d"), 0.0
    while (now := now + lots.expovariate(rate)) < seconds:
        times.append(now)
        works.append(lots.expovariate(1 / work))
    return Requests(times, works, array("d", [UNKNOWN]) * len(times))


def old_pods(*millicores: float) -> list[PodSeen]:
    return [PodSeen(0.0, 10.0, Usage(cores / 1000, 990.0, 15.0)) for cores in millicores]


@pytest.mark.parametrize(
    ("millicores", "wanted"),
    [
        # The examples of the manual of Kubernetes: 200m for 100m wanted doubles, 50m halves.
        ([200], 2),
        ([50, 50], 1),
        # Within a tenth nothing changes.
        ([109, 109, 109], 3),
        ([91, 91, 91], 3),
        ([112, 112, 112], 4),
    ],
)
def test_the_hpa_multiplies_pods_by_used_cpu_over_wanted_cpu(millicores: list[float], wanted: int) -> None:
    seen = old_pods(*millicores)
    assert hpa.of_utilization(seen, 0.2, 0.5, len(seen), 1000.0) == wanted


def test_pods_that_have_just_become_ready_count_as_idle_when_pods_are_added() -> None:
    young = PodSeen(960.0, 980.0, Usage(0.9, 990.0, 15.0))
    starting = PodSeen(990.0, None, None)
    # Two of four are known, at twice the target: the others are taken as idle, and the mean is the target.
    assert hpa.of_utilization([*old_pods(200, 200), young, starting], 0.2, 0.5, 4, 1000.0) == 4
    assert hpa.of_utilization([*old_pods(200, 200)], 0.2, 0.5, 2, 1000.0) == 4
    # When pods are to be removed, a pod without readings counts as one that uses all that it asks for.
    assert hpa.of_utilization([*old_pods(20, 20), starting], 0.2, 0.5, 3, 1000.0) == 3


def test_an_average_value_is_the_sum_divided_by_the_target() -> None:
    # The example of docs/guide/kubernetes.md.
    assert hpa.of_average_value(4.75, 0.9, 4) == 6
    assert hpa.of_average_value(1.95, 0.65, 1) == 3
    assert hpa.of_average_value(3.9, 0.9, 4) == 4


def test_pods_are_added_as_far_as_the_widest_policy_allows() -> None:
    scaler = Scaler(Behavior(), 1, 100)
    assert [scaler.decide(100, 1, 0.0), scaler.decide(100, 5, 15.0), scaler.decide(100, 10, 30.0)] == [
        5,
        10,
        20,
    ]
    # What was added within the period counts.
    assert scaler.decide(100, 20, 35.0) == 20
    wide = Scaler(Behavior(up=(Policy("Percent", 300, 15),)), 1, 10)
    assert [wide.decide(100, 2, 0.0), wide.decide(100, 8, 15.0)] == [8, 10]


def test_pods_are_removed_when_no_reading_of_the_window_wanted_them() -> None:
    scaler = Scaler(Behavior(down_window_seconds=60), 2, 100)
    wanted = [6, 3, 4, 1, 1, 1, 1]
    decided, pods = [], 6
    for at, number in enumerate(wanted):
        pods = scaler.decide(number, pods, at * 15.0)
        decided.append(pods)
    assert decided == [6, 6, 6, 6, 4, 4, 2]


def test_a_pod_waits_as_the_formula_of_erlang_says() -> None:
    """M/M/4 at a load of 0.6: P(wait) by Erlang's formula C, mean wait = P / (c·mu - lambda)."""
    asked = requests(rate=24, seconds=12_000, work=0.1)
    fleet = Fleet(Machine(threads=4, share=0.0), asked, 1)
    fleet.scale(1, is_ready=True)
    fleet.run(12_000)
    offered, threads = 2.4, 4
    terms = [offered**n / math.factorial(n) for n in range(threads)]
    last = offered**threads / math.factorial(threads) * threads / (threads - offered)
    expected = last / (sum(terms) + last) / (40 - 24)
    waits = [latency - work for latency, work in zip(asked.latencies, asked.works) if latency >= 0]
    assert len(waits) > 0.999 * len(asked.times)
    assert sum(waits) / len(waits) == pytest.approx(expected, rel=0.08)


def test_threads_that_compute_share_the_processor() -> None:
    asked = Requests(array("d", [0.0, 0.0, 0.0]), array("d", [1.0, 1.0, 2.0]), array("d", [UNKNOWN]) * 3)
    fleet = Fleet(Machine(threads=4, share=1.0), asked, 1)
    fleet.scale(1, is_ready=True)
    fleet.run(10)
    assert list(asked.latencies) == pytest.approx([3.0, 3.0, 4.0])
    assert fleet.pods[0].cpu_seconds == pytest.approx(4.0)


@pytest.mark.parametrize("balance", ["least", "random"])
@pytest.mark.parametrize("share", [0.2, 1.0])
def test_every_request_is_served_refused_lost_or_inside(balance: str, share: float) -> None:
    asked = requests(rate=40, seconds=1200, work=0.5)
    fleet = Fleet(Machine(4, share, balance, prestop_seconds=0.0, drain_seconds=0.2), asked, 1)
    counts = random.Random(3)
    controlled(fleet, lambda _fleet, _metrics: counts.randint(1, 12), 3, 900.0)
    arrived = fleet.following
    outcomes = [asked.latencies[at] for at in range(arrived)]
    inside = sum(pod.inside for pod in (*fleet.pods, *fleet.leaving))
    assert outcomes.count(UNKNOWN) == inside
    assert outcomes.count(REFUSED) and outcomes.count(LOST)
    served = sum(1 for latency in outcomes if latency >= 0)
    assert served + outcomes.count(REFUSED) + outcomes.count(LOST) + inside == arrived
    assert all(latency == UNKNOWN for latency in asked.latencies[arrived:])


def test_an_overloaded_pod_refuses_and_serves_the_newest_first() -> None:
    asked = requests(rate=80, seconds=120, work=0.1)
    fleet = Fleet(Machine(threads=4, share=0.0), asked, 1)
    fleet.scale(1, is_ready=True)
    fleet.run(120)
    late = [asked.latencies[at] for at in loads.between(asked.times, 30, 110)]
    # Half of what comes can be served, and what is served has not waited long.
    assert 0.4 < late.count(REFUSED) / len(late) < 0.6
    assert max(late) < 3.0


def test_equal_seeds_give_equal_runs_and_the_clairvoyant_keeps_the_objective() -> None:
    rate, seconds = loads.step(6, 0.5, before=300, after=300)
    rule, machine = chart.read(), Machine(4, 0.2)
    ends = []
    for _ in range(2):
        load = loads.load(loads.made(0.5, 1.0, 5), rate, seconds)
        fleet, course = controllers.clairvoyant(load, machine, rule, 60, 5)
        ends.append((fleet.seconds(), course, load.requests.latencies.tobytes()))
        late = sum(1 for at in range(len(load.requests.times)) if controllers.is_over(load, at, seconds))
        assert late <= 0.012 * len(load.requests.times)
    assert ends[0] == ends[1]
    pods = [count for _, count in ends[0][1]]
    assert max(pods[:5]) < min(pods[6:])


def test_the_rule_is_that_of_the_chart(tmp_path: Path) -> None:
    rule = chart.read()
    values = (chart.FOLDER / "values.yaml").read_text()
    assert f"targetUtilization: {rule.target:g}" in values
    assert f"targetCpuPercent: {100 * rule.cpu_target:g}" in values
    assert rule.behavior.up == (Policy("Percent", 300, 15),)
    assert (rule.threads, rule.pods_min, rule.request_cores) == (4, 2, 1.0)
    (tmp_path / "templates").mkdir()
    template = "templates/scaledobject.yaml"
    (tmp_path / template).write_text((chart.FOLDER / template).read_text())
    (tmp_path / "values.yaml").write_text(values.replace("scaleDownWindowSeconds:", "other:"))
    with pytest.raises(Unusable, match="scaleDownWindowSeconds"):
        chart.read(tmp_path)


def test_logs_of_both_forms_and_recordings_are_read_alike(tmp_path: Path) -> None:
    starts = [1_795_245_160 + 0.25 * at for at in range(120)]
    text = [
        '192.0.2.7 - - [-] "GET / HTTP/1.1" 200 2 "-" "-" receive=0.1 queue=0.0 run=0.040000 send=0.0'
        " total=0.1 id=fe route=app pool=default waiting=0 threads=8 idle=7 cpu=0.001"
        f" worker={worker} at={at:.6f}"
        for at in starts
        for worker in ("47.3", "-")
    ]
    entries = [
        f'{{"time":"2026-11-21T07:12:{at // 4:02}.{at % 4 * 25:02}0000+00:00","worker":"47.3","run":0.04}}'
        for at in range(120)
    ]
    for name, lines in (("text.log", text), ("json.log", list(reversed(entries)))):
        (tmp_path / name).write_text("\n".join(lines))
        found = loads.read(tmp_path / name)
        loads.write(tmp_path / "recorded.txt", found)
        for pairs in (found, loads.read(tmp_path / "recorded.txt")):
            assert [gap for gap, _ in pairs] == pytest.approx([0.0] + [0.25] * 119, abs=1e-6)
            assert [run for _, run in pairs] == pytest.approx([0.04] * 120)
    (tmp_path / "short.log").write_text("100 200\n")
    with pytest.raises(Unusable, match="fewer than 100"):
        loads.read(tmp_path / "short.log")
