"""`wsgi.file_wrapper`: what is sent is what reading the file gives, whatever kind of file it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from raw import Client
from serving import Milepost


def test_a_file_on_disk_is_sent_whole(client: Client, tmp_path: Path) -> None:
    data = bytes(range(256)) * 4000
    (tmp_path / "f").write_bytes(data)
    reply = client.ask("GET", f"/file-itself?name={tmp_path}/f")
    assert (reply.body, reply.header("content-length")) == (data, str(len(data)))


def test_an_empty_file_is_an_empty_reply(client: Client, tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    reply = client.ask("GET", f"/file-itself?name={tmp_path}/f")
    assert (reply.status, reply.body, reply.header("content-length")) == (200, b"", "0")


def test_a_file_without_blocks_is_sent_whole(client: Client, tmp_path: Path) -> None:
    with open(tmp_path / "f", "wb") as sparse:
        sparse.truncate(200_000)
    assert client.ask("GET", f"/file-itself?name={tmp_path}/f").body == bytes(200_000)


@pytest.mark.parametrize("name", ["/proc/version", "/sys/kernel/uevent_seqnum", "/sys/kernel/fscaps"])
def test_a_file_that_the_kernel_makes_up_is_read(client: Client, name: str) -> None:
    try:
        before = Path(name).read_bytes()
    except OSError:
        pytest.skip(f"{name} cannot be read here")
    reply = client.ask("GET", f"/file-itself?name={name}")
    assert reply.status == 200
    # A counter may have moved between; its length is what a wrong size would betray.
    assert reply.body
    assert len(reply.body) in range(len(before), len(before) + 3)


def test_a_file_from_its_position_is_sent(client: Client, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    assert client.ask("GET", f"/file?name={tmp_path}/f&from=7").body == b"789"
    assert client.ask("GET", f"/file?name={tmp_path}/f&from=99").body == b""


@pytest.mark.parametrize("size", [100, 1_000_000])
def test_a_part_of_a_file_is_sent_by_its_length(
    client: Client, zoo: Milepost, tmp_path: Path, size: int
) -> None:
    (tmp_path / "f").write_bytes(bytes(2 * size))
    reply = client.ask("GET", f"/file-part?name={tmp_path}/f&length={size}")
    assert (reply.status, reply.body) == (200, bytes(size))
    # PEP 3333 has files end there: nothing is wrong with the application.
    assert client.ask("GET", "/hello").status == 200
    assert "longer than its Content-Length" not in zoo.errors


def test_what_was_written_last_is_sent(client: Client) -> None:
    assert client.ask("GET", "/file-changed").body == b"new" * 1000


def test_what_only_reads_is_read(client: Client) -> None:
    assert len(client.ask("GET", "/file-like").body) == 100_000
    assert client.ask("GET", "/file-without-close").body == b"read only"
    assert client.ask("GET", "/file-wrapper-iterated").body == b"ABCDEFGH"
