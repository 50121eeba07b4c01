"""Pictures of results, drawn by matplotlib: bars of rows with their ranges, and lines over a number.

Takes numbers, writes SVG files. Without matplotlib there are no pictures, and `missing()` says so.
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

BAR_INCHES = 0.4
WIDTH_INCHES = 8.0


@dataclass(frozen=True)
class Line:
    """Points of one line; `is_published` ones are drawn dashed."""

    points: Mapping[float, Sequence[float]]
    is_published: bool = False


def missing() -> str | None:
    """Why there are no pictures, if there are none."""
    if importlib.util.find_spec("matplotlib"):
        return None
    return "no pictures: matplotlib is not installed (lab/requirements.txt)"


def bars(file: Path, title: str, unit: str, rows: Mapping[str, Sequence[float]]) -> None:
    """A bar for each row: the median, with a line from the least to the greatest value."""
    figure, axes = _axes(BAR_INCHES * len(rows) + 1.5)
    medians = [statistics.median(values) for values in rows.values()]
    below = [middle - min(values) for middle, values in zip(medians, rows.values())]
    above = [max(values) - middle for middle, values in zip(medians, rows.values())]
    axes.barh(list(rows), medians, xerr=[below, above], color="#6fa8dc", ecolor="#333333", capsize=3)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    _save(figure, axes, file, title)


def lines(file: Path, title: str, labels: tuple[str, str], drawn: Mapping[str, Line]) -> None:
    """A line for each name: averages, with a band from the least to the greatest value."""
    figure, axes = _axes(5.0)
    for name, line in drawn.items():
        at = sorted(line.points)
        middle = [statistics.fmean(line.points[x]) for x in at]
        style = "--" if line.is_published else "-"
        (path,) = axes.plot(at, middle, style, label=name, marker=".")
        least, most = ([pick(line.points[x]) for x in at] for pick in (min, max))
        axes.fill_between(at, least, most, color=path.get_color(), alpha=0.15)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small")
    _save(figure, axes, file, title)


@dataclass(frozen=True)
class Scatter:
    """One chart: a line, and points with names."""

    line: Sequence[tuple[float, float]]
    points: Mapping[str, tuple[float, float]]


def scatters(file: Path, labels: tuple[str, str], charts: Mapping[str, Scatter], columns: int) -> None:
    """Small charts beside each other, with the same axes."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot

    rows = -(-len(charts) // columns)
    figure, grid = matplotlib.pyplot.subplots(
        rows, columns, figsize=(4 * columns, 3 * rows), sharex=True, sharey=True, layout="constrained"
    )
    for axes, (title, chart) in zip(grid.flat, charts.items()):
        axes.plot(*zip(*chart.line), color="#888888")
        for name, (x, y) in chart.points.items():
            axes.plot(x, y, "o", label=name)
        axes.set_title(title, fontsize="medium")
        axes.grid(alpha=0.3)
    # The points of all charts have the same names and colours.
    figure.legend(*grid.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    figure.supxlabel(labels[0])
    figure.supylabel(labels[1])
    figure.savefig(file)
    matplotlib.pyplot.close(figure)


@dataclass(frozen=True)
class Steps:
    """Points of a line that keeps each value until the next one."""

    points: Sequence[tuple[float, float]]
    is_reference: bool = False


def stacked(file: Path, title: str, below: str, charts: Mapping[str, Mapping[str, Steps]]) -> None:
    """Charts below each other with the same time, each with the label of its values."""
    figure, grid = _axes(2.7 * len(charts), len(charts))
    for axes, (label, drawn) in zip(grid, charts.items()):
        for name, line in drawn.items():
            style = {"color": "#555555", "linestyle": ":"} if line.is_reference else {"linewidth": 1.2}
            axes.step(*zip(*line.points), where="post", label=name, **style)
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    grid[-1].set_xlabel(below)
    _save(figure, grid[0], file, title)


def _axes(height_inches: float, rows: int = 1):  # type: ignore[no-untyped-def]
    import matplotlib

    # No display is needed for a file.
    matplotlib.use("svg")
    import matplotlib.pyplot

    size = (WIDTH_INCHES, height_inches)
    return matplotlib.pyplot.subplots(rows, figsize=size, layout="constrained", sharex=True)


def _save(figure, axes, file: Path, title: str) -> None:  # type: ignore[no-untyped-def]
    import matplotlib.pyplot

    axes.set_title(title, fontsize="medium", wrap=True)
    axes.grid(alpha=0.3)
    figure.savefig(file)
    matplotlib.pyplot.close(figure)
