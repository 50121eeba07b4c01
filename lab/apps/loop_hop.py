"""How long a Python event loop takes from a write to its eventfd to what it is woken for, without a server.

Takes `loop_hop.py LOOP WHAT COUNT PAUSE_US`: LOOP is asyncio or uvloop; WHAT is `callback` (of a reader) or
`task` (the first step of a task that the callback makes). Prints the median in nanoseconds of so many, with a
pause before each.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import threading
import time


class Hops:
    """Another thread writes, the loop answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop, is_task: bool, count: int, pause_s: float) -> None:
        self.loop, self.is_task, self.count, self.pause_s = loop, is_task, count, pause_s
        self.there, self.back = os.eventfd(0, os.EFD_NONBLOCK), os.eventfd(0)
        self.began_ns = 0
        self.took_ns: list[int] = []

    def run(self) -> float:
        """The median."""
        self.loop.add_reader(self.there, self.woken)
        thread = threading.Thread(target=self.write)
        thread.start()
        self.loop.run_forever()
        thread.join()
        return statistics.median(self.took_ns)

    def write(self) -> None:
        for _ in range(self.count):
            time.sleep(self.pause_s)
            self.began_ns = time.perf_counter_ns()
            os.eventfd_write(self.there, 1)
            os.eventfd_read(self.back)

    def woken(self) -> None:
        os.eventfd_read(self.there)
        if self.is_task:
            # The loop keeps it until its only step, which is its end.
            self.loop.create_task(self.step())
        else:
            self.arrived()

    async def step(self) -> None:
        self.arrived()

    def arrived(self) -> None:
        self.took_ns.append(time.perf_counter_ns() - self.began_ns)
        if len(self.took_ns) == self.count:
            self.loop.stop()
        os.eventfd_write(self.back, 1)


def main() -> None:
    """Prints the median."""
    name, what, count, pause_us = sys.argv[1:]
    if name == "uvloop":
        import uvloop

        loop = uvloop.new_event_loop()
    else:
        loop = asyncio.new_event_loop()
    print(round(Hops(loop, what == "task", int(count), int(pause_us) / 1e6).run()))


if __name__ == "__main__":
    main()
