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
