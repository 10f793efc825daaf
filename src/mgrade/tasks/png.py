"""A reader of 8-bit gray PNG images, the only kind in the Long Range Arena."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mgrade.tasks import _c

Bytes = npt.NDArray[np.uint8]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Bits, colour (0: gray), compression, filters and interlacing, as in the header.
_GRAY = bytes([8, 0, 0, 0, 0])


def read_gray(path: Path, side: int) -> Bytes:
    """The pixels (side, side) of an image."""
    header, packed = _chunks(path)
    width, height = (int.from_bytes(header[at : at + 4], "big") for at in (0, 4))
    if len(header) != 13 or header[8:] != _GRAY:
        raise ValueError(f"{path}: only PNG in 8-bit gray, not interlaced, is read")
    if (width, height) != (side, side):
        raise ValueError(f"{path}: the image must be {side} x {side}, got {width} x {height}")
    size = side * (side + 1)
    unpacker = zlib.decompressobj()
    try:
        stored = unpacker.decompress(packed, size + 1)
    except zlib.error as error:
        raise ValueError(f"{path}: the pixels cannot be unpacked: {error}") from None
    if len(stored) != size:
        raise ValueError(f"{path}: the pixels must take {size} bytes, got {len(stored)}{'+' * (len(stored) > size)}")
    if not unpacker.eof:
        raise ValueError(f"{path}: the packed pixels are cut short")
    return _unfilter(path, stored, side)


def _chunks(path: Path) -> tuple[bytes, bytes]:
    """The header, and all compressed pixels."""
    data = path.read_bytes()
    if data[:8] != _SIGNATURE:
        raise ValueError(f"{path} is not a PNG image")
    header, packed, at = b"", [], 8
    while data[at + 4 : at + 8] != b"IEND":
        length = int.from_bytes(data[at : at + 4], "big")
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        at += 12 + length
        if at > len(data):
            raise ValueError(f"{path} is cut short")
        if zlib.crc32(kind + body) != int.from_bytes(data[at - 4 : at], "big"):
            raise ValueError(f"{path} is damaged: the checksum of {kind.decode('latin-1')!r} differs")
        if kind == b"IHDR":
            header = body
        elif kind == b"IDAT":
            packed.append(body)
    return header, b"".join(packed)


def _unfilter(path: Path, stored: bytes, side: int) -> Bytes:
    """Pixels from rows of a filter and `side` differences each."""
    if max(stored[:: side + 1]) > 4:
        raise ValueError(f"{path}: a row has filter {max(stored[:: side + 1])}, but PNG has 0 to 4")
    out = np.empty((side, side), np.uint8)
    if _c.LIBRARY is not None:
        _c.LIBRARY.mgrade_png_unfilter(stored, side, side, out.ctypes.data)
        return out
    above = bytes(side)
    for row in range(side):
        begin = row * (side + 1)
        above = _unfilter_row(stored[begin], stored[begin + 1 : begin + 1 + side], above)
        out[row] = np.frombuffer(above, np.uint8)
    return out


def _unfilter_row(kind: int, stored: bytes, above: bytes) -> bytes:
    """A row of pixels from its filter, its differences, and the row above."""
    if kind == 0:
        return stored
    if kind == 2:
        return bytes((a + b) & 255 for a, b in zip(stored, above, strict=True))
    row = bytearray(stored)
    left = corner = 0
    for x, up in enumerate(above):
        guess = left if kind == 1 else (left + up) // 2 if kind == 3 else _nearest(left, up, corner)
        left, corner = (stored[x] + guess) & 255, up
        row[x] = left
    return bytes(row)


def _nearest(left: int, above: int, corner: int) -> int:
    """Paeth's prediction: the neighbour closest to left + above - corner."""
    guess = left + above - corner
    return min((left, above, corner), key=lambda neighbour: abs(guess - neighbour))
