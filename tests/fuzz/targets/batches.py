"""Record batches: every reader of the kernel on the same bytes, its interpreted twin beside it, and Arrow."""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

from fuzz.mutation import put_number
from fuzz.target import Broken, Scramble, Target, enter
from record.batches import (
    CODECS,
    FIELDS,
    HEADER_SIZE,
    INT64_MAX,
    IS_COMPILED,
    SMALL_ROWS,
    Row,
    Sketch,
    T,
    seal,
    with_field,
)
from record.hostile import VARINTS, edge_values, hostile_batches, overclaiming_batches
from record.twins import KERNEL, LIMIT, READERS, load_twin, outcome_of
from seeklog.errors import SeeklogError
from seeklog.record.arrow import ALL_COLUMNS, import_pyarrow, record_batch, schema
from seeklog.record.batch import DECOMPRESSED_LIMIT, decode_records, encode_batch
from seeklog.record.codec import CODEC_NAMES, compress, decompress
from seeklog.record.control import decode_end_marker
from seeklog.record.layout import CODEC_MASK
from seeklog.record.record import Record

_EDGES = {name: tuple(edge_values(code)) for name, (_, code) in FIELDS.items()}
_VARINTS = tuple(varint for varint, _ in VARINTS.values())
_READERS = tuple(READERS.values())


def seeds() -> Iterator[bytes]:
    """Batches of every codec and kind, and what the tests hold the decoders against."""
    for codec in CODECS:
        yield Sketch(SMALL_ROWS, base_offset=40, codec=codec).encode()
        rows = tuple(Row(b"v%d" % n, b"k%d" % (n % 7), timestamp_ms=T + n, delta=n) for n in range(40))
        yield Sketch(rows, base_offset=40, codec=codec).encode()
    yield marker(is_commit=True)
    yield Sketch(SMALL_ROWS, base_offset=40, attributes=0x18).encode() + Sketch(SMALL_ROWS, base_offset=44).encode()
    yield Sketch(SMALL_ROWS, base_offset=40, attributes=0x48, codec=3).encode()
    yield from overclaiming_batches()
    yield from random.Random(1).sample(list(hostile_batches(seed=1)), 60)


def marker(*, is_commit: bool) -> bytes:
    record = Record(struct.pack(">hi", 0, 7), key=struct.pack(">hh", 0, is_commit), timestamp_ms=T)
    return encode_batch(
        [record], base_offset=40, transactional=True, control=True, producer_id=5, producer_epoch=1, base_sequence=-1
    )


# ---------------------------------------------------------------- damage


def mutate(data: bytes, chance: random.Random, scramble: Scramble) -> bytes:
    """Damage a run of batches; their lengths and CRCs are mostly right afterwards."""
    kind = chance.randrange(16)
    if kind == 0 or len(data) < HEADER_SIZE:
        return scramble(data)
    if kind <= 5:
        name = chance.choice(tuple(FIELDS))
        changed = with_field(data, name, chance.choice(_EDGES[name]))
        return changed if name == "crc" else seal(changed)
    if kind <= 9:
        return _with_body(data, _damaged_body(data[HEADER_SIZE:], chance, scramble))
    if kind <= 12:
        return _repacked(data, chance, scramble)
    if kind == 13:
        return data + with_field(data, "base_offset", chance.choice((0, 40, 44, INT64_MAX)))
    return seal_all(scramble(data), fits=bool(chance.randrange(4)))


def _damaged_body(body: bytes, chance: random.Random, scramble: Scramble) -> bytes:
    kind = chance.randrange(4)
    if kind == 0:
        at = chance.randrange(len(body) + 1)
        return body[:at] + chance.choice(_VARINTS) + body[at + chance.choice((0, 1, 2)) :]
    return put_number(body, chance) if kind == 1 else scramble(body)


def _with_body(data: bytes, body: bytes) -> bytes:
    """Return the batch with another body, its length and its CRC right."""
    return seal(with_field(data[:HEADER_SIZE] + body, "batch_length", HEADER_SIZE - 12 + len(body)))


def _repacked(data: bytes, chance: random.Random, scramble: Scramble) -> bytes:
    """Damage the records behind their compression, so that it is the reader of records who meets it."""
    attributes = data[22]
    codec = attributes & CODEC_MASK
    body = data[HEADER_SIZE:]
    try:
        plain = decompress(codec, body, limit=1 << 16) if codec else body
    except SeeklogError:
        return _with_body(data, scramble(body))
    if chance.randrange(4):
        plain = _damaged_body(plain, chance, scramble)
    codec = chance.choice(CODECS)
    head = data[:22] + bytes([attributes & ~CODEC_MASK | codec]) + data[23:HEADER_SIZE]
    return _with_body(head, compress(codec, plain) if codec else plain)


def seal_all(data: bytes, *, fits: bool) -> bytes:
    """Return a run of batches with the CRCs that their bytes have; with `fits` the last one's length is right, too."""
    sealed = []
    while len(data) >= HEADER_SIZE:
        size = 12 + int.from_bytes(data[8:12], "big", signed=True)
        if not HEADER_SIZE <= size < len(data):
            break
        sealed.append(seal(data[:size]))
        data = data[size:]
    if len(data) >= HEADER_SIZE:
        if fits:
            data = with_field(data[:16] + b"\2" + data[17:], "batch_length", len(data) - 12)
        data = seal(data)
    return b"".join((*sealed, data))


def seal_whole(data: bytes) -> bytes:
    return seal_all(data, fits=False)


# ---------------------------------------------------------------- the readers


def read_by_all(raw: bytes) -> None:
    """Let every reader of the kernel that runs have the bytes."""
    refused: SeeklogError | None = None
    for reader in _READERS:
        try:
            reader(KERNEL, raw)
        except SeeklogError as error:
            refused = error
    if refused is not None:
        raise refused


@cache
def twin() -> Any:
    other = load_twin()
    if IS_COMPILED and "atheris" in sys.modules:
        # Its branches tell libFuzzer which inputs are new: those of what is compiled cannot.
        from atheris.import_hook import AtherisSourceFileLoader

        other = load_twin(loader=lambda name, path: AtherisSourceFileLoader(name, path, True))
    assert other is not None, "nothing is compiled here: python setup.py build_ext --inplace"
    return other


def read_by_twins(raw: bytes) -> None:
    """Let both kernels have the bytes, and hold what they say against each other."""
    other = twin()
    for name, reader in READERS.items():
        mine, others = (
            outcome_of(lambda reader=reader: reader(KERNEL, raw)),
            outcome_of(lambda reader=reader: reader(other, raw)),
        )
        if mine != others:
            raise Broken(f"{name}: {str(mine)[:120]} but the twin {str(others)[:120]}")


@cache
def _schema() -> Any:
    return schema(ALL_COLUMNS, timestamp_unit="us")


def read_as_arrow(raw: bytes) -> None:
    """Decode into Arrow's columns, which must be what Arrow allows, and hold what the records of the batches are."""
    columns = KERNEL.Columns(
        ALL_COLUMNS,
        rows=64,
        data_bytes=4096,
        limit=LIMIT,
        timestamp_scale=1000,
        allocate=import_pyarrow().allocate_buffer,
    )
    columns.add(raw, 0, 0, 0, False, 0, INT64_MAX)
    rows = columns.rows
    table = record_batch(columns.finish(), rows, _schema())
    table.validate(full=True)
    if table.num_rows != rows:
        raise Broken(f"{table.num_rows} rows of {rows}")


def read_records(raw: bytes) -> None:
    decode_records(raw, limit=DECOMPRESSED_LIMIT)


# ---------------------------------------------------------------- codecs and markers


def codec_seeds() -> Iterator[bytes]:
    body = Sketch(SMALL_ROWS).body()
    for codec in CODEC_NAMES:
        for data in (b"", body, body * 20, bytes(3000)):
            yield bytes([codec]) + compress(codec, data)


def read_compressed(data: bytes) -> None:
    """Decompress; the first byte is the codec."""
    if data:
        found = decompress(data[0], data[1:], limit=DECOMPRESSED_LIMIT)
        if len(found) > DECOMPRESSED_LIMIT:
            raise Broken(f"{len(found)} bytes, past the limit")


def mutate_compressed(data: bytes, chance: random.Random, scramble: Scramble) -> bytes:
    kind = chance.randrange(4)
    if kind == 0:
        return scramble(data)
    body = put_number(data[1:], chance) if kind == 1 else scramble(data[1:])
    return data[:1] + body


def marker_seeds() -> Iterator[bytes]:
    yield from (marker(is_commit=True), marker(is_commit=False))
    yield Sketch(SMALL_ROWS, base_offset=40, attributes=0x20).encode()
    yield Sketch((), attributes=0x30).encode()


enter(Target("batch", read_by_all, seeds, mutate, seal_whole))
enter(Target("batch_records", read_records, seeds, mutate, seal_whole))
enter(Target("batch_twins", read_by_twins, seeds, mutate, seal_whole, is_timed=False))
enter(Target("batch_arrow", read_as_arrow, seeds, mutate, seal_whole))
enter(Target("codec", read_compressed, codec_seeds, mutate_compressed, bytes))
enter(Target("control", decode_end_marker, marker_seeds, mutate, seal_whole))
