"""The seal of a segment: its bytes, and that a damaged one counts as missing."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from cases import for_each
from log.workbench import BATCH_BYTES, START_MS, FakeClock, QuickFiles, fill, open_log
from seeklog.log.side.pages import MAX_PAGE_SIZE, PAGE_SIZE, Pages
from seeklog.log.side.seal import (
    COMPACTED_SIZE,
    HEAD_SIZE,
    SIZE,
    Content,
    Seal,
    decode_seal,
    encode_head,
    encode_seal,
    read_seal,
    read_table,
    write_seal,
)
from seeklog.record.crc import crc32c

SEAL = Seal(
    base_offset=100,
    next_offset=200,
    size=5000,
    record_count=90,
    batch_count=9,
    max_timestamp_ms=START_MS,
    sealed_at_ms=START_MS + 5,
    log_crc=0xFFFFFFFF,
    offset_index_crc=1,
    time_index_crc=0x80000000,
    contiguous=True,
)

COMPACTED = replace(SEAL, contiguous=False, clean_offset=150)
TABLE = b"abcdefghijkl"
PAGED = replace(COMPACTED, pages=Pages(PAGE_SIZE, crc32c(TABLE)))


def test_seal_has_eighty_bytes_as_documented() -> None:
    body = struct.pack(
        ">4shhqqqqqqqIII", b"SLSL", 1, 1, 100, 200, 5000, 90, 9, START_MS, START_MS + 5, 2**32 - 1, 1, 2**31
    )

    assert encode_seal(SEAL) == body + struct.pack(">I", crc32c(body))
    assert len(encode_seal(SEAL)) == SIZE == 80


@pytest.mark.parametrize("seal", [SEAL, replace(SEAL, contiguous=False), replace(SEAL, max_timestamp_ms=-1), COMPACTED])
def test_seal_round_trips(seal: Seal) -> None:
    assert decode_seal(encode_seal(seal)) == seal


def test_content_of_a_seal_does_not_depend_on_its_time() -> None:
    assert SEAL.content == replace(SEAL, sealed_at_ms=0).content == Content(100, 200, 5000, 0xFFFFFFFF)


def test_seal_of_compacted_segment_has_its_clean_offset() -> None:
    body = struct.pack(
        ">4shhqqqqqqqIIIq", b"SLSL", 2, 0, 100, 200, 5000, 90, 9, START_MS, START_MS + 5, 2**32 - 1, 1, 2**31, 150
    )

    assert encode_seal(COMPACTED) == body + struct.pack(">I", crc32c(body))
    assert len(encode_seal(COMPACTED)) == COMPACTED_SIZE == 88


@for_each("size", range(SIZE))
def test_truncated_seal_is_invalid(size: int) -> None:
    assert decode_seal(encode_seal(SEAL)[:size]) is None


def test_seal_with_trailing_bytes_is_invalid() -> None:
    assert decode_seal(encode_seal(SEAL) + b"\0") is None


@pytest.mark.id("seal-bits-flipped")
def test_seal_with_any_flipped_bit_is_invalid() -> None:
    data = encode_seal(SEAL)
    for bit in range(8 * SIZE):
        damaged = bytearray(data)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        assert decode_seal(bytes(damaged)) is None


@pytest.mark.parametrize(("at", "data"), [(0, b"SLSX"), (4, b"\0\2")], ids=["magic", "version"])
def test_seal_of_another_kind_is_invalid(at: int, data: bytes) -> None:
    body = bytearray(encode_seal(SEAL)[:-4])
    body[at : at + len(data)] = data

    assert decode_seal(bytes(body) + struct.pack(">I", crc32c(bytes(body)))) is None


def test_seal_is_read_only_for_its_own_segment(tmp_path: Path) -> None:
    files = QuickFiles()
    write_seal(files, str(tmp_path), SEAL)

    assert read_seal(files, str(tmp_path), 100) == SEAL
    assert read_seal(files, str(tmp_path), 101) is None
    (tmp_path / f"{100:020d}.seal").rename(tmp_path / f"{300:020d}.seal")
    assert read_seal(files, str(tmp_path), 300) is None


def test_rolled_segment_is_sealed_with_the_facts_of_its_files(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_bytes=3 * BATCH_BYTES, index_interval_bytes=0) as log:
        fill(log, 7)
        clock.advance(500)
        log.flush()

        assert not (tmp_path / f"{6:020d}.seal").exists()
        for base in (0, 3):
            name = f"{base:020d}"
            assert read_seal(QuickFiles(), str(tmp_path), base) == Seal(
                base_offset=base,
                next_offset=base + 3,
                size=3 * BATCH_BYTES,
                record_count=3,
                batch_count=3,
                max_timestamp_ms=START_MS + (base + 2) * 1000,
                sealed_at_ms=START_MS + 500,
                log_crc=crc32c((tmp_path / f"{name}.log").read_bytes()),
                offset_index_crc=crc32c((tmp_path / f"{name}.index").read_bytes()),
                time_index_crc=crc32c((tmp_path / f"{name}.timeindex").read_bytes()),
                contiguous=True,
            )


# ---------------------------------------------------------------- with pages


def test_seal_of_segment_with_gaps_is_head_and_table_as_documented() -> None:
    head = struct.pack(
        ">4shhqqqqqqqIIIqiI",
        *(b"SLSL", 3, 0, 100, 200, 5000, 90, 9, START_MS, START_MS + 5, 2**32 - 1, 1, 2**31, 150),
        *(PAGE_SIZE, crc32c(TABLE)),
    )

    assert encode_seal(PAGED, TABLE) == head + struct.pack(">I", crc32c(head)) + TABLE
    assert encode_head(PAGED) == encode_seal(PAGED, TABLE)[:HEAD_SIZE]
    assert HEAD_SIZE == 96
    assert decode_seal(encode_head(PAGED)) == decode_seal(encode_seal(PAGED, TABLE)) == PAGED


def test_table_is_written_only_if_the_seal_proves_it() -> None:
    seal = replace(PAGED, pages=None)
    assert encode_seal(seal, TABLE) == encode_seal(seal)
    assert decode_seal(encode_seal(seal, TABLE)) == seal


def _seen(path: Path, data: bytes) -> tuple[Seal | None, bytes | None]:
    path.write_bytes(data)
    files, directory = QuickFiles(), str(path.parent)
    return read_seal(files, directory, 100), read_table(files, directory, 100, PAGED.pages or Pages(1, 1))


def test_torn_seal_has_no_table_and_needs_its_whole_head(tmp_path: Path) -> None:
    path, data = tmp_path / f"{100:020d}.seal", encode_seal(PAGED, TABLE)
    assert read_table(QuickFiles(), str(tmp_path), 100, PAGED.pages or Pages(1, 1)) is None
    for size in range(len(data)):
        assert _seen(path, data[:size]) == (PAGED if size >= HEAD_SIZE else None, None)
    assert _seen(path, data) == (PAGED, TABLE)
    assert _seen(path, data + b"\0") == (PAGED, None)


def test_any_flipped_bit_is_noticed_in_head_or_table(tmp_path: Path) -> None:
    path, data = tmp_path / f"{100:020d}.seal", encode_seal(PAGED, TABLE)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        assert _seen(path, bytes(damaged)) == ((None, TABLE) if bit < 8 * HEAD_SIZE else (PAGED, None))


@pytest.mark.parametrize("page_size", [0, -1, MAX_PAGE_SIZE + 1])
def test_seal_with_impossible_page_size_is_invalid(page_size: int) -> None:
    assert decode_seal(encode_head(replace(PAGED, pages=Pages(page_size, 0)))) is None
