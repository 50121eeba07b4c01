"""Automatic certificates by a real ACME server: issue, renew, share; an authority that is down or refuses.

Run by `make conformance`; tools/pebble.sh builds the ACME server.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from authority import Authority, Impostor, name_server, port
from serving import COMMAND, Milepost, environment, until

pytestmark = pytest.mark.conformance

NAME = "shop.example"
#: A failed try is repeated after a minute, which this outlasts.
RETRIED_S = 180


class Site:
    """A site whose certificates come from authorities of the test, and the folder that its servers share."""

    def __init__(self, folder: Path, dns_port: int) -> None:
        self.folder = folder
        self.storage = folder / "certificates"
        #: Ports of the first server, which the authorities ask; of the second, which they do not.
        self.ports = [(port(), port()), (port(), port())]
        self.dns_port = dns_port
        self.authorities: list[Authority] = []
        (folder / "public").mkdir()
        (folder / "public/index.html").write_text("shop")

    def authority(
        self, name: str = "authority", life_s: int = 90 * 86_400, http_port: int | None = None
    ) -> Authority:
        """One that is not started yet."""
        plain, tls = self.ports[0]
        made = Authority(self.folder / name, http_port or plain, tls, self.dns_port, life_s)
        self.authorities.append(made)
        return made

    @contextlib.contextmanager
    def serving(self, authority: Authority, *arguments: str, number: int = 0) -> Iterator[Milepost]:
        """A server of the site."""
        folder = self.folder / f"server-{number}"
        folder.mkdir(exist_ok=True)
        plain, tls = self.ports[number]
        words = ["--static", f"/={self.folder}/public", "--domain", NAME, "--acme-terms"]
        words += ["--acme-directory", authority.directory, "--acme-ca", str(authority.roots)]
        words += ["--acme-storage", str(self.storage), "--control", str(folder / "control.sock")]
        words += ["--bind", f"127.0.0.1:{tls}"]
        with Milepost(folder, *words, *arguments, bind=f"127.0.0.1:{plain} tls=off", log=None) as server:
            yield server
            assert self.page(number, ssl._create_unverified_context()) == b"shop"
            server.stop()
        left = [path for part in ("challenges", "locks") for path in (self.storage / part).rglob("*")]
        assert not [path for path in left if path.is_file()]

    def page(self, number: int, context: ssl.SSLContext) -> bytes:
        """The site's page over HTTPS; nothing where a client does not trust the certificate."""
        with socket.create_connection(("127.0.0.1", self.ports[number][1])) as sock:
            try:
                with context.wrap_socket(sock, server_hostname=NAME) as client:
                    client.sendall(f"GET / HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n".encode())
                    reply = b"".join(iter(lambda: client.recv(65_536), b""))
            except ssl.SSLError:
                return b""
        return reply.partition(b"\r\n\r\n")[2]

    def is_trusted(self, authority: Authority, number: int = 0) -> Callable[[], bool]:
        """Whether clients that trust the authority see the site."""
        context = authority.trusted()
        return lambda: self.page(number, context) == b"shop"

    def chain(self, authority: Authority) -> Path:
        """The file with key and chain."""
        folder = re.sub(":", "=3A", f"localhost:{authority.port}_dir")
        return self.storage / "certificates" / folder / NAME / "chain.pem"

    def close(self) -> None:
        for authority in self.authorities:
            authority.stop()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with name_server() as dns_port:
        site = Site(tmp_path, dns_port)
        try:
            yield site
        finally:
            site.close()


def status(server: Milepost) -> dict[str, object]:
    """What `milepost status` says of the only name."""
    control = server.folder / "control.sock"
    words = [str(COMMAND), "status", "--json", "--control", str(control)]
    said = subprocess.run(words, capture_output=True, text=True, check=True, env=environment()).stdout
    # The process that gets certificates starts when the server serves.
    (one,) = json.loads(said)["automatic_certificates"] or [{}]
    return dict(one)


def names(chain: Path) -> list[str]:
    """What the leaf is for."""
    decoded = ssl._ssl._test_decode_cert(str(chain))  # type: ignore[attr-defined]
    return [value for kind, value in decoded["subjectAltName"] if kind == "DNS"]


def leaf(chain: Path) -> str:
    """The first certificate of a file, PEM."""
    found = re.search(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n", chain.read_text(), re.S)
    assert found
    return found[0]


def is_issued(chain: Path) -> Callable[[], bool]:
    """Whether there is a certificate, and no placeholder."""
    return lambda: chain.exists() and b"Milepost placeholder" not in ssl.PEM_cert_to_DER_cert(leaf(chain))


def has_changed(chain: Path, before: str) -> Callable[[], bool]:
    return lambda: chain.exists() and chain.read_text() != before


@pytest.mark.parametrize("challenge", ["http-01", "tls-alpn-01"])
def test_issues_by_each_challenge(site: Site, challenge: str) -> None:
    authority = site.authority()
    authority.start()
    chain = site.chain(authority)
    # Whichever process the authority reaches, and although clients are redirected to HTTPS.
    with site.serving(authority, "--acme-challenges", challenge, "--processes", "3") as server:
        assert until(is_issued(chain)), server.errors
        assert until(lambda: f"`{NAME}`: certificate issued by" in server.errors), server.errors
        assert until(site.is_trusted(authority)), server.errors
        assert names(chain) == [NAME]
        assert stat.S_IMODE(chain.stat().st_mode) == 0o600
        assert stat.S_IMODE(chain.parent.stat().st_mode) == 0o700
        said = status(server)
        assert (said["name"], said["failures"], said["last_error"]) == (NAME, 0, None)
        assert said["authority"] == f"localhost:{authority.port}"
        assert int(str(said["not_after_unix_s"])) > int(str(said["next_try_unix_s"]))
        with pytest.raises(urllib.error.HTTPError) as redirected:
            urllib.request.build_opener(Unredirected).open(f"http://127.0.0.1:{site.ports[0][0]}/")
        assert redirected.value.code == 308
    assert authority.orders == 1
    # A server that has a certificate asks for no other one.
    kept = chain.read_text()
    with site.serving(authority) as server:
        assert until(lambda: status(server).get("not_after_unix_s")), server.errors
        assert until(site.is_trusted(authority)), server.errors
    assert (authority.orders, chain.read_text()) == (1, kept)


class Unredirected(urllib.request.HTTPRedirectHandler):
    """Follows no redirect."""

    def redirect_request(self, *_: object) -> None:
        return None


def test_renews_when_the_authority_suggests_it(site: Site) -> None:
    authority = site.authority()
    authority.start()
    chain = site.chain(authority)
    with site.serving(authority) as server:
        assert until(is_issued(chain)), server.errors
    first = chain.read_text()
    authority.suggest_renewal(leaf(chain))
    with site.serving(authority) as server:
        assert until(has_changed(chain, first)), server.errors
        assert until(site.is_trusted(authority)), server.errors
    assert authority.orders == 2
    assert "is a replacement of" in authority.said


def test_two_servers_give_one_order(site: Site) -> None:
    authority = site.authority()
    authority.start()
    chain = site.chain(authority)
    with site.serving(authority) as one, site.serving(authority, number=1) as other:
        for server in (one, other):
            assert until(lambda server=server: status(server).get("not_after_unix_s")), server.errors
        for number in (0, 1):
            assert until(site.is_trusted(authority, number)), number
    assert is_issued(chain)()
    assert authority.orders == 1


def test_starts_without_an_authority_and_tries_again(site: Site) -> None:
    authority = site.authority()
    chain = site.chain(authority)
    with site.serving(authority) as server:
        assert until(lambda: "there is no valid certificate; next try in" in server.errors)
        assert "the authority cannot be reached" in server.errors
        # The line comes before the state, which passes through the supervisor.
        assert until(lambda: status(server).get("failures") == 1), status(server)
        assert status(server)["next_try_unix_s"]
        authority.start()
        assert until(is_issued(chain), RETRIED_S), server.errors
        assert until(lambda: status(server).get("failures") == 0)
    assert authority.orders == 1


def test_keeps_its_certificate_while_the_authority_is_down(site: Site) -> None:
    # Renewed after two thirds of a minute and a half.
    authority = site.authority(life_s=90)
    authority.start()
    chain = site.chain(authority)
    with site.serving(authority) as server:
        assert until(is_issued(chain)), server.errors
    authority.stop()
    kept = chain.read_text()
    with site.serving(authority) as server:
        assert until(lambda: "the present certificate holds for" in server.errors, RETRIED_S), server.errors
        assert "next try in" in server.errors
        assert chain.read_text() == kept
        # It has lost its accounts as well.
        authority.start()
        assert until(has_changed(chain, kept), RETRIED_S), server.errors


def client_pid(server: Milepost) -> int:
    """The only process that obtains certificates, by its thread."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()

    def is_client(pid: str) -> bool:
        names = [name.read_text() for name in Path(f"/proc/{pid}/task").glob("*/comm")]
        return "mp-renewal\n" in names

    (pid,) = [int(pid) for pid in children if is_client(pid)]
    return pid


@contextlib.contextmanager
def silent() -> Iterator[int]:
    """A port that accepts connections and says nothing: an authority waits there for its answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_process_that_dies_amid_an_order_has_failed_once(site: Site) -> None:
    with silent() as http_port:
        authority = site.authority(http_port=http_port)
        authority.start()
        with site.serving(authority, "--acme-challenges", "http-01") as server:
            assert until(lambda: files(site.storage / "challenges")), server.errors
            # At once: the authority waits for some seconds only.
            os.kill(client_pid(server), signal.SIGKILL)
            (record,) = files(site.storage / "retries")
            assert json.loads(record.read_text())["is_under_way"]
            told = "ended before the order was decided"
            # Its lock is stale after 15 seconds.
            assert until(lambda: told in server.errors, RETRIED_S), server.errors
            assert "next try in 60 seconds" in server.errors
            assert not json.loads(record.read_text())["is_under_way"]
            assert until(lambda: status(server).get("failures") == 1), status(server)
            assert authority.orders == 1
            # What a process that was killed has left is swept when it is old.
            for answer in files(site.storage / "challenges"):
                answer.unlink()


def test_an_upgrade_amid_an_order_goes_on_with_it(site: Site) -> None:
    with silent() as http_port:
        authority = site.authority(http_port=http_port)
        authority.start()
        with site.serving(authority, "--acme-challenges", "http-01") as server:
            assert until(lambda: files(site.storage / "locks")), server.errors
            assert until(lambda: files(site.storage / "challenges")), server.errors
            old = client_pid(server)
            server.process.send_signal(signal.SIGUSR2)
            assert until(lambda: "upgraded from" in server.errors), server.errors
            assert until(lambda: not Path(f"/proc/{old}").exists()), server.errors
            # The lock and the note of the order were given back: the next process orders at once.
            assert until(lambda: authority.orders == 2), server.errors
            assert client_pid(server) != old
            assert "ended before the order was decided" not in server.errors


def test_a_start_mends_a_certificate_and_orders_another(site: Site) -> None:
    authority = site.authority()
    authority.start()
    chain = site.chain(authority)
    with site.serving(authority) as server:
        assert until(is_issued(chain)), server.errors
    whole = chain.read_text()
    chain.write_text(whole[: len(whole) // 2])
    with site.serving(authority) as server:
        told = "a placeholder takes its place until a new certificate is issued"
        assert server.errors.count(told) == 1
        assert until(site.is_trusted(authority)), server.errors
    assert authority.orders == 2


def test_tries_again_on_staging_before_production(site: Site) -> None:
    impostor = Impostor(site.ports[0][0])
    asked = {"http_port": impostor.own_port}
    production, staging = site.authority("production", **asked), site.authority("staging", **asked)
    production.start()
    staging.start()
    roots = site.folder / "roots.pem"
    roots.write_text(production.roots.read_text() + staging.roots.read_text())
    chain = site.chain(production)
    more = ["--acme-staging", staging.directory, "--acme-ca", str(roots), "--acme-challenges", "http-01"]
    with site.serving(production, *more) as server:
        assert until(lambda: "the challenge failed" in server.errors), server.errors
        assert "hint: the name must lead to this server" in server.errors
        assert (production.orders, staging.orders) == (1, 0)
        assert until(lambda: status(server).get("failures") == 1), status(server)
        assert "the challenge failed" in str(status(server)["last_error"])
        impostor.is_wrong = False
        assert until(lambda: staging.orders == 1, RETRIED_S), server.errors
        assert production.orders == 1
        assert until(is_issued(chain)), server.errors
    assert (production.orders, staging.orders) == (2, 1)
    impostor.close()
    # What staging has issued is kept nowhere.
    assert not site.chain(staging).exists()
