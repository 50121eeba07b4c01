"""Milepost beside nginx, granian, gunicorn and bjoern."""
