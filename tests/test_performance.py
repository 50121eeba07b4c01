"""The page of figures says what the files say that it is made of."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from serving import COMMAND

SCRIPT = Path(__file__).parent.parent / "benches/performance.py"


def test_tables_are_those_of_their_files() -> None:
    command = [sys.executable, str(SCRIPT), "--check", "--milepost", str(COMMAND)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or "write the tables anew: python3 benches/performance.py"
