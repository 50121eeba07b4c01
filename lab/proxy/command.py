"""`lab proxy`: upstreams behind Milepost, nginx, HAProxy and Caddy."""

from __future__ import annotations

import argparse
import shutil
import subprocess

from lab import measure, runner, toolbox
from lab.proxy import scenarios
from lab.scenario import Ground
from lab.toolbox import Toolbox


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    runner.add_arguments(parser, scenarios.NAMES, scenarios.PEERS, repeat=4)


def run(options: argparse.Namespace) -> int:
    """The exit status. Raises Unusable."""
    box = toolbox.prepare([*options.peers, "floor"], options.milepost)
    add_peers(box, options.peers)
    with runner.prepared(options, "proxy") as (ground, awake):
        measure.lay_out(ground)
        collection = runner.Collection(
            "proxy",
            "Upstreams behind a proxy",
            [scenario for scenario in scenarios.every() if scenario.name in options.only],
            runner.describe(box, ground, awake, method(options, ground)),
            lambda row: row.take(row, box, ground),
        )
        status = runner.run(collection, options, box)
        for recording in sorted(ground.directory.glob("recorded-*.txt")):
            shutil.copy(recording, runner.output_folder(options, collection.name))
        return status


def add_peers(box: Toolbox, peers: list[str]) -> None:
    """The peers that other subcommands have no use for, and the upstreams."""
    runner.require(box, "floor")
    box.programs["upstream"] = str(toolbox.cargo_build(box, "upstream"))
    runner.require(box, "upstream")
    wanted = [peer for peer in ("haproxy", "caddy") if peer in peers]
    toolbox.install([peer for peer in wanted if shutil.which(peer) is None])
    for peer, option in (("haproxy", "-v"), ("caddy", "version")):
        if peer not in wanted:
            continue
        if shutil.which(peer) is None:
            box.missing[peer] = f"not installed; apt-get install {peer}"
        else:
            said = subprocess.run([peer, option], capture_output=True, text=True, check=False).stdout
            box.versions[peer] = said.split("\n")[0].removeprefix("HAProxy version ").split(" ")[0]


def method(options: argparse.Namespace, ground: Ground) -> str:
    """How it was measured."""
    return (
        "`milepost bench` with one thread; upstreams beside it; "
        f"{options.repeat} interleaved repetitions of {ground.seconds} s"
    )
