"""Spans in plain values, read from a message as OpenTelemetry's own definition has it."""

from __future__ import annotations

import base64
import json
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SERVER, CLIENT = 2, 3


def read(text: str | bytes) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The spans of a message in the JSON of OTLP, and its resources. Fails for what is no message."""
    message = json.loads(text)
    for resource in message["resourceSpans"]:
        for span in (one for scope in resource["scopeSpans"] for one in scope["spans"]):
            # OTLP's JSON has ids in hexadecimal digits, protobuf's in Base64.
            for key in ("traceId", "spanId", "parentSpanId"):
                if key in span:
                    span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    parsed = json_format.Parse(json.dumps(message), ExportTraceServiceRequest())
    spans, resources = [], []
    for resource in parsed.resource_spans:
        resources.append(attributes(resource.resource.attributes))
        for scope in resource.scope_spans:
            assert scope.scope.name == "milepost"
            assert len(scope.spans) <= 512
            spans += [shown(span) for span in scope.spans]
    return spans, resources


def attributes(pairs: Any) -> dict[str, Any]:
    """Attributes by their keys."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def shown(span: Any) -> dict[str, Any]:
    """A span in plain values."""
    return {
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "name": span.name,
        "kind": span.kind,
        "begin": span.start_time_unix_nano,
        "end": span.end_time_unix_nano,
        "failed": span.status.code == 2,
        "flags": span.flags,
    } | attributes(span.attributes)


def requests(spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The spans of requests in their order, each with those of its own server below it in `below`."""
    servers = [one for one in spans if one["kind"] == SERVER]
    for server in servers:
        server["below"] = {
            one["name"]: one for one in spans if one["parent"] == server["id"] and one["kind"] != SERVER
        }
    return sorted(servers, key=lambda one: one["begin"])


def adds_up(span: dict[str, Any]) -> bool:
    """Whether the phases of a request fill its time, one behind the other."""
    phases = [span["below"][name] for name in ("receive", "queue", "run", "send") if name in span["below"]]
    ends = [span["begin"], *(phase["end"] for phase in phases)]
    begins = [*(phase["begin"] for phase in phases), span["end"]]
    return ends == begins
