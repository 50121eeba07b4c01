"""An application that answers every path with its environ as JSON."""

from zoo_environ import environ as app

__all__ = ["app"]
