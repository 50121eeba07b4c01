"""A Django project, made here as `startproject` makes one: pages, sessions, admin, uploads, ORM."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from raw import Client, Reply, chunked, request
from serving import Milepost

SETTINGS = """
from pathlib import Path
BASE_DIR = Path(__file__).resolve().parent.parent
SECRET_KEY = "for tests only"
DEBUG = False
ALLOWED_HOSTS = ["test"]
ROOT_URLCONF = "shop.urls"
WSGI_APPLICATION = "shop.wsgi.application"
INSTALLED_APPS = ["django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
                  "django.contrib.sessions", "django.contrib.messages", "django.contrib.staticfiles", "stock"]
MIDDLEWARE = ["django.middleware.security.SecurityMiddleware",
              "django.contrib.sessions.middleware.SessionMiddleware",
              "django.middleware.common.CommonMiddleware", "django.middleware.csrf.CsrfViewMiddleware",
              "django.contrib.auth.middleware.AuthenticationMiddleware",
              "django.contrib.messages.middleware.MessageMiddleware", "django.middleware.gzip.GZipMiddleware"]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
              "OPTIONS": {"context_processors": ["django.template.context_processors.request",
              "django.contrib.auth.context_processors.auth",
              "django.contrib.messages.context_processors.messages"]}}]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "db.sqlite3",
             "OPTIONS": {"timeout": 60, "transaction_mode": "IMMEDIATE"}}}
STATIC_URL = "/static/"
STATIC_ROOT = BASE_DIR / "collected"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
"""
MODELS = """
from django.db import models
class Book(models.Model):
    title = models.CharField(max_length=100)
    def __str__(self):
        return self.title
"""
VIEWS = """
import hashlib, json
from django.http import FileResponse, HttpResponse, JsonResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt
from stock.models import Book

def hello(request):
    return HttpResponse("hello " + request.method)
def count(request):
    request.session["count"] = request.session.get("count", 0) + 1
    return JsonResponse({"count": request.session["count"]})
@csrf_exempt
def books(request):
    if request.method == "POST":
        book = Book.objects.create(title=json.loads(request.body)["title"])
        return JsonResponse({"id": book.pk}, status=201)
    return JsonResponse({"titles": list(Book.objects.order_by("pk").values_list("title", flat=True))})
@csrf_exempt
def upload(request):
    file = request.FILES["file"]
    digest = hashlib.sha256()
    for chunk in file.chunks():
        digest.update(chunk)
    facts = {"name": file.name, "bytes": file.size, "note": request.POST["note"]}
    return JsonResponse(facts | {"sha256": digest.hexdigest()})
def stream(request):
    return StreamingHttpResponse(f"line {n}\\n" for n in range(1000))
def file(request):
    return FileResponse(open(__file__, "rb"), as_attachment=True, filename="views.py")
def fail(request):
    raise RuntimeError("a secret of the shop")
def where(request, rest):
    names = {"path": request.path, "info": request.path_info, "script": request.META["SCRIPT_NAME"]}
    return JsonResponse(names | {"uri": request.build_absolute_uri()})
"""
URLS = """
from django.contrib import admin
from django.urls import path, re_path
from stock import views
urlpatterns = [path("admin/", admin.site.urls), path("hello", views.hello), path("count", views.count),
    path("books", views.books), path("upload", views.upload), path("stream", views.stream),
    path("file", views.file), path("fail", views.fail),
    re_path("^where/(.*)$", views.where)]
"""

# Long, because Django looks for it everywhere in the random bytes of an upload.
BOUNDARY = b"a-boundary-that-no-random-bytes-contain"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("django")

    def manage(*arguments: str, **env: str) -> None:
        subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=folder,
            env=os.environ | env,
            check=True,
            capture_output=True,
        )

    subprocess.run(
        [sys.executable, "-m", "django", "startproject", "shop", "."],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    manage("startapp", "stock")
    (folder / "shop" / "settings.py").write_text(SETTINGS)
    (folder / "shop" / "urls.py").write_text(URLS)
    (folder / "stock" / "models.py").write_text(MODELS)
    (folder / "stock" / "views.py").write_text(VIEWS)
    (folder / "stock" / "admin.py").write_text(
        "from django.contrib import admin\nfrom stock.models import Book\nadmin.site.register(Book)\n"
    )
    manage("makemigrations", "stock")
    manage("migrate")
    manage("collectstatic", "--noinput")
    manage(
        "createsuperuser",
        "--noinput",
        "--username",
        "root",
        "--email",
        "r@example.org",
        DJANGO_SUPERUSER_PASSWORD="pass",
    )
    return folder


@pytest.fixture(scope="module")
def shop(project: Path) -> Iterator[Milepost]:
    # Exactly what Django's own documents name for every other server.
    with Milepost(
        project, "shop.wsgi:application", "--static", "/static=collected", "--threads", "4:4"
    ) as server:
        yield server


@pytest.fixture
def client(shop: Milepost) -> Iterator[Client]:
    with shop.connect() as connection:
        yield connection


def seen(reply: Reply) -> dict:
    assert reply.status in (200, 201), reply
    return json.loads(reply.body)


def test_pages_are_served(client: Client) -> None:
    assert client.ask("GET", "/hello").body == b"hello GET"
    assert client.ask("HEAD", "/hello").header("content-length") == "10"
    assert client.ask("GET", "/absent").status == 404
    assert client.ask("GET", "/hello", host="evil").status == 400


def test_sessions_are_kept_per_visitor(shop: Milepost) -> None:
    visitors = [shop.connect() for _ in range(3)]
    cookies: list[tuple[str, ...]] = [()] * 3
    for expected in (1, 2, 3):
        for n, visitor in enumerate(visitors):
            reply = visitor.ask("GET", "/count", *cookies[n])
            assert seen(reply)["count"] == expected
            if set_cookie := reply.header("set-cookie"):
                cookies[n] = ("Cookie: " + set_cookie.partition(";")[0],)
    for visitor in visitors:
        visitor.sock.close()


def test_the_database_is_written_from_all_threads(shop: Milepost) -> None:
    clients = [shop.connect() for _ in range(8)]
    for n, client in enumerate(clients):
        body = json.dumps({"title": f"book {n}"}).encode()
        client.send(request("POST", "/books", "Content-Type: application/json", body=body))
    assert len({seen(client.reply())["id"] for client in clients}) == 8
    assert sorted(seen(clients[0].ask("GET", "/books"))["titles"]) == [f"book {n}" for n in range(8)]
    for client in clients:
        client.sock.close()


@pytest.mark.parametrize("size", [100, 4_000_000])
def test_uploads_arrive_whole(client: Client, size: int) -> None:
    content = os.urandom(size)
    body = (
        b'--%b\r\nContent-Disposition: form-data; name="note"\r\n\r\nof a test\r\n--%b\r\n'
        b'Content-Disposition: form-data; name="file"; filename="up.bin"\r\n\r\n%b\r\n--%b--\r\n'
    ) % (BOUNDARY, BOUNDARY, content, BOUNDARY)
    kind = f"Content-Type: multipart/form-data; boundary={BOUNDARY.decode()}"
    client.send(request("POST", "/upload", kind, body=body))
    expected = {
        "name": "up.bin",
        "bytes": size,
        "sha256": hashlib.sha256(content).hexdigest(),
        "note": "of a test",
    }
    assert seen(client.reply()) == expected
    # Django reads CONTENT_LENGTH only; for a chunked body the server supplies it.
    client.send(
        request("POST", "/upload", kind, "Transfer-Encoding: chunked")
        + chunked(*(body[at : at + 99_999] for at in range(0, len(body), 99_999)))
    )
    assert seen(client.reply()) == expected


def test_streams_and_files_are_sent(client: Client, project: Path) -> None:
    assert client.ask("GET", "/stream").body.splitlines()[999] == b"line 999"
    reply = client.ask("GET", "/file")
    assert reply.body == (project / "stock" / "views.py").read_bytes()
    assert reply.header("content-disposition") == 'attachment; filename="views.py"'


def test_a_failure_is_djangos_500_page(client: Client) -> None:
    reply = client.ask("GET", "/fail")
    assert reply.status == 500
    assert b"secret" not in reply.body


def test_compression_is_djangos(client: Client) -> None:
    reply = client.ask("GET", "/stream", "Accept-Encoding: gzip")
    assert reply.header("content-encoding") == "gzip"
    assert gzip.decompress(reply.body).splitlines()[0] == b"line 0"


def test_static_files_come_from_the_server(client: Client) -> None:
    reply = client.ask("GET", "/static/admin/css/base.css")
    assert reply.status == 200
    assert reply.header("content-type").startswith("text/css")
    assert reply.header("etag")
    assert reply.header("x-content-type-options") is None


def test_the_admin_lets_a_user_in_and_add_a_book(client: Client) -> None:
    jar: dict[str, str] = {}

    def ask(method: str, target: str, **form: str) -> Reply:
        headers = ["Referer: http://test/admin/"]
        if jar:
            headers.append("Cookie: " + "; ".join(f"{k}={v}" for k, v in jar.items()))
        body = None
        if form:
            headers.append("Content-Type: application/x-www-form-urlencoded")
            body = urllib.parse.urlencode(form).encode()
        reply = client.ask(method, target, *headers, body=body)
        for cookie in reply.all("set-cookie"):
            name, _, value = cookie.partition(";")[0].partition("=")
            jar[name] = value
        return reply

    def token(reply: Reply) -> str:
        return re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', reply.text)[1]

    assert ask("GET", "/admin/").status == 302
    login = ask("GET", "/admin/login/?next=/admin/")
    entered = ask(
        "POST",
        "/admin/login/?next=/admin/",
        username="root",
        password="pass",
        csrfmiddlewaretoken=token(login),
        next="/admin/",
    )
    assert (entered.status, entered.header("location")) == (302, "/admin/")
    assert "Site administration" in ask("GET", "/admin/").text
    form = ask("GET", "/admin/stock/book/add/")
    added = ask("POST", "/admin/stock/book/add/", title="from the admin", csrfmiddlewaretoken=token(form))
    assert (added.status, added.header("location")) == (302, "/admin/stock/book/")
    assert "from the admin" in ask("GET", "/admin/stock/book/").text


def test_paths_are_what_django_expects(client: Client) -> None:
    got = seen(client.ask("GET", "/where/caf%C3%A9%20x?q=1"))
    assert got["path"] == got["info"] == "/where/café x"
    assert got["uri"] == "http://test/where/caf%C3%A9%20x?q=1"


def test_a_root_path_is_djangos_script_name(project: Path, serve) -> None:
    server = serve("shop.wsgi:application", "--app-dir", str(project), "--root-path", "/prefix")
    with server.connect() as client:
        got = seen(client.ask("GET", "/prefix/where/x"))
        assert (got["script"], got["path"], got["info"]) == ("/prefix", "/prefix/where/x", "/where/x")
