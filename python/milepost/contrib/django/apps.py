# Django may be missing or untyped where the types are checked.
# mypy: disable-error-code="import-not-found, import-untyped, misc"
"""The application for INSTALLED_APPS."""

from django.apps import AppConfig


class MilepostConfig(AppConfig):
    """Has a command and no models."""

    name = "milepost.contrib.django"
    # The last part of the name would be `django`.
    label = "milepost"
