"""SQLAlchemy with PostgreSQL, under several processes and --preload."""

import os

from flask import Flask
from sqlalchemy import Column, Identity, Integer, MetaData, Table, create_engine, func, insert, select

# As many connections as worker threads: each thread uses one at a time.
engine = create_engine(os.environ["DATABASE_URL"], pool_size=4, max_overflow=0)
metadata = MetaData()
visits = Table(
    "visits", metadata, Column("id", Integer, Identity(), primary_key=True), Column("process", Integer)
)
# This opens a connection while the application is imported, in the template that is forked later.
metadata.create_all(engine)

app = Flask(__name__)


@app.post("/visits")
def visit():
    with engine.begin() as connection:
        connection.execute(insert(visits).values(process=os.getpid()))
        backend = connection.scalar(select(func.pg_backend_pid()))
    return {"process": os.getpid(), "backend": backend}


@app.get("/visits")
def count():
    with engine.connect() as connection:
        return {"visits": connection.scalar(select(func.count()).select_from(visits))}


def post_fork():
    """The connections of the template stay the template's: forget them without closing them."""
    engine.dispose(close=False)


def worker_exit():
    engine.dispose()
