"""A WSGI application with one animal for each rule of PEP 3333; the path names the animal.

Written against the text of the PEP, without any framework. What an animal did after its reply had
left is noted under the `token` of its query, and `/noted?token=` waits for it.
"""

from __future__ import annotations

import zoo_environ
import zoo_faults
import zoo_files
import zoo_input
import zoo_replies
import zoo_streams

from zoo_base import ANIMALS

__all__ = ["app", "zoo_environ", "zoo_faults", "zoo_files", "zoo_input", "zoo_replies", "zoo_streams"]


def app(environ, start_response):
    """The application."""
    found = ANIMALS.get(environ["PATH_INFO"])
    if found is None:
        start_response("404 Not Found", [("Content-Type", "text/plain")])
        return [b"no such animal\n"]
    return found(environ, start_response)
