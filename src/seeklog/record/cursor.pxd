cimport cython
from seeklog.record.layout cimport Place

@cython.final
cdef class RecordCursor:
    cdef bytes body
    cdef unsigned char *p
    # Bytes of all records, and how many records the header claims.
    cdef Py_ssize_t size
    cdef long long count
    # The number of the next record.
    cdef long long index
    cdef bint more
    cdef long long position
    cdef Py_ssize_t _begin
    cdef Py_ssize_t _at
    cdef Py_ssize_t _end
    cdef long long _previous_delta
    cdef long long _base_offset
    cdef long long _last_delta
    cdef long long _base_timestamp
    cdef long long _append_time
    cdef bint _has_append_time
    cdef int open(self, bytes data, Py_ssize_t at, Py_ssize_t size, long long position, Py_ssize_t limit) except -1
    cdef void rewind(self) noexcept
    cdef Py_ssize_t fill(self, Place *places, Py_ssize_t room, long long start, long long stop) except -1
    cdef int release(self) except -1

cdef object record_error(object what, long long index, long long position)
