"""What the report of the log shows; how is in `slow.paper`."""

from __future__ import annotations

from slow.paper import Columns, Paper

COLUMNS: Columns = {
    "rps": ("requests/s", ",.0f", 1.0),
    "cpu_us": ("processor µs a request", ".2f", 1.0),
    "generator_cpu": ("generator's core %", ".0f", 100.0),
    "rate": ("requests/s asked", ",.0f", 1.0),
    "p50_us": ("p50 ms", ".3f", 1e-3),
    "p99_us": ("p99 ms", ".3f", 1e-3),
    "max_us": ("greatest ms", ".1f", 1e-3),
    "lag_p99_us": ("client's lag p99 ms", ".3f", 1e-3),
    "failed": ("failed", ".0f", 1.0),
    "unsent": ("never got their turn", ".0f", 1.0),
    "served": ("served", ",.0f", 1.0),
    "logged": ("logged", ",.0f", 1.0),
    "dropped": ("dropped", ",.0f", 1.0),
    "lost_lines": ("without a line", ",.0f", 1.0),
    "unaccounted": ("unaccounted for", ",.0f", 1.0),
    "wrong": ("wrong lines", ",.0f", 1.0),
    "cut": ("cut by the signal", ",.0f", 1.0),
    "rotations": ("rotations", ".0f", 1.0),
    "told": ("of them by SIGUSR1", ".0f", 1.0),
    "own": ("by itself", ".0f", 1.0),
    "fillings": ("disk full", ".0f", 1.0),
    "days": ("days", ".0f", 1.0),
    "oldest_lost_s": ("age of the oldest lost s", ".3f", 1.0),
    "took_s": ("end after s", ".2f", 1.0),
}
PAPER = Paper("The access log", COLUMNS)
