"""A real ACME server (pebble) with a resolver of its own.

pebble refuses some nonces and reuses some authorizations, as it does by default: a client has to bear both.
Its name server says 127.0.0.1 for every name, and it checks challenges at the ports that it is told.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from serving import DEADLINE_S, free_port, until

#: Where tools/pebble.sh has put the programs.
PROGRAMS = Path(os.environ.get("MILEPOST_CACHE", Path.home() / ".cache/milepost")) / "pebble"


def program(name: str) -> str:
    """The path of one of pebble's programs."""
    found = shutil.which(name, path=f"{PROGRAMS}:{os.environ.get('PATH', '')}")
    if not found:
        pytest.skip(f"needs {name}: sh tools/pebble.sh")
    return found


#: Ports that were given away: most of them are bound a little later.
_taken: set[int] = set()


def port() -> int:
    """A free port that no other call gives."""
    while (found := free_port(24_000, 25_000)) in _taken:
        pass
    _taken.add(found)
    return found


class Impostor:
    """Answers HTTP-01 challenges wrongly, as another host of the name does; later it forwards them."""

    def __init__(self, port: int) -> None:
        #: Where the right answers are.
        self.port = port
        self.is_wrong = True
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.own_port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        impostor = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = b"wrong"
                if not impostor.is_wrong:
                    url = f"http://127.0.0.1:{impostor.port}{self.path}"
                    with urllib.request.urlopen(url, timeout=DEADLINE_S) as reply:
                        body = reply.read()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def close(self) -> None:
        """Nothing is answered any more."""
        self._http.shutdown()
        self._http.server_close()


class Authority:
    """A pebble of one test, which can be down for a while."""

    def __init__(self, folder: Path, http_port: int, tls_port: int, dns_port: int, life_s: int) -> None:
        folder.mkdir()
        self.port, self.management_port = port(), port()
        self.output = folder / "pebble.log"
        self.roots = folder / "ca.pem"
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.roots)
        leaf = authority.issue_cert("localhost", "127.0.0.1")
        leaf.cert_chain_pems[0].write_to_path(folder / "cert.pem")
        leaf.private_key_pem.write_to_path(folder / "key.pem")
        self.context = ssl.create_default_context(cafile=self.roots)
        config = {
            "listenAddress": f"127.0.0.1:{self.port}",
            "managementListenAddress": f"127.0.0.1:{self.management_port}",
            "certificate": str(folder / "cert.pem"),
            "privateKey": str(folder / "key.pem"),
            "httpPort": http_port,
            "tlsPort": tls_port,
            "retryAfter": {"authz": 1, "order": 1},
            "keyAlgorithm": "ecdsa",
            "profiles": {"default": {"description": "The only one", "validityPeriod": life_s}},
        }
        self.config = folder / "pebble.json"
        self.config.write_text(json.dumps({"pebble": config}))
        self.dns_port = dns_port
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def directory(self) -> str:
        """The URL of its directory."""
        return f"https://localhost:{self.port}/dir"

    def start(self) -> None:
        """From the first connection that it accepts on; it has forgotten all accounts and orders."""
        words = [program("pebble"), "-config", str(self.config), "-dnsserver", f"127.0.0.1:{self.dns_port}"]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                words, stdout=output, stderr=output, env=os.environ | {"PEBBLE_VA_NOSLEEP": "1"}
            )
        assert until(lambda: listens(self.port)), self.output.read_text()

    def stop(self) -> None:
        """Down until the next start."""
        if self.process:
            self.process.terminate()
            self.process.wait(DEADLINE_S)
            self.process = None

    @property
    def said(self) -> str:
        """Its log."""
        return self.output.read_text() if self.output.exists() else ""

    @property
    def orders(self) -> int:
        """Orders since its last start."""
        numbers = re.findall(r"There are now (\d+) orders in the db", self.said)
        return int(numbers[-1]) if numbers else 0

    def trusted(self) -> ssl.SSLContext:
        """What a client needs that trusts the certificates which it issues."""
        url = f"https://localhost:{self.management_port}/roots/0"
        with urllib.request.urlopen(url, context=self.context, timeout=DEADLINE_S) as reply:
            return ssl.create_default_context(cadata=reply.read().decode())

    def suggest_renewal(self, certificate: str) -> None:
        """Has it say, when asked, that this certificate is to be renewed now (ARI)."""
        window = {
            "start": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 7200)),
            "end": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600)),
        }
        body = {"Certificate": certificate, "ARIResponse": json.dumps({"suggestedWindow": window})}
        url = f"https://localhost:{self.management_port}/set-renewal-info/"
        request = urllib.request.Request(url, json.dumps(body).encode())
        with urllib.request.urlopen(request, context=self.context, timeout=DEADLINE_S) as reply:
            assert reply.status == 200


def listens(port: int) -> bool:
    """Whether a port of 127.0.0.1 accepts connections."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def name_server() -> Iterator[int]:
    """A name server that says 127.0.0.1 for every name."""
    dns_port, management = port(), port()
    words = [program("pebble-challtestsrv"), "-dnsserver", f"127.0.0.1:{dns_port}", "-defaultIPv6", ""]
    words += ["-management", f"127.0.0.1:{management}"]
    for other in ("http01", "https01", "tlsalpn01", "doh"):
        words += [f"-{other}", ""]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert until(lambda: listens(dns_port))
        yield dns_port
    finally:
        process.terminate()
        process.wait(DEADLINE_S)
