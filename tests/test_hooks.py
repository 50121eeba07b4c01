"""`[hooks]`: which function is called in which process at which moment, and what follows from a fault."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from raw import request
from serving import run, until
from supervising import UNTIL_GO, Supervised, write_app

NOTE = "open('events', 'a').write('{} %d\\n' % os.getpid())"
MODULE = "import os\n" + "".join(
    f"def {name}():\n    {NOTE.format(name)}\n"
    for name in ("post_fork", "worker_ready", "worker_exit", "on_reload")
)
ALL = "[hooks]\n" + "".join(
    f'{name} = "hooks:{name}"\n' for name in ("post_fork", "worker_ready", "worker_exit", "on_reload")
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An application that notes its import and its requests, and a module of hooks."""
    (tmp_path / "hooks.py").write_text(MODULE)
    write_app(tmp_path, before=NOTE.format("import"))
    return tmp_path


def events(folder: Path, pid: int | None = None) -> list[str]:
    """What has happened, in one process or in all."""
    lines = [line.split() for line in (folder / "events").read_text().splitlines()]
    return [name for name, by in lines if pid in (None, int(by))]


def test_each_process_calls_its_hooks_in_their_order(
    supervise: Callable[..., Supervised], folder: Path
) -> None:
    server = supervise("--processes", "2", toml=ALL, log=None)
    pids = server.settled(2)
    server.done("stop")
    assert server.wait() == 0
    for pid in pids:
        assert events(folder, pid) == ["post_fork", "import", "worker_ready", "worker_exit"]
    assert len(events(folder)) == 8


def test_with_preload_the_fork_comes_after_the_import(
    supervise: Callable[..., Supervised], folder: Path
) -> None:
    server = supervise("--processes", "2", "--preload", toml=ALL, log=None)
    pids = server.settled(2)
    server.done("stop")
    assert server.wait() == 0
    for pid in pids:
        assert events(folder, pid) == ["post_fork", "worker_ready", "worker_exit"]
    assert events(folder).count("import") == 1 and len(events(folder)) == 7


@pytest.mark.parametrize("options", [[], ["--preload"]])
def test_a_reload_is_noted_once_by_the_new_side(
    supervise: Callable[..., Supervised], folder: Path, options: list[str]
) -> None:
    server = supervise("--processes", "2", *options, toml=ALL, log=None)
    server.settled(2)
    assert "on_reload" not in events(folder)
    for count in (1, 2):
        server.done("reload")
        assert events(folder).count("on_reload") == count
    # A process that takes the place of a killed one is no reload.
    victim = min(server.settled(2))
    os.kill(victim, signal.SIGKILL)
    assert until(lambda: victim not in server.pids() and len(server.pids()) == 2)
    assert events(folder).count("on_reload") == 2


def test_a_fault_of_on_reload_keeps_the_old_processes(
    supervise: Callable[..., Supervised], folder: Path
) -> None:
    server = supervise("--processes", "2", toml=ALL, log=None)
    pids = server.settled(2)
    (folder / "hooks.py").write_text(MODULE + "def on_reload(): raise RuntimeError('old schema')\n")
    told = server.refused("reload")
    assert "hooks.on_reload`: `hooks:on_reload`: the hook failed: RuntimeError: old schema" in told
    assert server.settled(2) == pids


def test_several_functions_of_a_hook_run_in_their_order(
    supervise: Callable[..., Supervised], folder: Path
) -> None:
    names = '[hooks]\npost_fork = ["hooks.worker_ready", "hooks:post_fork"]\n'
    pid = supervise(toml=names, log=None).settled(1).pop()
    assert events(folder, pid) == ["worker_ready", "post_fork", "import"]


def test_a_flag_names_a_hook_too(supervise: Callable[..., Supervised], folder: Path) -> None:
    pid = supervise("--hook", "worker_ready=hooks:worker_ready", log=None).settled(1).pop()
    assert events(folder, pid) == ["import", "worker_ready"]


def test_the_last_hook_comes_after_the_last_request(
    supervise: Callable[..., Supervised], folder: Path
) -> None:
    server = supervise(toml=ALL, log=None)
    (pid,) = server.settled(1)
    with server.connect() as client:
        client.send(request("GET", f"{UNTIL_GO}{quote(' or ' + NOTE.format('request'), safe='')}"))
        server.signal(signal.SIGTERM)
        assert until(lambda: server.processes(None)[0]["state"] == "draining")
        assert "worker_exit" not in events(folder)
        with server.go():
            assert client.reply().status == 200
    assert server.wait() == 0
    assert events(folder, pid)[-2:] == ["request", "worker_exit"]


def test_a_recycled_process_and_one_with_a_stuck_request_call_the_last_hook(
    supervise: Callable[..., Supervised], folder: Path
) -> None:
    server = supervise("--process-requests-max", "3", "--drain-timeout", "1s", toml=ALL, log=None)
    (first,) = server.settled(1)
    for _ in range(4):
        server.ask()
    assert until(lambda: "worker_exit" in events(folder, first)), server.errors
    client, gate, second = server.held()
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    assert events(folder, second)[-1] == "worker_exit"
    os.close(gate)
    client.sock.close()


def test_a_hook_that_does_not_end_is_left(supervise: Callable[..., Supervised], folder: Path) -> None:
    (folder / "hooks.py").write_text("import time\ndef worker_exit():\n    time.sleep(1000)\n")
    server = supervise("--drain-timeout", "1s", toml='hooks = "worker_exit=hooks:worker_exit"', log=None)
    began = time.monotonic()
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    assert time.monotonic() - began < 100
    assert "`hooks.worker_exit`: still running at the end of `drain_timeout`" in server.errors


def test_a_fault_of_the_last_hook_is_told_and_ends_nothing_else(
    supervise: Callable[..., Supervised], folder: Path
) -> None:
    (folder / "hooks.py").write_text("def worker_exit(): raise ValueError('no gateway')\n")
    server = supervise(toml='hooks = "worker_exit=hooks:worker_exit"', log=None)
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    assert "Traceback" in server.errors
    assert "milepost: `hooks.worker_exit`: `hooks:worker_exit`: the hook failed: ValueError: no gateway" in (
        server.errors
    )


#: A hook, what the module of hooks holds, what is said, and what is said to do. Three with `preload` as well.
FAULTS = [
    ("post_fork=hooks:f", "def f(): 1/0", "the hook failed: ZeroDivisionError: division by zero", ""),
    ("worker_ready=hooks:f", "def f(): raise SystemExit(3)", "the hook failed: SystemExit: 3", ""),
    ("worker_exit=hooks:fork", "def fork_all(): pass", "has no function `fork`", "hooks:fork_all"),
    ("worker_exit=nohooks:f", "", "no module `nohooks` in", "holds `app`"),
    ("post_fork=hooks:f", "def f(server, worker): pass", "without arguments", "hooks take no arguments"),
    ("post_fork=hooks:f", "async def f(): pass", "an async function", "asyncio.run"),
    ("post_fork=hooks:f", "f = 3", "type `int` is not callable", ""),
    ("post_fork=hooks:f", "import nothing_here", "ModuleNotFoundError", "not installed"),
    ("post_frok=hooks:f", "", "expected HOOK=MODULE:FUNCTION", "did you mean `post_fork`?"),
]


@pytest.mark.parametrize(
    ("hook", "module", "cause", "hint", "options"),
    [(*fault, ()) for fault in FAULTS] + [(*fault, ("--preload",)) for fault in FAULTS[:3]],
)
def test_a_fault_is_one_message_and_nothing_is_served(
    folder: Path, hook: str, module: str, cause: str, hint: str, options: tuple[str, ...]
) -> None:
    (folder / "hooks.py").write_text(module + "\n")
    done = run(folder, "serve", "app:app", "--hook", hook, "--bind", "127.0.0.1:0", *options)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert done.stderr.count("milepost: ") == 1 and cause in done.stderr, done.stderr
    assert not hint or hint in done.stderr.partition("hint: ")[2], done.stderr
    assert ("Traceback" in done.stderr) is ("failed: " in done.stderr)


def test_check_imports_the_hooks_and_calls_none(folder: Path) -> None:
    (folder / "hooks.py").write_text("def f(): 1/0\n")
    checked = run(folder, "check", "app:app", "--hook", "post_fork=hooks:f")
    assert checked.returncode == 0, checked
    checked = run(folder, "check", "app:app", "--hook", "post_fork=hooks:g")
    assert checked.returncode == 1 and "has no function `g`" in checked.stderr
