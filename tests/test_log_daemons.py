"""Logs that daemons of the system read: the real rsyslogd and systemd-journald, started here.

The daemons' sockets have fixed places, so these tests run only where nobody listens there yet.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serving import COMMAND, DEADLINE_S, Milepost, until

SYSLOG = Path("/dev/log")
# What systemd says of a stream that it has connected with the journal.
STDERR_IS_JOURNAL = 'JOURNAL_STREAM=$(stat -L -c %d:%i /dev/fd/2) exec "$@"'
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


def through(script: str) -> tuple[str, ...]:
    """The command, started by a shell's script."""
    return ("sh", "-c", script, "sh", str(COMMAND))


def test_an_error_is_one_line_where_the_journal_reads(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", command=through(STDERR_IS_JOURNAL))
    with server.connect() as client:
        client.ask("GET", "/raises")
        client.ask("GET", "/hello")
    assert server.stop() == 0
    (line,) = [line for line in server.stderr if "/raises" in line]
    assert line.startswith("<3>GET /raises [id ") and r"Traceback (most recent call last):\n" in line
    assert not [line for line in server.stderr if line.startswith(("    ", "Traceback"))]


def test_an_error_has_its_lines_where_the_journal_is_another_stream(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", env={"JOURNAL_STREAM": "1:2"})
    with server.connect() as client:
        client.ask("GET", "/raises")
    assert server.stop() == 0
    assert next(line for line in server.stderr if "Traceback" in line).endswith("(most recent call last):\n")
