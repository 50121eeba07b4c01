"""What scrapers read of an admin listener, by parsers that are not ours: OpenMetrics and the older text by
prometheus_client, messages by the classes that protoc makes of Prometheus' own definition."""

from __future__ import annotations

import bisect
import math
import urllib.request
from collections.abc import Iterator
from typing import Any

from google.protobuf.internal.decoder import _DecodeVarint32  # type: ignore[attr-defined]
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as text_families
from prometheus_metrics_pb2 import MetricFamily  # type: ignore[attr-defined]

OPEN = "application/openmetrics-text;version=1.0.0"
PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
#: As Prometheus 3 asks if native histograms are on.
NATIVE = f"{PROTOBUF};q=0.6,{OPEN};q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"


def scraped(port: int, accept: str) -> tuple[str, bytes]:
    """The type and the bytes of an answer."""
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(asked, timeout=20) as reply:
        return reply.headers["Content-Type"], reply.read()


def families_of_text(port: int, accept: str = OPEN) -> dict[str, Any]:
    """The families by their names."""
    kind, text = scraped(port, accept)
    parse = open_families if kind.startswith("application/openmetrics-text") else text_families
    return {family.name: family for family in parse(text.decode())}


def families_of_messages(port: int) -> dict[str, Any]:
    """The families by their names."""
    kind, text = scraped(port, NATIVE)
    assert kind.replace(" ", "") == PROTOBUF
    return {family.name: family for family in messages(text)}


def messages(text: bytes) -> Iterator[Any]:
    at = 0
    while at < len(text):
        length, at = _DecodeVarint32(text, at)
        yield MetricFamily.FromString(text[at : at + length])
        at += length


def labels(metric: Any) -> dict[str, str]:
    return {pair.name: pair.value for pair in metric.label}


def native_counts(histogram: Any) -> list[tuple[float, int]]:
    """Upper bound and count of each bucket of a native histogram, that of zero first."""
    found, number, count = [(0.0, histogram.zero_count)], 0, 0
    deltas = iter(histogram.positive_delta)
    for span in histogram.positive_span:
        number += span.offset
        for _ in range(span.length):
            count += next(deltas)
            assert count >= 0
            found.append((2 ** (number / 2**histogram.schema), count))
            number += 1
    assert list(deltas) == []
    return found


def native_quantile(histogram: Any, quantile: float) -> tuple[float, float]:
    """The bounds of the bucket that a quantile lies in."""
    counts = native_counts(histogram)
    passed, sums = 0, []
    for _, count in counts:
        passed += count
        sums.append(passed)
    bound = counts[bisect.bisect_left(sums, max(1, math.ceil(quantile * passed)))][0]
    return bound / 2 ** (1 / 2**histogram.schema), bound
