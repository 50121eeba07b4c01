"""Exporters have threads, which no fork copies: each process starts its own, and empties them at its end."""

import os

import sentry_sdk
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from prometheus_client.multiprocess import mark_process_dead


def post_fork():
    provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
    # To OTEL_EXPORTER_OTLP_ENDPOINT.
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    # To SENTRY_DSN.
    sentry_sdk.init()


def worker_exit():
    trace.get_tracer_provider().shutdown()
    sentry_sdk.flush(timeout=2)
    # Gauges of live processes count this one no longer.
    mark_process_dead(os.getpid())
