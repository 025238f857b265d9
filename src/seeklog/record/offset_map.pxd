cimport cython
from seeklog.record.cursor cimport RecordCursor
from seeklog.record.layout cimport GROUP

@cython.final
cdef class OffsetMap:
    cdef readonly Py_ssize_t slots
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t count
    cdef readonly long long base_offset
    cdef readonly long long latest_offset
    # The result of `look_up`.
    cdef long long latest[GROUP]
    cdef bytearray _table
    cdef unsigned char *_p
    cdef unsigned long long _secret_low
    cdef unsigned long long _secret_high
    cdef RecordCursor _cursor
    # The hashes of the keys of one group.
    cdef unsigned long long _firsts[GROUP]
    cdef unsigned long long _seconds[GROUP]
    cdef (unsigned long long, unsigned long long) hash(self, unsigned char *key, Py_ssize_t at, Py_ssize_t size) noexcept
    cdef Py_ssize_t home(self, unsigned long long first) noexcept
    cdef Py_ssize_t find(self, unsigned long long first, unsigned long long second) noexcept
    cdef long long last_of(self, unsigned long long first, unsigned long long second) noexcept
    cdef bint put(self, unsigned long long first, unsigned long long second, long long offset) noexcept
    cdef int add_records(self, long long start) except -1
    cdef void hash_keys(self, RecordCursor cursor, Py_ssize_t filled) noexcept
    cdef void look_up(self, RecordCursor cursor, Py_ssize_t filled) noexcept
