# What only exists compiled. kernel.py uses these names behind `if cython.compiled:`.
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy

cdef extern from "native.h" nogil:
    unsigned int big_endian_u32(const unsigned char *data)
    int64_t big_endian_i64(const unsigned char *data)
    uint64_t little_endian_u64(const unsigned char *data)
    int32_t native_i32(const unsigned char *data)
    int64_t native_i64(const unsigned char *data)
    void fetch_ahead(const unsigned char *data)
    int crc32c_has_instruction()
    unsigned int crc32c_short(unsigned int crc, const unsigned char *data, size_t size)
