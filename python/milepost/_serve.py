"""Serving from a program: `milepost.serve`.

Takes an application's name and settings; gives the exit code of `milepost serve`. The signals that the server
takes are the program's again when it has ended.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from typing import TYPE_CHECKING

from milepost import _milepost

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from milepost._settings import Settings

# Those that the supervisor answers; without Python's handlers, which would be run when everything is over.
_SIGNALS = ("SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGTTIN", "SIGTTOU")


def serve(app: str | None = None, **settings: Unpack[Settings]) -> int:
    """Serve an application, as `milepost serve` does, until the server is stopped; give its exit code.

    `app` is a name, `module:attribute`: each serving process imports it. The keyword arguments are the
    settings of the reference, with lists for those that can be repeated and dictionaries for pairs; `None`
    leaves one out. They override the environment and the configuration file (`config=`).

    Blocks the calling thread, which must be the main thread. 0 is an orderly stop; 2 means that the
    application could not be served, and standard error says why. Raises `SettingsError` for settings, with
    all faults.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("milepost.serve() must be called on the main thread, which takes the signals")
    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    # A handler that was not installed by Python is None, and stays.
    handlers = {number: signal.getsignal(number) for number in (getattr(signal, name) for name in _SIGNALS)}
    for number in handlers:
        signal.signal(number, signal.SIG_DFL)
    try:
        return _milepost.serve(app, dict(settings), options)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
