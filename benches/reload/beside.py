"""Requests a second, their processor time and their p99, over kept and over short-lived connections.

Takes a row, gives a Sample; again while others disturb it.
"""

from __future__ import annotations

import math

import cpu
import generator
import measure
from measure import Ground, Sample
from toolbox import Toolbox

from reload import load
from reload.load import Load

ATTEMPTS_MAX = 2
SHORT = 64


def kept(row: measure.Row, box: Toolbox, ground: Ground) -> Sample:
    """Kept connections."""
    return measure.least_disturbed(lambda: measure.load(row, box, ground), ATTEMPTS_MAX, ground.patience_s)


def short(row: measure.Row, box: Toolbox, ground: Ground) -> Sample:
    """A connection for each request."""
    return measure.least_disturbed(lambda: _short(row, box, ground), ATTEMPTS_MAX, ground.patience_s)


def _short(row: measure.Row, box: Toolbox, ground: Ground) -> Sample:
    with measure.running(row, box, ground) as server:
        load.run(Load(server.place.port, ground.warm_up_s, SHORT), box, ground)
        generator_s = generator.children_cpu_s()
        window = cpu.Window(server.pid)
        told = load.run(Load(server.place.port, ground.seconds, SHORT), box, ground)
        usage = window.close(generator.children_cpu_s() - generator_s)
    answered = told["short"]["answered"]
    values = load.values(told) | {
        "rps": answered / told["seconds"],
        "cpu_us": usage.server_s * 1e6 / answered if answered else math.nan,
        "server_cpu": usage.server_s / usage.elapsed_s,
        "p50_us": float(told["short"]["p50_us"]) if answered else math.inf,
        "p99_us": float(told["short"]["p99_us"]) if answered else math.inf,
    }
    return Sample(values, usage.foreign_share)
