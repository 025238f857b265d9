# The numbers of kind.py, as C constants.
cdef enum:
    BOOL = 0
    INT8 = 1
    INT16 = 2
    UINT16 = 3
    INT32 = 4
    INT64 = 5
    FLOAT64 = 6
    UUID = 7
    STRING = 8
    BYTES = 9
    RECORDS = 10
    STRUCT = 11

    UUID_SIZE = 16
    UVARINT_SIZE_MAX = 5
