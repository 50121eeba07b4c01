"""A small shop of books with FastAPI: a database in its lifespan, an upload, a stream of events."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypedDict

from fastapi import FastAPI, HTTPException, Request, status
from fastapi.responses import StreamingResponse
from pydantic import BaseModel


class State(TypedDict):
    database: sqlite3.Connection


class Book(BaseModel):
    title: str
    pages: int


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[State]:
    """The server accepts no request before this has yielded."""
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.execute("CREATE TABLE books (number INTEGER PRIMARY KEY, title TEXT, pages INTEGER)")
    yield {"database": database}
    database.close()


app = FastAPI(lifespan=lifespan)


@app.post("/books", status_code=status.HTTP_201_CREATED)
async def add(request: Request, book: Book) -> dict[str, int | None]:
    database: sqlite3.Connection = request.state.database
    added = database.execute("INSERT INTO books (title, pages) VALUES (?, ?)", (book.title, book.pages))
    return {"number": added.lastrowid}


@app.get("/books/{number}")
async def show(request: Request, number: int) -> Book:
    database: sqlite3.Connection = request.state.database
    row = database.execute("SELECT title, pages FROM books WHERE number = ?", (number,)).fetchone()
    if row is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND)
    return Book(title=row[0], pages=row[1])


@app.put("/covers/{number}")
async def upload(request: Request, number: int) -> dict[str, int]:
    """The body is taken while it arrives: a large one needs no memory."""
    size = 0
    async for piece in request.stream():
        size += len(piece)
    return {"number": number, "bytes": size}


@app.get("/clock")
async def clock() -> StreamingResponse:
    async def ticks() -> AsyncIterator[str]:
        for number in range(1_000_000):
            yield f"data: {number}\n\n"
            await asyncio.sleep(1)

    return StreamingResponse(ticks(), media_type="text/event-stream")
