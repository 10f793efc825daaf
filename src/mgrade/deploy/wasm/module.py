"""Reads and extends modules: their sections, and the one that describes the model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

FORMAT, VERSION = "mgrade-wasm", 2
SECTION = "mgrade"
"""Name of the custom section, a JSON object in UTF-8. Engines ignore it; model.js reads it."""
_CUSTOM, _CODE = 0, 10
_HEADER = b"\0asm\1\0\0\0"


def described(module: bytes, description: dict[str, Any]) -> bytes:
    """`module` with an additional section that holds `description`."""
    name = SECTION.encode()
    content = bytes([len(name)]) + name + json.dumps(description).encode()
    return module + bytes([_CUSTOM]) + _leb(len(content)) + content


def metadata(module: bytes) -> dict[str, Any]:
    """The description in a module: name, inputs, outputs, tokens, precision, types and units."""
    name = SECTION.encode()
    start = bytes([len(name)]) + name
    for kind, content in _sections(module):
        if kind == _CUSTOM and content.startswith(start):
            found: dict[str, Any] = json.loads(content[len(start) :])
            return found
    raise ValueError(f"the module has no section {SECTION!r}: it was not made by mgrade")


def code_bytes(module: bytes) -> int:
    """Bytes of code, without weights and other data."""
    return sum(len(content) for kind, content in _sections(module) if kind == _CODE)


def _sections(module: bytes) -> Iterator[tuple[int, bytes]]:
    if not module.startswith(_HEADER):
        raise ValueError("the module is not WebAssembly: its header is wrong")
    at = len(_HEADER)
    while at < len(module):
        kind, at = module[at], at + 1
        size, at = _size(module, at)
        if at + size > len(module):
            raise ValueError("the module is cut short")
        yield kind, module[at : at + size]
        at += size


def _size(module: bytes, at: int) -> tuple[int, int]:
    """The LEB128 number that begins at `at`, and where it ends."""
    size = 0
    for count, byte in enumerate(module[at : at + 5]):
        size |= (byte & 127) << 7 * count
        if byte < 128:
            return size, at + count + 1
    raise ValueError("the module is cut short")


def _leb(number: int) -> bytes:
    """LEB128: seven bits per byte, lowest first; all bytes but the last have the top bit set."""
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])
