"""1 KB after a millisecond."""

import time

BODY = b"x" * 1024


def app(environ, start_response):
    time.sleep(0.001)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "1024")])
    return [BODY]
