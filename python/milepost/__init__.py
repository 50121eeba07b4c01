"""Milepost: an application server that knows where every millisecond of every request goes.

The server is started by the command `milepost` or by `python -m milepost`. This package holds
nothing that an application needs to import: what the server tells an application stands in the
`environ` of each request (`milepost.phases`, `milepost.request_id`).
"""

from milepost._milepost import __version__

__all__ = ["__version__"]
