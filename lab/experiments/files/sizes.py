"""727 bytes after a short while, and 8 MB at once for `/large`."""

import time

SMALL = b"x" * 727
LARGE = b"x" * (8 << 20)


def app(environ, start_response):
    body = LARGE if environ["PATH_INFO"] == "/large" else SMALL
    if body is SMALL:
        time.sleep(0.002)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
