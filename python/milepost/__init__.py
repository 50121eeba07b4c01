"""Milepost: an application server that measures where each request spends its time.

The server is started by the command `milepost`, by `python -m milepost` or by `milepost.serve`. What it
tells an application stands in the `environ` of each request (`milepost.phases`, `milepost.request_id`,
`milepost.worker`); an application needs to import nothing. It may tell the server something in turn
(`downstream`), and it may want to know two exceptions: the one by which it is told to stop
(`RequestTimeout`), and the one that says that the client of a WebSocket connection is gone
(`ClientDisconnected`).
"""

from milepost._milepost import ClientDisconnected, RequestTimeout, SettingsError, __version__, downstream
from milepost._serve import serve

__all__ = ["ClientDisconnected", "RequestTimeout", "SettingsError", "__version__", "downstream", "serve"]
