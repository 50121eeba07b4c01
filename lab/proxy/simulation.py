"""The simulator of `milepost whatif --servers` beside a proxy that ran.

A rule runs before real upstreams. Then the simulator gets the arrivals and run times of the proxy's log, and
runs the same rule. Both give percentiles of queue: all but the run, from the last byte of a request on.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lab import cpu, process
from lab.process import Command
from lab.proxy import mix
from lab.proxy import servers as proxies
from lab.proxy.measure import ProxyRow, UpstreamStart, standing
from lab.scenario import MILEPOST, Bar, Ground, Sample, Scenario
from lab.servers import Place
from lab.toolbox import Toolbox

NAME = "simulation"
# Rules with what the proxy knows of slots, as `--limits` of the simulator says it.
RULES = (
    ("queue", "reported"),
    ("least-connections", "reported"),
    ("least-connections", "none"),
    ("two-choices", "none"),
    ("peak-ewma", "none"),
    ("prequal", "none"),
    ("round-robin", "none"),
    ("random", "none"),
)
# Run times by name, and how busy the upstreams are.
LOADS = (("mixed", 0.7), ("mixed", 0.9), ("heavy", 0.7))
LAWS: dict[str, mix.Law] = {"mixed": mix.mixed, "heavy": mix.heavy}
# Enough that a server never has as many.
UNLIMITED = 4_096
# The simulator keeps the order of arrival and refuses nothing: a burst must not count as an overload.
PATIENT = (
    *("--queue-target", "60s", "--overload-timeout", "120s"),
    *("--queue-timeout", "120s", "--queue-len-max", "100000"),
)
# Rules that choose at random have another outcome for each seed of the simulator and each run of the proxy.
SEEDS = range(1, 10)
RANDOM_RULES = ("random", "two-choices", "prequal")
RANDOM_RUNS = 5
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
# What a predicted percentile may be off: the larger of both.
SHARE_MAX, OFF_MAX_MS = 0.2, 3.0
LOGGED_WITHIN_S = 10.0
FIELDS_LEN = 5
# Of what is kept for docs/balancing: a file of 60 KB.
RECORDED_LEN = 6_000
RECORDED = (RULES[0], 0.7)
FIELD = re.compile(rb" (at|receive|queue|run|upstream_run)=([0-9.]+)")


class Unlike(process.NotReady):
    """The log or the simulator has not what is compared."""


@dataclass(frozen=True)
class SimulatedRow(ProxyRow):
    """One rule, one law of run times."""

    balance: str = ""
    limits: str = ""
    law: str = ""
    # Whether its requests are kept.
    is_recorded: bool = False


class Record(NamedTuple):
    """One request: when it was whole, all of its time but the run, and the run at the upstream."""

    at_s: float
    queue_s: float
    run_s: float


def scenario(upstreams: Sequence[UpstreamStart], connections: int) -> Scenario:
    """All rules under all loads, before these upstreams, which report what they do."""
    rows = tuple(row(upstreams, connections, rule, law, load) for law, load in LOADS for rule in RULES)
    bars = tuple(Bar("prediction_error", one.name, None, at_most=1.0) for one in rows)
    title = f"percentiles of queue, simulated from the proxy's log and measured, {len(upstreams)} upstreams"
    return Scenario(NAME, title, rows, bars)


def row(
    upstreams: Sequence[UpstreamStart], connections: int, rule: tuple[str, str], law: str, load: float
) -> SimulatedRow:
    """One rule before the upstreams."""
    balance, limits = rule

    def behind(box: Toolbox, place: Place, ports: Sequence[int]) -> Command:
        slots = None if limits == "reported" else UNLIMITED
        logged = ("--access-log", str(place.access_log))
        return proxies.milepost(box, place, ports, *logged, *PATIENT, slots=slots, balance=balance)

    return SimulatedRow(
        f"{balance}, slots {limits}, {law} {load}",
        MILEPOST,
        start=lambda box, place: behind(box, place, []),
        connections=connections,
        take=take,
        behind=behind,
        upstreams=upstreams,
        rate=mix.rate(load),
        balance=balance,
        limits=limits,
        law=law,
        is_recorded=(rule, load) == RECORDED,
    )


def take(one: SimulatedRow, box: Toolbox, ground: Ground) -> Sample:
    """Runs the rule, then simulates it; medians where it is random. Raises one of measure.FAULTS."""
    requests = mix.sequence(LAWS[one.law], one.rate, ground.seconds)
    runs_len = RANDOM_RUNS if one.balance in RANDOM_RULES else 1
    runs = [compare(one, requests, box, ground) for _ in range(runs_len)]
    values = {"timeouts": sum(run.timeouts for run in runs), "errors": sum(run.faults for run in runs)}
    errors = []
    for name in QUANTILES:
        measured = statistics.median(run.measured_ms[name] for run in runs)
        predicted = statistics.median(run.predicted_ms[name] for run in runs)
        values |= {f"queue_{name}_us": measured * 1e3, f"simulated_{name}_us": predicted * 1e3}
        errors.append(error(predicted, measured))
    return Sample(values | {"prediction_error": max(errors)}, max(run.foreign_share for run in runs))


@dataclass(frozen=True)
class Run:
    """One run of a rule before real upstreams, and what the simulator says of it: percentiles of queue."""

    measured_ms: dict[str, float]
    predicted_ms: dict[str, float]
    timeouts: float
    faults: float
    foreign_share: float


def compare(one: SimulatedRow, requests: Sequence[mix.Asked], box: Toolbox, ground: Ground) -> Run:
    """One run, and the simulation of its log. Raises one of measure.FAULTS."""
    log = ground.directory / "simulated.log"
    recording = ground.directory / f"recorded-{one.law}.txt"
    with standing(one, box, ground) as all_of_it:
        place = all_of_it.proxy.place
        aim = (box, place.port, one.connections, ground.directory, ground.client_core)
        before_s = all_of_it.upstreams_s()
        window = cpu.Window(all_of_it.proxy.pid)
        # No warm-up: the simulator begins with as little knowledge as the proxy.
        counted = mix.replay(requests, *aim)
        usage = window.close(counted.cpu_s + all_of_it.upstreams_s() - before_s)
        wait_logged(place.access_log, len(requests))
        shutil.copy(place.access_log, log)
    logged = records(log)
    if one.is_recorded:
        recording.write_text(recorded(logged))
    waits = sorted(record.queue_s * 1e3 for record in logged)
    measured_ms = {name: mix.quantile(waits, QUANTILES[name]) for name in QUANTILES}
    predicted = predicted_ms(one, box, log)
    return Run(measured_ms, predicted, float(counted.timeouts), float(counted.faults), usage.foreign_share)


def error(predicted_ms: float, measured_ms: float) -> float:
    """How far a prediction is off, as a part of what it may be."""
    return abs(predicted_ms - measured_ms) / max(SHARE_MAX * measured_ms, OFF_MAX_MS)


def records(log: Path) -> list[Record]:
    """The requests that upstreams ran, by their arrival. Raises Unlike."""
    found = []
    for line in log.read_bytes().splitlines():
        seconds = {name.decode(): float(value) for name, value in FIELD.findall(line)}
        if len(seconds) == FIELDS_LEN:
            run_s = seconds["upstream_run"]
            queue_s = seconds["queue"] + seconds["run"] - run_s
            found.append(Record(seconds["at"] + seconds["receive"], queue_s, run_s))
    if not found:
        raise Unlike("no line of the proxy's log has `upstream_run`")
    return sorted(found)


def recorded(logged: Sequence[Record]) -> str:
    """Requests for the tables of docs/balancing.md: microseconds since the one before, and of the run."""
    # The first request is that which asks whether the proxy is ready.
    pairs = list(zip(logged, logged[1:]))[1 : RECORDED_LEN + 1]
    return "".join(f"{1e6 * (one.at_s - before.at_s):.0f} {1e6 * one.run_s:.0f}\n" for before, one in pairs)


def predicted_ms(one: SimulatedRow, box: Toolbox, log: Path) -> dict[str, float]:
    """Percentiles of queue by the simulator: the medians over SEEDS. Raises Unlike."""
    argv = [str(box.milepost), "whatif", str(log), "--json", "--servers", str(len(one.upstreams))]
    argv += ["--slots", str(mix.THREADS), "--balance", one.balance, "--limits", one.limits]
    found = []
    for seed in SEEDS:
        done = subprocess.run([*argv, "--seed", str(seed)], capture_output=True, text=True, check=False)
        try:
            found.append(json.loads(done.stdout)["answers"][0]["queue"])
        except (json.JSONDecodeError, KeyError, IndexError) as cause:
            raise Unlike(f"the simulator said: {(done.stderr or done.stdout).strip()[-200:]}") from cause
    return {name: statistics.median(times[f"{name}_ms"] for times in found) for name in QUANTILES}


def wait_logged(log: Path, lines: int) -> None:
    """Until the log has so many lines. Raises Unlike."""
    deadline_s = time.monotonic() + LOGGED_WITHIN_S
    while (found := log.read_bytes().count(b"\n")) < lines:
        if time.monotonic() > deadline_s:
            raise Unlike(f"{found} lines of {lines} were logged")
        time.sleep(0.1)
