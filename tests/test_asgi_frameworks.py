"""Frameworks that speak ASGI, each with a small application: pages, bodies, streams, files, the lifespan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raw import Client
from serving import LOOPS, Milepost, until

pytest.importorskip("starlette")

STARLETTE = """
import contextlib
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

marks = []

@contextlib.asynccontextmanager
async def lifespan(app):
    yield {"word": "of the lifespan"}

async def page(request):
    query = request.query_params
    return JSONResponse({"word": request.state.word, "client": request.client.host, "q": query["q"]})

async def echo(request):
    return PlainTextResponse(await request.body())

async def pieces():
    for number in range(3):
        yield f"{number}\\n"

async def stream(request):
    return StreamingResponse(pieces(), media_type="text/plain")

async def watched(request):
    async def until_disconnected():
        for number in range(3):
            if not await request.is_disconnected():
                yield f"{number}\\n"
    return StreamingResponse(until_disconnected(), media_type="text/plain")

async def file(request):
    return FileResponse("file.txt", background=BackgroundTask(marks.append, "sent"))

def plain(request):
    return JSONResponse(marks)

async def fails(request):
    1 / 0

async def tag(request, call_next):
    response = await call_next(request)
    response.headers["x-tag"] = "yes"
    return response

pages = (page, echo, stream, watched, file, plain, fails)
app = Starlette(
    routes=[Route(f"/{one.__name__}", one, methods=["GET", "POST"]) for one in pages],
    lifespan=lifespan,
    middleware=[Middleware(BaseHTTPMiddleware, dispatch=tag)],
)
"""

FASTAPI = """
import contextlib
from fastapi import FastAPI, Request, UploadFile
from fastapi.responses import FileResponse, StreamingResponse

words = {}

@contextlib.asynccontextmanager
async def lifespan(app):
    words["word"] = "of the lifespan"
    yield

app = FastAPI(lifespan=lifespan)

@app.get("/page")
async def page(q: int, request: Request):
    return {"word": words["word"], "client": request.client.host, "q": str(q)}

@app.post("/echo")
async def echo(request: Request):
    from fastapi import Response
    return Response(await request.body())

def pieces():
    yield from ("0\\n", "1\\n", "2\\n")

@app.get("/stream")
def stream():
    return StreamingResponse(pieces(), media_type="text/plain")

@app.get("/watched")
async def watched(request: Request):
    async def until_disconnected():
        for number in range(3):
            if not await request.is_disconnected():
                yield f"{number}\\n"
    return StreamingResponse(until_disconnected(), media_type="text/plain")

@app.get("/file")
async def file():
    return FileResponse("file.txt")

@app.get("/fails")
def fails():
    1 / 0
"""

DJANGO = """
import asyncio
import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import FileResponse, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path

settings.configure(ROOT_URLCONF=__name__, SECRET_KEY="k", ALLOWED_HOSTS=["*"], DEBUG=False)

async def page(request):
    await asyncio.sleep(0)
    client = request.META["REMOTE_ADDR"]
    return JsonResponse({"word": "of the lifespan", "client": client, "q": request.GET["q"]})

def echo(request):
    return HttpResponse(request.body)

async def pieces():
    for number in range(3):
        yield f"{number}\\n"

async def stream(request):
    return StreamingHttpResponse(pieces(), content_type="text/plain")

async def file(request):
    return FileResponse(open("file.txt", "rb"))

async def fails(request):
    1 / 0

urlpatterns = [path(one.__name__, one) for one in (page, echo, stream, file, fails)]
app = get_asgi_application()
"""

LITESTAR = """
from litestar import Litestar, Request, get, post
from litestar.response import File, Stream

words = {}

@get("/page")
async def page(q: str, request: Request) -> dict[str, str]:
    return {"word": words["word"], "client": request.client.host, "q": q}

@post("/echo", status_code=200, media_type="text/plain")
async def echo(request: Request) -> bytes:
    return await request.body()

async def pieces():
    for number in range(3):
        yield f"{number}\\n"

@get("/stream")
async def stream() -> Stream:
    return Stream(pieces(), media_type="text/plain")

@get("/file")
async def file() -> File:
    return File(path="file.txt")

@get("/fails")
async def fails() -> None:
    1 / 0

app = Litestar([page, echo, stream, file, fails], on_startup=[lambda: words.update(word="of the lifespan")])
"""

QUART = """
from quart import Quart, jsonify, request, send_file

app = Quart(__name__)
words = {}

@app.before_serving
async def startup():
    words["word"] = "of the lifespan"

@app.get("/page")
async def page():
    return jsonify(word=words["word"], client=request.remote_addr, q=request.args["q"])

@app.post("/echo")
async def echo():
    return await request.get_data()

@app.get("/stream")
async def stream():
    async def pieces():
        for number in range(3):
            yield f"{number}\\n"
    return pieces(), 200, {"content-type": "text/plain"}

@app.get("/file")
async def file():
    return await send_file("file.txt")

@app.get("/fails")
async def fails():
    1 / 0
"""

FALCON = """
import falcon.asgi

words = {}

class Lifespan:
    async def process_startup(self, scope, event):
        words["word"] = "of the lifespan"

class Page:
    async def on_get(self, req, resp):
        resp.media = {"word": words["word"], "client": req.remote_addr, "q": req.params["q"]}

class Echo:
    async def on_post(self, req, resp):
        resp.data = await req.stream.read()

class Stream:
    async def on_get(self, req, resp):
        async def pieces():
            for number in range(3):
                yield f"{number}\\n".encode()
        resp.content_type = "text/plain"
        resp.stream = pieces()

class File:
    async def on_get(self, req, resp):
        with open("file.txt", "rb") as file:
            resp.data = file.read()

class Fails:
    async def on_get(self, req, resp):
        1 / 0

app = falcon.asgi.App(middleware=[Lifespan()])
for one in (Page, Echo, Stream, File, Fails):
    app.add_route(f"/{one.__name__.lower()}", one())
"""

BLACKSHEEP = """
from blacksheep import Application, Content, Request, Response, StreamedContent

app = Application()
words = {}

@app.on_start
async def start(application):
    words["word"] = "of the lifespan"

@app.router.get("/page")
async def page(request: Request, q: str):
    return {"word": words["word"], "client": request.original_client_ip, "q": q}

@app.router.post("/echo")
async def echo(request: Request):
    return Response(200, content=Content(b"application/octet-stream", await request.read() or b""))

async def pieces():
    for number in range(3):
        yield f"{number}\\n".encode()

@app.router.get("/stream")
async def stream():
    return Response(200, content=StreamedContent(b"text/plain", pieces))

@app.router.get("/file")
async def file():
    with open("file.txt", "rb") as opened:
        return Response(200, content=Content(b"text/plain", opened.read()))

@app.router.get("/fails")
async def fails():
    1 / 0
"""

APPS = {
    "blacksheep": BLACKSHEEP,
    "starlette": STARLETTE,
    "fastapi": FASTAPI,
    "django": DJANGO,
    "litestar": LITESTAR,
    "quart": QUART,
    "falcon": FALCON,
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("framework", APPS)
def test_a_framework_is_served_unmodified(serve, tmp_path: Path, framework: str, loop: str) -> None:
    pytest.importorskip(framework)
    (tmp_path / "app.py").write_text(APPS[framework])
    content = "".join(f"line {number}\n" for number in range(20_000)).encode()
    (tmp_path / "file.txt").write_bytes(content)
    server: Milepost = serve("app:app", "--loop", loop, "--body-memory-max", "64K")
    assert f"ASGI on an event loop ({loop})" in server.errors
    with server.connect() as client:
        for _ in range(3):
            walk(client, content)
        if framework in ("starlette", "fastapi"):
            # It waits for the end of the client twice at a time: the response does, and the application.
            assert client.ask("GET", "/watched").body == b"0\n1\n2\n"
        if framework == "starlette":
            assert client.ask("GET", "/page?q=1").header("x-tag") == "yes"
            assert until(lambda: json.loads(client.ask("GET", "/plain").body).count("sent") >= 3)
        assert client.ask("GET", "/nowhere").status == 404
    assert server.stop() == 0
    # These answer with 500 themselves.
    assert "ZeroDivisionError" in server.errors or framework in ("blacksheep", "django", "litestar")
    assert "of the application failed" not in server.errors
    assert "Task was destroyed" not in server.errors


def walk(client: Client, content: bytes) -> None:
    page = client.ask("GET", "/page?q=7")
    assert page.status == 200, page
    assert json.loads(page.body) == {"word": "of the lifespan", "client": "127.0.0.1", "q": "7"}
    for size in (0, 10, 300_000):
        reply = client.ask("POST", "/echo", "Content-Type: application/octet-stream", body=b"e" * size)
        assert (reply.status, reply.body) == (200, b"e" * size)
    stream = client.ask("GET", "/stream")
    assert (stream.status, stream.body, stream.framing) == (200, b"0\n1\n2\n", "chunked")
    assert client.ask("GET", "/file").body == content
    assert client.ask("GET", "/fails").status == 500
