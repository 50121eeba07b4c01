"""An application whose other half runs in the process of a test, where its closures are.

Takes the path of a unix socket in `RELAY`. Each scope has a connection of its own, on which both halves send
pairs of a length and a pickled tuple. The test's half asks for `receive()` and `send()` by numbered calls.
"""

from __future__ import annotations

import asyncio
import os
import pickle


async def read(reader):
    """The next tuple of the other half; None at the end."""
    try:
        length = int.from_bytes(await reader.readexactly(4), "big")
        return pickle.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def write(writer, *words):
    data = pickle.dumps(words)
    writer.write(len(data).to_bytes(4, "big") + data)


async def app(scope, receive, send):
    reader, writer = await asyncio.open_unix_connection(os.environ["RELAY"])
    calls = {}

    async def call(kind, number, argument):
        try:
            result = await (receive() if kind == "receive" else send(argument))
        except Exception as error:
            write(writer, number, error, None)
        else:
            write(writer, number, None, result)

    try:
        write(writer, scope)
        while (asked := await read(reader)) is not None:
            kind, number, argument = asked
            if kind == "ends":
                if argument is not None:
                    raise argument
                return
            if kind == "cancels":
                calls[number].cancel()
            else:
                calls[number] = asyncio.ensure_future(call(kind, number, argument))
    finally:
        for one in calls.values():
            one.cancel()
        writer.close()
