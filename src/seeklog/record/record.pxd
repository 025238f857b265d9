cimport cython

cdef long long UNSET

@cython.final
cdef class Record:
    cdef readonly long long offset
    cdef readonly object key
    cdef readonly object value
    cdef readonly tuple headers
    cdef long long timestamp
    # (topic, partition), shared by all records of a partition, so that it costs a decode almost nothing.
    cdef object source

cdef long long checked_timestamp(object timestamp_ms) except? -2
cdef object as_bytes(object field)
cdef tuple header_tuple(object headers)
