"""The command line: `python3 -m lab SCENARIO [OPTIONS]`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple

from lab import cost, performance, scrape, toolbox, top
from lab.asgi import command as asgi
from lab.autoscaling import command as autoscaling
from lab.control import command as control
from lab.control import pictures
from lab.experiments import command as experiments
from lab.log import command as log
from lab.log import reading
from lab.peers import command as peers
from lab.proxy import command as proxy
from lab.reload import command as reload
from lab.slow import command as slow
from lab.tls import command as tls


class Subcommand(NamedTuple):
    """One thing that can be measured."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


SUBCOMMANDS = {
    "cost": Subcommand(
        "processor time of a request, of one build over another", cost.add_arguments, cost.run
    ),
    "peers": Subcommand("beside nginx, granian, gunicorn and bjoern", peers.add_arguments, peers.run),
    "experiment": Subcommand(
        "published observations, measured anew", experiments.add_arguments, experiments.run
    ),
    "slow": Subcommand("slow clients and slow disks", slow.add_arguments, slow.run),
    "log": Subcommand("what the access log costs, and that it loses nothing", log.add_arguments, log.run),
    "reading": Subcommand("`milepost report` beside goaccess", reading.add_arguments, reading.run),
    "reload": Subcommand("reloads, crashes and spread over processes", reload.add_arguments, reload.run),
    "tls": Subcommand("TLS and HTTP/2 beside nginx and granian", tls.add_arguments, tls.run),
    "proxy": Subcommand(
        "upstreams behind it, beside nginx, HAProxy and Caddy", proxy.add_arguments, proxy.run
    ),
    "asgi": Subcommand("ASGI and WebSocket beside granian and uvicorn", asgi.add_arguments, asgi.run),
    "control": Subcommand(
        "pools that size themselves, and the simulator", control.add_arguments, control.run
    ),
    "autoscaling": Subcommand(
        "the chart's autoscaling beside the HPA on CPU, simulated",
        autoscaling.add_arguments,
        autoscaling.run,
    ),
    "scrape": Subcommand("what a scrape of /metrics takes", scrape.add_arguments, scrape.run),
    "top": Subcommand("what `milepost top` takes beside a loaded server", top.add_arguments, top.run),
    "policies": Subcommand("draw a table of queueing policies", pictures.add_arguments, pictures.run),
    "page": Subcommand(
        "write docs/performance.md from lab/results.toml", performance.add_arguments, performance.run
    ),
}


def main() -> int:
    """The exit status."""
    options = read_arguments()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        return SUBCOMMANDS[options.subcommand].run(options)
    except toolbox.Unusable as cause:
        print(f"lab: {options.subcommand}: {cause}", file=sys.stderr)
    except KeyboardInterrupt:
        print("lab: interrupted; everything that was started has been ended", file=sys.stderr)
    return 2


def read_arguments() -> argparse.Namespace:
    """The command line; `--help` is its reference."""
    parser = argparse.ArgumentParser(
        prog="python3 -m lab",
        description="Measures Milepost. Progress goes to stderr, the report to stdout and into a folder.",
        epilog="Exit status: 0 done, 1 a figure was missed (with --strict), 2 could not measure.",
    )
    chosen = parser.add_subparsers(dest="subcommand", required=True, metavar="SCENARIO")
    for name, subcommand in SUBCOMMANDS.items():
        subcommand.add_arguments(chosen.add_parser(name, help=subcommand.help, description=subcommand.help))
    return parser.parse_args()


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
