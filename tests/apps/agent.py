"""A Flask application inside OpenTelemetry's WSGI middleware, which notes its spans in a file."""

import json
import os

from flask import Flask, Response
from opentelemetry.instrumentation.wsgi import OpenTelemetryMiddleware
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

flask = Flask(__name__)


class FileExporter(SpanExporter):
    """One JSON line per span, appended at once."""

    def export(self, spans):
        with open(os.environ["AGENT_SPANS"], "a") as out:
            for span in spans:
                record = {"attributes": dict(span.attributes), "start": span.start_time, "end": span.end_time}
                out.write(json.dumps(record) + "\n")
        return SpanExportResult.SUCCESS


@flask.get("/page/<int:number>")
def page(number):
    """A page."""
    return "page"


@flask.get("/stream")
def stream():
    """A generator, which ends only when the server has exhausted it."""
    return Response((str(n) for n in range(10)), mimetype="text/plain")


@flask.get("/fail")
def fail():
    """A failure, which Flask turns into a page."""
    raise RuntimeError("a secret of the agent")


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(FileExporter()))
app = OpenTelemetryMiddleware(flask.wsgi_app, tracer_provider=provider)
