"""Certificates: which one a client gets, what it must show, renewal without a lost connection, resumption."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import milepost
import pytest

from certificates import Authority, Met, certificate, connect, meet, port_of, write
from raw import Client, Reply
from serving import free_port, run, tables, until
from supervising import Supervised


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def table(pair: tuple[Path, Path], *names: str, **more: object) -> dict[str, object]:
    """An entry of `[[tls]]`."""
    pem, key = pair
    entry: dict[str, object] = {"cert": str(pem), "key": str(key)}
    return (entry | {"names": list(names)} if names else entry) | more


def refused(server: Supervised, context: ssl.SSLContext, name: str = "shop.example") -> str:
    """Why a client is not served."""
    with pytest.raises((ssl.SSLError, ConnectionError)) as caught:
        meet(server, context, name)
    return str(caught.value)


def test_the_name_chooses_the_certificate(supervise: Callable[..., Supervised], authority: Authority) -> None:
    toml = tables(
        "tls",
        table(authority.pair("shop", "shop.example", "*.shop.example")),
        table(authority.pair("api", "api.shop.example")),
    )
    server = supervise(*authority.flags("default", "default.example"), toml=toml)
    context = authority.context()
    for name, expect in [
        ("default.example", "default.example"),
        ("shop.example", "shop.example"),
        ("SHOP.example", "shop.example"),
        ("www.shop.example", "shop.example"),
        ("api.shop.example", "api.shop.example"),
        ("a.b.shop.example", "default.example"),
        ("unknown.example", "default.example"),
        (None, "default.example"),
    ]:
        assert meet(server, context, name).names[0] == expect, name


def test_unknown_names_can_be_refused(supervise: Callable[..., Supervised], authority: Authority) -> None:
    server = supervise(*authority.flags("shop", "shop.example"), "--tls-unknown-name", "reject")
    context = authority.context()
    assert meet(server, context).reply.status == 200
    assert meet(server, context, None).reply.status == 200
    assert "unrecognized name" in refused(server, context, "other.example").lower()


def test_ecdsa_and_rsa_stand_side_by_side(supervise: Callable[..., Supervised], authority: Authority) -> None:
    toml = tables(
        "tls",
        table(authority.pair("rsa", "shop.example", rsa=True)),
        table(authority.pair("ecdsa", "shop.example")),
    )
    server = supervise(toml=toml)
    assert "ecpublickey" in meet(server, authority.context()).kind
    old = authority.context(version="1.2")
    old.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")
    for name in ("shop.example", None):
        assert "rsa" in meet(server, old, name).kind, name


@pytest.mark.parametrize("where", ["file", "variable"])
def test_a_key_may_be_encrypted(
    supervise: Callable[..., Supervised], authority: Authority, where: str
) -> None:
    pem, key = authority.put("shop", authority.issue("shop.example"), b"open sesame")
    password = write(authority.folder / "password", b"open sesame\n")
    named = str(password) if where == "file" else "env:SHOP_KEY"
    server = supervise(
        *("--tls-cert", str(pem), "--tls-key", str(key), "--tls-key-password-file", named),
        env={"SHOP_KEY": "open sesame"},
    )
    assert meet(server, authority.context()).reply.status == 200


def test_only_the_versions_that_are_named_are_spoken(
    supervise: Callable[..., Supervised], authority: Authority
) -> None:
    server = supervise(*authority.flags("shop", "shop.example"), "--tls-versions", "1.3")
    assert meet(server, authority.context()).reply.status == 200
    assert "protocol version" in refused(server, authority.context(version="1.2")).lower()


def said(authority: Authority, toml: str) -> list[str]:
    """What `milepost check` says of a configuration, without the folder."""
    (authority.folder / "milepost.toml").write_text("app = 'app:app'\n" + toml)
    (authority.folder / "app.py").write_text("def app(environ, start_response): ...\n")
    done = run(authority.folder, "check", "--config", "milepost.toml")
    assert done.returncode == 1, done
    text = done.stderr.replace(f"{authority.folder}/", "")
    return text.replace("milepost: milepost.toml:", "").splitlines()


def test_everything_that_is_wrong_is_said_at_once(authority: Authority) -> None:
    shop, other = authority.pair("shop", "shop.example"), authority.pair("other", "other.example")
    open_key = write(authority.folder / "open.key", other[1].read_bytes(), 0o644)
    reversed_chain = authority.ca.cert_pem.bytes() + other[0].read_bytes()
    chain = write(authority.folder / "reversed.pem", reversed_chain)
    toml = tables(
        "tls",
        table((shop[0], other[1])),
        table((other[0], open_key)),
        table((chain, other[1])),
        table(shop, "www.shop.example"),
        table((authority.folder / "missing.pem", shop[1])),
    )
    assert said(authority, toml) == [
        "4: `tls.key`: `other.key`: the key is not that of the certificate `shop.pem`",
        "hint: both come from the same request to the authority",
        "7: `tls.key`: `open.key`: every user of this machine may use the file (mode 644)",
        "hint: `chmod 600 open.key`; a group may read a file that root owns (640)",
        "9: `tls.cert`: `reversed.pem`: certificate 2 is not that of the issuer of certificate 1",
        "hint: the order is: the server's own certificate, then that of its issuer, and so on",
        "14: `tls.names`: `shop.pem`: the certificate is not for `www.shop.example`",
        "hint: it is for shop.example",
        "16: `tls.cert`: `missing.pem`: no such file or directory",
        "milepost: check: 5 faults",
    ]


def test_check_and_status_say_which_certificates_there_are(
    supervise: Callable[..., Supervised], authority: Authority
) -> None:
    flags = authority.flags("shop", "shop.example", "*.shop.example")
    done = run(authority.folder, "check", "app:app", *flags)
    line = "tls      shop.example, *.shop.example, by Test Authority"
    assert line in done.stdout, done
    server = supervise(*flags)
    assert line in server.errors
    (told,) = server.status()["certificates"]
    assert told["names"] == ["shop.example", "*.shop.example"]
    assert "shop.example, *.shop.example" in server.done("status")


def test_status_and_the_status_page_show_certificates_and_handshakes(
    supervise: Callable[..., Supervised], authority: Authority
) -> None:
    flags = authority.flags("shop", "shop.example")
    server = supervise(*flags, "--status-path", "/-/status", *automatic(authority.folder / "storage"))
    context = authority.context(version="1.2")
    first = meet(server, context)
    assert meet(server, context, session=first.session).is_resumed

    def page() -> dict[str, Any]:
        with connect(server, context) as sock:
            reply = Client(sock, server.count).ask("GET", "/-/status")
        assert reply.status == 200
        shown: dict[str, Any] = json.loads(reply.text)
        return shown

    def faults(told: dict[str, Any]) -> list[str]:
        return [one["last_fault"] for one in told["certificates"] if one["last_fault"]]

    for told in (page(), server.status()):
        shop, local = told["certificates"]
        assert (shop["names"], shop["is_automatic"]) == (["shop.example"], False)
        assert (local["names"], local["is_automatic"]) == (["shop.localhost"], True)
        assert (shop["issuer"], local["issuer"]) == ("Test Authority", "Milepost local authority")
        # It holds for 7 days, of which some of the first second may be left.
        assert local["days_left"] in (6, 7)
        assert shop["days_left"] == (shop["ends_unix_s"] - int(time.time())) // 86_400
        made = told["handshakes"]
        assert made["full"] >= 2 and made["resumed"] == 1 and made["mean_cpu_seconds"] > 0, made
        assert not faults(told)
    assert "1 resumed, 0 failed" in server.done("status")
    write(authority.folder / "shop.key", b"no key")
    assert until(lambda: faults(page())), server.errors
    for told in (page(), server.status()):
        (fault,) = faults(told)
        assert "there is no private key" in fault
    assert "fault: certificates: `" in " ".join(server.done("status").split())
    # A process that starts shows it too.
    server.done("reload")
    server.settled(1)
    assert until(lambda: faults(page())), server.errors
    authority.pair("shop", "shop.example")
    assert until(lambda: not faults(page())), server.errors


def test_clients_must_show_a_certificate_that_is_not_revoked(
    supervise: Callable[..., Supervised], authority: Authority
) -> None:
    good, bad = authority.issue("good@shop.example"), authority.issue("bad@shop.example")
    crl = authority.revoke(bad)
    flags = ("--tls-client-ca", str(authority.pem), "--tls-crl", str(crl))
    server = supervise(*authority.flags("shop", "shop.example"), *flags)
    with_good = authority.context(authority.put("good", good))
    assert meet(server, with_good).reply.status == 200
    assert "revoked" in refused(server, authority.context(authority.put("bad", bad))).lower()
    assert "certificate required" in refused(server, authority.context()).lower()
    folder = authority.folder / "strangers"
    folder.mkdir()
    strangers = Authority(folder)
    stranger = strangers.put("stranger", strangers.issue("stranger@shop.example"))
    assert refused(server, authority.context(stranger))


def test_clients_may_show_a_certificate(supervise: Callable[..., Supervised], authority: Authority) -> None:
    flags = ("--tls-client-ca", str(authority.pem), "--tls-client-auth", "request")
    server = supervise(*authority.flags("shop", "shop.example"), *flags)
    own = authority.put("client", authority.issue("client@shop.example"))
    for context in (authority.context(), authority.context(own)):
        assert meet(server, context).reply.status == 200


def test_a_host_with_other_demands_is_not_reached_over_another_connection(
    supervise: Callable[..., Supervised], authority: Authority
) -> None:
    toml = tables("tls", table(authority.pair("admin", "admin.example"), client_ca=str(authority.pem)))
    server = supervise(*authority.flags("shop", "shop.example"), toml=toml)
    context = authority.context()
    assert meet(server, context, "shop.example").reply.status == 200
    assert meet(server, context, "shop.example", host="admin.example").reply.status == 421
    assert meet(server, context, "shop.example", host="admin.example:443").reply.status == 421
    own = authority.context(authority.put("client", authority.issue("client@shop.example")))
    assert meet(server, own, "admin.example").reply.status == 200
    assert meet(server, own, "admin.example", host="shop.example").reply.status == 421


def test_a_certificate_at_fault_keeps_no_other_from_being_renewed(
    supervise: Callable[..., Supervised], authority: Authority
) -> None:
    shop, api = authority.pair("shop", "shop.example"), authority.pair("api", "api.example")
    server = supervise(toml=tables("tls", table(shop), table(api)))
    context = authority.context()
    old = {name: meet(server, context, name).serial for name in ("shop.example", "api.example")}
    write(shop[1], b"no key")
    assert until(lambda: "the certificates stay as they were" in server.errors), server.errors
    authority.pair("api", "api.example")
    assert until(lambda: meet(server, context, "api.example").serial != old["api.example"])
    assert meet(server, context, "shop.example").serial == old["shop.example"]
    authority.pair("shop", "shop.example")
    assert until(lambda: meet(server, context, "shop.example").serial != old["shop.example"])


@pytest.mark.parametrize("way", ["a folder", "a file"])
def test_a_link_that_is_set_anew_is_followed(
    supervise: Callable[..., Supervised], authority: Authority, tmp_path: Path, way: str
) -> None:
    """As deployments do with a folder of their own for each version, and Kubernetes."""
    current = tmp_path / "current"

    def put(version: str) -> None:
        pair = authority.pair(version, "shop.example")
        folder = tmp_path / f"folder of {version}"
        folder.mkdir(exist_ok=True)
        for file, name in zip(pair, ("tls.crt", "tls.key"), strict=True):
            file.replace(folder / name)

    def point(version: str) -> None:
        new = tmp_path / "new"
        new.symlink_to(f"folder of {version}")
        new.replace(current)

    put("one")
    point("one")
    pair = (current / "tls.crt", current / "tls.key")
    if way == "a file":
        links = tmp_path / "links"
        links.mkdir()
        for file in pair:
            (links / file.name).symlink_to(file)
        pair = (links / "tls.crt", links / "tls.key")
    server = supervise(toml=tables("tls", table(pair)))
    context = authority.context()
    put("two")
    for change in (lambda: point("two"), lambda: put("two"), lambda: point("one"), lambda: put("one")):
        old = meet(server, context).serial
        change()
        assert until(lambda old=old: meet(server, context).serial != old), server.errors
    server.done("reload")
    old = meet(server, context).serial
    put("one")
    assert until(lambda: meet(server, context).serial != old), server.errors


def test_keys_of_tickets_change_while_a_certificate_is_at_fault(
    supervise: Callable[..., Supervised], authority: Authority
) -> None:
    lines = [subprocess.check_output(["openssl", "rand", "-base64", "48"]) for _ in range(2)]
    keys = write(authority.folder / "tickets", lines[0])
    flags = authority.flags("shop", "shop.example")
    server = supervise(*flags, "--tls-ticket-keys", str(keys))
    context = authority.context(version="1.2")
    first = meet(server, context)
    write(authority.folder / "shop.key", b"no key")
    assert until(lambda: "the certificates stay as they were" in server.errors), server.errors
    write(keys, lines[1])
    assert until(lambda: "the keys of session tickets have changed" in server.errors), server.errors
    assert until(lambda: not meet(server, context, session=first.session).is_resumed)
    # And the other way round.
    write(keys, b"no keys")
    assert until(lambda: "line 1 is no key" in server.errors), server.errors
    second = meet(server, context)
    authority.pair("shop", "shop.example")
    assert until(lambda: meet(server, context).serial != first.serial), server.errors
    assert all(resumes(server, context, second, 3))


#: Takes a lease of a file (fcntl(2)): a process that opens it waits, until the end of the input or for 45 s.
HOLD = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
held = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def unanswering(path: Path) -> Iterator[None]:
    """A file that does not answer, as on storage that hangs."""
    words = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout and holder.stdout.readline() == b"held\n"
        yield
        holder.communicate()


def test_a_file_that_does_not_answer_stops_nothing(
    supervise: Callable[..., Supervised], authority: Authority
) -> None:
    server = supervise(*authority.flags("shop", "shop.example"))
    context = authority.context()
    old = meet(server, context).serial
    fresh = authority.issue("shop.example")
    with unanswering(authority.folder / "shop.key"):
        write(authority.folder / "shop.pem", b"".join(blob.bytes() for blob in fresh.cert_chain_pems))
        told = "has not answered for 5 s: the certificates stay as they were"
        assert until(lambda: told in server.errors), server.errors
        assert server.status()["certificates"][0]["names"] == ["shop.example"]
        before = server.settled(1)
        assert "serves with" in server.done("reload")
        assert server.settled(1).isdisjoint(before)
        assert meet(server, context).serial == old
    assert until(lambda: "the files answer again" in server.errors), server.errors
    authority.put("shop", fresh)
    new = certificate(fresh).serial_number
    assert until(lambda: meet(server, context).serial == new), server.errors
    assert server.errors.count(f"{told} until it does") == 1


def test_a_pipe_in_place_of_a_file_stops_nothing(
    supervise: Callable[..., Supervised], authority: Authority
) -> None:
    server = supervise(*authority.flags("shop", "shop.example"))
    context = authority.context()
    old = meet(server, context).serial
    for file in (authority.folder / "shop.pem", authority.folder / "shop.key"):
        file.unlink()
        os.mkfifo(file, 0o600)
    assert until(lambda: "not a plain file" in server.errors), server.errors
    assert server.status()["certificates"]
    assert "serves with" in server.done("reload")
    assert meet(server, context).serial == old
    authority.pair("shop", "shop.example")
    assert until(lambda: meet(server, context).serial != old), server.errors


def test_a_reload_to_certificates_at_fault_is_refused(
    supervise: Callable[..., Supervised], authority: Authority
) -> None:
    toml = tables("tls", table(authority.pair("shop", "shop.example")))
    server = supervise(toml=toml)
    context = authority.context()
    old = meet(server, context).serial
    other = authority.pair("other", "other.example")
    config = server.folder / "milepost.toml"
    config.write_text(tables("tls", table((other[0], authority.folder / "shop.key"))))
    assert "the key is not that of the certificate" in server.refused("reload")
    assert meet(server, context).serial == old
    config.write_text(tables("tls", table(other)))
    assert "serves with" in server.done("reload")
    assert meet(server, context, "other.example").names == ["other.example"]


def acme_clients(server: Supervised) -> list[int]:
    """The processes that obtain certificates, by their threads."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()

    def is_client(pid: str) -> bool:
        try:
            names = [name.read_text() for name in Path(f"/proc/{pid}/task").glob("*/comm")]
        except OSError:
            return False
        return "mp-renewal\n" in names

    return [int(pid) for pid in children if is_client(pid)]


def automatic(storage: Path) -> list[str]:
    """Flags of a server with a certificate of the local authority."""
    return ["--domain", "shop.localhost", "--acme-storage", str(storage)]


def test_an_upgrade_replaces_the_process_that_obtains_certificates(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    wheel = tmp_path / "wheel"
    shutil.copytree(Path(milepost.__file__).parent, wheel / "milepost")
    storage = tmp_path / "storage"
    server = supervise(
        *automatic(storage),
        command=[sys.executable, "-m", "milepost"],
        env={"PYTHONPATH": str(wheel)},
    )
    assert until(lambda: len(acme_clients(server)) == 1)
    for _ in range(2):
        (old,) = acme_clients(server)
        server.done("upgrade")
        server.settled(1)
        assert until(lambda old=old: not Path(f"/proc/{old}").exists()), server.errors
        assert until(lambda: len(acme_clients(server)) == 1), server.errors
    (told,) = server.status()["automatic_certificates"]
    assert told["name"] == "shop.localhost"
    assert not [path for path in (storage / "locks").rglob("*") if path.is_file()]
    assert "is started again" not in server.errors


@pytest.mark.parametrize("fault", ["torn", "other key"])
def test_a_start_mends_an_automatic_certificate(
    supervise: Callable[..., Supervised], tmp_path: Path, fault: str
) -> None:
    storage = tmp_path / "storage"
    chain = storage / "certificates/local/shop.localhost/chain.pem"
    first = supervise(*automatic(storage))
    whole = chain.read_text()
    assert first.stop() == 0
    if fault == "torn":
        chain.write_text(whole[:-40])
    else:
        key = subprocess.check_output(["openssl", "genpkey", "-algorithm", "ED25519"], text=True)
        chain.write_text(key + whole[whole.index("-----BEGIN CERT") :])
    server = supervise(*automatic(storage))
    (line,) = [line for line in server.errors.splitlines() if "cannot be used" in line]
    assert line.startswith("milepost: certificates: `shop.localhost`: `")
    assert "a new certificate of the local authority takes its place" in line
    assert "shop.localhost, by Milepost local authority" in server.errors


def test_certificates_change_under_load_without_a_lost_connection(
    supervise: Callable[..., Supervised], authority: Authority
) -> None:
    server = supervise(*authority.flags("shop", "shop.example"), "--processes", "2")
    server.settled(2)
    context, lost, serials = authority.context(), [], set()
    is_over = threading.Event()

    def call() -> None:
        try:
            with connect(server, context) as sock:
                kept = Client(sock, server.count)
                while not is_over.is_set():
                    assert kept.ask("GET", "/").status == 200
                    serials.add(meet(server, context).serial)
                assert kept.ask("GET", "/").status == 200
        except Exception as error:
            lost.append(error)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    try:
        for _ in range(5):
            leaf = authority.issue("shop.example")
            authority.put("shop", leaf)
            new = certificate(leaf).serial_number
            assert until(lambda new=new: new in serials), server.errors
    finally:
        is_over.set()
        for caller in callers:
            caller.join()
    assert not lost
    assert "stay as they were" not in server.errors
    assert "panicked" not in server.errors


def test_a_key_that_comes_later_is_waited_for_and_said_once(
    supervise: Callable[..., Supervised], authority: Authority
) -> None:
    server = supervise(*authority.flags("shop", "shop.example"))
    context = authority.context()
    old = meet(server, context).serial
    fresh = authority.issue("shop.example")
    key = fresh.private_key_pem.bytes()
    chain = b"".join(blob.bytes() for blob in fresh.cert_chain_pems)
    write(authority.folder / "shop.pem", chain)
    told = "the certificates stay as they were"
    assert until(lambda: told in server.errors)
    assert meet(server, context).serial == old
    # A reload in this state goes on with the old pair too.
    assert "serves with" in server.done("reload")
    assert meet(server, context).serial == old
    write(authority.folder / "shop.key", key)
    new = certificate(fresh).serial_number
    assert until(lambda: meet(server, context).serial == new), server.errors
    assert "certificates have changed: shop.example, by Test Authority, until" in server.errors


def resumes(server: Supervised, context: ssl.SSLContext, met: Met, times: int = 20) -> list[bool]:
    """Whether each of some connections resumes the session."""
    return [meet(server, context, session=met.session).is_resumed for _ in range(times)]


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_sessions_resume_in_every_process_and_after_a_reload(
    supervise: Callable[..., Supervised], authority: Authority, version: str
) -> None:
    server = supervise(*authority.flags("shop", "shop.example"), "--processes", "2")
    server.settled(2)
    context = authority.context(version=version)
    first = meet(server, context)
    assert not first.is_resumed
    pids = set()
    for _ in range(60):
        met = meet(server, context, session=first.session)
        assert met.is_resumed
        pids.add(met.reply.text.split()[1])
    assert len(pids) == 2
    server.done("reload")
    server.settled(2)
    assert all(resumes(server, context, first))
    # A renewed certificate does not end sessions either.
    leaf = authority.issue("shop.example")
    authority.put("shop", leaf)
    new = certificate(leaf).serial_number
    assert until(lambda: meet(server, context).serial == new)
    assert all(resumes(server, context, first))


def test_sessions_resume_after_an_upgrade(
    supervise: Callable[..., Supervised], authority: Authority, tmp_path: Path
) -> None:
    wheel = tmp_path / "wheel"
    shutil.copytree(Path(milepost.__file__).parent, wheel / "milepost")
    server = supervise(
        *authority.flags("shop", "shop.example"),
        command=[sys.executable, "-m", "milepost"],
        env={"PYTHONPATH": str(wheel)},
    )
    old = server.settled(1)
    context = authority.context(version="1.2")
    first = meet(server, context)
    server.done("upgrade")
    assert server.settled(1).isdisjoint(old)
    assert all(resumes(server, context, first))


def test_machines_with_the_same_keys_resume_each_others_sessions(
    supervise: Callable[..., Supervised], authority: Authority
) -> None:
    lines = [subprocess.check_output(["openssl", "rand", "-base64", "48"]) for _ in range(3)]
    keys = write(authority.folder / "tickets", lines[0])
    server = supervise(*authority.flags("shop", "shop.example"), "--tls-ticket-keys", str(keys))
    context = authority.context(version="1.2")
    first = meet(server, context)
    assert all(resumes(server, context, first, 3))
    # Another machine has a newer key in front, and this one behind.
    write(keys, lines[1] + lines[0])
    second = None

    def has_new_tickets() -> bool:
        nonlocal second
        second = meet(server, context)
        return "session tickets have changed" in server.errors

    assert until(has_new_tickets), server.errors
    assert all(resumes(server, context, first, 3))
    newest = meet(server, context)
    write(keys, lines[2] + lines[1])
    assert until(lambda: server.errors.count("session tickets have changed") == 2)
    # Its key is gone: a full handshake, and no error.
    assert until(lambda: not meet(server, context, session=first.session).is_resumed)
    assert all(resumes(server, context, newest, 3))


def test_hsts_is_for_https_alone(supervise: Callable[..., Supervised], authority: Authority) -> None:
    plain, secure = free_port(22_000, 22_500), free_port(22_500, 23_000)
    server = supervise(
        *authority.flags("shop", "shop.example"),
        *("--hsts", "1y, subdomains", "--bind", f"127.0.0.1:{plain} tls=off"),
        bind=f"127.0.0.1:{secure}",
    )
    header = "Strict-Transport-Security"
    met = meet(server, authority.context(), port=secure)
    assert met.reply.header(header) == "max-age=31536000; includeSubDomains"
    over_http = plain_reply(server, plain)
    assert over_http.status == 200
    assert over_http.header(header) is None


def plain_reply(server: Supervised, port: int, target: str = "/", host: str = "shop.example") -> Reply:
    """The reply over plain HTTP."""
    with socket.create_connection(("127.0.0.1", port), 60) as sock:
        client = Client(sock, server.count)
        return client.ask("GET", target, "Connection: close", host=host)


def test_plain_http_is_redirected_to_https(
    supervise: Callable[..., Supervised], authority: Authority
) -> None:
    plain, secure = free_port(22_000, 22_500), free_port(22_500, 23_000)
    server = supervise(
        *authority.flags("shop", "shop.example"),
        *("--https-redirect", "on", "--health-path", "/-/health"),
        *("--bind", f"127.0.0.1:{plain} tls=off"),
        bind=f"127.0.0.1:{secure}",
    )
    reply = plain_reply(server, plain, "/books?id=1", f"shop.example:{plain}")
    assert (reply.status, reply.header("Location")) == (308, f"https://shop.example:{secure}/books?id=1")
    for target in ("/.well-known/acme-challenge/token", "/-/health"):
        assert plain_reply(server, plain, target).status == 200, target
    assert meet(server, authority.context(), port=secure).reply.status == 200


def test_an_ocsp_response_is_stapled(supervise: Callable[..., Supervised], authority: Authority) -> None:
    leaf = authority.issue("shop.example")
    pem, key = authority.put("shop", leaf)
    staple = authority.staple(leaf)
    server = supervise("--tls-cert", str(pem), "--tls-key", str(key), "--tls-ocsp", str(staple))
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{port_of(server)}", "-status"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "OCSP Response Status: successful" in done.stdout, done
    assert "Cert Status: good" in done.stdout


def test_flags_of_gunicorn_and_uvicorn_are_understood(
    supervise: Callable[..., Supervised], authority: Authority
) -> None:
    pem, key = authority.pair("shop", "shop.example")
    server = supervise("--certfile", str(pem), "--keyfile", str(key), "--ssl-version", "2")
    assert meet(server, authority.context()).reply.status == 200
    for flag, reason in [
        (("--ciphers", "HIGH"), "the cipher suites cannot be chosen"),
        (("--ssl-keyfile-password", "x"), "visible to every user of the machine"),
    ]:
        done = run(authority.folder, "check", "app:app", *flag)
        assert reason in done.stderr, done


@pytest.mark.conformance
def test_sslyze_finds_what_mozilla_calls_intermediate(
    supervise: Callable[..., Supervised], authority: Authority
) -> None:
    flags = authority.flags("shop", "shop.example", "localhost")
    server = supervise(*flags, "--hsts", "2y")
    out = authority.folder / "sslyze.json"
    words = [os.environ["SSLYZE"], "--mozilla_config=intermediate", f"--json_out={out}"]
    done = subprocess.run(
        [*words, f"localhost:{port_of(server)}"], capture_output=True, text=True, timeout=250
    )
    told = json.loads(out.read_text())
    (result,) = told["server_scan_results"]
    assert result["scan_status"] == "COMPLETED", done.stdout
    verdict = done.stdout.partition("COMPLIANCE AGAINST TLS CONFIGURATION")[2]
    assert 'Mozilla\'s "intermediate" configuration' in verdict, done.stdout
    # What the certificate of a test cannot have: a public authority, and a life of at most 366 days.
    faults = set(re.findall(r"^ +\* (\w+): ", verdict, re.MULTILINE))
    assert faults <= {"certificate_path_validation", "maximum_certificate_lifespan"}, verdict
    # Connections that only shake hands have no line; the count is the log's.
    server.exchanges = len(server.lines)
