"""Falcon: resources, JSON and a streamed response. `falcon.App` is WSGI; `falcon.asgi.App` is not served."""

import falcon


class Books:
    def __init__(self):
        self.titles = ["The Dispossessed"]

    def on_get(self, request, response):
        response.media = {"titles": self.titles}

    def on_post(self, request, response):
        self.titles.append(request.get_media()["title"])
        response.status = falcon.HTTP_201


class Export:
    def on_get(self, request, response):
        response.content_type = "text/csv"
        response.stream = (f"{number},{number * number}\n".encode() for number in range(1000))


app = falcon.App()
app.add_route("/books", Books())
app.add_route("/export", Export())
