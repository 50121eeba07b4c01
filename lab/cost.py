"""`lab cost BEFORE AFTER`: processor time of a request, of one build over another. Is the later one dearer?

Takes two installed commands (`venv/bin/milepost`). Each pair starts both afresh, one after the other on the
same core, the order changing from pair to pair, and divides what a request costs: a cached file and a WSGI
reply of 1 KB on kept connections, the access log on, one driver, one worker. Gives each pair, the median and
the mean of the ratios, and a 95 % interval of the mean (Student's t, two-sided). A pair that others disturb
is taken again, as often as is allowed. The same generator measures both.

Exit status 1: an upper bound is above --at-most.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

from lab import cpu, generator, measure, runner, servers, toolbox
from lab.process import Command
from lab.scenario import MILEPOST, By, Ground, Row, Sample, Start
from lab.servers import Place
from lab.toolbox import Toolbox

PAIRS_LEAST = 2


def file(box: Toolbox, place: Place) -> Command:
    """A file from the cache, with the log on."""
    return servers.milepost_static(box, place, "--access-log", str(place.access_log))


def wsgi(box: Toolbox, place: Place) -> Command:
    """A reply of the application, with the log on."""
    return servers.milepost_wsgi(box, place, "small", 1, "--access-log", str(place.access_log))


KINDS: dict[str, Start] = {"file": file, "wsgi": wsgi}


@dataclass(frozen=True)
class Pair:
    """Microseconds of processor time a request before and after, and whether others disturbed."""

    before_us: float
    after_us: float
    disturbed: bool

    @property
    def ratio(self) -> float:
        """After over before."""
        return self.after_us / self.before_us


@dataclass(frozen=True)
class Summary:
    """Of the ratios of all pairs."""

    median: float
    mean: float
    lower: float
    upper: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("before", type=Path, help="the command of the build before (venv/bin/milepost)")
    parser.add_argument("after", type=Path, help="the command of the build after")
    parser.add_argument("--generator", type=Path, help="the command that makes the load (BEFORE)")
    parser.add_argument("--pairs", type=int, default=20, help="of each kind (20)")
    parser.add_argument("--only", type=runner.some_of(tuple(KINDS)), default=list(KINDS), help="file, wsgi")
    parser.add_argument("--connections", type=int, default=64, help="kept connections (64)")
    parser.add_argument("--rate", type=int, help="requests a second, the same for both (as many as possible)")
    parser.add_argument("--seconds", type=int, default=3, help="of each measurement (3)")
    parser.add_argument("--warm-up", type=int, default=1, help="seconds of load before it (1)")
    parser.add_argument("--patience", type=float, default=20, help="seconds to wait for a quiet machine (20)")
    parser.add_argument("--attempts", type=int, default=3, help="of a pair that others disturb (3)")
    parser.add_argument("--at-most", type=float, help="exit 1 when an upper bound is above")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every pair there")


def run(options: argparse.Namespace) -> int:
    """The exit status. Raises Unusable."""
    builds = [options.before.absolute(), options.after.absolute()]
    maker = (options.generator or options.before).absolute()
    for command in (*builds, maker):
        if not command.exists():
            raise toolbox.Unusable(f"`{command}` does not exist")
    if options.pairs < PAIRS_LEAST:
        raise toolbox.Unusable(f"an interval needs {PAIRS_LEAST} pairs at least")
    print("\n".join([*toolbox.machine(), f"before   {builds[0]}", f"after    {builds[1]}"]))
    found: dict[str, list[Pair]] = {}
    with runner.prepared(options, "cost") as (ground, _awake):
        measure.lay_out(ground)
        for kind in options.only:
            found[kind] = [
                take(options, kind, number, builds, maker, ground) for number in range(options.pairs)
            ]
            print(line(kind, found[kind]), flush=True)
            # What was measured is not lost when the next kind fails.
            if options.json:
                options.json.write_text(json.dumps(plain(found), indent=1))
    uppers = [summary(pairs).upper for pairs in found.values()]
    return 1 if options.at_most is not None and max(uppers) > options.at_most else 0


def take(
    options: argparse.Namespace, kind: str, number: int, builds: list[Path], maker: Path, ground: Ground
) -> Pair:
    """One pair, again while others disturb it. Raises Unusable."""
    best: Pair | None = None
    for _ in range(options.attempts):
        cpu.wait_quiet(options.patience)
        try:
            taken = pair(options, kind, number, builds, maker, ground)
        except measure.FAULTS as cause:
            raise toolbox.Unusable(f"{kind}: {cause}") from cause
        best = taken if best is None or best.disturbed else best
        if not best.disturbed:
            break
    assert best is not None, "there is at least one attempt"
    print(
        f"{kind} {number + 1}/{options.pairs}: before {best.before_us:.2f} µs, after {best.after_us:.2f} µs, "
        f"ratio {best.ratio:.4f}{', disturbed' if best.disturbed else ''}",
        flush=True,
    )
    return best


def pair(
    options: argparse.Namespace, kind: str, number: int, builds: list[Path], maker: Path, ground: Ground
) -> Pair:
    """Both, in an order that changes from pair to pair. Raises one of measure.FAULTS."""
    samples: dict[int, Sample] = {}
    for which in (0, 1) if number % 2 == 0 else (1, 0):
        served = Toolbox(Path(), Path(), builds[which])
        # The box of a sample names the generator; which build serves is in the row.
        start = functools.partial(start_of, served, kind)
        row = Row(kind, MILEPOST, start, options.connections, by=maker_at(options.rate), take=measure.load)
        samples[which] = measure.load(row, Toolbox(Path(), Path(), maker), ground)
        check(kind, samples[which])
    before_us, after_us = (samples[which].values["cpu_us"] for which in (0, 1))
    return Pair(before_us, after_us, any(taken.disturbed for taken in samples.values()))


def maker_at(rate: int | None) -> By:
    """Makes the load. At full speed the faster of generator and server sleeps, and the other pays for waking
    it: at a rate both builds are woken alike."""
    return (lambda *aim: generator.run(*aim, "--rate", str(rate))) if rate else generator.run


def start_of(served: Toolbox, kind: str, _maker: Toolbox, place: Place) -> Command:
    """How the build in `served` is started, whatever box a measurement has."""
    return KINDS[kind](served, place)


def check(kind: str, taken: Sample) -> None:
    """Raises Unusable when a request failed: a failure costs less than an answer."""
    failed = taken.values["errors"] + taken.values["timeouts"]
    if failed or not taken.values["responses"]:
        raise toolbox.Unusable(f"{kind}: {failed:.0f} requests failed")


def line(kind: str, pairs: list[Pair]) -> str:
    """What is said of a kind."""
    found = summary(pairs)
    before = statistics.median(one.before_us for one in pairs)
    after = statistics.median(one.after_us for one in pairs)
    disturbed = sum(one.disturbed for one in pairs)
    return (
        f"{kind}: {len(pairs)} pairs ({disturbed} disturbed): median {before:.2f} -> {after:.2f} µs; ratio "
        f"median {found.median:.4f}, mean {found.mean:.4f}, 95 % {found.lower:.4f} to {found.upper:.4f}"
    )


def summary(pairs: list[Pair]) -> Summary:
    """Median, mean, and the interval that holds the mean with 95 %."""
    ratios = [one.ratio for one in pairs]
    mean = statistics.fmean(ratios)
    half = student(len(ratios) - 1) * statistics.stdev(ratios) / math.sqrt(len(ratios))
    return Summary(statistics.median(ratios), mean, mean - half, mean + half)


def student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t: exact for 1 and 2 degrees of freedom, otherwise by the expansion of
    Cornish and Fisher (Abramowitz and Stegun 26.7.5), which is within 0.4 % from 3 on."""
    if freedom == 1:
        return math.tan(math.pi * 0.475)
    if freedom == 2:
        return 0.95 / math.sqrt(2 * 0.975 * 0.025)
    z = statistics.NormalDist().inv_cdf(0.975)
    terms = [
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    ]
    return math.fsum(term / float(freedom) ** power for power, term in enumerate(terms))


def plain(found: dict[str, list[Pair]]) -> dict[str, object]:
    """As values for JSON."""
    return {
        kind: {"summary": asdict(summary(pairs)), "pairs": [asdict(one) for one in pairs]}
        for kind, pairs in found.items()
    }
