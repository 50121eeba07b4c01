"""The WebSocket tests of uvicorn, with its applications and clients, against Milepost.

Run by `make conformance`; tools/conformance.sh gets the source of uvicorn. What is replaced, and which tests
cannot apply, is in live_uvicorn.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.conformance

#: So many of them apply: none may be left out unseen.
TESTS = 47


@pytest.mark.timeout(900)
def test_the_websocket_tests_of_uvicorn_pass(tmp_path: Path) -> None:
    if "UVICORN_SOURCE" not in os.environ:
        pytest.skip("needs the source of uvicorn (make conformance)")
    source = Path(os.environ["UVICORN_SOURCE"])
    words = ["-c", os.devnull, "--rootdir", str(source), "-p", "no:cacheprovider", "-p", "live_uvicorn"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, str(source / "tests" / "protocols" / "test_websocket.py")],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{source}:{Path(__file__).parent}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"(\d+) passed, \d+ deselected in", done.stdout)
    assert found and int(found[1]) == TESTS, done.stdout
