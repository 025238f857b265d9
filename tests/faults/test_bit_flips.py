"""Bits of a small log, flipped one at a time: an error or the same answers, never silence.

Every bit, of logs of every codec, of stores and of archives, is the proof's: `tests/proof/parts/flipped_bits.py`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from crash.sim import SimFiles
from faults.damage import warnings_heard
from faults.disks import files_with, in_log
from faults.flips import bits_of, flipped, try_flips
from faults.log_victims import LogVictim, closed_log, compacted_log, killed_log, log_with_watermark
from faults.store_victims import broker_store, own_files
from seeklog import names
from seeklog.errors import CorruptBatch
from seeklog.log.side.seal import decode_seal, encode_seal

INDEXES = (names.OFFSET_INDEX, names.TIME_INDEX)
# Coprime to 8, so that every bit of a byte is flipped; with this step each log takes a second or two.
SHORT_STEP = 29

either_way = pytest.mark.parametrize("read_only", [True, False])


@pytest.mark.id("log-bits-flipped")
@either_way
def test_no_single_bit_flip_is_silent(read_only: bool) -> None:
    victim = closed_log("none")
    assert len(files_with(victim.disk, names.LOG)) >= 3

    tally = try_flips(victim, bits_of(victim.disk, victim.disk.files, step=SHORT_STEP), read_only=read_only)

    assert tally.broken == []
    assert tally.counts["error"] > 0
    assert tally.counts["cut"] == 0


@either_way
def test_no_single_bit_flip_of_a_killed_log_is_silent(read_only: bool) -> None:
    """Goal: damage below the recovery point does not end the log; above it, it is cut, kept and reported."""
    victim = killed_log("none")

    tally = try_flips(victim, bits_of(victim.disk, victim.disk.files, step=SHORT_STEP), read_only=read_only)

    assert tally.broken == []
    assert tally.counts["error"] > 0
    assert tally.counts["cut"] > 0


@pytest.mark.id("small-file-bits-flipped")
@either_way
@pytest.mark.parametrize("name", [names.LEADER_EPOCHS, names.CHECKPOINT, names.WATERMARK])
def test_no_single_bit_flip_of_a_small_file_is_silent(name: str, read_only: bool) -> None:
    """Goal: Kafka's epoch file has no checksum, but batches have their epochs and our checkpoint has one."""
    victim = killed_log("none")

    tally = try_flips(victim, bits_of(victim.disk, [in_log(name)], step=3), read_only=read_only)

    assert tally.broken == []


@pytest.mark.id("index-bits-flipped")
@either_way
def test_no_single_bit_flip_of_an_index_changes_an_answer(read_only: bool) -> None:
    """Goal: an index is advice, so its damage gives no error and no other answer."""
    victim = closed_log("none")
    suffixes = (*INDEXES, names.KEY_INDEX, names.SNAPSHOT)

    tally = try_flips(victim, bits_of(victim.disk, files_with(victim.disk, *suffixes), step=5), read_only=read_only)

    assert tally.broken == []
    assert set(tally.counts) == {"same"}


@pytest.mark.id("base-offset-flipped")
@either_way
@pytest.mark.parametrize("byte", [0, 3, 7])
def test_damaged_base_offset_in_compacted_segment_is_not_read_as_gap(byte: int, read_only: bool) -> None:
    """Goal: gaps are valid there and no CRC covers the field, but a batch cannot pass the end of its segment."""
    victim = compacted_log("none")
    path = files_with(victim.disk, names.LOG)[0]

    tally = try_flips(victim, [(path, byte * 8 + bit) for bit in range(8)], read_only=read_only)

    assert tally.broken == []
    assert tally.counts["error"] > 0


@either_way
def test_batch_beyond_end_of_its_segment_is_damage_without_pages(read_only: bool) -> None:
    """Goal: a seal without page checksums cannot detect it; the next segment's base offset does."""
    victim = compacted_log("none")
    disk = victim.disk
    for path in files_with(disk, names.SEAL):
        seal = decode_seal(disk.files[path])
        assert seal is not None
        disk = disk.with_file(path, encode_seal(replace(seal, pages=None)))
    older = replace(victim, name="a compacted log without pages", disk=disk)
    path = files_with(disk, names.LOG)[0]

    tally = try_flips(older, [(path, byte * 8 + bit) for byte in (0, 3) for bit in range(8)], read_only=read_only)

    assert tally.broken == []
    assert tally.counts["error"] > 0


@pytest.mark.id("index-contradicts-log")
def test_seal_stays_when_index_contradicts_damaged_log() -> None:
    """Goal: if the file is not the sealed one, the seal is kept as evidence of the damage."""
    victim = compacted_log("none")
    path = files_with(victim.disk, names.LOG)[0]
    raw = victim.disk.files[path]
    second = int.from_bytes(raw[8:12], "big") + 12
    sim = SimFiles(victim.disk.with_file(path, flipped(raw, (second + 7) * 8)))
    seal = files_with(victim.disk, names.SEAL)[0]

    with warnings_heard(), pytest.raises(CorruptBatch), victim.open(sim, read_only=False) as log:
        victim.ask(log, expected=victim.expected(read_only=False))

    assert sim.read_file(seal) == victim.disk.files[seal]


@either_way
def test_impossible_base_offset_in_a_brokers_log_is_an_error(read_only: bool) -> None:
    """Goal: a broker's files have no seals, but an offset must fit into an index entry, and synced records exist."""
    victim = broker_store()
    path = next(path for path in own_files(victim) if path.endswith(names.LOG) and victim.disk.files[path])

    tally = try_flips(victim, [(path, bit) for bit in (1, 8, 20)], read_only=read_only)

    assert tally.broken == []
    assert tally.counts == {"error": 3}


@pytest.mark.id("watermark-flipped")
@pytest.mark.parametrize("victim", [log_with_watermark(is_closed=False), killed_log("none")], ids=["manual", "os"])
def test_damaged_watermark_falls_back_to_checkpoint_with_one_warning(victim: LogVictim) -> None:
    """Goal: readers that see less than was published warn once; the next writer publishes it again."""
    path = in_log(names.WATERMARK)
    sim = SimFiles(victim.disk.with_file(path, flipped(victim.disk.files[path], 3)))

    with warnings_heard() as heard, victim.open(sim, read_only=True) as log:
        assert log.high_watermark == victim.high_watermark
        assert len(list(log.scan())) == sum(
            log.log_start_offset <= offset < victim.high_watermark
            for offset, _ in victim.expected(read_only=True).records
        )
        assert log.high_watermark == victim.high_watermark

    assert [names.WATERMARK in warning for warning in heard] == [True]


def test_index_entry_below_base_offset_of_its_segment_is_rejected() -> None:
    """Goal: a flipped sign is not read as "no entry", which would make the middle of the log its start."""
    victim = killed_log("gzip")
    paths = files_with(victim.disk, names.OFFSET_INDEX)
    signs = [(path, entry * 64 + 7) for path in paths for entry in range(len(victim.disk.files[path]) // 8)]

    tally = try_flips(victim, signs, read_only=True)

    assert tally.broken == []
    assert tally.counts == {"same": len(signs)}
