# mypy: disable-error-code="import-not-found, import-untyped, no-any-return"
"""The application under DEBUG: the project's own, with the static files of its apps."""

from collections.abc import Callable
from typing import Any

import django


def with_static_files() -> Callable[..., Any]:
    """As runserver has it: files are found in the folders of the apps, without `collectstatic`."""
    django.setup()
    # Only now: they read the settings.
    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.core.servers.basehttp import get_internal_wsgi_application

    return StaticFilesHandler(get_internal_wsgi_application())
