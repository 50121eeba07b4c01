"""`milepost.serve` in a program, and `python -m milepost`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from serving import COMMAND, environment, until
from supervising import Supervised, write_app

PYTHON = [sys.executable]
PROGRAM = """
import milepost, os, signal, sys

before = open("before", "a").write("%d\\n" % os.getpid())
signal.signal(signal.SIGHUP, signal.SIG_IGN)
interrupt = signal.getsignal(signal.SIGINT)
if __name__ == "__main__":
    code = milepost.serve("app:app", {settings})
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is interrupt
    print("served", code)
    sys.exit(code)
"""


class Program(Supervised):
    """A program that serves; it gets no arguments."""

    def __init__(self, folder: Path, settings: str, *interpreter: str) -> None:
        place = f"control={str(folder / 'control')!r}, bind='127.0.0.1:0', "
        (folder / "program.py").write_text(PROGRAM.format(settings=place + settings))
        # What the fixture would append are arguments that the program does not read.
        command = [*PYTHON, *interpreter, "program.py"]
        super().__init__(folder, command=command, bind=None, log=None)


def test_a_program_serves_with_settings_as_keyword_arguments(tmp_path: Path) -> None:
    write_app(tmp_path)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("a file\n")
    settings = (
        "processes=2, threads=3, queue_timeout=2.5, static={'/files': 'files'}, access_log=['log'], pid=None"
    )
    with Program(tmp_path, settings, "-X", "utf8") as server:
        assert len(server.settled(2)) == 2
        assert server.ask("/files/a.txt").text == "a file\n"
        assert server.eval("__import__('sys').flags.utf8_mode") == "1"
        argv = server.eval("__import__('sys').orig_argv")
        assert "'-m', 'milepost', 'serve', 'app:app'" in argv and "--threads=3" in argv
        server.done("reload")
        server.settled(2)
        assert server.stop() == 0
        assert server.stdout == "served 0\n"
    # The processes that serve are no copies of the program.
    assert len((tmp_path / "before").read_text().splitlines()) == 1
    assert len((tmp_path / "log").read_text().splitlines()) == 3


def test_ctrl_c_ends_the_call_and_not_the_program(tmp_path: Path) -> None:
    write_app(tmp_path)
    with Program(tmp_path, "") as server:
        server.signal(signal.SIGINT)
        assert server.wait() == 0
        assert server.stdout == "served 0\n"


def called(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """A program that calls milepost, to its end."""
    return subprocess.run(
        [*PYTHON, "-c", "import milepost\n" + text],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_all_faults_of_the_settings_are_one_exception(tmp_path: Path) -> None:
    write_app(tmp_path)
    text = """
try:
    milepost.serve("app:app", thraeds=3, backlog=-1, redirect=[{"from": "/a"}], nodelay="maybe", harakiri=30)
except milepost.SettingsError as error:
    print(error)
    assert isinstance(error, ValueError)
"""
    done = called(tmp_path, text)
    assert (done.returncode, done.stderr) == (0, ""), done
    parts = ["`thraeds`: unknown", "did you mean `threads`?", "`redirect`: a setting of several parts"]
    parts += ["`--backlog`: expected a count", "`--nodelay`: expected `true` or `false`", "`request_timeout`"]
    for part in parts:
        assert part in done.stdout, (part, done.stdout)


#: What is called, the exit code, and what is said.
CALLS = [
    ("import sys; sys.exit(milepost.serve('nothing:app', bind='127.0.0.1:0'))", 2, "no module `nothing`"),
    ("milepost.serve('app:app', bind={1})", 1, "found an object of type `set`"),
    ("milepost.serve('app:app', bind=[object()])", 1, "found an object of type `object`"),
    ("import threading as t; x = t.Thread(target=milepost.serve, args=['app:app']); x.start(); x.join()",
     0, "must be called on the main thread"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code", "said"), CALLS)
def test_a_call_that_cannot_serve_says_why(tmp_path: Path, text: str, code: int, said: str) -> None:
    write_app(tmp_path)
    done = called(tmp_path, text)
    assert (done.returncode, done.stdout) == (code, ""), done
    assert said in done.stderr


def test_an_application_that_serves_itself_when_it_is_imported_is_told(tmp_path: Path) -> None:
    write_app(tmp_path, before="import milepost\nmilepost.serve('app:app', bind='127.0.0.1:0')")
    done = called(tmp_path, "import sys; sys.exit(milepost.serve('app:app', bind='127.0.0.1:0'))")
    assert done.returncode == 2
    assert '`if __name__ == "__main__":`' in done.stderr


def test_the_module_is_the_command(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    server = supervise(command=[*PYTHON, "-m", "milepost"])
    assert server.answers()[0] == "one"
    assert "milepost" in server.eval("__import__('sys').argv")
    versions = [[*PYTHON, "-m", "milepost"], [str(COMMAND)]]
    said = {subprocess.check_output([*words, "version"], text=True, cwd=tmp_path) for words in versions}
    assert len(said) == 1


def test_an_upgrade_keeps_the_process_of_the_program(tmp_path: Path) -> None:
    write_app(tmp_path)
    with Program(tmp_path, "") as server:
        (before,) = server.settled(1)
        os.kill(server.pid, signal.SIGUSR2)
        assert until(lambda: before not in server.pids() and len(server.pids()) == 1), server.errors
        assert server.answers()[0] == "one"
        assert server.stop() == 0
