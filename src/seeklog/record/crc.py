"""CRC-32C: short buffers with the CPU's instruction, longer ones with fastcrc."""

import cython
from cython import Py_ssize_t, longlong, p_uchar
from cython.cimports.seeklog.record.primitives import pointer
from fastcrc.crc32 import iscsi


@cython.cfunc
@cython.exceptval(-1, check=False)
def crc_long(data: object, p: p_uchar, at: Py_ssize_t, size: Py_ssize_t, initial: longlong) -> longlong:
    """Return the CRC-32C of `size` bytes, continuing from `initial`. `p` points into `data`."""
    with memoryview(data) as view:
        return iscsi(view[at : at + size], initial)


if not cython.compiled:
    # When compiled, crc.pxd inlines it and makes no call for short buffers.
    crc_of = crc_long


def crc32c(data, initial: longlong = 0):
    """Return the CRC-32C of any buffer, continuing from `initial`."""
    if isinstance(data, bytes):
        return crc_of(data, pointer(data), 0, len(data), initial)
    with memoryview(data) as view:
        return iscsi(view, initial)
