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
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboards import (
    ALERTS,
    ALERTS_TEST,
    Query,
    alert_queries,
    alert_rules,
    guide_queries,
    panel_queries,
    variable_queries,
)
from serving import DEADLINE_S, Milepost, environment, free_port, until
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


# Prometheus


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Starts a Prometheus that scrapes these ports, with the alert rules; gives the port of its own."""
    with contextlib.ExitStack() as stack:

        def start(*targets: int, features: str = "") -> int:
            port = free_port()
            config = tmp_path / "prometheus.yml"
            config.write_text(
                "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\n"
                f"rule_files: [{json.dumps(str(ALERTS))}]\n"
                "scrape_configs:\n  - job_name: milepost\n"
                f"    static_configs:\n      - targets: {[f'127.0.0.1:{target}' for target in targets]}\n"
            )
            argv = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}"]
            argv += [f"--enable-feature={features}"] if features else []
            stack.enter_context(running(port, [*argv, f"--web.listen-address=127.0.0.1:{port}"]))
            assert until(lambda: is_ready(port))
            return port

        yield start


def is_ready(port: int) -> bool:
    """It listens before it answers queries."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=10):
            return True
    except OSError:
        return False


def asked(port: int, path: str, **parameters: str) -> Any:
    """What Prometheus answers; an error of it is one of the test."""
    url = f"http://127.0.0.1:{port}/api/v1/{path}?" + urllib.parse.urlencode(parameters)
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as reply:
            return json.load(reply)["data"]
    except urllib.error.HTTPError as refusal:
        raise AssertionError(f"{parameters}: {refusal.read().decode()}") from refusal


def test_prometheus_scrapes_what_clients_have_counted(
    serve: Callable[..., Milepost], tmp_path: Path, prometheus: Callable[..., int]
) -> None:
    (tmp_path / "file.txt").write_text("text")
    admin = free_port()
    server = serve("--static", f"/={tmp_path}", "--processes", "2", "--admin-bind", f"127.0.0.1:{admin}")
    for _ in range(30):
        with server.connect() as client:
            assert client.ask("GET", "/file.txt").status == 200
    port = prometheus(admin)

    def value(query: str) -> float | None:
        url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
        try:
            with urllib.request.urlopen(url, timeout=10) as reply:
                found = json.load(reply)["data"]["result"]
        except OSError:
            return None
        return float(found[0]["value"][1]) if found else None

    assert until(lambda: value('sum(milepost_requests_total{route="/"})') == 30, within_s=60)
    assert value("sum(http_server_request_duration_seconds_count)") == 30
    assert value("sum(up)") == 1
    quantile = value("histogram_quantile(0.99, sum by (le) (http_server_request_duration_seconds_bucket))")
    assert quantile is not None
    assert 0 < quantile <= 10
    # The older format, by the tool that knows its rules.
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=10) as reply:
        text = reply.read()
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    faults = [line for line in (checked.stdout + checked.stderr).decode().splitlines() if "unit" not in line]
    assert checked.returncode in (0, 3), faults


#: A size that stays is not measured, and the moment at which one that changes is measured may be missed. Not
#: each machine has control groups of version 2, with a quota.
MAY_HAVE_NO_DATA = {
    "Wait for the interpreter (GIL) by pool: A",
    "Processor time taken away: B",
    "Periods of the processor quota: A",
    "Periods of the processor quota: B",
    "Memory of the control group: A",
    "Memory of the control group: B",
    "Events of the control group's memory: A",
}


SLEEPING_APP = """
import time

def app(environ, start_response):
    time.sleep(float(environ["QUERY_STRING"]) / 1000)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"done"]
"""
TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize("features", ["exemplar-storage", "exemplar-storage,native-histograms"])
def test_prometheus_finds_the_trace_of_a_slow_request(
    serve: Callable[..., Milepost], tmp_path: Path, prometheus: Callable[..., int], features: str
) -> None:
    (tmp_path / "app.py").write_text(SLEEPING_APP)
    admin = free_port()
    server = serve("app:app", "--admin-bind", f"127.0.0.1:{admin}", toml='traces = "ids"\n')
    with server.connect() as client:
        assert client.ask("GET", "/?1", f"traceparent: 00-{'1' * 32}-b7ad6b7169203331-00").status == 200
        assert client.ask("GET", "/?40", f"traceparent: 00-{TRACE}-b7ad6b7169203331-01").status == 200
    port = prometheus(admin, features=features)

    if "native" in features:
        # It stores those of native histograms under the name of the whole.
        query = "http_server_request_duration_seconds"
    else:
        query = "http_server_request_duration_seconds_bucket"

    def found() -> list[dict[str, Any]]:
        span = {"start": str(time.time() - 60), "end": str(time.time() + 60)}
        series = asked(port, "query_exemplars", query=query, **span)
        return [exemplar for one in series for exemplar in one["exemplars"]]

    assert until(lambda: found() != [], within_s=60)
    for exemplar in found():
        assert exemplar["labels"]["trace_id"] == TRACE
        assert 0.04 <= float(exemplar["value"]) < 10


def test_prometheus_computes_quantiles_of_native_histograms(
    serve: Callable[..., Milepost], tmp_path: Path, prometheus: Callable[..., int]
) -> None:
    (tmp_path / "app.py").write_text(SLEEPING_APP)
    admin = free_port()
    template = 'access_log_format = "{total} {run}"\n'
    server = serve("app:app", "--admin-bind", f"127.0.0.1:{admin}", toml=template)
    with server.connect() as client:
        for number in range(400):
            assert client.ask("GET", f"/?{number % 40 * 0.5}").status == 200
    assert until(lambda: len(server.lines) == 400)
    totals, runs = (sorted(map(float, column)) for column in zip(*map(str.split, server.lines)))
    port = prometheus(admin, features="native-histograms")

    def value(query: str) -> float:
        found = asked(port, "query", query=query)["result"]
        return float(found[0]["value"][1]) if found else -1

    duration = 'http_server_request_duration_seconds{http_route="app"}'
    run = 'milepost_request_phase_seconds{route="app",phase="run"}'
    assert until(lambda: value(f"histogram_count({duration})") == 400, within_s=60)
    # There are no classic buckets: what follows is computed from native ones.
    assert value("count(http_server_request_duration_seconds_bucket)") == -1
    for query, truths in ((duration, totals), (run, runs)):
        assert abs(value(f"histogram_sum({query})") - sum(truths)) < 1e-3
        for quantile in (0.1, 0.25, 0.5, 0.75, 0.9, 0.99):
            truth = truths[round(quantile * 400) - 1]
            found = value(f"histogram_quantile({quantile}, {query})")
            assert abs(found - truth) <= 0.06 * truth + 2e-6, (query, quantile, found, truth)


POOL_APP = """
import time

def app(environ, start_response):
    time.sleep(0.002)
    start_response(environ["QUERY_STRING"] + " x", [("Content-Type", "text/plain")])
    return [b"done"]
"""
LOOP_APP = """
async def app(scope, receive, send):
    assert scope["type"] == "http"
    # As an upstream, so that connections are opened all the time.
    fields = [(b"connection", b"close")] if scope["path"] == "/to" else []
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": b"done"})
"""


def test_every_query_of_the_dashboard_has_data(
    tmp_path: Path, authority: Any, prometheus: Callable[..., int]
) -> None:
    (tmp_path / "pool_app.py").write_text(POOL_APP)
    (tmp_path / "loop_app.py").write_text(LOOP_APP)
    (tmp_path / "pool").mkdir()
    (tmp_path / "loop").mkdir()
    tls = authority.flags("site", "localhost")
    admins = [free_port(), free_port()]
    here = ["--app-dir", str(tmp_path)]
    # One server of the upstream is not there.
    behind = [free_port(), free_port()]
    upstream = ["--proxy", "/to=" + ",".join(f"http://127.0.0.1:{one}" for one in behind)]
    of_pool = [*here, "--threads", "1:4", "--admin-bind", f"127.0.0.1:{admins[0]}", *upstream, *tls]
    of_loop = [*here, "--interface", "asgi", "--admin-bind", f"127.0.0.1:{admins[1]}"]
    with (
        Milepost(tmp_path / "pool", "pool_app:app", *of_pool, tls=authority.context()) as pool,
        Milepost(
            tmp_path / "loop", "loop_app:app", *of_loop, bind=f"127.0.0.1:{behind[0]}", log=None
        ) as loop,
    ):
        port = prometheus(*admins)

        def load() -> None:
            for status in (200, 200, 404, 500):
                with pool.connect() as client:
                    assert client.ask("GET", f"/?{status}").status == status
                with loop.connect() as client:
                    assert client.ask("GET", "/").status == 200
                with pool.connect() as client:
                    assert client.ask("GET", "/to").status == 200

        def missing(queries: list[Query]) -> list[str]:
            """Those without a number, or without the labels that texts of the dashboard show."""
            load()
            without = []
            for query in queries:
                results = asked(port, "query", query=query.substituted)["result"]
                numbers = [one for one in results if one["value"][1] != "NaN"]
                if not any(query.labels <= one["metric"].keys() for one in numbers):
                    without.append(query.place)
            return without

        queries = [*panel_queries(), *variable_queries(), *guide_queries()]
        with_data = [query for query in queries if query.place not in MAY_HAVE_NO_DATA]
        assert {query.place for query in queries} >= MAY_HAVE_NO_DATA
        assert until(lambda: missing(with_data) == []), "\n".join(missing(with_data))
        # The others, and those of the alerts, at least make sense to Prometheus.
        missing([query for query in [*queries, *alert_queries()] if query not in with_data])
        for query in queries:
            # As a graph asks for it.
            now = str(int(time.time()))
            asked(port, "query_range", query=query.substituted, start=now, end=now, step="15")

        def health() -> set[tuple[str, str]]:
            groups = asked(port, "rules")["groups"]
            return {(rule["name"], rule["health"]) for group in groups for rule in group["rules"]}

        assert until(lambda: health() == {(rule["alert"], "ok") for rule in alert_rules()}), health()


def test_promtool_accepts_the_alert_rules_and_their_tests() -> None:
    for words in (["check", "rules", str(ALERTS)], ["test", "rules", str(ALERTS_TEST)]):
        done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_sees_a_rule_that_no_longer_fires(tmp_path: Path) -> None:
    """Without any one of the rules its test fails."""
    (tmp_path / ALERTS_TEST.name).write_text(ALERTS_TEST.read_text())
    for rule in alert_rules():
        rules = {"groups": [{"name": "milepost", "rules": [one for one in alert_rules() if one != rule]}]}
        # JSON is YAML.
        (tmp_path / ALERTS.name).write_text(json.dumps(rules))
        words = ["promtool", "test", "rules", str(tmp_path / ALERTS_TEST.name)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 1, rule["alert"]
        assert rule["alert"] in done.stdout + done.stderr
