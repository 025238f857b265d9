cdef extern from "native.h" nogil:
    int crc32c_has_instruction()
    unsigned int crc32c_native(unsigned int crc, const unsigned char *data, size_t size)

cdef long long crc_without_instruction(unsigned char *p, Py_ssize_t size, long long initial) except -1 nogil
cdef long long crc_in_library(object data, Py_ssize_t size, long long initial) except -1

# fastcrc sums twice as many bytes in a cycle, but a call costs 150 ns and needs the interpreter's lock.
cdef enum:
    LONG = 32768

cdef inline long long crc_of(
    unsigned char *p, Py_ssize_t at, Py_ssize_t size, long long initial
) except -1 nogil:
    if crc32c_has_instruction():
        return crc32c_native(<unsigned int> initial, p + at, size)
    return crc_without_instruction(p + at, size, initial)

cdef inline long long crc_of_data(object data, unsigned char *p, Py_ssize_t size, long long initial) except -1:
    if size < LONG and crc32c_has_instruction():
        return crc32c_native(<unsigned int> initial, p, size)
    return crc_in_library(data, size, initial)
