"""Repairs: whole batches on both sides of damage stay at their offsets; no bytes are thrown away."""

from __future__ import annotations

import errno
import random
import shutil
from pathlib import Path

import pytest

from seeklog import Log, LogConfig, Record, names
from seeklog.config import INT64_MAX
from seeklog.errors import CorruptionError, DiskFull, LogLocked, LostRecords, NotAccessible, NotALog, UsageError
from seeklog.files import Buffer, OsFiles
from seeklog.log.check.finding import Severity
from seeklog.log.check.inspection import inspect_partition
from seeklog.log.check.repair_plan import plan_repair
from seeklog.log.check.repair_work import repair
from seeklog.log.check.salvage import MAX_DAMAGES
from seeklog.log.side.checkpoint import Checkpoint
from seeklog.log.side.watermark import EXPLICIT, encode_watermark

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=300, retention_ms=-1)
RECORDS = 56
SEED = 20260102


def make_log(path: Path, *, batches: int = RECORDS, each: int = 1) -> dict[int, bytes]:
    """Make a log of three segments; return its values by offset."""
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


@pytest.mark.id("repair-keeps-the-rest")
@pytest.mark.parametrize("seed", range(SEED, SEED + 30))
def test_all_batches_but_the_damaged_one_are_readable(tmp_path: Path, seed: int) -> None:
    """Goal: after flips at random bytes of any segment, the repaired log is whole, and nothing else is missing."""
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
    """Return the batches of a file before it was damaged: each takes as many bytes as its number has digits."""
    twin = path.parent / "twin"
    if not twin.exists():
        make_log(twin)
    return batches_of(twin / file.name)


EPOCH = range(12, 16)


@pytest.mark.id("repair-damaged-header")
@pytest.mark.parametrize("batch", [2, -1])
@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("field", [*range(23), 30, 60])
def test_batch_with_damaged_header_is_quarantined_whole(tmp_path: Path, field: int, number: int, batch: int) -> None:
    """Goal: each byte of a header, in the middle and at the end of a segment. A leader epoch costs no record."""
    path = tmp_path / "log"
    values = make_log(path)
    file = logs(path)[number]
    position, size, base = batches_of(file)[batch]
    flip(file, position + field, 0x10)
    damaged = file.read_bytes()

    done = repair(str(path), config=CONFIG)

    assert errors(path) == []
    if field in EPOCH:
        assert (file.read_bytes(), done.losses) == (damaged, ())
        assert "such as one of a leader epoch, has changed" in done.resealed[int(file.stem)]
        assert read(path) == values
    else:
        assert file.read_bytes() == damaged[:position] + damaged[position + size :]
        aside = path / names.damaged_name(int(file.stem), position)
        assert aside.read_bytes() == damaged[position : position + size]
        assert [(loss.first_offset, loss.next_offset) for loss in done.losses] == [(base, base + 1)]
        assert read(path) == {offset: value for offset, value in values.items() if offset != base}
    with Log(path, config=CONFIG, background=False) as log:
        assert log.append(b"next") == RECORDS


def test_plan_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    make_log(path)
    flip(logs(path)[0], 100)
    before = {file.name: file.read_bytes() for file in path.iterdir()}

    plan = plan_repair(str(path), config=CONFIG)

    assert plan.is_needed
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_undamaged_log_needs_no_repair(tmp_path: Path) -> None:
    path = tmp_path / "log"
    make_log(path)
    before = {file.name: file.read_bytes() for file in path.iterdir()}

    assert not repair(str(path), config=CONFIG).is_needed
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


@pytest.mark.id("repair-lost-end")
@pytest.mark.parametrize("cut", [1, 40, 86, 100, 10**6])
def test_lost_offsets_are_never_reused(tmp_path: Path, cut: int) -> None:
    """Goal: recovery refuses the log; after the repair it opens, and continues after the promised offsets."""
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
def test_missing_segment_is_listed_as_lost(tmp_path: Path, number: int) -> None:
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


def test_log_without_segments_starts_at_its_old_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    make_log(path)
    for file in logs(path):
        file.unlink()

    repair(str(path), config=CONFIG)

    with Log(path, config=CONFIG, background=False) as log:
        assert (log.log_start_offset, log.append(b"next")) == (RECORDS, RECORDS)


def test_segment_without_whole_batches_becomes_empty(tmp_path: Path) -> None:
    path = tmp_path / "log"
    values = make_log(path)
    file = logs(path)[1]
    bases = [base for _, _, base in batches_of(file)]
    file.write_bytes(random.Random(SEED).randbytes(file.stat().st_size))

    repair(str(path), config=CONFIG)

    assert errors(path) == []
    assert read(path) == {offset: value for offset, value in values.items() if offset not in bases}


def test_damaged_checkpoint_is_kept_and_replaced(tmp_path: Path) -> None:
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


def lose_the_end(path: Path, *, word: bytes) -> None:
    """Damage a line of the checkpoint, too."""
    logs(path)[-1].write_bytes(b"")
    checkpoint = path / names.CHECKPOINT
    flip(checkpoint, checkpoint.read_bytes().index(b"\n" + word) + 1)


@pytest.mark.id("repair-promise-without-checkpoint")
@pytest.mark.parametrize("word", [b"recovery_point", b"high_watermark", b"active", b"generation"])
def test_promised_offset_is_known_despite_a_damaged_checkpoint(tmp_path: Path, word: bytes) -> None:
    """Goal: any two of the numbers that a closed log saves are enough."""
    path = tmp_path / "log"
    make_log(path)
    lose_the_end(path, word=word)
    end = int(logs(path)[-1].stem)

    done = repair(str(path), config=CONFIG)

    assert [(loss.first_offset, loss.next_offset) for loss in done.losses] == [(end, RECORDS)]
    assert errors(path) == []
    with Log(path, config=CONFIG, background=False) as log:
        assert log.append(b"next") == RECORDS


def without_numbers(path: Path) -> None:
    (path / names.CHECKPOINT).write_bytes(b"seeklog-checkpoint 1\nrecovery_point 7\n")


def test_single_number_in_damaged_checkpoint_is_not_trusted(tmp_path: Path) -> None:
    path = tmp_path / "log"
    values = make_log(path, batches=3)
    without_numbers(path)

    assert repair(str(path), config=CONFIG).losses == ()
    assert read(path) == values


@pytest.mark.id("repair-promise-from-later-writes")
@pytest.mark.parametrize("teller", ["seal", "snapshot", "watermark", "root"])
def test_promised_offset_is_known_from_each_file_written_after_a_sync(tmp_path: Path, teller: str) -> None:
    """Goal: the checkpoint and the last segments are gone; each other file alone still proves the offset."""
    path = tmp_path / "log"
    values = make_log(path)
    *whole, second, last = logs(path)
    without_numbers(path)
    last.unlink()
    promised = RECORDS
    if teller == "seal":
        promised = int(last.stem)
        second.write_bytes(b"")
    else:
        second.with_suffix(".seal").unlink()
    if teller == "snapshot":
        (path / names.segment_name(RECORDS, names.SNAPSHOT)).write_bytes(b"")
    if teller == "watermark":
        (path / names.WATERMARK).write_bytes(encode_watermark(EXPLICIT, RECORDS))
    root = Checkpoint(RECORDS, 0, RECORDS, contiguous_from=INT64_MAX, foreign=True) if teller == "root" else None

    done = repair(str(path), config=CONFIG, inherited=root)

    assert (done.roll_at, done.losses[-1].next_offset) == (promised, promised)
    assert errors(path) == []
    assert read(path).items() <= values.items()
    assert read(path).keys() >= {base for file in whole for _, _, base in batches_of(file)}
    with Log(path, config=CONFIG, background=False) as log:
        assert log.append(b"next") == promised


def test_damaged_side_files_prove_no_promise(tmp_path: Path) -> None:
    path = tmp_path / "log"
    values = make_log(path)
    without_numbers(path)
    (path / names.WATERMARK).write_bytes(b"")
    flip(logs(path)[0].with_suffix(".seal"), 20)

    assert repair(str(path), config=CONFIG).losses == ()
    assert read(path) == values


@pytest.mark.parametrize("suffix", [".seal", ".index", ".timeindex"])
def test_side_files_of_a_whole_log_are_rebuilt(tmp_path: Path, suffix: str) -> None:
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


def test_whole_batches_are_restored_from_torn_files(tmp_path: Path) -> None:
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


def test_restored_batches_stay_after_a_torn_end(tmp_path: Path) -> None:
    """Goal: recovery would cut at the torn end, and again all after it; so the repair removes the torn end."""
    path = tmp_path / "log"
    values = torn_log(path)
    (file,) = logs(path)
    position, _, base = batches_of(file)[6]
    flip(file, position + 65)
    read(path)
    torn = b"half a batch"
    file.write_bytes(file.read_bytes() + torn)
    assert not plan_repair(str(path), config=CONFIG).is_needed

    done = repair(str(path), config=CONFIG, from_torn=True)

    assert sum(segment.record_count for segment in done.restored) == 10 - base - 1
    assert [file.read_bytes() for file in path.glob("*.damaged")] == [torn]
    assert read(path) == {offset: value for offset, value in values.items() if offset != base}
    assert errors(path) == []


def test_batches_with_reused_offsets_are_not_restored(tmp_path: Path) -> None:
    path = tmp_path / "log"
    torn_log(path)
    (file,) = logs(path)
    position, _, base = batches_of(file)[6]
    flip(file, position + 65)
    with Log(path, config=CONFIG, background=False) as log:
        for _ in range(base, 10):
            log.append(b"another")

    assert not plan_repair(str(path), config=CONFIG, from_torn=True).is_needed


def test_repair_of_a_log_open_for_writing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    make_log(path)
    flip(logs(path)[0], 100)
    with Log(path, config=CONFIG, background=False), pytest.raises(LogLocked):
        repair(str(path), config=CONFIG)


def test_repair_without_a_log_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    for path in (tmp_path / "nothing", file):
        with pytest.raises(NotALog, match=f"there is no log at {path}"):
            plan_repair(path)


def test_repeated_batches_are_quarantined(tmp_path: Path) -> None:
    path = tmp_path / "log"
    values = make_log(path)
    first = logs(path)[0]
    (at, size, _), (_, _, base) = batches_of(first)[2:4]
    data = first.read_bytes()
    first.write_bytes(data[: at + size] + data[at : at + size] + data[at + size :])

    done = repair(str(path), config=CONFIG)

    assert [quarantine.reason for quarantine in done.quarantines] == [f"offsets {base - 1} to {base - 1} are repeated"]
    assert first.read_bytes() == data
    assert read(path) == values
    assert errors(path) == []


def test_missing_batch_is_listed_as_lost_without_quarantine(tmp_path: Path) -> None:
    path = tmp_path / "log"
    values = make_log(path)
    first = logs(path)[0]
    at, size, base = batches_of(first)[2]
    data = first.read_bytes()
    first.write_bytes(data[:at] + data[at + size :])

    done = repair(str(path), config=CONFIG)

    assert [(loss.first_offset, loss.next_offset) for loss in done.losses] == [(base, base + 1)]
    assert done.quarantines == ()
    assert done.lost_offsets == 1
    assert read(path) == {offset: value for offset, value in values.items() if offset != base}
    assert errors(path) == []


def foreign(path: Path) -> None:
    """Turn a log into one as a broker leaves it."""
    for name in (names.CHECKPOINT, names.WATERMARK, *(each.with_suffix(".seal").name for each in logs(path)[:-1])):
        (path / name).unlink()


def test_brokers_directory_is_repaired_without_seeklogs_files(tmp_path: Path) -> None:
    path = tmp_path / "log"
    make_log(path)
    foreign(path)
    at, size, base = batches_of(logs(path)[0])[2]
    data = logs(path)[0].read_bytes()
    flip(logs(path)[0], at + 65)

    done = repair(str(path), config=CONFIG)

    assert logs(path)[0].read_bytes() == data[:at] + data[at + size :]
    assert [(loss.first_offset, loss.next_offset) for loss in done.losses] == [(base, base + 1)]
    assert not (path / names.CHECKPOINT).exists()
    assert not [*path.glob("*.seal")]


def test_batches_of_an_older_format_are_not_damage(tmp_path: Path) -> None:
    path = tmp_path / "log"
    make_log(path)
    foreign(path)
    data = bytearray(logs(path)[0].read_bytes())
    data[16] = 1
    logs(path)[0].write_bytes(data)
    before = {file.name: file.read_bytes() for file in path.iterdir()}

    with pytest.raises(UsageError, match=r"byte 0: .*magic 1.*this is not damage, .*\. Nothing was changed"):
        repair(str(path), config=CONFIG)
    assert {file.name: file.read_bytes() for file in path.iterdir() if file.name != names.LOCK} == {
        name: data for name, data in before.items() if name != names.LOCK
    }


class FailingFiles(OsFiles):
    """A disk that fails to write a rewritten segment, or writes it wrong."""

    def __init__(self, error: int | None) -> None:
        self.error = error
        self.cleaned: set[int] = set()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        handle = super().open(path, write=write, create=create)
        (self.cleaned.add if write and path.endswith(names.LOG + names.CLEANED) else self.cleaned.discard)(handle)
        return handle

    def write(self, handle: int, data: Buffer, position: int) -> None:
        if handle not in self.cleaned:
            super().write(handle, data, position)
        elif self.error is not None:
            raise OSError(self.error, "on purpose")
        else:
            super().write(handle, b"\xff" * len(bytes(data)), position)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (errno.ENOSPC, DiskFull, "cannot be repaired: the disk is full; it takes as much as"),
        (errno.EIO, NotAccessible, "cannot be repaired: .*on purpose"),
        (None, UsageError, "its whole batches do not form a segment; it was not changed"),
    ],
)
def test_repair_can_be_repeated_after_a_failing_disk(
    tmp_path: Path, error: int | None, kind: type[Exception], message: str
) -> None:
    """Goal: no bytes are quarantined twice, no loss is listed twice, and other files stay."""
    path = tmp_path / "log"
    values = make_log(path)
    first = logs(path)[0]
    at, _, base = batches_of(first)[2]
    flip(first, at + 65)
    damaged = first.read_bytes()
    aside = path / names.damaged_name(0, at, 0)
    aside.write_bytes(b"from another day")

    with pytest.raises(kind, match=message):
        repair(str(path), config=CONFIG, files=FailingFiles(error))
    assert first.read_bytes() == damaged
    repair(str(path), config=CONFIG)

    assert read(path) == {offset: value for offset, value in values.items() if offset != base}
    assert errors(path) == []
    assert aside.read_bytes() == b"from another day"
    assert len([*path.glob("*.damaged*")]) == 2
    assert (path / names.LOSSES).read_bytes().count(b"lost ") == 1


def test_interrupted_compaction_is_completed_before_a_repair(tmp_path: Path) -> None:
    path = tmp_path / "log"
    values = make_log(path)
    first, second = logs(path)[:2]
    first.rename(f"{first}.swap")
    (path / f"{second.name}.cleaned").write_bytes(b"half")
    at, _, base = batches_of(second)[2]
    flip(second, at + 65)

    repair(str(path), config=CONFIG)

    assert first.exists()
    assert not [*path.glob("*.swap"), *path.glob("*.cleaned")]
    assert read(path) == {offset: value for offset, value in values.items() if offset != base}


def test_segment_with_too_much_damage_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    config = LogConfig(segment_bytes=1 << 20, retention_ms=-1)
    with Log(path, config=config, background=False) as log:
        for _ in range(2 * MAX_DAMAGES + 5):
            log.append(b"v")
    (file,) = logs(path)
    data = bytearray(file.read_bytes())
    for at, _, _ in batches_of(file)[::2]:
        data[at + 61] ^= 1
    file.write_bytes(data)

    with pytest.raises(UsageError, match="too much of it is damaged to repair; restore it from a copy"):
        plan_repair(path, config=config)


def test_bytes_between_batches_are_quarantined_without_losing_records(tmp_path: Path) -> None:
    path = tmp_path / "log"
    values = make_log(path)
    file = logs(path)[0]
    position, _, _ = batches_of(file)[2]
    whole, stray = file.read_bytes(), b"these are not a batch"
    file.write_bytes(whole[:position] + stray + whole[position:])

    done = repair(str(path), config=CONFIG)

    assert (done.quarantined_bytes, done.losses) == (len(stray), ())
    assert (file.read_bytes(), read(path)) == (whole, values)
    assert [file.read_bytes() for file in path.glob("*.damaged")] == [stray]


def test_brokers_transaction_index_stays_with_its_segment(tmp_path: Path) -> None:
    """Kafka rebuilds it from a snapshot that may be gone, so the existing one is kept."""
    path = tmp_path / "log"
    make_log(path)
    for name in (names.CHECKPOINT, names.WATERMARK):
        (path / name).unlink()
    for seal in path.glob("*.seal"):
        seal.unlink()
    file = logs(path)[0]
    aborted = file.with_suffix(names.TRANSACTION_INDEX)
    entry = bytes(34)
    aborted.write_bytes(entry)
    position, size, _ = batches_of(file)[2]
    flip(file, position + size - 1)

    assert repair(str(path), config=CONFIG).is_needed

    assert aborted.read_bytes() == entry
    assert not list(path.glob("*.seal"))
