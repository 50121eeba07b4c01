"""Fixtures: servers in fresh folders, and what they serve."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raw import Client
from serving import APPS, Milepost
from supervising import Supervised, write_app


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that take long begin first, so that the others do not wait for them at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Milepost]:
    """One server for a module: `apps/zoo.py`, four pool threads, everything else as it comes.

    That it stops with 0 and has written one line per exchange is checked when the module is done.
    """
    folder = tmp_path_factory.mktemp("zoo")
    with Milepost(folder, "zoo:app", "--app-dir", str(APPS), "--threads", "4:4") as server:
        yield server


@pytest.fixture
def client(zoo: Milepost) -> Iterator[Client]:
    """A connection to the zoo."""
    with zoo.connect() as connection:
        yield connection


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Milepost]]:
    """Starts servers in the test's folder; each is stopped and checked after the test."""
    with contextlib.ExitStack() as stack:

        def start(*arguments: str, **options: object) -> Milepost:
            if arguments and arguments[0].startswith("zoo:"):
                arguments = (*arguments, "--app-dir", str(APPS))
            return stack.enter_context(Milepost(tmp_path, *arguments, **options))  # type: ignore[arg-type]

        yield start


@pytest.fixture
def authority(tmp_path: Path) -> Any:
    """An authority of certificates; skipped for an interpreter for which there is no `cryptography`."""
    pytest.importorskip("trustme", exc_type=ImportError)
    from certificates import Authority

    return Authority(tmp_path)


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[..., Supervised]]:
    """Starts an application of the test's folder, with a control socket in that folder; each server
    is stopped and checked after the test."""
    if not (tmp_path / "app.py").exists():
        write_app(tmp_path)
    with contextlib.ExitStack() as stack:

        def start(*arguments: str, app: str | None = "app:app", **options: object) -> Supervised:
            arguments = (app, *arguments) if app else arguments
            return stack.enter_context(Supervised(tmp_path, *arguments, **options))  # type: ignore[arg-type]

        yield start
