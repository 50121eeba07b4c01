"""Sleeps as long as the recorded request ran, and notes `REQUEST BEGAN ENDED` in a line."""

import os
import time

RUNS_S = {"1": 0.637781, "2": 0.245030, "3": 0.432421, "4": 0.249208, "5": 3.713331, "6": 3.799818}
NOTES = os.open(
    os.path.join(os.environ["SIX_FOLDER"], "notes"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644
)


def app(environ, start_response):
    request = environ["PATH_INFO"].lstrip("/")
    if request in RUNS_S:
        began = time.time()
        time.sleep(RUNS_S[request])
        os.write(NOTES, f"{request} {began:.6f} {time.time():.6f}\n".encode())
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "2")])
    return [b"ok"]
