"""Lookups in the tables of a segment's two indexes, without copying them."""

import cython
from cython import Py_ssize_t, bint, longlong, p_uchar
from cython.cimports.seeklog.record.primitives import load_i32, load_i64


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def floor_of(
    p: p_uchar,
    count: Py_ssize_t,
    entry_size: Py_ssize_t,
    wide: bint,
    target: longlong,
) -> Py_ssize_t:
    low: Py_ssize_t = 0
    high: Py_ssize_t = count
    middle: Py_ssize_t
    field: longlong
    while low < high:
        middle = (low + high) >> 1
        field = load_i64(p, middle * entry_size) if wide else load_i32(p, middle * entry_size)
        if field <= target:
            low = middle + 1
        else:
            high = middle
    return low - 1


def floor_entry(table, entry_size: Py_ssize_t, wide: bint, target: longlong) -> Py_ssize_t:
    """Return the number of the last entry whose first field is at most `target`, or -1.

    The field is an int64 if `wide`, else an int32. An unsorted table gives an arbitrary entry, never an error: the
    caller proves the entry it gets.
    """
    if cython.compiled:
        view: Py_buffer
        PyObject_GetBuffer(table, cython.address(view), PyBUF_SIMPLE)
        found = floor_of(cython.cast(p_uchar, view.buf), view.len // entry_size, entry_size, wide, target)
        PyBuffer_Release(cython.address(view))
        return found
    return floor_of(table, len(table) // entry_size, entry_size, wide, target)


@cython.cfunc
def around(p: p_uchar, count: Py_ssize_t, target: longlong):
    number: Py_ssize_t = floor_of(p, count, 8, False, target)
    ahead: bint = number + 1 < count
    return (
        load_i32(p, 8 * number) if number >= 0 else -1,
        load_i32(p, 8 * number + 4) if number >= 0 else 0,
        load_i32(p, 8 * number + 8) if ahead else -1,
        load_i32(p, 8 * number + 12) if ahead else -1,
    )


def entries_around(table, target: longlong):
    """Return the floor entry of an offset index and the entry after it, as four numbers:

    (last offset, position, next last offset, next position), with offsets relative to the base. Without a floor entry
    the first two are -1 and 0; without a next entry the last two are -1.
    """
    if cython.compiled:
        view: Py_buffer
        PyObject_GetBuffer(table, cython.address(view), PyBUF_SIMPLE)
        found = around(cython.cast(p_uchar, view.buf), view.len // 8, target)
        PyBuffer_Release(cython.address(view))
        return found
    return around(table, len(table) // 8, target)
