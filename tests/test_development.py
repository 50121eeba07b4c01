"""`--reload`: code that is saved is served at once, and an error is shown in the browser."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raw import Reply, request
from serving import run, until
from supervising import Supervised, is_running, write_app

HTML = "Accept: text/html,application/xhtml+xml"


@pytest.fixture
def server(supervise: Callable[..., Supervised]) -> Supervised:
    """A server that watches its code."""
    return supervise("--reload", log=None)


def in_place(path: Path, text: str) -> None:
    path.write_text(text)


def renamed_over(path: Path, text: str) -> None:
    """As vim, PyCharm and most others do."""
    new = path.with_name("4913~")
    new.write_text(text)
    new.rename(path)


def moved_away_and_written(path: Path, text: str) -> None:
    """As Emacs and vim with backups do."""
    path.rename(path.with_name(path.name + "~"))
    path.write_text(text)


def deleted_and_written(path: Path, text: str) -> None:
    path.unlink()
    path.write_text(text)


@pytest.mark.parametrize("save", [in_place, renamed_over, moved_away_and_written, deleted_and_written])
def test_saved_code_is_served(server: Supervised, tmp_path: Path, save: Callable[[Path, str], None]) -> None:
    app = tmp_path / "app.py"
    text = app.read_text()
    # Again and again: a watch that follows the old file misses the second time.
    for word in ("two", "three", "four"):
        save(app, text.replace("'one'", repr(word)))
        assert until(lambda word=word: server.answers()[0] == word)


def test_a_named_file_is_watched_whatever_its_name(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    extra = tmp_path / "elsewhere" / "shop.yaml"
    extra.parent.mkdir()
    extra.write_text("one")
    server = supervise("--reload", "--reload-extra-file", "elsewhere/shop.yaml", log=None)
    extra.write_text("two")
    assert until(lambda: "shop.yaml has changed: reloading" in server.errors)


def test_modules_of_the_application_are_watched_too(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "__init__.py").write_text("")
    (shop / "words.py").write_text("word = 'one'")
    write_app(tmp_path, before="from shop.words import word")
    server = supervise("--reload", log=None)
    assert server.eval("word") == "one"
    (shop / "words.py").write_text("word = 'two'")
    assert until(lambda: server.eval("word") == "two")
    # A folder that is new, and a module in it.
    (shop / "more").mkdir()
    (shop / "more" / "__init__.py").write_text("word = 'three'")
    (shop / "words.py").write_text("from shop.more import word")
    assert until(lambda: server.eval("word") == "three")
    (shop / "more" / "__init__.py").write_text("word = 'four'")
    assert until(lambda: server.eval("word") == "four")


def test_more_folders_can_be_named(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    server = supervise("--reload", "--reload-dir", str(elsewhere), log=None)
    pid = server.answers()[1]
    (elsewhere / "new.py").write_text("")
    assert until(lambda: server.answers()[1] != pid)


def test_a_changed_configuration_is_applied(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    file = tmp_path / "milepost.toml"
    file.write_text('app = "app:app"\nserver_header = "before"\n')
    server = supervise("--reload", "--config", "milepost.toml", app=None, log=None)
    assert server.ask().header("server") == "before"
    file.write_text('app = "app:app"\nserver_header = "after"\n')
    assert until(lambda: server.ask().header("server") == "after")


def test_what_is_no_code_restarts_nothing(server: Supervised, tmp_path: Path) -> None:
    pid = server.answers()[1]
    for name in ("__pycache__", ".git", "node_modules", ".venv"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.py").write_text("")
    for name in ("notes.txt", "app.pyc", "shop.db", ".app.py.swp", "app.py~"):
        (tmp_path / name).write_text("")
    # What is code comes after it all, and is seen: nothing before it was.
    restarts = len([line for line in server.stderr if "app.py" in line])
    assert server.answers()[1] == pid
    write_app(tmp_path, "two")
    assert until(lambda: server.answers()[0] == "two")
    told = "".join(server.stderr[restarts:])
    assert not [name for name in ("x.py", "notes.txt", "shop.db") if name in told]


def test_many_files_at_once_are_one_restart(server: Supervised, tmp_path: Path) -> None:
    """As `git checkout` writes them."""
    generation = server.processes()[0]["generation"]
    written_at = []
    for number in range(300):
        (tmp_path / f"module{number}.py").write_text("")
        written_at.append(time.monotonic())
    write_app(tmp_path, "two")
    assert until(lambda: server.answers()[0] == "two")
    server.settled(1)
    # What is quiet for 50 ms belongs together; so long a busy machine may hold up the writing as well.
    pauses = sum(later - sooner > 0.025 for sooner, later in zip(written_at, written_at[1:]))
    assert server.processes()[0]["generation"] - generation <= 5 + pauses


ERRORS = {
    "syntax": ("def broken(:", "SyntaxError"),
    "import": ("import no_such_module", "no_such_module"),
    "raises": ("raise RuntimeError('no <b>such</b> luck')", "no &lt;b&gt;such&lt;/b&gt; luck"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_shown_in_the_browser_until_it_is_mended(
    server: Supervised, tmp_path: Path, name: str
) -> None:
    before, said = ERRORS[name]
    write_app(tmp_path, "two", before)
    assert until(lambda: server.ask().status == 500)
    with server.connect() as client:
        page = client.ask("GET", "/any/path?q=1", HTML, "Connection: close")
    assert (page.status, page.header("content-type")) == (500, "text/html; charset=utf-8")
    assert said in page.text and "app.py" in page.text and "<b>such" not in page.text
    # It is complete in itself, and never kept.
    assert "http://" not in page.text and "https://" not in page.text
    assert "no-store" in (page.header("cache-control") or "")
    with server.connect() as client:
        plain = client.ask("GET", "/", "Accept: application/json", "Connection: close")
    assert plain.status == 500 and (plain.header("content-type") or "").startswith("text/plain")
    assert until(lambda: re.search(r"generation \d+ shows the error until the code works", server.errors))
    write_app(tmp_path, "three")
    assert until(lambda: server.ask().status == 200)
    assert server.serves_only("three")


def test_the_page_of_an_error_finds_out_that_it_is_over(server: Supervised, tmp_path: Path) -> None:
    """It asks with HEAD, again and again, whether the error is still the one that it shows."""

    def page(method: str, *headers: str) -> Reply:
        with server.connect() as client:
            return client.ask(method, "/", *headers, *(["Content-Length: 0"] if method == "POST" else []))

    marks = set()
    for error in ("first", "second"):
        write_app(tmp_path, error, f"raise RuntimeError({error!r})")
        assert until(lambda error=error: error in page("GET", HTML).text)
        got, headed = page("GET", HTML), page("HEAD", "Accept: */*")
        mark = got.header("milepost-failing")
        assert headed.header("milepost-failing") == mark and f'data-mark="{mark}"' in got.text
        assert got.closes and headed.closes and headed.header("cache-control") == "no-store"
        marks.add(mark)
        # Only its own script may run, and no form is sent again unasked.
        policy = got.header("content-security-policy") or ""
        (nonce,) = re.findall(r"script-src 'nonce-([^']+)'", policy)
        assert "default-src 'none'" in policy and f'<script nonce="{nonce}">' in got.text
        assert 'data-repeat="unasked"' in got.text
        assert 'data-repeat="asked"' in page("POST", HTML).text
    assert len(marks) == 2


def test_an_error_at_the_start_is_shown_too(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    write_app(tmp_path, "one", "raise RuntimeError('no such luck')")
    server = supervise("--reload", log=None)
    assert server.ask().status == 500
    assert "no such luck" in server.errors
    write_app(tmp_path, "two")
    assert until(lambda: server.ask().status == 200)


def test_a_configuration_with_a_fault_leaves_the_old_one_serving(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    file = tmp_path / "milepost.toml"
    file.write_text('app = "app:app"\n')
    server = supervise("--reload", "--config", "milepost.toml", app=None, log=None)
    file.write_text("app = ")
    assert until(lambda: "milepost.toml:1" in server.errors)
    assert server.process.poll() is None
    file.write_text('app = "app:app"\nserver_header = "after"\n')
    assert until(lambda: server.ask().header("server") == "after")


def test_a_request_that_runs_does_not_hold_it_up(server: Supervised, tmp_path: Path) -> None:
    """The new code serves while the old one answers what it has."""
    client, holder, pid = server.held()
    write_app(tmp_path, "two")
    assert until(lambda: server.answers()[0] == "two")
    os.close(holder)
    assert client.reply().text == f"one {pid}"
    client.sock.close()
    assert until(lambda: not is_running(pid))


def test_a_waiting_request_is_answered_by_the_new_code(server: Supervised, tmp_path: Path) -> None:
    gate = tmp_path / "import"
    os.mkfifo(gate)
    write_app(tmp_path, "two", f"open({str(gate)!r}).read()")
    holder = os.open(gate, os.O_WRONLY)
    with server.connect() as client:
        client.send(request("GET", "/", "Connection: close"))
        os.close(holder)
        # By the one or the other, but answered.
        assert client.reply().status == 200
    assert until(lambda: server.answers()[0] == "two")


def test_it_serves_without_an_application(tmp_path: Path, supervise: Callable[..., Supervised]) -> None:
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "f").write_text("file")
    server = supervise("--reload", "--static", "/=www", app=None, log=None)
    assert server.ask("/f").text == "file"


def test_together_with_preload_it_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "serve", "app:app", "--reload", "--preload")
    assert done.returncode == 2 and "preload" in done.stderr and "hint:" in done.stderr


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, "serve", "app:app", "--reload", "--reload-dir", "no-such-folder")
    assert done.returncode == 2 and "no-such-folder" in done.stderr
