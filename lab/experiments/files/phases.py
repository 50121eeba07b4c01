"""Phases of the requests to one path from a log in JSON: lines as `queue.avg 0.0001`.

`phases.py LOG PATH [all]`: of the requests since the last call, or of all. Times are in seconds; `queued` is
how many waited for a thread for more than 1 ms.
"""

import json
import pathlib
import statistics
import sys
import time

NAMES = ("receive", "queue", "run", "send", "total")


def settled(log: pathlib.Path) -> bytes:
    """The bytes of the log, once none have come for a while."""
    size, quiet = -1, 0
    for _ in range(100):
        now = log.stat().st_size
        quiet = quiet + 1 if now == size else 0
        if quiet == 4:
            break
        size = now
        time.sleep(0.1)
    return log.read_bytes()


def main(log: pathlib.Path, path: str, which: str = "new") -> None:
    seen = log.with_name(log.name + ".seen")
    start = int(seen.read_text()) if seen.exists() and which == "new" else 0
    text = settled(log)
    seen.write_text(str(len(text)))
    lines = [json.loads(line) for line in text[start:].splitlines()]
    lines = [line for line in lines if line["target"] == path and line["end"] == "complete"]
    print("lines", len(lines))
    if not lines:
        return
    print("queued", sum(line["queue"] > 0.001 for line in lines))
    for name in NAMES:
        values = [line[name] for line in lines]
        print(f"{name}.avg", f"{statistics.fmean(values):.9f}")
        print(f"{name}.stdev", f"{statistics.stdev(values) if len(values) > 1 else 0:.9f}")
        print(f"{name}.min", f"{min(values):.9f}")
        print(f"{name}.max", f"{max(values):.9f}")
        print(f"{name}.median", f"{statistics.median_low(values):.9f}")


main(pathlib.Path(sys.argv[1]), *sys.argv[2:])
