/* Loads from any address, and a CRC-32C for buffers so short that a call into a library costs more than the sum. fastcrc
 * sums longer buffers, and all buffers on a CPU without a CRC instruction.
 *
 * Reflected polynomial 0x82F63B78, initial value and final xor 0xFFFFFFFF, as Kafka, iSCSI and ext4 use it.
 */
#ifndef SEEKLOG_NATIVE_H
#define SEEKLOG_NATIVE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t big_endian_u32(const unsigned char *data) {
    uint32_t word;
    memcpy(&word, data, 4);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    word = __builtin_bswap32(word);
#endif
    return word;
}

static inline int64_t big_endian_i64(const unsigned char *data) {
    uint64_t word;
    memcpy(&word, data, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return (int64_t)word;
}

static inline uint64_t little_endian_u64(const unsigned char *data) {
    uint64_t word;
    memcpy(&word, data, 8);
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static inline int32_t native_i32(const unsigned char *data) {
    int32_t word;
    memcpy(&word, data, 4);
    return word;
}

static inline int64_t native_i64(const unsigned char *data) {
    int64_t word;
    memcpy(&word, data, 8);
    return word;
}

/* The zigzag varint at `*at`, which moves to the position after it, or to -1 if the varint is invalid. Ten bytes hold 64
 * bits; the tenth may hold only the last one. Those of one byte are loaded without a call, by primitives.pxd. */
static inline long long long_varint(const unsigned char *p, ptrdiff_t *at, ptrdiff_t end) {
    ptrdiff_t here = *at;
    uint64_t value = 0;
    int shift = 0;
    if (end - here >= 2 && p[here + 1] < 0x80) {
        value = (uint64_t)(p[here] & 0x7F) | (uint64_t)p[here + 1] << 7;
        *at = here + 2;
        return (long long)((value >> 1) ^ (0 - (value & 1)));
    }
    while (here < end) {
        unsigned int byte = p[here++];
        if (shift == 63 && byte > 1) break;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *at = here;
            return (long long)((value >> 1) ^ (0 - (value & 1)));
        }
        shift += 7;
    }
    *at = -1;
    return 0;
}

/* Prefetch an address before it is read. */
static inline void prefetch(const unsigned char *data) {
#if defined(__GNUC__) || defined(__clang__)
    __builtin_prefetch(data);
#else
    (void)data;
#endif
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include <nmmintrin.h>

static inline int crc32c_has_instruction(void) {
    return __builtin_cpu_supports("sse4.2") ? 1 : 0;
}

__attribute__((target("sse4.2")))
static inline uint32_t crc32c_short(uint32_t crc, const unsigned char *data, size_t size) {
    uint64_t sum = ~crc, word;
    for (; size >= 8; data += 8, size -= 8) {
        memcpy(&word, data, 8);
        sum = _mm_crc32_u64(sum, word);
    }
    if (size >= 4) {
        uint32_t half;
        memcpy(&half, data, 4);
        sum = _mm_crc32_u32((uint32_t)sum, half);
        data += 4;
        size -= 4;
    }
    for (; size; data++, size--) sum = _mm_crc32_u8((uint32_t)sum, *data);
    return ~(uint32_t)sum;
}

#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)

#include <arm_acle.h>

static inline int crc32c_has_instruction(void) { return 1; }

static inline uint32_t crc32c_short(uint32_t crc, const unsigned char *data, size_t size) {
    uint32_t sum = ~crc;
    uint64_t word;
    for (; size >= 8; data += 8, size -= 8) {
        memcpy(&word, data, 8);
        sum = __crc32cd(sum, word);
    }
    for (; size; data++, size--) sum = __crc32cb(sum, *data);
    return ~sum;
}

#else

static inline int crc32c_has_instruction(void) { return 0; }
static inline uint32_t crc32c_short(uint32_t crc, const unsigned char *data, size_t size) {
    (void)data; (void)size;
    return crc; /* never called: crc.py asks crc32c_has_instruction first */
}

#endif
#endif
