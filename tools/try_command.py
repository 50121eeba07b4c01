"""Does an installed command serve? `try_command.py COMMAND app|files`, for what was just built.

Takes the path of the command and what it is to serve: a WSGI application, or a folder. Starts it in a fresh
folder on a free port, asks for one page and stops it. Exit 1 when the reply is another one, with what the
command said.
"""

import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

APP = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "6")])
    return [b"served"]
"""
DEADLINE_S = 30


def address(server: subprocess.Popen, log: Path) -> str:
    """The address that the start-up text names."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and server.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text()):
            return found[0]
        time.sleep(0.05)
    server.kill()
    raise SystemExit(f"{sys.argv[1]} does not start:\n{log.read_text()}")


def main(command: str, what: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "app.py").write_text(APP)
        (folder / "page.txt").write_text("served")
        arguments = ["app:app"] if what == "app" else ["--static", f"/={folder}"]
        log = folder / "log"
        with log.open("w") as output:
            server = subprocess.Popen(
                [Path(command).resolve(), "serve", *arguments, "--bind", "127.0.0.1:0"],
                cwd=folder,
                stdout=output,
                stderr=output,
            )
        page = address(server, log) + ("/" if what == "app" else "/page.txt")
        reply = urllib.request.urlopen(page, timeout=DEADLINE_S).read()
        server.terminate()
        code = server.wait(DEADLINE_S)
        if reply != b"served" or code != 0:
            raise SystemExit(f"{command}: reply {reply!r}, exit {code}\n{log.read_text()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
