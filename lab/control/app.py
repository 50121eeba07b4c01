"""Handlers whose time goes where their name says: `/sleep`, `/cpu`, `/mixed`, each with `?ms=`."""

from __future__ import annotations

import time
import urllib.parse


def sleep(seconds):
    time.sleep(seconds)


def cpu(seconds):
    """Computes for so much processor time of its own thread, however long that takes."""
    end = time.thread_time() + seconds
    number = 1
    while time.thread_time() < end:
        for _ in range(200):
            number = number * 48271 % 2147483647


def mixed(seconds):
    cpu(seconds / 5)
    sleep(seconds * 4 / 5)


KINDS = {"/sleep": sleep, "/cpu": cpu, "/mixed": mixed}


def app(environ, start_response):
    work = KINDS.get(environ["PATH_INFO"])
    if work:
        query = urllib.parse.parse_qs(environ["QUERY_STRING"])
        work(float(query.get("ms", ["20"])[0]) / 1000)
    body = b"done\n"
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
