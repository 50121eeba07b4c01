"""How each server is started here: as elsewhere in the laboratory, with the same certificate.

Every function takes the `Place` that it may write to and gives the `Command`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab import process, servers
from lab.process import Command
from lab.reload import servers as reload_servers
from lab.scenario import Ground
from lab.servers import Place
from lab.toolbox import Toolbox, Unusable

LARGE = "/1m.txt"
LARGE_BYTES = 1 << 20
# Beyond the connections and the time of every measurement: what is held is to stay.
PATIENCE = ("--send-timeout", "300s", "--idle-timeout", "300s")
# Floods that send nothing more are closed while they are watched: their streams first, the connection then.
IMPATIENCE = ("--send-timeout", "2s", "--idle-timeout", "1s")


def lay_out(ground: Ground) -> None:
    """Writes the large file and one certificate for all: ECDSA on P-256. Raises Unusable."""
    (ground.www / LARGE[1:]).write_bytes(b"x" * LARGE_BYTES)
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-days", "30", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    words += ["-out", "certificate.pem", "-keyout", "key.pem"]
    done = subprocess.run(words, cwd=ground.directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unusable(f"openssl made no certificate: {done.stderr.strip()[-200:]}")
    _key(ground.www).chmod(0o600)


def milepost_static(box: Toolbox, place: Place) -> Command:
    """Files over HTTPS and HTTP/2."""
    return servers.milepost_static(box, place, *_shape(), *_tls(place))


def milepost_wsgi(box: Toolbox, place: Place) -> Command:
    """The application over HTTPS and HTTP/2, on one worker."""
    return servers.milepost_wsgi(box, place, "small", 1, *_shape(), *_tls(place))


def milepost_plain(box: Toolbox, place: Place, *options: str) -> Command:
    """The same application without TLS, and files below /files."""
    files = ("--static", f"/files={place.www}")
    return servers.milepost_wsgi(box, place, "small", 1, *_shape(), *files, *options)


def milepost_files(box: Toolbox, place: Place, *options: str) -> Command:
    """Files without TLS."""
    return servers.milepost_static(box, place, *_shape(), *options)


def milepost_both(box: Toolbox, place: Place) -> Command:
    """The application, plain at its port and with TLS at another (`tls_port`); every request in a log."""
    port = process.free_port()
    _tls_port_file(place).write_text(str(port))
    log = ("--access-log", str(place.access_log))
    command = servers.milepost_wsgi(box, place, "small", 1, *_shape(), *_tls(place), *log)
    argv = [f"{word} tls=off" if word == f"127.0.0.1:{place.port}" else word for word in command.argv]
    return Command(
        [*argv, "--bind", f"127.0.0.1:{port} tls=on"], command.output, command.cwd, command.environ
    )


def tls_port(place: Place) -> int:
    """Where `milepost_both` speaks TLS."""
    return int(_tls_port_file(place).read_text())


def milepost_processes(box: Toolbox, place: Place, processes: int) -> Command:
    """The application with its process id, with TLS, in several processes that take commands."""
    shape = ("--processes", str(processes), "--drivers", "1", "--threads", "2:2")
    return reload_servers.milepost_app(box, place, *shape, *_tls(place))


def nginx(box: Toolbox, place: Place) -> Command:
    """Files over HTTPS and HTTP/2, with sessions that are resumed."""
    certificate, key = _certificate(place.www), _key(place.www)
    # Its own defaults have neither TLS 1.3 (before 1.23.4) nor a cache that sessions are resumed from.
    lines = (
        f"ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3; "
        "ssl_session_cache shared:sessions:10m;"
    )
    return servers.nginx(box, place, "on", locations=lines, tcp_nopush="on", listen="ssl http2")


def granian(box: Toolbox, place: Place) -> Command:
    """The application over HTTPS and HTTP/2."""
    tls = ("--ssl-certificate", str(_certificate(place.www)), "--ssl-keyfile", str(_key(place.www)))
    return servers.granian(box, place, "small", 1, "--http", "auto", *tls)


def _shape() -> tuple[str, ...]:
    return ("--processes", "1", "--control", "off")


def _tls(place: Place) -> tuple[str, ...]:
    return ("--tls-cert", str(_certificate(place.www)), "--tls-key", str(_key(place.www)))


def _certificate(www: Path) -> Path:
    return www.parent / "certificate.pem"


def _key(www: Path) -> Path:
    return www.parent / "key.pem"


def _tls_port_file(place: Place) -> Path:
    return place.directory / "tls-port"
