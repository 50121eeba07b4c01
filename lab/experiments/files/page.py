"""A page of 200 bytes."""

PAGE = b"x" * 200


def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/html"), ("Content-Length", "200")])
    return [PAGE]
