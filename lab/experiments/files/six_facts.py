"""What became of each of the six requests: lines as `4.queue 0.244246`.

`six_facts.py log FILE` reads Milepost's access log in JSON; `six_facts.py notes FILE` what the application
noted, in which a request's arrival is that of the first one and its recorded offset.
"""

import datetime
import json
import sys
import time

OFFSETS_S = {"1": 0.0, "2": 0.7, "3": 0.700437, "4": 0.700874, "5": 0.701401, "6": 0.713946}
THREADS = 2


def of_log(lines):
    """Request: when it was put into the queue, started and ended."""
    found = {}
    for line in map(json.loads, lines):
        request = line["target"].lstrip("/")
        if request in OFFSETS_S:
            arrived = datetime.datetime.fromisoformat(line["time"]).timestamp()
            queued = arrived + line["receive"]
            started = queued + line["queue"]
            # With the delivery, as NaviServer's run is.
            found[request] = (queued, started, started + line["run"] + line["send"])
    return found


def of_notes(lines):
    """The same; the queue begins when the client was to send."""
    noted = {request: (float(began), float(ended)) for request, began, ended in map(str.split, lines)}
    if "1" not in noted:
        return {}
    first = noted["1"][0]
    return {
        request: (min(first + OFFSETS_S[request], began), began, ended)
        for request, (began, ended) in noted.items()
    }


def read(kind, path):
    lines = open(path, encoding="utf-8").read().splitlines()
    return of_log(lines) if kind == "log" else of_notes(lines)


found = {}
for _ in range(50):
    found = read(*sys.argv[1:])
    if len(found) == len(OFFSETS_S):
        break
    time.sleep(0.1)
for request, (queued, started, ended) in sorted(found.items()):
    others = [each for name, each in found.items() if name != request]
    running = 1 + sum(began <= ended < end for _, began, end in others)
    print(f"{request}.waiting", sum(put <= ended <= began for put, began, _ in others))
    print(f"{request}.threads", THREADS)
    print(f"{request}.idle", max(0, THREADS - running))
    print(f"{request}.queue", f"{started - queued:.6f}")
    print(f"{request}.run", f"{ended - started:.6f}")
    print(f"{request}.total", f"{ended - queued:.6f}")
