"""`lab asgi`: event loops and WebSockets beside granian and uvicorn."""

from __future__ import annotations

import argparse

from lab import measure, runner, toolbox
from lab.asgi import scenarios
from lab.scenario import Ground
from lab.toolbox import Toolbox


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    runner.add_arguments(parser, scenarios.NAMES, scenarios.PEERS, repeat=4)


def run(options: argparse.Namespace) -> int:
    """The exit status. Raises Unusable."""
    box = toolbox.prepare(options.peers, options.milepost)
    add_peers(box, options.peers)
    with runner.prepared(options, "asgi") as (ground, awake):
        measure.lay_out(ground)
        collection = runner.Collection(
            "asgi",
            "ASGI and WebSocket",
            [scenario for scenario in scenarios.every() if scenario.name in options.only],
            runner.describe(box, ground, awake, method(options, ground)),
            lambda row: row.take(row, box, ground),
        )
        return runner.run(collection, options, box)


def add_peers(box: Toolbox, peers: list[str]) -> None:
    """What the applications need, and the peers that other subcommands have no use for."""
    for package, version in toolbox.ASGI_PACKAGES.items():
        if package != "uvicorn" or package in peers:
            toolbox.install_peer(box, package, version)
    if "pingpong" in peers:
        box.programs["pingpong"] = str(toolbox.cargo_build(box, "pingpong"))
        if "pingpong" not in box.missing:
            box.versions["pingpong"] = "of lab/programs"


def method(options: argparse.Namespace, ground: Ground) -> str:
    """How it was measured."""
    return (
        "`milepost bench` with one thread, and for `broadcast` 32 clients in Python; one process, one loop, "
        f"uvicorn with httptools; {options.repeat} interleaved repetitions of {ground.seconds} s"
    )
