"""A WSGI application whose requests fork; the path says where, the query how the child leaves.

The parent waits for the child where the child is to leave by itself, and answers with its exit code: a
child that stays has no reply.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

from zoo_base import query, text

FORK = multiprocessing.get_context("fork")


def caught_signals():
    """The mask of signals that have a handler, as the kernel tells it."""
    with open("/proc/thread-self/status") as status:
        return [line.split()[1] for line in status if line.startswith(("SigCgt", "SigBlk"))]


IMPORTED = caught_signals()


def leave(environ):
    """What the child does in the application's own code."""
    how = query(environ, "how")
    if how == "raise":
        raise LookupError("raised in the child")
    if how == "exit":
        sys.exit(int(query(environ, "code")))
    if how == "words":
        sys.exit("said by the child")
    if how == "os-exit":
        os._exit(9)
    if how == "atexit":
        atexit.register(os.write, os.open(query(environ, "file"), os.O_WRONLY), b"at exit")
    if how == "thread":
        late = os.open(query(environ, "file"), os.O_WRONLY)
        threading.Thread(target=lambda: (time.sleep(0.1), os.write(late, b"a thread"))).start()
    if how == "interrupted":
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    if how == "signals":
        os._exit(0 if caught_signals() == IMPORTED else 8)
    if how == "descriptors":
        os._exit(sockets())


def sockets():
    """How many TCP sockets this process has."""
    inodes = set()
    with open("/proc/net/tcp") as table:
        inodes = {line.split()[9] for line in table}
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink("/proc/self/fd/" + name)
        except FileNotFoundError:
            continue
        count += target.startswith("socket:[") and target[len("socket:[") : -1] in inodes
    return count


def exit_code(pid):
    """The child's, once it has left."""
    return str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def call(environ, start_response):
    """The child comes back from the application."""
    pid = os.fork()
    if pid == 0:
        leave(environ)
        return text(start_response, "child")
    return text(start_response, exit_code(pid))


def writing(environ, start_response):
    """The child calls write()."""
    write = start_response("200 OK", [])
    pid = os.fork()
    write(exit_code(pid).encode() if pid else b"child")
    return []


def part(environ, start_response):
    """The child gives a part of a streamed reply, or comes to its end."""
    start_response("200 OK", [])

    def parts():
        yield b"first,"
        pid = os.fork()
        if pid == 0:
            leave(environ)
            if query(environ, "how") == "end":
                return
            yield b"child"
        yield exit_code(pid).encode()

    return parts()


class Closing:
    """An iterable that forks in close(); /last tells of the child."""

    last = ""

    def __init__(self, environ):
        self.environ = environ

    def __iter__(self):
        return iter([b"whole"])

    def close(self):
        pid = os.fork()
        if pid == 0:
            leave(self.environ)
            return
        Closing.last = exit_code(pid)


def close(environ, start_response):
    """The child comes back from close()."""
    start_response("200 OK", [("Content-Length", "5")])
    return Closing(environ)


def last(environ, start_response):
    """The exit code of the child of /close."""
    return text(start_response, Closing.last)


def detach():
    """A child that lives on holds no standard stream of the server, which its starter may read to the end."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def sleep():
    """What a child does that lives for long."""
    detach()
    time.sleep(600)


def hold(environ, start_response):
    """A child that lives on, until it is killed; its id."""
    pid = os.fork()
    if pid == 0:
        sleep()
        os._exit(0)
    return text(start_response, str(pid))


def process(environ, start_response):
    """A Process that is ended by a signal right after its start, or by itself; its exit code."""
    how = query(environ, "signal", "term")
    child = FORK.Process(target=abs if how == "none" else sleep, args=(1,) if how == "none" else ())
    child.start()
    if how == "kill":
        child.kill()
    elif how == "term":
        child.terminate()
    child.join(30)
    return text(start_response, str(child.exitcode))


def kept_process(environ, start_response):
    """A Process that nobody waits for; its id."""
    child = FORK.Process(target=sleep, daemon=query(environ, "daemon") == "yes")
    child.start()
    return text(start_response, str(child.pid))


def pool(environ, start_response):
    """A Pool that is ended in the middle of its work."""
    workers = FORK.Pool(2)
    assert workers.map(abs, [-1, -2]) == [1, 2]
    workers.close()
    workers.join()
    workers = FORK.Pool(2)
    workers.map_async(time.sleep, [600, 600])
    workers.terminate()
    workers.join()
    return text(start_response, "terminated")


def program(environ, start_response):
    """Programs, started with and without a fork of the interpreter."""
    plain = subprocess.run(["echo", "plain"], capture_output=True, check=True)
    prepared = subprocess.run(["echo", "prepared"], capture_output=True, check=True, preexec_fn=lambda: None)
    return text(start_response, plain.stdout + prepared.stdout)


def stream(environ, start_response):
    """A part, and a rest that does not come."""
    start_response("200 OK", [])

    def parts():
        yield b"part"
        if query(environ, "then") == "raise":
            raise LookupError("in the middle")

    return parts()


def hello(environ, start_response):
    """Which process answers."""
    return text(start_response, str(os.getpid()))


PATHS = {
    "/call": call,
    "/writing": writing,
    "/part": part,
    "/close": close,
    "/last": last,
    "/hold": hold,
    "/process": process,
    "/kept-process": kept_process,
    "/pool": pool,
    "/program": program,
    "/stream": stream,
    "/hello": hello,
}


def app(environ, start_response):
    """The application."""
    return PATHS[environ["PATH_INFO"]](environ, start_response)
