cimport cython
from seeklog.record.layout cimport GROUP, Place

@cython.final
cdef class RecordCursor:
    # The batch found by `next_batch`: bytes [at, at + size) of `data`.
    cdef bytes data
    cdef unsigned char *header
    cdef Py_ssize_t at
    cdef Py_ssize_t size
    cdef long long position
    cdef long long base_offset
    cdef long long last_offset
    cdef int attributes
    # The offset after the batches before it.
    cdef long long next_offset
    # Its records, when it is open: `body` is decompressed; positions in `places` refer to it.
    cdef bytes body
    cdef unsigned char *p
    cdef Py_ssize_t body_size
    # The end of the bytes at `p`. Beyond the records there may be other batches, which are there to be read.
    cdef Py_ssize_t readable
    cdef long long count
    cdef bint more
    # The number of the next record, and the records that `fill` parsed before it.
    cdef long long index
    cdef Place places[GROUP]
    cdef long long _origin
    cdef bint _contiguous
    cdef Py_ssize_t _data_end
    cdef bint _is_decompressed
    cdef Py_ssize_t _begin
    cdef Py_ssize_t _next
    cdef Py_ssize_t _end
    cdef long long _previous_delta
    cdef int begin(
        self, bytes data, Py_ssize_t at, long long origin, long long next_offset, bint contiguous
    ) except -1
    cdef int begin_at(
        self, unsigned char *p, Py_ssize_t end, long long origin, long long next_offset, bint contiguous
    ) noexcept nogil
    cdef bint next_batch(self) except -1 nogil
    cdef int check(self) except -1 nogil
    cdef int check_crc(self) except -1 nogil
    cdef void advance(self) noexcept nogil
    cdef int skip(self) except -1 nogil
    cdef int open(self, Py_ssize_t limit) except -1 nogil
    cdef bytes decompressed(self, int codec, Py_ssize_t limit)
    cdef void rewind(self) noexcept nogil
    cdef int release(self) except -1
    cdef Py_ssize_t fill(self, Py_ssize_t room, long long start, long long stop) except -1 nogil

cdef object record_error(object what, long long index, long long position)
