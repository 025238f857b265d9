# cython: language_level=3
# The inlined functions of primitives.pxd, callable from Python: test_primitives.py compiles this.
from seeklog.record cimport layout
from seeklog.record cimport primitives as inlined

cdef extern from "native.h":
    int crc32c_has_instruction()
    unsigned int crc32c_native(unsigned int crc, const unsigned char *data, size_t size)
    unsigned long long crc_narrow(unsigned long long sum, const unsigned char *data, size_t size)


def _has_crc_instruction(): return crc32c_has_instruction()
def _crc32c(bytes data, unsigned int initial): return crc32c_native(initial, inlined.pointer(data), len(data))
def _crc_narrow(bytes data, unsigned int initial):
    return ~<unsigned int> crc_narrow(<unsigned int> ~initial, inlined.pointer(data), len(data))


def load_i16(bytes data, Py_ssize_t at): return inlined.load_i16(inlined.pointer(data), at)
def load_i32(bytes data, Py_ssize_t at): return inlined.load_i32(inlined.pointer(data), at)
def load_u32(bytes data, Py_ssize_t at): return inlined.load_u32(inlined.pointer(data), at)
def load_i64(bytes data, Py_ssize_t at): return inlined.load_i64(inlined.pointer(data), at)
def load_u64(bytes data, Py_ssize_t at): return inlined.load_u64(inlined.pointer(data), at)
def load_little_u32(bytes data, Py_ssize_t at): return inlined.load_little_u32(inlined.pointer(data), at)
def load_little_u64(bytes data, Py_ssize_t at): return inlined.load_little_u64(inlined.pointer(data), at)
def get_i32(bytes data, Py_ssize_t index): return inlined.get_i32(inlined.pointer(data), index)
def get_i64(bytes data, Py_ssize_t index): return inlined.get_i64(inlined.pointer(data), index)
def get_u32_at(bytes data, Py_ssize_t at): return inlined.get_u32_at(inlined.pointer(data), at)
def get_u64_at(bytes data, Py_ssize_t at): return inlined.get_u64_at(inlined.pointer(data), at)
def bit_at(bytes data, Py_ssize_t index): return inlined.bit_at(inlined.pointer(data), index)

def store_i16(bytearray data, Py_ssize_t at, long long value): inlined.store_i16(inlined.buffer_pointer(data), at, value)
def store_i32(bytearray data, Py_ssize_t at, long long value): inlined.store_i32(inlined.buffer_pointer(data), at, value)
def store_i64(bytearray data, Py_ssize_t at, long long value): inlined.store_i64(inlined.buffer_pointer(data), at, value)
def store_u64(bytearray data, Py_ssize_t at, unsigned long long value):
    inlined.store_u64(inlined.buffer_pointer(data), at, value)
def store_little_u32(bytearray data, Py_ssize_t at, unsigned long long value):
    inlined.store_little_u32(inlined.buffer_pointer(data), at, value)
def put_i32(bytearray data, Py_ssize_t index, long long value): inlined.put_i32(inlined.buffer_pointer(data), index, value)
def put_i64(bytearray data, Py_ssize_t index, long long value): inlined.put_i64(inlined.buffer_pointer(data), index, value)
def put_u32_at(bytearray data, Py_ssize_t at, long long value): inlined.put_u32_at(inlined.buffer_pointer(data), at, value)
def put_u64_at(bytearray data, Py_ssize_t at, unsigned long long value):
    inlined.put_u64_at(inlined.buffer_pointer(data), at, value)

def wrapped(long long value): return inlined.wrapped(value)
def low_half(unsigned long long value): return inlined.low_half(value)
def zigzag(long long value): return inlined.zigzag(value)
def varint_size(long long value): return inlined.varint_size(value)
def store_varint(bytearray data, Py_ssize_t at, long long value):
    return inlined.store_varint(inlined.buffer_pointer(data), at, value)
def load_varint(bytes data, Py_ssize_t at, Py_ssize_t end):
    return inlined.load_varint(inlined.pointer(data), at, end)

# Buffers: what a caller sees of them.
def pointer(bytes data): return inlined.slice_bytes(data, inlined.pointer(data), 0, len(data))
def buffer_pointer(bytearray data): return (<char *> inlined.buffer_pointer(data))[:len(data)]
def view_pointer(object data): return (<char *> inlined.view_pointer(memoryview(data)))[:len(data)]
def view_of(object data): return bytes(inlined.view_of(data))
def new_buffer(Py_ssize_t size): return len(inlined.new_buffer(size))
def resize(bytearray data, Py_ssize_t size):
    inlined.resize(data, size)
    return len(data)
def new_bytes(bytes data):
    made = inlined.new_bytes(len(data))
    inlined.copy(inlined.new_pointer(made), 0, inlined.pointer(data), 0, len(data))
    return inlined.finished(made)
def slice_bytes(bytes data, Py_ssize_t at, Py_ssize_t size):
    return inlined.slice_bytes(data, inlined.pointer(data), at, size)
def bytes_at(bytes data, Py_ssize_t at, Py_ssize_t size): return inlined.bytes_at(inlined.pointer(data), at, size)
def text_at(bytes data, Py_ssize_t at, Py_ssize_t size): return inlined.text_at(inlined.pointer(data), at, size)
def copy(bytearray target, Py_ssize_t at, bytes source, Py_ssize_t start, Py_ssize_t size):
    inlined.copy(inlined.buffer_pointer(target), at, inlined.pointer(source), start, size)
    return bytes(target)
def copy_string(bytearray target, Py_ssize_t at, bytes source, Py_ssize_t start, Py_ssize_t size, Py_ssize_t end):
    inlined.copy_string(inlined.buffer_pointer(target), at, inlined.pointer(source), start, size, end)
    return bytes(target)
def view_at(bytes data, Py_ssize_t at, Py_ssize_t size):
    return bytes(inlined.view_at(inlined.pointer(data), at, size))
def fetch_ahead(bytes data): inlined.fetch_ahead(inlined.pointer(data), 0)
