"""The shop's database: SQLite by the standard library, one short connection per question.

Gives rows; knows nothing of HTTP.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("BOOKSHOP_DATA") or HERE / "data")

SCHEMA = """
CREATE TABLE IF NOT EXISTS book (
    id INTEGER PRIMARY KEY, title TEXT NOT NULL, author TEXT NOT NULL, year INTEGER NOT NULL,
    cents INTEGER NOT NULL, hue INTEGER NOT NULL, blurb TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS upload (
    sha256 TEXT PRIMARY KEY, name TEXT NOT NULL, mime TEXT NOT NULL, bytes INTEGER NOT NULL,
    at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M', 'now')));
"""


class Cover(NamedTuple):
    """An uploaded image, as it is stored."""

    sha256: str
    name: str
    mime: str
    bytes: int


def prepare() -> None:
    """Make the folder, the schema and the first books, unless they are there."""
    DATA.mkdir(parents=True, exist_ok=True)
    with connection() as db:
        # Readers and the one writer do not wait for each other in this mode.
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(SCHEMA)
        books = json.loads((HERE / "books.json").read_text("utf-8"))
        db.executemany(
            "INSERT OR IGNORE INTO book VALUES (:id, :title, :author, :year, :cents, :hue, :blurb)",
            books,
        )


@contextlib.contextmanager
def connection() -> Iterator[sqlite3.Connection]:
    """A connection that commits when all went well, and is closed in any case."""
    db = sqlite3.connect(DATA / "bookshop.sqlite", timeout=5)
    db.row_factory = sqlite3.Row
    try:
        with db:
            yield db
    finally:
        db.close()


def rows(question: str, *values: object) -> list[sqlite3.Row]:
    """All rows of one question."""
    with connection() as db:
        return db.execute(question, values).fetchall()


def search(words: str) -> list[sqlite3.Row]:
    """Books with `words` in title or author, by title; all of them for no words."""
    # `%` and `_` of the visitor are letters, not wildcards.
    plain = words.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    like = f"%{plain}%"
    return rows(
        "SELECT * FROM book WHERE title LIKE ? ESCAPE '\\' OR author LIKE ? ESCAPE '\\' ORDER BY title",
        like,
        like,
    )


def book(book_id: int) -> sqlite3.Row | None:
    """One book, or None."""
    return next(iter(rows("SELECT * FROM book WHERE id = ?", book_id)), None)


def by_author(found: sqlite3.Row) -> list[sqlite3.Row]:
    """Other books by the author of `found`."""
    return rows("SELECT * FROM book WHERE author = ? AND id <> ? ORDER BY year", found["author"], found["id"])


def uploads() -> list[sqlite3.Row]:
    """Everything uploaded, newest first."""
    return rows("SELECT * FROM upload ORDER BY at DESC, rowid DESC")


def upload(sha256: str) -> sqlite3.Row | None:
    """One upload by its SHA-256, or None."""
    return next(iter(rows("SELECT * FROM upload WHERE sha256 = ?", sha256)), None)


def add_upload(cover: Cover) -> None:
    """Note an upload; the same image twice is one row, under its newest name."""
    with connection() as db:
        db.execute(
            "INSERT OR REPLACE INTO upload (sha256, name, mime, bytes) VALUES (?, ?, ?, ?)",
            (cover.sha256, cover.name, cover.mime, cover.bytes),
        )
