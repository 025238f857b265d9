# What only exists compiled. kernel.py uses these names behind `if cython.compiled:`.
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

cdef extern from "crc32c.h" nogil:
    int crc32c_has_instruction()
    unsigned int crc32c_short(unsigned int crc, const unsigned char *data, size_t size)
