"""Target 14: every length and count gets an impossible value, one at a time; readers must check before they use it."""

from __future__ import annotations

import struct
import tracemalloc
from itertools import product
from typing import TYPE_CHECKING, Final

from fuzz.mutation import ODD_NUMBERS
from fuzz.target import load_targets
from proof.part import Run, part
from record.batches import CODECS, FIELDS, HEADER_SIZE, SMALL_ROWS, Sketch, batch_of, seal, with_field
from record.hostile import PLACES, VARINTS, edge_values, overclaiming_batches
from seeklog.errors import SeeklogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# All inputs are below 10 KB and claim up to 2**63. Besides its bytes a reader may hold columns with room for some rows,
# tables of keys, and the buffer of a decompressor.
MEMORY_BYTES: Final = 512 << 10
# Numbers at fixed positions, as in indexes, seals, snapshots and the records of groups.
WIDTHS: Final = {"h": 16, "i": 32, "q": 64}
BINARY: Final = ("seal", "watermark", "snapshot", "key_index", "group_key", "group_offset", "group_state")


@part(
    14,
    "Put impossible values into each length, count and varint of a batch, in every codec, for every reader",
    covers=("record",),
    uses=("tests/fuzz/targets/batches.py",),
)
def lengths_in_batches(run: Run) -> None:
    try_all(run, "batch", run.choose(lying_batches(), short=400))
    run.note("15 varints in 8 places, edges of 13 header fields, 5 codecs")


@part(
    14,
    "Put impossible values into each number of the files beside a log",
    covers=("groups.records", "log.keys.index", "log.side"),
    uses=("tests/fuzz/targets/groups.py", "tests/fuzz/targets/side_files.py"),
)
def lengths_in_files(run: Run) -> None:
    for name in BINARY:
        try_all(run, name, run.choose(lying_files(name), short=200))
    run.note(f"every position in {len(BINARY)} kinds of file, {len(ODD_NUMBERS)} values of 16, 32 and 64 bits")


def lying_batches() -> Iterator[bytes]:
    """Yield batches with each varint of a record, each header field and pairs of counts at their edges."""
    yield from overclaiming_batches()
    for codec in CODECS:
        raw = Sketch(SMALL_ROWS, base_offset=40, codec=codec).encode()
        for place, (varint, _) in product(PLACES.values(), VARINTS.values()):
            yield batch_of(place(varint)[HEADER_SIZE:], codec=codec)
        for name, (_, code) in FIELDS.items():
            for value in edge_values(code):
                yield with_field(raw, name, value)
                yield seal(with_field(raw, name, value))
        for count, delta in product(edge_values("i"), repeat=2):
            yield seal(with_field(with_field(raw, "record_count", count), "last_delta", delta))


def lying_files(name: str) -> Iterator[bytes]:
    """Yield copies of a file with a number of each width at each position, and a right checksum."""
    target = load_targets()[name]
    for data in target.seeds():
        for code, bits in WIDTHS.items():
            for at, number in product(range(len(data) - bits // 8 + 1), ODD_NUMBERS):
                if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
                    changed = bytearray(data)
                    struct.pack_into(f">{code}", changed, at, number)
                    yield target.reseal(bytes(changed))


def try_all(run: Run, name: str, inputs: list[bytes]) -> None:
    """Give the inputs to a target, and measure the memory that each takes."""
    check = load_targets()[name].check
    outcome(check, inputs[0])  # objects that are created once and kept must not be measured
    tracemalloc.start()
    try:
        for data in inputs:
            run.case()
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            wrong = outcome(check, data)
            spent = tracemalloc.get_traced_memory()[1] - before
            if wrong is None and spent > MEMORY_BYTES + len(data):
                wrong = f"{spent:,} bytes of memory"
            if wrong is not None:
                run.violation(f"{name}: {wrong}: {data[:400].hex()}")
    finally:
        tracemalloc.stop()


def outcome(check: Callable[[bytes], object], data: bytes) -> str | None:
    """Return an undeclared error, if the target raises one."""
    try:
        check(data)
    except SeeklogError:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None
