"""`manage.py serve` in a project as `startproject` makes it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from serving import DEADLINE_S, Milepost, environment, until

pytest.importorskip("django")

VIEWS = "from django.http import HttpResponse\n\ndef word(request):\n    return HttpResponse('one')\n"
URLS = (
    "from django.contrib import admin\nfrom django.urls import path\nfrom shop import views\n"
    "urlpatterns = [path('admin/', admin.site.urls), path('word', views.word)]\n"
)
PRODUCTION = (
    "from shop.settings import *\nDEBUG = False\nALLOWED_HOSTS = ['*']\nSTATIC_ROOT = BASE_DIR / 'files'\n"
)


def manage(folder: Path, *words: str, code: int = 0, **env: str) -> str:
    """What a management command says."""
    done = subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=folder,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == code, done
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("django")
    words = [sys.executable, "-m", "django", "startproject", "shop", str(folder)]
    subprocess.run(words, check=True, capture_output=True)
    settings = folder / "shop/settings.py"
    added = "\nINSTALLED_APPS.append('milepost.contrib.django')\nALLOWED_HOSTS = ['*']\n"
    settings.write_text(settings.read_text() + added)
    (folder / "shop/production.py").write_text(PRODUCTION)
    (folder / "shop/views.py").write_text(VIEWS)
    (folder / "shop/urls.py").write_text(URLS)
    return folder


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path, dirs_exist_ok=True))


def serving(folder: Path, *words: str, **env: str) -> Milepost:
    command = [sys.executable, str(folder / "manage.py")]
    return Milepost(folder, "127.0.0.1:0", *words, command=command, bind=None, log=None, env=env)


def test_under_debug_it_reloads_and_serves_the_files_of_the_apps(project: Path) -> None:
    with serving(project, "--set", "control=off") as server:

        def word() -> str:
            with server.connect() as client:
                return client.ask("GET", "/word", "Connection: close").text

        with server.connect() as client:
            css = client.ask("GET", "/static/admin/css/base.css")
            assert css.status == 200 and "--primary" in css.text
        assert word() == "one"
        (project / "shop/views.py").write_text(VIEWS.replace("one", "two"))
        assert until(lambda: word() == "two"), server.errors


def test_without_debug_collected_files_need_no_python(project: Path) -> None:
    env = {"DJANGO_SETTINGS_MODULE": "shop.production"}
    manage(project, "collectstatic", "--noinput", **env)
    words = ["--threads", "2", "--processes", "2", "--set", "access_log=log"]
    with serving(project, *words, **env) as server:
        with server.connect() as client:
            assert client.ask("GET", "/static/admin/css/base.css").status == 200
            assert client.ask("GET", "/word").text == "one"
        assert server.stop() == 0
    # The line of a file names its mount; that of the application names its thread.
    assert (project / "log").read_text().count("/static/admin/css/base.css") == 1


#: Words, and what the command line has and has not.
LINES = [
    ([], "serve milepost.contrib.django.wsgi:with_static_files() --app-dir {folder} --reload"),
    (
        ["0:80", "--noreload", "--nostatic"],
        "serve shop.wsgi:application --app-dir {folder} --bind 0.0.0.0:80",
    ),
    (
        ["--settings", "shop.production", "--reload"],
        "serve shop.wsgi:application --app-dir {folder} --reload",
    ),
]


@pytest.mark.parametrize(("words", "expect"), LINES, ids=lambda value: " ".join(value)[:30])
def test_the_command_line_follows_from_the_settings(project: Path, words: list[str], expect: str) -> None:
    told = manage(project, "serve", "--dry-run", *words)
    assert f"{sys.executable} -m milepost {expect.format(folder=project)}\n" in told


def test_a_wrong_setting_is_told_by_milepost(project: Path) -> None:
    assert "`--threads`: expected MIN:MAX" in manage(project, "serve", "--threads", "none", code=2)
    assert "expected NAME=VALUE" in manage(project, "serve", "--set", "backlog", code=1)
