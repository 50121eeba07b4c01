"""Logs of gunicorn and nginx, really run: what `report` and `whatif` read of them by the names of formats."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from serving import DEADLINE_S, free_port, in_foreground, run

REQUESTS = 40
APP = """
import time

def app(environ, start_response):
    time.sleep(0.02 if environ["PATH_INFO"].startswith("/slow") else 0)
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""
COMMON = '%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s "%(f)s" "%(a)s"'
NGINX = """
daemon off; pid nginx.pid; error_log stderr; {user} worker_processes 1; events {{}}
http {{
    {temporary}
    log_format timed '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent '
                     '"$http_referer" "$http_user_agent" "$http_x_forwarded_for" '
                     'rt=$request_time urt="$upstream_response_time"';
    access_log nginx.log timed;
    server {{
        listen 127.0.0.1:{port};
        location = /static {{ return 204; }}
        location / {{ proxy_pass http://127.0.0.1:{upstream}; }}
    }}
}}
"""


def ask(port: int, *paths: str) -> None:
    """Some requests from two clients at once."""

    def client() -> None:
        for number in range(REQUESTS // 2):
            for path in paths:
                urllib.request.urlopen(
                    f"http://127.0.0.1:{port}{path.format(number)}", timeout=DEADLINE_S
                ).read()

    clients = [threading.Thread(target=client) for _ in range(2)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()


def pages(folder: Path, log: str, form: str) -> dict[str, dict[str, dict[str, float] | None]]:
    """The phases of each page, in seconds."""
    done = run(folder, "report", log, "--format", form, "--json")
    assert done.returncode == 0, done
    found = json.loads(done.stdout)
    assert found["not_understood"] == 0 and set(found["forms"]) == {"template"}, found["forms"]
    assert "how long requests waited for a thread" in found["verdict"][-1]
    return {page["name"]: page["counts"]["seconds"] for page in found["pages"]}


@pytest.mark.parametrize("form", ["L", "M", "D"])
def test_gunicorn(tmp_path: Path, form: str) -> None:
    pytest.importorskip("gunicorn")
    (tmp_path / "shop.py").write_text(APP)
    port = free_port()
    argv = [sys.executable, "-m", "gunicorn", "shop:app", "--bind", f"127.0.0.1:{port}", "--threads", "2"]
    argv += ["--access-logfile", "guni.log", "--access-logformat", f"{COMMON} %({form})s"]
    with in_foreground(*argv, port=port, folder=tmp_path):
        ask(port, "/slow/{}", "/")
    found = pages(tmp_path, "guni.log", f"gunicorn:{form}")
    slow = found["GET /slow/*"]
    assert slow["run"] is not None and slow["run"]["count"] == REQUESTS
    assert 0.02 <= slow["run"]["median"] < 1 and slow["queue"] is None
    # Without the name, and as a template of one's own.
    assert "run times" in run(tmp_path, "whatif", "guni.log").stderr
    unit = {"L": "s", "M": "ms", "D": "us"}[form]
    template = '{peer} {-} {user} [{time}] "{request}" {status} {bytes} "{referer}" "{agent}" {total:UNIT}'
    own = pages(tmp_path, "guni.log", template.replace("UNIT", unit))
    assert own["GET /slow/*"]["total"] == slow["total"]
    done = run(tmp_path, "whatif", "guni.log", "--format", f"gunicorn:{form}")
    assert done.returncode == 0, done
    assert done.stdout.startswith(
        "Now: unknown. The log does not say how many threads there were, nor how long"
    )
    assert "Checked" not in done.stdout and "measured" not in done.stdout
    assert "note: the log has times in whole seconds" in done.stdout
    assert "note: Gunicorn's time begins when a worker takes the request" in done.stdout


def test_nginx(tmp_path: Path) -> None:
    if not shutil.which("nginx"):
        pytest.skip("needs nginx")
    pytest.importorskip("gunicorn")
    (tmp_path / "shop.py").write_text(APP)
    upstream, port = free_port(), free_port()
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in kinds)
    user = "user root;" if os.geteuid() == 0 else ""
    (tmp_path / "nginx.conf").write_text(
        NGINX.format(user=user, temporary=temporary, port=port, upstream=upstream)
    )
    gunicorn = (
        sys.executable,
        "-m",
        "gunicorn",
        "shop:app",
        "--bind",
        f"127.0.0.1:{upstream}",
        "--threads",
        "2",
    )
    nginx = ("nginx", "-p", str(tmp_path), "-c", "nginx.conf")
    with (
        in_foreground(*gunicorn, port=upstream, folder=tmp_path),
        in_foreground(*nginx, port=port, folder=tmp_path),
    ):
        ask(port, "/slow/{}", "/static")
    form = "nginx:request_time,upstream_response_time"
    found = pages(tmp_path, "nginx.log", form)
    slow, static = found["GET /slow/*"], found["GET /static"]
    assert slow["run"] is not None and slow["total"] is not None
    # nginx counts milliseconds.
    assert 0.02 <= slow["run"]["median"] <= slow["total"]["median"] + 0.002
    assert static["run"] is None and static["total"] is not None
    done = run(tmp_path, "whatif", "nginx.log", "--format", form, "--why")
    assert done.returncode == 0, done
    # What nginx answered itself needed no thread.
    assert f"nginx.log: {REQUESTS} requests in" in done.stdout
    done = run(tmp_path, "whatif", "nginx.log", "--format", "nginx:upstream_response_time", "--json")
    assert done.returncode == 0, done
    verdict = json.loads(done.stdout)
    assert verdict["calibration"] is None and verdict["log"]["queue"] is None
