"""CRC-32C: with the CPU's instruction, or with fastcrc."""

import cython
from cython import Py_ssize_t, longlong, p_uchar
from cython.cimports.seeklog.record.primitives import pointer, view_at
from fastcrc.crc32 import iscsi


def crc_without_instruction(p: p_uchar, size: Py_ssize_t, initial: longlong) -> longlong:
    """Return the CRC-32C of `size` bytes, on a CPU without the instruction."""
    with cython.gil:
        return iscsi(view_at(p, 0, size), initial)


def crc_in_library(data, size, initial):
    """Return the CRC-32C of the first `size` bytes of a buffer, continuing from `initial`."""
    with memoryview(data) as view:
        return iscsi(view[:size], initial)


if not cython.compiled:
    # When compiled, crc.pxd inlines them.
    def crc_of(p, at, size, initial):
        """Return the CRC-32C of `size` bytes at `at`, continuing from `initial`."""
        with memoryview(p) as view:
            return iscsi(view[at : at + size], initial)

    def crc_of_data(data, p, size, initial):
        """Return the CRC-32C of the first `size` bytes of `data`, which `p` points at."""
        return crc_in_library(data, size, initial)


def crc32c(data, initial: longlong = 0):
    """Return the CRC-32C of any buffer, continuing from `initial`."""
    if isinstance(data, bytes):
        return crc_of_data(data, pointer(data), len(data), initial)
    return crc_in_library(data, len(data), initial)
