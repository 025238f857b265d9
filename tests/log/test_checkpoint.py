"""The checkpoint file: its text, its CRC, and its replacement as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from cases import for_each
from log.workbench import CountingFiles, QuickFiles
from seeklog import names
from seeklog.errors import CorruptionError
from seeklog.files import replace_file
from seeklog.log.side.checkpoint import (
    Checkpoint,
    decode_checkpoint,
    encode_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from seeklog.record.crc import crc32c
from seeklog.record.framed import encode_framed
from seeklog.record.saved_state import SavedState

PLAIN = Checkpoint(recovery_point=1000, log_start_offset=7, high_watermark=900, contiguous_from=3)
FULL = Checkpoint(
    recovery_point=2**62,
    log_start_offset=0,
    high_watermark=2**62,
    contiguous_from=0,
    epochs=((0, 0), (3, 700)),
    active=SavedState(5, -1, 2**62, *range(13)),
)


def sealed(body: str) -> bytes:
    """Return a file with a correct CRC and any content."""
    return body.encode() + b"crc32c %08x\n" % crc32c(body.encode())


def test_checkpoint_is_lines_of_names_and_numbers() -> None:
    assert encode_checkpoint(FULL) == sealed(
        "seeklog-checkpoint 1\n"
        f"recovery_point {2**62}\n"
        "log_start_offset 0\n"
        f"high_watermark {2**62}\n"
        "contiguous_from 0\n"
        "generation 0\n"
        "epochs 0 0 3 700\n"
        f"active 5 -1 {2**62} 0 1 2 3 4 5 6 7 8 9 10 11 12\n"
    )


def test_saved_state_of_another_version_is_ignored() -> None:
    lines = encode_checkpoint(PLAIN).decode().splitlines()[1:-1]
    data = encode_framed("seeklog-checkpoint 1", [*lines, "active 5 -1 7"])
    assert decode_checkpoint(data, path="p") == PLAIN


def test_checkpoint_describes_active_segment_only_after_clean_close() -> None:
    assert b"active" not in encode_checkpoint(PLAIN)


@pytest.mark.parametrize("checkpoint", [PLAIN, FULL])
def test_checkpoint_round_trips(checkpoint: Checkpoint) -> None:
    assert decode_checkpoint(encode_checkpoint(checkpoint), path="x") == checkpoint


@for_each("size", range(len(encode_checkpoint(PLAIN))))
def test_every_truncated_checkpoint_is_refused(size: int) -> None:
    with pytest.raises(CorruptionError):
        decode_checkpoint(encode_checkpoint(PLAIN)[:size], path="the/file")


def test_every_single_bit_flip_is_refused() -> None:
    data = encode_checkpoint(FULL)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(CorruptionError):
            decode_checkpoint(bytes(damaged), path="x")


@pytest.mark.parametrize("extra", [b"x", b"\n", b"crc32c 00000000\n", bytes(100)])
def test_bytes_after_crc_are_refused(extra: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_checkpoint(encode_checkpoint(PLAIN) + extra, path="x")


def test_error_names_file_and_remedy() -> None:
    with pytest.raises(CorruptionError, match="fails its CRC") as caught:
        decode_checkpoint(b"", path="the/file")

    assert caught.value.path == "the/file"
    assert "delete the checkpoint" in caught.value.advice


NUMBERS = "recovery_point 1\nlog_start_offset 1\nhigh_watermark 1\ncontiguous_from 1\nepochs 0 0\n"


@pytest.mark.parametrize(
    "body",
    [
        "",
        "\n",
        "seeklog-checkpoint 1\n",
        f"seeklog-checkpoint 2\n{NUMBERS}",
        f"something else\n{NUMBERS}",
        "seeklog-checkpoint 1\n" + NUMBERS.replace("high_watermark 1\n", ""),
        "seeklog-checkpoint 1\n" + NUMBERS.replace("high_watermark 1", "high_watermark x"),
        "seeklog-checkpoint 1\n" + NUMBERS.replace("epochs 0 0", "epochs 0"),
        "seeklog-checkpoint 1\n" + NUMBERS.replace("epochs 0 0", "epochs a b"),
        f"seeklog-checkpoint 1\n{NUMBERS}active x\n",
    ],
)
def test_invalid_content_with_correct_crc_is_refused(body: str) -> None:
    with pytest.raises(CorruptionError):
        decode_checkpoint(sealed(body), path="x")


def test_newer_version_is_reported_as_newer() -> None:
    with pytest.raises(CorruptionError, match="newer seeklog"):
        decode_checkpoint(sealed(f"seeklog-checkpoint 2\n{NUMBERS}"), path="x")


def test_checkpoint_that_is_not_text_is_refused() -> None:
    body = b"seeklog-checkpoint 1\n\xff\xfe\n"

    with pytest.raises(CorruptionError):
        decode_checkpoint(body + b"crc32c %08x\n" % crc32c(body), path="x")


def test_directory_without_checkpoint_has_none(tmp_path: Path) -> None:
    assert read_checkpoint(QuickFiles(), str(tmp_path)) is None


def test_written_checkpoint_is_read_back(tmp_path: Path) -> None:
    for checkpoint in (FULL, PLAIN):
        write_checkpoint(QuickFiles(), str(tmp_path), checkpoint)

        assert read_checkpoint(QuickFiles(), str(tmp_path)) == checkpoint
    assert [path.name for path in tmp_path.iterdir()] == [names.CHECKPOINT]


def test_unchanged_checkpoint_is_decoded_once(tmp_path: Path) -> None:
    write_checkpoint(QuickFiles(), str(tmp_path), PLAIN)

    first = read_checkpoint(QuickFiles(), str(tmp_path))

    assert read_checkpoint(QuickFiles(), str(tmp_path)) is first


def test_file_is_synced_before_rename_and_directory_after(tmp_path: Path) -> None:
    files = CountingFiles()

    write_checkpoint(files, str(tmp_path), PLAIN)

    temporary = names.CHECKPOINT + ".tmp"
    assert files.diary == [
        ("truncate", temporary),
        ("write", temporary),
        ("sync", temporary),
        ("rename", names.CHECKPOINT),
        ("sync", "directory"),
    ]


def test_longer_temporary_file_is_overwritten_completely(tmp_path: Path) -> None:
    (tmp_path / "name.tmp").write_bytes(bytes(1000))

    replace_file(QuickFiles(), str(tmp_path), "name", b"short")

    assert (tmp_path / "name").read_bytes() == b"short"
    assert not (tmp_path / "name.tmp").exists()
