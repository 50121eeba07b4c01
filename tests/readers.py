"""Readers of requests as many servers read them: one by the letter, and those that forgive something.

Takes all bytes of a connection; gives the requests in them. What a proxy sends must be the same to all.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Reader(NamedTuple):
    """What a server forgives."""

    #: What ends a line.
    line_end: bytes = rb"\r\n"
    #: A length counts even where there is a coding.
    prefers_length: bool = False
    #: Of several lengths the last one counts, otherwise the first.
    takes_last: bool = False
    #: `_` in a name is `-`, and blanks around it do not count.
    folds_names: bool = False
    #: Anything in which `chunked` stands.
    guesses_coding: bool = False
    is_strict: bool = False


READERS = {
    "strict": Reader(is_strict=True),
    "line feeds": Reader(line_end=rb"\r?\n"),
    "carriage returns": Reader(line_end=rb"\r\n|\r(?!\n)|\n"),
    "lengths": Reader(line_end=rb"\r?\n", prefers_length=True),
    "last lengths": Reader(prefers_length=True, takes_last=True),
    "names as in environ": Reader(folds_names=True, takes_last=True),
    "guesses": Reader(line_end=rb"\r?\n", folds_names=True, guesses_coding=True),
}

TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def read(raw: bytes, reader: Reader) -> list[tuple[str, str, bytes]]:
    """Method, target and body of each whole request."""
    requests = []
    while raw:
        end = re.search(b"(?:%s)(?:%s)" % (reader.line_end, reader.line_end), raw)
        if end is None:
            break
        line, *fields = re.split(reader.line_end, raw[: end.start()])
        body, rest = _body(fields, raw[end.end() :], reader)
        if body is None:
            break
        words = line.decode("latin-1").split(" ")
        if reader.is_strict:
            assert len(words) == 3 and words[2] == "HTTP/1.1", line
        requests.append((words[0], words[1], body))
        raw = rest
    return requests


def _body(fields: list[bytes], rest: bytes, reader: Reader) -> tuple[bytes | None, bytes]:
    """The body, and what is behind it; `None`: it is not whole."""
    values: dict[bytes, list[bytes]] = {}
    for field in fields:
        name, colon, value = field.partition(b":")
        if reader.is_strict:
            assert colon and TOKEN.fullmatch(name), field
            assert not re.search(rb"[\0\r\n]", value), field
        if reader.folds_names:
            name = name.strip().replace(b"_", b"-")
        values.setdefault(name.lower(), []).append(value.strip(b" \t"))
    lengths, codings = values.get(b"content-length", []), values.get(b"transfer-encoding", [])
    if reader.is_strict:
        assert len(lengths) + len(codings) <= 1, fields
        assert all(re.fullmatch(rb"[0-9]{1,18}", length) for length in lengths), fields
        assert codings in ([], [b"chunked"]), fields
    is_chunked = any(coding.lower() == b"chunked" for coding in codings)
    if reader.guesses_coding:
        is_chunked = any(b"chunked" in coding.lower() for coding in codings)
    if lengths and (reader.prefers_length or not is_chunked):
        digits = re.match(rb"[0-9]*", lengths[-1 if reader.takes_last else 0])
        length = int(digits[0] or b"0") if digits else 0
        return (rest[:length], rest[length:]) if len(rest) >= length else (None, rest)
    return _chunks(rest, reader) if is_chunked else (b"", rest)


def _chunks(rest: bytes, reader: Reader) -> tuple[bytes | None, bytes]:
    body = b""
    while (line := re.match(b"(.*?)(?:%s)" % reader.line_end, rest, re.DOTALL)) is not None:
        if reader.is_strict:
            assert re.fullmatch(rb"[0-9a-fA-F]{1,16}", line[1]), line[1]
        digits = re.match(rb"[0-9a-fA-F]*", line[1])
        size = int(digits[0] or b"0", 16) if digits else 0
        rest = rest[line.end() :]
        if size == 0:
            return body, rest.partition(b"\r\n")[2]
        if len(rest) < size + 2:
            break
        if reader.is_strict:
            assert rest[size : size + 2] == b"\r\n", rest
        body += rest[:size]
        rest = rest[size + 2 :]
    return None, rest
