"""Whether a log has what it is to have: each numbered request exactly once, in the order of its
connection, in a file that it belongs to, and nothing else.

Takes what the numbered clients asked for and the files of the log in their order; gives what is
wrong, line by line. Reads JSON lines (with times) and lines of the form `phases` (without). Uses the
standard library alone, so that the tests can use it too; must not know who wrote what it reads.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple

REPLIED, CUT, SPOILED = "replied", "cut", "spoiled"
DAY_US = 86_400 * 1_000_000
# Times are rounded down to a microsecond, and a delivery is the sum of two of them.
ROUNDING_US = 5
KINDS = ("lost", "doubled", "disordered", "torn", "misplaced", "foreign", "spoiled")
# How many findings of a kind are kept with their words; all are counted.
WORDS_MAX = 5

_NUMBER = re.compile(r"[?&]n=(\d+)\.(\d+)$")
_PHASES = re.compile(
    rb'\S+ - \S+ \[[^]]+\] "(?:[A-Z]+ [^ "]*?(?:[?&]n=(\d+)\.(\d+))? HTTP/1\.[01]|[^"]*)" '
    rb"(?:\d{3}|-) (?:\d+|-) "
    rb'"[^"]*" "[^"]*" receive=\d+\.\d{6} queue=\d+\.\d{6} run=\d+\.\d{6} send=\d+\.\d{6} total=\d+\.\d{6}'
    rb'(?: [a-z_]+=(?:"[^"]*"|[^\s"]+))*'
)


class Ended(NamedTuple):
    """What became of a request: `replied`, `cut` or `spoiled`, and when (microseconds since 1970)."""

    how: str
    at_us: int


# The requests of each stream in their order; a request's number is its place.
Asked = dict[int, list[Ended]]


class Tail(Enum):
    """What the last line of the last file may be."""

    WHOLE = "whole"
    # Its writer was killed in the middle of a write.
    MAY_BE_CUT = "may be cut"


@dataclass(frozen=True)
class LogFile:
    """One file; nothing in it can have been delivered after `ended_us` by the clock of the log."""

    path: Path
    ended_us: int | None = None


class Line(NamedTuple):
    """A line that is whole; `stream` is -1 without a number, `delivered_us` -1 without a time."""

    stream: int
    number: int
    delivered_us: int


@dataclass
class Findings:
    """Counts of everything, and the words of the first of each kind of fault."""

    served: int = 0
    cut: int = 0
    lines: int = 0
    plain: int = 0
    cut_logged: int = 0
    files: int = 0
    days: set[int] = field(default_factory=set)
    lost: list[tuple[int, int]] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    words: list[str] = field(default_factory=list)

    def add(self, kind: str, words: str) -> None:
        """One more fault."""
        self.faults[kind] += 1
        if self.faults[kind] <= WORDS_MAX:
            self.words.append(f"{kind}: {words}")

    @property
    def wrong(self) -> int:
        """How many faults there are of all kinds but loss, which some may have."""
        return sum(count for kind, count in self.faults.items() if kind != "lost")


def read_asked(folder: Path) -> Asked:
    """What `numbered` has noted: a file for each stream, named by its number."""
    asked: Asked = {}
    for path in folder.iterdir():
        requests = asked[int(path.name)] = []
        for place, line in enumerate(path.read_text().splitlines()):
            number, how, at_us = line.split(" ")
            assert int(number) == place, f"{path}: {line}"
            requests.append(Ended(how, int(at_us)))
    return asked


def check(
    asked: Asked,
    files: Sequence[LogFile],
    period_us: int | None = None,
    tail: Tail = Tail.WHOLE,
    others: Sequence[Path] = (),
) -> Findings:
    """Compares both. `period_us`: no file may have lines of two such periods since 1970.
    `others` are files that must not have a numbered line."""
    findings = Findings(files=len(files))
    book = _Book(asked, findings)
    for place, file in enumerate(files):
        last = tail if place == len(files) - 1 else Tail.WHOLE
        _check_file(file, last, period_us, book, findings)
    book.close()
    for path in others:
        for line in path.read_bytes().split(b"\n"):
            if (found := read_line(line)) and found.stream >= 0:
                findings.add("misplaced", f"{path.name}: {_shown(line)}")
    return findings


def read_line(line: bytes) -> Line | None:
    """A whole access line without its end; None when it is not one."""
    if line.startswith(b"{"):
        return _read_json(line)
    found = _PHASES.fullmatch(line)
    if found is None:
        return None
    stream, number = found.groups()
    return Line(-1, -1, -1) if stream is None else Line(int(stream), int(number), -1)


def first_delivery_us(path: Path) -> int:
    """Of the first line that tells it; the greatest number there is without one."""
    with path.open("rb") as file:
        line = read_line(file.readline().rstrip(b"\n"))
    return line.delivered_us if line and line.delivered_us >= 0 else 1 << 62


class _Book:
    """What has been seen of each stream."""

    def __init__(self, asked: Asked, findings: Findings) -> None:
        self._asked, self._findings = asked, findings
        self._seen = {stream: bytearray(len(requests)) for stream, requests in asked.items()}
        self._last = dict.fromkeys(asked, -1)

    def enter(self, line: Line, where: str) -> None:
        """One more line with a number; `where` it is, for words."""
        findings = self._findings
        stream, number, _ = line
        seen = self._seen.get(stream)
        if seen is None or number >= len(seen):
            findings.add("foreign", f"{where}: {stream}.{number} was never asked for")
            return
        if seen[number]:
            findings.add("doubled", f"{where}: {stream}.{number} again")
            return
        seen[number] = 1
        findings.lines += 1
        if number < self._last[stream]:
            findings.add("disordered", f"{where}: {stream}.{number} after {stream}.{self._last[stream]}")
        else:
            self._last[stream] = number

    def close(self) -> None:
        """No line comes any more: what was served without one is lost."""
        findings = self._findings
        for stream, requests in sorted(self._asked.items()):
            seen = self._seen[stream]
            for number, (how, _) in enumerate(requests):
                if how == CUT:
                    findings.cut += 1
                    findings.cut_logged += seen[number]
                    continue
                findings.served += 1
                if how == SPOILED:
                    findings.add("spoiled", f"the reply to {stream}.{number} was not what it was to be")
                if not seen[number]:
                    findings.lost.append((stream, number))
                    findings.add("lost", f"{stream}.{number}")


def _check_file(file: LogFile, tail: Tail, period_us: int | None, book: _Book, findings: Findings) -> None:
    name = file.path.name
    first_period = None
    for place, line in enumerate(_lines(file.path), 1):
        read = read_line(line[:-1]) if line.endswith(b"\n") else None
        if read is None:
            if not (tail is Tail.MAY_BE_CUT and not line.endswith(b"\n")):
                findings.add("torn", f"{name}:{place}: {_shown(line)}")
            continue
        if read.stream < 0:
            findings.plain += 1
        else:
            book.enter(read, f"{name}:{place}")
        if read.delivered_us < 0:
            continue
        findings.days.add(read.delivered_us // DAY_US)
        if file.ended_us is not None and read.delivered_us > file.ended_us:
            late_ms = (read.delivered_us - file.ended_us) / 1e3
            findings.add("misplaced", f"{name}:{place}: delivered {late_ms:.1f} ms after the file's end")
        if period_us is not None:
            periods = _periods(read.delivered_us, period_us)
            first_period = first_period or periods
            if not first_period & periods:
                findings.add("misplaced", f"{name}:{place}: of another period than the lines before it")
            elif len(periods) < len(first_period):
                first_period = periods


def _periods(at_us: int, period_us: int) -> set[int]:
    """Two of them at a boundary: times are not exact."""
    return {at_us // period_us, (at_us + ROUNDING_US) // period_us}


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=1 << 20) as file:
        yield from file


def _read_json(line: bytes) -> Line | None:
    try:
        record = json.loads(line)
        found = _NUMBER.search(record["target"])
        delivered_us = _micros(record["time"]) + round(float(record["total"]) * 1e6)
        if record["status"] is None or "end" not in record:
            return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if found is None:
        return Line(-1, -1, delivered_us)
    return Line(int(found[1]), int(found[2]), delivered_us)


_SECONDS: dict[str, int] = {}


def _micros(text: str) -> int:
    """Of `2026-11-21T12:00:00.123456+01:00` or `...Z`; whole seconds are worked out once each."""
    second, rest = text[:19], text[19:]
    if rest[:1] != "." or not rest[1:7].isdigit():
        raise ValueError(text)
    key = second + rest[7:]
    whole_s = _SECONDS.get(key)
    if whole_s is None:
        moment = datetime.datetime.fromisoformat(key.replace("Z", "+00:00"))
        whole_s = _SECONDS[key] = int(moment.timestamp())
    return whole_s * 1_000_000 + int(rest[1:7])


def _shown(line: bytes) -> str:
    return repr(line if len(line) <= 120 else line[:60] + b" ... " + line[-60:])


def in_order(paths: Iterable[Path]) -> list[Path]:
    """Files of one log by the time of their last write: the one after it began when it ended."""
    return sorted(paths, key=lambda path: (path.stat().st_mtime_ns, first_delivery_us(path)))
