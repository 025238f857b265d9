/* Loads from any address, copies of short byte strings, and a CRC-32C that needs no library and no lock. fastcrc sums on a
 * CPU without the instructions for it, and very long buffers.
 *
 * Reflected polynomial 0x82F63B78, initial value and final xor 0xFFFFFFFF, as Kafka, iSCSI and ext4 use it.
 */
#ifndef SEEKLOG_NATIVE_H
#define SEEKLOG_NATIVE_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

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

/* Copy a byte string. While 32 bytes may be read and written from its last part on, that is done without a call. */
static inline void copy_short(unsigned char *target, const unsigned char *source, size_t size, size_t room) {
    size_t at = 0;
    if (size > 256 || size + 32 > room) {
        memcpy(target, source, size);
        return;
    }
    do {
        memcpy(target + at, source + at, 32);
        at += 32;
    } while (at < size);
}

/* Read up to `size` bytes of an open file at a position. Returns their number, 0 at the end of the file, -1 for an error. */
static inline ptrdiff_t read_at(int descriptor, unsigned char *target, size_t size, int64_t position) {
    ssize_t got;
    do {
        got = pread(descriptor, target, size, (off_t)position);
    } while (got < 0 && errno == EINTR);
    return got;
}

/* Prefetch an address before it is read. */
static inline void prefetch(const unsigned char *data) {
#if defined(__GNUC__) || defined(__clang__)
    __builtin_prefetch(data);
#else
    (void)data;
#endif
}

/* crc_word sums eight bytes; multiply_low returns the low 64 bits of a product without carries. */
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include <nmmintrin.h>
#include <wmmintrin.h>

#define CRC_TARGET __attribute__((target("sse4.2,pclmul")))

static inline int crc32c_has_instruction(void) {
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

CRC_TARGET static inline uint64_t crc_word(uint64_t sum, uint64_t word) { return _mm_crc32_u64(sum, word); }

CRC_TARGET static inline uint64_t crc_byte(uint64_t sum, unsigned char byte) {
    return _mm_crc32_u8((uint32_t)sum, byte);
}

CRC_TARGET static inline uint64_t multiply_low(uint64_t a, uint64_t b) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)a), _mm_cvtsi64_si128((int64_t)b), 0);
    return (uint64_t)_mm_cvtsi128_si64(product);
}

#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32) && defined(__ARM_FEATURE_AES)

#include <arm_acle.h>
#include <arm_neon.h>

#define CRC_TARGET

static inline int crc32c_has_instruction(void) { return 1; }

static inline uint64_t crc_word(uint64_t sum, uint64_t word) { return __crc32cd((uint32_t)sum, word); }

static inline uint64_t crc_byte(uint64_t sum, unsigned char byte) { return __crc32cb((uint32_t)sum, byte); }

static inline uint64_t multiply_low(uint64_t a, uint64_t b) {
    return vgetq_lane_u64(vreinterpretq_u64_p128(vmull_p64((poly64_t)a, (poly64_t)b)), 0);
}

#else

/* Never called: crc.pxd asks crc32c_has_instruction first. */
#define CRC_TARGET

static inline int crc32c_has_instruction(void) { return 0; }
static inline uint64_t crc_word(uint64_t sum, uint64_t word) { return sum ^ word; }
static inline uint64_t crc_byte(uint64_t sum, unsigned char byte) { return sum ^ byte; }
static inline uint64_t multiply_low(uint64_t a, uint64_t b) { return a ^ b; }

#endif

/* The instruction takes three cycles, and one can start in each cycle. So the three parts of a block are summed by three
 * sums that do not wait for each other. Then the first two are moved over the bytes after them: `over_two` and `over_one`
 * are x^(bits of two parts, or of one, - 33) modulo the polynomial, reflected. Of the 33, the last instruction multiplies by
 * x^32, and the product of two reflected numbers by x. */
CRC_TARGET static inline uint64_t crc_block(
    uint64_t sum, const unsigned char *data, size_t part, uint32_t over_two, uint32_t over_one
) {
    uint64_t second = 0, third = 0, words[3];
    size_t at = 0;
    for (;; at += 8) {
        memcpy(&words[0], data + at, 8);
        memcpy(&words[1], data + at + part, 8);
        memcpy(&words[2], data + at + 2 * part, 8);
        sum = crc_word(sum, words[0]);
        second = crc_word(second, words[1]);
        if (at + 8 == part) break;
        third = crc_word(third, words[2]);
    }
    return crc_word(third, words[2] ^ multiply_low(sum, over_two) ^ multiply_low(second, over_one));
}

/* With AVX-512, one instruction multiplies in four lanes. Four registers of four lanes hold 256 bytes. Each step moves them over
 * the next 256: a lane of two halves becomes low * x^(bits + 64) + high * x^bits modulo the polynomial, and the product of two
 * reflected numbers has one factor x already. At the end the lanes are moved over each other, and the CRC instruction sums
 * the last one. `size` is a multiple of 256. */
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include <immintrin.h>

#define WIDE_TARGET __attribute__((target("avx512f,vpclmulqdq,sse4.2,pclmul")))

static inline int crc_has_wide(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
}

WIDE_TARGET static inline __m512i crc_moved(__m512i lanes, __m512i over, __m512i next) {
    __m512i low = _mm512_clmulepi64_epi128(lanes, over, 0x00), high = _mm512_clmulepi64_epi128(lanes, over, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96);
}

WIDE_TARGET static inline __m128i crc_lane_moved(__m128i lane, __m128i over, __m128i next) {
    return _mm_xor_si128(
        _mm_xor_si128(_mm_clmulepi64_si128(lane, over, 0x00), _mm_clmulepi64_si128(lane, over, 0x11)), next);
}

WIDE_TARGET static inline uint64_t crc_wide(uint64_t sum, const unsigned char *data, size_t size) {
    const __m512i over_256 = _mm512_broadcast_i32x4(_mm_set_epi64x((int64_t)0x1426A81500000000ull, (int64_t)0xE9A5D8BE00000000ull));
    const __m512i over_64 = _mm512_broadcast_i32x4(_mm_set_epi64x((int64_t)0x75BBA45B00000000ull, (int64_t)0x1C19243B00000000ull));
    const __m128i over_16 = _mm_set_epi64x((int64_t)0x3171D43000000000ull, (int64_t)0x3743F7BD00000000ull);
    const unsigned char *end = data + size;
    __m512i lanes[4];
    __m128i last;
    int number;
    for (number = 0; number < 4; number++) lanes[number] = _mm512_loadu_si512(data + 64 * number);
    lanes[0] = _mm512_xor_si512(lanes[0], _mm512_zextsi128_si512(_mm_cvtsi64_si128((int64_t)sum)));
    for (data += 256; data < end; data += 256)
        for (number = 0; number < 4; number++)
            lanes[number] = crc_moved(lanes[number], over_256, _mm512_loadu_si512(data + 64 * number));
    for (number = 0; number < 3; number++) lanes[number + 1] = crc_moved(lanes[number], over_64, lanes[number + 1]);
    last = _mm512_extracti32x4_epi32(lanes[3], 0);
    last = crc_lane_moved(last, over_16, _mm512_extracti32x4_epi32(lanes[3], 1));
    last = crc_lane_moved(last, over_16, _mm512_extracti32x4_epi32(lanes[3], 2));
    last = crc_lane_moved(last, over_16, _mm512_extracti32x4_epi32(lanes[3], 3));
    return crc_word(crc_word(0, (uint64_t)_mm_extract_epi64(last, 0)), (uint64_t)_mm_extract_epi64(last, 1));
}

#else

static inline int crc_has_wide(void) { return 0; }
static inline uint64_t crc_wide(uint64_t sum, const unsigned char *data, size_t size) {
    (void)data;
    (void)size;
    return sum;
}

#endif

CRC_TARGET static inline uint64_t crc_narrow(uint64_t sum, const unsigned char *data, size_t size) {
    uint64_t word;
    for (; size >= 3 * 1024; data += 3 * 1024, size -= 3 * 1024)
        sum = crc_block(sum, data, 1024, 0xA51B6135u, 0x170076FAu);
    for (; size >= 3 * 128; data += 3 * 128, size -= 3 * 128)
        sum = crc_block(sum, data, 128, 0xB9E02B86u, 0x0D3B6092u);
    for (; size >= 8; data += 8, size -= 8) {
        memcpy(&word, data, 8);
        sum = crc_word(sum, word);
    }
    for (; size; data++, size--) sum = crc_byte(sum, *data);
    return sum;
}

static inline uint32_t crc32c_native(uint32_t crc, const unsigned char *data, size_t size) {
    uint64_t sum = (uint32_t)~crc;
    if (size >= 1024 && crc_has_wide()) {
        size_t wide = size & ~(size_t)255;
        sum = crc_wide(sum, data, wide);
        data += wide;
        size -= wide;
    }
    return ~(uint32_t)crc_narrow(sum, data, size);
}

#endif
