"""The proxies of docs/guide/deploy.md: real nginx and real Caddy with the examples of the page, before an
application.

Takes the fenced blocks as they stand there; only names of files, ports and the certificate are replaced.
Skipped where a proxy is missing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from raw import Client, request
from serving import COMMAND, DEADLINE_S, Milepost, environment, free_port, in_foreground

ROOT = Path(__file__).resolve().parent.parent
PAGE, DEPLOY = ROOT / "docs/guide/deploy.md", ROOT / "deploy"
HOST = "shop.example"
APP = """
from flask import Flask, jsonify, request

app = Flask(__name__)

@app.route("/", methods=["GET", "POST"])
def index():
    return jsonify(url=request.url, client=request.remote_addr, body=len(request.get_data()))
"""


def block(language: str, containing: str) -> str:
    """The only block of the page in this language that contains a text."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (text,) = [text for text in found if containing in text]
    return text


def replaced(text: str, replacements: dict[str, str]) -> str:
    """The text with each of these parts replaced, which must be there."""
    for old, new in replacements.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


@pytest.fixture
def shop(tmp_path: Path, serve: Callable[..., Milepost]) -> Milepost:
    """The application behind the proxy, without any middleware."""
    pytest.importorskip("flask")
    (tmp_path / "shop.py").write_text(APP)
    return serve("shop:app", "--idle-timeout", "75s", log=None)


def connect(port: int, *protocols: str) -> ssl.SSLSocket:
    """TLS to the proxy, offering these protocols. The certificate is one of the test: it is not verified."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(list(protocols))
    plain = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
    return context.wrap_socket(plain, server_hostname=HOST)


def ask(port: int, *args: str, body: bytes | None = None) -> dict[str, object]:
    """What the application saw of one request through the proxy, on a connection of its own."""
    with Client(connect(port, "http/1.1"), lambda: None) as client:
        client.send(request(*args, host=f"{HOST}:{port}", body=body))
        reply = client.reply()
        assert reply.status == 200, reply.text
        return json.loads(reply.text)


def check(port: int) -> None:
    """The proxy terminates TLS and HTTP/2, and the application knows the client and the scheme."""
    first, second = ask(port, "GET", "/"), ask(port, "POST", "/", body=b"x" * 2_000_000)
    assert first["url"] == f"https://{HOST}:{port}/"
    assert first["client"] == "127.0.0.1"
    assert second["body"] == 2_000_000
    with connect(port, "h2") as offered:
        assert offered.selected_alpn_protocol() == "h2"


@contextmanager
def nginx(folder: Path, address: tuple[str, int]) -> Iterator[int]:
    """nginx with the page's example in front of an address; gives its port for TLS."""
    if not shutil.which("nginx") or not shutil.which("openssl"):
        pytest.skip("needs nginx and openssl")
    certificate = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={HOST}"]
    subprocess.run(
        [*certificate, "-keyout", "shop.key", "-out", "shop.pem"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    port = free_port()
    example = replaced(
        block("nginx", "upstream"),
        {
            "127.0.0.1:8000": "{}:{}".format(*address),
            "listen 443": f"listen 127.0.0.1:{port}",
            "/etc/ssl/": f"{folder}/",
        },
    )
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    # As root, workers that gave up its rights could not read the folder of the test.
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"daemon off; pid nginx.pid; error_log stderr; {user} worker_processes 1; events {{}}\n"
        f"http {{ access_log off; {temporary} {example} }}\n"
    )
    with in_foreground("nginx", "-p", str(folder), "-c", "nginx.conf", port=port, folder=folder):
        yield port


def test_nginx_in_front_passes_scheme_and_client(tmp_path: Path, shop: Milepost) -> None:
    with nginx(tmp_path, shop.address) as port:
        check(port)


def test_caddy_in_front_passes_scheme_and_client(tmp_path: Path, shop: Milepost) -> None:
    if not shutil.which("caddy"):
        pytest.skip("needs caddy")
    port = free_port()
    # A certificate of its own, because no authority would give one for this name.
    example = replaced(
        block("text", "reverse_proxy"),
        {
            "127.0.0.1:8000": "{}:{}".format(*shop.address),
            f"{HOST} {{": f"{HOST}:{port} {{\n    bind 127.0.0.1\n    tls internal",
        },
    )
    (tmp_path / "Caddyfile").write_text(
        f"{{\n    admin off\n    skip_install_trust\n    auto_https disable_redirects\n}}\n{example}"
    )
    folders = {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    arguments = ["caddy", "run", "--adapter", "caddyfile", "--config", "Caddyfile"]
    with in_foreground(*arguments, port=port, folder=tmp_path, **folders):
        check(port)


def test_the_configuration_for_the_unit_is_right_but_for_its_folders(tmp_path: Path) -> None:
    text = replaced(
        (DEPLOY / "milepost.toml").read_text(),
        {"/srv/shop/static": str(tmp_path), "/run/milepost": str(tmp_path)},
    )
    (tmp_path / "milepost.toml").write_text(text)
    (tmp_path / "shop.py").write_text("def app(environ, start_response): ...\n")
    checked = subprocess.run(
        [COMMAND, "check", "--config", "milepost.toml"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stderr


def test_the_unit_is_one_that_systemd_accepts(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("needs systemd-analyze")
    unit = (DEPLOY / "milepost.service").read_text().replace("/srv/shop/venv/bin/milepost", str(COMMAND))
    (tmp_path / "milepost.service").write_text(unit)
    (tmp_path / "milepost.socket").write_text((DEPLOY / "milepost.socket").read_text())
    # A missing user of the distribution, which it names too, is no fault of the unit.
    argv = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "milepost.service")]
    verified = subprocess.run(argv, capture_output=True, text=True)
    assert "milepost." not in verified.stderr, verified.stderr
    assert "Type=notify\n" in unit and "ExecReload=" in unit


def test_the_page_shows_the_dockerfile_as_it_is() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines(keepends=True)
    assert block("dockerfile", "FROM") == "".join(line for line in lines if not line.startswith("#"))
