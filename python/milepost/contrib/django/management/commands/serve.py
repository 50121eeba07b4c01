# mypy: disable-error-code="import-not-found, import-untyped, misc"
"""`manage.py serve`: the project on Milepost, in the place of `runserver`.

Takes the project's settings and the flags of runserver; becomes `milepost serve` with what follows from them.
"""

import importlib.util
import os
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections


class Command(BaseCommand):
    """Checks the project as runserver does, then replaces this process."""

    help = "Serves this project with Milepost. Under DEBUG it reloads changed code and serves static files."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("addrport", nargs="?", help="[ADDRESS:]PORT [default: 127.0.0.1:8000]")
        parser.add_argument(
            "--reload", action="store_true", default=None, help="Restart when code changes [default: DEBUG]"
        )
        parser.add_argument("--noreload", dest="reload", action="store_false", help="Do not")
        parser.add_argument("--nostatic", action="store_true", help="Serve no static files")
        parser.add_argument("--threads", help="Worker threads, as MIN:MAX or one number")
        parser.add_argument("--processes", help="Serving processes, or auto")
        parser.add_argument("--config", help="Configuration file of Milepost")
        parser.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="Any other setting of Milepost, such as access_log=- (repeatable)",
        )
        parser.add_argument("--dry-run", action="store_true", help="Print the command instead")

    def handle(self, *_: Any, **options: Any) -> None:
        command = [sys.executable, "-m", "milepost", *self.words(options)]
        if options["dry_run"]:
            self.stdout.write(" ".join(command))
            return
        if settings.DEBUG:
            self.check_migrations()
        connections.close_all()
        environment = dict(os.environ)
        if options["pythonpath"]:
            known = [options["pythonpath"], environment.get("PYTHONPATH")]
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, known))
        # Options of the interpreter, such as `-X dev` and `-W error`.
        command[1:1] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        sys.stdout.flush()
        os.execve(command[0], command, environment)

    def words(self, options: dict[str, Any]) -> list[str]:
        """The command line behind `milepost`."""
        application, static = self.application(options["nostatic"])
        words = ["serve", application, "--app-dir", project_folder(), *static]
        if options["addrport"]:
            words += ["--bind", address(options["addrport"])]
        if settings.DEBUG if options["reload"] is None else options["reload"]:
            words += ["--reload"]
        for name in ("threads", "processes", "config"):
            if options[name] is not None:
                words += [f"--{name}", str(options[name])]
        for text in options["set"]:
            name, found, value = text.partition("=")
            if not found:
                raise CommandError(f"--set {text}: expected NAME=VALUE (as access_log=-)")
            words.append(f"--{name.replace('_', '-')}={value}")
        return words

    def application(self, nostatic: bool) -> tuple[str, list[str]]:
        """What to serve, and the flags for static files."""
        application = "django.core.wsgi:get_wsgi_application()"
        if settings.WSGI_APPLICATION:
            application = ":".join(settings.WSGI_APPLICATION.rpartition(".")[::2])
        if nostatic or not apps.is_installed("django.contrib.staticfiles"):
            return application, []
        if settings.DEBUG:
            return "milepost.contrib.django.wsgi:with_static_files()", []
        url, root = urlsplit(settings.STATIC_URL or ""), settings.STATIC_ROOT
        if url.netloc or url.path in ("", "/") or not root:
            return application, []
        if not Path(root).is_dir():
            self.stderr.write(f"STATIC_ROOT {root} does not exist: run `manage.py collectstatic`")
            return application, []
        return application, ["--static", f"/{url.path.strip('/')}={root}"]


def project_folder() -> str:
    """Where the project's package is."""
    package = (settings.SETTINGS_MODULE or "").partition(".")[0]
    spec = importlib.util.find_spec(package) if package else None
    if spec is None or spec.origin is None:
        return os.getcwd()
    origin = Path(spec.origin)
    return str(origin.parent.parent if spec.submodule_search_locations else origin.parent)


def address(addrport: str) -> str:
    """As runserver takes it: `0:8000` is every address."""
    host, _, port = addrport.rpartition(":")
    return f"0.0.0.0:{port}" if host == "0" else addrport
