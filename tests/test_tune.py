"""`milepost tune`: what it recommends for applications that wait and that compute, and what it refuses."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving import COMMAND, DEADLINE_S, Milepost, environment, run, until

SLEEPS = """\
import time


def app(environ, start_response):
    if environ["REQUEST_METHOD"] != "GET":
        open("changed", "w").close()
    time.sleep(0.05)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"slept"]
"""

COMPUTES = """\
def app(environ, start_response):
    total = 0
    for number in range(400_000):
        total += number * number
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"computed"]
"""

ASGI = """\
import asyncio


async def app(scope, receive, send):
    if scope["type"] != "http":
        raise RuntimeError("no lifespan here")
    await asyncio.sleep(0.02)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"slept"})
"""

FAILS = """\
def app(environ, start_response):
    status = {"/": "500 Internal Server Error"}.get(environ["PATH_INFO"], "404 Not Found")
    start_response(status, [])
    return [b""]
"""


def tune(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end. It measures for longer than other commands take."""
    return subprocess.run(
        [COMMAND, "tune", *arguments],
        cwd=folder,
        env=environment(),
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
    )


def recommended(done: subprocess.CompletedProcess[str]) -> tuple[int, int]:
    """Processes and threads."""
    assert done.returncode == 0, done
    found = re.search(r"Recommended: (\d+) process(?:es)? with (\d+) thread", done.stdout)
    assert found, done.stdout
    return int(found[1]), int(found[2])


def nothing_left(folder: Path) -> None:
    """Neither its folder nor its server."""
    left = [path for path in Path("/tmp").glob("milepost-tune-*") if path.stat().st_uid == os.getuid()]
    alive = [path for path in left if Path(f"/proc/{path.name.rsplit('-', 1)[1]}").exists()]
    assert alive == left, f"folders of commands that are gone: {left}"
    assert not (folder / "changed").exists(), "only GETs are sent"


@pytest.mark.long
def test_requests_that_wait_get_threads_and_those_that_compute_do_not(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    (tmp_path / "computes.py").write_text(COMPUTES)
    done = tune(tmp_path, "sleeps:app", "--rate", "200", "--seconds", "2")
    processes, threads = recommended(done)
    # 200 a second of 50 ms each keep ten threads at work in the mean.
    assert (processes, threads >= 10) == (1, True), done.stdout
    assert "Requests mostly wait for something else" in " ".join(done.stdout.split())
    expect = f'app = "sleeps:app"\nprocesses = {processes}\nthreads = {threads}\n'
    assert (tmp_path / "milepost.toml").read_text() == expect
    assert run(tmp_path, "check", "--config", "milepost.toml").returncode == 0

    done = tune(tmp_path, "computes:app", "--rate", "8", "--seconds", "2", "-o", "computes.toml")
    processes, threads = recommended(done)
    assert threads <= 4, done.stdout
    assert "The interpreter is the limit" in done.stdout
    assert f"threads = {threads}\n" in (tmp_path / "computes.toml").read_text()
    nothing_left(tmp_path)


@pytest.mark.long
def test_the_gets_of_a_log_and_the_settings_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    line = '10.0.0.1 - - [28/Nov/2026:07:53:58 +0000] "{} {} HTTP/1.1" 200 5 "-" "-"\n'
    log = [line.format("GET", "/books"), line.format("POST", "/books"), line.format("GET", "/?page=2")]
    (tmp_path / "access.log").write_text("".join(log))
    before = '# Ours.\napp = "sleeps:app"\nbind = [":1"]\nthreads = 4  # a guess\n'
    (tmp_path / "shop.toml").write_text(before)
    flags = ["--from-log", "access.log", "--rate", "40", "--seconds", "2", "--objective", "p95=1s"]
    done = tune(tmp_path, "shop.toml", *flags)
    processes, threads = recommended(done)
    assert done.stdout.startswith("GET /?page=2 /books at 40 requests a second"), done.stdout
    # A file that is there changes only when that is asked for.
    assert (tmp_path / "shop.toml").read_text() == before
    assert f"threads = {threads}\n" in done.stderr
    done = tune(tmp_path, "shop.toml", *flags, "--force")
    processes, threads = recommended(done)
    text = (tmp_path / "shop.toml").read_text()
    assert text.startswith('# Ours.\napp = "sleeps:app"\nbind = [":1"]\n'), text
    assert f"threads = {threads}  # a guess\n" in text
    assert text.endswith(f"processes = {processes}\n"), text
    nothing_left(tmp_path)


@pytest.mark.long
def test_an_objective_out_of_reach_is_the_answer_no(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    flags = ["--rate", "20", "--seconds", "2", "--objective", "p50=1ms"]
    done = tune(tmp_path, "sleeps:app", *flags)
    assert done.returncode == 1, done
    assert "Objective not met: at 20 requests a second, the shortest p50" in done.stdout


def test_an_event_loop_gets_processes_alone(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(ASGI)
    done = tune(tmp_path, "loop:app", "--rate", "50", "--seconds", "2")
    assert done.returncode == 0, done
    assert "threads" not in done.stdout.splitlines()[2], done.stdout
    assert "Each try had asgi_concurrency 100:1000, the default" in " ".join(done.stdout.split())
    written = (tmp_path / "milepost.toml").read_text()
    assert re.fullmatch(r'app = "loop:app"\nprocesses = \d\nasgi_concurrency = "100:1000"\n', written)


def test_says_what_is_wrong_with_the_application(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text(FAILS)
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    done = tune(tmp_path, "fails:app")
    assert (done.returncode, done.stdout) == (2, "")
    assert "`GET /` is answered with status 500" in done.stderr
    done = tune(tmp_path, "fails:app", "/a", "/b")
    assert "none of 2 paths has a right answer; the first: `GET /a`, status 404" in done.stderr
    done = tune(tmp_path, "broken:app")
    assert done.returncode == 2
    assert "`broken:app`: the server does not start" in done.stderr
    assert "nothing_of_this_name" in done.stderr
    done = tune(tmp_path, "none.toml")
    assert "`none.toml`: no such file" in done.stderr
    assert not (tmp_path / "milepost.toml").exists()
    nothing_left(tmp_path)


HANGS = """\
import time


def app(environ, start_response):
    open("asked", "w").close()
    time.sleep(600)
"""


def of_folder(folder: Path) -> list[int]:
    """Processes that run there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(process / "cwd") == str(folder):
                found.append(int(process.name))
    return found


@contextlib.contextmanager
def begun(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command, while it runs."""
    process = subprocess.Popen(
        [COMMAND, "tune", *arguments],
        cwd=folder,
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            yield process
        finally:
            # A test that has failed leaves none behind: the second one ends it at once.
            for _ in range(2):
                if process.poll() is None:
                    process.terminate()
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_it_at_once_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    with begun(tmp_path, "hangs:app") as process:
        assert until((tmp_path / "asked").exists)
        folder = Path(f"/tmp/milepost-tune-{process.pid}")
        # The command, a supervisor and a serving process.
        assert folder.exists() and len(of_folder(tmp_path)) == 3
        process.send_signal(number)
        assert process.stderr is not None
        assert any("a second Ctrl-C does so at once" in line for line in process.stderr)
        # The server waits for its request, and the command for the server.
        assert process.poll() is None and len(of_folder(tmp_path)) == 3
        process.send_signal(number)
        assert process.communicate(timeout=DEADLINE_S)[0] == ""
        assert process.returncode == 130
    assert not folder.exists()
    assert until(lambda: of_folder(tmp_path) == [])
    assert not (tmp_path / "milepost.toml").exists()


def test_the_first_signal_ends_the_server_in_order(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    with begun(tmp_path, "sleeps:app", "--seconds", "60") as process:
        log = Path(f"/tmp/milepost-tune-{process.pid}/access.log")
        assert until(lambda: log.exists() and log.read_text().count("\n") > 10)
        process.send_signal(signal.SIGINT)
        written, said = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, written) == (2, "")
        assert "tune: it was interrupted; nothing is written" in said
    assert of_folder(tmp_path) == [] and not log.parent.exists()


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["http://127.0.0.1:8000/"], "loads its own server and no other one"),
        (["--from-log", "posts.log"], "there is no GET"),
        (["--objective", "p98=1s"], "expected an objective as p99=200ms"),
        (["-o", "there.toml"], "`there.toml`: is there already; nothing was measured"),
    ],
)
def test_refuses_before_it_measures(tmp_path: Path, words: list[str], cause: str) -> None:
    (tmp_path / "posts.log").write_text('- - - [28/Nov/2026:07:53:58 +0000] "POST / HTTP/1.1" 200 5\n')
    (tmp_path / "there.toml").write_text("")
    done = tune(tmp_path, "shop:app", *words)
    assert done.returncode == 2
    assert cause in done.stderr, done.stderr


def test_never_touches_a_server_that_runs(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    with Milepost(tmp_path, "sleeps:app") as server:
        host, port = server.address
        (tmp_path / "shop.toml").write_text(f'app = "sleeps:app"\nbind = ["{host}:{port}"]\n')
        done = tune(tmp_path, "shop.toml", "--rate", "20", "--seconds", "1")
        assert done.returncode == 0, done
    assert server.lines == []


def test_has_no_address_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    done = subprocess.run(
        [COMMAND, "tune", "sleeps:app", "--rate", "20", "--seconds", "1"],
        cwd=tmp_path,
        # Addresses that it may not bind, and a number of threads that is not the one it tries.
        env=environment(MILEPOST_BIND="127.0.0.1:1", MILEPOST_THREADS="3", PORT="1"),
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )
    recommended(done)
