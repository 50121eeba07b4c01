"""`lab peers`: Milepost beside nginx, granian, gunicorn, bjoern and a bare epoll loop."""

from __future__ import annotations

import argparse

from lab import measure, runner, toolbox
from lab.peers import scenarios
from lab.scenario import MILEPOST, Ground
from lab.toolbox import Toolbox


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    runner.add_arguments(parser, scenarios.NAMES, toolbox.PEERS, repeat=5)
    parser.set_defaults(patience=20)


def run(options: argparse.Namespace) -> int:
    """The exit status. Raises Unusable."""
    box = toolbox.prepare(options.peers, options.milepost)
    with runner.prepared(options, "peers") as (ground, _awake):
        measure.lay_out(ground)
        method = (
            f"`milepost bench` with one thread; {options.repeat} interleaved repetitions of "
            f"{ground.seconds} s after {ground.warm_up_s} s"
        )
        chosen = [
            scenario
            for scenario in scenarios.every(canned_reply(box, ground))
            if scenario.name in options.only
        ]
        collection = runner.Collection(
            "peers",
            "Milepost beside its peers",
            chosen,
            runner.describe(box, ground, False, method),
            lambda row: row.take(row, box, ground),
        )
        return runner.run(collection, options, box)


def canned_reply(box: Toolbox, ground: Ground) -> bytes:
    """The reply that the floor copies: Milepost's, or nginx's while there is no Milepost."""
    for row in scenarios.static(b"").rows[:2]:
        if row.tool not in box.missing and (row.tool == MILEPOST or row.tool in box.versions):
            try:
                return measure.first_reply(row, box, ground)
            except measure.FAULTS as cause:
                box.missing[row.tool] = str(cause)
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n\r\n" + b"x" * 1024
