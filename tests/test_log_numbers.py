"""Every numbered request has its line once, in order, in its file: while files are renamed under the
server, and when it ends. The checker of `lab log` says so; first it has to find every fault.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from raw import CutShort
from serving import DEADLINE_S, Milepost, until

sys.path.append(str(Path(__file__).resolve().parents[1]))

from lab.log import checker  # noqa: E402
from lab.log.checker import CUT, REPLIED, SPOILED, Asked, Ended, Findings, LogFile, Tail  # noqa: E402

# Two streams of 20 requests, one a second by turns, over midnight: two files of 20 lines.
MIDNIGHT_S = 20_780 * 86_400
BEGAN_S = MIDNIGHT_S - 20
Files = list[list[bytes]]


def line(stream: int, number: int) -> bytes:
    """Delivered half a second after its second."""
    arrived = time.strftime("%Y-%m-%dT%H:%M:%S.250000Z", time.gmtime(BEGAN_S + 2 * number + stream))
    record = {
        "time": arrived,
        "target": f"/f?n={stream}.{number}",
        "status": 200,
        "total": 0.25,
        "end": "complete",
    }
    return json.dumps(record).encode() + b"\n"


def whole() -> Files:
    return [
        [line(stream, number) for number in part for stream in (0, 1)] for part in (range(10), range(10, 20))
    ]


def asked(**ended: str) -> Asked:
    """All of them replied; `s0_3="cut"` says otherwise of one."""
    streams = {stream: [Ended(REPLIED, 1000 * number) for number in range(20)] for stream in (0, 1)}
    for name, how in ended.items():
        stream, number = map(int, name[1:].split("_"))
        streams[stream][number] = Ended(how, 1000 * number)
    return streams


def checked(
    folder: Path, files: Files, requests: Asked, tail: Tail = Tail.WHOLE, other: bytes = b""
) -> Findings:
    """The files end at midnight and 40 seconds later."""
    logs = []
    for place, lines in enumerate(files):
        path = folder / f"{place}"
        path.write_bytes(b"".join(lines))
        logs.append(LogFile(path, (MIDNIGHT_S + 20 * place) * 1_000_000))
    (folder / "stderr").write_bytes(other)
    return checker.check(requests, logs, checker.DAY_US, tail, [folder / "stderr"])


def dropped(files: Files) -> None:
    del files[0][4]


def doubled(files: Files) -> None:
    files[0].insert(4, files[0][4])


def doubled_in_the_next_file(files: Files) -> None:
    files[1].insert(0, line(1, 9))


def swapped(files: Files) -> None:
    files[0][4], files[0][6] = files[0][6], files[0][4]


def torn(files: Files) -> None:
    files[0][4] = files[0][4][:30] + b"\n"


def torn_and_glued_to_the_next(files: Files) -> None:
    files[0][4] = files[0][4][:30]


def torn_over_two_files(files: Files) -> None:
    last = files[0].pop()
    files[0].append(last[:30])
    files[1].insert(0, last[30:])


def without_its_end(files: Files) -> None:
    files[1][-1] = files[1][-1].rstrip(b"\n")


def in_the_file_before(files: Files) -> None:
    files[0].append(files[1].pop(0))


def in_the_file_after(files: Files) -> None:
    files[1].insert(0, files[0].pop())


def never_asked_for(files: Files) -> None:
    files[1].append(line(1, 20))
    files[1].append(line(2, 0))


DAMAGES = [
    (dropped, {"lost": 1}),
    (doubled, {"doubled": 1}),
    # Of another day than the lines after it, as well.
    (doubled_in_the_next_file, {"doubled": 1, "misplaced": 20}),
    (swapped, {"disordered": 1}),
    (torn, {"torn": 1, "lost": 1}),
    (torn_and_glued_to_the_next, {"torn": 1, "lost": 2}),
    (torn_over_two_files, {"torn": 2, "lost": 1}),
    (without_its_end, {"torn": 1, "lost": 1}),
    (in_the_file_before, {"misplaced": 2}),
    (in_the_file_after, {"misplaced": 20}),
    (never_asked_for, {"foreign": 2, "misplaced": 2}),
]


def faults(findings: Findings) -> dict[str, int]:
    return {kind: count for kind, count in findings.faults.items() if count}


@pytest.mark.parametrize(("damage", "expect"), DAMAGES, ids=[damage.__name__ for damage, _ in DAMAGES])
def test_the_checker_finds(tmp_path: Path, damage: Callable[[Files], None], expect: dict[str, int]) -> None:
    files = whole()
    damage(files)
    assert faults(checked(tmp_path, files, asked())) == expect


def test_the_checker_finds_nothing_where_nothing_is(tmp_path: Path) -> None:
    files = whole()
    # Between connections there is no order.
    files[0][4], files[0][5] = files[0][5], files[0][4]
    findings = checked(tmp_path, files, asked(), other=b"warning: nothing to see\n")
    assert faults(findings) == {}
    assert (findings.served, findings.lines, len(findings.days)) == (40, 40, 2)


def test_the_checker_lets_a_request_without_a_reply_have_a_line_or_none(tmp_path: Path) -> None:
    files = whole()
    files[1] = [text for text in files[1] if b"n=1.19" not in text]
    findings = checked(tmp_path, files, asked(s0_19=CUT, s1_19=CUT))
    assert faults(findings) == {}
    assert (findings.served, findings.cut, findings.cut_logged) == (38, 2, 1)


def test_the_checker_looks_elsewhere_too(tmp_path: Path) -> None:
    findings = checked(tmp_path, whole(), asked(s0_3=SPOILED), other=b"error: x\n" + line(0, 3))
    assert faults(findings) == {"misplaced": 1, "spoiled": 1}


def test_the_checker_lets_the_last_line_of_a_killed_writer_be_cut(tmp_path: Path) -> None:
    files = whole()
    files[1][-1] = files[1][-1][:30]
    assert faults(checked(tmp_path, files, asked(), Tail.MAY_BE_CUT)) == {"lost": 1}
    files[0][-1] = files[0][-1][:30]
    assert faults(checked(tmp_path, files, asked(), Tail.MAY_BE_CUT)) == {"torn": 1, "lost": 2}


class Numbered:
    """Connections that ask for the next number as soon as they have the reply to the last."""

    def __init__(self, server: Milepost, connections: int) -> None:
        self.asked: Asked = {stream: [] for stream in range(connections)}
        self._server = server
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(stream,)) for stream in self.asked]
        for thread in self._threads:
            thread.start()

    def replies(self) -> int:
        """How many there were until now."""
        return sum(map(len, self.asked.values()))

    def stop(self) -> None:
        """No more requests."""
        self._over.set()
        self.join()

    def join(self) -> None:
        """Until the server has closed all connections, or `stop`."""
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()

    def _ask(self, stream: int) -> None:
        ended = self.asked[stream]
        # By turns a pool thread and a driver write the record.
        paths = ("/hello", "/static/f")
        with self._server.connect() as client:
            while not self._over.is_set():
                try:
                    reply = client.ask("GET", f"{paths[len(ended) % 2]}?n={stream}.{len(ended)}")
                except (CutShort, OSError):
                    ended.append(Ended(CUT, 0))
                    return
                ended.append(Ended(REPLIED if reply.body == b"hello" else SPOILED, 0))


@contextmanager
def numbered(server: Milepost, connections: int = 6) -> Iterator[Numbered]:
    clients = Numbered(server, connections)
    try:
        yield clients
    finally:
        clients.stop()


def serving(serve: Callable[..., Milepost], folder: Path, *options: str) -> tuple[Milepost, Path]:
    """A server whose log is compared here and not by itself."""
    (folder / "www").mkdir()
    (folder / "www" / "f").write_bytes(b"hello")
    log = folder / "logs" / "access.log"
    log.parent.mkdir()
    options = ("--static", "/static=www", "--access-log", str(log), "--access-log-format", "json", *options)
    return serve("zoo:app", *options, log=None), log


def test_sigterm_under_load_loses_nothing(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    server, log = serving(serve, tmp_path)
    with numbered(server) as clients:
        assert until(lambda: clients.replies() > 600)
        server.signal()
        clients.join()
        assert server.wait() == 0
    findings = checker.check(clients.asked, [LogFile(log)])
    assert faults(findings) == {}, findings.words
    assert findings.served >= 600


def test_sigkill_loses_only_what_had_not_been_written(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    server, log = serving(serve, tmp_path)
    with numbered(server) as clients:
        assert until(lambda: clients.replies() > 300)
        replied = {stream: len(requests) for stream, requests in clients.asked.items()}
        last = [b"n=%d.%d" % (stream, count - 1) for stream, count in replied.items() if count]
        assert until(lambda: all(number in log.read_bytes() for number in last))
        server.process.kill()
        clients.join()
        server.wait()
    findings = checker.check(clients.asked, [LogFile(log)], tail=Tail.MAY_BE_CUT)
    assert findings.wrong == 0, findings.words
    # A stream is in order: with its last line all before it were there.
    assert all(number >= replied[stream] for stream, number in findings.lost), findings.lost
    assert findings.lines - findings.cut_logged + len(findings.lost) == findings.served


def test_renamed_and_rotated_files_have_every_line_once(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    server, log = serving(serve, tmp_path, "--log-rotate-size", "64K", "--log-overflow", "wait")
    renamed = 0
    with numbered(server) as clients:
        for turn in range(20):
            assert until(lambda least=200 * turn: clients.replies() > least)
            try:
                log.rename(log.with_name(f"access.log.renamed.{turn}"))
            except FileNotFoundError:
                continue  # the server is about to rename it by itself
            renamed += 1
            server.signal(signal.SIGUSR1)
            assert until(log.exists)
    assert server.stop() == 0
    files = [LogFile(path) for path in checker.in_order(log.parent.iterdir())]
    (tmp_path / "stderr").write_text(server.errors)
    findings = checker.check(clients.asked, files, others=[tmp_path / "stderr"])
    assert faults(findings) == {}, findings.words
    assert findings.served >= 3800
    assert renamed > 10
    assert len([file for file in files if file.path.name.endswith("Z") or "Z." in file.path.name]) > 0, files
