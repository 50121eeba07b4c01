"""Examples that need a server from elsewhere: Redis and PostgreSQL, each started here on a port of its own.

Run by `make conformance`; tools/conformance.sh installs what they need.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import glob
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving import DEADLINE_S, environment, free_port, until
from test_examples import served, told

pytestmark = pytest.mark.conformance


@contextlib.contextmanager
def running(port: int, words: list[str], **options: object) -> Iterator[None]:
    """A server of others, while it listens."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)  # type: ignore[call-overload]

    def listens() -> bool:
        assert process.poll() is None, words
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        assert until(listens), words
        yield
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    port = free_port()
    words = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    with running(port, words):
        yield f"redis://127.0.0.1:{port}"


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[str]:
    """A cluster in a folder of its own; PostgreSQL refuses to run as root."""
    newest = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
    user = pwd.getpwnam("postgres") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    folder = Path("/tmp") / f"milepost-postgres-{os.getpid()}"
    folder.mkdir(mode=0o700)
    os.chown(folder, user.pw_uid, user.pw_gid)
    of_user = {"user": user.pw_uid, "group": user.pw_gid, "cwd": folder}
    port = free_port()
    try:
        initdb = [f"{newest}/initdb", "-D", str(folder / "data"), "-A", "trust", "-U", "shop", "--no-sync"]
        subprocess.run(initdb, check=True, capture_output=True, **of_user)  # type: ignore[call-overload]
        words = [f"{newest}/postgres", "-D", str(folder / "data"), "-p", str(port), "-k", str(folder)]
        with running(port, [*words, "-c", "fsync=off"], **of_user):
            yield f"postgresql+psycopg://shop@127.0.0.1:{port}/postgres"
    finally:
        shutil.rmtree(folder)


def test_rq_runs_jobs_beside_the_server(tmp_path: Path, redis: str) -> None:
    env = environment(REDIS_URL=redis)
    rq = [str(Path(sys.executable).parent / "rq"), "worker", "--url", redis]
    with served("rq", tmp_path, REDIS_URL=redis) as server:
        job = json.loads(told(server, "/pages", b'{"title": "Solaris"}', "Content-Type: application/json"))[
            "id"
        ]
        assert json.loads(told(server, f"/pages/{job}"))["status"] == "queued"
        worker = subprocess.Popen(
            [sys.executable, *rq] if not os.access(rq[0], os.X_OK) else rq, cwd=tmp_path / "rq", env=env
        )
        try:
            assert until(lambda: json.loads(told(server, f"/pages/{job}"))["status"] == "finished")
            assert json.loads(told(server, f"/pages/{job}"))["page"] == "<h1>Solaris</h1>"
        finally:
            worker.terminate()
            worker.wait(DEADLINE_S)


def test_sqlalchemy_shares_no_connection_between_processes(tmp_path: Path, postgres: str) -> None:
    control = str(tmp_path / "control")
    with served("sqlalchemy", tmp_path, "--control", control, DATABASE_URL=postgres) as server:
        with concurrent.futures.ThreadPoolExecutor(12) as clients:
            visits = list(clients.map(lambda _: json.loads(told(server, "/visits", b"")), range(300)))
        assert json.loads(told(server, "/visits")) == {"visits": 300}
        backends: dict[int, set[int]] = {}
        for visit in visits:
            backends.setdefault(visit["backend"], set()).add(visit["process"])
        assert len({visit["process"] for visit in visits}) == 3
        assert all(len(processes) == 1 for processes in backends.values())
        assert len(backends) <= 12
