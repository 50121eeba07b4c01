"""Milepost: an application server that knows where every millisecond of every request goes.

The server is started by the command `milepost` or by `python -m milepost`. What it tells an
application stands in the `environ` of each request (`milepost.phases`, `milepost.request_id`,
`milepost.worker`); an application needs to import nothing. It may tell the server something in turn
(`downstream`), and it may want to know the exception by which it is told to stop (`RequestTimeout`).
"""

from milepost._milepost import RequestTimeout, __version__, downstream

__all__ = ["RequestTimeout", "__version__", "downstream"]
