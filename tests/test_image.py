"""The image of deploy/Dockerfile, without an engine: its root file system made by mmdebstrap.

Takes user, folder, entry point, command and health check from the Dockerfile as they stand there. The base is
Debian with its own CPython instead of `python:3.13-slim`, and the package under test is copied into it. The
server runs as process 1 of namespaces of its own, on a root that cannot be written, as in compose.yaml.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import milepost
import pytest

from serving import until

pytestmark = pytest.mark.conformance

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
APP = """
import os
def app(environ, start_response):
    body = f"{os.getpid()} {os.getuid()}".encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
"""


def instructions() -> dict[str, str]:
    """The last instruction of each kind in the Dockerfile."""
    lines = [line.partition(" ") for line in (DEPLOY / "Dockerfile").read_text().splitlines()]
    return {word: rest for word, _, rest in lines if word.isupper()}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root file system, with the application and the package."""
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        pytest.skip("needs root and mmdebstrap: apt-get install mmdebstrap")
    here = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folder = tmp_path_factory.mktemp("image") / "root"
    made = subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={here}", "bookworm", str(folder)],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    folder.chmod(0o755)
    shop = folder / "srv/shop"
    shop.mkdir()
    (shop / "shop.py").write_text(APP)
    package = Path(milepost.__file__ or "").parent
    shutil.copytree(package, folder / "usr/lib/python3/dist-packages/milepost")
    command = folder / "usr/local/bin/milepost"
    command.write_text(
        f"#!/usr/bin/{here}\nimport sys\nfrom milepost.__main__ import main\nsys.exit(main())\n"
    )
    command.chmod(0o755)
    return folder


@pytest.fixture
def container(root: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The running server, and the words that enter its namespaces as its user."""
    said = instructions()
    folder, user = said["WORKDIR"], said["USER"]
    arguments = json.loads(said["ENTRYPOINT"]) + json.loads(said["CMD"])
    inside = (
        f"ip link set lo up; mount --bind {root} {root}; mount -o remount,ro,bind {root}; "
        f"mount -t tmpfs tmpfs {root}/tmp; mount -t proc proc {root}/proc; "
        f"exec setpriv --no-new-privs chroot --userspec={user}:{user} {root} "
        f'sh -c \'cd {folder}; exec "$@"\' sh "$@"'
    )
    namespaces = ["unshare", "--pid", "--mount", "--net", "--ipc", "--uts", "--fork", "--kill-child"]
    with (tmp_path / "said").open("w") as output:
        process = subprocess.Popen(
            [*namespaces, "sh", "-c", inside, "sh", *arguments], stdout=output, stderr=output, text=True
        )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    assert until(lambda: children.read_text().split())
    (first,) = children.read_text().split()
    enter = ["nsenter", "-t", first, "-p", "-n", "-m", "chroot", f"--userspec={user}:{user}", str(root)]
    assert until(lambda: "http://" in (tmp_path / "said").read_text())
    yield process, enter
    if process.poll() is None:
        os.kill(int(first), signal.SIGKILL)
        process.wait()


def test_the_image_serves_as_process_1_of_a_user_without_rights(
    container: tuple[subprocess.Popen[str], list[str]],
) -> None:
    process, enter = container
    said = instructions()
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/').read().decode())"
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    reply = subprocess.run([*enter, python, "-c", ask], capture_output=True, text=True)
    assert reply.stdout.split()[1:] == [said["USER"]], reply.stderr

    check = json.loads(said["HEALTHCHECK"].partition("CMD ")[2])
    healthy = subprocess.run([*enter, *check], capture_output=True, text=True)
    assert healthy.returncode == 0, healthy.stderr

    first = int(enter[2])
    os.kill(first, signal.SIGTERM)
    assert process.wait(60) == 0
    unhealthy = subprocess.run(["chroot", enter[-1], *check], capture_output=True, text=True)
    assert unhealthy.returncode != 0
