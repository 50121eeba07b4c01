"""Pyramid: `main` makes the application, as `pserve` would call it."""

from pyramid.config import Configurator
from pyramid.response import Response


def index(request):
    return Response("Hello from Pyramid\n", content_type="text/plain")


def book(request):
    return {"number": int(request.matchdict["number"]), "client": request.client_addr}


def main(global_config=None, **settings):
    with Configurator(settings=settings) as config:
        config.add_route("index", "/")
        config.add_route("book", r"/books/{number:\d+}")
        config.add_view(index, route_name="index")
        config.add_view(book, route_name="book", renderer="json")
        return config.make_wsgi_app()
