"""Logs that go to the daemons of the system: the real rsyslogd and systemd-journald, started here.

Their sockets have fixed places, so the tests run only where nobody listens there yet.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serving import DEADLINE_S, Milepost, until

SYSLOG = Path("/dev/log")
JOURNAL = Path("/run/systemd/journal")
JOURNALD = Path("/lib/systemd/systemd-journald")
RSYSLOG_CONF = """
module(load="imuxsock" SysSock.UseSpecialParser="off")
template(name="t" type="string" string="%PRI% %APP-NAME% %PROCID% %MSGID% |%msg%\\n")
*.* action(type="omfile" file="{out}" template="t")
"""


class Rsyslog:
    """A syslog daemon that writes what it is told into `out`."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "syslog.out"
        self.conf = folder / "rsyslog.conf"
        self.conf.write_text(RSYSLOG_CONF.format(out=self.out))
        self.pid_file = folder / "rsyslog.pid"
        self.start()

    def start(self) -> None:
        """Listens."""
        command = ["rsyslogd", "-n", "-f", str(self.conf), "-i", str(self.pid_file)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert until(SYSLOG.exists)

    def stop(self) -> None:
        """Writes everything and ends."""
        self.process.terminate()
        self.process.wait(DEADLINE_S)
        SYSLOG.unlink(missing_ok=True)

    def lines(self, kind: str) -> list[str]:
        """Messages of a kind, with what is before them."""
        text = self.out.read_text() if self.out.exists() else ""
        return [line for line in text.splitlines() if f" {kind} |" in line]


@pytest.fixture
def rsyslog(tmp_path: Path) -> Iterator[Rsyslog]:
    """The daemon, if it can be had here."""
    if os.geteuid() != 0 or not shutil.which("rsyslogd") or SYSLOG.exists():
        pytest.skip("needs root, rsyslogd, and nobody at /dev/log")
    daemon = Rsyslog(tmp_path)
    yield daemon
    daemon.stop()


@pytest.fixture
def journal() -> Iterator[Callable[[], list[dict[str, str]]]]:
    """Our entries in the journal of a daemon of our own."""
    if os.geteuid() != 0 or not JOURNALD.exists() or JOURNAL.exists():
        pytest.skip("needs root, systemd-journald, and no journal here")
    kept = Path("/run/log/journal")
    was_there = kept.exists()
    JOURNAL.mkdir(parents=True)
    daemon = subprocess.Popen([str(JOURNALD)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def entries() -> list[dict[str, str]]:
        command = ["journalctl", "-t", "milepost", "-o", "json", "--no-pager"]
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        return [json.loads(line) for line in found.splitlines()]

    assert until((JOURNAL / "socket").exists)
    yield entries
    daemon.terminate()
    daemon.wait(DEADLINE_S)
    shutil.rmtree(JOURNAL)
    if not was_there:
        shutil.rmtree(kept, ignore_errors=True)


def test_syslog_has_every_line_through_a_restart(serve: Callable[..., Milepost], rsyslog: Rsyslog) -> None:
    logs = ("--access-log", "syslog:local0", "--error-log", "syslog:daemon", "--log-flush", "10ms")
    server = serve("zoo:app", *logs, log=None)
    with server.connect() as client:
        pid = server.serving_pid
        for n in range(100):
            client.ask("GET", f"/hello?n={n}")
        client.ask("GET", "/raises")
        assert until(lambda: len(rsyslog.lines("access")) == 101)
        rsyslog.stop()
        for n in range(100, 200):
            client.ask("GET", f"/hello?n={n}")
        rsyslog.start()
        assert until(lambda: len(rsyslog.lines("access")) == 201)
    assert server.stop() == 0
    lines = rsyslog.lines("access")
    # local0 and informational: 16 * 8 + 6.
    assert all(line.startswith(f"134 milepost {pid} access |") for line in lines)
    asked = re.findall(r"\?n=(\d+)", "\n".join(lines))
    assert asked == [str(n) for n in range(200)]
    errors = rsyslog.lines("error")
    # daemon, with the severity of each line: what was told of the restart is a warning in part.
    assert all(line.startswith(("27 ", "28 ")) for line in errors)
    assert next(line for line in errors if "Traceback" in line).startswith("27 ")


def test_the_journal_keeps_a_traceback_in_one_entry(
    serve: Callable[..., Milepost], journal: Callable[[], list[dict[str, str]]]
) -> None:
    server = serve("zoo:app", "--access-log", "journald", "--error-log", "journald", log=None)
    pid = str(server.serving_pid)
    with server.connect() as client:
        client.ask("GET", "/hello")
        client.ask("GET", "/raises")
    assert server.stop() == 0

    def of_the_server() -> list[dict[str, str]]:
        return [entry for entry in journal() if entry["_PID"] == pid]

    # What was sent to the daemon is in its journal a little later.
    assert until(lambda: len(of_the_server()) >= 3)
    ours = of_the_server()
    errors = [entry for entry in ours if entry["MILEPOST_LOG"] == "error"]
    access = [entry for entry in ours if entry["MILEPOST_LOG"] == "access"]
    assert len(errors) == 1 and len(access) == 2
    assert errors[0]["PRIORITY"] == "3" and access[0]["PRIORITY"] == "6"
    assert "Traceback" in errors[0]["MESSAGE"] and "\n" in errors[0]["MESSAGE"].strip()
