"""What the report shows; how is in `slow.paper`."""

from __future__ import annotations

import report
from report import Results
from slow.paper import Columns, Paper, table

from reload import scenes

COLUMNS: Columns = {
    "answered": ("answered", ",.0f", 1.0),
    "connections": ("connections", ",.0f", 1.0),
    "waiting_most": ("waited in the kernel", ",.0f", 1.0),
    "reloads": ("reloads", ".0f", 1.0),
    "scales": ("scales", ".0f", 1.0),
    "kills": ("kills", ".0f", 1.0),
    "upgrades": ("upgrades", ".0f", 1.0),
    "reload_s": ("one reload s", ".2f", 1.0),
    "scale_s": ("one scale s", ".2f", 1.0),
    "kill_s": ("whole again after a kill s", ".2f", 1.0),
    "lost": ("lost", ",.0f", 1.0),
    "lost_connect_refused": ("refused", ",.0f", 1.0),
    "lost_connect_reset": ("connect reset", ",.0f", 1.0),
    "lost_connect_timeout": ("connect timed out", ",.0f", 1.0),
    "lost_connect_other": ("connect failed", ",.0f", 1.0),
    "lost_stale": ("due on an ended connection", ",.0f", 1.0),
    "lost_reset": ("reset", ",.0f", 1.0),
    "lost_closed": ("closed", ",.0f", 1.0),
    "lost_short": ("reply cut", ",.0f", 1.0),
    "lost_timeout": ("timed out", ",.0f", 1.0),
    "lost_wrong": ("wrong reply", ",.0f", 1.0),
    "by_reload": ("lost by reloads", ",.0f", 1.0),
    "by_scale": ("by scales", ",.0f", 1.0),
    "by_upgrade": ("by the upgrade", ",.0f", 1.0),
    "by_kill": ("in killed processes", ",.0f", 1.0),
    "by_beyond_kill": ("elsewhere after kills", ",.0f", 1.0),
    "crowded": ("idle ones ended for want of room", ",.0f", 1.0),
    "ended_badly": ("ended badly after the reply", ",.0f", 1.0),
    "drivers": ("drivers", ".0f", 1.0),
    "accepted": ("accepted", ",.0f", 1.0),
    "unaccounted_connections": ("made, but not counted there", ",.0f", 1.0),
    "most_share": ("most, of the mean", ".3f", 1.0),
    "least_share": ("least, of the mean", ".3f", 1.0),
    "rounds": ("rounds", ".0f", 1.0),
    "worst_off": ("off an equal share", ".0f", 1.0),
    "handed_over": ("handed over", ",.0f", 1.0),
    "took_s": ("until the next reply s", ".3f", 1.0),
    "import_s": ("of it import s", ".3f", 1.0),
    "restart_s": ("without it s", ".3f", 1.0),
    "refused": ("refused connections", ".0f", 1.0),
    "rps": ("requests/s", ",.0f", 1.0),
    "cpu_us": ("processor µs a request", ".2f", 1.0),
    "server_cpu": ("server's core %", ".0f", 100.0),
    "p50_us": ("p50 ms", ".3f", 1e-3),
    "p99_us": ("p99 ms", ".3f", 1e-3),
    "errors": ("errors", ".0f", 1.0),
    "short_p99_us": ("p99 short-lived ms", ",.1f", 1e-3),
    "short_max_us": ("greatest ms", ",.1f", 1e-3),
    "keep_p99_us": ("p99 kept ms", ",.1f", 1e-3),
    "keep_max_us": ("greatest ms", ",.1f", 1e-3),
}
PAPER = Paper("Reloads, crashes and spread", COLUMNS)


def curves(results: Results) -> str:
    """The sweep as a table of clients by drivers: requests a second, and processor time of each."""
    head = ["clients"]
    for title in ("requests/s", "µs a request"):
        head += [f"{title}, {drivers} driver{'s' if drivers > 1 else ''}" for drivers in scenes.SWEEP_DRIVERS]
    lines = [head]
    for clients in scenes.SWEEP_CLIENTS:
        line = [str(clients)]
        for metric, form in (("rps", ",.0f"), ("cpu_us", ".2f")):
            for drivers in scenes.SWEEP_DRIVERS:
                values = results.values(scenes.sweep_name(drivers, clients), metric)
                line.append(f"{report.middle(values):{form}}" if values else "-")
        lines.append(line)
    return f"## The sweep, medians\n\n{table(lines)}\n"
