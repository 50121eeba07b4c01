"""`milepost init`: what it writes for an application, and that it never changes what is there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from serving import Milepost, run
from supervising import write_app


def test_what_it_writes_serves_the_application(tmp_path: Path) -> None:
    write_app(tmp_path)
    done = run(tmp_path, "init")
    assert (done.returncode, done.stderr) == (0, ""), done
    text = (tmp_path / "milepost.toml").read_text()
    assert 'app = "app:app"' in text and "# threads =" in text
    # Under systemd there is no terminal, which the default writes to alone.
    assert 'access_log = ["-"]' in text.splitlines()
    assert run(tmp_path, "check", "--config", "milepost.toml").returncode == 0
    with Milepost(tmp_path, "--config", "milepost.toml", log=None) as server, server.connect() as client:
        assert client.ask("GET", "/").text.startswith("one ")


def test_the_unit_starts_this_python_in_this_folder(tmp_path: Path) -> None:
    folder = tmp_path / "the shop"
    folder.mkdir()
    assert run(folder, "init", "shop.wsgi").returncode == 0
    unit = (folder / "milepost.service").read_text()
    assert f'ExecStart={sys.executable} -m milepost serve --config "{folder}/milepost.toml"\n' in unit
    assert f'ExecReload={sys.executable} -m milepost reload --config "{folder}/milepost.toml"\n' in unit
    assert f"WorkingDirectory={folder}\n" in unit and "{" not in unit
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing")
    words = ["systemd-analyze", "verify", str(folder / "milepost.service")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert "milepost.service:" not in done.stderr, done


@pytest.mark.parametrize("name", ["milepost.toml", "milepost.service"])
def test_a_file_that_is_there_stays_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    write_app(tmp_path)
    (tmp_path / name).symlink_to("elsewhere")
    done = run(tmp_path, "init")
    assert done.returncode == 1 and f"`{name}`: is there already" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["app.py", name])


def test_a_folder_without_an_application_and_a_wrong_name_are_told(tmp_path: Path) -> None:
    done = run(tmp_path, "init")
    assert done.returncode == 1 and "no application was found" in done.stderr
    assert "milepost init MODULE:ATTRIBUTE" in done.stderr
    assert run(tmp_path, "init", "app.py").returncode == 2
    assert list(tmp_path.iterdir()) == []
