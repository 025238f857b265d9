cimport cython

@cython.final
cdef class GrowingBatch:
    cdef readonly Py_ssize_t size
    cdef readonly long long count
    cdef readonly long long base_timestamp
    cdef readonly long long min_timestamp
    cdef readonly long long max_timestamp
    cdef readonly bint has_null_key
    cdef bytearray buffer
    cdef Py_ssize_t room

    cdef int fits(self, long long timestamp, object key, object value, object headers, Py_ssize_t limit) except? -1
    cdef void note(self, long long timestamp, bint has_null_key) noexcept
    cdef int grow(self, Py_ssize_t size) except? -1
    cdef long long put(
        self, long long timestamp, object key, object value, object headers, Py_ssize_t limit
    ) except? -2
