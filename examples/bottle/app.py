"""Bottle: a page, JSON and an upload."""

from bottle import Bottle, request

app = Bottle()


@app.get("/")
def index():
    return "Hello from Bottle\n"


@app.get("/books/<number:int>")
def book(number):
    return {"number": number}


@app.post("/covers")
def cover():
    file = request.files.get("cover")
    return {"name": file.filename, "bytes": len(file.file.read())}
