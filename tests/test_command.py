"""The command line: first use without a file, and one clear message for everything that is wrong."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from raw import request
from serving import APPS, COMMAND, DEADLINE_S, Milepost, environment, run

HELLO = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello from " + __name__.encode()]
def create():
    return app
class Site:
    wsgi = staticmethod(app)
site = Site()
number = 5
async def asgi(scope, receive, send):
    pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(HELLO)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("")
    (tmp_path / "shop" / "wsgi.py").write_text(HELLO)
    (tmp_path / "broken.py").write_text("import app\nraise RuntimeError('no such luck')\n")
    (tmp_path / "syntax.py").write_text("def broken(:\n")
    (tmp_path / "needs.py").write_text("import missing_dependency\n")
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "f").write_text("file")
    (tmp_path / "plain").write_text("a file, no folder")
    return tmp_path


def refused(folder: Path, *arguments: str, **env: str) -> str:
    """Refused with exit 2, on stderr only, in the form of every message; gives what was said."""
    done = run(folder, *arguments, **env)
    assert done.returncode == 2, done
    assert done.stdout == ""
    messages = [line for line in done.stderr.splitlines() if line.startswith("milepost: ")]
    assert len(messages) == 1, done.stderr
    assert "panicked" not in done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("app:app", b"hello from app"),
        ("app", b"hello from app"),
        ("app:create()", b"hello from app"),
        ("app:site.wsgi", b"hello from app"),
        ("shop.wsgi:app", b"hello from shop.wsgi"),
    ],
)
def test_a_first_time_user_needs_no_file(
    serve: Callable[..., Milepost], folder: Path, name: str, said: bytes
) -> None:
    with serve(name).connect() as client:
        assert client.ask("GET", "/").body == said


def test_a_factory_may_be_named_by_a_flag(serve: Callable[..., Milepost], folder: Path) -> None:
    with serve("app:create", "--factory").connect() as client:
        assert client.ask("GET", "/").status == 200


def test_chdir_and_app_dir_find_the_application(serve: Callable[..., Milepost], folder: Path) -> None:
    (folder / "elsewhere").mkdir()
    for arguments in (("wsgi:app", "--app-dir", "shop"), ("wsgi:app", "--chdir", str(folder / "shop"))):
        with serve(*arguments, log=None).connect() as client:
            assert client.ask("GET", "/").status == 200


def test_the_block_says_what_runs(serve: Callable[..., Milepost], folder: Path) -> None:
    server = serve("app:app", "--static", "/static=www", "--threads", "3:3", "--drivers", "2")
    assert server.stop() == 0
    block = server.errors
    for part in (
        "listening on",
        "app:app",
        "3 threads",
        "/static",
        "1 process × 3 threads, reload: milepost reload --pid ",
        "CPython",
        f"{sys.version_info[0]}.{sys.version_info[1]}",
    ):
        assert part in block, block
    assert len(block.splitlines()) <= 12


def test_many_addresses_are_listened_on(serve: Callable[..., Milepost], folder: Path) -> None:
    server = serve("app:app", "--bind", "[::1]:0", "--bind", f"unix:{folder}/s", log=None)
    urls = re.findall(r"listening on (\S+)", server.errors)
    with socket.socket(socket.AF_UNIX) as unix:
        unix.connect(f"{folder}/s")
        unix.sendall(request("GET", "/", "Connection: close"))
        assert b"hello from app" in b"".join(iter(lambda: unix.recv(4096), b""))
    assert server.stop() == 0
    urls = re.findall(r"listening on (\S+)", server.errors)
    assert len(urls) == 3
    assert not (folder / "s").exists()


def test_configuration_comes_from_file_environment_and_flags(
    serve: Callable[..., Milepost], folder: Path
) -> None:
    """Defaults, then TOML, then the environment, then flags."""
    (folder / "milepost.toml").write_text(
        'app = "app:app"\nserver_header = "from-file"\nserver_timing = true\nthreads = "2:2"\n'
        '[static]\n"/static" = "www"\n'
    )
    server = serve(
        "--config",
        "milepost.toml",
        "--threads",
        "1:1",
        env={"MILEPOST_SERVER_HEADER": "from-environment", "MILEPOST_THREADS": "3:3"},
    )
    with server.connect() as client:
        reply = client.ask("GET", "/")
        assert reply.header("server") == "from-environment"
        assert reply.header("server-timing")
        assert client.ask("GET", "/static/f").body == b"file"
    assert server.stop() == 0
    assert "1 thread" in server.errors


@pytest.mark.parametrize("flag", ["--processes", "--workers", "-w"])
def test_a_number_of_processes_that_cannot_be_is_refused(folder: Path, flag: str) -> None:
    assert "expected a count from 1 to 512" in refused(folder, "serve", "app:app", flag, "0")


@pytest.mark.parametrize("arguments", [["--version"], ["version"]])
def test_it_knows_its_version(folder: Path, arguments: list[str]) -> None:
    done = run(folder, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert version("milepost") in done.stdout


def test_it_is_a_module_and_a_package(folder: Path) -> None:
    def python(*arguments: str) -> str:
        return subprocess.run(
            [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=True
        ).stdout

    assert version("milepost") in python("-m", "milepost", "--version")
    assert python("-c", "import milepost; print(milepost.__version__)").strip() == version("milepost")


def test_help_names_every_flag_with_its_variable(folder: Path) -> None:
    done = run(folder, "serve", "--help")
    assert done.returncode == 0
    for word in (
        "--bind",
        "--drivers",
        "--threads",
        "--static",
        "--access-log",
        "--root-path",
        "--chdir",
        "--app-dir",
        "--workers",
        "MILEPOST_BIND",
        "MILEPOST_THREADS",
    ):
        assert word in done.stdout, word


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_are_there(folder: Path, shell: str) -> None:
    assert "accept-batch" in run(folder, "completions", shell).stdout


# What is wrong is said once, with a hint, and nothing is left behind.

WRONG = {
    "nothing to serve": ([], "nothing to serve"),
    "missing module": (["absent:app"], "absent"),
    "missing package": (["absent.wsgi:app"], "absent"),
    "missing attribute": (["app:aplication"], "aplication"),
    "missing attribute of an attribute": (["app:site.absent"], "absent"),
    "not callable": (["app:number"], "callable"),
    "asgi": (["app:asgi", "--interface", "wsgi"], "ASGI"),
    "a file's name": (["app.py"], "hint: name the module, not its file: `app`"),
    "a file in a folder": (["shop/wsgi.py"], "not its file: `shop.wsgi`"),
    "a dot for the colon": (["shop.wsgi.app"], "did you mean `shop.wsgi:app`?"),
    "a factory with an argument": (
        ["app:create('x')"],
        "write `app:create()`, and let it read the environment",
    ),
    "a colon for the sign": (["--static", "/s:www"], "write `/s=www`"),
    "a variable without a shell": (["app:app", "--bind", "0.0.0.0:$PORT"], "`$PORT` was not expanded"),
    "a path with a space": (["app:app", "--bind", "unix:a b.sock"], "a path has no spaces"),
    "a group that is not there": (["app:app", "--bind", "unix:a.sock group=no-such"], "getent group"),
    "raising module": (["broken:app"], "RuntimeError"),
    "syntax error": (["syntax:app"], "SyntaxError"),
    "missing dependency": (["needs:app"], "missing_dependency"),
    "no default attribute": (["shop"], "shop"),
    "missing folder": (["--static", "/s=absent"], "absent"),
    "a file as a folder": (["--static", "/s=plain"], "plain"),
    "static without url": (["--static", "www"], "www"),
    "static without slash": (["--static", "s=www"], "/s=www"),
    "unknown flag": (["app:app", "--bnid", "127.0.0.1:0"], "--bind"),
    "bad address": (["app:app", "--bind", "nonsense"], "nonsense"),
    "bad port": (["app:app", "--bind", "127.0.0.1:99999"], "99999"),
    "bad count": (["app:app", "--drivers", "many"], "many"),
    "bad range": (["app:app", "--threads", "8:2"], "8:2"),
    "no threads": (["app:app", "--threads", "0:0"], "0:0"),
    "bad size": (["app:app", "--body-memory-max", "64KB"], "64K"),
    "bad duration": (["app:app", "--idle-timeout", "soon"], "soon"),
    "bad choice": (["app:app", "--access-log-format", "jsno"], "json"),
    "log in a missing folder": (["app:app", "--access-log", "absent/log"], "absent"),
    "missing configuration": (["--config", "absent.toml"], "absent.toml"),
    "missing chdir": (["app:app", "--chdir", "absent"], "absent"),
    "foreign address": (["app:app", "--bind", "192.0.2.1:8000"], "192.0.2.1:8000"),
    "unix socket in a missing folder": (["app:app", "--bind", "unix:absent/s"], "absent/s"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_gives_one_message_and_2(folder: Path, name: str) -> None:
    before = sorted(folder.iterdir())
    arguments, said = WRONG[name]
    binds = [] if "--bind" in arguments else ["--bind", "127.0.0.1:0"]
    text = refused(folder, "serve", *arguments, *binds)
    assert said in text
    # What would have been right, or what to do, or what the application's own code said.
    own = {"raising module", "syntax error", "missing dependency"}
    assert "hint: " in text or "expected " in text or name in own
    assert name in own or "Traceback" not in text
    after = sorted(path for path in folder.iterdir() if path.name != "__pycache__")
    assert after == before


def test_a_missing_name_has_hints_from_the_module_alone(folder: Path) -> None:
    pytest.importorskip("flask")
    (folder / "fact.py").write_text(
        "from flask import Flask, request\ndef make_app():\n    return Flask(__name__)\n"
    )
    text = refused(folder, "serve", "fact:create_app()", "--bind", "127.0.0.1:0")
    assert "did you mean `fact:make_app()`?" in text


def test_the_wsgi_module_of_a_project_is_named(folder: Path) -> None:
    assert "hint: did you mean `shop.wsgi`?" in refused(folder, "serve", "shop")
    manage = "import os\nos.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')\n"
    (folder / "manage.py").write_text(manage)
    for name in ("manage", "wsgi", "wsgi:application"):
        assert "hint: did you mean `shop.wsgi`?" in refused(folder, "serve", name)
    assert "as `mysite.wsgi`" in refused(folder, "serve", "manage.py")


def test_hints_name_the_help_of_the_command(folder: Path) -> None:
    for words in (
        ["status", "--watch"],
        ["report", "--bogus"],
        ["stop", "-x"],
        ["bench", "compare", "--quux"],
    ):
        command = " ".join(words[:-1])
        assert f"hint: `milepost {command} --help` lists all flags" in refused(folder, *words)
    # A flag of another command is no slip of this one's.
    assert "--admin-socket" not in refused(folder, "serve", "--chmod-sokcet=666")


def test_all_unknown_flags_are_named_at_once(folder: Path) -> None:
    done = run(folder, "serve", "app:app", "--bogus", "--bnid", "1", "--ciphers", "HIGH", "--daemon")
    assert done.returncode == 2
    named = re.findall(r"milepost: `(\S+)`", done.stderr)
    assert named == ["--bogus", "--bnid", "--ciphers", "--daemon"]


def test_an_unknown_command_is_refused(folder: Path) -> None:
    assert "serve" in refused(folder, "sevre", "app:app")


def test_an_address_in_use_is_refused(folder: Path) -> None:
    """SO_REUSEPORT would silently share it with the other program."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = "127.0.0.1:%d" % other.getsockname()[1]
        text = refused(folder, "serve", "app:app", "--bind", address)
        assert address in text and "in use" in text and "hint: " in text


def test_a_second_server_on_the_same_address_is_refused(serve: Callable[..., Milepost], folder: Path) -> None:
    server = serve("app:app")
    host, port = server.address
    assert "in use" in refused(folder, "serve", "app:app", "--bind", f"{host}:{port}")
    with server.connect() as client:
        assert client.ask("GET", "/").status == 200


def test_a_unix_socket_in_use_is_refused_and_a_stale_one_replaced(
    serve: Callable[..., Milepost], folder: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(f"{folder}/s")
    server = serve("app:app", bind=f"unix:{folder}/s")
    assert "in use" in refused(folder, "serve", "app:app", "--bind", f"unix:{folder}/s")
    with server.connect() as client:
        assert client.ask("GET", "/").status == 200


@pytest.mark.parametrize(
    ("bind", "flags", "mode"),
    [
        ("unix:s", [], 0o777),
        ("unix:s mode=0660", [], 0o660),
        ("unix:s mode=600 group=%s" % os.getgid(), [], 0o600),
        ("unix:s", ["-m", "007"], 0o770),
        ("unix:s mode=0666", ["--umask", "077"], 0o666),
    ],
)
def test_a_unix_socket_has_its_mode(
    serve: Callable[..., Milepost], folder: Path, bind: str, flags: list[str], mode: int
) -> None:
    """As gunicorn's, it lets the proxy in unless a mask or a mode says otherwise."""
    serve("app:app", *flags, bind=bind)
    found = (folder / "s").stat()
    assert (found.st_mode & 0o777, found.st_gid) == (mode, os.getgid())


def test_files_of_the_application_have_the_mask(serve: Callable[..., Milepost], folder: Path) -> None:
    (folder / "writes.py").write_text(
        "import os\nopen(os.environ['SHOP_FILE'], 'w').close()\nfrom app import app\n"
    )
    serve("writes:app", "--umask", "027", "--env", "SHOP_FILE=made")
    assert (folder / "made").stat().st_mode & 0o777 == 0o640


def test_the_file_of_another_server_is_not_removed(serve: Callable[..., Milepost], folder: Path) -> None:
    """An operator has removed the file, and the next server has made its own, before the first one ends."""
    first = serve("app:app", bind=f"unix:{folder}/s")
    (folder / "s").unlink()
    second = serve("app:app", bind=f"unix:{folder}/s", log=None)
    assert first.stop() == 0
    with second.connect() as client:
        assert client.ask("GET", "/").status == 200


def test_faults_of_a_file_have_their_line(folder: Path) -> None:
    (folder / "m.toml").write_text('app = "app:app"\n\nthreads = "9:1"\n')
    text = refused(folder, "serve", "--config", "m.toml")
    assert re.search(r"m\.toml:3: `threads`", text), text


def test_a_file_that_is_not_toml_is_refused(folder: Path) -> None:
    (folder / "m.toml").write_text("app = \n")
    assert "m.toml:1" in refused(folder, "serve", "--config", "m.toml")


def test_a_text_without_quotation_marks_is_told(folder: Path) -> None:
    (folder / "m.toml").write_text('app = "app:app"\nbind = 127.0.0.1:8000\n')
    text = refused(folder, "serve", "--config", "m.toml")
    assert "m.toml:2" in text and 'quotation marks: `bind = "127.0.0.1:8000"`' in text


def test_all_faults_in_a_table_of_another_name_are_told(folder: Path) -> None:
    (folder / "m.toml").write_text('[server]\nthreads = "9:1"\nbacklgo = 3\ntimeout = 30\n')
    said = run(folder, "check", "app:app", "--config", "m.toml").stderr
    for part in ("m.toml:1: `server`", "`threads`: expected", "did you mean `backlog`", "`request_timeout`"):
        assert part in said, (part, said)


def test_a_variable_that_is_wrong_is_named(folder: Path) -> None:
    assert "MILEPOST_DRIVERS" in refused(folder, "serve", "app:app", MILEPOST_DRIVERS="none")
    text = refused(folder, "serve", "app:app", MILEPOST_DRIVRES="2")
    assert "MILEPOST_DRIVERS" in text


# check


@pytest.mark.parametrize(
    "flags",
    [
        ("--access-log", "logs"),
        ("--pid-file", "logs"),
        ("--control", "missing/control"),
        ("--user", "no-such-name"),
        ("--group", "no-such-name"),
        ("--admin-bind", "127.0.0.1:9919", "--bind", "127.0.0.1:9919"),
        ("--admin-bind", "unix:missing/admin"),
        ("--access-log", "logs/a", "--error-log", "logs/../logs/a"),
        ("--access-log", "link/a", "--error-log", "logs/a"),
    ],
)
def test_check_refuses_what_a_start_would(folder: Path, flags: tuple[str, ...]) -> None:
    (folder / "logs").mkdir()
    (folder / "link").symlink_to("logs")
    done = run(folder, "check", "app:app", *flags)
    assert done.returncode == 1, done
    assert flags[-2] in done.stderr or flags[0] in done.stderr


def test_check_says_yes(folder: Path) -> None:
    done = run(folder, "check", "app:app", "--static", "/s=www")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout


def test_check_binds_nothing(serve: Callable[..., Milepost], folder: Path) -> None:
    host, port = serve("app:app").address
    assert run(folder, "check", "app:app", "--bind", f"{host}:{port}").returncode == 0


def test_check_lists_all_faults_at_once(folder: Path) -> None:
    (folder / "m.toml").write_text(
        'app = "absent:app"\ndrivers = "many"\nthreads = "9:1"\naccept_bacth = 5\nidle_timeout = "soon"\n'
        '[static]\n"/s" = "absent-folder"\n'
    )
    done = run(folder, "check", "--config", "m.toml", "--bind", "nonsense", MILEPOST_BACKLOG="-1")
    assert done.returncode == 1, done
    said = done.stdout + done.stderr
    for part in (
        "m.toml:2",
        "m.toml:3",
        "m.toml:4",
        "accept_batch",
        "m.toml:5",
        "m.toml:7",
        "absent-folder",
        "--bind",
        "MILEPOST_BACKLOG",
        "`absent",
    ):
        assert part in said, (part, said)


def test_check_imports_the_application(folder: Path) -> None:
    done = run(folder, "check", "broken:app")
    assert done.returncode == 1
    assert "no such luck" in done.stdout + done.stderr


def test_a_closed_standard_stream_is_never_taken_by_another_file(folder: Path) -> None:
    """Else what a library writes to descriptor 2 would go to the next socket, or into the log."""
    (folder / "looks.py").write_text(
        "import os\n"
        "open('seen', 'w').write(' '.join(os.readlink(f'/proc/self/fd/{fd}') for fd in range(3)))\n"
        "from app import app\n"
    )
    script = 'exec "$0" check looks:app <&- >&- 2>&-'
    done = subprocess.run(["sh", "-c", script, COMMAND], cwd=folder, env=environment(), timeout=DEADLINE_S)
    assert done.returncode == 0
    assert (folder / "seen").read_text() == "/dev/null /dev/null /dev/null"


def test_the_bookshops_configuration_is_good(folder: Path) -> None:
    checkout = APPS.parent.parent
    done = run(checkout, "check", "--config", "examples/bookshop/milepost.toml", "--app-dir", str(folder))
    assert done.returncode == 0, done
