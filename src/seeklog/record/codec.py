"""Kafka's five codecs for the records of a batch, with bounded memory.

    0 none
    1 gzip     RFC 1952 members, read as one stream, as Java and gunzip do
    2 snappy   written in xerial framing: 82 "SNAPPY" 00, int32 1, int32 1, then {int32 size, raw block};
               a single raw block, as librdkafka writes it, is read as well
    3 lz4      one LZ4 frame, written with independent blocks of 64 KB: Java refuses linked blocks
    4 zstd     frames (RFC 8878) and skippable frames, read as one stream; one frame of level 3 is written

Every size inside compressed bytes is a claim. The invariant: output is allocated only up to an upper bound computed
from those claims, never past `limit`. Bytes after the compressed data are damage, since no writer leaves any. Only
errors of `seeklog.errors` leave this module.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from io import BytesIO
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import cramjam

from seeklog.errors import CorruptBatch, FormatError, UsageError, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Data: TypeAlias = bytes | bytearray | memoryview

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODEC_IDS: Final[Mapping[str, int]] = MappingProxyType(
    {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
)
CODEC_NAMES: Final[Mapping[int, str]] = MappingProxyType({number: name for name, number in CODEC_IDS.items()})

# Kafka's bounds for `compression.<codec>.level`. Snappy has no levels.
_LEVELS: Final[Mapping[int, range]] = MappingProxyType(
    {GZIP: range(1, 10), LZ4: range(1, 18), ZSTD: range(-(1 << 17), 23)}
)
_DEFAULT_LEVELS: Final[Mapping[int, int | None]] = MappingProxyType({GZIP: 6, LZ4: None, ZSTD: 3})

# One bit of deflate can produce 129 bytes (a match of 258 bytes in two bits), so one byte produces at most 1,032.
_DEFLATE_RATIO: Final = 1032
# A header of 10 bytes, the shortest deflate stream of 2, CRC and size of 4 each.
_GZIP_SIZE_MIN: Final = 20
# The first size to double if the last member's size is not that of the whole stream.
_GZIP_ROOM_MIN: Final = 64 << 10

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_INPUT: Final = 32 << 10
# A copy element of 3 bytes produces at most 64, so one byte produces less than 22.
_SNAPPY_RATIO: Final = 22

_LZ4_MAGIC: Final = 0x184D2204
# Magic, FLG, BD, the header's checksum, and the end mark.
_LZ4_SIZE_MIN: Final = 7 + 4
# One byte of a literal or match length adds at most 255 bytes, and the token before it at most 19.
_LZ4_RATIO: Final = 255
_LZ4_BLOCK_SIZES: Final[Mapping[int, int]] = MappingProxyType({4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20})

_ZSTD_MAGIC: Final = 0xFD2FB528
# Sixteen magic numbers: the low four bits are free.
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_BLOCK_MAX: Final = 128 << 10
# The window size that RFC 8878 requires of every decoder.
_ZSTD_WINDOW: Final = 8 << 20

# Rust's message for a full output buffer. cramjam reports it in no other way.
_SINK_FULL: Final = "failed to write whole buffer"


def compress(codec: int, data: Data, *, level: int | None = None) -> bytes:
    """Return `data` compressed as Kafka's clients and brokers expect it.

    `level` is one of Kafka's (gzip 1-9, lz4 1-17, zstd up to 22); any other raises `UsageError`.
    """
    if codec == NONE:
        return bytes(data)
    if codec not in CODEC_NAMES:
        raise _unsupported(codec)
    if level is None:
        level = _DEFAULT_LEVELS.get(codec)
    elif level not in _LEVELS.get(codec, range(0)):
        raise UsageError(f"{CODEC_NAMES[codec]} has no compression level {level}")
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data, level=level))
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=level))
    if codec == LZ4:
        # The batch has its own checksum; another over the content would be wasted work.
        compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        compressor.compress(bytes(data))
        return bytes(compressor.finish())
    return _encode_xerial(memoryview(data))


def decompress(codec: int, data: Data, *, limit: int) -> bytes:
    """Return the decompressed bytes, at most `limit` of them.

    Raises `FormatError` if the data expands past `limit` or the codec is unknown, and `CorruptBatch` if the bytes are
    damaged, cut short, or followed by other bytes. Codec 0 returns `data` unchanged, whatever its size.
    """
    if codec == NONE:
        return bytes(data)
    decode = _DECODERS.get(codec)
    if decode is None:
        raise _unsupported(codec)
    return decode(memoryview(data), limit)


def _unsupported(codec: int) -> FormatError:
    known = ", ".join(f"{number} {name}" for number, name in CODEC_NAMES.items())
    return FormatError(f"codec {codec} is not one of Kafka's: {known}")


def _too_large(codec: int, limit: int) -> FormatError:
    return FormatError(
        f"{CODEC_NAMES[codec]} data expands past {limit:,} bytes",
        advice="Raise max.decompressed.bytes if the batch comes from a writer you trust.",
    )


def _corrupt(codec: int, reason: object) -> CorruptBatch:
    return CorruptBatch(f"{CODEC_NAMES[codec]} data is damaged: {reason}")


class _Room:
    """Memory of a given size that becomes the returned `bytes` without a copy.

    `BytesIO` exposes its inner `bytes` for writing and then returns it; a `bytearray` would have to be copied.
    Seeking and writing once sets its exact size.
    """

    def __init__(self, size: int) -> None:
        self._file = BytesIO()
        if size:
            self._file.seek(size - 1)
            self._file.write(b"\0")

    def view(self) -> memoryview:
        return self._file.getbuffer()

    def take(self, size: int) -> bytes:
        self._file.truncate(size)
        return self._file.getvalue()


def _fill(into: Callable[[Any, Any], int], data: memoryview, sink: memoryview, *, codec: int) -> int | None:
    """Decompress into `sink` and return the number of bytes written, or None if `sink` is too small."""
    try:
        return into(data, sink)
    except cramjam.DecompressionError as error:
        if str(error) == _SINK_FULL:
            return None
        raise _corrupt(codec, error) from None


# gzip


def _decode_gzip(data: memoryview, limit: int) -> bytes:
    if len(data) < _GZIP_SIZE_MIN:
        raise _corrupt(GZIP, f"{counted(len(data), 'byte')} cannot hold a member")
    (claimed_size,) = struct.unpack_from("<I", data, len(data) - 4)
    size_max = min(len(data) * _DEFLATE_RATIO, limit)
    if claimed_size > size_max:
        if claimed_size > len(data) * _DEFLATE_RATIO:
            raise _corrupt(GZIP, f"{counted(len(data), 'byte')} cannot hold the {claimed_size:,} they claim")
        raise _too_large(GZIP, limit)
    size = claimed_size
    while (content := _gunzip(data, size)) is None:
        if size >= size_max:
            raise _too_large(GZIP, limit)
        # The claimed size is that of the last member only.
        size = min(max(size * 2, _GZIP_ROOM_MIN), size_max)
    return content


def _gunzip(data: memoryview, size: int) -> bytes | None:
    room = _Room(size)
    with room.view() as sink:
        written = _fill(cramjam.gzip.decompress_into, data, sink, codec=GZIP)
    return None if written is None else room.take(written)


# snappy


def _encode_xerial(data: memoryview) -> bytes:
    parts: list[Any] = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_INPUT):
        block = cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_INPUT])
        parts.append(struct.pack(">i", len(block)))
        parts.append(block)
    return b"".join(parts)


def _decode_snappy(data: memoryview, limit: int) -> bytes:
    # Two passes instead of a list: a hostile batch can contain 200,000 tiny blocks.
    size = sum(map(_snappy_size, _scan_snappy(data)))
    if size > limit:
        raise _too_large(SNAPPY, limit)
    room = _Room(size)
    written = 0
    with room.view() as sink:
        for block in _scan_snappy(data):
            written += _fill(cramjam.snappy.decompress_raw_into, block, sink[written:], codec=SNAPPY) or 0
    return room.take(written)


def _scan_snappy(data: memoryview) -> Iterator[memoryview]:
    """Yield the raw blocks. Without xerial framing, all of `data` is one block."""
    # No raw block starts like this: its first element would copy from output that does not exist yet.
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield data
        return
    # No reader uses the two version numbers of the header.
    position = len(_XERIAL_HEADER)
    if len(data) < position:
        raise _corrupt(SNAPPY, "the xerial header is cut short")
    while position < len(data):
        if len(data) - position < 4:
            raise _corrupt(SNAPPY, "a block size is cut short")
        (size,) = struct.unpack_from(">i", data, position)
        position += 4
        if not 0 < size <= len(data) - position:
            raise _corrupt(SNAPPY, f"a block of {counted(size, 'byte')}, and {len(data) - position:,} left")
        yield data[position : position + size]
        position += size


def _snappy_size(block: memoryview) -> int:
    """Return the size that a raw block claims to expand to, if its bytes can produce as much."""
    try:
        size = int(cramjam.snappy.decompress_raw_len(block))
    except cramjam.DecompressionError as error:
        raise _corrupt(SNAPPY, error) from None
    if size > len(block) * _SNAPPY_RATIO:
        raise _corrupt(SNAPPY, f"{counted(len(block), 'byte')} cannot hold the {size:,} they claim")
    return size


# lz4


def _decode_lz4(data: memoryview, limit: int) -> bytes:
    size_max, claimed_size = _scan_lz4(data)
    if claimed_size is not None:
        if claimed_size > size_max:
            raise _corrupt(LZ4, f"its blocks cannot hold the {claimed_size:,} bytes they claim")
        if claimed_size > limit:
            raise _too_large(LZ4, limit)
        size_max = claimed_size
    room = _Room(min(size_max, limit))
    with room.view() as sink:
        written = _fill(cramjam.lz4.decompress_into, data, sink, codec=LZ4)
    if written is None:
        if size_max > limit:
            raise _too_large(LZ4, limit)
        raise _corrupt(LZ4, f"it expands past the {size_max:,} bytes it claims")
    return room.take(written)


def _scan_lz4(data: memoryview) -> tuple[int, int | None]:
    """Return the maximum size that a frame can expand to, and the size it claims, from a walk over its blocks.

    The walk also proves that the frame is complete and ends the data: not every decoder requires the end mark.
    """
    if len(data) < _LZ4_SIZE_MIN:
        raise _corrupt(LZ4, f"{counted(len(data), 'byte')} cannot hold a frame")
    magic, flags, descriptor = struct.unpack_from("<IBB", data)
    if magic != _LZ4_MAGIC:
        raise _corrupt(LZ4, f"a frame starts with {_LZ4_MAGIC:#x}, not {magic:#x}")
    block_max = _LZ4_BLOCK_SIZES.get(descriptor >> 4 & 7)
    if flags >> 6 != 1 or block_max is None:
        raise _corrupt(LZ4, f"unknown flags {flags:#04x} {descriptor:#04x}")
    block_checksum = 4 if flags & 0x10 else 0
    content_size = 8 if flags & 0x08 else 0
    content_checksum = 4 if flags & 0x04 else 0
    dictionary_id = 4 if flags & 0x01 else 0
    position = 6 + content_size + dictionary_id + 1
    size_max = 0
    while True:
        if len(data) - position < 4:
            raise _corrupt(LZ4, "the frame has no end mark")
        (size,) = struct.unpack_from("<I", data, position)
        position += 4
        if size == 0:
            break
        # The highest bit marks an uncompressed block.
        is_stored, size = size >> 31, size & 0x7FFFFFFF
        size_max += size if is_stored else min(size * _LZ4_RATIO + 19, block_max)
        position += size + block_checksum
    if len(data) - position != content_checksum:
        raise _corrupt(LZ4, f"the frame ends at byte {position + content_checksum} of {len(data)}")
    return size_max, struct.unpack_from("<Q", data, 6)[0] if content_size else None


# zstd


@dataclass(frozen=True, slots=True)
class _ZstdFrame:
    """One frame, as its headers describe it. `size_max` bounds any content that its blocks can hold."""

    start: int
    end: int
    window_size: int
    content_size: int | None
    size_max: int


def _decode_zstd(data: memoryview, limit: int) -> bytes:
    # The decoder keeps a window besides the output. Data that looks back no further than a narrower window decodes
    # to the same bytes in it, and memory stays below one and a half times the limit.
    window_max = max(_ZSTD_WINDOW, limit // 2)
    size_max = 0
    claimed_size = 0
    narrowed: bytearray | None = None
    for frame in _scan_zstd(data):
        size_max += frame.size_max
        claimed_size += frame.content_size or 0
        if claimed_size > limit:
            raise _too_large(ZSTD, limit)
        if frame.content_size is None and min(frame.window_size, frame.size_max) > window_max:
            narrowed = narrowed or bytearray(data)
            # The five high bits are the exponent of the window size, less 10.
            narrowed[frame.start + 5] = (window_max.bit_length() - 1 - 10) << 3
    room = _Room(min(size_max, limit))
    try:
        with room.view() as sink:
            source = data if narrowed is None else memoryview(narrowed)
            written = _fill(cramjam.zstd.decompress_into, source, sink, codec=ZSTD)
    except CorruptBatch as error:
        if narrowed is None:
            raise
        raise FormatError(
            f"{error.reason}, or it looks back further than {window_max:,} bytes",
            advice="Raise max.decompressed.bytes if the batch comes from a writer you trust.",
        ) from None
    if written is None:
        raise _too_large(ZSTD, limit)
    return room.take(written)


def _scan_zstd(data: memoryview) -> Iterator[_ZstdFrame]:
    """Yield the frames with content. The walk proves that the last one ends the data."""
    position = 0
    has_frame = False
    while position < len(data):
        if len(data) - position < 8:
            raise _corrupt(ZSTD, f"{counted(len(data) - position, 'byte')} cannot hold a frame")
        magic, skipped_size = struct.unpack_from("<II", data, position)
        if magic & ~0xF == _ZSTD_SKIPPABLE:
            position += 8 + skipped_size
            if position > len(data):
                raise _corrupt(ZSTD, "a skippable frame is cut short")
            continue
        if magic != _ZSTD_MAGIC:
            raise _corrupt(ZSTD, f"a frame starts with {_ZSTD_MAGIC:#x}, not {magic:#x}")
        frame = _scan_zstd_frame(data, position)
        position = frame.end
        has_frame = True
        yield frame
    if not has_frame:
        raise _corrupt(ZSTD, "there is no frame")


def _scan_zstd_frame(data: memoryview, start: int) -> _ZstdFrame:
    """Return the frame at `start`, where at least 8 bytes are left."""
    descriptor = data[start + 4]
    is_single_segment = descriptor & 0x20
    position = start + 5
    window_size = 0
    if not is_single_segment:
        window_base = 1 << 10 + (data[position] >> 3)
        window_size = window_base + (window_base >> 3) * (data[position] & 7)
        position += 1
    position += (0, 1, 2, 4)[descriptor & 3]
    content_size_bytes = (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
    content_size = None
    if content_size_bytes:
        if len(data) - position < content_size_bytes:
            raise _corrupt(ZSTD, "a frame header is cut short")
        content_size = int.from_bytes(data[position : position + content_size_bytes], "little")
        # A two-byte size starts at 256: one byte holds the smaller values.
        content_size += 256 if content_size_bytes == 2 else 0
        position += content_size_bytes
    size_max = 0
    is_last = 0
    while not is_last:
        if len(data) - position < 3:
            raise _corrupt(ZSTD, "a frame has no last block")
        header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        is_last, kind, size = header & 1, header >> 1 & 3, header >> 3
        size_max += _ZSTD_BLOCK_MAX if kind == 2 else size
        # Kind 1 repeats one byte `size` times.
        position += 3 + (1 if kind == 1 else size)
    position += 4 if descriptor & 0x04 else 0
    if position > len(data):
        raise _corrupt(ZSTD, "a block is cut short")
    if content_size is not None:
        if content_size > size_max:
            raise _corrupt(ZSTD, f"its blocks cannot hold the {content_size:,} bytes they claim")
        size_max = content_size
    return _ZstdFrame(start, position, window_size, content_size, size_max)


_DECODERS: Final[Mapping[int, Callable[[memoryview, int], bytes]]] = MappingProxyType(
    {GZIP: _decode_gzip, SNAPPY: _decode_snappy, LZ4: _decode_lz4, ZSTD: _decode_zstd}
)
