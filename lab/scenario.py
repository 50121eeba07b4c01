"""The vocabulary of all measurements: rows, figures to reach, samples. Nothing here measures or prints."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from lab import cpu, generator
from lab.generator import Counted
from lab.process import Command
from lab.servers import Place
from lab.toolbox import Toolbox

# Toolbox, port, path, connections, seconds, core.
By = Callable[[Toolbox, int, str, int, int, int], Counted]
Start = Callable[[Toolbox, Place], Command]
# The rows of a subcommand may have more fields than `Row`.
Take = Callable[[Any, Toolbox, "Ground"], "Sample"]

SMALL = "/1k.txt"
LARGE = "/64k.txt"
MILEPOST = "milepost"


@dataclass(frozen=True)
class Ground:
    """Where and how long: the files, the cores, the seconds."""

    directory: Path
    server_core: int
    client_core: int
    seconds: int
    warm_up_s: int
    patience_s: float

    @property
    def www(self) -> Path:
        """The folder of files that the servers serve."""
        return self.directory / "www"


@dataclass(frozen=True)
class Sample:
    """Named numbers of one measurement.

    `foreign_share` is the share of one CPU that other programs took; `lagged` says that the load generator
    itself was too late for its percentiles to say anything.
    """

    values: dict[str, float]
    foreign_share: float
    lagged: bool = False

    @property
    def disturbed(self) -> bool:
        """Whether other programs computed beside it, so that it says little."""
        return self.lagged or self.foreign_share > cpu.FOREIGN_SHARE_MAX


@dataclass(frozen=True)
class Row:
    """One server in one setting.

    `tool` is the program that must be installed; `take` measures the row; `by` makes the load; `slow_readers`
    clients are held open beside the load, each with a request for LARGE. `tls` is how a server of HTTPS is
    asked whether it is ready.
    """

    name: str
    tool: str
    start: Start
    connections: int = 64
    slow_readers: int = 0
    by: By = generator.run
    tls: ssl.SSLContext | None = None
    take: Take = field(kw_only=True)


class Judged(Enum):
    """Which repetitions decide whether a row reaches a figure."""

    # The median of the undisturbed ones.
    MEDIAN = "median"
    # The worst of all: for events that may not happen once.
    WORST = "worst"


class Compared(Enum):
    """How a number of one row is set against that of another."""

    RATIO = "/"
    DIFFERENCE = "-"


@dataclass(frozen=True)
class Bar:
    """A figure to reach: `metric` of `row`, over or less that of `base` when there is one."""

    metric: str
    row: str
    base: str | None
    at_most: float | None = None
    at_least: float | None = None
    judged: Judged = Judged.MEDIAN
    compared: Compared = Compared.RATIO


def worst(metric: str, row: Row, at_most: float | None = None, at_least: float | None = None) -> Bar:
    """A figure that every repetition has to reach."""
    return Bar(metric, row.name, None, at_most, at_least, Judged.WORST)


@dataclass(frozen=True)
class Scenario:
    """Rows that are measured in turn, again and again, so that a drift of the machine hits all of them."""

    name: str
    title: str
    rows: tuple[Row, ...]
    bars: tuple[Bar, ...] = ()
    # Pairs of rows whose ratio is shown, beside those of the bars.
    also: tuple[tuple[str, str], ...] = ()
