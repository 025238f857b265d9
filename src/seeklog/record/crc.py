"""CRC-32C: of short buffers by the CPU's own instruction, of longer ones by fastcrc."""

import cython
from cython import Py_ssize_t, longlong, p_uchar
from cython.cimports.seeklog.record.primitives import pointer
from fastcrc.crc32 import iscsi


@cython.cfunc
@cython.exceptval(-1, check=False)
def crc_long(data: object, p: p_uchar, at: Py_ssize_t, size: Py_ssize_t, initial: longlong) -> longlong:
    """Return the CRC-32C of `size` bytes, going on from `initial`. `p` points into `data`."""
    with memoryview(data) as view:
        return iscsi(view[at : at + size], initial)


if not cython.compiled:
    # Compiled it is inlined by crc.pxd, and does not even call for short buffers.
    crc_of = crc_long


def crc32c(data, initial: longlong = 0):
    """Return the CRC-32C of any buffer, going on from `initial`."""
    if isinstance(data, bytes):
        return crc_of(data, pointer(data), 0, len(data), initial)
    with memoryview(data) as view:
        return iscsi(view, initial)
