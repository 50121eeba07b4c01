"""A small bookshop: pages, a JSON endpoint, uploads and a slow endpoint.

It is an ordinary Flask application that knows nothing of the server it runs on, except for one line
in the footer: how long the request waited, as `environ["milepost.phases"]` tells it.

Data (the SQLite file and the uploaded covers) goes to the folder named by BOOKSHOP_DATA, or to
`data` beside this file. The schema and the books are written at the first start.
"""

from __future__ import annotations

import time

from flask import Flask, Response, abort, jsonify, redirect, render_template, request, url_for

import covers
import paint
import shelf

SLOW_MS_MAX = 10_000
BINDINGS = 5
COVER_BYTES_MAX = 20 * 1024 * 1024

# The server itself answers /static (see milepost.toml); Flask only keeps the rule so that
# `url_for("static", ...)` works in the templates and under other servers.
app = Flask(__name__, static_url_path="/static")
app.config["MAX_CONTENT_LENGTH"] = COVER_BYTES_MAX
shelf.prepare()


@app.get("/")
def index() -> str:
    """All books, or those that match `?q=`."""
    words = request.args.get("q", "").strip()
    return render_template("index.html", books=shelf.search(words), words=words)


@app.get("/books/<int:book_id>")
def book(book_id: int) -> str:
    """One book."""
    found = shelf.book(book_id) or abort(404)
    return render_template("book.html", book=found, others=shelf.by_author(found))


@app.get("/api/books")
def api_books() -> Response:
    """The same list as `/`, as JSON."""
    return jsonify(books=[dict(row) for row in shelf.search(request.args.get("q", "").strip())])


@app.get("/uploads")
def uploads() -> str:
    """What was uploaded so far, newest first, and a form for more."""
    return render_template("uploads.html", uploads=shelf.uploads())


@app.post("/uploads")
def upload() -> Response:
    """Keep an uploaded cover; the answer shows its size and SHA-256."""
    file = request.files.get("cover")
    if file is None or not file.filename:
        abort(400, "choose an image first")
    kept = covers.keep(file.filename, file.stream)
    if kept is None:
        abort(415, "a cover is a PNG, JPEG, GIF or WebP image")
    shelf.add_upload(kept)
    return redirect(url_for("uploads"), 303)


@app.get("/covers/<sha256>")
def cover(sha256: str) -> Response:
    """One uploaded image, by its SHA-256. Leaves by `wsgi.file_wrapper`, so by sendfile."""
    found = shelf.upload(sha256) or abort(404)
    return covers.send(found)


@app.get("/window")
def window() -> str:
    """Sixty images on one page: every book in five bindings."""
    return render_template("window.html", books=shelf.search(""), bindings=BINDINGS)


@app.get("/window/<int:book_id>-<int:binding>.png")
def painted(book_id: int, binding: int) -> Response:
    """The cover of a book in one of its bindings."""
    found = shelf.book(book_id)
    if found is None or binding >= BINDINGS:
        abort(404)
    return Response(paint.cover(found["hue"], binding), mimetype="image/png")


@app.get("/slow")
def slow() -> Response:
    """Takes `?ms=` milliseconds (300) of a pool thread, to watch what that does to the others."""
    ms = request.args.get("ms", 300, type=int)
    if not 0 <= ms <= SLOW_MS_MAX:
        abort(400, f"ms is 0 to {SLOW_MS_MAX}")
    time.sleep(ms / 1000)
    return Response(f"That took {ms} ms. Now look at the access log.\n", mimetype="text/plain")


@app.errorhandler(400)
@app.errorhandler(404)
@app.errorhandler(413)
@app.errorhandler(415)
def sorry(error) -> tuple[str, int]:
    """One page for everything that was asked for wrongly."""
    return render_template("sorry.html", error=error), error.code


@app.context_processor
def phases() -> dict[str, object]:
    """How long this request waited before this application had it, if the server tells."""
    return {"phases": request.environ.get("milepost.phases")}
