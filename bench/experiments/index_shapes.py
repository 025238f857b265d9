"""Compares an offset index that is an array with one that is compressed and one that has two levels.

    python -m bench.experiments.index_shapes

Three shapes in C (index_shapes.c), the same entries and random lookups: nanoseconds per lookup in memory, microseconds
of the first lookup in a file that is not in the page cache, size in bytes, and the time to build or to unpack one.
The result is in docs/format/index.md. Needs gcc.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from time import perf_counter

import cramjam

# Turns are short, so that nothing interrupts the best of many. Each turn looks up other offsets than the previous one,
# so that its entries are not in the CPU's cache.
LOOKUPS = 2_000
WINDOWS = 100
TURNS = 400
COLD_TURNS = 40
# A segment of 1 GB has 262,144 entries at 4 KB, and an index of the maximum size of 10 MB 1.3 million.
SIZES = (2_621, 262_144, 1_310_720)


def library(directory: Path) -> ctypes.CDLL:
    source, target = Path(__file__).with_suffix(".c"), directory / "index_shapes.so"
    subprocess.run(["gcc", "-O3", "-shared", "-fPIC", str(source), "-o", str(target)], check=True)
    shapes = ctypes.CDLL(str(target))
    for name in ("plain_lookups", "two_lookups", "packed_lookups"):
        getattr(shapes, name).restype = ctypes.c_uint64
    for name in ("two_build", "packed_build"):
        getattr(shapes, name).restype = ctypes.c_int64
    return shapes


def entries(count: int) -> bytes:
    """Return the index of a log of 100-byte records: an entry at the first batch after each 4 KB."""
    chance = random.Random(count)
    offset, position = 0, 0
    out = []
    for _ in range(count):
        offset += chance.randrange(30, 45)
        position += chance.randrange(4097, 4400) if count <= 400_000 else chance.randrange(1000, 1600)
        out.append(struct.pack(">II", offset, position))
    return b"".join(out)


def best(turns: int, work: Callable[[], object]) -> float:
    times = []
    for _ in range(turns):
        started = perf_counter()
        work()
        times.append(perf_counter() - started)
    return min(times)


def first_lookup(path: Path, look: Callable[[int], object]) -> float:
    """Return the seconds of the fastest lookup in a mapped file that is not in the page cache."""
    times = []
    for _ in range(COLD_TURNS):
        handle = os.open(path, os.O_RDWR)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        mapped = mmap.mmap(handle, 0)
        held = ctypes.c_char.from_buffer(mapped)
        started = perf_counter()
        look(ctypes.addressof(held))
        times.append(perf_counter() - started)
        # Mapped pages stay in memory: unmap before the next turn.
        del held
        mapped.close()
        os.close(handle)
    return min(times)


def _next_turn(look: Callable[[object], object], turn: Iterator[object]) -> object:
    return look(next(turn))


def measure(shapes: ctypes.CDLL, directory: Path, count: int) -> None:
    plain = entries(count)
    last = struct.unpack(">I", plain[-8:-4])[0]
    chance = random.Random(1)
    windows = [(ctypes.c_uint32 * LOOKUPS)(*(chance.randrange(last) for _ in range(LOOKUPS))) for _ in range(WINDOWS)]
    turn = cycle(windows)
    one = (ctypes.c_uint32 * 1)(last // 3)
    number, count_c = ctypes.c_int64(LOOKUPS), ctypes.c_int64(count)
    top = ctypes.create_string_buffer(4 * (count // 512 + 1))
    directory_of_blocks = ctypes.create_string_buffer(12 * (count // 64 + 1))
    packed = ctypes.create_string_buffer(10 * count)
    tops = ctypes.c_int64(shapes.two_build(plain, count_c, top))
    packed_size = shapes.packed_build(plain, count_c, directory_of_blocks, packed)
    squeezed = bytes(cramjam.lz4.compress(plain))

    answers: dict[str, Callable[[object], object]] = {
        "plain": lambda targets: shapes.plain_lookups(plain, count_c, targets, number),
        "two levels": lambda targets: shapes.two_lookups(plain, count_c, top, tops, targets, number),
        "packed": lambda targets: shapes.packed_lookups(directory_of_blocks, count_c, packed, targets, number),
    }
    assert len({look(windows[0]) for look in answers.values()}) == 1, "the shapes disagree"
    builds = {
        "plain": 0.0,
        "two levels": best(TURNS, lambda: shapes.two_build(plain, count_c, top)),
        "packed": best(COLD_TURNS, lambda: shapes.packed_build(plain, count_c, directory_of_blocks, packed)),
    }
    sizes = {
        "plain": len(plain),
        "two levels": len(plain) + 4 * tops.value,
        "packed": packed_size + 12 * -(-count // 64),
    }
    path = directory / "index"
    path.write_bytes(plain)
    blocks = -(-count // 64) * 12
    whole = directory / "packed"
    whole.write_bytes(directory_of_blocks.raw[:blocks] + packed.raw[:packed_size])
    for file in (path, whole):
        with open(file, "rb") as opened:
            os.fsync(opened.fileno())
    alone = ctypes.c_int64(1)
    cold = {
        "plain": first_lookup(path, lambda at: shapes.plain_lookups(ctypes.c_void_p(at), count_c, one, alone)),
        "two levels": first_lookup(
            path, lambda at: shapes.two_lookups(ctypes.c_void_p(at), count_c, top, tops, one, alone)
        ),
        "packed": first_lookup(
            whole,
            lambda at: shapes.packed_lookups(ctypes.c_void_p(at), count_c, ctypes.c_void_p(at + blocks), one, alone),
        ),
    }
    print(f"{count:,} entries")
    for name, look in answers.items():
        nanoseconds = best(TURNS, partial(_next_turn, look, turn)) / LOOKUPS * 1e9
        print(
            f"  {name:<11} {nanoseconds:6.0f} ns a lookup, first {cold[name] * 1e6:7.0f} us,"
            f" {sizes[name]:>11,} bytes, made in {builds[name] * 1e3:.2f} ms"
        )
    unpacked = best(COLD_TURNS, lambda: cramjam.lz4.decompress(squeezed))
    print(f"  LZ4 whole   unpacked in {unpacked * 1e3:.2f} ms, {len(squeezed):,} bytes")


def main() -> None:
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as name:
        shapes = library(Path(name))
        for count in SIZES:
            measure(shapes, Path(name), count)


if __name__ == "__main__":
    main()
