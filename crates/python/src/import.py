"""Importing an application, or the function of a hook: `module:attribute` becomes a callable, or a `Fault` that says
what is wrong and what to do.

Embedded by import.rs. A traceback is given only when the application's own module raised.
"""

import difflib
import functools
import importlib
import inspect
import os
import pathlib
import sys
import traceback

# Names tried when only a module is given.
DEFAULT_ATTRIBUTES = ("application", "app")
# Modules that a hint names first.
USUAL_MODULES = ("app", "main", "wsgi", "application", "server")
# What an application of each interface is called with.
ARGUMENTS = {
    "wsgi": ("environ", "start_response"),
    "asgi": ("scope", "receive", "send"),
    "asgi2": ("scope",),
}
# Decorators within each other that are looked through.
WRAPPERS_LEN_MAX = 16
# Names in a hint.
NAMES_LEN_MAX = 6


class Fault(Exception):
    """Why an application cannot be served: the cause, what to do about it, and the traceback of its module."""

    def __init__(self, cause, hint=None, detail=None):
        super().__init__(cause)
        self.cause, self.hint, self.detail = cause, hint, detail


def load(module_name, attribute, is_factory, folder, environment, interface):
    """Imports the module and gives the application in it, and its interface. `folder` becomes the first of sys.path, and the pairs of
    `environment` become environment variables."""
    os.environ.update(environment)
    module = imported(module_name, folder)
    application = find(module, module_name, attribute)
    if is_factory:
        application = call_factory(application)
    found = check(module, module_name, application, f"{module_name}:{attribute}", is_factory, interface)
    return application, found


def find_hook(module_name, name, folder):
    """Imports the module and gives the function of a hook in it, which can be called without arguments."""
    module = imported(module_name, folder)
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        near = difflib.get_close_matches(name, [key for key, value in vars(module).items() if callable(value)])
        hint = f"did you mean `{module_name}:{near[0]}`?" if near else None
        raise Fault(f"`{module_name}` has no function `{name}`", hint)
    if not callable(found):
        raise Fault(f"{kind(found)} is not callable, so it is no function")
    if inspect.iscoroutinefunction(found):
        raise Fault("this is an async function", "write `def`, with `asyncio.run(...)` in it")
    if cause := mismatch(found):
        hint = "hooks take no arguments: gunicorn's `server` and `worker` have no counterpart"
        raise Fault(f"it cannot be called without arguments: {cause}", hint)
    return found


def call_hook(module_name, name, folder):
    """Calls the function of a hook."""
    function = find_hook(module_name, name, folder)
    try:
        function()
    except BaseException as error:
        detail = text_of(error, error.__traceback__.tb_next or error.__traceback__)
        raise Fault(f"the hook failed: {first_line(error)}", None, detail) from None


def imported(module_name, folder):
    """The module. `folder` becomes the first of sys.path."""
    if not sys.path or sys.path[0] != folder:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(module_name)
    except BaseException as error:
        raise import_fault(module_name, folder, error) from None


def import_fault(module_name, folder, error):
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing and (missing == module_name or module_name.startswith(missing + ".")):
        cause = f"no module `{missing}` in {folder} or on sys.path"
        return Fault(cause, other_modules(module_name, folder))
    hint = None
    if missing:
        hint = f"`{missing}` is not installed for {sys.executable or 'this Python'}"
    elif isinstance(error, SystemExit):
        hint = (
            "the module ends the program when it is imported; put that under `if __name__ == \"__main__\":`"
        )
    # The frames of the import machinery, and this one, are outside of what its author knows.
    frame = error.__traceback__
    while frame and ("importlib" in frame.tb_frame.f_code.co_filename or frame.tb_frame.f_globals is globals()):
        frame = frame.tb_next
    cause = f"importing `{module_name}` failed: {first_line(error)}"
    return Fault(cause, hint, text_of(error, frame))


def text_of(error, frame):
    return "".join(traceback.format_exception(type(error), error, frame)).rstrip()


def first_line(error):
    name = type(error).__name__
    lines = str(error).splitlines()
    return f"{name}: {lines[0].rstrip()}" if lines else name


def other_modules(module_name, folder):
    if module_name.endswith(".py"):
        return f"leave out the ending: `{module_name[:-3].replace('/', '.')}`"
    parent, _, leaf = module_name.rpartition(".")
    if hasattr(sys.modules.get(parent), leaf):
        return f"did you mean `{parent}:{leaf}`?"
    if "/" in module_name:
        return f"write folders with dots: `{module_name.replace('/', '.')}`"
    names = "`, `".join(modules_in(folder))
    held = f"`{names}`" if names else "no Python module"
    return f"{folder} holds {held}; `--app-dir` names another folder"


def modules_in(folder):
    """Modules and packages in a folder, those with common names for applications first."""
    try:
        paths = list(pathlib.Path(folder).iterdir())
    except OSError:
        return []
    names = [path.stem for path in paths if path.suffix == ".py" or (path / "__init__.py").is_file()]
    names = [name for name in names if name.isidentifier() and not name.startswith("_")]
    return sorted(names, key=lambda name: (name not in USUAL_MODULES, name))[:NAMES_LEN_MAX]


def find(module, module_name, attribute):
    if not attribute:
        for name in DEFAULT_ATTRIBUTES:
            if hasattr(module, name):
                return getattr(module, name)
        names = "` nor `".join(DEFAULT_ATTRIBUTES)
        raise Fault(f"the module has neither `{names}`", candidates(module, module_name))
    found, walked = module, module_name
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except Exception:
            # Another module than meant may have been found first.
            file = getattr(module, "__file__", None)
            place = f" ({file})" if file else ""
            cause = f"`{walked}` has no attribute `{name}`{place}"
            raise Fault(cause, candidates(module, module_name)) from None
        walked = f"{walked}.{name}"
    return found


def candidates(module, module_name):
    """Names in the module that look like applications or factories of them."""
    names = [pair for pair in list(vars(module).items()) if not is_of_package(*pair)]
    found = [hit for name, value in names if (hit := candidate(module, name, value))]
    found.sort(key=lambda name: "app" not in name)
    names = " or ".join(f"`{module_name}:{name}`" for name in found[:NAMES_LEN_MAX])
    return f"did you mean {names}?" if names else "nothing in the module looks like an application"


def is_of_package(name, value):
    """It was imported from an installed package, as Flask's `request`: no application of this module's author."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None) or ""
        if "-packages" in file and vars(module).get(name) is value:
            return True
    return False


def candidate(module, name, value):
    if name.startswith("_") or isinstance(value, type) or not callable(value):
        return None
    if not inspect.isfunction(value):
        return None if inspect.isroutine(value) or inspect.ismodule(value) else name
    if value.__module__ != module.__name__:
        return None
    parameters = inspect.signature(value, follow_wrapped=False).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in parameters if one.default is one.empty and one.kind in positional]
    takes_any = any(one.kind == one.VAR_POSITIONAL for one in parameters)
    makes = "create" in name or "make" in name
    if len(needed) in (2, 3) or (takes_any and len(needed) < 2 and not makes):
        return name
    return name + "()" if not needed and ("app" in name or makes) else None


def call_factory(factory):
    if not callable(factory):
        cause = f"{kind(factory)} is not callable, so it is no factory"
        raise Fault(cause, "leave out the parentheses or `--factory`")
    if cause := mismatch(factory):
        cause = f"the factory cannot be called without arguments: {cause}"
        raise Fault(cause, "if it is the application itself, leave out the parentheses or `--factory`")
    try:
        return factory()
    except BaseException as error:
        detail = text_of(error, error.__traceback__.tb_next or error.__traceback__)
        raise Fault(f"the factory failed: {first_line(error)}", None, detail) from None


def check(module, module_name, application, name, is_factory, interface):
    """The interface of the application: the one that is asked for, or the one that it has."""
    if not callable(application):
        hint = candidates(module, module_name)
        if application is None and is_factory:
            hint = "the factory returned None; it must return the application"
        raise Fault(f"{kind(application)} is not callable, so it is no application", hint)
    if interface == "auto":
        interface = "asgi" if is_asgi(application) else "wsgi"
    arguments = ARGUMENTS[interface]
    if cause := mismatch(application, *arguments):
        makes = not is_factory and mismatch(application) is None
        given = " and ".join((", ".join(arguments[:-1]), arguments[-1])) if arguments[1:] else arguments[0]
        hint = f"if it makes the application: `{name.rstrip(':')}()`" if makes else None
        if not hint and interface == "wsgi" and mismatch(application, *ARGUMENTS["asgi"]) is None:
            hint = "if it is an ASGI application: `--interface asgi`"
        raise Fault(f"it cannot be called with {given}: {cause}", hint)
    return interface


def kind(value):
    return f"an object of type `{type(value).__name__}`"


def is_asgi(application):
    """An async callable, or one whose calls are, within partials and decorators."""
    if isinstance(application, type):
        return False
    for _ in range(WRAPPERS_LEN_MAX):
        if inspect.iscoroutinefunction(application):
            return True
        call = getattr(application, "__call__", None)
        if inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__wrapped__", None)):
            return takes_three(application)
        inner = getattr(application, "func", None) if isinstance(application, functools.partial) else None
        inner = inner or getattr(application, "__wrapped__", None)
        if inner is None or not takes_three(application):
            return False
        application = inner
    return False


def takes_three(application):
    return mismatch(application, *ARGUMENTS["asgi"]) is None


def mismatch(function, *arguments):
    """Why a Python function cannot be called with these arguments. Callables without a signature are trusted."""
    try:
        # What is called is the outermost function, whatever `__wrapped__` says: a decorator may take the two
        # and hand on something else, as werkzeug's `Request.application` does.
        signature = inspect.signature(function, follow_wrapped=False)
    except Exception:
        return None
    try:
        signature.bind(*arguments)
    except TypeError as error:
        return str(error)
    return None
