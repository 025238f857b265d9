/* CRC-32C with the CPU's own instruction, for buffers so short that a call into a library costs more than
 * the sum. Longer ones go to fastcrc; where there is no such instruction, all of them do.
 *
 * Reflected polynomial 0x82F63B78, initial value and final xor 0xFFFFFFFF, as Kafka, iSCSI and ext4 use it.
 */
#ifndef SEEKLOG_CRC32C_H
#define SEEKLOG_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include <nmmintrin.h>

static int crc32c_has_instruction(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") ? 1 : 0;
}

__attribute__((target("sse4.2")))
static uint32_t crc32c_short(uint32_t crc, const unsigned char *data, size_t size) {
    uint64_t sum = ~crc, word;
    for (; size >= 8; data += 8, size -= 8) {
        memcpy(&word, data, 8);
        sum = _mm_crc32_u64(sum, word);
    }
    for (; size; data++, size--) sum = _mm_crc32_u8((uint32_t)sum, *data);
    return ~(uint32_t)sum;
}

#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)

#include <arm_acle.h>

static int crc32c_has_instruction(void) { return 1; }

static uint32_t crc32c_short(uint32_t crc, const unsigned char *data, size_t size) {
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

static int crc32c_has_instruction(void) { return 0; }
static uint32_t crc32c_short(uint32_t crc, const unsigned char *data, size_t size) {
    (void)data; (void)size;
    return crc; /* never called: the kernel asks crc32c_has_instruction first */
}

#endif
#endif
