"""One server of an experiment while it runs: its folder, its processes, what is done to it, its facts.

Takes a `Server`, gives a context in which it answers. Must not know what is measured.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lab import process
from lab.experiments import spec
from lab.experiments.spec import Action, Experiment, Server
from lab.toolbox import NGINX, Toolbox

PREPARING_S_MAX = 60
ASKING_S_MAX = 20
SERVER = "server"


@dataclass
class Session:
    """A running server; `words` are replaced in its texts."""

    server: Server
    words: dict[str, str]
    environ: dict[str, str]
    folder: Path
    port: int
    core: int
    children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        """Of its first process."""
        return self.children[SERVER].pid

    def argv(self, command: list[str]) -> list[str]:
        """A command with its words replaced."""
        return [self.filled(word) for word in command]

    def filled(self, text: str) -> str:
        """A text with the words of the server and then those of its place replaced."""
        return str(spec.replaced(spec.replaced(text, self.server.words), self.words))

    def run(self, command: list[str], seconds_max: int) -> str:
        """What a command prints. Raises NotReady."""
        argv = ["taskset", "-c", str(self.core), *self.argv(command)]
        environ = {**os.environ, **self.environ}
        try:
            done = subprocess.run(
                argv,
                capture_output=True,
                text=True,
                timeout=seconds_max,
                cwd=self.folder,
                env=environ,
                check=False,
            )
        except subprocess.TimeoutExpired as cause:
            raise process.NotReady(f"`{shlex.join(argv[3:])}` took more than {seconds_max} s") from cause
        if done.returncode != 0:
            words = (done.stderr or done.stdout).strip()[-300:]
            raise process.NotReady(f"`{shlex.join(argv[3:])}` gave {done.returncode}: {words}")
        return done.stdout

    def facts(self) -> dict[str, float]:
        """All facts. Raises NotReady."""
        found: dict[str, float] = {}
        for fact in self.server.facts:
            text = self.run(fact.command, ASKING_S_MAX)
            for line in text.splitlines():
                *keys, number = line.split()
                name = ".".join([part for part in (fact.name, *keys) if part])
                found[name] = float(number)
        return found


@contextlib.contextmanager
def running(server: Server, experiment: Experiment, box: Toolbox, core: int) -> Iterator[Session]:
    """The server, ready, and ended with the block. Raises NotReady."""
    folder = Path(tempfile.mkdtemp(prefix="milepost-lab-"))
    # Servers that give up root must read it.
    folder.chmod(0o755)
    port = process.free_port()
    words = {
        "port": str(port),
        "folder": str(folder),
        "milepost": str(box.milepost),
        "python": box.command("python"),
    }
    environ = {key: str(spec.replaced(value, words)) for key, value in server.env.items()}
    session = Session(server, words, environ, folder, port, core)
    try:
        with contextlib.ExitStack() as stack:
            _lay_out(session, experiment)
            for command in server.prepare:
                session.run(command, PREPARING_S_MAX)
            for beside in server.processes:
                _start(session, stack, beside.name, beside.start)
            command_of = _start(session, stack, SERVER, server.start)
            process.wait_ready(session.children[SERVER], command_of, port, session.filled(server.ready))
            yield session
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def missing(server: Server, box: Toolbox) -> str | None:
    """What the server needs and is not here."""
    for need in server.needs:
        kind, _, name = need.rpartition(":")
        if kind == "python":
            probe = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
            if subprocess.run([box.command("python"), "-c", probe], check=False).returncode != 0:
                return f"the Python module `{name}` is not installed"
        elif kind == "library":
            environ = {**os.environ, "LD_PRELOAD": name}
            done = subprocess.run(["true"], env=environ, capture_output=True, check=False)
            if done.returncode != 0 or done.stderr:
                return f"`{name}` is not installed"
        elif not shutil.which(name, path=_path()):
            return f"`{name}` is not installed"
    return None


@contextlib.contextmanager
def acting(session: Session) -> Iterator[dict[str, float]]:
    """Performs the actions of the server while the block runs; gives the facts about them."""
    facts = {"actions_run": 0.0, "actions_failed": 0.0} if session.server.actions else {}
    is_over = threading.Event()
    began_s = time.monotonic()
    threads = [
        threading.Thread(target=_perform, args=(session, action, began_s, is_over, facts))
        for action in session.server.actions
    ]
    for thread in threads:
        thread.start()
    try:
        yield facts
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def _perform(
    session: Session, action: Action, began_s: float, is_over: threading.Event, facts: dict[str, float]
) -> None:
    for turn in range(action.times):
        due_s = began_s + spec.span_s(action.at) + turn * spec.span_s(action.every)
        if is_over.wait(max(0.0, due_s - time.monotonic())):
            return
        try:
            if action.run:
                session.run(action.run, PREPARING_S_MAX)
            else:
                os.kill(session.children[action.to].pid, signal.Signals[f"SIG{action.signal}"])
            facts["actions_run"] += 1
        except (process.NotReady, ProcessLookupError):
            facts["actions_failed"] += 1


def _lay_out(session: Session, experiment: Experiment) -> None:
    for file in (*experiment.files, *session.server.files):
        path = session.folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        content = file.content()
        path.write_text(content if file.fill else session.filled(content))


def _start(session: Session, stack: contextlib.ExitStack, name: str, start: list[str]) -> process.Command:
    argv = session.argv(start)
    argv[0] = shutil.which(argv[0], path=_path()) or argv[0]
    output = session.folder / f"{name}.log"
    environ = {**session.environ, "PATH": _path()}
    command = process.Command(argv, output, session.folder, environ)
    session.children[name] = stack.enter_context(process.started(command, session.core))
    return command


def _path() -> str:
    """nginx and httpd are not always on an ordinary user's PATH."""
    return f"{os.environ.get('PATH', '')}:{Path(NGINX).parent}"
