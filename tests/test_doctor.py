"""`milepost doctor`: what it says of this machine, and of limits that are too low."""

from __future__ import annotations

import json
import resource
import shlex
import subprocess
from pathlib import Path

import pytest

from serving import COMMAND, environment, run


def findings(folder: Path, *arguments: str) -> dict[str, dict[str, str | None]]:
    done = run(folder, "doctor", "--json", *arguments)
    assert done.returncode in (0, 1), done.stderr
    found = {one["name"]: one for one in json.loads(done.stdout)["findings"]}
    has_change = any(one["judgement"] == "change" for one in found.values())
    assert done.returncode == int(has_change)
    return found


def test_what_this_machine_has(tmp_path: Path) -> None:
    found = findings(tmp_path)
    somaxconn = Path("/proc/sys/net/core/somaxconn").read_text().strip()
    assert found["listen queue"]["found"] == f"backlog 4096, net.core.somaxconn {somaxconn}"
    source = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    if source.exists():
        assert found["clock source"]["found"] == source.read_text().strip()
    text = run(tmp_path, "doctor").stdout
    for name, one in found.items():
        assert name in text
        if one["judgement"] == "change":
            assert f"{name}: {one['why']}" in text and str(one["set"]) in text


def test_what_the_configuration_needs(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text("app = 'a:b'\nbacklog = 65535\nthreads = '2:200'\nprocesses = 64\n")
    found = findings(tmp_path, "--config", "m.toml")
    assert found["listen queue"]["judgement"] == "change"
    assert found["listen queue"]["set"] == "sysctl -w net.core.somaxconn=65535"
    assert found["processes"]["judgement"] == "change"
    assert found["allocator"]["set"] == "MALLOC_ARENA_MAX=2"


def test_few_open_files(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip("the limit is low already")

    lowered = f"ulimit -n 1000; exec {shlex.quote(str(COMMAND))} doctor"
    done = subprocess.run(
        ["sh", "-c", lowered], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "needed, hard limit 1,000" in done.stdout and "LimitNOFILE=" in done.stdout


def test_a_faulty_configuration(tmp_path: Path) -> None:
    missing = run(tmp_path, "doctor", "--config", "m.toml")
    assert missing.returncode == 2 and "cannot be read" in missing.stderr
    (tmp_path / "m.toml").write_text("processes = 'x'\n")
    faulty = run(tmp_path, "doctor", "--config", "m.toml")
    assert faulty.returncode == 2 and "m.toml:1: `processes`" in faulty.stderr
    assert faulty.stdout == ""
    named = run(tmp_path, "doctor", MILEPOST_CONFIG="m.toml")
    assert named.returncode == 2 and "m.toml:1: `processes`" in named.stderr
    variable = run(tmp_path, "doctor", MILEPOST_PROCESSES="x")
    assert variable.returncode == 2 and "`MILEPOST_PROCESSES`" in variable.stderr
