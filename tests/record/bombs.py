"""Bombs: small compressed data that expands to more than the memory, in every codec."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable

import cramjam

from seeklog.record.codec import compress

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
MIB = 1 << 20
LIMIT = 16 * MIB  # the default of max_decompressed_bytes
SLACK = 16 * MIB  # what target 13 of the reliability page allows a decoder for itself


def lz4_frame(*blocks: bytes, content_size: int | None = None, descriptor: int = 0x40) -> bytes:
    """An LZ4 frame of given blocks; xxh32 is needed only for the header, which lz4 itself can make."""
    flags = 0x60 | (0x08 if content_size is not None else 0)
    header = struct.pack("<BB", flags, descriptor)
    if content_size is not None:
        header += struct.pack("<Q", content_size)
    checksum = xxh32(header) >> 8 & 0xFF
    body = b"".join(struct.pack("<I", len(block)) + block for block in blocks)
    return struct.pack("<I", 0x184D2204) + header + bytes([checksum]) + body + bytes(4)


def xxh32(data: bytes) -> int:
    """xxHash of less than 16 bytes, as the frame header's checksum needs it."""
    primes = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    mask = 0xFFFFFFFF
    value = (primes[4] + len(data)) & mask
    whole = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        value = (value + word * primes[2]) & mask
        value = (value << 17 | value >> 15) & mask
        value = value * primes[3] & mask
    for byte in data[whole:]:
        value = (value + byte * primes[4]) & mask
        value = (value << 11 | value >> 21) & mask
        value = value * primes[0] & mask
    for shift, prime in ((15, primes[1]), (13, primes[2])):
        value = (value ^ value >> shift) * prime & mask
    return value ^ value >> 16


def lz4_block(data: bytes) -> bytes:
    return bytes(cramjam.lz4.compress_block(data, store_size=False))


def zstd_frame(*blocks: tuple[int, int, bytes], window: int = 0) -> bytes:
    """A frame without a content size, of (kind, size, bytes) blocks; `window` is its descriptor."""
    body = b"".join(
        (size << 3 | kind << 1 | (number == len(blocks) - 1)).to_bytes(3, "little") + data
        for number, (kind, size, data) in enumerate(blocks)
    )
    return struct.pack("<IBB", 0xFD2FB528, 0, window) + body


def gzip_bomb(claimed_size: int) -> bytes:
    """512 MiB of zeros in 512 KB: a run that ends in a full flush can be repeated unchanged."""
    deflate = zlib.compressobj(9, wbits=-15)
    run = deflate.compress(bytes(4 * MIB)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return gzip.compress(b"")[:10] + run * 128 + b"\x03\x00" + struct.pack("<II", 0, claimed_size)


def xerial_bomb() -> bytes:
    """Snappy expands a byte to at most 21: 2 MiB become 42 MiB."""
    block = bytes(cramjam.snappy.compress_raw(bytes(32 << 10)))
    framed = compress(SNAPPY, b"") + (struct.pack(">i", len(block)) + block) * (42 * 32)
    assert len(framed) < 2.2 * MIB
    return framed


BOMBS: dict[str, tuple[int, Callable[[], bytes]]] = {
    "gzip, honest": (GZIP, lambda: gzip_bomb(512 * MIB)),
    "gzip, claims nothing": (GZIP, lambda: gzip_bomb(0)),
    "gzip, claims the limit": (GZIP, lambda: gzip_bomb(LIMIT)),
    "gzip, many members": (GZIP, lambda: compress(GZIP, bytes(4 * MIB)) * 128),
    "snappy, raw, honest": (SNAPPY, lambda: bytes(cramjam.snappy.compress_raw(bytes(40 * MIB)))),
    "snappy, raw, claims 2 GiB": (SNAPPY, lambda: b"\xff\xff\xff\xff\x07" + bytes(100_000)),
    "snappy, xerial": (SNAPPY, xerial_bomb),
    "snappy, tiny blocks": (SNAPPY, lambda: compress(SNAPPY, b"") + b"\0\0\0\x01\0" * 200_000),
    "lz4, 64 KB blocks": (LZ4, lambda: lz4_frame(*[lz4_block(bytes(64 << 10))] * 8192)),
    "lz4, 4 MB blocks": (LZ4, lambda: lz4_frame(*[lz4_block(bytes(4 * MIB))] * 128, descriptor=0x70)),
    "lz4, honest": (LZ4, lambda: lz4_frame(*[lz4_block(bytes(64 << 10))] * 8192, content_size=512 * MIB)),
    "lz4, claims the limit": (
        LZ4,
        lambda: lz4_frame(*[lz4_block(bytes(64 << 10))] * 8192, content_size=LIMIT),
    ),
    "zstd, honest": (ZSTD, lambda: bytes(cramjam.zstd.compress(bytes(512 * MIB), level=1))),
    "zstd, claims nothing": (ZSTD, lambda: zstd_frame(*[(1, 128 << 10, b"x")] * 4096, window=0x58)),
    "zstd, window of 128 MiB": (ZSTD, lambda: zstd_frame(*[(1, 128 << 10, b"x")] * 4096, window=0x88)),
    "zstd, many frames": (ZSTD, lambda: bytes(cramjam.zstd.compress(bytes(MIB), level=3)) * 512),
    "zstd, tiny frames": (ZSTD, lambda: zstd_frame((0, 0, b"")) * 100_000 + b"\0"),
}
