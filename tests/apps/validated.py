"""An application that keeps PEP 3333, watched by wsgiref.validate for the server's side of it."""

from wsgiref.validate import validator


def inner(environ, start_response):
    """Answers by path; what has no path of its own tells method and length of the body."""
    path = environ["PATH_INFO"]
    if path in ("/nothing", "/not-modified"):
        start_response("204 No Content" if path == "/nothing" else "304 Not Modified", [])
        return []
    if path == "/mistake":
        start_response("200", [])
        return []
    write = start_response("200 OK", [("Content-Type", "text/plain")])
    if path == "/list":
        return [b"a ", b"list"]
    if path == "/generator":
        return (part for part in (b"", b"a ", b"generator"))
    if path == "/write":
        write(b"by write ")
        return [b"and by list"]
    if path == "/empty":
        return []
    if path == "/errors":
        environ["wsgi.errors"].write("written\n")
        environ["wsgi.errors"].writelines(["more\n"])
        environ["wsgi.errors"].flush()
        return [b"written"]
    return [f"{environ['REQUEST_METHOD']} {length(environ['wsgi.input'], path)}".encode()]


def length(source, path):
    """Bytes of the input, read in the way that the path asks for."""
    if path == "/lines":
        return (
            len(source.readline(10))
            + sum(map(len, source.readlines(50)))
            + sum(map(len, source))
            + len(source.read(10))
        )
    return sum(map(len, iter(lambda: source.read(10_000), b"")))


app = validator(inner)
