"""PNG images, written by hand."""

import struct
import zlib

import numpy as np


def filtered(image, kinds):
    """Rows of an image as PNG stores them, row y with filter kinds[y]."""
    rows, above = [], np.zeros(image.shape[1], np.int64)
    for kind, row in zip(kinds, image.astype(np.int64), strict=True):
        left, corner = np.r_[0, row[:-1]], np.r_[0, above[:-1]]
        three = np.stack([left, above, corner])
        nearest = three[np.abs(left + above - corner - three).argmin(0), np.arange(len(row))]
        guess = [0 * row, left, above, (left + above) // 2, nearest][kind]
        rows.append(bytes([kind]) + ((row - guess) % 256).astype(np.uint8).tobytes())
        above = row
    return b"".join(rows)


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def encode(image, kinds=None, kind=(8, 0, 0, 0, 0), body=None, packed=None):
    """A PNG file, its pixels in two chunks."""
    height, width = image.shape
    packed = packed or zlib.compress(filtered(image, kinds or [y % 5 for y in range(height)]) if body is None else body)
    header = struct.pack(">II5B", width, height, *kind)
    chunks = [chunk(b"IHDR", header), chunk(b"tEXt", b"a\0b"), chunk(b"IDAT", packed[:9]), chunk(b"IDAT", packed[9:])]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks) + chunk(b"IEND", b"")
