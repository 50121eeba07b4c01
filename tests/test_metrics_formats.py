"""The formats of /metrics: exemplars in OpenMetrics, native histograms in messages, neither in older text."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from scraping import (
    OPEN,
    families_of_messages,
    families_of_text,
    labels,
    native_counts,
    native_quantile,
    scraped,
)

from serving import Milepost, free_port, until
from test_admin import answers, ask

TRACE = "0af7651916cd43dd8448eb211c80319c"
DURATION = "http_server_request_duration_seconds"
PHASES = "milepost_request_phase_seconds"
APP = """
import time

def app(environ, start_response):
    time.sleep(float(environ["QUERY_STRING"] or 0) / 1000)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"done"]
"""


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def parent(flags: str, trace: str = TRACE) -> str:
    return f"traceparent: 00-{trace}-b7ad6b7169203331-{flags}"


def started(serve: Callable[..., Milepost], port: int, *more: str, toml: str = "") -> Milepost:
    server = serve("app:app", "--admin-bind", f"127.0.0.1:{port}", *more, toml=toml)
    assert until(lambda: answers(port))
    return server


def counted(port: int) -> int:
    """Requests that the buckets have."""
    samples = families_of_text(port)[DURATION].samples
    return int(sum(sample.value for sample in samples if sample.name.endswith("_count")))


def ready_pids(port: int) -> list[int]:
    return [one["pid"] for one in json.loads(ask(port, "/status")[1])["processes"] if one["state"] == "ready"]


def test_a_recorded_trace_stands_at_the_bucket_of_its_request(
    serve: Callable[..., Milepost], app: Path, port: int
) -> None:
    template = 'access_log_format = "{trace_id} {span_id} {total}"\n'
    server = started(serve, port, "--processes", "2", toml='traces = "ids"\n' + template)
    before = time.time()
    slow = TRACE[::-1]
    with server.connect() as client:
        assert client.ask("GET", "/?1", parent("00", "1" * 32)).status == 200
        assert client.ask("GET", "/?1", parent("01")).status == 200
        assert client.ask("GET", "/?30", parent("01", slow)).status == 200
    assert until(lambda: counted(port) == 3)
    samples = families_of_text(port)[DURATION].samples
    found = {sample.exemplar.labels["trace_id"]: sample for sample in samples if sample.exemplar}
    assert set(found) == {TRACE, slow}
    assert until(lambda: len(server.lines) == 3)
    lines = {trace: (span, float(total)) for trace, span, total in map(str.split, server.lines)}
    bounds = sorted(float(sample.labels["le"]) for sample in samples if "le" in sample.labels)
    for trace, sample in found.items():
        span, total = lines[trace]
        assert sample.name == f"{DURATION}_bucket"
        assert sample.exemplar.labels == {"trace_id": trace, "span_id": span}
        assert abs(sample.exemplar.value - total) < 2e-6
        assert before - 0.01 <= float(sample.exemplar.timestamp) <= time.time()
        # It is in the bucket, and not only below its bound.
        assert float(sample.labels["le"]) == next(bound for bound in bounds if bound >= sample.exemplar.value)
    # The same in messages, and nothing of it where the format has no place for it.
    (metric,) = families_of_messages(port)[DURATION].metric
    shown = [bucket.exemplar for bucket in metric.histogram.bucket if bucket.HasField("exemplar")]
    assert {pair.value for one in shown for pair in one.label if pair.name == "trace_id"} == {TRACE, slow}
    assert all(before - 0.01 <= one.timestamp.ToNanoseconds() / 1e9 <= time.time() for one in shown)
    kind, text = scraped(port, "text/plain")
    assert kind.startswith("text/plain; version=0.0.4")
    assert b"trace_id" not in text
    assert families_of_text(port, "*/*")[DURATION].samples


def test_exemplars_outlive_a_reload_and_a_killed_process(
    serve: Callable[..., Milepost], app: Path, port: int
) -> None:
    server = started(serve, port, toml='traces = "ids"\n')
    with server.connect() as client:
        assert client.ask("GET", "/", parent("01")).status == 200
    assert until(lambda: counted(port) == 1)
    assert until(lambda: len(server.lines) == 1)

    def traces() -> list[str]:
        samples = families_of_text(port)[DURATION].samples
        return [sample.exemplar.labels["trace_id"] for sample in samples if sample.exemplar]

    (first,) = ready_pids(port)
    server.signal(signal.SIGHUP)
    assert until(lambda: ready_pids(port) not in ([], [first]))
    assert traces() == [TRACE]
    (second,) = ready_pids(port)
    os.kill(second, signal.SIGKILL)
    assert until(lambda: ready_pids(port) not in ([], [second]))
    assert traces() == [TRACE]


def test_a_failed_request_has_an_exemplar_where_its_spans_are_sent(
    serve: Callable[..., Milepost], app: Path, port: int
) -> None:
    """Nothing is sampled, and the collector is not there: what counts is that the spans are on their way."""
    traces = f'traces = "http://127.0.0.1:{free_port()}"\ntraces_sample = "0%"\n'
    server = started(serve, port, toml=traces)
    with server.connect() as client:
        assert client.ask("GET", "/").status == 200
    with server.connect() as client:
        assert client.ask("GET", "/?nonsense").status == 500
    assert until(lambda: counted(port) == 2)
    samples = families_of_text(port)[DURATION].samples
    found = [sample.labels["http_response_status_code"] for sample in samples if sample.exemplar]
    assert found == ["500"]


def test_without_traces_there_are_no_exemplars(serve: Callable[..., Milepost], app: Path, port: int) -> None:
    server = started(serve, port)
    with server.connect() as client:
        assert client.ask("GET", "/", parent("01")).status == 200
    assert until(lambda: counted(port) == 1)
    assert b"trace_id" not in scraped(port, OPEN)[1]


def test_messages_say_what_the_text_says(serve: Callable[..., Milepost], app: Path, port: int) -> None:
    server = started(serve, port, "--processes", "2")
    for number in range(60):
        with server.connect() as client:
            assert client.ask("GET", f"/?{number % 20}").status == 200
    assert until(lambda: counted(port) == 60)
    text, read = families_of_text(port), families_of_messages(port)
    kinds = {"counter": 0, "gauge": 1, "info": 1, "histogram": 4}
    assert {
        name + {"counter": "_total", "info": "_info"}.get(family.type, ""): kinds[family.type]
        for name, family in text.items()
    } == {name: family.type for name, family in read.items()}
    # What does not change from one answer to the next.
    for name in (DURATION, PHASES):
        sums: dict[str, float] = {}
        for sample in text[name].samples:
            key = f"{sample.name} {sorted(sample.labels.items())}"
            sums[key] = sample.value
        for metric in read[name].metric:
            histogram, own = metric.histogram, sorted(labels(metric).items())
            assert sums[f"{name}_count {own}"] == histogram.sample_count
            assert math.isclose(sums[f"{name}_sum {own}"], histogram.sample_sum)
            assert sum(count for _, count in native_counts(histogram)) == histogram.sample_count
            for bucket in histogram.bucket:
                bound = "+Inf" if bucket.upper_bound == math.inf else repr(bucket.upper_bound)
                own_le = sorted([*own, ("le", re.sub(r"\.0$", "", bound))])
                assert sums[f"{name}_bucket {own_le}"] == bucket.cumulative_count, (own_le, sums)
    requests = {
        (labels(metric)["route"], labels(metric)["code"]): metric.counter.value
        for metric in read["milepost_requests_total"].metric
    }
    assert requests["app", "2xx"] == 60
    assert read["milepost_build_info"].metric[0].gauge.value == 1


def test_native_quantiles_are_those_of_the_log(serve: Callable[..., Milepost], app: Path, port: int) -> None:
    server = started(serve, port, toml='access_log_format = "{total} {queue} {run}"\n')
    with server.connect() as client:
        for number in range(200):
            assert client.ask("GET", f"/?{number % 40 * 0.5}").status == 200
    assert until(lambda: counted(port) == 200)
    assert until(lambda: len(server.lines) == 200)
    columns = [sorted(map(float, column)) for column in zip(*map(str.split, server.lines))]
    read = families_of_messages(port)
    (duration,) = read[DURATION].metric
    phases = {
        labels(metric)["phase"]: metric.histogram
        for metric in read[PHASES].metric
        if labels(metric)["route"] == "app"
    }
    for histogram, truths in ((duration.histogram, columns[0]), (phases["run"], columns[2])):
        assert (histogram.schema, histogram.sample_count) == (4, 200)
        for quantile in (0.01, 0.25, 0.5, 0.9, 0.99, 1.0):
            truth = truths[max(1, math.ceil(quantile * 200)) - 1]
            lower, upper = native_quantile(histogram, quantile)
            # The log has whole microseconds.
            assert lower / 1.016 - 2e-6 <= truth <= upper * 1.016 + 2e-6, (quantile, truth, lower, upper)
