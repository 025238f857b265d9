"""`inspect_partition`: findings for files that are not as they were written, and no findings for sound ones."""

from __future__ import annotations

import os
import shutil
import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from log.workbench import BATCH_BYTES, START_MS, QuickFiles, config_of, contents, crashed_copy, fill, make_log, open_log
from seeklog import LogConfig, Record
from seeklog.errors import LogLocked
from seeklog.log.check import index_check
from seeklog.log.check.finding import Finding, Kind, Severity
from seeklog.log.check.inspection import conclude, inspect_partition, inspect_segment, plan_inspection
from seeklog.log.check.salvage import MAX_DAMAGES, MAX_EFFORT
from seeklog.log.side.seal import read_seal, write_seal
from seeklog.names import LOCK
from seeklog.record.batch import encode_batch

FILES = QuickFiles()
CONFIG = config_of(index_interval_bytes=0)
SEGMENT_BATCHES = 10
ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sealed segments 0 and 10 of ten batches each, and 20 with five. Every batch but the first of each is indexed."""
    directory = tmp_path_factory.mktemp("pristine") / "log"
    make_log(directory, 25, index_interval_bytes=0, segment_bytes=SEGMENT_BATCHES * BATCH_BYTES)
    return directory


@pytest.fixture
def log(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "log"))


def inspect(directory: Path, config: LogConfig = CONFIG) -> list[Finding]:
    before = contents(directory)
    findings = inspect_partition(str(directory), config=config, files=FILES)
    assert contents(directory) == before
    assert all(finding.detail and "\n" not in finding.detail for finding in findings)
    return findings


def reported(findings: list[Finding]) -> list[tuple[str, str, str, int | None]]:
    return [(f.kind.value, f.severity.value, os.path.basename(f.path), f.position) for f in findings]


def file(base_offset: int, suffix: str = ".log") -> str:
    return f"{base_offset:020d}{suffix}"


def patch(directory: Path, name: str, at: int, data: bytes) -> None:
    raw = bytearray((directory / name).read_bytes())
    raw[at : at + len(data)] = data
    (directory / name).write_bytes(raw)


def flip(directory: Path, name: str, at: int, bit: int = 0) -> None:
    raw = (directory / name).read_bytes()
    patch(directory, name, at, bytes([raw[at] ^ 1 << bit]))


def cut(directory: Path, name: str, size: int) -> None:
    os.truncate(directory / name, size)


def at(batch: int) -> int:
    return batch * BATCH_BYTES


def test_sound_log_has_no_findings(log: Path) -> None:
    assert inspect(log) == []


def test_empty_log_has_no_findings(tmp_path: Path) -> None:
    make_log(tmp_path / "log", 0)
    assert inspect(tmp_path / "log") == []


# A damage to the log, and its expected findings: kind, severity, file, position. Each damage is reported once.
DAMAGES: dict[str, tuple[Callable[[Path], object], list[tuple[str, str, str, int | None]]]] = {
    "a bit of a record": (lambda d: flip(d, file(0), at(4) + 70), [("crc", "error", file(0), at(4))]),
    "a bit of a record of the first batch": (lambda d: flip(d, file(0), 70), [("crc", "error", file(0), 0)]),
    "a bit of a record of a segment's last batch": (
        lambda d: flip(d, file(0), at(9) + 70),
        [("crc", "error", file(0), at(9))],
    ),
    "a bit of the log's last batch": (lambda d: flip(d, file(20), at(4) + 70), [("crc", "error", file(20), at(4))]),
    "two batches": (
        lambda d: (flip(d, file(10), at(2) + 70), flip(d, file(10), at(6) + 70)),
        [("crc", "error", file(10), at(2)), ("crc", "error", file(10), at(6))],
    ),
    "a base offset": (lambda d: flip(d, file(0), at(4) + 5), [("offset", "error", file(0), at(4))]),
    "a base offset made smaller": (
        lambda d: patch(d, file(0), at(4), bytes(8)),
        [("offset", "error", file(0), at(4))],
    ),
    "a length that ends in the file": (
        lambda d: patch(d, file(0), at(4) + 8, struct.pack(">i", 100)),
        [("crc", "error", file(0), at(4))],
    ),
    "a length past the end of the file": (
        lambda d: flip(d, file(0), at(4) + 8, 6),
        [("header", "error", file(0), at(4))],
    ),
    "no length": (lambda d: patch(d, file(0), at(4) + 8, bytes(4)), [("header", "error", file(0), at(4))]),
    "the magic": (lambda d: patch(d, file(0), at(4) + 16, b"\0"), [("header", "error", file(0), at(4))]),
    "zeros over three batches": (
        lambda d: patch(d, file(0), at(4) + 20, bytes(2 * BATCH_BYTES)),
        [("crc", "error", file(0), at(4))],
    ),
    "zeros over whole batches": (
        lambda d: patch(d, file(0), at(4), bytes(2 * BATCH_BYTES)),
        [("header", "error", file(0), at(4))],
    ),
    "a leader epoch of a sealed segment": (
        lambda d: flip(d, file(0), at(4) + 15),
        [("seal", "error", file(0), None)],
    ),
    "a synced tail cut in a batch": (
        lambda d: cut(d, file(20), at(4) + 7),
        [("truncated", "error", file(20), at(4))],
    ),
    "a synced tail cut after a batch": (lambda d: cut(d, file(20), at(4)), [("truncated", "error", file(20), at(4))]),
    "the last segment emptied": (lambda d: cut(d, file(20), 0), [("truncated", "error", file(20), 0)]),
    "a sealed segment cut in a batch": (
        lambda d: cut(d, file(10), at(4) + 7),
        [("truncated", "error", file(10), at(4))],
    ),
    "a sealed segment cut after a batch": (
        lambda d: cut(d, file(10), at(4)),
        [("truncated", "error", file(10), at(4))],
    ),
    "a segment in the middle gone": (
        lambda d: [path.unlink() for path in d.glob(f"{10:020d}.*")],
        [("gap", "error", file(0), at(10))],
    ),
    "the first segment gone": (
        lambda d: [path.unlink() for path in d.glob(f"{0:020d}.*")],
        [("gap", "error", file(10), None)],
    ),
    "the last segment gone": (
        lambda d: [path.unlink() for path in d.glob(f"{20:020d}.*")],
        [("truncated", "error", file(10), at(10))],
    ),
    "an index entry's offset": (
        lambda d: flip(d, file(0, ".index"), 4 * 8 + 3),
        [("index", "error", file(0, ".index"), 4 * 8)],
    ),
    "an index entry's position": (
        lambda d: flip(d, file(0, ".index"), 4 * 8 + 7),
        [("index", "error", file(0, ".index"), 4 * 8)],
    ),
    "an index entry of the last segment": (
        lambda d: flip(d, file(20, ".index"), 2 * 8 + 7),
        [("index", "error", file(20, ".index"), 2 * 8)],
    ),
    "an index cut after an entry": (
        lambda d: cut(d, file(0, ".index"), 4 * 8),
        [("index", "error", file(0, ".index"), 4 * 8)],
    ),
    "an index cut in an entry": (
        lambda d: cut(d, file(0, ".index"), 4 * 8 + 3),
        [("index", "error", file(0, ".index"), None)],
    ),
    "an empty index": (lambda d: cut(d, file(0, ".index"), 0), [("index", "error", file(0, ".index"), 0)]),
    "the index of the last segment cut": (
        lambda d: cut(d, file(20, ".index"), 2 * 8),
        [("index", "error", file(20, ".index"), 2 * 8)],
    ),
    "no index": (
        lambda d: (d / file(0, ".index")).unlink(),
        [("index-missing", "warning", file(0, ".index"), None)],
    ),
    "a time of a time index": (
        lambda d: flip(d, file(0, ".timeindex"), 4 * 12 + 7),
        [("time-index", "error", file(0, ".timeindex"), 4 * 12)],
    ),
    "an offset of a time index": (
        lambda d: patch(d, file(0, ".timeindex"), 4 * 12 + 8, struct.pack(">i", 9)),
        [("time-index", "error", file(0, ".timeindex"), 4 * 12)],
    ),
    "no time index": (
        lambda d: (d / file(10, ".timeindex")).unlink(),
        [("time-index-missing", "warning", file(10, ".timeindex"), None)],
    ),
    "a seal": (lambda d: flip(d, file(0, ".seal"), 30), [("seal", "error", file(0, ".seal"), 0)]),
    "the seal of another segment": (
        lambda d: shutil.copy(d / file(10, ".seal"), d / file(0, ".seal")),
        [("seal", "error", file(0, ".seal"), 0)],
    ),
    "no seal": (
        lambda d: (d / file(0, ".seal")).unlink(),
        [("seal-missing", "warning", file(0, ".seal"), None)],
    ),
    "the checkpoint": (
        lambda d: flip(d, "seeklog-checkpoint", 40),
        [("checkpoint", "error", "seeklog-checkpoint", None)],
    ),
}


@pytest.mark.parametrize("way", DAMAGES)
def test_damage_is_reported_once_with_file_and_position(log: Path, way: str) -> None:
    damage, expected = DAMAGES[way]
    damage(log)

    assert reported(inspect(log)) == expected


@pytest.mark.parametrize(
    ("kept", "again", "kind", "batch"), [(2, 3, Kind.GAP, 2), (3, 2, Kind.OVERLAP, 3)], ids=["taken out", "twice"]
)
def test_missing_or_duplicate_batch_is_reported_at_its_position(
    log: Path, kept: int, again: int, kind: Kind, batch: int
) -> None:
    """The index is then wrong, too, because the later batches have moved."""
    raw = (log / file(20)).read_bytes()
    (log / file(20)).write_bytes(raw[: at(kept)] + raw[at(again) :])

    finding, *others = inspect(log)

    assert (finding.kind, finding.severity, finding.position) == (kind, ERROR, at(batch))
    assert {other.kind for other in others} <= {Kind.INDEX, Kind.TIME_INDEX}


def test_missing_segment_is_reported_with_missing_offsets(log: Path) -> None:
    for path in log.glob(f"{10:020d}.*"):
        path.unlink()

    findings = inspect(log)

    assert [(finding.kind, finding.detail) for finding in findings] == [
        (Kind.GAP, "offsets 10 to 19 are missing after this segment")
    ]


def test_index_of_another_segment_is_reported(log: Path) -> None:
    """Both have the same number of entries, equal except for the timestamps."""
    for suffix in (".index", ".timeindex"):
        shutil.copy(log / file(10, suffix), log / file(0, suffix))
    patch(log, file(0, ".timeindex"), 0, struct.pack(">q", START_MS - 5))

    assert {finding.kind for finding in inspect(log)} == {Kind.TIME_INDEX}


def test_whole_batches_after_damage_are_counted(log: Path) -> None:
    flip(log, file(0), at(4) + 70)

    (finding,) = inspect(log)

    assert (finding.segment, finding.offset) == (0, 4)
    assert "offsets 4 to 4 cannot be read" in finding.detail
    assert f"after it: 5 whole batches with 5 records, from byte {at(5)} on" in finding.detail


def test_every_flipped_bit_of_sealed_log_is_found_in_its_batch(log: Path) -> None:
    """Goal: each byte of the file. Only the seal covers a leader epoch, so its damage has no position."""
    whole = (log / file(0)).read_bytes()
    for position in range(len(whole)):
        patch(log, file(0), position, bytes([whole[position] ^ 1 << position % 8]))
        findings = inspect(log)
        assert findings, position
        (finding, *more) = findings
        assert (finding.severity, os.path.basename(finding.path)) == (ERROR, file(0)), position
        if position % BATCH_BYTES in range(12, 16):
            assert (finding.kind, finding.position) == (Kind.SEAL, None), position
        else:
            assert finding.position == at(position // BATCH_BYTES), position
        assert not more, position
        patch(log, file(0), position, whole[position : position + 1])


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".seal"])
def test_every_flipped_bit_of_side_files_is_found_in_its_file(log: Path, suffix: str) -> None:
    name = file(10, suffix)
    whole = (log / name).read_bytes()
    for position in range(len(whole)):
        patch(log, name, position, bytes([whole[position] ^ 1 << position % 8]))
        findings = inspect(log)
        assert {(f.severity, os.path.basename(f.path)) for f in findings} == {(ERROR, name)}, position
        patch(log, name, position, whole[position : position + 1])


def test_truncated_sealed_segment_is_reported_at_its_end(log: Path) -> None:
    for size in reversed(range(SEGMENT_BATCHES * BATCH_BYTES)):
        cut(log, file(0), size)

        (finding,) = inspect(log)

        assert (finding.kind, finding.severity) == (Kind.TRUNCATED, ERROR)
        assert finding.position == size - size % BATCH_BYTES


def test_number_of_reported_damages_is_limited(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    make_log(directory, 500, index_interval_bytes=0)
    for batch in range(0, 500, 2):
        flip(directory, file(0), at(batch) + 70)

    findings = inspect(directory)

    assert len(findings) == MAX_DAMAGES + 1
    assert f"{MAX_DAMAGES} damaged ranges" in findings[-1].detail


class MeasuringFiles(QuickFiles):
    """The real disk, which counts the bytes that are read."""

    def __init__(self) -> None:
        self.bytes_read = 0

    def read(self, handle: int, size: int, position: int) -> bytes:
        data = super().read(handle, size, position)
        self.bytes_read += len(data)
        return data


def test_false_batch_headers_do_not_cost_quadratic_time(tmp_path: Path) -> None:
    """Goal: a malicious value in a record cannot make an inspection run for days."""
    directory = tmp_path / "log"
    make_log(directory, 1, index_interval_bytes=0)
    path = directory / file(0)
    size = 300_000
    header = path.read_bytes()[:61]
    header = header[:8] + (size // 2).to_bytes(4, "big") + header[12:]
    path.write_bytes(path.read_bytes() + header * (size // len(header)))
    files = MeasuringFiles()

    findings = inspect_partition(str(directory), config=CONFIG, files=files)

    assert "too many bytes look like the start of a batch" in findings[1].detail
    assert [finding.position for finding in findings[:2]] == [BATCH_BYTES, BATCH_BYTES]
    # Twice, because the index entries are then compared with every batch.
    assert files.bytes_read < 2 * (MAX_EFFORT + 4) * size


def test_batch_larger_than_read_chunk_is_found_after_damage(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    with open_log(directory, segment_bytes=1 << 22) as log:
        for value in (b"a" * 700_000, b"b" * 700_000, b"c" * 700_000):
            log.append(value)
    raw = (directory / file(0)).read_bytes()
    second = raw.index(b"b" * 1000) - 61 - 8
    patch(directory, file(0), second - 40, bytes(200))  # over the end of the first batch and the second one's header

    (finding,) = inspect(directory)

    assert (finding.kind, finding.position) == (Kind.CRC, 0)
    assert "after it: 1 whole batch with 1 record, from byte" in finding.detail


# ---------------------------------------------------------------- torn, not synced, and in use


def unsynced(tmp_path: Path) -> Path:
    """A log after a crash. Nothing in its second half was promised durable."""
    with open_log(tmp_path / "running", index_interval_bytes=0, flush="os") as log:
        log.append_many([Record(b"0123456789", timestamp_ms=START_MS)])
        log.flush()
        log._partition.promises.write(log._partition.checkpoint())
        for number in range(1, 10):
            log.append(b"0123456789", timestamp_ms=START_MS + number)
        return crashed_copy(tmp_path / "running", tmp_path / "crashed")


def test_crashed_log_has_no_findings(tmp_path: Path) -> None:
    assert inspect(unsynced(tmp_path)) == []


def test_torn_tail_above_recovery_point_is_note(tmp_path: Path) -> None:
    log = unsynced(tmp_path)
    for cut_bytes in range(1, BATCH_BYTES):
        cut(log, file(0), at(10) - cut_bytes)

        assert reported(inspect(log)) == [("truncated", "note", file(0), at(9))]


def test_zeros_after_last_batch_are_note(tmp_path: Path) -> None:
    log = unsynced(tmp_path)
    with open(log / file(0), "ab") as tail:
        tail.write(bytes(5000))

    assert reported(inspect(log)) == [("header", "note", file(0), at(10))]


def test_damage_above_recovery_point_is_warning(tmp_path: Path) -> None:
    log = unsynced(tmp_path)
    flip(log, file(0), at(5) + 70)

    (finding,) = inspect(log)

    assert (finding.kind, finding.severity, finding.position) == (Kind.CRC, WARNING, at(5))
    assert "never promised" in finding.detail


def test_torn_tail_is_not_reported_while_log_is_written(tmp_path: Path) -> None:
    with open_log(tmp_path / "log", index_interval_bytes=0) as log:
        for number in range(10):
            log.append(b"0123456789", timestamp_ms=START_MS + number)
        half = encode_batch([Record(b"half")], base_offset=10)[:40]
        handle = log._partition.unsealed.active.handle()
        os.pwrite(handle.number, half, at(10))

        assert inspect_partition(str(tmp_path / "log"), config=CONFIG, files=FILES) == []
        os.truncate(tmp_path / "log" / file(0), at(10))


def test_log_that_changes_during_inspection_has_no_findings(tmp_path: Path) -> None:
    """Goal: no change by the writer between two steps of an inspection looks like damage."""
    directory = tmp_path / "log"
    stop = threading.Event()
    rounds = 0
    with open_log(directory, index_interval_bytes=0, segment_bytes=20 * BATCH_BYTES) as log:

        def write() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                log.append(b"0123456789", timestamp_ms=START_MS + number)
                if number % 50 == 0:
                    log.flush()
                if number % 200 == 0:
                    log.delete_before(log.log_end_offset - 150)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            while rounds < 60 or log.log_start_offset < 1000:  # the writer must have had its turns
                assert inspect_partition(str(directory), config=CONFIG, files=FILES) == []
                rounds += 1
        finally:
            stop.set()
            writer.join()


def test_segments_deleted_after_plan_are_not_reported(log: Path) -> None:
    plan = plan_inspection(str(log), config=CONFIG, files=FILES)
    with open_log(log, index_interval_bytes=0) as writer:
        writer.delete_before(12)

        inspections = [inspect_segment(task, files=FILES) for task in plan.tasks]
        assert [inspection.is_gone for inspection in inspections] == [True, False, False]
        assert conclude(plan, inspections, files=FILES) == []


def test_last_segment_rolled_and_deleted_after_plan_is_not_reported(tmp_path: Path) -> None:
    with open_log(tmp_path / "log", index_interval_bytes=0, segment_bytes=10 * BATCH_BYTES) as writer:
        fill(writer, 5)
        plan = plan_inspection(str(tmp_path / "log"), config=CONFIG, files=FILES)
        fill(writer, 20)
        writer.delete_before(20)

        inspections = [inspect_segment(task, files=FILES) for task in plan.tasks]
        assert [inspection.is_gone for inspection in inspections] == [True]
        assert [(gone.size, gone.batch_count, gone.record_count) for gone in inspections] == [(0, 0, 0)]
        assert conclude(plan, inspections, files=FILES) == []


class LateFiles(QuickFiles):
    """A disk whose first listing of a directory misses a new file."""

    def __init__(self, missed: str) -> None:
        self.missed = {missed}

    def list(self, directory: str) -> list[str]:
        missed, self.missed = self.missed, set()
        return [name for name in super().list(directory) if name not in missed]


def test_log_without_lock_file_is_inspected_as_closed(log: Path) -> None:
    """The files were copied without it. The last segment is still compared with the state saved on close."""
    (log / LOCK).unlink()
    assert inspect(log) == []
    patch(log, file(20), at(2) + 12, struct.pack(">i", 7))

    assert reported(inspect(log)) == [("seal", "error", file(20), None)]


def test_segment_missed_by_first_listing_is_not_gap(log: Path) -> None:
    """While files are created, a listing may contain a later one but not an earlier one."""
    plan = plan_inspection(str(log), config=CONFIG, files=LateFiles(file(10)))

    assert [task.base_offset for task in plan.tasks] == [0, 10, 20]


def test_log_truncated_after_plan_must_be_inspected_again(log: Path) -> None:
    plan = plan_inspection(str(log), config=CONFIG, files=FILES)
    with open_log(log, index_interval_bytes=0) as writer:
        writer.truncate_to(15)

    (finding,) = conclude(plan, [inspect_segment(task, files=FILES) for task in plan.tasks], files=FILES)

    assert (finding.kind, finding.severity) == (Kind.CHANGED, NOTE)


def test_log_truncated_and_written_after_plan_is_not_damaged(log: Path) -> None:
    """Goal: the state saved on close does not apply to batches that another writer appended since."""
    plan = plan_inspection(str(log), config=CONFIG, files=FILES)
    with open_log(log, index_interval_bytes=0) as writer:
        writer.truncate_to(23)
        fill(writer, 3, start=90)

    assert inspect_segment(plan.tasks[-1], files=FILES).findings == []


def test_partition_deleted_after_plan_has_no_findings(log: Path) -> None:
    plan = plan_inspection(str(log), config=CONFIG, files=FILES)
    shutil.rmtree(log)

    assert conclude(plan, [inspect_segment(task, files=FILES) for task in plan.tasks], files=FILES) == []


def test_unreadable_segment_is_reported_not_raised(log: Path) -> None:
    plan = plan_inspection(str(log), config=CONFIG, files=FILES)
    (log / file(10)).unlink()
    (log / file(10)).mkdir()

    inspections = [inspect_segment(task, files=FILES) for task in plan.tasks]

    assert Kind.UNREADABLE in {finding.kind for finding in inspections[1].findings}


# ---------------------------------------------------------------- a broker's directory


def test_directory_without_checkpoint_is_inspected_like_brokers(log: Path) -> None:
    """No checkpoint says what was promised durable, and gaps are valid."""
    for name in ("seeklog-checkpoint", "seeklog-watermark", file(0, ".seal"), file(10, ".seal")):
        (log / name).unlink()
    assert inspect(log) == []
    raw = (log / file(10)).read_bytes()
    (log / file(10)).write_bytes(raw[: at(3)] + raw[at(4) :])

    findings = inspect(log)

    assert reported(findings)[0] == ("gap", "note", file(10), None)
    assert {finding.kind for finding in findings[1:]} <= {Kind.INDEX, Kind.TIME_INDEX}


def test_index_with_another_interval_has_no_findings(log: Path) -> None:
    assert inspect(log, config_of(index_interval_bytes=4096)) == []


def test_zeros_preallocated_by_broker_are_not_reported(log: Path) -> None:
    for name in ("seeklog-checkpoint", "seeklog-watermark", file(0, ".seal"), file(10, ".seal")):
        (log / name).unlink()
    for suffix in (".index", ".timeindex"):
        with open(log / file(20, suffix), "ab") as index:
            index.write(bytes(1200))

    assert inspect(log) == []


def test_inspection_takes_no_lock(log: Path) -> None:
    with open_log(log, index_interval_bytes=0):
        assert inspect_partition(str(log), config=CONFIG, files=FILES) == []
        with pytest.raises(LogLocked):
            open_log(log)


def test_older_batch_format_in_brokers_directory_is_warning(log: Path) -> None:
    for name in ("seeklog-checkpoint", "seeklog-watermark", file(0, ".seal"), file(10, ".seal")):
        (log / name).unlink()
    patch(log, file(10), at(3) + 16, b"\1")

    first = inspect(log)[0]

    assert reported([first]) == [("format", "warning", file(10), at(3))]
    assert "magic 1" in first.detail


def test_damage_at_end_of_brokers_log_is_not_promised_data(log: Path) -> None:
    """No checkpoint says what was promised durable, so only the very end counts as not promised."""
    for name in ("seeklog-checkpoint", "seeklog-watermark", file(0, ".seal"), file(10, ".seal")):
        (log / name).unlink()
    cut(log, file(20), at(5) - 1)
    flip(log, file(0), at(2) + 70)

    found = {
        (finding.path[-24:], finding.severity) for finding in inspect(log) if finding.kind in (Kind.CRC, Kind.TRUNCATED)
    }

    assert found == {(file(0), ERROR), (file(20), NOTE)}


def test_segment_overlapping_next_one_is_reported(log: Path) -> None:
    (log / file(0, ".seal")).unlink()
    raw = (log / file(10)).read_bytes()[: at(1)]
    with open(log / file(0), "ab") as first:
        first.write(raw)

    findings = [finding for finding in inspect(log) if finding.kind is Kind.OVERLAP]

    assert reported(findings) == [("overlap", "error", file(0), at(11))]
    assert findings[0].detail == "the segment ends with offset 10, but the next one starts at 10"


def test_seal_that_contradicts_log_is_reported(log: Path) -> None:
    seal = read_seal(FILES, str(log), 0)
    assert seal is not None
    write_seal(FILES, str(log), replace(seal, record_count=11, batch_count=9))

    (finding,) = inspect(log)

    assert reported([finding]) == [("seal", "error", file(0, ".seal"), 0)]
    assert finding.detail == "record count 11, but the log has 10; batch count 9, but the log has 10"


@pytest.mark.parametrize("batches", [range(2, 3), range(5)])
@pytest.mark.parametrize(("base_offset", "noted_by"), [(10, "its seal says"), (20, "it was closed with")])
def test_changed_leader_epochs_are_reported_with_their_evidence(
    log: Path, base_offset: int, noted_by: str, batches: range
) -> None:
    """Goal: no batch CRC covers them. The seal does, or for the last segment the state saved on close."""
    for batch in batches:
        patch(log, file(base_offset), at(batch) + 12, struct.pack(">i", 7))

    (finding,) = inspect(log)

    assert reported([finding]) == [("seal", "error", file(base_offset), None)]
    assert noted_by in finding.detail
    assert "such as one of a leader epoch" in finding.detail


def test_wrong_entries_beyond_limit_are_counted(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_check, "MAX_ENTRIES", 3)
    table = bytearray((log / file(0, ".index")).read_bytes())
    for entry in range(len(table) // 8):
        struct.pack_into(">i", table, 8 * entry + 4, 1)
    (log / file(0, ".index")).write_bytes(table)

    findings = inspect(log)

    assert len(findings) == 3 + 1
    assert findings[-1].detail == f"{len(table) // 8 - 3} more entries are wrong"


def test_segment_that_disappeared_after_plan_is_reported(log: Path) -> None:
    plan = plan_inspection(str(log), config=CONFIG, files=FILES)
    (log / file(10)).unlink()

    findings = conclude(plan, [inspect_segment(task, files=FILES) for task in plan.tasks], files=FILES)

    assert ("unreadable", "error", file(10), None) in reported(findings)
    assert "the segment disappeared after the directory was listed" in {finding.detail for finding in findings}


def test_index_not_yet_created_by_writer_is_not_missing(tmp_path: Path) -> None:
    """The log file of a new segment is created first."""
    with open_log(tmp_path, index_interval_bytes=0) as log:
        fill(log, 3)
        for suffix in (".index", ".timeindex"):
            (tmp_path / file(0, suffix)).unlink()
        assert reported(inspect(tmp_path)) == []
    for suffix in (".index", ".timeindex"):
        (tmp_path / file(0, suffix)).unlink()
    assert [kind for kind, *_ in reported(inspect(tmp_path))] == ["index-missing", "time-index-missing"]


def test_index_entry_pointing_into_damage_is_not_reported(log: Path) -> None:
    """Its offset is still known, but the batch at its position is damaged and cannot be checked."""
    patch(log, file(0), 3 * BATCH_BYTES + 20, b"damaged")
    damage = reported(inspect(log))
    whole = (log / file(0, ".index")).read_bytes()
    number = next(at for at in range(0, len(whole), 8) if struct.unpack_from(">ii", whole, at)[0] == 6)
    patch(log, file(0, ".index"), number, struct.pack(">ii", 6, 3 * BATCH_BYTES))

    found = inspect(log)

    assert [finding for finding in reported(found) if finding not in damage] == [
        ("index", "error", file(0, ".index"), len(whole))
    ]
    assert not any("no batch starts" in finding.detail for finding in found)
