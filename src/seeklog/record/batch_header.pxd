cdef Py_ssize_t whole_batch_size(unsigned char *p, Py_ssize_t at, Py_ssize_t end) except -1
cdef Py_ssize_t next_batch(
    unsigned char *p, Py_ssize_t at, Py_ssize_t end, long long next_offset, bint contiguous, long long position
) except -1 nogil
cdef int check_crc(unsigned char *p, Py_ssize_t at, Py_ssize_t size, long long position) except -1 nogil
cdef int check_batch(unsigned char *p, Py_ssize_t at, Py_ssize_t size, long long position) except -1 nogil
