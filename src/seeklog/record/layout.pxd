# The numbers of layout.py, as C constants.
cdef enum:
    BASE_OFFSET = 0
    BATCH_LENGTH = 8
    LEADER_EPOCH = 12
    MAGIC = 16
    CRC = 17
    ATTRIBUTES = 21
    ATTRIBUTES_LOW = 22
    LAST_OFFSET_DELTA = 23
    BASE_TIMESTAMP = 27
    MAX_TIMESTAMP = 35
    PRODUCER_ID = 43
    PRODUCER_EPOCH = 51
    BASE_SEQUENCE = 53
    RECORD_COUNT = 57
    HEADER_SIZE = 61

    MAGIC_V2 = 2
    CODEC_MAX = 4

    PREFIX_SIZE = 12
    BATCH_LENGTH_MIN = 49
    OLD_LENGTH_MIN = 14
    MAGIC_END = 17
    RECORD_SIZE_MIN = 7

    CODEC_MASK = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    TRANSACTIONAL_OR_CONTROL = 0x30
    DELETE_HORIZON = 0x40

    NO_TIMESTAMP = -1
    INT32_MAX = 0x7FFFFFFF

    GROUP = 32

cdef extern from *:
    """
    #define SEEKLOG_INT64_MAX 0x7FFFFFFFFFFFFFFFLL
    """
    const long long INT64_MAX "SEEKLOG_INT64_MAX"

# The positions and numbers of one record in the body of its batch.
cdef struct Place:
    # The positions of its length and of its offset delta: compaction may rewrite everything between them.
    Py_ssize_t start
    Py_ssize_t offset_at
    long long offset
    long long timestamp_ms
    # A size of -1 means null.
    Py_ssize_t key_at
    long long key_size
    Py_ssize_t value_at
    long long value_size
    Py_ssize_t headers_at
    Py_ssize_t end
