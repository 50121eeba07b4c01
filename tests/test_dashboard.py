"""The dashboard and the alert rules name metrics that a live server has, and the dashboard has the shape
that Grafana expects.

Grafana itself is not started: Debian has no package of it, and to build it takes longer than all tests
together. tests/test_conformance.py runs all queries in real Prometheus.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dashboards import (
    ALERTS,
    ALERTS_TEST,
    DASHBOARD,
    Family,
    Query,
    alert_queries,
    alert_rules,
    dashboard,
    families,
    guide_queries,
    panel_queries,
    panels,
    selectors,
    variable_queries,
)
from serving import Milepost, free_port, until
from test_admin import answers, ask

#: Of each target, whatever it is; `up` is Prometheus' own.
LABELS_OF_TARGETS = {"job", "instance"}
#: An event loop has metrics of its own, so an ASGI application has all that there are.
APP = """
async def app(scope, receive, send):
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"done"})
"""


@pytest.fixture
def live(serve: Callable[..., Milepost], tmp_path: Path) -> dict[str, Family]:
    """The metrics of a server that has answered a request."""
    (tmp_path / "app.py").write_text(APP)
    port = free_port()
    server = serve("app:app", "--interface", "asgi", "--admin-bind", f"127.0.0.1:{port}")
    assert until(lambda: answers(port))
    with server.connect() as client:
        assert client.ask("GET", "/").status == 200

    def found() -> dict[str, Family]:
        status, text = ask(port, "/metrics")
        assert status == 200
        return families(text)

    # The numbers are up to a quarter of a second old.
    assert until(lambda: found()["milepost_request_phase_seconds_count"].labels)
    return found()


def faults_of(query: Query, known: dict[str, Family]) -> list[str]:
    """What is wrong with a query, as far as names and kinds tell."""
    faults = []
    for used in selectors(query.text):
        family = known.get(used.metric)
        if used.metric == "up":
            continue
        if family is None:
            faults.append(f"there is no metric {used.metric}")
            continue
        unknown = used.labels - family.labels - LABELS_OF_TARGETS
        if unknown and family.labels:
            faults.append(f"{used.metric} has no label {sorted(unknown)}")
        if query.wants_numbers and used.has_range != (family.kind in ("counter", "histogram")):
            faults.append(f"{used.metric} is a {family.kind}: only counters and histograms have a range")
    if not selectors(query.text):
        faults.append("it names no metric")
    if any(query.text.count(left) != query.text.count(right) for left, right in ("()", "{}", "[]")):
        faults.append("its brackets do not match")
    return [f"{query.place}: {fault}" for fault in faults]


def test_every_query_names_metrics_that_a_live_server_has(live: dict[str, Family]) -> None:
    pytest.importorskip("yaml")
    queries = [*panel_queries(), *variable_queries(), *alert_queries(), *guide_queries()]
    assert [fault for query in queries for fault in faults_of(query, live)] == []
    assert len(list(guide_queries())) >= 5


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("sum(rate(milepost_request_total[5m]))", "there is no metric milepost_request_total"),
        ('milepost_pool_running{pol="default"}', "milepost_pool_running has no label ['pol']"),
        ("sum(milepost_requests_total)", "only counters and histograms have a range"),
        ("rate(milepost_pool_running[5m])", "only counters and histograms have a range"),
        ("sum by (pool) (milepost_pool_running", "its brackets do not match"),
        ("time() - 5", "it names no metric"),
    ],
)
def test_the_check_of_queries_finds_faults(query: str, fault: str) -> None:
    known = {
        "milepost_requests_total": Family("counter", frozenset({"route", "code"})),
        "milepost_pool_running": Family("gauge", frozenset({"pool"})),
    }
    (found,) = faults_of(Query("here", query), known)
    assert fault in found


def test_the_dashboard_shows_every_metric(live: dict[str, Family]) -> None:
    """A metric that is added later gets a panel, or a reason here why it needs none."""
    shown = {used.metric for query in panel_queries() for used in selectors(query.text)}
    # A histogram is shown by any of its names.
    bare = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    missing = {
        name
        for name, family in live.items()
        if name not in shown and not (family.kind == "histogram" and re.sub(r"_[a-z]+$", "", name) in bare)
    }
    assert missing == set()


def test_every_panel_says_what_it_shows_and_in_which_unit() -> None:
    for panel in panels():
        assert panel["title"], panel["id"]
        assert re.fullmatch(r"[A-Z0-9].{20,}\.", panel["description"]), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]
    titles = [panel["title"] for panel in dashboard()["panels"]]
    assert len(titles) == len(set(titles))


def test_every_query_asks_the_data_source_that_is_selected() -> None:
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels():
        assert panel["datasource"] == source, panel["title"]
        for target in panel["targets"]:
            assert target["datasource"] == source, panel["title"]
            assert 'job=~"$job", instance=~"$instance"' in target["expr"], panel["title"]
    variables = {variable["name"]: variable for variable in dashboard()["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "instance", "pool", "route"]
    assert variables.pop("datasource")["query"] == "prometheus"
    assert all(variable["datasource"] == source for variable in variables.values())


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    everything = dashboard()["panels"]
    ids = [panel["id"] for panel in everything]
    assert len(ids) == len(set(ids))
    taken: dict[tuple[int, int], str] = {}
    for panel in everything:
        place = panel["gridPos"]
        assert place["x"] >= 0 and place["x"] + place["w"] <= 24, panel["title"]
        for cell in itertools.product(
            range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        ):
            assert cell not in taken, f"{panel['title']} lies on {taken[cell]}"
            taken[cell] = panel["title"]


def test_the_dashboard_can_be_imported() -> None:
    board = dashboard()
    (wanted,) = board["__inputs"]
    assert (wanted["name"], wanted["type"], wanted["pluginId"]) == (
        "DS_PROMETHEUS",
        "datasource",
        "prometheus",
    )
    assert "${DS_PROMETHEUS}" in json.dumps(board["templating"])
    # The uid is the same after each import, so that links stay valid. The id is given by each Grafana.
    assert board["uid"] == "milepost"
    assert board["id"] is None
    assert board["schemaVersion"] >= 36
    # Relative times only.
    assert re.fullmatch(r"now-\d+[hm]", board["time"]["from"])
    assert board["time"]["to"] == "now"
    assert not re.search(r"\b20\d\d-\d\d-\d\d", DASHBOARD.read_text())
    assert {panel["type"] for panel in panels()} == {
        part["id"] for part in board["__requires"] if part["type"] == "panel"
    }


def test_ranges_follow_the_interval_of_the_graph() -> None:
    for query in panel_queries():
        assert set(re.findall(r"\[([^\]]*)\]", query.text)) <= {"$__rate_interval"}, query.place


def test_every_alert_has_a_severity_a_text_and_a_test() -> None:
    pytest.importorskip("yaml")
    names = [rule["alert"] for rule in alert_rules()]
    assert len(names) == len(set(names))
    for rule in alert_rules():
        assert rule["labels"]["severity"] in ("warning", "critical"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]
    tested = set(re.findall(r"alertname: (\w+)", ALERTS_TEST.read_text()))
    assert tested == set(names), ALERTS
