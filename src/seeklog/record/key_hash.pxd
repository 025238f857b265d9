cdef unsigned long long murmur2_at(unsigned char *p, Py_ssize_t at, Py_ssize_t size) noexcept
cdef (unsigned long long, unsigned long long) siphash(
    unsigned char *p,
    Py_ssize_t at,
    Py_ssize_t size,
    unsigned long long secret_low,
    unsigned long long secret_high,
) noexcept
