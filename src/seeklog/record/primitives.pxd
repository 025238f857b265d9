# Loads, stores and varints, inlined into every compiled module. primitives.py is the interpreted twin.
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory, PyMemoryView_GET_BUFFER
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy

cdef extern from "native.h" nogil:
    unsigned int big_endian_u32(const unsigned char *data)
    int64_t big_endian_i64(const unsigned char *data)
    uint64_t little_endian_u64(const unsigned char *data)
    int32_t native_i32(const unsigned char *data)
    int64_t native_i64(const unsigned char *data)
    void prefetch(const unsigned char *data)
    void copy_short(unsigned char *target, const unsigned char *source, size_t size, size_t room)
    long long long_varint(const unsigned char *p, Py_ssize_t *at, Py_ssize_t end)


# ---------------------------------------------------------------- buffers

cdef inline unsigned char *pointer(bytes data) noexcept:
    return <unsigned char *> PyBytes_AS_STRING(data)

cdef inline unsigned char *buffer_pointer(bytearray buffer) noexcept:
    return <unsigned char *> PyByteArray_AS_STRING(buffer)

cdef inline object view_of(object buffer):
    view = memoryview(b"" if buffer is None else buffer)
    return view.cast("B") if view.nbytes else memoryview(b"")

cdef inline unsigned char *view_pointer(object view) noexcept:
    return <unsigned char *> PyMemoryView_GET_BUFFER(view).buf

cdef inline object view_at(unsigned char *p, Py_ssize_t at, Py_ssize_t size):
    return PyMemoryView_FromMemory(<char *> p + at, size, PyBUF_READ)

cdef inline object new_buffer(Py_ssize_t size):
    return PyByteArray_FromStringAndSize(NULL, size)

cdef inline int resize(bytearray buffer, Py_ssize_t size) except -1:
    return PyByteArray_Resize(buffer, size)

cdef inline object new_bytes(Py_ssize_t size):
    return PyBytes_FromStringAndSize(NULL, size)

cdef inline unsigned char *new_pointer(object data) noexcept:
    return <unsigned char *> PyBytes_AS_STRING(data)

cdef inline object finished(object data):
    return data

cdef inline object slice_bytes(bytes data, unsigned char *p, Py_ssize_t at, Py_ssize_t size):
    return PyBytes_FromStringAndSize(<char *> p + at, size)

cdef inline object bytes_at(unsigned char *p, Py_ssize_t at, Py_ssize_t size):
    return PyBytes_FromStringAndSize(<char *> p + at, size)

cdef inline object text_at(unsigned char *p, Py_ssize_t at, Py_ssize_t size):
    return PyUnicode_DecodeUTF8(<char *> p + at, size, NULL)

cdef inline void copy(
    unsigned char *target, Py_ssize_t at, unsigned char *source, Py_ssize_t start, Py_ssize_t size
) noexcept nogil:
    memcpy(target + at, source + start, size)

cdef inline void copy_string(
    unsigned char *target, Py_ssize_t at, unsigned char *source, Py_ssize_t start, Py_ssize_t size, Py_ssize_t end
) noexcept nogil:
    copy_short(target + at, source + start, size, end - start)

cdef inline void fetch_ahead(unsigned char *p, Py_ssize_t at) noexcept nogil:
    prefetch(p + at)


# ---------------------------------------------------------------- big-endian, at any address

cdef inline int load_i16(unsigned char *p, Py_ssize_t at) noexcept nogil:
    cdef int value = (p[at] << 8) | p[at + 1]
    return value - ((value & 0x8000) << 1)

cdef inline long long load_i32(unsigned char *p, Py_ssize_t at) noexcept nogil:
    return <int32_t> big_endian_u32(p + at)

cdef inline long long load_u32(unsigned char *p, Py_ssize_t at) noexcept nogil:
    return big_endian_u32(p + at)

cdef inline long long load_i64(unsigned char *p, Py_ssize_t at) noexcept nogil:
    return big_endian_i64(p + at)

cdef inline unsigned long long load_u64(unsigned char *p, Py_ssize_t at) noexcept nogil:
    return <unsigned long long> big_endian_i64(p + at)

cdef inline void store_i16(unsigned char *p, Py_ssize_t at, long long value) noexcept nogil:
    p[at] = (value >> 8) & 0xFF
    p[at + 1] = value & 0xFF

cdef inline void store_i32(unsigned char *p, Py_ssize_t at, long long value) noexcept nogil:
    p[at] = (value >> 24) & 0xFF
    p[at + 1] = (value >> 16) & 0xFF
    p[at + 2] = (value >> 8) & 0xFF
    p[at + 3] = value & 0xFF

cdef inline void store_i64(unsigned char *p, Py_ssize_t at, long long value) noexcept nogil:
    store_i32(p, at, value >> 32)
    store_i32(p, at + 4, value)

cdef inline void store_u64(unsigned char *p, Py_ssize_t at, unsigned long long value) noexcept nogil:
    store_i64(p, at, <long long> value)


# ---------------------------------------------------------------- little-endian, at any address

cdef inline unsigned long long load_little_u32(unsigned char *p, Py_ssize_t at) noexcept nogil:
    return p[at] | (p[at + 1] << 8) | (p[at + 2] << 16) | (<unsigned long long> p[at + 3] << 24)

cdef inline unsigned long long load_little_u64(unsigned char *p, Py_ssize_t at) noexcept nogil:
    return little_endian_u64(p + at)

cdef inline void store_little_u32(unsigned char *p, Py_ssize_t at, unsigned long long value) noexcept nogil:
    p[at] = value & 0xFF
    p[at + 1] = (value >> 8) & 0xFF
    p[at + 2] = (value >> 16) & 0xFF
    p[at + 3] = (value >> 24) & 0xFF


# ---------------------------------------------------------------- this machine's order, by index or at any address

cdef inline void put_i32(unsigned char *p, Py_ssize_t index, long long value) noexcept nogil:
    (<int32_t *> p)[index] = <int32_t> value

cdef inline void put_i64(unsigned char *p, Py_ssize_t index, long long value) noexcept nogil:
    (<int64_t *> p)[index] = value

cdef inline long long get_i32(unsigned char *p, Py_ssize_t index) noexcept nogil:
    return native_i32(p + 4 * index)

cdef inline long long get_i64(unsigned char *p, Py_ssize_t index) noexcept nogil:
    return native_i64(p + 8 * index)

cdef inline long long get_u32_at(unsigned char *p, Py_ssize_t at) noexcept nogil:
    return <unsigned int> native_i32(p + at)

cdef inline unsigned long long get_u64_at(unsigned char *p, Py_ssize_t at) noexcept nogil:
    return <unsigned long long> native_i64(p + at)

cdef inline void put_u32_at(unsigned char *p, Py_ssize_t at, long long value) noexcept nogil:
    cdef unsigned int word = <unsigned int> value
    memcpy(p + at, &word, 4)

cdef inline void put_u64_at(unsigned char *p, Py_ssize_t at, unsigned long long value) noexcept nogil:
    memcpy(p + at, &value, 8)

cdef inline bint bit_at(unsigned char *p, Py_ssize_t index) noexcept nogil:
    return (p[index >> 3] >> (index & 7)) & 1 != 0


# ---------------------------------------------------------------- numbers

cdef inline long long wrapped(long long value) noexcept nogil:
    return value

cdef inline unsigned long long low_half(unsigned long long value) noexcept nogil:
    return <unsigned int> value

cdef inline unsigned long long zigzag(long long value) noexcept nogil:
    return <unsigned long long> ((value << 1) ^ (value >> 63))

cdef inline Py_ssize_t varint_size(long long value) noexcept nogil:
    cdef unsigned long long rest = zigzag(value)
    cdef Py_ssize_t size = 1
    while rest >= 0x80:
        rest >>= 7
        size += 1
    return size

cdef inline Py_ssize_t store_varint(unsigned char *p, Py_ssize_t at, long long value) noexcept nogil:
    cdef unsigned long long rest = zigzag(value)
    while rest >= 0x80:
        p[at] = (rest & 0x7F) | 0x80
        rest >>= 7
        at += 1
    p[at] = rest & 0x7F
    return at + 1

cdef inline (long long, Py_ssize_t) load_varint(unsigned char *p, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t after = at + 1
    cdef unsigned int low
    cdef long long value
    if at < end and p[at] < 0x80:
        return (p[at] >> 1) ^ -(p[at] & 1), after
    if after < end and p[after] < 0x80:
        low = (p[at] & 0x7F) | (p[after] << 7)
        return <long long> (low >> 1) ^ -<long long> (low & 1), after + 1
    # The address of a copy: that of `at` would keep it in memory on the short ways, too.
    after = at
    value = long_varint(p, &after, end)
    return value, after
