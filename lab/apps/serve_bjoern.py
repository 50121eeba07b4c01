"""bjoern has no command of its own: `serve_bjoern.py PORT` serves `bench_app.small`."""

from __future__ import annotations

import sys

import bjoern
from bench_app import small

if __name__ == "__main__":
    bjoern.run(small, "127.0.0.1", int(sys.argv[1]))
