"""Machines for a test: network namespaces on one bridge, each with an address of its own.

Takes how many; gives commands that run in them. The first one is the front: its servers are asked over unix
sockets, which know no namespaces, so that the test itself stays where it is.
"""

from __future__ import annotations

import itertools
import os
import subprocess

import pytest

NUMBERS = itertools.count()
DELAY = "2ms"


class Machines:
    """Some machines. Use it as a context manager; skips the test where namespaces may not be made."""

    def __init__(self, count: int) -> None:
        # Names of namespaces are those of the whole host, names of interfaces have 15 bytes.
        prefix = f"mp{os.getpid() % 1_000_000}-{next(NUMBERS)}"
        self.names = [f"{prefix}-{number}" for number in range(count)]
        #: Whether packets take time, as on a network.
        self.has_delay = False

    def address(self, machine: int) -> str:
        """Its address on the network between them."""
        return f"10.213.0.{machine + 1}"

    def command(self, machine: int, *argv: str) -> tuple[str, ...]:
        """A command that runs there, as the same process."""
        return ("ip", "netns", "exec", self.names[machine], *argv)

    def unplug(self, machine: int) -> None:
        """From now on its packets get lost, and no side hears of it."""
        self._run(0, "ip", "link", "set", f"m{machine}", "down")

    def plug(self, machine: int) -> None:
        """They arrive again."""
        self._run(0, "ip", "link", "set", f"m{machine}", "up")

    def _run(self, machine: int, *argv: str) -> None:
        done = subprocess.run(self.command(machine, *argv), capture_output=True, text=True, check=False)
        assert done.returncode == 0, (argv, done.stderr)

    def __enter__(self) -> Machines:
        try:
            for name in self.names:
                made = subprocess.run(
                    ["ip", "netns", "add", name], capture_output=True, text=True, check=False
                )
                if made.returncode != 0:
                    pytest.skip(f"needs network namespaces: {made.stderr.strip()}")
        except FileNotFoundError:
            pytest.skip("needs network namespaces: no `ip` here")
        try:
            self._connect()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _connect(self) -> None:
        self._run(0, "ip", "link", "add", "bridge", "type", "bridge")
        self._run(0, "ip", "addr", "add", f"{self.address(0)}/24", "dev", "bridge")
        for link in ("lo", "bridge"):
            self._run(0, "ip", "link", "set", link, "up")
        for machine in range(1, len(self.names)):
            far = ("netns", self.names[machine])
            self._run(0, "ip", "link", "add", f"m{machine}", "type", "veth", "peer", "name", "eth0", *far)
            self._run(0, "ip", "link", "set", f"m{machine}", "master", "bridge", "up")
            self._run(machine, "ip", "addr", "add", f"{self.address(machine)}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                self._run(machine, "ip", "link", "set", link, "up")
        self.has_delay = all(self._delays(machine) for machine in range(1, len(self.names)))

    def _delays(self, machine: int) -> bool:
        argv = ("tc", "qdisc", "add", "dev", "eth0", "root", "netem", "delay", DELAY)
        return subprocess.run(self.command(machine, *argv), capture_output=True, check=False).returncode == 0

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
