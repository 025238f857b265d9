"""The keyed hash of record keys: SipHash-2-4 with 128 bits, as its authors published it; and Kafka's murmur2."""

from __future__ import annotations

import random

import pytest

from record.test_twin import twin  # noqa: F401  a fixture
from seeklog.errors import UsageError
from seeklog.record.key_hash import FIXED_SECRET, hash_key, murmur2, partition_of

# The authors' own vectors: the secret is 00 01 ... 0f, the key of n bytes is 00 01 ... n-1.
SECRET = bytes(range(16))
VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    9: "264499060ad9baabc47f8b02bb6d71ed",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
    16: "6ee2a4ca67b054bbfd3315bf85230577",
    63: "5150d1772f50834a503e069a973fbd7c",
}


@pytest.mark.parametrize("size", VECTORS)
def test_published_vectors_match(size: int) -> None:
    first, second = hash_key(bytes(range(size)), SECRET)
    assert (first.to_bytes(8, "little") + second.to_bytes(8, "little")).hex() == VECTORS[size]


def test_both_kernels_hash_the_same(twin) -> None:  # noqa: F811
    rng = random.Random(5)
    for size in [*range(40), 255, 256, 257, 1000]:
        key, secret = rng.randbytes(size), rng.randbytes(16)
        assert hash_key(key, secret) == twin.hash_key(key, secret)


def test_fixed_secret_is_the_default() -> None:
    assert hash_key(b"key") == hash_key(b"key", FIXED_SECRET)
    assert hash_key(b"key") != hash_key(b"key", SECRET)


@pytest.mark.parametrize("size", [0, 15, 17, 32])
def test_secret_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(UsageError, match=f"16 bytes, not {size}"):
        hash_key(b"key", bytes(size))


# Of UtilsTest.testMurmur2 in Kafka's own tests: the hash as Java's signed int.
JAVA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", JAVA_HASHES)
def test_key_gets_the_same_hash_as_in_java(key: bytes) -> None:
    assert murmur2(key) == JAVA_HASHES[key] % 2**32
    for count in (1, 2, 7, 1000):
        assert partition_of(key, count) == (JAVA_HASHES[key] % 2**31) % count
