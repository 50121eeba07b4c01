"""Scenario files: what is started, loaded and shown. Takes TOML, gives an `Experiment` or its faults.

README.md describes the keys. An unknown key is refused.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import tomllib

from lab.toolbox import Unusable

FOLDER = Path(__file__).parent
FILES = FOLDER / "files"
PUBLISHED = FOLDER / "published.toml"
UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
SPAN = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m)")
Load = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class File:
    """A file in the folder of each server: a text, a file of `files/`, or so many bytes of `x`."""

    path: str
    text: str = ""
    from_: str = ""
    fill: int = 0

    def content(self) -> str:
        """Before words are replaced."""
        return "x" * self.fill if self.fill else (FILES / self.from_).read_text() if self.from_ else self.text


@dataclass(frozen=True)
class Point:
    """One load; `servers` are those that get it, none: all."""

    name: str
    load: Load = field(default_factory=dict)
    servers: tuple[str, ...] = ()
    generator: str = "milepost"


@dataclass(frozen=True)
class Beside:
    """A process that runs beside a server."""

    name: str
    start: list[str]


@dataclass(frozen=True)
class Action:
    """A command, or a signal to the server or to a process beside it, during each load."""

    at: str
    every: str = "0s"
    times: int = 1
    run: list[str] = field(default_factory=list)
    signal: str = ""
    to: str = "server"


@dataclass(frozen=True)
class Fact:
    """A command that prints a number, or lines of `KEY NUMBER`, after each load."""

    command: list[str]
    name: str = ""


@dataclass(frozen=True)
class Server:
    """A server and all that belongs to it."""

    name: str
    start: list[str]
    ready: str
    like: str = ""
    words: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    file: list[dict[str, Any]] = field(default_factory=list)
    beside: list[dict[str, Any]] = field(default_factory=list)
    action: list[dict[str, Any]] = field(default_factory=list)
    fact: list[dict[str, Any]] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)
    prepare: list[list[str]] = field(default_factory=list)

    @property
    def files(self) -> list[File]:
        """Those of its own."""
        return [_file(table) for table in self.file]

    @property
    def processes(self) -> list[Beside]:
        """Those beside it."""
        return [_made(Beside, table) for table in self.beside]

    @property
    def actions(self) -> list[Action]:
        """What is done during each load."""
        return [_made(Action, table) for table in self.action]

    @property
    def facts(self) -> list[Fact]:
        """What is asked after each load."""
        return [_made(Fact, table) for table in self.fact]


@dataclass(frozen=True)
class Column:
    """A column of a table, or the cells of a grid."""

    head: str
    text: str = ""
    value: str = ""
    unit: str = ""
    digits: int = 0
    over: str = "median"
    against: str = ""
    yes_above: float | None = None


@dataclass(frozen=True)
class Table:
    """A table: a grid of points and servers, or a row for each server and point."""

    title: str
    published: str = ""
    points: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    grid: dict[str, Any] | None = None
    column: list[dict[str, Any]] = field(default_factory=list)
    by: str = "point"
    rows: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> list[Column]:
        """Those of a table that is no grid."""
        return [_made(Column, table) for table in self.column]

    @property
    def cell(self) -> Column | None:
        """The cells of a grid."""
        return _made(Column, {"over": "spread", **self.grid}) if self.grid else None

    def heads(self, servers: list[str]) -> list[str]:
        """Of all columns."""
        cell = self.cell
        return [cell.head, *servers] if cell else [column.head for column in self.columns]


@dataclass(frozen=True)
class Published:
    """A table that others have published."""

    source: str
    head: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Experiment:
    """A scenario file."""

    name: str
    shows: str
    takes: str
    repeat: int
    rest_s: float
    points: list[Point]
    files: list[File]
    servers: list[Server]
    tables: list[Table]

    def points_of(self, server: Server) -> list[Point]:
        """The loads that a server gets."""
        return [point for point in self.points if not point.servers or server.name in point.servers]


def names() -> list[str]:
    """Of all scenario files."""
    return sorted(path.stem for path in FOLDER.glob("*.toml") if path != PUBLISHED)


def published() -> dict[str, Published]:
    """All published tables by their names."""
    return {name: _made(Published, table) for name, table in tomllib.loads(PUBLISHED.read_text()).items()}


def read(path: Path) -> Experiment:
    """The experiment of a file. Raises Unusable."""
    try:
        return _read(path.stem, tomllib.loads(path.read_text()))
    except (OSError, tomllib.TOMLDecodeError, TypeError, KeyError, ValueError) as cause:
        raise Unusable(f"{path}: {cause}") from cause


def span_s(text: str) -> float:
    """Seconds of `500ms`, `2s`, `1m`. Raises ValueError."""
    found = SPAN.fullmatch(text)
    if not found:
        raise ValueError(f"`{text}` is no span of time")
    return float(found[1]) * UNITS_S[found[2]]


def _read(name: str, document: dict[str, Any]) -> Experiment:
    known = {"shows", "takes", "repeat", "rest", "load", "point", "file", "server", "table"}
    if unknown := set(document) - known:
        raise ValueError(f"unknown keys: {', '.join(sorted(unknown))}")
    common: Load = document.get("load", {})
    experiment = Experiment(
        name=name,
        shows=document["shows"],
        takes=document["takes"],
        repeat=document.get("repeat", 3),
        rest_s=span_s(document.get("rest", "500ms")),
        points=[point for table in document["point"] for point in _points(table, common)],
        files=[_file(table) for table in document.get("file", [])],
        servers=_servers(document["server"]),
        tables=[_made(Table, table) for table in document["table"]],
    )
    _check(experiment)
    return experiment


def _points(table: dict[str, Any], common: Load) -> list[Point]:
    """One point for each combination of the lists of `each`."""
    each = table.get("each", {})
    made = []
    for values in itertools.product(*each.values()):
        words = {key: str(value) for key, value in zip(each, values)}
        plain = {key: value for key, value in table.items() if key != "each"}
        plain["name"] = replaced(plain["name"], words)
        own = {key: replaced(value, words) for key, value in plain.get("load", {}).items()}
        made.append(_made(Point, {**plain, "load": {**common, **own}}))
    return made


def _servers(tables: list[dict[str, Any]]) -> list[Server]:
    """`like` takes the keys of an earlier server; `words` and `env` go over its own."""
    made: dict[str, dict[str, Any]] = {}
    for table in tables:
        base = made[table["like"]] if "like" in table else {}
        merged = {**base, **table}
        for key in ("words", "env"):
            merged[key] = {**base.get(key, {}), **table.get(key, {})}
        made[table["name"]] = merged
    return [_made(Server, table) for table in made.values()]


def _check(experiment: Experiment) -> None:
    servers = {server.name for server in experiment.servers}
    points = {point.name for point in experiment.points}
    for server in experiment.servers:
        # Faults in tables within a server show now, not in the middle of a run.
        _ = server.files, server.processes, server.actions, server.facts
    for point in experiment.points:
        _known(point.servers, servers)
    for table in experiment.tables:
        _known(table.servers, servers)
        _known(table.points, points)
        _known([column.against for column in table.columns if column.against], servers)
        if table.published:
            heads = table.heads([server.name for server in experiment.servers])
            _known(published()[table.published].head, set(heads))


def _known(wanted: tuple[str, ...] | list[str], known: set[str]) -> None:
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError(f"unknown: {', '.join(unknown)}")


def replaced(value: Any, words: Mapping[str, str]) -> Any:
    """`{WORD}` replaced in texts and lists of texts; other braces stay as they are."""
    if isinstance(value, list):
        return [replaced(part, words) for part in value]
    if not isinstance(value, str):
        return value
    return re.sub(r"\{(\w+)\}", lambda found: words.get(found[1], found[0]), value)


def _file(table: dict[str, Any]) -> File:
    return _made(File, {("from_" if key == "from" else key): value for key, value in table.items()})


def _made(kind: type[T], table: dict[str, Any]) -> T:
    """A dataclass from a table of TOML. Raises ValueError."""
    known = {one.name: one for one in fields(kind)}  # type: ignore[arg-type]
    if unknown := set(table) - set(known):
        raise ValueError(f"unknown keys: {', '.join(sorted(unknown))}")
    needed = [n for n, one in known.items() if one.default is MISSING and one.default_factory is MISSING]
    if missing := [name for name in needed if name not in table]:
        raise ValueError(f"missing keys: {', '.join(missing)}")
    return kind(**table)
