"""The queries of deploy/grafana/milepost.json, deploy/prometheus/alerts.yml and docs/guide/metrics.md.

Takes the files as they are; gives each query with the place where it stands, the metrics that a query
names, and the families that an answer of /metrics has. Knows of PromQL only how names, labels and ranges
are written: real Prometheus parses the queries in `make conformance`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DASHBOARD = ROOT / "deploy/grafana/milepost.json"
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
ALERTS_TEST = ROOT / "deploy/prometheus/alerts_test.yml"
GUIDE = ROOT / "docs/guide/metrics.md"
#: What Grafana puts in for variables when everything is selected.
VARIABLES = {"job": ".*", "instance": ".*", "pool": ".*", "route": ".*", "__rate_interval": "1m"}


@dataclass(frozen=True)
class Query:
    """One query."""

    #: For messages: the panel, the rule or the page.
    place: str
    text: str
    #: The labels that its results must have.
    labels: frozenset[str] = frozenset()
    #: A list of a variable takes names from the labels alone; numbers of counters are of use as rates only.
    wants_numbers: bool = True

    @property
    def substituted(self) -> str:
        """As Grafana sends it to Prometheus."""
        return re.sub(r"\$(\w+)", lambda found: VARIABLES[found[1]], self.text)


@dataclass(frozen=True)
class Selector:
    """A place of a query that names a metric."""

    metric: str
    labels: frozenset[str]
    has_range: bool


@dataclass(frozen=True)
class Family:
    """A metric of a live server."""

    kind: str
    #: Those of its samples. Empty: it has none at the moment.
    labels: frozenset[str]


def dashboard() -> Any:
    return json.loads(DASHBOARD.read_text())


def panels() -> list[dict[str, Any]]:
    """Those that show something; rows are headings."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def panel_queries() -> Iterator[Query]:
    for panel in panels():
        for target in panel["targets"]:
            labels = frozenset(re.findall(r"\{\{ *(\w+) *\}\}", target["legendFormat"]))
            yield Query(f"{panel['title']}: {target['refId']}", target["expr"], labels)


def variable_queries() -> Iterator[Query]:
    """What fills the lists of the dashboard's variables."""
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            assert found, variable
            yield Query(f"variable {variable['name']}", found[1], frozenset({found[2]}), wants_numbers=False)


def alert_rules() -> list[dict[str, Any]]:
    import yaml

    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def alert_queries() -> Iterator[Query]:
    for rule in alert_rules():
        used = re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"]))
        yield Query(rule["alert"], rule["expr"], frozenset(used))


def guide_queries() -> Iterator[Query]:
    """The table of useful queries."""
    for question, text in re.findall(r"^\| ([^|`]+) \| `(.+)` \|$", GUIDE.read_text(), re.MULTILINE):
        if "milepost_" in text or "http_server_" in text:
            # In a table of Markdown a bar has a backslash, within code too.
            yield Query(question, text.replace("\\|", "|"))


def selectors(text: str) -> list[Selector]:
    """The metrics that a query names. A word before a parenthesis is a function or an aggregation."""
    # Labels of `by` look like metrics.
    text = re.sub(r"\b(by|without|on|ignoring)\s*\([^()]*\)", " ", text)
    found = re.finditer(
        r'(?<![\w$"])([a-z]\w*)(?!\w)\s*(\{(?:[^{}"]|"[^"]*")*\})?\s*(\[)?(?!\s*\()', text.replace("\n", " ")
    )
    words = {"and", "or", "unless", "by", "bool"}
    aggregations = {"sum", "min", "max", "avg", "count"}
    return [
        Selector(name, frozenset(re.findall(r"(\w+) *(?:=~|!~|!=|=)", labels or "")), bool(bracket))
        for name, labels, bracket in (match.groups() for match in found)
        if name not in words | aggregations
    ]


def families(text: str) -> dict[str, Family]:
    """Those of an answer of /metrics in the older format, by the names that queries use."""
    labels: dict[str, set[str]] = {}
    for name, inside in re.findall(r"^([a-z_0-9]+)(?:\{(.*)\})? \S+$", text, re.MULTILINE):
        labels.setdefault(name, set()).update(re.findall(r'(\w+)="', inside))
    known = {}
    for name, kind in re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE):
        for suffix in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            known[name + suffix] = Family(kind, frozenset(labels.get(name + suffix, ())))
    return known
