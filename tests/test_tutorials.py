"""The commands of popular tutorials, verbatim after the name of the program.

Each either serves, on a port that is free in the place of its own, or is refused with one line for each flag
and a corrected command line, which is good as it stands.
"""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from raw import Client, request
from serving import COMMAND, DEADLINE_S, environment, free_port, run, until

APP = """
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello"]
app = application
def create_app():
    return application
"""
MODULES = ["wsgi", "app", "main", "hello", "foobar", "myapp", "myproject/wsgi", "mysite/wsgi", "getting/wsgi"]

#: Where it is from, and what is behind the name of the program.
SERVED = [
    ("Flask documentation", "-w 4 'hello:create_app()'"),
    ("Flask documentation", "-w 4 -b 0.0.0.0 'hello:create_app()'"),
    ("Django documentation", "myproject.wsgi"),
    ("DigitalOcean: Flask with Gunicorn", "--bind 0.0.0.0:5000 wsgi:app"),
    ("DigitalOcean: Flask with Gunicorn, unit", "--workers 3 --bind unix:myproject.sock -m 007 wsgi:app"),
    (
        "DigitalOcean: Django with Gunicorn, unit",
        "--access-logfile - --workers 3 --bind unix:gunicorn.sock myproject.wsgi:application",
    ),
    ("Heroku: Procfile", "app:app --log-file -"),
    ("Heroku: Procfile", "getting.wsgi --preload"),
    ("Google Cloud Run: Dockerfile", "--bind :8080 --workers 1 --threads 8 --timeout 0 main:app"),
    (
        "pythonspeed: gunicorn in Docker",
        "--worker-tmp-dir /dev/shm --workers=2 --threads=4 --worker-class=gthread --log-file=- "
        "--bind 0.0.0.0:8000 app:app",
    ),
    ("Azure App Service", "--bind=0.0.0.0 --timeout 600 --access-logfile '-' --error-logfile '-' app:app"),
    ("uvicorn documentation", "main:app --host 0.0.0.0 --port 8000 --log-level info --interface wsgi"),
    ("uvicorn documentation", "--uds uvicorn.sock --workers 2 --limit-max-requests 1000 main:app"),
    ("uWSGI quickstart", "--http :9090 --wsgi-file foobar.py"),
    (
        "uWSGI quickstart",
        "--http :9090 --wsgi-file foobar.py --master --processes 4 --threads 2 --stats 127.0.0.1:9191",
    ),
    ("uWSGI: Django with nginx", "--http :8000 --module mysite.wsgi"),
    ("DigitalOcean: uWSGI", "--socket 0.0.0.0:5000 --protocol=http --wsgi-file wsgi.py --callable app"),
    ("FastAPI: workers", "-w 4 -k uvicorn.workers.UvicornWorker main:app -b 127.0.0.1:8000"),
]

#: The same with the corrected command line.
REFUSED = [
    ("Flask documentation", "-k gevent 'hello:create_app()'", "'hello:create_app()' --threads 16"),
    (
        "uWSGI quickstart: nginx",
        "--socket 127.0.0.1:3031 --wsgi-file foobar.py --callable app --processes 4 --threads 2",
        "foobar:app --bind 127.0.0.1:3031 --processes 4 --threads 2",
    ),
    (
        "uWSGI: Django with nginx",
        "--socket mysite.sock --module mysite.wsgi --chmod-socket=664",
        "mysite.wsgi --bind 'unix:mysite.sock mode=664'",
    ),
    (
        "DigitalOcean: uWSGI",
        "--socket 0.0.0.0:5000 --protocol=http -w wsgi:app",
        "wsgi:app --bind 0.0.0.0:5000",
    ),
    (
        "Flask documentation: uWSGI",
        "-s app.sock --manage-script-name --mount /shop=myapp:app",
        "myapp:app --root-path /shop --bind unix:app.sock",
    ),
    (
        "gunicorn with ciphers, in the background",
        "--ciphers=HIGH --daemon --pid app.pid app:app",
        "app:app --pid-file app.pid",
    ),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the tutorials have written before."""
    for module in MODULES:
        file = tmp_path / f"{module}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(APP)
    return tmp_path


def connect(folder: Path, url: str) -> socket.socket:
    if not url.startswith("unix:"):
        port = int(url.rpartition(":")[2])
        return socket.create_connection(("127.0.0.1", port), DEADLINE_S)
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(DEADLINE_S)
    sock.connect(str(folder / url.removeprefix("unix:")))
    return sock


def serve(folder: Path, command: list[str], line: str, **env: str) -> str:
    """Starts the server with the line, asks it once and stops it; gives what it said."""
    port = str(free_port())
    # Its own port may be taken by another test, or need rights.
    line = re.sub(r"(?<=:)\d{4}(?= |$)|(?<=--port )\d+", port, line)
    line = re.sub(r"0\.0\.0\.0(?=[ \'])", f"0.0.0.0:{port}", line) if "--host" not in line else line
    said = folder / "said"
    with said.open("wb") as output:
        server = subprocess.Popen(
            [*command, *shlex.split(line)],
            cwd=folder,
            env=environment(**({"PORT": port} | env)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        assert until(lambda: b"listening on" in said.read_bytes() or server.poll() is not None)
        url = re.search(r"listening on (\S+)", said.read_text())
        assert url, said.read_text()
        with Client(connect(folder, url[1]), lambda: None) as client:
            client.send(request("GET", "/"))
            assert client.reply().body == b"hello"
    finally:
        server.terminate()
        assert server.wait(DEADLINE_S) == 0, said.read_text()
    return said.read_text()


@pytest.mark.parametrize(("source", "line"), SERVED)
def test_a_line_of_a_tutorial_serves(folder: Path, source: str, line: str) -> None:
    serve(folder, [str(COMMAND)], line)


@pytest.mark.parametrize(("source", "line", "corrected"), REFUSED)
def test_a_line_that_is_refused_has_one_that_works(
    folder: Path, source: str, line: str, corrected: str
) -> None:
    done = run(folder, *shlex.split(line))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"\nhint: the line that works:\n  milepost serve {corrected}\n"), done.stderr
    checked = run(folder, "check", *shlex.split(corrected))
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("verb", [[], ["serve"], ["run"]])
def test_the_module_takes_the_same_lines(folder: Path, verb: list[str]) -> None:
    said = serve(folder, [sys.executable, "-m", "milepost", *verb], "--workers 2 --timeout 30 app:app")
    assert "note     `--timeout 30` is `request_timeout`" in said
    assert "note     PORT sets bind" in said


def test_variables_come_in_their_order(folder: Path) -> None:
    (folder / "m.toml").write_text('app = "app:app"\nthreads = 2\n')
    variables = {
        "WEB_CONCURRENCY": "2",
        "GUNICORN_CMD_ARGS": "--threads 5 --worker-connections 77 -n shop",
        "MILEPOST_CONNECTIONS_MAX": "99",
    }
    said = serve(folder, [str(COMMAND)], "-c m.toml", **variables)
    assert "app:app, WSGI on 5 threads" in said
    for name in ("WEB_CONCURRENCY sets processes", "GUNICORN_CMD_ARGS sets threads", "PORT sets bind"):
        assert f"note     {name}\n" in said, said


def test_flags_in_a_variable_are_refused_like_others(folder: Path) -> None:
    done = run(folder, "app:app", GUNICORN_CMD_ARGS="--ciphers HIGH --threads 2")
    assert done.returncode == 2
    assert "`GUNICORN_CMD_ARGS`: `--ciphers`: the cipher suites cannot be chosen" in done.stderr
    assert done.stderr.endswith("  GUNICORN_CMD_ARGS='--threads 2'\n"), done.stderr


GUNICORN_CONF = """
import os
host = "0.0.0.0"
bind = [f"{host}:8000", "unix:shop.sock"]
workers = int(os.environ.get("COUNT", "3"))
worker_class = "gthread"
timeout = 120
preload_app = True
daemon = False
umask = 0o007
raw_env = ["SHOP=1"]
errorlog = "-"
loglevel = "debug"
access_log_format = '%(h)s "%(r)s" %(s)s %(L)s'
ciphers = "HIGH"
def post_fork(server, worker):
    pass
"""


def test_a_configuration_of_gunicorn_is_converted(folder: Path) -> None:
    (folder / "gunicorn.conf.py").write_text(GUNICORN_CONF)
    done = run(folder, "convert", "gunicorn.conf.py", COUNT="5")
    assert done.returncode == 1, done
    names = re.findall(r"milepost: `(\w+)` has no counterpart: ", done.stderr)
    assert names == ["post_fork", "ciphers"]
    text = (folder / "milepost.toml").read_text()
    for line in (
        "processes = 5",
        'env = "SHOP=1"',
        'umask = "007"',
        'error_log_level = "info"',
    ):
        assert f"\n{line}\n" in text, text
    checked = run(folder, "check", "app:app", "-c", "milepost.toml")
    assert checked.returncode == 0, checked.stderr
    again = run(folder, "convert", "gunicorn.conf.py")
    assert again.returncode == 2 and "hint: `--output`" in again.stderr
    hinted = run(folder, "serve", "app:app", "-c", "gunicorn.conf.py")
    assert "`milepost convert gunicorn.conf.py`" in hinted.stderr


def test_a_configuration_that_gunicorn_would_read_is_noted(folder: Path) -> None:
    (folder / "gunicorn.conf.py").write_text("workers = 3\n")
    said = serve(folder, [str(COMMAND)], "app:app")
    assert "note     gunicorn.conf.py is not read: `milepost convert gunicorn.conf.py` writes" in said


def test_a_configuration_that_raises_is_shown(folder: Path) -> None:
    (folder / "gunicorn.conf.py").write_text("workers = 1\nraise RuntimeError('no luck')\n")
    done = run(folder, "convert", "gunicorn.conf.py", "-o", "-")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Traceback") and "no luck" in done.stderr
