"""Covers that are painted when they are asked for: a PNG of some 10 KB for each book and binding.

Takes a hue and a number, gives the bytes of the image; the same ones each time.
"""

from __future__ import annotations

import colorsys
import random
import struct
import zlib

WIDTH, HEIGHT = 96, 144
SHADES = 64


def cover(hue: int, binding: int) -> bytes:
    """A grainy gradient of the hue, from light at the top to dark at the bottom."""
    grain = random.Random(hue * 1_000 + binding)
    rows = bytearray()
    for y in range(HEIGHT):
        shade = y * (SHADES - 16) // HEIGHT
        # Each row begins with the kind of its filter: none.
        rows.append(0)
        rows.extend(shade + speck % 16 for speck in grain.randbytes(WIDTH))
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"PLTE", _palette(hue, binding)), (b"IDAT", zlib.compress(rows, 1)))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in (*chunks, (b"IEND", b"")))


def _palette(hue: int, binding: int) -> bytes:
    turn = (hue + 14 * binding) % 360 / 360
    shades = (colorsys.hls_to_rgb(turn, 0.62 - 0.42 * shade / SHADES, 0.4) for shade in range(SHADES))
    return bytes(int(part * 255) for shade in shades for part in shade)


def _chunk(kind: bytes, data: bytes) -> bytes:
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
