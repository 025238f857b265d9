cimport cython

@cython.final
cdef class Field:
    cdef readonly str name
    cdef readonly int kind
    cdef readonly Py_ssize_t index
    cdef readonly Schema schema
    cdef readonly bint is_array
    cdef readonly bint is_nullable
    cdef readonly bint is_compact
    cdef readonly long long tag
    cdef readonly object default
    # Of one element of an array, else of the field.
    cdef readonly Py_ssize_t element_size_min
    cdef readonly Py_ssize_t size_min
    cdef Py_ssize_t _element_size_min(self)

@cython.final
cdef class Schema:
    cdef readonly type type
    cdef tuple defaults
    cdef readonly list fields
    cdef Py_ssize_t field_count
    cdef readonly list tagged
    cdef readonly bint is_flexible
    cdef readonly Py_ssize_t size_min

@cython.final
cdef class _Reader:
    cdef object view
    cdef unsigned char *p
    cdef Py_ssize_t at
    cdef Py_ssize_t end
    cdef long long elements_left
    cdef int need(self, Py_ssize_t size) except -1
    cdef Py_ssize_t uvarint(self) except -1
    cdef Py_ssize_t length(self, Field field, int width) except -2

@cython.final
cdef class _Writer:
    cdef list parts
    cdef bytearray buffer
    cdef unsigned char *p
    cdef Py_ssize_t capacity
    cdef Py_ssize_t at
    cdef start(self, Py_ssize_t size)
    cdef int need(self, Py_ssize_t size) except -1
    cdef put_bytes(self, bytes data)
    cdef int put_uvarint(self, long long value) except -1
    cdef int put_length(self, Field field, long long size, int width) except -1
    cdef finish_part(self)
