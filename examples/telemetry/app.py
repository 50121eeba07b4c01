"""Flask with Sentry, OpenTelemetry and Prometheus, under several processes and --preload."""

from flask import Flask, Response
from opentelemetry.instrumentation.wsgi import OpenTelemetryMiddleware
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

ORDERS = Counter("shop_orders", "Orders taken")
RUNNING = Gauge("shop_running", "Orders that are taken now", multiprocess_mode="livesum")

app = Flask(__name__)
# The tracer becomes a real one when post_fork has set the provider.
app.wsgi_app = OpenTelemetryMiddleware(app.wsgi_app)


@app.post("/orders")
def order():
    with RUNNING.track_inprogress():
        ORDERS.inc()
        return {"ordered": True}


@app.get("/fail")
def fail():
    raise RuntimeError("the shelf is empty")


@app.get("/metrics")
def metrics():
    # The numbers of all processes, from PROMETHEUS_MULTIPROC_DIR.
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    return Response(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
