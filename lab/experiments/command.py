"""`lab experiment NAME...`: published observations, measured anew with `milepost bench`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from lab import generator, measure, plots, process, runner, toolbox, weighttp
from lab.experiments import session, spec, tables
from lab.experiments.session import Session
from lab.experiments.spec import Experiment, Point, Server
from lab.experiments.tables import Finding, Findings
from lab.scenario import Ground
from lab.toolbox import Toolbox

# Which peer a server is, by what it needs.
PEER_OF = {"nginx": "nginx", "python:gunicorn": "gunicorn", "python:granian": "granian", "apache2": "httpd"}
PEERS = tuple(PEER_OF.values())
MOD_WSGI = "6.1.1"
# What the system's packages of shared libraries are called.
PACKAGE_OF = {
    "library:libjemalloc.so.2": "libjemalloc2",
    "library:libtcmalloc_minimal.so.4": "libtcmalloc-minimal4",
}
RUN_S_MAX = 600
# Processors' time of all other programs above which a load is measured once more.
FOREIGN_MAX = 0.08


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument(
        "names", nargs="+", metavar="NAME", help=f"`all`, a file, or: {', '.join(spec.names())}"
    )
    runner.add_arguments(parser, (), PEERS)
    parser.set_defaults(seconds=0, repeat=0)
    parser.add_argument("--points", help="only these points, by comma")


def run(options: argparse.Namespace) -> int:
    """The exit status. Raises Unusable."""
    names = spec.names() if options.names == ["all"] else options.names
    experiments = [narrowed(spec.read(_file(name)), options) for name in names]
    runner.raise_descriptor_limit()
    box = toolbox.prepare([peer for peer in options.peers if peer in toolbox.PEERS], options.milepost)
    if "httpd" in options.peers and "prefork-buckets" in names:
        prepare_httpd(box)
    install_libraries(experiments, box)
    runner.require(box, "milepost")
    with runner.prepared(options, "experiment") as (ground, _awake):
        head = runner.describe(box, ground, False, "servers by turns, every second repetition backwards")
        folder = runner.output_folder(options, "experiment")
        for experiment in experiments:
            findings = Findings(experiment, skipped=skipped(experiment, options.peers, box))
            measure_all(findings, box, ground)
            write(findings, head, folder)
    return 0


def _file(name: str) -> Path:
    return Path(name) if name.endswith(".toml") else spec.FOLDER / f"{name}.toml"


def narrowed(experiment: Experiment, options: argparse.Namespace) -> Experiment:
    """The experiment with what the command line asks for instead. Raises Unusable."""
    points = experiment.points
    if options.points:
        points = [point for point in points if point.name in options.points.split(",")]
        if not points:
            raise toolbox.Unusable(f"`{experiment.name}` has none of the points {options.points}")
    if options.seconds:
        changed = {"duration": f"{options.seconds}s"}
        points = [
            dataclasses.replace(point, load={**point.load, **changed}) if "duration" in point.load else point
            for point in points
        ]
    return dataclasses.replace(experiment, points=points, repeat=options.repeat or experiment.repeat)


def prepare_httpd(box: Toolbox) -> None:
    """Apache httpd with mod_wsgi, built against the interpreter of the other Python servers."""
    if not shutil.which("apxs"):
        toolbox.install(["apache2", "apache2-dev"])
    if shutil.which("apxs"):
        toolbox.install_peer(box, "mod_wsgi", MOD_WSGI)


def install_libraries(experiments: list[Experiment], box: Toolbox) -> None:
    """Shared libraries that servers need, where they are missing and may be installed."""
    servers = [server for experiment in experiments for server in experiment.servers]
    lacking = [server for server in servers if session.missing(server, box)]
    packages = {PACKAGE_OF[need] for server in lacking for need in server.needs if need in PACKAGE_OF}
    toolbox.install(sorted(packages))


def skipped(experiment: Experiment, peers: list[str], box: Toolbox) -> dict[str, str]:
    """Servers that cannot be measured, or are not to be, with the reason."""
    found = {}
    for server in experiment.servers:
        unwanted = [peer for need in server.needs if (peer := PEER_OF.get(need, peers[0])) not in peers]
        if why := "not asked for (--peers)" if unwanted else session.missing(server, box):
            found[server.name] = why
    return found


def measure_all(findings: Findings, box: Toolbox, ground: Ground) -> None:
    """All repetitions: forwards, backwards, forwards, so that a drift of the machine hits all servers."""
    experiment = findings.experiment
    for repetition in range(1, experiment.repeat + 1):
        for server in experiment.servers[:: 1 if repetition % 2 else -1]:
            if server.name not in findings.skipped:
                measure_server(findings, server, repetition, box, ground)


def measure_server(findings: Findings, server: Server, repetition: int, box: Toolbox, ground: Ground) -> None:
    """One start of a server with all its points; a server that fails is left out of the rest."""
    experiment = findings.experiment
    time.sleep(experiment.rest_s)
    try:
        with session.running(server, experiment, box, ground.server_core) as started:
            for point in experiment.points_of(server):
                runner.say(experiment.name, f"{server.name}: {point.name} {repetition}/{experiment.repeat}")
                findings.found.append(measure_point(started, point, repetition, box, ground))
                time.sleep(experiment.rest_s)
    except (OSError, *measure.FAULTS) as cause:
        findings.skipped[server.name] = str(cause)


def measure_point(started: Session, point: Point, repetition: int, box: Toolbox, ground: Ground) -> Finding:
    """One load, once more when other programs disturbed it: the less disturbed one counts."""
    first = measure_once(started, point, repetition, box, ground)
    if foreign(first) <= FOREIGN_MAX:
        return first
    second = measure_once(started, point, repetition, box, ground)
    return second if second.outcome and foreign(second) <= foreign(first) else first


def measure_once(started: Session, point: Point, repetition: int, box: Toolbox, ground: Ground) -> Finding:
    """One load and the facts after it."""
    finding = Finding(started.server.name, point.name, repetition)
    try:
        with session.acting(started) as facts:
            finding.outcome = GENERATORS[point.generator](started, point, box, ground)
        finding.facts = {**facts, **started.facts()}
    except (generator.GeneratorFailed, process.NotReady) as cause:
        finding.fault = str(cause)
    return finding


def foreign(finding: Finding) -> float:
    """Processors' time that other programs took."""
    if finding.outcome is None:
        return 0.0
    cpus = sum(
        line[:3] == "cpu" and line[3].isdigit() for line in Path("/proc/stat").read_text().splitlines()
    )
    return float(finding.outcome["generator"].get("foreign_cpu_share", 0.0)) * cpus


def by_milepost(started: Session, point: Point, box: Toolbox, ground: Ground) -> dict[str, Any]:
    """The run of `milepost bench`. Raises GeneratorFailed."""
    load = {key: spec.replaced(value, started.words) for key, value in point.load.items()}
    argv = [str(box.milepost), "bench", "--quiet", "--json", "-", *flags(load)]
    argv += ["--cpus", str(ground.client_core), "--server-pid", str(started.pid), str(load["url"])]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
        outcome: dict[str, Any] = json.loads(done.stdout)["runs"][0]
    except subprocess.TimeoutExpired as cause:
        raise generator.GeneratorFailed(f"the generator did not end within {RUN_S_MAX} s") from cause
    except (json.JSONDecodeError, KeyError, IndexError) as cause:
        words = (done.stderr or done.stdout).strip()[-300:]
        raise generator.GeneratorFailed(f"the generator said: {words}") from cause
    # Histograms and seconds are not shown.
    outcome.pop("series", None)
    return outcome


def flags(load: dict[str, Any]) -> list[str]:
    """The keys of a load as flags of `milepost bench`; a list repeats its flag."""
    argv = []
    for key, value in load.items():
        if key == "url" or value is False:
            continue
        flag = f"--{key.replace('_', '-')}"
        for one in value if isinstance(value, list) else [value]:
            argv += [flag] if one is True else [flag, str(one)]
    return argv


def by_weighttp(started: Session, point: Point, _box: Toolbox, ground: Ground) -> dict[str, Any]:
    """The same form, of what weighttp counted. Raises GeneratorFailed."""
    load = {key: spec.replaced(value, started.words) for key, value in point.load.items()}
    numbers = int(load["requests"]), int(load["connections"])
    counted = weighttp.requests(load["url"], *numbers, ground.client_core, ("-k",))
    return {
        "counts": {"answered": counted.responses, "failures": {"any": counted.faults}},
        "seconds": counted.duration_s,
        "times": {},
        "server": None,
        "generator": {"cpu_us_per_request": counted.cpu_s * 1e6 / max(1, counted.responses)},
        "remarks": [],
    }


GENERATORS = {"milepost": by_milepost, "weighttp": by_weighttp}


def write(findings: Findings, head: list[str], folder: Path) -> None:
    """The page, every finding, and pictures."""
    name = findings.experiment.name
    text = tables.page(findings, head)
    (folder / f"{name}.md").write_text(text)
    found = [dataclasses.asdict(one) for one in findings.found]
    stored = {"machine": head, "skipped": findings.skipped, "findings": found}
    (folder / f"{name}.json").write_text(json.dumps(stored, indent=1) + "\n")
    if why := plots.missing():
        runner.say(name, why)
    else:
        tables.draw(findings, folder)
    print(text)
    runner.say(name, f"written to {folder}")
