"""The published high watermark: 16 bytes that another process may read during a write."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from log.workbench import CountingFiles, FailingFiles, QuickFiles
from seeklog import names
from seeklog.files import Buffer
from seeklog.log.side.watermark import (
    EXPLICIT,
    FOLLOWS_WRITE,
    SIZE,
    Publisher,
    decode_watermark,
    encode_watermark,
    read_watermark,
)
from seeklog.record.crc import crc32c


def test_watermark_is_a_crc_a_mode_and_an_offset() -> None:
    body = struct.pack(">iq", 1, 2**62)

    assert encode_watermark(EXPLICIT, 2**62) == struct.pack(">I", crc32c(body)) + body
    assert len(encode_watermark(EXPLICIT, 0)) == SIZE == 16


@pytest.mark.parametrize("mode", [FOLLOWS_WRITE, EXPLICIT])
@pytest.mark.parametrize("high_watermark", [0, 1, 2**31, 2**63 - 1])
def test_watermark_round_trips(mode: int, high_watermark: int) -> None:
    assert decode_watermark(encode_watermark(mode, high_watermark)) == (mode, high_watermark)


@pytest.mark.parametrize("size", [*range(SIZE), SIZE + 1])
def test_watermark_of_another_length_is_invalid(size: int) -> None:
    assert decode_watermark((encode_watermark(EXPLICIT, 5) + bytes(10))[:size]) is None


def test_watermark_with_any_flipped_bit_is_invalid() -> None:
    for bit in range(8 * SIZE):
        damaged = bytearray(encode_watermark(EXPLICIT, 5))
        damaged[bit >> 3] ^= 1 << (bit & 7)
        assert decode_watermark(bytes(damaged)) is None


@pytest.mark.parametrize("cut", range(1, SIZE))
def test_watermark_torn_between_two_values_is_invalid(cut: int) -> None:
    """Unless both have the same bytes on one side, so that the torn value equals one of them."""
    old, new = encode_watermark(EXPLICIT, 255), encode_watermark(EXPLICIT, 256)
    torn = new[:cut] + old[cut:]

    assert decode_watermark(torn) is None or torn in (old, new)


@pytest.mark.parametrize("durable", [False, True])
def test_watermark_that_may_have_fallen_is_synced(tmp_path: Path, durable: bool) -> None:
    files = CountingFiles()
    (tmp_path / names.WATERMARK).write_bytes(encode_watermark(EXPLICIT, 4))
    Publisher(files, str(tmp_path), follows_write=False).publish(3, durable=durable)

    assert files.diary == [("write", names.WATERMARK), ("sync", names.WATERMARK)][: 1 + durable]


def test_published_watermark_is_read(tmp_path: Path) -> None:
    files = QuickFiles()
    publisher = Publisher(files, str(tmp_path), follows_write=False)

    for high_watermark in (5, 9, 2):
        publisher.publish(high_watermark)
        assert read_watermark(files, str(tmp_path), warn=pytest.fail) == (EXPLICIT, high_watermark)
    assert (tmp_path / names.WATERMARK).stat().st_size == SIZE


def test_failed_publish_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = FailingFiles("write")
    publisher = Publisher(files, str(tmp_path), follows_write=False)
    publisher.try_publish(5)
    files.fails = True
    publisher.try_publish(9)

    assert read_watermark(files, str(tmp_path), warn=pytest.fail) == (EXPLICIT, 5)
    assert ["was not published" in warning for warning in caplog.messages] == [True]


def test_unpublished_watermark_is_none(tmp_path: Path) -> None:
    assert read_watermark(QuickFiles(), str(tmp_path), warn=pytest.fail) is None


def test_torn_watermark_is_read_again(tmp_path: Path) -> None:
    class TearingFiles(QuickFiles):
        looks = 0

        def read_file(self, path: str) -> bytes:
            self.looks += 1
            data = super().read_file(path)
            return data[:7] + bytes(9) if self.looks < 3 else data

    Publisher(QuickFiles(), str(tmp_path), follows_write=False).publish(7)
    files = TearingFiles()

    assert read_watermark(files, str(tmp_path), warn=pytest.fail) == (EXPLICIT, 7)
    assert files.looks == 3


def test_damaged_watermark_is_none_and_is_logged(tmp_path: Path) -> None:
    (tmp_path / names.WATERMARK).write_bytes(bytes(15) + b"x")
    warnings: list[str] = []

    assert read_watermark(QuickFiles(), str(tmp_path), warn=warnings.append) is None
    assert [names.WATERMARK in warning for warning in warnings] == [True]


class LookingFiles(QuickFiles):
    """The real disk, on which a reader looks at the watermark after every change."""

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self.seen: list[tuple[int, int] | None] = []

    def _look(self) -> None:
        self.seen.append(read_watermark(QuickFiles(), self._directory, warn=pytest.fail))

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        handle = super().open(path, write=write, create=create)
        self._look()
        return handle

    def write(self, handle: int, data: Buffer, position: int) -> None:
        super().write(handle, data, position)
        self._look()

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self._look()


def test_watermark_is_never_empty_while_it_is_created(tmp_path: Path) -> None:
    files = LookingFiles(tmp_path)

    Publisher(files, str(tmp_path), follows_write=False).publish(7)

    assert None in files.seen
    assert files.seen[-1] == (EXPLICIT, 7)


def test_empty_watermark_is_reported(tmp_path: Path) -> None:
    (tmp_path / names.WATERMARK).touch()
    warnings: list[str] = []

    assert read_watermark(QuickFiles(), str(tmp_path), warn=warnings.append) is None
    assert len(warnings) == 1
