"""The codecs: round trips, peers, damage, and data that expands to more than the memory."""

from __future__ import annotations

import contextlib
import json
import os
import random
import struct
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING

import cramjam
import pytest

from measuring import unmeasured
from record.bombs import BOMBS, LIMIT, SLACK, lz4_block, lz4_frame, zstd_frame
from seeklog.errors import CorruptBatch, FormatError, UsageError
from seeklog.record.codec import CODEC_IDS, CODEC_NAMES, compress, decompress

if TYPE_CHECKING:
    from collections.abc import Callable

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
COMPRESSING = [GZIP, SNAPPY, LZ4, ZSTD]
MIB = 1 << 20
NO_LIMIT = 1 << 30

# Sizes around xerial's block of 32 KB, above lz4's of 64 KB, and above zstd's of 128 KB.
SIZES = [0, 1, 32_767, 32_768, 32_769, 100_000, 1_000_000]


def by_name(codec: object) -> str:
    return CODEC_NAMES[codec] if isinstance(codec, int) and codec in CODEC_NAMES else str(codec)


codecs = pytest.mark.parametrize("codec", COMPRESSING, ids=by_name)


def text(size: int) -> bytes:
    """Data that compresses a little."""
    rng = random.Random(size)
    words = [rng.randbytes(rng.randrange(3, 12)) for _ in range(200)]
    parts: list[bytes] = []
    while sum(map(len, parts[-1:])) + len(parts) * 3 < size + 100:
        parts.append(rng.choice(words))
    return b"".join(parts)[:size].ljust(size, b".")


CONTENTS: dict[str, Callable[[int], bytes]] = {
    "noise": lambda size: random.Random(size).randbytes(size),
    "text": text,
    "zeros": bytes,
}
contents = pytest.mark.parametrize("content", CONTENTS)


# Round trips


@pytest.mark.parametrize("codec", [0, *COMPRESSING], ids=by_name)
@pytest.mark.parametrize("size", SIZES)
@contents
def test_compressed_data_round_trips(codec: int, size: int, content: str) -> None:
    data = CONTENTS[content](size)

    compressed = compress(codec, data)
    back = decompress(codec, compressed, limit=size)

    assert type(compressed) is type(back) is bytes
    assert back == data


@pytest.mark.parametrize("codec", [0, *COMPRESSING], ids=by_name)
@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_any_bytes_like_object_is_read(codec: int, kind: Callable[[bytes], bytearray | memoryview]) -> None:
    data = text(40_000)

    compressed = compress(codec, kind(data))

    assert decompress(codec, kind(compressed), limit=40_000) == data
    assert decompress(codec, memoryview(b"<" + compressed + b">")[1:-1], limit=40_000) == data


@pytest.mark.id("decompression-limit")
@codecs
@contents
@pytest.mark.parametrize("size", [size for size in SIZES if size])
def test_one_byte_over_the_limit_is_refused(codec: int, size: int, content: str) -> None:
    compressed = compress(codec, CONTENTS[content](size))

    with pytest.raises(FormatError, match="expands past"):
        decompress(codec, compressed, limit=size - 1)


def test_limit_does_not_apply_to_uncompressed_bytes() -> None:
    assert decompress(0, b"0123456789", limit=1) == b"0123456789"


@pytest.mark.parametrize("codec", [-1, 5, 6, 7, 8])
def test_unknown_codec_is_refused_by_its_number(codec: int) -> None:
    with pytest.raises(FormatError, match=f"codec {codec} "):
        compress(codec, b"data")
    with pytest.raises(FormatError, match=f"codec {codec} "):
        decompress(codec, b"data", limit=NO_LIMIT)


@pytest.mark.parametrize(
    ("codec", "level"), [(GZIP, 1), (GZIP, 9), (LZ4, 1), (LZ4, 17), (ZSTD, -7), (ZSTD, 1), (ZSTD, 22)]
)
def test_kafkas_levels_are_accepted(codec: int, level: int) -> None:
    assert decompress(codec, compress(codec, text(50_000), level=level), limit=50_000) == text(50_000)


@pytest.mark.parametrize(
    ("codec", "level"), [(GZIP, 0), (GZIP, 10), (GZIP, -1), (LZ4, 0), (LZ4, 18), (ZSTD, 23), (SNAPPY, 1)]
)
def test_level_unknown_to_kafka_is_refused(codec: int, level: int) -> None:
    with pytest.raises(UsageError, match=f"no compression level {level}"):
        compress(codec, b"data", level=level)


def test_names_and_numbers_equal_kafkas() -> None:
    assert dict(CODEC_IDS) == {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
    assert {CODEC_NAMES[number]: number for number in CODEC_NAMES} == dict(CODEC_IDS)


# Output


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("level", [None, 9])
def test_lz4_blocks_are_independent_and_have_64_kilobytes(size: int, level: int | None) -> None:
    """Goal: Java's reader refuses linked blocks, reserved bits and versions other than 1."""
    frame = compress(LZ4, text(size), level=level)
    magic, flags, descriptor = struct.unpack_from("<IBB", frame)

    assert magic == 0x184D2204
    assert flags >> 6 == 1, "version"
    assert flags & 0b0010_0000, "independent blocks"
    assert not flags & 0b0000_1110, "no content size, content checksum or reserved bit"
    assert not flags & 0b0000_0001, "no dictionary"
    assert descriptor == 0x40, "64 KB"


@pytest.mark.parametrize(("size", "block_count"), [(0, 0), (1, 1), (32_767, 1), (32_768, 1), (32_769, 2), (100_000, 4)])
def test_snappy_uses_xerial_framing(size: int, block_count: int) -> None:
    framed = compress(SNAPPY, text(size))

    assert framed[:16] == bytes.fromhex("82534e41505059000000000100000001")
    position, blocks = 16, []
    while position < len(framed):
        (block_size,) = struct.unpack_from(">i", framed, position)
        blocks.append(framed[position + 4 : position + 4 + block_size])
        position += 4 + block_size
    assert [len(bytes(cramjam.snappy.decompress_raw(block))) for block in blocks] == (
        [32_768] * (size // 32_768) + ([size % 32_768] if size % 32_768 else [])
    )
    assert len(blocks) == block_count


def test_gzip_is_one_member_without_timestamp() -> None:
    """Goal: the same records give the same bytes; a timestamp in the header would change them."""
    member = compress(GZIP, text(1000))

    assert member[:4] == b"\x1f\x8b\x08\x00"
    assert member[4:8] == bytes(4)
    stream = zlib.decompressobj(wbits=31)
    assert stream.decompress(member) == text(1000)
    assert stream.eof
    assert stream.unused_data == b""


@pytest.mark.parametrize(("codec", "level"), [(GZIP, 6), (ZSTD, 3)])
def test_default_level_is_kafkas(codec: int, level: int) -> None:
    data = text(50_000)

    assert compress(codec, data) == compress(codec, data, level=level) != compress(codec, data, level=1)


def test_zstd_is_one_frame_that_states_its_size() -> None:
    frame = compress(ZSTD, text(1000))

    assert frame[:4] == bytes.fromhex("28b52ffd")
    assert frame[4] >> 6 == 1, "the content size takes two bytes"
    assert int.from_bytes(frame[5:7], "little") + 256 == 1000


# Other accepted input


def test_raw_snappy_of_librdkafka_is_read() -> None:
    raw = bytes(cramjam.snappy.compress_raw(text(100_000)))

    assert decompress(SNAPPY, raw, limit=100_000) == text(100_000)
    with pytest.raises(FormatError):
        decompress(SNAPPY, raw, limit=99_999)


def test_xerial_versions_are_ignored() -> None:
    framed = compress(SNAPPY, text(1000))

    assert decompress(SNAPPY, framed[:8] + bytes(8) + framed[16:], limit=1000) == text(1000)


def test_linked_lz4_blocks_with_a_content_checksum_are_read() -> None:
    frame = bytes(cramjam.lz4.compress(text(300_000)))
    assert not frame[4] & 0b0010_0000

    assert decompress(LZ4, frame, limit=300_000) == text(300_000)


def test_lz4_frame_with_stated_size_is_read_and_checked() -> None:
    data = text(60_000)

    assert decompress(LZ4, lz4_frame(lz4_block(data), content_size=60_000), limit=60_000) == data
    for wrong in (0, 59_999, 60_001, 1 << 40):
        with pytest.raises(CorruptBatch):
            decompress(LZ4, lz4_frame(lz4_block(data), content_size=wrong), limit=NO_LIMIT)


@pytest.mark.parametrize("exponent", range(4, 8))
def test_every_lz4_block_size_is_read(exponent: int) -> None:
    data = text(60_000)

    assert decompress(LZ4, lz4_frame(lz4_block(data), descriptor=exponent << 4), limit=60_000) == data


@pytest.mark.parametrize(("number", "size"), [(4, 64 << 10), (5, 256 << 10), (6, 1 << 20), (7, 4 << 20)])
def test_lz4_block_of_maximum_size_is_read(number: int, size: int) -> None:
    data = bytes(size)

    assert decompress(LZ4, lz4_frame(lz4_block(data), descriptor=number << 4), limit=size) == data


def zstd_stream(data: bytes) -> bytes:
    compressor = cramjam.zstd.Compressor(level=3)
    parts = []
    for start in range(0, len(data), 10_000):
        compressor.compress(data[start : start + 10_000])
        parts.append(bytes(compressor.flush()))
    return b"".join([*parts, bytes(compressor.finish())])


def test_zstd_stream_without_stated_size_is_read() -> None:
    """Goal: this is what Java writes."""
    data = text(300_000)
    stream = zstd_stream(data)
    assert stream[4] & 0b1110_0000 == 0, "no content size, no single segment"

    assert decompress(ZSTD, stream, limit=300_000) == data
    assert decompress(ZSTD, stream, limit=NO_LIMIT) == data
    with pytest.raises(FormatError):
        decompress(ZSTD, stream, limit=299_999)


def test_zstd_window_wider_than_memory_limit_is_narrowed() -> None:
    """Goal: zstd's level 22 in Java claims a window of 128 MiB, however small the batch."""
    # 0x88: 2**(17 + 10) bytes. 12 MiB of output would fill more of the window than a limit of 16 MiB allows.
    wide = zstd_frame((1, 1, b"a"), *[(1, 128 << 10, b"b")] * 96, window=0x88)

    assert decompress(ZSTD, wide, limit=16 << 20) == b"a" + bytes([98]) * (12 << 20)


def test_zstd_frame_that_fails_in_narrowed_window_names_the_limit() -> None:
    """Goal: whether the frame is damaged or looks back further, the error names the limit."""
    wide = zstd_frame(*[(1, 128 << 10, b"b")] * 96, (2, 10, b"\xff" * 10), window=0x88)

    with pytest.raises(FormatError, match=r"looks back further than 8,388,608 bytes\nRaise max\.decompressed\.bytes"):
        decompress(ZSTD, wide, limit=16 << 20)


def test_several_gzip_members_are_one_stream() -> None:
    """Goal: RFC 1952, and what Java's reader does."""
    parts = [text(70_000), b"", text(10), text(1000)]
    members = b"".join(compress(GZIP, part) for part in parts)

    assert decompress(GZIP, members, limit=71_010) == b"".join(parts)
    with pytest.raises(FormatError):
        decompress(GZIP, members, limit=71_009)


def test_several_zstd_frames_are_one_stream_and_skippable_ones_are_skipped() -> None:
    skippable = struct.pack("<II", 0x184D2A5F, 5) + b"hello"
    frames = skippable + compress(ZSTD, text(1000)) + skippable + zstd_stream(text(20_000)) + skippable

    assert decompress(ZSTD, frames, limit=21_000) == text(1000) + text(20_000)
    with pytest.raises(FormatError):
        decompress(ZSTD, frames, limit=20_999)


@pytest.mark.parametrize(
    "frame",
    # Made by the zstandard package, without and with the content size.
    ["28b52ffd0400690000636865636b65642074776963657b3b42d3", "28b52ffd240d690000636865636b65642074776963657b3b42d3"],
)
def test_zstd_checksum_is_read_and_checked(frame: str) -> None:
    checked = bytes.fromhex(frame)

    assert decompress(ZSTD, checked, limit=13) == b"checked twice"
    assert decompress(ZSTD, checked * 3, limit=39) == b"checked twice" * 3
    with pytest.raises(CorruptBatch):
        decompress(ZSTD, checked[:-1] + b"!", limit=13)


# Damage


@pytest.mark.parametrize("more", [1, 100, 1 << 30, -(1 << 31), -1000])
def test_xerial_block_with_wrong_claimed_size_is_damage(more: int) -> None:
    framed = bytearray(compress(SNAPPY, text(1000)))
    struct.pack_into(">i", framed, 16, len(framed) - 20 + more)

    with pytest.raises(CorruptBatch, match="a block of"):
        decompress(SNAPPY, framed, limit=NO_LIMIT)


def test_empty_xerial_block_is_damage() -> None:
    framed = compress(SNAPPY, text(1000)) + bytes(4)

    with pytest.raises(CorruptBatch, match="a block of 0 bytes"):
        decompress(SNAPPY, framed, limit=NO_LIMIT)


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_invalid_lz4_block_size_is_damage(number: int) -> None:
    frame = lz4_frame(lz4_block(b"value"), descriptor=number << 4)

    with pytest.raises(CorruptBatch, match="unknown flags 0x60"):
        decompress(LZ4, frame, limit=NO_LIMIT)


def test_skippable_zstd_frames_alone_are_damage() -> None:
    with pytest.raises(CorruptBatch, match="there is no frame"):
        decompress(ZSTD, struct.pack("<II", 0x184D2A50, 5) + b"hello", limit=NO_LIMIT)


def test_truncated_skippable_zstd_frame_is_damage() -> None:
    with pytest.raises(CorruptBatch, match="a skippable frame is cut short"):
        decompress(ZSTD, compress(ZSTD, text(10)) + struct.pack("<II", 0x184D2A50, 6) + b"hello", limit=NO_LIMIT)


@codecs
@pytest.mark.parametrize("garbage", [b"\0", bytes(8), b"garbage", bytes(100), b"\xff" * 20])
def test_bytes_after_the_compressed_data_are_damage(codec: int, garbage: bytes) -> None:
    """Goal: no writer leaves any; a reader that overlooked them would overlook lost records too."""
    with pytest.raises((CorruptBatch, FormatError)):
        decompress(codec, compress(codec, text(1000)) + garbage, limit=NO_LIMIT)


def test_second_lz4_frame_is_damage() -> None:
    """Goal: Java's reader stops at the first end mark, so no reader may return more."""
    frame = compress(LZ4, b"one")

    with pytest.raises(CorruptBatch, match=f"ends at byte {len(frame)} of {2 * len(frame)}"):
        decompress(LZ4, frame + frame, limit=NO_LIMIT)


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (GZIP, compress(GZIP, b"")[:-4] + struct.pack("<I", MIB)),
        (SNAPPY, b"\x80\x80\x40" + bytes(100)),
        (LZ4, lz4_frame(lz4_block(b"short"), content_size=MIB)),
        # A frame header with a content size of four bytes, and one empty block.
        (ZSTD, struct.pack("<IBI", 0xFD2FB528, 0b1010_0000, MIB) + b"\x01\0\0"),
    ],
    ids=["gzip", "snappy", "lz4", "zstd"],
)
def test_impossible_claimed_size_is_damage(codec: int, data: bytes) -> None:
    with pytest.raises(CorruptBatch, match="cannot hold the 1,048,576"):
        decompress(codec, data, limit=NO_LIMIT)


@codecs
@contents
def test_every_truncation_is_refused(codec: int, content: str) -> None:
    """Goal: no truncated data is accepted as whole."""
    data = CONTENTS[content](700)
    compressed = compress(codec, data)

    # Xerial framing has no end mark: cut between two blocks it is whole, only shorter.
    whole = {16} if codec == SNAPPY else set()
    for cut in set(range(len(compressed))) - whole:
        with pytest.raises(CorruptBatch):
            decompress(codec, compressed[:cut], limit=NO_LIMIT)
    for cut in whole:
        assert decompress(codec, compressed[:cut], limit=NO_LIMIT) == b""


@pytest.mark.parametrize("stream", [zstd_stream(text(25_000)), zstd_frame((1, 5, b"a"), (0, 3, b"bcd"))])
def test_every_truncation_of_a_zstd_stream_is_refused(stream: bytes) -> None:
    for cut in range(0, len(stream), 1 + len(stream) // 2000):
        with pytest.raises(CorruptBatch):
            decompress(ZSTD, stream[:cut], limit=NO_LIMIT)


@pytest.mark.id("compressed-bits-flipped")
@codecs
def test_every_single_bit_flip_gives_a_declared_error_or_bounded_data(codec: int) -> None:
    """Goal: the CRC of a batch finds such a flip first, but a hostile batch has a matching CRC."""
    compressed = compress(codec, text(300))
    for bit in range(len(compressed) * 8):
        damaged = bytearray(compressed)
        damaged[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(CorruptBatch, FormatError):
            assert len(decompress(codec, damaged, limit=5000)) <= 5000


@codecs
@pytest.mark.parametrize("seed", range(4))
def test_random_damage_gives_a_declared_error_or_bounded_data(codec: int, seed: int) -> None:
    rng = random.Random(seed)
    originals = [compress(codec, CONTENTS[content](size)) for content in CONTENTS for size in (1, 90, 70_000)]
    if codec == ZSTD:
        originals += [zstd_stream(text(30_000)), zstd_frame((1, 9, b"a"), (0, 2, b"bc"), window=0x88)]
    if codec == SNAPPY:
        originals += [bytes(cramjam.snappy.compress_raw(text(500)))]
    for _ in range(1500):
        damaged = bytearray(rng.choice(originals))
        for _ in range(rng.randrange(1, 6)):
            # Headers steer the decoders: half of the damage goes to the first 24 bytes.
            position = rng.randrange(min(24, len(damaged)) if rng.random() < 0.5 else len(damaged))
            damaged[position] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        if rng.random() < 0.3:
            del damaged[rng.randrange(len(damaged)) :]
        with contextlib.suppress(CorruptBatch, FormatError):
            assert len(decompress(codec, damaged, limit=100_000)) <= 100_000, f"seed {seed}"


@codecs
@pytest.mark.parametrize("seed", range(2))
def test_noise_gives_a_declared_error(codec: int, seed: int) -> None:
    rng = random.Random(seed)
    starts = {
        GZIP: b"\x1f\x8b\x08",
        SNAPPY: b"\x82SNAPPY\0",
        LZ4: b"\x04\x22\x4d\x18",
        ZSTD: b"\x28\xb5\x2f\xfd",
    }
    for _ in range(1000):
        noise = rng.choice([b"", starts[codec]]) + rng.randbytes(rng.randrange(60))
        with contextlib.suppress(CorruptBatch, FormatError):
            assert len(decompress(codec, noise, limit=1000)) <= 1000, f"seed {seed}"


# Bombs

# The kernel's high-water mark belongs to the address space, so unlike ru_maxrss it does not start with
# the peak of the process that started this one.
MEASURE = """
import json, sys, time
from seeklog.errors import FormatError, CorruptBatch
from seeklog.record.codec import compress, decompress

def memory(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))

codec, limit = int(sys.argv[1]), int(sys.argv[2])
bomb = sys.stdin.buffer.read()
decompress(codec, compress(codec, bytes(100_000)), limit=limit)
before = memory("VmRSS")
started = time.process_time()
try:
    decompress(codec, bomb, limit=limit)
    outcome = "accepted"
except (FormatError, CorruptBatch) as error:
    outcome = type(error).__name__
print(json.dumps([outcome, memory("VmHWM") - before, time.process_time() - started]))
"""


@pytest.mark.id("decompression-bomb")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the high-water mark from /proc")
@pytest.mark.parametrize("name", BOMBS)
def test_bomb_is_refused_with_little_memory_beyond_the_limit(name: str) -> None:
    codec, make = BOMBS[name]

    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(codec), str(LIMIT)],
        input=make(),
        capture_output=True,
        check=True,
        timeout=60,
        env=unmeasured(os.environ),  # memory is measured here
    )
    outcome, grown, seconds = json.loads(done.stdout)

    # "tiny blocks" contain nothing: they are whole, and test the memory used by the walk.
    assert outcome in (("accepted",) if "tiny blocks" in name else ("FormatError", "CorruptBatch"))
    # A claim past the limit, or past what the bytes can hold, is refused before anything is allocated.
    allowed = 2 * MIB if "honest" in name or "2 GiB" in name else LIMIT + SLACK
    assert grown <= allowed, f"grew by {grown / MIB:.1f} MiB"
    # A tenth of a second of work, with room for a busy machine.
    assert seconds <= 0.1 * 10, f"{seconds:.3f} s"


# Peers: each reads what the other writes


def peers() -> dict[str, dict[int, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]]]:
    aiokafka = pytest.importorskip("aiokafka.codec")
    kafka = pytest.importorskip("kafka.codec")
    return {
        package: {
            number: (getattr(module, f"{name}_encode"), getattr(module, f"{name}_decode"))
            for name, number in CODEC_IDS.items()
            if number and getattr(module, f"has_{name}")()
        }
        for package, module in (("aiokafka", aiokafka), ("kafka-python", kafka))
    }


@codecs
@pytest.mark.parametrize("package", ["aiokafka", "kafka-python"])
@pytest.mark.parametrize("size", [size for size in SIZES if size])
def test_peer_and_seeklog_read_each_others_data(codec: int, package: str, size: int) -> None:
    coders = peers()[package].get(codec)
    if coders is None:
        pytest.skip(f"{package} lacks the library it needs for {CODEC_NAMES[codec]}")
    encode, decode = coders
    for content in CONTENTS.values():
        data = content(size)
        assert bytes(decode(compress(codec, data))) == data
        assert decompress(codec, bytes(encode(data)), limit=size) == data


@pytest.mark.parametrize("name", [name for name in BOMBS if "honest" in name])
def test_plausible_claim_past_the_limit_is_refused_without_trying(name: str) -> None:
    codec, make = BOMBS[name]

    with pytest.raises(FormatError):
        decompress(codec, make(), limit=LIMIT)
