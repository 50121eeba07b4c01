"""`lab tls`: TLS and HTTP/2 beside nginx and granian, under storms, floods and reloads."""

from __future__ import annotations

import argparse
import functools
import re
import shutil
import subprocess

from lab import measure as lab_measure
from lab import runner, toolbox
from lab.tls import lifecycle, scenarios, servers
from lab.toolbox import Toolbox


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    runner.add_arguments(parser, scenarios.NAMES, scenarios.PEERS)
    parser.add_argument(
        "--reloads", type=int, default=lifecycle.RELOADS, help=f"of `reloads` ({lifecycle.RELOADS})"
    )
    parser.add_argument("--scales", type=int, default=lifecycle.SCALES, help=f"of it ({lifecycle.SCALES})")


def run(options: argparse.Namespace) -> int:
    """The exit status. Raises Unusable."""
    runner.raise_descriptor_limit()
    box = toolbox.prepare(options.peers, options.milepost)
    add_h2load(box)
    runner.require(box, "milepost", "h2load")
    with runner.prepared(options, "tls") as (ground, awake):
        lab_measure.lay_out(ground)
        servers.lay_out(ground)
        method = (
            f"h2load (kept connections) and `milepost bench` (new ones); one certificate, ECDSA on P-256; "
            f"access logs off but in `storm`; {options.repeat} interleaved repetitions of {ground.seconds} s"
        )
        known = scenarios.every(options.reloads, options.scales)
        collection = runner.Collection(
            "tls",
            "TLS and HTTP/2",
            [scenario for scenario in known if scenario.name in options.only],
            runner.describe(box, ground, awake, method),
            functools.partial(scenarios.sample, box=box, ground=ground),
            # A hundred reloads are a hundred repetitions by themselves.
            {"reloads": 1},
        )
        return runner.run(collection, options, box)


def add_h2load(box: Toolbox) -> None:
    """Installs it where it is missing."""
    toolbox.install([] if shutil.which("h2load") else ["nghttp2-client"])
    if shutil.which("h2load"):
        said = subprocess.run(["h2load", "--version"], capture_output=True, text=True, check=False).stdout
        box.versions["h2load"] = re.sub(r"^h2load ", "", said.strip()) or "unknown"
    else:
        box.missing["h2load"] = "not installed; apt-get install nghttp2-client"
