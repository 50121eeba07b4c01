"""h2spec, strict, against a plain listener: all cases but those of a list with reasons.

Run by `make conformance`; tools/conformance.sh installs h2spec where Go is at hand.
"""

from __future__ import annotations

import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

from serving import Milepost

pytestmark = pytest.mark.conformance

#: Cases that may fail, and why.
ALLOWED = {
    "Sends invalid connection preface": "a port that speaks HTTP/1 too answers what is no HTTP/2 by 400",
}
CASES = 146


def test_h2spec_strict_passes(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    h2spec = shutil.which("h2spec")
    if h2spec is None:
        pytest.skip("h2spec is not there")
    (tmp_path / "files").mkdir()
    # Long enough that no response is over before a case has sent what it is about.
    (tmp_path / "files" / "large.txt").write_bytes(b"x" * 100_000)
    server = serve("--static", f"/={tmp_path / 'files'}", "--access-log", "/dev/null", log=None)
    host, port = server.address
    report = tmp_path / "h2spec.xml"
    arguments = ["-h", host, "-p", str(port), "-o", "2", "--strict", "-P", "/large.txt", "-j", str(report)]
    subprocess.run([h2spec, *arguments], check=False, stdout=subprocess.DEVNULL, timeout=300)
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    assert len(cases) == CASES
    failed = {case.get("classname") for case in cases if case.find("failure") is not None}
    failed |= {case.get("classname") for case in cases if case.find("error") is not None}
    assert failed <= set(ALLOWED), failed - set(ALLOWED)
