"""Repairs: what is whole on both sides of damage stays, at its offsets; nothing is thrown away."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from seeklog import Log, LogConfig, Record, names
from seeklog.errors import CorruptionError, LogLocked, LostRecords
from seeklog.storage.finding import Severity
from seeklog.storage.inspection import inspect_partition
from seeklog.storage.repair import plan_repair, repair

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=300, retention_ms=-1)
RECORDS = 56
SEED = 20260102


def make_log(path: Path, *, batches: int = RECORDS, each: int = 1) -> dict[int, bytes]:
    """Make a log of three segments; return its values by their offsets."""
    with Log(path, config=CONFIG, background=False) as log:
        for number in range(batches):
            log.append_many([Record(b"value %d.%d" % (number, part), key=b"key") for part in range(each)])
        return {record.offset: record.value or b"" for record in log.scan()}


def read(path: Path) -> dict[int, bytes]:
    with Log(path, config=CONFIG, background=False) as log:
        return {record.offset: record.value or b"" for record in log.scan()}


def logs(path: Path) -> list[Path]:
    return sorted(path.glob("*.log"))


def flip(path: Path, position: int, mask: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def errors(path: Path) -> list[str]:
    return [
        f"{finding.kind} {finding.path} {finding.detail}"
        for finding in inspect_partition(str(path), config=CONFIG)
        if finding.severity is not Severity.NOTE
    ]


def batches_of(path: Path) -> list[tuple[int, int, int]]:
    """Return (position, size, base offset) of every batch of a whole file."""
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        found.append((at, size, int.from_bytes(data[at : at + 8], "big")))
        at += size
    return found


@pytest.mark.parametrize("seed", range(SEED, SEED + 30))
def test_all_but_the_damaged_batch_is_read_back(tmp_path: Path, seed: int) -> None:
    """Goal: flips at random bytes of any segment; what a repair leaves is sound, and nothing else is missing."""
    path = tmp_path / "orders-0"
    values = make_log(path)
    chance = random.Random(seed)
    hit: set[int] = set()
    for _ in range(chance.choice((1, 1, 3))):
        file = chance.choice(logs(path))
        position = chance.randrange(file.stat().st_size)
        hit |= {base for at, size, base in batches_of_whole(path, file) if at <= position < at + size}
        flip(file, position, 1 << chance.randrange(8))

    done = repair(str(path), config=CONFIG)

    assert done.is_needed, seed
    assert errors(path) == [], seed
    found = read(path)
    assert {offset: value for offset, value in values.items() if offset not in hit}.items() <= found.items(), seed
    assert found.items() <= values.items(), seed
    kept = sum(file.stat().st_size for file in path.glob("*.damaged"))
    assert kept == done.quarantined_bytes, seed
    with Log(path, config=CONFIG, background=False) as log:
        assert log.append(b"next") == RECORDS, seed


def batches_of_whole(path: Path, file: Path) -> list[tuple[int, int, int]]:
    """Return the batches that a file had before it was damaged: each takes as many bytes as its number has digits."""
    twin = path.parent / "twin"
    if not twin.exists():
        make_log(twin)
    return batches_of(twin / file.name)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("field", [*range(23), 30, 60])
def test_each_byte_of_a_header_that_something_proves_is_put_right(tmp_path: Path, field: int, number: int) -> None:
    """Goal: base offset, length, epoch, magic and CRC lose no record; the rest is covered by the CRC and is lost."""
    path = tmp_path / "log"
    values = make_log(path)
    file = logs(path)[number]
    whole = file.read_bytes()
    position, size, base = batches_of(file)[2]
    flip(file, position + field, 0x10)

    done = repair(str(path), config=CONFIG)

    assert errors(path) == []
    if field < 21:
        assert (file.read_bytes(), done.losses) == (whole, ())
        assert read(path) == values
    else:
        assert file.read_bytes() == whole[:position] + whole[position + size :]
        assert (path / names.damaged_name(int(file.stem), position)).stat().st_size == size
        assert [(loss.first_offset, loss.next_offset) for loss in done.losses] == [(base, base + 1)]
        assert read(path) == {offset: value for offset, value in values.items() if offset != base}


def test_a_plan_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    make_log(path)
    flip(logs(path)[0], 100)
    before = {file.name: file.read_bytes() for file in path.iterdir()}

    plan = plan_repair(str(path), config=CONFIG)

    assert plan.is_needed
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_a_whole_log_needs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    make_log(path)
    before = {file.name: file.read_bytes() for file in path.iterdir()}

    assert not repair(str(path), config=CONFIG).is_needed
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


@pytest.mark.parametrize("cut", [1, 40, 86, 100, 10**6])
def test_a_lost_end_is_never_given_to_other_records(tmp_path: Path, cut: int) -> None:
    """Goal: recovery refuses the log; after the repair it opens, and goes on behind what was promised."""
    path = tmp_path / "log"
    values = make_log(path)
    last = logs(path)[-1]
    last.write_bytes(last.read_bytes()[: -min(cut, last.stat().st_size)])
    with pytest.raises(LostRecords):
        Log(path, config=CONFIG)

    done = repair(str(path), config=CONFIG)

    assert done.roll_at == RECORDS
    assert errors(path) == []
    found = read(path)
    assert found.items() <= values.items()
    lost = [offset for loss in done.losses for offset in range(loss.first_offset, loss.next_offset)]
    assert sorted([*found, *lost]) == list(range(RECORDS))
    assert f"lost {lost[0]} {RECORDS} " in (path / names.LOSSES).read_text()
    with Log(path, config=CONFIG, background=False) as log:
        assert log.append(b"next") == RECORDS


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_segment_that_is_gone_is_gone_over(tmp_path: Path, number: int) -> None:
    path = tmp_path / "log"
    values = make_log(path)
    gone = logs(path)[number]
    first, *_ = (base for _, _, base in batches_of(gone))
    last = batches_of(gone)[-1][2]
    gone.unlink()

    done = repair(str(path), config=CONFIG)

    assert [(loss.first_offset, loss.next_offset) for loss in done.losses] == [(first, last + 1)]
    assert errors(path) == []
    assert read(path) == {offset: value for offset, value in values.items() if not first <= offset <= last}


def test_a_log_of_which_no_segment_is_left_begins_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "log"
    make_log(path)
    for file in logs(path):
        file.unlink()

    repair(str(path), config=CONFIG)

    with Log(path, config=CONFIG, background=False) as log:
        assert (log.log_start_offset, log.append(b"next")) == (RECORDS, RECORDS)


def test_a_segment_in_which_nothing_is_whole_is_left_empty(tmp_path: Path) -> None:
    path = tmp_path / "log"
    values = make_log(path)
    file = logs(path)[1]
    bases = [base for _, _, base in batches_of(file)]
    file.write_bytes(random.Random(SEED).randbytes(file.stat().st_size))

    repair(str(path), config=CONFIG)

    assert errors(path) == []
    assert read(path) == {offset: value for offset, value in values.items() if offset not in bases}


def test_a_damaged_checkpoint_is_kept_and_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    values = make_log(path)
    flip(path / names.CHECKPOINT, 40)
    damaged = (path / names.CHECKPOINT).read_bytes()
    with pytest.raises(CorruptionError):
        Log(path, config=CONFIG)

    assert repair(str(path), config=CONFIG).has_damaged_checkpoint

    assert (path / f"{names.CHECKPOINT}.damaged").read_bytes() == damaged
    assert errors(path) == []
    assert read(path) == values


@pytest.mark.parametrize("suffix", [".seal", ".index", ".timeindex"])
def test_what_lies_beside_a_whole_log_is_made_anew(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "log"
    values = make_log(path)
    whole = logs(path)[0].read_bytes()
    flip(logs(path)[0].with_suffix(suffix), 9)

    repair(str(path), config=CONFIG)

    assert errors(path) == []
    assert logs(path)[0].read_bytes() == whole
    assert read(path) == values


def torn_log(path: Path) -> dict[int, bytes]:
    """Make a log whose last batches recovery cuts: they were never synced, and the first of them is damaged."""
    with Log(path, config=CONFIG, background=False) as log:
        for number in range(5):
            log.append(b"promised %d" % number)
        log.flush()
        shutil.copytree(path, path.parent / "early", ignore=shutil.ignore_patterns(".lock"))
        for number in range(5, 10):
            log.append(b"later %d" % number)
        values = {record.offset: record.value or b"" for record in log.scan()}
    early = path.parent / "early" / names.CHECKPOINT
    shutil.copy(early, path / names.CHECKPOINT)
    return values


def test_whole_batches_come_back_from_what_recovery_cut(tmp_path: Path) -> None:
    path = tmp_path / "log"
    values = torn_log(path)
    (file,) = logs(path)
    position, _, base = batches_of(file)[6]
    flip(file, position + 65)
    assert sorted(read(path)) == list(range(base))
    assert list(path.glob("*.torn"))
    assert not plan_repair(str(path), config=CONFIG).is_needed

    done = repair(str(path), config=CONFIG, from_torn=True)

    assert [(loss.first_offset, loss.next_offset) for loss in done.losses] == [(base, base + 1)]
    assert read(path) == {offset: value for offset, value in values.items() if offset != base}
    assert errors(path) == []
    assert not repair(str(path), config=CONFIG, from_torn=True).is_needed


def test_batches_whose_offsets_were_given_again_do_not_come_back(tmp_path: Path) -> None:
    path = tmp_path / "log"
    torn_log(path)
    (file,) = logs(path)
    position, _, base = batches_of(file)[6]
    flip(file, position + 65)
    with Log(path, config=CONFIG, background=False) as log:
        for _ in range(base, 10):
            log.append(b"another")

    assert not plan_repair(str(path), config=CONFIG, from_torn=True).is_needed


def test_a_log_that_is_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    make_log(path)
    flip(logs(path)[0], 100)
    with Log(path, config=CONFIG, background=False), pytest.raises(LogLocked):
        repair(str(path), config=CONFIG)
