"""Makes and drops many objects of many sizes, keeps some for a while, and waits as for a database."""

import collections
import itertools
import time

KEPT = collections.deque(maxlen=512)
COUNTER = itertools.count()


def app(environ, start_response):
    number = next(COUNTER)
    parts = [b"x" * (16 + (number * 7919 + part * 104729) % 8192) for part in range(150)]
    rows = [{"number": part, "text": str(part) * 8} for part in range(150)]
    KEPT.append(parts[number % 150 :: 5])
    time.sleep(0.01)
    body = b"".join(part[:8] for part in parts) + str(len(rows)).encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
