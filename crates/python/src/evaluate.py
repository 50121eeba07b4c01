"""The variables of a Python file as JSON: what gunicorn reads of its configuration file.

Embedded by evaluate.rs. Runs the file as gunicorn does: as a module called `__config__`.
"""

import importlib.machinery
import importlib.util
import json
import sys
import traceback


class Fault(Exception):
    """Why the file cannot be evaluated, and the traceback of its own frames."""

    def __init__(self, cause, detail=None):
        super().__init__(cause)
        self.cause, self.hint, self.detail = cause, None, detail


def variables(file):
    """Names and values, as texts, lists of texts, true for a callable, or null for what is none of these."""
    loader = importlib.machinery.SourceFileLoader("__config__", file)
    spec = importlib.util.spec_from_file_location("__config__", file, loader=loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["__config__"] = module
    # Beside it may lie what it imports.
    sys.path.insert(0, ".")
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        frame = error.__traceback__
        while frame and frame.tb_frame.f_code.co_filename != file:
            frame = frame.tb_next
        detail = "".join(traceback.format_exception(type(error), error, frame)).rstrip()
        raise Fault(f"running it failed: {type(error).__name__}", detail) from None
    finally:
        sys.dont_write_bytecode = written
    found = {name: plain(value) for name, value in vars(module).items() if is_setting(name, value)}
    return json.dumps(found)


def is_setting(name, value):
    return not name.startswith("_") and value is not None and not isinstance(value, type(sys))


def plain(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, (list, tuple)) and all(isinstance(one, (str, int)) for one in value):
        return [str(one) for one in value]
    return True if callable(value) else None
