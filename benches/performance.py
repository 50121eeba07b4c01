"""docs/performance.md from what was measured: its tables stand between marks and are made of JSON.

    <!-- made from bench.json: static -->     the rows and bars of one scenario of `make bench`
    <!-- made from drivers-sweep.json -->     the page of one scenario of `milepost bench run`
    <!-- end -->

The files lie in docs/performance. `store` puts results there, without what no table needs; without
arguments the tables are written anew, with --check nothing is written. Exit status: 0 as it should be,
1 a table is not what its file says, 2 could not.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/performance.md"
FOLDER = ROOT / "docs/performance"
BLOCK = re.compile(r"(<!-- made from (\S+\.json)(?:: (\S+))? -->\n)(.*?)(<!-- end -->)", re.DOTALL)
# metric: title, form, scale.
COLUMNS = {
    "rps": ("requests a second", ",.0f", 1.0),
    "cpu_us": ("server's processor µs a request", ".2f", 1.0),
    "generator_cpu_us": ("generator's processor µs a request", ".2f", 1.0),
    "p99_us": ("p99 ms", ".2f", 1e-3),
    "bytes_per_connection": ("bytes a connection", ",.0f", 1.0),
}
SHOWN = {
    "generators": ("rps", "generator_cpu_us", "p99_us"),
    "idle": ("bytes_per_connection",),
}
USUAL = ("rps", "cpu_us", "p99_us")
# Histograms and seconds are for other programs than this page.
DROPPED = ("hdr", "series")


class Unusable(Exception):
    """A file that is not there or not of its form."""


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="performance", description="docs/performance.md from JSON.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when a table is stale")
    parser.add_argument("--milepost", default=shutil.which("milepost"), help="the command")
    parser.add_argument("--store", nargs="+", type=Path, default=[], metavar="FILE", help="results to keep")
    options = parser.parse_args()
    try:
        for file in options.store:
            store(file)
        text = PAGE.read_text()
        made = BLOCK.sub(lambda found: block(found, options.milepost), text)
    except (Unusable, OSError, json.JSONDecodeError, KeyError) as cause:
        print(f"performance: {cause}", file=sys.stderr)
        return 2
    if options.check:
        return int(made != text)
    PAGE.write_text(made)
    return 0


def store(file: Path) -> None:
    """Keeps a file of results, without what is dropped."""
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(slim(json.loads(file.read_text())), ensure_ascii=False)
    (FOLDER / file.name).write_text(text + "\n")


def slim(value: Any) -> Any:
    """The value without histograms and seconds; their fields stay, empty."""
    if isinstance(value, dict):
        return {key: type(part)() if key in DROPPED else slim(part) for key, part in value.items()}
    return [slim(part) for part in value] if isinstance(value, list) else value


def block(found: re.Match[str], milepost: str | None) -> str:
    """What stands between two marks. Raises Unusable."""
    head, name, part, _, end = found.groups()
    file = FOLDER / name
    made = bench_table(json.loads(file.read_text()), part) if part else page_of(file, milepost)
    return f"{head}{made.strip()}\n{end}"


def page_of(file: Path, milepost: str | None) -> str:
    """The page of a scenario, its headings two levels lower."""
    if milepost is None:
        raise Unusable("`milepost` is not installed")
    command = [milepost, "bench", "run", file.stem, "--from", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unusable(done.stderr.strip())
    return re.sub(r"^(#+ )", r"##\1", done.stdout, flags=re.MULTILINE)


def bench_table(results: dict[str, Any], name: str) -> str:
    """Rows and bars of one scenario. Raises KeyError."""
    scenario = results["scenarios"][name]
    columns = SHOWN.get(name, USUAL)
    lines = [["", *(COLUMNS[metric][0] for metric in columns)]]
    lines += [
        [row, *(cell(samples, metric) for metric in columns)] for row, samples in scenario["rows"].items()
    ]
    text = table(lines)
    bars = [bar for bar in results["bars"] if bar["scenario"] == name]
    if bars:
        text += "\n" + table([["figure to reach", "measured", ""], *(judged(bar) for bar in bars)])
    text += "".join(f"\n{row} was not measured: {why}.\n" for row, why in scenario["not_run"].items())
    return text


def cell(samples: list[dict[str, Any] | None], metric: str) -> str:
    """Median, least and greatest of the undisturbed ones, or of all."""
    taken = [sample for sample in samples if sample]
    calm = [sample for sample in taken if not sample["disturbed"]] or taken
    _, form, scale = COLUMNS[metric]
    values = sorted(sample[metric] * scale for sample in calm if sample.get(metric) is not None)
    if not values:
        return "-"
    return f"{statistics.median(values):{form}} ({values[0]:{form}}-{values[-1]:{form}})"


def judged(bar: dict[str, Any]) -> list[str]:
    """A bar as a line."""
    if bar["measured"] is None:
        return [bar["text"], "-", "not measured"]
    measured = f"{bar['measured']:.2f} ({bar['least']:.2f}-{bar['greatest']:.2f})"
    return [bar["text"], measured, "reached" if bar["passed"] else "**missed**"]


def table(lines: list[list[str]]) -> str:
    """Markdown."""
    head, *rows = lines
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, ["---"] * len(head), *rows])


if __name__ == "__main__":
    sys.exit(main())
