"""The extension module: the whole server. Only this package calls it."""

from collections.abc import Iterator
from typing import Literal, final, overload, type_check_only

__all__ = [
    "ClientDisconnected",
    "RequestTimeout",
    "SettingsError",
    "__version__",
    "downstream",
    "main",
    "serve",
]

__version__: str

@final
@type_check_only
class Phases:
    """`environ["milepost.phases"]`: a read-only mapping whose keys are attributes too."""

    @property
    def arrived(self) -> float:
        """When the request arrived, on the clock of `time.monotonic()`."""

    @property
    def queued(self) -> float:
        """When it was complete and began to wait for a thread, on the same clock."""

    @property
    def started(self) -> float:
        """When a thread took it, on the same clock."""

    @property
    def receive(self) -> float:
        """Seconds until it was complete."""

    @property
    def queue(self) -> float:
        """Seconds that it waited for a thread."""

    @property
    def gil(self) -> float:
        """Seconds that its thread waited for the interpreter."""

    @property
    def before(self) -> float:
        """Seconds that it had waited before it came to this server, as a trusted proxy says; or 0.0."""

    @property
    def waiting(self) -> int:
        """Requests in its pool's queue when it came."""

    @property
    def threads(self) -> int:
        """Threads that the pool had then."""

    @property
    def idle(self) -> int:
        """Those of them that had nothing to do."""

    @property
    def from_queue(self) -> bool:
        """Whether it had to wait for a thread."""

    def age(self) -> float:
        """Seconds since it arrived, up to now."""

    def cpu(self) -> float:
        """Seconds of processor time that its thread has used for it, up to now; while it runs."""

    def keys(self) -> list[str]: ...
    @overload
    def __getitem__(
        self,
        name: Literal["arrived", "queued", "started", "receive", "queue", "gil", "before"],
        /,
    ) -> float: ...
    @overload
    def __getitem__(self, name: Literal["waiting", "threads", "idle"], /) -> int: ...
    @overload
    def __getitem__(self, name: Literal["from_queue"], /) -> bool: ...
    def __contains__(self, name: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...

def main(argv: list[str]) -> int:
    """Run the command `milepost` with `argv` (program name first) and give its exit code.

    Returns when the server has stopped. Takes over SIGTERM and SIGINT while it serves. Call it on
    the main thread, once per process.
    """

def serve(app: str | None, settings: dict[str, object], options: list[str]) -> int:
    """What `milepost.serve` calls; `options` are those of the interpreter, for the processes that serve."""

class SettingsError(ValueError):
    """Settings that `milepost.serve` does not take: all faults, as the command prints them."""

class ClientDisconnected(OSError):
    """What `send()` of an ASGI application raises where the connection of the client has ended."""

class RequestTimeout(BaseException):
    """Raised in an application that has taken longer than request_timeout; its client has been answered.

    It derives from BaseException because frameworks and loops that retry catch Exception: only code
    that catches everything holds it up.
    """

def downstream(name: str, used: int, size: int) -> None:
    """Say that `used` of `size` of what is called `name` are taken, such as connections to a database.

    While all of it is taken, pools whose threads have spoken of it are not given more threads; what
    is said on a thread that Milepost has not started concerns all pools. It counts until the next
    call with that name; a `size` of 0 forgets the name.

    Raises `ValueError` for a name of no or more than 256 bytes, and when more than 64 names are
    kept; `OverflowError` for negative numbers.
    """
