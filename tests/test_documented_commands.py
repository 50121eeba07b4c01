"""The commands of the first pages that are read, run as they stand there: in order, in one empty folder.

Takes the fenced blocks `sh` and `console` of a page (of `console` the lines behind `$ `), and files from the
blocks behind a line that ends with their name, as "`app.py`:". A command that serves stays in the background
until the next one serves or the page ends; all others must end with 0 within their time. Port 8000 is
replaced by a free one. What needs more than an installed wheel is passed over: programs of ELSEWHERE, and a
block behind a comment `<!-- not run: REASON -->`.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from raw import Client, request
from serving import DEADLINE_S, environment, free_port, until

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", "docs/guide/getting-started.md"]
#: They build, install or change the machine; what they would install is there.
ELSEWHERE = {".", "apt-get", "cargo", "docker", "git", "make", "nginx", "pip", "source", "sudo", "systemctl"}
#: A measurement may be answered with no (1) where the machine has too much else to do.
MEASURING = {"bench", "whatif"}
PORT = 8000


class Block(NamedTuple):
    """A fenced block."""

    language: str
    text: str
    before: str
    """The last line with text before it."""
    line: int


def blocks(page: str) -> Iterator[Block]:
    """All of a page, in their order."""
    before, opened, inside = "", None, []
    for number, line in enumerate(page.splitlines(), 1):
        if opened is None and line.startswith("```"):
            opened, inside = number, []
            language = line[3:].strip()
        elif opened is not None and line.rstrip() == "```":
            yield Block(language, "\n".join(inside) + "\n", before, opened)
            before, opened = "", None
        elif opened is not None:
            inside.append(line)
        elif line.strip():
            before = line.strip()
    assert opened is None, f"line {opened}: a block without an end"


def commands(block: Block) -> list[str]:
    """Those of a block; lines that end with a backslash go on."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [line for line in lines if shlex.split(line, comments=True)]


class Session:
    """What a reader has: a folder, a shell, and at most one server."""

    def __init__(self, folder: Path, output: Path) -> None:
        self.folder, self.output = folder, output
        self.port = free_port()
        self.served = 0
        self._server: subprocess.Popen[bytes] | None = None
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        self._environment = environment(PATH=path, MILEPOST_BIND=f"127.0.0.1:{self.port}")

    def write(self, name: str, text: str) -> None:
        """A file that the page shows."""
        path = self.folder / name
        assert path.resolve().is_relative_to(self.folder.resolve()), name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(f":{PORT}", f":{self.port}"))

    def do(self, command: str) -> None:
        """One command."""
        command = command.replace(f":{PORT}", f":{self.port}")
        words = shlex.split(command, comments=True)
        if words[0] in ELSEWHERE or words[1:3] == ["-m", "venv"]:
            return
        if "serve" in words[1:4] and "--help" not in words:
            self._serve([word for word in words if word != "&"])
            return
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE_S,
        )
        fine = {0, 1} if words[0] == "milepost" and words[1] in MEASURING else {0}
        assert done.returncode in fine, (command, done)

    def _serve(self, words: list[str]) -> None:
        self.stop()
        with self.output.open("wb") as output:
            self._server = subprocess.Popen(
                words,
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        server = self._server
        assert until(lambda: b"listening on" in self.output.read_bytes() or server.poll() is not None)
        assert server.poll() is None, (words, self.output.read_text())
        self.served += 1
        with Client(socket.create_connection(("127.0.0.1", self.port), DEADLINE_S), lambda: None) as client:
            client.send(request("GET", "/"))
            assert client.reply().status < 500, self.output.read_text()

    def stop(self) -> None:
        """Ends the server, if there is one."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.send_signal(signal.SIGTERM)
        try:
            assert server.wait(DEADLINE_S) == 0, self.output.read_text()
        finally:
            server.kill()


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work_in_an_empty_folder(page: str, tmp_path: Path) -> None:
    pytest.importorskip("flask")
    pytest.importorskip("django")
    folder = tmp_path / "empty"
    folder.mkdir()
    session = Session(folder, tmp_path / "output")
    try:
        for block in blocks((ROOT / page).read_text()):
            named = re.search(r"`([\w./-]+\.\w+)`:$", block.before)
            if block.before.startswith("<!-- not run:"):
                continue
            if block.language in ("sh", "console"):
                for command in commands(block):
                    session.do(command)
            elif named:
                session.write(named[1], block.text)
    finally:
        session.stop()
    assert session.served >= 1, "nothing was served"


def test_no_command_is_hidden_from_the_others() -> None:
    """An indented block is no fenced one: its commands would not be run."""
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
        assert not re.findall(r"^ {4}\S.*$", text, re.MULTILINE), page
