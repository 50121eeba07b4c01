"""What the pages claim, beside its source: sample lines of the access log, counters, numbers, commits.

Takes the text of the pages, a running server for the names of its counters, and the history where there is
one.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from frames import TEXT, WebSocket, close

from serving import Milepost

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: The fields of the form `phases` in their order; those in parentheses are not in every line.
PHASES = re.compile(
    r"^\S+ - \S+ \[(?P<date>[^\]]+)\] "
    r'"(?:[^"])*" (?P<status>\d{3}|-) \d+ "[^"]*" "[^"]*" '
    r"receive=(?P<receive>\d+\.\d{6}) queue=(?P<queue>\d+\.\d{6}) run=(?P<run>\d+\.\d{6}) "
    r"send=(?P<send>\d+\.\d{6}) total=(?P<total>\d+\.\d{6}) id=\S+ route=\S+( pool=\S+)?"
    r'( end=[a-z-]+)?( cause="[^"]+")?( waiting=\d+ threads=\d+ idle=\d+)?( queued=yes)?'
    r"( before=\d+\.\d{6})?( messages_in=\d+ messages_out=\d+ close_code=\d+)?"
    r"( loop=\d+\.\d{6} steps=\d+ busy=\d+\.\d{6} longest=\d+\.\d{6})?( cpu=\d+\.\d{6})?"
    r" worker=(-|\d+\.\d+) at=(?P<at>\d+)\.\d{6}$"
)


def samples() -> Iterator[tuple[str, str]]:
    """Lines of the access log on the pages, with their places."""
    for page in PAGES:
        for number, line in enumerate(page.read_text().splitlines(), 1):
            if "receive=" in line and "total=" in line and line.lstrip()[0].isdigit():
                yield f"{page.relative_to(ROOT)}:{number}", line


@pytest.mark.parametrize("line", [pytest.param(line, id=place) for place, line in samples()])
def test_a_sample_line_has_the_fields_of_a_real_one(line: str) -> None:
    fields = PHASES.match(line)
    assert fields, line
    phases = sum(round(1e6 * float(fields[name])) for name in ("receive", "queue", "run", "send"))
    assert phases == round(1e6 * float(fields["total"])), line
    arrived = datetime.strptime(fields["date"], "%d/%b/%Y:%H:%M:%S %z")
    assert int(arrived.timestamp()) == int(fields["at"]), line


def test_a_real_line_has_the_form_of_the_samples(tmp_path: Path) -> None:
    """Of a response of the application, of a file and of a refusal."""
    (tmp_path / "app.py").write_text(
        "def app(environ, start_response):\n    start_response('200 OK', [])\n    return [b'hello']\n"
    )
    with Milepost(tmp_path, "app:app", "--static", f"/files={tmp_path}") as server:
        for target in ("/", "/files/app.py", "/%"):
            with server.connect() as connection:
                connection.ask("GET", target)
    assert len(server.lines) == 3
    assert all(PHASES.match(line) for line in server.lines), server.lines


def test_a_real_line_of_a_websocket_connection_has_the_form_of_the_sample(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "async def app(scope, receive, send):\n"
        "    await receive()\n"
        "    await send({'type': 'websocket.accept'})\n"
        "    text = (await receive())['text']\n"
        "    await send({'type': 'websocket.send', 'text': text})\n"
        "    await receive()\n"
    )
    with Milepost(tmp_path, "app:app", "--lifespan", "off") as server, server.connect() as client:
        connection = WebSocket(client, "/chat")
        connection.send(TEXT, b"hello")
        assert connection.text() == "hello"
        client.send(close(1001))
        assert connection.closed()[0] == 1001
    (line,) = server.lines
    page = (ROOT / "docs/guide/websocket.md").read_text()
    (sample,) = (one for one in page.splitlines() if " messages_in=" in one)
    assert PHASES.match(line), line
    names = [[part.partition("=")[0] for part in one.split() if "=" in part] for one in (line, sample)]
    # Whether it waited for the loop differs from line to line.
    assert [name for name in names[0] if name != "queued"] == names[1]


def test_the_page_names_every_counter_of_the_status_page(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("def app(environ, start_response):\n    raise SystemExit\n")
    with Milepost(tmp_path, "app:app", "--status-path", "/status") as server:
        with server.connect() as connection:
            status = json.loads(connection.ask("GET", "/status").text)
    page = (ROOT / "docs/guide/logs-and-phases.md").read_text()
    written = set(re.findall(r"[\w.]+", " ".join(re.findall(r"`[^`\n]+`", page))))
    written |= {part for name in written for part in name.split(".")}

    def names(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            for name, part in value.items():
                yield name
                yield from names(part)
        elif isinstance(value, list):
            for part in value:
                yield from names(part)

    classes = {"2xx", "3xx", "4xx"}
    assert set(names(status)) - written - classes == set()


def test_the_numbers_of_the_front_page_are_on_the_page_of_measurements() -> None:
    claims = (ROOT / "README.md").read_text().split("## Three claims")[1].split("## ")[0]
    measured = re.findall(r"\d[\d,.]*\d|\d", (ROOT / "docs/performance.md").read_text())
    # "99 of 100" is p99 there.
    claims = claims.replace("99 of 100", "p99")
    numbers = [number.rstrip(".,") for number in re.findall(r"\d[\d,.]*\d|\d", claims)]
    assert len(numbers) > 8
    assert [number for number in numbers if number not in measured] == []


def test_every_commit_that_a_page_names_is_in_the_history() -> None:
    pages = [*PAGES, ROOT / "lab/results.toml", ROOT / "ARCHITECTURE.md"]
    named = {c for page in pages for c in re.findall(r"commit ([0-9a-f]{7,40})\b", page.read_text())}
    assert named

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)

    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("needs the whole history")
    assert [c for c in sorted(named) if git("merge-base", "--is-ancestor", c, "HEAD").returncode] == []
