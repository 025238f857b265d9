"""Columns that the kernel decodes straight from a file: the same rows and the same errors as from chunks.

A disk that does more than `pread`, such as one that counts, is read in chunks. That is the oracle here.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seeklog.files.local
import seeklog.log.columns
from log.workbench import FIRST_LOG, QuickFiles, ReadCountingFiles, open_log
from record.batches import CODECS, IS_COMPILED
from seeklog import LogReader, Record
from seeklog.errors import SeeklogError
from seeklog.record.codec import CODEC_NAMES

pytest.importorskip("pyarrow")
SEED = 2026


def fill_batches(path: Path, *, codec: str = "none", largest: int = 3000) -> None:
    chance = random.Random(SEED)
    with open_log(path, compression_type=codec, segment_bytes=40_000, index_interval_bytes=500) as log:
        for _ in range(60):
            log.append_many(
                [
                    Record(
                        chance.choice([None, b"", chance.randbytes(chance.choice([20, 90, largest]))]),
                        key=chance.choice([None, b"", b"a key"]),
                        headers=chance.choice([(), (("h", b"1"), ("n", None))]),
                    )
                    for _ in range(chance.randrange(1, 9))
                ]
            )


def scanned(path: Path, files: QuickFiles, *span: int, **options: Any) -> list[dict[str, Any]] | tuple[object, ...]:
    """Return the rows of a scan, or what its error says."""
    try:
        with LogReader(path, files=files) as log:
            return log.scan_arrow(*span, **options).read_all().to_pylist()
    except SeeklogError as error:
        return type(error), str(error)


@pytest.mark.parametrize("codec", [CODEC_NAMES[codec] for codec in CODECS])
@pytest.mark.parametrize("chunk", [100, 5000, 256 << 10])
def test_rows_are_the_same_whatever_fits_into_a_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, codec: str
) -> None:
    fill_batches(tmp_path, codec=codec)
    monkeypatch.setattr(seeklog.log.columns, "CHUNK", chunk)
    files = ReadCountingFiles()

    for span in ((), (0, 1), (17, 18), (17, 130), (100, 101)):
        for batch_rows in (1, 20, 32768):
            rows = scanned(tmp_path, QuickFiles(), *span, batch_rows=batch_rows)
            assert rows == scanned(tmp_path, files, *span, batch_rows=batch_rows)
            assert rows
    assert files.read_bytes


def test_scan_reads_little_in_chunks_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the rest is read by the kernel, without the lock of the interpreter."""
    if not IS_COMPILED:
        pytest.skip("the interpreted kernel reads no files")
    fill_batches(tmp_path)
    chunks: list[int] = []

    def counting(handle: int, size: int, position: int) -> bytes:
        data = os.pread(handle, size, position)
        chunks.append(len(data))
        return data

    monkeypatch.setattr(seeklog.files.local, "pread", counting)
    monkeypatch.setattr(seeklog.log.columns, "CHUNK", 5000)
    assert scanned(tmp_path, QuickFiles())

    with LogReader(tmp_path) as log:
        assert sum(chunks) < log.size_bytes / 4


def cut(at: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, at)


def flip(at: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 0x40
        path.write_bytes(data)

    return change


@pytest.mark.parametrize("damage", [cut, flip])
def test_damage_is_reported_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[int], Callable[[Path], None]]
) -> None:
    monkeypatch.setattr(seeklog.log.columns, "CHUNK", 700)
    good, bad = tmp_path / "good", tmp_path / "bad"
    fill_batches(good, largest=300)
    expected = scanned(good, ReadCountingFiles())
    size = (good / FIRST_LOG).stat().st_size
    outcomes = set()
    for at in range(0, size, 97):
        shutil.rmtree(bad, ignore_errors=True)
        shutil.copytree(good, bad)
        damage(at)(bad / FIRST_LOG)

        outcome = scanned(bad, QuickFiles())
        assert outcome == scanned(bad, ReadCountingFiles()), f"byte {at}"
        outcomes.add("rows" if outcome == expected else outcome)

    assert len(outcomes) > 20
