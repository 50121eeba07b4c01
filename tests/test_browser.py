"""Chromium over HTTPS: a page of sixty images comes over one connection.

Run by `make conformance`, where chromium is installed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import Browser, browser
from certificates import Authority
from serving import Milepost, free_port, run
from test_frameworks_flask import SHOP

pytestmark = pytest.mark.conformance

IMAGES = 60
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def chromium(tmp_path: Path) -> Iterator[Browser]:
    with browser(tmp_path / "profile") as page:
        yield page


def bookshop(folder: Path, port: int) -> Milepost:
    """The bookshop over HTTPS."""
    words = ["--config", str(SHOP / "milepost.toml"), "--chdir", str(SHOP.parent.parent)]
    words += ["--domain", "shop.localhost", "--acme-storage", str(folder / "storage")]
    words += ["--access-log-format", "json"]
    return Milepost(folder, *words, bind=f"127.0.0.1:{port}", env={"BOOKSHOP_DATA": str(folder / "data")})


#: Waits until a script gives what is wanted.
UNTIL = """
new Promise((done, fail) => {
  const end = Date.now() + 20000;
  (function look() {
    const found = %s;
    found ? done(found) : Date.now() > end ? fail(new Error(document.body.innerText)) : setTimeout(look, 20);
  })();
})
"""
LINES = "[...document.querySelectorAll('li')].map(line => line.textContent).join('|')"


def say(page: Browser, text: str) -> None:
    page.result(f"input.value = {json.dumps(text)}; document.querySelector('form').requestSubmit()")


def test_a_chat_lives_through_a_reload(tmp_path: Path, chromium: Browser) -> None:
    """Over HTTPS, so that the WebSocket is a stream of the HTTP/2 connection that the page came over."""
    shutil.copytree(ROOT / "examples" / "chat", tmp_path / "chat")
    authority = Authority(tmp_path)
    words = ("--config", "milepost.toml", "--access-log-format", "json", "--ws-drain", "100ms")
    words += (*authority.flags("server", "localhost"), "--control", str(tmp_path / "control"))
    with Milepost(tmp_path / "chat", *words) as server:
        chromium.open(f"https://localhost:{server.address[1]}/")
        connected = UNTIL % "state.textContent === 'connected'"
        chromium.result(connected)
        say(chromium, "Grüße & <b>")
        assert chromium.result(UNTIL % (LINES + ".includes('Grüße & <b>') && " + LINES))
        (tmp_path / "chat.png").write_bytes(chromium.picture(800, 600))
        reloaded = run(tmp_path, "reload", "--control", str(tmp_path / "control"))
        assert reloaded.returncode == 0, reloaded
        # The room of the new process has one guest again.
        chromium.result(
            UNTIL % (LINES + ".endsWith('1 in the room') && " + LINES + ".split('1 in').length === 3")
        )
        chromium.result(connected)
        say(chromium, "still here")
        chromium.result(UNTIL % (LINES + ".endsWith('still here')"))
        chromium.open("about:blank")
        server.stop()
        server.count(len(server.lines))
        lines = [json.loads(line) for line in server.lines]
    sockets = [line for line in lines if line["route"] == "/ws"]
    # Without another request the browser has no HTTP/2 connection to the new process.
    assert [line["protocol"] for line in sockets] == ["HTTP/2.0", "HTTP/1.1"]
    assert sockets[0]["close_code"] == 1012
    assert {line["pool"] for line in sockets} == {"room"}
    assert {line["pool"] for line in lines if line["target"] == "/"} == {"default"}


def test_sixty_images_come_over_one_connection(tmp_path: Path, chromium: Browser) -> None:
    port = free_port(26_000, 27_000)
    site = f"https://shop.localhost:{port}"
    with bookshop(tmp_path, port) as server:
        parts = chromium.parts(f"{site}/window")
        server.stop()
        # With what the browser fetches for itself, such as the icon.
        server.count(len(server.lines))
        lines = [json.loads(line) for line in server.lines]
    images = [part for part in parts if part["name"].endswith(".png")]
    assert len(images) == IMAGES
    assert {part["nextHopProtocol"] for part in parts} == {"h2"}
    assert all(part["responseStatus"] == 200 for part in parts)
    # Numbers of streams are unique on one connection alone.
    streams = [line["stream"] for line in lines]
    assert sorted(streams) == list(range(1, 2 * len(streams), 2))
    assert {line["protocol"] for line in lines} == {"HTTP/2.0"}
    assert {line["end"] for line in lines} == {"complete"}
    drawn = [line for line in lines if line["target"].endswith(".png")]
    assert len(drawn) == IMAGES
    show(images, drawn)


def show(images: list[dict[str, Any]], drawn: list[dict[str, Any]]) -> None:
    """The waterfall, for readers: `pytest -rP` prints it. Timings are no test."""
    phases = {line["target"]: line for line in drawn}
    print("image, browser: sent, first byte, end (ms); log: receive, queue, run, send (ms)")
    for image in images:
        line = phases["/" + image["name"].split("/", 3)[3]]
        seen = [image[key] for key in ("requestStart", "responseStart", "responseEnd")]
        logged = [line[key] * 1_000 for key in ("receive", "queue", "run", "send")]
        times = "  ".join(f"{value:7.1f}" for value in [*seen, *logged])
        print(f"{line['target']:24}{times}  {line['stream']}")
