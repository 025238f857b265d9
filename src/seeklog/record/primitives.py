"""Loads, stores and varints as the interpreted modules use them: the twin of `primitives.pxd`.

Compiled modules inline the functions of the `.pxd`, and nothing of this file runs. The tests compare each pair.
A pointer is here the buffer itself: bytes, a bytearray or a view.
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
    """Return a view of a buffer's bytes, none for None. While the view is there, the bytes stay where they are."""
    view = memoryview(b"" if buffer is None else buffer)
    # A view without bytes cannot be cast.
    return view.cast("B") if view.nbytes else memoryview(b"")


def view_pointer(view: memoryview) -> Any:
    return view


def new_buffer(size: int) -> bytearray:
    """Return a buffer whose bytes are not set when compiled: every one of them must be written."""
    return bytearray(size)


def resize(buffer: bytearray, size: int) -> int:
    """Cut a buffer, or lengthen it by bytes that are not set when compiled."""
    if size < len(buffer):
        del buffer[size:]
    else:
        buffer.extend(bytes(size - len(buffer)))
    return 0


def new_bytes(size: int) -> Any:
    """Return bytes to be written by `new_pointer` before anybody else sees them, and then to be `finished`."""
    return bytearray(size)


def new_pointer(data: Any) -> Any:
    return data


def finished(data: Any) -> bytes:
    """Return what `new_bytes` gave as bytes; compiled it is the same object."""
    return bytes(data)


def slice_bytes(data: bytes, p: Any, at: int, size: int) -> bytes:
    return data[at : at + size]


def copy(target: Any, at: int, source: Any, start: int, size: int) -> None:
    memoryview(target)[at : at + size] = source[start : start + size]


def fetch_ahead(p: Any, at: int) -> None:
    """Have a place in memory brought near before it is read."""


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
    # What does not fit is cut, as C does it.
    memoryview(p)[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, order)


# ---------------------------------------------------------------- numbers


def wrapped(value: int) -> int:
    """Return a sum or difference of two int64 as C and Java have it: 64 bits, what is above them lost.

    A timestamp delta may overflow, and comes back right when it is added to its base again.
    """
    return (value + 2**63) % 2**64 - 2**63


def low_half(value: int) -> int:
    return value & 0xFFFFFFFF


def zigzag(value: int) -> int:
    return (value << 1) ^ (value >> 63)


def varint_size(value: int) -> int:
    return max(1, (zigzag(value).bit_length() + 6) // 7)


def store_varint(p: Any, at: int, value: int) -> int:
    """Store a zigzag varint; return the place after it."""
    rest = zigzag(value)
    while rest >= 0x80:
        p[at] = rest & 0x7F | 0x80
        rest >>= 7
        at += 1
    p[at] = rest
    return at + 1


def load_varint(p: Any, at: int, end: int) -> tuple[int, int]:
    """Return the zigzag varint at `at` and the place after it; -1 for the place if there is no such varint.

    Ten bytes hold 64 bits; the tenth may hold only the last one.
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
