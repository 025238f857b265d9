"""Loads, stores and varints for the interpreted modules: the twin of `primitives.pxd`.

Compiled modules inline the functions of the `.pxd` and never run this file. The tests compare each pair. A pointer is
here the buffer itself: bytes, a bytearray or a view.
"""

from __future__ import annotations

import sys
from typing import Any

# ---------------------------------------------------------------- buffers


def pointer(data: bytes) -> Any:
    return data


def buffer_pointer(buffer: bytearray) -> Any:
    return buffer


def view_of(buffer: Any) -> memoryview:
    """Return a view of a buffer's bytes, empty for None. The bytes do not move while the view exists."""
    view = memoryview(b"" if buffer is None else buffer)
    # An empty view cannot be cast.
    return view.cast("B") if view.nbytes else memoryview(b"")


def view_pointer(view: memoryview) -> Any:
    return view


def view_at(p: Any, at: int, size: int) -> memoryview:
    """Return a view of bytes, which must outlive it."""
    return memoryview(p)[at : at + size]


def new_buffer(size: int) -> bytearray:
    """Return a buffer that the caller must fill: when compiled, its bytes are not initialized."""
    return bytearray(size)


def resize(buffer: bytearray, size: int) -> int:
    """Shorten a buffer, or lengthen it by bytes that are not initialized when compiled."""
    if size < len(buffer):
        del buffer[size:]
    else:
        buffer.extend(bytes(size - len(buffer)))
    return 0


def new_bytes(size: int) -> Any:
    """Return bytes to fill through `new_pointer` before any other use, then to pass to `finished`."""
    return bytearray(size)


def new_pointer(data: Any) -> Any:
    return data


def finished(data: Any) -> bytes:
    """Return the object of `new_bytes` as bytes; when compiled, it is the same object."""
    return bytes(data)


def slice_bytes(data: bytes, p: Any, at: int, size: int) -> bytes:
    return data[at : at + size]


def bytes_at(p: Any, at: int, size: int) -> bytes:
    return bytes(p[at : at + size])


def text_at(p: Any, at: int, size: int) -> str:
    """Return text in UTF-8. Raises `UnicodeDecodeError`."""
    return str(p[at : at + size], "utf-8")


def copy(target: Any, at: int, source: Any, start: int, size: int) -> None:
    memoryview(target)[at : at + size] = source[start : start + size]


def copy_string(target: Any, at: int, source: Any, start: int, size: int, end: int) -> None:
    """Copy a string that is most likely short. When compiled, 31 bytes after it in `target` may change.

    `end` is the end of the bytes in `source`.
    """
    copy(target, at, source, start, size)


def fetch_ahead(p: Any, at: int) -> None:
    """Prefetch an address in memory."""


# ---------------------------------------------------------------- big-endian, at any address


def load_i16(p: Any, at: int) -> int:
    return int.from_bytes(p[at : at + 2], "big", signed=True)


def load_i32(p: Any, at: int) -> int:
    return int.from_bytes(p[at : at + 4], "big", signed=True)


def load_u32(p: Any, at: int) -> int:
    return int.from_bytes(p[at : at + 4], "big")


def load_i64(p: Any, at: int) -> int:
    return int.from_bytes(p[at : at + 8], "big", signed=True)


def load_u64(p: Any, at: int) -> int:
    return int.from_bytes(p[at : at + 8], "big")


def store_i16(p: Any, at: int, value: int) -> None:
    _put(p, at, value, 2, "big")


def store_i32(p: Any, at: int, value: int) -> None:
    _put(p, at, value, 4, "big")


def store_i64(p: Any, at: int, value: int) -> None:
    _put(p, at, value, 8, "big")


def store_u64(p: Any, at: int, value: int) -> None:
    _put(p, at, value, 8, "big")


# ---------------------------------------------------------------- little-endian, at any address


def load_little_u32(p: Any, at: int) -> int:
    return int.from_bytes(p[at : at + 4], "little")


def load_little_u64(p: Any, at: int) -> int:
    return int.from_bytes(p[at : at + 8], "little")


def store_little_u32(p: Any, at: int, value: int) -> None:
    _put(p, at, value, 4, "little")


# ---------------------------------------------------------------- this machine's order, by index or at any address


def put_i32(p: Any, index: int, value: int) -> None:
    _put(p, 4 * index, value, 4, sys.byteorder)


def put_i64(p: Any, index: int, value: int) -> None:
    _put(p, 8 * index, value, 8, sys.byteorder)


def get_i32(p: Any, index: int) -> int:
    return int.from_bytes(p[4 * index : 4 * index + 4], sys.byteorder, signed=True)


def get_i64(p: Any, index: int) -> int:
    return int.from_bytes(p[8 * index : 8 * index + 8], sys.byteorder, signed=True)


def get_u32_at(p: Any, at: int) -> int:
    return int.from_bytes(p[at : at + 4], sys.byteorder)


def get_u64_at(p: Any, at: int) -> int:
    return int.from_bytes(p[at : at + 8], sys.byteorder)


def put_u32_at(p: Any, at: int, value: int) -> None:
    _put(p, at, value, 4, sys.byteorder)


def put_u64_at(p: Any, at: int, value: int) -> None:
    _put(p, at, value, 8, sys.byteorder)


def bit_at(p: Any, index: int) -> bool:
    return bool(p[index >> 3] >> (index & 7) & 1)


def _put(p: Any, at: int, value: int, size: int, order: Any) -> None:
    # Like C, cuts a value that does not fit.
    memoryview(p)[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, order)


# ---------------------------------------------------------------- numbers


def wrapped(value: int) -> int:
    """Return a sum or difference of two int64 values wrapped to 64 bits, as in C and Java.

    A timestamp delta may overflow; adding it to its base restores the timestamp.
    """
    return (value + 2**63) % 2**64 - 2**63


def low_half(value: int) -> int:
    return value & 0xFFFFFFFF


def zigzag(value: int) -> int:
    return (value << 1) ^ (value >> 63)


def varint_size(value: int) -> int:
    return max(1, (zigzag(value).bit_length() + 6) // 7)


def store_varint(p: Any, at: int, value: int) -> int:
    """Store a zigzag varint; return the position after it."""
    rest = zigzag(value)
    while rest >= 0x80:
        p[at] = rest & 0x7F | 0x80
        rest >>= 7
        at += 1
    p[at] = rest
    return at + 1


def load_varint(p: Any, at: int, end: int) -> tuple[int, int]:
    """Return the zigzag varint at `at` and the position after it; position -1 if there is no valid varint.

    Ten bytes hold 64 bits; the tenth may hold only the last bit.
    """
    value = shift = 0
    while at < end:
        byte = p[at]
        at += 1
        if shift == 63 and byte > 1:
            break
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at
        shift += 7
    return 0, -1
