"""The configuration and the command lines of the guides: `milepost check` accepts what they show.

Takes the fenced blocks `toml` and `sh` of all guides. Each block of TOML is a whole configuration file, and
each `milepost serve` is checked with the same arguments. `report` and `whatif` read a log. The commands of
the first pages are run as they stand by test_documented_commands.py.
"""

from __future__ import annotations

import base64
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from certificates import Authority, write
from serving import Milepost, run

GUIDES = Path(__file__).resolve().parent.parent / "docs/guide"
APP = """
def app(environ, start_response):
    start_response("200 OK", [])
    return [b"hello"]

def main():
    return app

application = app
"""
#: Functions of the examples for `[hooks]`, in any of these modules.
HOOKS = ("connect", "disconnect", "flush", "in_child", "post_fork", "start", "worker_exit")
MODULES = (
    "api",
    "app",
    "chat",
    "hooks",
    "library.wsgi",
    "mysite.asgi",
    "mysite.wsgi",
    "page",
    "room",
    "shop",
)
#: Folders and files that the examples name.
FOLDERS = ("dist", "downloads", "media", "public", "static", "staticfiles")
PAGES = ("404.html", "sorry.html", "dist/index.html", "users")
#: Absolute paths of the examples, and those of the test.
PLACES = {"/srv/media": "media", "/var/log/": "", "/run/milepost/": "", "/run/shop/": "", "/srv/shop/": ""}


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """All of a language in the guides, with their places."""
    for page in sorted(GUIDES.glob("*.md")):
        text = page.read_text()
        for block in re.finditer(rf"^( *)```{language}\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE):
            before = text[: block.start()].rstrip().rsplit("\n", 1)[-1]
            if not before.startswith("<!-- not run:"):
                line = text[: block.start()].count("\n") + 1
                yield f"{page.name}:{line}", textwrap.dedent(block[2])


def commands(*verbs: str) -> list[object]:
    """Those of the guides with such a verb, each a parameter: what is behind a pipe is left out."""
    found = []
    for place, text in blocks("sh"):
        for line in text.splitlines():
            words = shlex.split(line, comments=True)
            words = words[: words.index("|")] if "|" in words else words
            if words[:1] == ["milepost"] and words[1] in verbs:
                found.append(pytest.param(words[1:], id=f"{place} {' '.join(words[1:3])}"))
    return found


def here(text: str) -> str:
    """The text with the paths of the examples replaced by those of the test."""
    for place, ours in PLACES.items():
        text = text.replace(place, ours)
    return text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the examples name, present."""
    for name in MODULES:
        path = tmp_path / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(APP + "".join(f"\ndef {hook}(): pass\n" for hook in HOOKS))
    for name in FOLDERS:
        (tmp_path / name).mkdir()
    for name in PAGES:
        (tmp_path / name).write_text("<!doctype html>")
    write_certificates(tmp_path)
    return tmp_path


def write_certificates(folder: Path) -> None:
    """Those of the page on HTTPS, and the secrets of others."""
    authority = Authority(folder)
    for title, names in [
        ("default", ("default.example",)),
        ("shop", ("shop.example", "*.shop.example")),
        ("api", ("api.example",)),
        ("fullchain", ("shop.example",)),
    ]:
        authority.pair(title, *names)
    (folder / "fullchain.key").rename(folder / "privkey.pem")
    (folder / "internal-ca.pem").write_bytes((folder / "authority.pem").read_bytes())
    (folder / "authority.pem").rename(folder / "clients-ca.pem")
    authority.revoke().rename(folder / "clients-ca.crl")
    write(folder / "tickets.keys", base64.b64encode(bytes(48)) + b"\n")
    write(folder / "admin.token", b"a token of the page on metrics\n")


@pytest.mark.parametrize("text", [pytest.param(text, id=place) for place, text in blocks("toml")])
def test_a_configuration_of_a_guide_has_no_fault(folder: Path, text: str) -> None:
    # A folder at `/` leaves no request to an application.
    has_server = re.search(r'^app = |^"/" = ', text, re.MULTILINE)
    argv = [] if has_server else ["app:app"]
    (folder / "milepost.toml").write_text(here(text))
    checked = run(folder, "check", *argv, "--config", "milepost.toml")
    assert checked.returncode == 0, (text, checked.stderr)


@pytest.mark.parametrize("words", commands("serve", "check"))
def test_a_command_of_a_guide_that_serves_has_no_fault(folder: Path, words: list[str]) -> None:
    words = [here(word) for word in words if word != "&"]
    (folder / "milepost.toml").write_text('app = "app:app"\n')
    checked = run(folder, "check", *words[1:])
    assert checked.returncode == 0, (words, checked.stderr)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log of some requests."""
    folder = tmp_path_factory.mktemp("log")
    (folder / "app.py").write_text(APP)
    with Milepost(folder, "app:app") as server, server.connect() as client:
        for number in range(200):
            client.ask("GET", f"/{number}")
    lines = (folder / "access.log").read_text().splitlines()
    return "".join(f"{at_rest(number, line)}\n" for number, line in enumerate(lines))


def at_rest(number: int, line: str) -> str:
    """A line with the times of a quiet machine: the simulator refuses the log of one that stood still."""
    times = {"receive": 20, "queue": 15, "run": 400, "send": 0, "total": 435}
    for name, micros in times.items():
        line = re.sub(rf" {name}=\S+", f" {name}={micros / 1e6:.6f}", line)
    return re.sub(r" at=(\d+)\.\d+", lambda found: f" at={int(found[1])}.{number * 1000:06}", line)


@pytest.mark.parametrize("words", commands("report", "whatif"))
def test_a_command_of_a_guide_reads_a_log(folder: Path, log: str, words: list[str]) -> None:
    if "--follow" in words:
        words = [word for word in words if word != "--follow"]
    for name in ("shop.log", "six.log", "proxy.log", "shop.log.1.gz"):
        (folder / name).write_text(log)
    words = [
        name for word in words for name in (sorted(map(str, folder.glob(word))) if "*.gz" in word else [word])
    ]
    done = run(folder, *words)
    # 1: no request passed the filters of the example, or the load of an example was too small to judge.
    assert done.returncode in (0, 1), (words, done.stderr)
