"""Counters of a running Milepost since its start, as lines of `KEY NUMBER`: `counters.py MILEPOST CONTROL`.

`received`, `partial`, `spooled` and `errors` are sums over drivers; with `.least` and `.most` behind them
those of one driver.
"""

import json
import subprocess
import sys

KEYS = ("received", "partial", "spooled", "errors")

command = [*sys.argv[1:-1], "status", "--json", "--control", sys.argv[-1]]
status = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
drivers = status["counters"]["drivers"]
for key in KEYS:
    values = [driver[key] for driver in drivers]
    print(key, sum(values))
    print(f"{key}.least", min(values))
    print(f"{key}.most", max(values))
print("threads", sum(pool["threads"] for one in status["processes"] for pool in one["pools"]))
