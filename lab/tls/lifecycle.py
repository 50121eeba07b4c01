"""A server of several processes that is reloaded, scaled and upgraded while it serves HTTP/2 over TLS.

Takes a row, gives a Sample with what was lost by whose doing, and which sessions were not resumed.
"""

from __future__ import annotations

import random
import sys
import time

from lab import measure, process
from lab.reload import servers as reload_servers
from lab.reload.control import Control
from lab.reload.lifecycle import PAUSE_S, PROCESSES, SEED, WARM_UP_S, Operator
from lab.reload.load import Calling
from lab.scenario import SMALL, Ground, Sample
from lab.tls.measure import Row, clients
from lab.toolbox import Toolbox

RELOADS = 100
SCALES = 20
CALLERS = 8
STREAMS = 8
# Of a connection, after which the next one resumes its session: several hundred a second in all.
REQUESTS = 100
COUNTS = ("answered", "connections", "offered", "not_resumed", "refused_streams")


def lived(row: Row, box: Toolbox, ground: Ground, reloads: int = RELOADS, scales: int = SCALES) -> Sample:
    """All that is done to it, the upgrade in the middle."""
    with measure.running(row, box, ground) as server:
        control = Control(box.milepost, reload_servers.control_file(server.place))
        control.settled(PROCESSES)
        words = (SMALL, CALLERS, STREAMS, REQUESTS)
        with clients("callers", server.place.port, ground, *words) as callers:
            calling = Calling(callers)
            time.sleep(WARM_UP_S)
            if not calling.so_far()["answered"]:
                raise process.NotReady("callers got no replies")
            operator = Operator(control, server.place.port)
            for number, name in enumerate(order(reloads, scales)):
                print(f"lab tls: {number + 1}. {name}", file=sys.stderr)
                operator.do(name)
                time.sleep(PAUSE_S)
            counted = calling.stop()
    values = {name: float(counted[name]) for name in COUNTS}
    values["resumed_share"] = 1 - values["not_resumed"] / max(1.0, values["offered"])
    classes = [fault["class"] for fault in counted["faults"]]
    values |= {f"lost_{kind}": float(classes.count(kind)) for kind in set(classes)}
    return Sample(values | operator.values(counted) | {"lost": float(len(classes))}, 0.0)


def order(reloads: int, scales: int) -> list[str]:
    """Everything in an order that is the same in every run."""
    names = ["reload"] * reloads + ["scale"] * scales
    random.Random(SEED).shuffle(names)
    return [*names[: len(names) // 2], "upgrade", *names[len(names) // 2 :]]
