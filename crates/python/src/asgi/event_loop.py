"""The event loop of an ASGI application, and the application's lifespan: what is done once for each process.

Embedded by mod.rs. A `Fault` says why an application cannot be served.
"""

import asyncio
import concurrent.futures
import contextvars
import gc
import importlib.util
import os
import selectors
import signal
import sys
import sysconfig
import traceback
import types


class Fault(Exception):
    """Why the application was not started: the cause, what to do about it, and a traceback."""

    def __init__(self, cause, hint=None, detail=None):
        super().__init__(cause)
        self.cause, self.hint, self.detail = cause, hint, detail


def has_uvloop(is_asked_for):
    """Whether uvloop can be used. Unasked it is not used where it would switch the GIL on."""
    if sysconfig.get_config_var("Py_GIL_DISABLED") and not is_asked_for:
        return False
    return importlib.util.find_spec("uvloop") is not None


def new_loop(kind):
    """A new event loop, which is that of this thread."""
    # The supervisor handles a Ctrl-C; Python's own handler would end the loop.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    before = signal.SIG_DFL if before is None else before
    # A child that the application forks handles its own.
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGINT, before))
    if kind == "uvloop":
        import uvloop

        loop = uvloop.new_event_loop()
    else:
        loop = Loop()
    asyncio.set_event_loop(loop)
    loop.set_default_executor(executor)
    return loop


class Loop(asyncio.SelectorEventLoop):
    """The loop of asyncio, with a selector of ours."""

    def __init__(self):
        self.selector = Selector()
        super().__init__(self.selector)


class Selector(selectors.EpollSelector):
    """Looks for requests before it waits, so that nobody has to wake a loop that is awake."""

    def __init__(self):
        super().__init__()
        # By descriptor, for `server.select`: where the base class has them is private to it.
        self.keys = {}
        self.server = None
        # Why it can wait for no descriptor any more.
        self.failure = None

    def register(self, fileobj, events, data=None):
        key = super().register(fileobj, events, data)
        self.keys[key.fd] = key
        return key

    def unregister(self, fileobj):
        key = super().unregister(fileobj)
        self.keys.pop(key.fd, None)
        return key

    def modify(self, fileobj, events, data=None):
        key = super().modify(fileobj, events, data)
        self.keys[key.fd] = key
        return key

    def select(self, timeout=None):
        if self.server is None:
            return super().select(timeout)
        try:
            return self.server.select(self.fileno(), self.keys, timeout)
        except OSError as error:
            self.failure = error
            raise


#: What `run_in_executor(None, ...)` and `asyncio.to_thread` use: that of asyncio itself, but within reach.
executor = concurrent.futures.ThreadPoolExecutor(thread_name_prefix="asyncio")


def count_threads(loop, server):
    """Counts the threads that the application uses for functions that are not async."""
    anyio = sys.modules.get("anyio.to_thread")
    if anyio is None:
        server.threads_counted([0, 0, 0], of_executor())
    else:
        # Only a task can ask it.
        loop.create_task(count_all(anyio, server))


async def count_all(anyio, server):
    try:
        known = anyio.current_default_thread_limiter().statistics()
        of_anyio = known.borrowed_tokens, min(known.total_tokens, 1 << 32), known.tasks_waiting
        found = [int(number) for number in of_anyio]
    except Exception:
        # Another version may have other names: then nothing is shown.
        found = [0, 0, 0]
    server.threads_counted(found, of_executor())


def of_executor():
    """Threads, most threads, and calls that wait for one."""
    try:
        return [len(executor._threads), executor._max_workers, executor._work_queue.qsize()]
    except AttributeError:
        return [0, 0, 0]


def start(loop, applications, mode, timeout, watch):
    """The lifespans of applications, after the startup of each. If one fails, those before it end."""
    lifespans = []
    for application in applications:
        lifespan = Lifespan(*application)
        if mode != "off":
            watch.begin(lifespan.name)
            try:
                loop.run_until_complete(lifespan.startup(mode, timeout))
            except Fault:
                watch.end()
                end = loop.time() + timeout
                loop.run_until_complete(lifespan.unwind(timeout))
                loop.run_until_complete(
                    shutdown(
                        lifespans,
                        lambda text: print(f"milepost: {text}", file=sys.stderr),
                        lambda: end - loop.time(),
                        f"longer than {timeout:g} s",
                    )
                )
                raise
            watch.end()
        lifespans.append(lifespan)
    return lifespans


#: How often the end of a process looks how long it still has: a second signal leaves less.
LOOK_S = 0.1


async def shutdown(lifespans, log, time_left, limit):
    """The end of all lifespans at the same time, so that none of them keeps another one from its own.

    The last one hears of it first. Says which took longer than `limit`: have not ended when no time is left.
    """
    tasks = {asyncio.ensure_future(one.shutdown(log)): one for one in reversed(lifespans)}
    left = set(tasks)
    while left and ((secs := time_left()) is None or secs > 0):
        timeout = LOOK_S if secs is None else min(secs, LOOK_S)
        _, left = await asyncio.wait(left, timeout=timeout)
    for task, lifespan in tasks.items():
        if task in left:
            place = innermost(lifespan.task)
            log(f"the shutdown of {lifespan.name} took {limit}, in {place}")
            lifespan.task.cancel()
            task.cancel()
    for error in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(error, Exception):
            log(f"the end of a lifespan failed: {text_of(error)}")


def run(loop, server, lifespans):
    """Runs the loop until the server has no more requests, and ends it."""
    if isinstance(loop, Loop):
        server.begin_selecting(loop.selector.fileno())
        loop.selector.server = server
    else:
        loop.add_reader(server.fileno(), server.wake)
        loop.call_soon(server.look)
    server.watch_slow()
    # Whatever the application does with it, the loop runs until the server has ended.
    while not server.has_ended():
        try:
            loop.run_forever()
        except BaseException as error:
            failure = getattr(getattr(loop, "selector", None), "failure", None)
            if failure is not None:
                # Neither the lifespans nor the requests inside can go on.
                server.log(
                    f"the event loop cannot wait for descriptors: {failure}; the process ends. {CLOSED}"
                )
                server.fail()
                return
            server.log(f"a callback of the event loop raised: {text_of(error)}")
    if isinstance(loop, Loop):
        loop.selector.server = None
    else:
        loop.remove_reader(server.fileno())
    end(loop, server, lifespans)


CLOSED = "Code of the application has closed a descriptor that belongs to the loop"


def end(loop, server, lifespans):
    """Ends the lifespans and what else runs. The drain timeout of the process bounds it."""
    try:
        # No request is inside any more. Other tasks may be the lifespan's, which ends them itself.
        limit = "longer than `drain_timeout` allows"
        complete(loop, shutdown(lifespans, server.log, server.time_left, limit))
        cancel(loop)
        complete(loop, loop.shutdown_asyncgens())
        complete(loop, loop.shutdown_default_executor())
    except BaseException as error:
        server.log(f"the end of the event loop failed: {text_of(error)}")
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def complete(loop, what):
    """Runs the loop until this is done, whatever stops it before: a second stop of ours, or the application."""
    task = asyncio.ensure_future(what, loop=loop)
    while True:
        try:
            return loop.run_until_complete(task)
        except RuntimeError:
            if task.done() or loop.is_closed():
                raise


def cancel(loop):
    """Cancels all tasks that are left."""
    tasks = asyncio.all_tasks(loop)
    if not tasks:
        return
    for task in tasks:
        task.cancel()
    complete(loop, asyncio.gather(*tasks, return_exceptions=True))


class Lifespan:
    """The lifespan of an application: one task, from before the first request until after the last one."""

    def __init__(self, name, application, is_double, state):
        self.name, self.application, self.is_double, self.state = name, application, is_double, state
        # What the startup has set of it is there in each request.
        self.context = contextvars.copy_context()
        self.task = None
        self.events = None
        self.has_asked = False
        self.is_served = False
        self.failure = None
        self.error = None

    async def startup(self, mode, timeout):
        loop = asyncio.get_running_loop()
        self.events = asyncio.Queue()
        self.started, self.stopped = loop.create_future(), loop.create_future()
        self.events.put_nowait({"type": "lifespan.startup"})
        self.task = loop.create_task(self.run())
        await asyncio.wait({self.task, self.started}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if self.failure is not None:
            message = self.failure or "without a message"
            raise Fault(f"the startup of {self.name} failed: {message}")
        if self.is_served:
            return
        if not self.task.done():
            place = innermost(self.task)
            hint = '`lifespan_timeout` sets the time, and `lifespan = "off"` leaves the startup out'
            raise Fault(f"the startup of {self.name} took longer than {timeout:g} s, in {place}", hint)
        self.task = None
        if self.error is None:
            if mode == "on":
                raise Fault(f"{self.name} returned without an answer to `lifespan.startup`")
            return
        # An application that does not know lifespans refuses the scope. One that has asked for an event knows them.
        if mode == "auto" and not self.has_asked:
            return
        raise Fault(f"the startup of {self.name} failed: {first_line(self.error)}", None, text_of(self.error))

    async def unwind(self, timeout):
        """Ends the task after a startup that has failed: what the application has opened by then is closed."""
        if self.task is not None and not self.task.done():
            self.task.cancel()
            await asyncio.wait({self.task}, timeout=timeout)

    async def run(self):
        version = {"version": "2.0" if self.is_double else "3.0", "spec_version": "2.0"}
        scope = {"type": "lifespan", "asgi": version, "state": self.state}
        try:
            if self.is_double:
                await self.application(scope)(self.receive, self.send)
            else:
                await self.application(scope, self.receive, self.send)
        except BaseException as error:
            self.error = error
        if self.is_served and not self.stopped.done():
            self.stopped.set_result(None)

    async def receive(self):
        self.has_asked = True
        return await self.events.get()

    async def send(self, event):
        kind = event["type"]
        if kind == "lifespan.startup.complete" and not self.started.done():
            self.context = contextvars.copy_context()
            self.is_served = True
            self.started.set_result(None)
        elif kind == "lifespan.startup.failed" and not self.started.done():
            self.failure = event.get("message", "")
            self.started.set_result(None)
        elif kind == "lifespan.shutdown.complete" and self.is_served and not self.stopped.done():
            self.stopped.set_result(None)
        elif kind == "lifespan.shutdown.failed" and self.is_served and not self.stopped.done():
            self.failure = event.get("message", "")
            self.stopped.set_result(None)
        else:
            raise RuntimeError(f"`{kind}` is not expected of the lifespan now")

    async def shutdown(self, log):
        if not self.is_served:
            return
        if not self.task.done():
            self.events.put_nowait({"type": "lifespan.shutdown"})
            await self.stopped
            # What the application does behind its last event is part of it.
            await self.task
        if self.failure is not None:
            log(f"the shutdown of {self.name} failed: {self.failure or 'without a message'}")
        elif self.error is not None:
            log(f"the lifespan of {self.name} failed: {text_of(self.error)}")


def innermost(task):
    """The innermost place of a waiting task that belongs to somebody else than asyncio."""
    found, waits = None, task.get_coro()
    while waits is not None:
        frame = getattr(waits, "cr_frame", None) or getattr(waits, "gi_frame", None)
        if (
            frame is not None
            and f"{asyncio.__name__}/" not in frame.f_code.co_filename
            and frame.f_globals is not globals()
        ):
            found = frame
        waits = getattr(waits, "cr_await", None) or getattr(waits, "gi_yieldfrom", None)
    if found is None:
        return "an unknown place"
    return f"{found.f_code.co_filename}:{found.f_lineno} ({found.f_code.co_name})"


def place(thread):
    """The innermost line of the application that a thread runs."""
    frame = innermost_frame = sys._current_frames().get(thread)
    while frame is not None and is_library(frame):
        frame = frame.f_back
    found = frame or innermost_frame
    if found is None:
        return "an unknown place"
    return f"{found.f_code.co_filename}:{found.f_lineno} ({found.f_code.co_name})"


def is_library(frame):
    """Whether a frame belongs to an installed package, to Python itself or to this module."""
    name = frame.f_code.co_filename
    is_installed = "-packages/" in name or name.startswith((sysconfig.get_path("stdlib"), "<"))
    return is_installed or frame.f_globals is globals()


def stack(thread):
    """The innermost line of the application that a thread runs, and its stack."""
    frames, frame = [], sys._current_frames().get(thread)
    # The outermost frames are the server's.
    while frame is not None and frame.f_globals is not globals():
        frames.append((frame, frame.f_lineno))
        frame = frame.f_back
    return place(thread), "".join(traceback.StackSummary.extract(reversed(frames)).format())


#: Of more tasks a stack only has the number.
TASKS_SHOWN = 5


def awaits(task, waits):
    """Where a waiting task stands: the frames of what it awaits, and the places of tasks among that."""
    seen = {task}
    frames, left = awaited(task, waits, seen)
    text = text_of_frames(frames)
    if not left:
        return text
    text += "Tasks that it waits for (innermost line of each):\n"
    shown = 0
    # Tasks that wait for others are shown as those: the last one of the list is the next to be looked at.
    left.reverse()
    while left and shown < TASKS_SHOWN:
        child = left.pop()
        frames, its_tasks = awaited(child, child.get_coro(), seen)
        if its_tasks:
            left += reversed(its_tasks)
        elif frames:
            text += text_of_frames([innermost_of(frames)])
            shown += 1
    return text + (f"  and {len(left)} more\n" if left else "")


def awaited(task, waits, seen):
    """The frames of what a task awaits, the innermost last, and the tasks that it waits for, if several."""
    frames, held = [], []
    while waits is not None:
        frame = next_frame(waits)
        last = []
        if frame is not None:
            frames.append((frame, frame.f_lineno))
            last = tasks_held(waits, frame)
        waits = what_awaits(waits)
        if waits is None:
            last += tasks_behind(getattr(task, "_fut_waiter", None))
        held += last
        if waits is None:
            held = pending(held, seen)
            if len(held) == 1 and held[0] in last:
                # It awaits nothing but this task, which is as good as a call.
                task = held.pop()
                waits = task.get_coro()
    return frames, held


def next_frame(waits):
    names = ("cr_frame", "gi_frame", "ag_frame")
    return next((frame for name in names if (frame := getattr(waits, name, None)) is not None), None)


def what_awaits(waits):
    """What a coroutine or a generator awaits, as far as that has frames."""
    names = ("cr_await", "gi_yieldfrom", "ag_await")
    inner = next((found for name in names if (found := getattr(waits, name, None)) is not None), None)
    if inner is None or any(hasattr(inner, name) for name in names):
        return inner
    # A step of an asynchronous generator, and the iterator of a coroutine, only refer to those.
    kinds = (types.CoroutineType, types.AsyncGeneratorType)
    return next((held for held in gc.get_referents(inner) if isinstance(held, kinds)), None)


def tasks_held(waits, frame):
    """The tasks of the groups that a coroutine has open, and those that functions of asyncio wait for."""
    found = []
    is_of_asyncio = frame.f_globals.get("__name__", "").partition(".")[0] == "asyncio"
    # Its variables and its stack, which the frame has before Python 3.11; `f_locals` would leave a copy of
    # them in the frame before Python 3.13.
    for held in gc.get_referents(waits, frame):
        if isinstance(held, types.CellType):
            held = held.cell_contents if gc.get_referents(held) else None
        elif isinstance(held, types.MethodType):
            # The end of an `async with` that names no variable.
            held = held.__self__
        tasks = getattr(held, "_tasks", None)
        if type(held).__name__ == "TaskGroup" and isinstance(tasks, (set, frozenset)):
            found += sorted(tasks, key=age)
        elif is_of_asyncio and isinstance(held, (set, frozenset)):
            # `wait()` has futures in it.
            found += sorted(held, key=age)
        elif is_of_asyncio:
            # `wait_for()` has a task before Python 3.12.
            found.append(held)
    return found


def tasks_behind(future):
    """The tasks that a future stands for: itself, those of `gather()`, or that of `shield()`."""
    found = [future, *getattr(future, "_children", ())]
    for callback, _ in getattr(future, "_callbacks", None) or ():
        if getattr(callback, "__module__", None) == "asyncio.tasks":
            cells = getattr(callback, "__closure__", None) or ()
            found += [held for cell in cells for held in gc.get_referents(cell)]
    return found


def pending(found, seen):
    """The tasks among this that have not ended, each once for a whole stack."""
    tasks = dict.fromkeys(one for one in found if isinstance(one, asyncio.Task))
    tasks = [one for one in tasks if one not in seen and not one.done()]
    seen.update(tasks)
    return tasks


def age(task):
    """Orders tasks as they were made, if they have their names of asyncio."""
    name = task.get_name() if isinstance(task, asyncio.Task) else ""
    return len(name), name


def innermost_of(frames):
    """The innermost of these that belongs to the application; else to no part of asyncio."""
    own = [one for one in frames if not is_library(one[0])]
    packages = [one for one in frames if "-packages/" in one[0].f_code.co_filename]
    return (own or packages or frames)[-1]


def text_of_frames(frames):
    return "".join(traceback.StackSummary.extract(frames).format())


def first_line(error):
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip()}" if lines else type(error).__name__


def text_of(error):
    # The outermost frames are the server's.
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_globals is globals():
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, frame)).rstrip()
