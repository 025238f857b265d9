/* Three shapes of an offset index, searched for the floor entry of an offset. Compiled by index_shapes.py.
 *
 * plain    8-byte entries (relative offset, position), big-endian: the present file.
 * two      the same, and a table of every 512th offset (a page of entries).
 * packed   blocks of 64 entries: the first entry, then the difference of each to the last as varints; a directory.
 */
#include <stdint.h>
#include <string.h>

static inline uint32_t big(const unsigned char *p) {
    uint32_t word;
    memcpy(&word, p, 4);
    return __builtin_bswap32(word);
}

static inline int64_t floor_in(const unsigned char *p, int64_t low, int64_t high, int64_t stride, uint32_t target) {
    while (low < high) {
        int64_t middle = (low + high) >> 1;
        if (big(p + middle * stride) <= target) low = middle + 1; else high = middle;
    }
    return low - 1;
}

uint64_t plain_lookups(const unsigned char *p, int64_t count, const uint32_t *targets, int64_t number) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < number; i++) {
        int64_t at = floor_in(p, 0, count, 8, targets[i]);
        if (at >= 0) sum += big(p + 8 * at + 4);
    }
    return sum;
}

int64_t two_build(const unsigned char *p, int64_t count, unsigned char *top) {
    int64_t made = 0;
    for (int64_t at = 0; at < count; at += 512, made++) memcpy(top + 4 * made, p + 8 * at, 4);
    return made;
}

uint64_t two_lookups(const unsigned char *p, int64_t count, const unsigned char *top, int64_t tops,
                     const uint32_t *targets, int64_t number) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < number; i++) {
        int64_t page = floor_in(top, 0, tops, 4, targets[i]);
        if (page < 0) continue;
        int64_t high = (page + 1) * 512 < count ? (page + 1) * 512 : count;
        int64_t at = floor_in(p, page * 512, high, 8, targets[i]);
        sum += big(p + 8 * at + 4);
    }
    return sum;
}

static inline unsigned char *put(unsigned char *out, uint32_t value) {
    while (value >= 0x80) { *out++ = (unsigned char)(value | 0x80); value >>= 7; }
    *out++ = (unsigned char)value;
    return out;
}

static inline const unsigned char *get(const unsigned char *in, uint32_t *value) {
    uint32_t found = 0;
    int shift = 0;
    do { found |= (uint32_t)(*in & 0x7F) << shift; shift += 7; } while (*in++ & 0x80);
    *value = found;
    return in;
}

/* The directory has 12 bytes per block: first offset, first position, start of the varints. */
int64_t packed_build(const unsigned char *p, int64_t count, unsigned char *directory, unsigned char *out) {
    unsigned char *at = out;
    for (int64_t first = 0; first < count; first += 64) {
        unsigned char *entry = directory + first / 64 * 12;
        uint32_t where = __builtin_bswap32((uint32_t)(at - out)), offset = big(p + 8 * first), position = big(p + 8 * first + 4);
        memcpy(entry, p + 8 * first, 8);
        memcpy(entry + 8, &where, 4);
        for (int64_t number = first + 1; number < count && number < first + 64; number++) {
            uint32_t next_offset = big(p + 8 * number), next_position = big(p + 8 * number + 4);
            at = put(at, next_offset - offset);
            at = put(at, next_position - position);
            offset = next_offset;
            position = next_position;
        }
    }
    return at - out;
}

uint64_t packed_lookups(const unsigned char *directory, int64_t count, const unsigned char *data,
                        const uint32_t *targets, int64_t number) {
    uint64_t sum = 0;
    int64_t blocks = (count + 63) / 64;
    for (int64_t i = 0; i < number; i++) {
        int64_t block = floor_in(directory, 0, blocks, 12, targets[i]);
        if (block < 0) continue;
        const unsigned char *entry = directory + 12 * block;
        uint32_t offset = big(entry), position = big(entry + 4), step, stride;
        const unsigned char *at = data + big(entry + 8);
        int64_t left = count - 64 * block - 1;
        for (left = left < 63 ? left : 63; left > 0; left--) {
            at = get(at, &step);
            at = get(at, &stride);
            if (offset + step > targets[i]) break;
            offset += step;
            position += stride;
        }
        sum += position;
    }
    return sum;
}
