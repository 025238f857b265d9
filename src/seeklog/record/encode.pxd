cdef Py_ssize_t field_size(str what, object field) except? -1

cdef Py_ssize_t body_size_of(
    long long timestamp_delta, long long offset_delta, object key, object value, object headers
) except? -1

cdef Py_ssize_t store_record(
    unsigned char *p,
    Py_ssize_t at,
    Py_ssize_t body_size,
    long long timestamp_delta,
    long long offset_delta,
    object key,
    object value,
    object headers,
) noexcept

cdef int write_header(
    object data,
    Py_ssize_t at,
    Py_ssize_t size,
    long long base_offset,
    long long leader_epoch,
    long long attributes,
    long long last_delta,
    long long base_timestamp,
    long long max_timestamp,
    long long producer_id,
    long long producer_epoch,
    long long base_sequence,
    long long record_count,
) except? -1

cdef object finish_batch(
    object batch,
    long long base_offset,
    long long leader_epoch,
    long long attributes,
    long long last_delta,
    long long base_timestamp,
    long long max_timestamp,
    long long producer_id,
    long long producer_epoch,
    long long base_sequence,
    long long record_count,
)
