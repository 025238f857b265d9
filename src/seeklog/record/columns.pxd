# Used only where columns.py is compiled.
cdef extern from "native.h" nogil:
    Py_ssize_t read_at(int descriptor, unsigned char *target, size_t size, long long position)
