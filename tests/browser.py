"""Chromium without a window, driven through its debugging pipe: what a page loads, and when each part comes.

Takes a folder for the browser's profile; gives the timings that a page has of its parts (Resource Timing),
and pictures of it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

#: Puts two pipes in the places where the browser looks for them.
EXEC = """
import fcntl, os, sys
# Out of the way of the two places first.
commands, messages = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(commands, 3)
os.dup2(messages, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""

#: Whatever the page needs, in the order in which it was asked for.
PARTS = """
new Promise(done => {
  const told = () => setTimeout(() => done(JSON.stringify(
    [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")])));
  document.readyState === "complete" ? told() : addEventListener("load", told);
})
"""


class Browser:
    """One browser with one page."""

    def __init__(self, commands: int, messages: int) -> None:
        self._commands = open(commands, "wb", buffering=0)  # noqa: SIM115
        self._messages = open(messages, "rb")  # noqa: SIM115
        self._number = 0
        self._events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._ask("Page.enable")

    def _ask(self, method: str, **params: object) -> dict[str, Any]:
        self._number += 1
        command: dict[str, object] = {"id": self._number, "method": method, "params": params}
        if self._session:
            command["sessionId"] = self._session
        self._commands.write(json.dumps(command).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self._number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    def _message(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self._messages.read(1)) != b"\0":
            assert byte, "the browser has ended"
            text += byte
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self._events.append(message)
        return message

    def watch(self) -> None:
        """From now on `complaints` and `requests` have what there is."""
        for domain in ("Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    def complaints(self) -> list[dict[str, Any]]:
        """Errors and warnings of scripts, and of the browser about the page."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [event for event in self._events if event["method"] in kinds]

    def requests(self) -> set[str]:
        """The addresses that pages have asked for."""
        sent = [event for event in self._events if event["method"] == "Network.requestWillBeSent"]
        return {event["params"]["request"]["url"] for event in sent}

    def scheme(self, name: str) -> None:
        """Light or dark."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self._ask("Emulation.setEmulatedMedia", features=features)

    def accessible(self) -> set[tuple[str, str]]:
        """Role and name of all that the accessibility tree has."""
        nodes = self._ask("Accessibility.getFullAXTree")["nodes"]
        shown = [node for node in nodes if not node.get("ignored")]
        return {(node["role"]["value"], node.get("name", {}).get("value", "")) for node in shown}

    def parts(self, url: str) -> list[dict[str, Any]]:
        """Opens a page; gives the page and all that it needs, each with its timings in milliseconds."""
        found = self._ask("Page.navigate", url=url)
        assert "errorText" not in found, found
        # Until then, scripts run in the page of before.
        while self._message().get("method") != "Page.loadEventFired":
            pass
        said = self._ask("Runtime.evaluate", expression=PARTS, awaitPromise=True)
        parts: list[dict[str, Any]] = json.loads(said["result"]["value"])
        return parts

    def open(self, url: str) -> None:
        """Opens a page, and waits for its end."""
        self.parts(url)

    def result(self, expression: str) -> Any:
        """What a script gives, once its promise is kept; it must be JSON."""
        said = self._ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    def picture(self, width: int, height: int) -> bytes:
        """The page as a PNG."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._ask("Emulation.setDeviceMetricsOverride", **size)
        return base64.b64decode(self._ask("Page.captureScreenshot")["data"])

    def close(self) -> None:
        self._session = None
        self._ask("Browser.close")
        self._commands.close()
        self._messages.close()


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser that trusts every certificate; a test without one is skipped."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs chromium")
    words = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    words += ["--no-first-run", "--disable-extensions", "--disable-background-networking"]
    words += ["--ignore-certificate-errors", f"--user-data-dir={folder}", "--remote-debugging-pipe"]
    (their_commands, commands), (messages, their_messages) = os.pipe(), os.pipe()
    start = [sys.executable, "-c", EXEC, str(their_commands), str(their_messages), *words]
    log = folder / "log"
    folder.mkdir(exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            start, pass_fds=(their_commands, their_messages), stdout=output, stderr=output
        )
    os.close(their_commands)
    os.close(their_messages)
    try:
        page = Browser(commands, messages)
        yield page
        page.close()
        process.wait(30)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
