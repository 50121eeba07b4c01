"""Animals that look at their environ, their thread and the interpreter."""

from __future__ import annotations

import os
import sys
import threading

from zoo_base import animal, as_json, text


@animal
def environ(environ, start_response):
    """The environ: texts as they are, everything else by its type."""
    return as_json(
        start_response,
        {k: v if isinstance(v, (str, bool, int, tuple)) else type(v).__name__ for k, v in environ.items()},
    )


@animal
def environ_is_exact(environ, start_response):
    """What the PEP says of the environ's types, and that a request cannot change the next one's."""
    wrong = []
    if type(environ) is not dict:
        wrong.append("environ is not a builtin dict")
    wrong += [f"{k} is not str" for k, v in environ.items() if "." not in k and type(v) is not str]
    for name in ("wsgi.input", "wsgi.errors"):
        needed = (
            ("read", "readline", "readlines", "__iter__")
            if name == "wsgi.input"
            else ("flush", "write", "writelines")
        )
        wrong += [f"{name}.{m}" for m in needed if not callable(getattr(environ[name], m, None))]
    if "left.behind" in environ:
        wrong.append("keys of an earlier request")
    environ["left.behind"] = "x"
    environ["SERVER_NAME"] = "changed"
    environ.pop("wsgi.version")
    return as_json(start_response, wrong)


@animal
def phases(environ, start_response):
    """What is known of this request's way so far."""
    seen = environ["milepost.phases"]
    return as_json(start_response, {key: seen[key] for key in seen.keys()})


@animal
def own_request_id(environ, start_response):
    """An id that the application gives its reply by itself."""
    return text(start_response, "own", "200 OK", ("x-request-id", "own"))


@animal
def gil(environ, start_response):
    """Whether this interpreter runs with a GIL now."""
    return as_json(start_response, getattr(sys, "_is_gil_enabled", lambda: True)())


@animal
def thread(environ, start_response):
    """The name of this thread, and whether `threading` knows it."""
    return as_json(start_response, [threading.current_thread().name, threading.active_count() > 1])


@animal
def complain(environ, start_response):
    """Writes to wsgi.errors."""
    environ["wsgi.errors"].write("a complaint of the zoo: żółw\n")
    environ["wsgi.errors"].writelines(["and ", "more\n"])
    environ["wsgi.errors"].flush()
    return text(start_response, "complained")


@animal
def pid(environ, start_response):
    """The serving process."""
    return as_json(start_response, os.getpid())
