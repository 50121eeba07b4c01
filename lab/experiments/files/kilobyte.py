"""1 KB, made anew for each request."""

PARTS = [f"<li>{number}</li>" for number in range(100)]


def app(environ, start_response):
    body = "".join(PARTS).encode().ljust(1024, b"x")[:1024]
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "1024")])
    return [body]


application = app
