"""The extension module: the whole server. Only `milepost.__main__` calls it."""

__all__ = ["__version__", "main"]

__version__: str

def main(argv: list[str]) -> int:
    """Run the command `milepost` with `argv` (program name first) and give its exit code.

    Returns when the server has stopped. Takes over SIGTERM and SIGINT while it serves. Call it on
    the main thread, once per process.
    """
