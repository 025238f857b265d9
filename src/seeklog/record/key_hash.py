"""Key hashes: Kafka's murmur2, which assigns keys to partitions, and SipHash, which identifies keys in tables."""

import cython
from cython import Py_ssize_t, longlong, p_uchar, ulonglong
from cython.cimports.seeklog.record.primitives import load_little_u32, load_little_u64, pointer

from seeklog.errors import UsageError


@cython.cfunc
@cython.exceptval(check=False)
def murmur2_at(p: p_uchar, at: Py_ssize_t, size: Py_ssize_t) -> ulonglong:
    end: Py_ssize_t = at + size
    # Computed in 64 bits and cut to 32 after each product, so that compiled and interpreted code agree.
    cut: ulonglong = 0xFFFFFFFF
    factor: ulonglong = 0x5BD1E995
    seed: ulonglong = 0x9747B28C
    mixed: ulonglong = (seed ^ cython.cast(ulonglong, size)) & cut
    word: ulonglong
    while end - at >= 4:
        word = (load_little_u32(p, at) * factor) & cut
        word = ((word ^ (word >> 24)) * factor) & cut
        mixed = ((mixed * factor) & cut) ^ word
        at += 4
    if end - at >= 3:
        mixed ^= cython.cast(ulonglong, p[at + 2]) << 16
    if end - at >= 2:
        mixed ^= cython.cast(ulonglong, p[at + 1]) << 8
    if end - at >= 1:
        mixed = ((mixed ^ p[at]) * factor) & cut
    mixed = ((mixed ^ (mixed >> 13)) * factor) & cut
    return mixed ^ (mixed >> 15)


def murmur2(key: bytes):
    """Return the unsigned 32-bit hash by which Kafka's clients assign keys to partitions."""
    return murmur2_at(pointer(key), 0, len(key))


def partition_of(key: bytes, count: longlong):
    """Return a key's partition, of `count`, by Kafka's default partitioner."""
    if count < 1:
        raise ValueError(f"a topic of {count} partitions")
    hashed: longlong = murmur2_at(pointer(key), 0, len(key))
    return (hashed & 0x7FFFFFFF) % count


# SipHash-2-4 with 128 bits: https://cr.yp.to/siphash/siphash-20120918.pdf, and its authors' code for the wide result.
# Without the secret nobody can construct colliding keys; 128 bits let a table store hashes in place of keys.

SECRET_SIZE = 16
# Digits of pi, for hashes that are written to disk and need not resist an attacker.
FIXED_SECRET = bytes.fromhex("243f6a8885a308d313198a2e03707344")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def sip_round(
    v0: ulonglong, v1: ulonglong, v2: ulonglong, v3: ulonglong
) -> tuple[ulonglong, ulonglong, ulonglong, ulonglong]:
    # The masks cost nothing when compiled: they keep Python's integers at 64 bits.
    cut: ulonglong = 0xFFFFFFFFFFFFFFFF
    v0 = (v0 + v1) & cut
    v1 = (((v1 << 13) & cut) | (v1 >> 51)) ^ v0
    v0 = ((v0 << 32) & cut) | (v0 >> 32)
    v2 = (v2 + v3) & cut
    v3 = (((v3 << 16) & cut) | (v3 >> 48)) ^ v2
    v0 = (v0 + v3) & cut
    v3 = (((v3 << 21) & cut) | (v3 >> 43)) ^ v0
    v2 = (v2 + v1) & cut
    v1 = (((v1 << 17) & cut) | (v1 >> 47)) ^ v2
    v2 = ((v2 << 32) & cut) | (v2 >> 32)
    return v0, v1, v2, v3


@cython.cfunc
@cython.exceptval(check=False)
def siphash(
    p: p_uchar,
    at: Py_ssize_t,
    size: Py_ssize_t,
    secret_low: ulonglong,
    secret_high: ulonglong,
) -> tuple[ulonglong, ulonglong]:
    """Return the two halves of the hash of `size` bytes. Pass the halves of the secret read by `load_little_u64`."""
    end: Py_ssize_t = at + size
    # Separate variables: in an expression, a literal of more than 32 bits would be a Python object.
    v0: ulonglong = 0x736F6D6570736575
    v1: ulonglong = 0x646F72616E646F6D ^ 0xEE
    v2: ulonglong = 0x6C7967656E657261
    v3: ulonglong = 0x7465646279746573
    word: ulonglong
    first: ulonglong
    shift: cython.int = 0
    v0 ^= secret_low
    v1 ^= secret_high
    v2 ^= secret_low
    v3 ^= secret_high
    while end - at >= 8:
        word = load_little_u64(p, at)
        v3 ^= word
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
        v0 ^= word
        at += 8
    word = cython.cast(ulonglong, size & 0xFF) << 56
    while at < end:
        word |= cython.cast(ulonglong, p[at]) << shift
        shift += 8
        at += 1
    v3 ^= word
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= 0xEE
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    first = v0 ^ v1 ^ v2 ^ v3
    v1 ^= 0xDD
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    return first, v0 ^ v1 ^ v2 ^ v3


def hash_key(key: bytes, secret: bytes = FIXED_SECRET):
    """Return the SipHash-2-4 of a key as two unsigned 64-bit numbers, the first and the second half.

    The secret has 16 bytes. Pass random bytes if an attacker may choose the keys.
    """
    if len(secret) != 16:
        raise UsageError(f"a secret has {SECRET_SIZE} bytes, not {len(secret)}")
    q: p_uchar = pointer(secret)
    first: ulonglong
    second: ulonglong
    first, second = siphash(pointer(key), 0, len(key), load_little_u64(q, 0), load_little_u64(q, 8))
    return first, second
