"""Long jobs run in workers of RQ, beside the server: a request starts one, another asks for its result."""

import os

from flask import Flask, request
from redis import Redis
from rq import Queue
from rq.job import Job
from tasks import render

app = Flask(__name__)
# redis-py opens a connection when it needs one, so each process has its own, also with --preload.
redis = Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
queue = Queue(connection=redis)


@app.post("/pages")
def start():
    job = queue.enqueue(render, request.get_json()["title"])
    return {"id": job.id}, 202


@app.get("/pages/<number>")
def result(number):
    job = Job.fetch(number, connection=redis)
    return {"status": job.get_status().value, "page": job.return_value()}
