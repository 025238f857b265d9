"""Compaction of one log: what stays, what is decided, and that neither crash nor reader sees it half done."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from crash.sim import FaultyFiles
from log.workbench import (
    PATIENCE_S,
    START_MS,
    FakeClock,
    FullFiles,
    Meanwhile,
    QuickFiles,
    contents,
    crashed_copy,
    open_log,
    open_reader,
    segment_bases,
)
from seeklog import Log, LogConfig, Record, names
from seeklog.clients.log_writer import LogWriter
from seeklog.errors import (
    CorruptionError,
    DiskFull,
    InvalidConfig,
    InvalidRecord,
    LogClosed,
    LogFailed,
    NotAccessible,
    UsageError,
)
from seeklog.log.clean import compaction
from seeklog.log.clean.compaction import SegmentFacts, assess, can_join
from seeklog.log.side.seal import read_seal
from seeklog.record.batch import encode_batch
from seeklog.record.kernel import SegmentState

DAY_MS = 24 * 3600 * 1000
WORDS: dict[str, Any] = {"cleanup_policy": "compact", "segment_bytes": 700, "index_interval_bytes": 100}
MORE = ("none", "gzip", "snappy", "lz4", "zstd")


def open_compacted(path: Path, **words: Any) -> Log:
    return open_log(path, **(WORDS | words))


def put(log: Log, key: str, value: bytes | None) -> int:
    return log.append(value, key=key.encode())


def churn(log: Log, count: int, *, keys: int = 7, seed: int = 1, tombstones: float = 0.0) -> None:
    """Append records of a few keys, in batches of several sizes."""
    chance = random.Random(seed)
    while count > 0:
        some = [
            Record(
                None if chance.random() < tombstones else b"%d" % chance.randrange(10**6),
                key=b"k%d" % chance.randrange(keys),
            )
            for _ in range(chance.randrange(1, 5))
        ]
        log.append_many(some)
        count -= len(some)


def everything(log: Log) -> list[Record]:
    return list(log.scan())


def latest(records: Sequence[Record], *, below: int) -> list[Record]:
    """What must stay: the last record of each key below an offset, and all from there on."""
    last = {record.key: record.offset for record in records if record.offset < below}
    return [record for record in records if record.offset >= below or last[record.key] == record.offset]


def active_base(path: Path) -> int:
    return segment_bases(path)[-1]


# ---------------------------------------------------------------- what stays


@pytest.mark.parametrize("codec", MORE)
def test_the_latest_record_of_each_key_stays_where_it_was(tmp_path: Path, codec: str) -> None:
    with open_compacted(tmp_path, compression_type=codec) as log:
        churn(log, 200)
        before = everything(log)
        done = log.compact()
        expected = latest(before, below=active_base(tmp_path))

        assert everything(log) == expected
        assert list(log.scan_reverse()) == expected[::-1]
        assert log.scan_arrow(columns=["offset"]).read_all()["offset"].to_pylist() == [each.offset for each in expected]
        assert (done.records_before - done.records_after) == len(before) - len(expected)
        assert done.segments_after == 1
        assert done.rounds == 1
        assert done.bytes_after < done.bytes_before
        assert done.first_dirty_offset == active_base(tmp_path)
        for record in expected:
            assert list(log.read(record.offset, max_records=1)) == [record]
            assert log.offset_at_time(START_MS) == expected[0].offset
        assert (log.log_start_offset, log.log_end_offset) == (0, len(before))
    with open_compacted(tmp_path) as log:
        assert log.recovery.clean
        assert everything(log) == expected


@pytest.mark.parametrize("seed", range(12))
def test_any_workload_ends_as_a_dict_would(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    clock = FakeClock()
    words = {
        "compression_type": chance.choice(MORE),
        "segment_bytes": chance.choice([400, 900, 5000]),
        "message_timestamp_type": chance.choice(["CreateTime", "LogAppendTime"]),
    }
    buffer_bytes = chance.choice([20 * 20, 1 << 20])
    values: dict[bytes | None, bytes | None] = {}
    log = open_compacted(tmp_path, clock=clock, **words)
    for step in range(12):
        churn(log, chance.randrange(60), keys=chance.choice([3, 14]), seed=chance.randrange(10**6), tombstones=0.2)
        before = everything(log)
        log.compact(buffer_bytes=buffer_bytes)
        after = everything(log)
        assert set(after) <= set(before)
        values = {record.key: record.value for record in before}
        kept = {record.key: record.value for record in after}
        assert {key: value for key, value in values.items() if value is not None} == {
            key: value for key, value in kept.items() if value is not None
        }
        clock.advance(chance.choice([0, DAY_MS // 2, 2 * DAY_MS]))
        if step % 4 == 3:
            log.close()
            log = open_compacted(tmp_path, clock=clock, **words)
            assert everything(log) == after
    log.close()


def test_more_keys_than_the_buffer_holds_take_more_rounds(tmp_path: Path) -> None:
    with open_compacted(tmp_path) as log:
        for _ in range(2):
            for number in range(100):
                put(log, f"key {number}", b"value")
        before = everything(log)
        done = log.compact(buffer_bytes=25 * 20)

        assert done.rounds > 5
        assert everything(log) == latest(before, below=active_base(tmp_path))
        assert done.first_dirty_offset == active_base(tmp_path)


def test_one_segment_of_more_keys_than_the_buffer_holds_is_done_in_parts(tmp_path: Path) -> None:
    with open_compacted(tmp_path, segment_bytes=50_000) as log:
        for _ in range(3):
            for number in range(150):
                put(log, f"key {number}", b"value")
        log.append(bytes(49_000), key=b"the rest")
        before = everything(log)
        assert len(segment_bases(tmp_path)) == 2
        done = log.compact(buffer_bytes=100 * 20)

        assert done.rounds > 3
        assert everything(log) == latest(before, below=active_base(tmp_path))


def test_a_batch_of_more_keys_than_the_buffer_holds_is_refused(tmp_path: Path) -> None:
    with open_compacted(tmp_path, segment_bytes=5000) as log:
        log.append_many([Record(b"v", key=b"%d" % number) for number in range(50)])
        log.append(bytes(4500), key=b"roll")
        log.flush()
        before = contents(tmp_path)
        with pytest.raises(UsageError, match="offset 0 has more keys than fit in a buffer of 400 bytes; give a larger"):
            log.compact(buffer_bytes=400)
        assert contents(tmp_path) == before
        with pytest.raises(UsageError, match="at least"):
            log.compact(buffer_bytes=39)


def test_a_further_compaction_changes_no_file(tmp_path: Path) -> None:
    with open_compacted(tmp_path) as log:
        churn(log, 300)
        log.compact()
        log.compact()  # joins what was small enough only when it was copied
        before = contents(tmp_path)
        done = log.compact()

        assert contents(tmp_path) == before
        assert done.removed_records == 0


def test_tombstones_stay_until_their_horizon_and_then_go(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_compacted(tmp_path, clock=clock, delete_retention_ms=DAY_MS) as log:
        put(log, "a", b"old")
        put(log, "a", None)
        put(log, "b", b"kept")
        log.append(bytes(600), key=b"roll")
        log.append(bytes(600), key=b"roll again")
        log.compact()
        assert [(record.key, record.value) for record in everything(log)][:2] == [(b"a", None), (b"b", b"kept")]
        clock.advance(DAY_MS - 1)
        log.compact()
        assert everything(log)[0].value is None
        clock.advance(1)
        log.compact()
        assert everything(log)[0].key == b"b"
        # Its time is the one that it was appended with: the horizon in the header is not a record's.
        assert everything(log)[0].timestamp_ms == START_MS


def test_a_clock_that_jumps_back_keeps_tombstones_longer(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_compacted(tmp_path, clock=clock) as log:
        put(log, "a", None)
        log.append(bytes(600), key=b"roll")
        clock.jump_to(START_MS + 100 * DAY_MS)
        log.compact()
        clock.jump_to(START_MS)
        log.compact()
        clock.advance(50 * DAY_MS)
        log.compact()
        assert everything(log)[0].value is None


def test_records_without_key_from_before_go_and_are_counted(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=300) as log:
        for _ in range(10):
            log.append(b"no key")
    with open_compacted(tmp_path) as log:
        log.append(bytes(600), key=b"roll")
        done = log.compact()
        assert done.keyless_records > 0
        assert [record for record in everything(log) if record.offset < active_base(tmp_path)] == []
        assert log.log_start_offset == 0


def test_the_last_batch_of_a_producer_stays_if_only_its_header(tmp_path: Path) -> None:
    with open_compacted(tmp_path) as log:
        for sequence in range(2):
            one = [Record(b"v", key=b"a", timestamp_ms=START_MS)]
            log.append_batches(encode_batch(one, producer_id=9, producer_epoch=0, base_sequence=sequence))
        for _ in range(20):
            put(log, "a", b"value")
        log.compact()
        batches = list(log.read_batches(0))
        assert (batches[0].base_offset, batches[0].record_count) == (1, 0)
        assert batches[0].header.base_sequence == 1


# ---------------------------------------------------------------- what is not touched


def test_neither_the_active_segment_nor_what_is_above_the_watermark_is_touched(tmp_path: Path) -> None:
    with open_compacted(tmp_path, high_watermark="manual") as log:
        churn(log, 200)
        bases = segment_bases(tmp_path)
        log.advance_high_watermark(bases[3] + 1)
        before = list(log.read_uncommitted(0, max_records=1000))
        done = log.compact()
        assert done.first_dirty_offset == bases[3]
        assert list(log.read_uncommitted(0, max_records=1000)) == latest(before, below=bases[3])


def test_a_log_that_is_not_compacted_refuses(tmp_path: Path) -> None:
    with open_log(tmp_path) as log, pytest.raises(UsageError, match='its cleanup_policy is "delete"'):
        log.compact()


@pytest.mark.id("compaction-needs-keys")
@pytest.mark.parametrize("codec", MORE)
def test_a_record_without_key_is_refused_by_every_way_in(tmp_path: Path, codec: str) -> None:
    with open_compacted(tmp_path, compression_type=codec) as log:
        put(log, "a", b"v")
        log.flush()
        before = contents(tmp_path)
        keyed, keyless = Record(b"v", key=b""), Record(b"v")
        with pytest.raises(InvalidRecord, match="is compacted: a record needs a key; nothing was written"):
            log.append(b"v")
        with pytest.raises(InvalidRecord, match="needs a key"):
            log.append_many([keyed, keyless])
        with pytest.raises(InvalidRecord, match="record 1 of the batch at byte 0 has no key; nothing was written"):
            log.append_batches(encode_batch([keyed, keyless], now_ms=START_MS, codec=MORE.index(codec)))
        with LogWriter(log) as writer, pytest.raises(InvalidRecord, match="needs a key"):
            writer.append(b"v")
        assert contents(tmp_path) == before
        assert log.append_many([keyed]) == range(1, 2)


# ---------------------------------------------------------------- decisions


def facts(base: int, end: int, **words: Any) -> SegmentFacts:
    return replace(SegmentFacts(base, end, 100, end - base, base, START_MS, START_MS), **words)


@pytest.mark.parametrize(
    ("sealed", "words", "expected"),
    [
        ([], {}, (500, 500, 0, 0, 0)),
        ([facts(0, 10), facts(10, 20)], {}, (0, 20, 0, 200, 0)),
        ([facts(0, 10, clean_offset=10), facts(10, 20)], {}, (10, 20, 100, 100, 0)),
        ([facts(0, 10, clean_offset=10), facts(10, 20, clean_offset=15)], {}, (15, 20, 100, 100, 0)),
        # A seal that was lost makes dirty what lies behind it, too: tombstones must not go before what they delete.
        ([facts(0, 10), facts(10, 20, clean_offset=20)], {}, (0, 20, 0, 200, 0)),
        ([facts(0, 10), facts(10, 600)], {}, (0, 10, 0, 100, 0)),
        ([facts(0, 10, max_timestamp_ms=0), facts(10, 20)], {"min_compaction_lag_ms": 5}, (0, 10, 0, 100, 0)),
        ([facts(0, 10)], {"max_compaction_lag_ms": 3}, (0, 10, 0, 100, 1)),
        ([facts(0, 10)], {"max_compaction_lag_ms": 4}, (0, 10, 0, 100, 0)),
        ([facts(0, 10, first_timestamp_ms=2**62)], {"max_compaction_lag_ms": 3}, (0, 10, 0, 100, 0)),
        ([facts(0, 10, first_timestamp_ms=-1)], {"max_compaction_lag_ms": 3}, (0, 10, 0, 100, 0)),
    ],
)
def test_what_may_be_compacted(sealed: list[SegmentFacts], words: dict[str, Any], expected: tuple[int, ...]) -> None:
    found = assess(sealed, stop_offset=500, now_ms=START_MS + 4, config=LogConfig(**words))
    assert (
        found.first_dirty_offset,
        found.first_uncleanable_offset,
        found.clean_bytes,
        found.dirty_bytes,
        found.overdue_ms,
    ) == expected


def test_it_is_due_above_the_dirty_ratio_or_when_a_record_is_overdue() -> None:
    half = [facts(0, 10, clean_offset=10), facts(10, 20)]
    for words, is_due in (
        ({}, False),
        ({"min_cleanable_dirty_ratio": 0.49}, True),
        ({"max_compaction_lag_ms": 1}, True),
    ):
        config = LogConfig(**words)
        assert assess(half, stop_offset=20, now_ms=START_MS + 4, config=config).is_due(config) is is_due
    config = LogConfig(min_cleanable_dirty_ratio=0)
    assert not assess(half[:1], stop_offset=20, now_ms=START_MS, config=config).is_due(config)


@pytest.mark.parametrize(
    ("words", "can"),
    [
        ({}, True),
        ({"size": 1000 - 148}, True),
        ({"size": 1000 - 147}, False),
        ({"offset_index_size": 92}, True),
        ({"offset_index_size": 93}, False),
        ({"time_index_size": 88}, True),
        ({"time_index_size": 89}, False),
        ({"next_offset": 5 + 2**31}, True),
        ({"next_offset": 6 + 2**31}, False),
    ],
)
def test_segments_become_one_within_the_limits_of_one(words: dict[str, Any], can: bool) -> None:
    config = LogConfig(segment_bytes=1000, segment_index_bytes=100)
    state = SegmentState(
        5, interval_bytes=0, interval_records=1, segment_bytes=1000, segment_ms=1, segment_index_bytes=100
    )
    # Two batches of 74 bytes, the second one indexed.
    for offset in (5, 6):
        state.append(encode_batch([Record(b"123456", key=b"", timestamp_ms=START_MS + offset)], base_offset=offset))
    assert (state.size, len(state.offset_table), len(state.time_table)) == (148, 8, 12)
    assert can_join(state, facts(6, 7, **words), config) is can


def test_compact_if_due_waits_for_the_dirty_ratio(tmp_path: Path) -> None:
    with open_compacted(tmp_path) as log:
        churn(log, 100)
        assert log.compact_if_due().rounds == 1
        assert log.compact_if_due().rounds == 0


def test_a_record_that_is_overdue_leaves_the_active_segment_and_is_compacted(tmp_path: Path) -> None:
    clock = FakeClock()
    words = {"max_compaction_lag_ms": 1000, "min_cleanable_dirty_ratio": 1.0, "segment_bytes": 5000}
    with open_compacted(tmp_path, clock=clock, **words) as log:
        put(log, "a", b"1")
        put(log, "a", b"2")
        clock.advance(1001)
        assert log.roll_if_due()
        assert log.compact_if_due().removed_records == 1


@pytest.mark.parametrize(
    "words",
    [
        {"min_cleanable_dirty_ratio": 1.5},
        {"min_cleanable_dirty_ratio": "half"},
        {"min_cleanable_dirty_ratio": True},
        {"min_compaction_lag_ms": 5, "max_compaction_lag_ms": 4},
        {"max_compaction_lag_ms": 0},
        {"delete_retention_ms": -1},
    ],
)
def test_words_that_cannot_be(words: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        LogConfig.from_mapping(words)


def test_kafka_spells_its_words_as_text() -> None:
    config = LogConfig.from_mapping({"min.cleanable.dirty.ratio": "0.25", "delete.retention.ms": "1"})
    assert (config.min_cleanable_dirty_ratio, config.delete_retention_ms) == (0.25, 1)


# ---------------------------------------------------------------- files


def test_the_seal_says_what_was_seen_and_no_file_is_left(tmp_path: Path) -> None:
    with open_compacted(tmp_path) as log:
        churn(log, 200)
        log.compact()
        names = sorted(path.name for path in tmp_path.iterdir())
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        seal = read_seal(QuickFiles(), str(tmp_path), 0)
        assert seal is not None
        assert seal.clean_offset == seal.next_offset == active_base(tmp_path)
        assert len(segment_bases(tmp_path)) == 2


def test_damage_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    with open_compacted(tmp_path) as log:
        churn(log, 200)
        log.flush()
        victim = tmp_path / f"{segment_bases(tmp_path)[2]:020d}.log"
        data = bytearray(victim.read_bytes())
        data[100] ^= 1
        victim.write_bytes(data)
        before = contents(tmp_path)
        with pytest.raises(CorruptionError, match=victim.name):
            log.compact()
        assert contents(tmp_path) == before


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    files = FullFiles(".cleaned")
    with open_compacted(tmp_path, files=files) as log:
        churn(log, 100)
        log.flush()
        before = contents(tmp_path)
        files.is_full = True
        with pytest.raises(DiskFull, match="nothing of it was changed"):
            log.compact()
        assert contents(tmp_path) == before
        put(log, "goes on", b"")
        files.is_full = False
        assert log.compact().removed_records > 0


def test_a_full_disk_that_does_not_take_the_checkpoint_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    """Goal: before there are gaps the checkpoint says that there may be; without room for it there are none."""
    files = FullFiles(names.CHECKPOINT)
    with open_compacted(tmp_path, files=files) as log:
        churn(log, 100)
        log.flush()
        before, records = segment_bases(tmp_path), everything(log)
        files.is_full = True
        with pytest.raises(DiskFull, match="nothing was changed"):
            log.compact()
        assert (segment_bases(tmp_path), log._source.contiguous_from) == (before, 0)
        assert everything(log) == records
        files.is_full = False
        assert log.compact().removed_records > 0
        assert log._source.contiguous_from == before[-1]


def test_retention_that_is_quicker_than_compaction_is_let_by(tmp_path: Path) -> None:
    """Goal: segments that go while they are read or copied are no error, and nothing of them comes back."""
    for number, suffix in enumerate((".log", ".log.cleaned", ".seal.cleaned")):
        files = Meanwhile()
        with open_compacted(tmp_path / str(number), files=files, max_open_segments=2) as log:
            churn(log, 200)
            log.flush()
            bases = segment_bases(tmp_path / str(number))
            records = everything(log)
            files.before("open", suffix, partial(log.delete_before, bases[2]))
            result = log.compact()

            assert files.is_over
            assert log.log_start_offset == bases[2]
            left = [record for record in records if record.offset >= bases[2]]
            assert everything(log) == latest(left, below=bases[-1])
            assert result.first_dirty_offset == bases[-1]
            assert not [*(tmp_path / str(number)).glob("*.cleaned")]


@pytest.mark.id("compaction-overtaken-by-truncation")
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("suffix", [".log.cleaned", ".index.cleaned", ".seal.cleaned"])
def test_a_truncation_that_is_quicker_than_compaction_is_let_by(tmp_path: Path, suffix: str, place: int) -> None:
    """Goal: what is cut off while it is copied does not come back, and what is kept is kept."""
    files = Meanwhile()
    with open_compacted(tmp_path / "log", files=files) as log:
        churn(log, 200)
        log.flush()
        end = segment_bases(log.path)[place] + 3
        records = everything(log)
        files.before("open", suffix, partial(log.truncate_to, end))
        log.compact()

        assert files.is_over
        assert log.log_end_offset in (end, end - 1, end - 2, end - 3)  # where the batch begins that held it
        kept = [record for record in records if record.offset < log.log_end_offset]
        below = log._source.view.last.base_offset
        assert latest(everything(log), below=below) == latest(kept, below=below)
        assert not [*log.path.glob("*.cleaned"), *log.path.glob("*.swap")]
        put(log, "goes on", b"")
        crashed = crashed_copy(log.path, tmp_path / "crashed")
        after = everything(log)
    for path in (crashed, tmp_path / "log"):
        with open_compacted(path) as log:
            assert everything(log) == after


@pytest.mark.id("compaction-after-truncation")
@pytest.mark.parametrize(
    ("call", "suffix"),
    [("read", ".log"), ("open", ".log.cleaned"), ("remove", ".log.cleaned"), ("open", ".seal.cleaned")],
)
def test_what_is_appended_after_a_truncation_is_not_compacted_by_the_offsets_that_were_cut(
    tmp_path: Path, call: str, suffix: str
) -> None:
    """Goal: the newest record of a key stays, though the map knows a higher offset of it, of a record that is cut."""
    files = Meanwhile()
    with open_compacted(tmp_path, files=files) as log:
        while len(segment_bases(tmp_path)) < 2:
            put(log, f"own {log.log_end_offset}", b"")
        second = active_base(tmp_path)
        while len(segment_bases(tmp_path)) < 3:
            put(log, "changed", bytes(20))
        log.flush()
        third = active_base(tmp_path)
        expected: list[Record] = []

        def rewrite() -> None:
            assert log.truncate_to(second) == second
            put(log, "changed", b"newest")
            while active_base(tmp_path) == second:
                put(log, f"new {log.log_end_offset}", bytes(60))
            while log.log_end_offset <= third:
                put(log, f"new {log.log_end_offset}", b"")
            log.flush()
            expected.extend(everything(log))

        files.before(call, suffix, rewrite)
        done = log.compact()

        assert files.is_over
        assert everything(log) == expected
        assert done.first_dirty_offset == active_base(tmp_path)
        assert not [*tmp_path.glob("*.cleaned"), *tmp_path.glob("*.swap")]


@pytest.mark.id("compaction-waits-for-truncation")
@pytest.mark.parametrize("method", ["sync", "sync_directory"])
def test_compaction_that_meets_what_a_truncation_is_cutting_waits_for_it(tmp_path: Path, method: str) -> None:
    """Goal: a file that is cut or gone, though the log does not know it yet, is no damage."""
    cutting, is_over = threading.Event(), threading.Event()

    class Slow(Meanwhile):
        def sync(self, handle: int) -> None:
            self.pause("sync", self._paths[handle].endswith(names.LOG))
            super().sync(handle)

        def sync_directory(self, path: str) -> None:
            self.pause("sync_directory", True)
            super().sync_directory(path)

        def pause(self, called: str, is_for_log: bool) -> None:
            is_cut = bool(bases) and not (tmp_path / names.segment_name(bases[-2], names.LOG)).exists()
            if called == method and is_for_log and is_cut and not cutting.is_set():
                cutting.set()
                is_over.wait(0.5)  # who meets it waits for us; it is over only if it does not

    bases: list[int] = []
    files = Slow()
    with open_compacted(tmp_path, files=files, max_open_segments=1) as log:
        churn(log, 200)
        log.flush()
        bases += segment_bases(tmp_path)
        other = threading.Thread(target=log.truncate_to, args=(bases[1] + 3,))

        def cut() -> None:
            other.start()
            assert cutting.wait(PATIENCE_S)

        # One that is cut, and one that is gone.
        met = bases[1] if method == "sync" else bases[-2]
        files.before("open", names.segment_name(met, names.LOG), cut)
        try:
            log.compact()
        finally:
            is_over.set()
            other.join()
        assert files.is_over
        assert log.log_end_offset <= bases[1] + 3


def test_a_segment_that_is_cut_while_compaction_looks_at_it_gets_no_seal(tmp_path: Path) -> None:
    """Goal: compaction notes in a seal that it has seen a segment; that of one which has changed is not its own."""
    files = Meanwhile()
    with open_compacted(tmp_path, files=files) as log:
        for number in range(40):
            put(log, f"own {number}", b"")
        log.flush()
        first, second, *_ = segment_bases(tmp_path)
        # Nothing goes, so nothing is copied: the file that was begun is removed, and the seal written anew.
        files.before("remove", ".log.cleaned", lambda: files.before("remove", ".log.cleaned", cut))

        def cut() -> None:
            assert log.truncate_to(second + 2) == second + 2

        log.compact()

        assert files.is_over
        assert segment_bases(tmp_path) == [first, second]
        assert read_seal(files, str(tmp_path), first) is not None
        assert read_seal(files, str(tmp_path), second) is None


def test_a_segment_that_is_deleted_while_compaction_looks_at_it_gets_no_seal(tmp_path: Path) -> None:
    files = Meanwhile()
    with open_compacted(tmp_path, files=files) as log:
        for number in range(40):
            put(log, f"own {number}", b"")
        log.flush()
        first, second, *_ = segment_bases(tmp_path)
        files.before("remove", ".log.cleaned", partial(log.delete_before, second))
        log.compact()

        assert files.is_over
        assert segment_bases(tmp_path)[0] == second
        assert read_seal(files, str(tmp_path), first) is None


def test_a_segment_that_vanished_is_told(tmp_path: Path) -> None:
    with open_compacted(tmp_path, max_open_segments=2) as log:
        churn(log, 200)
        log.flush()
        victim = tmp_path / f"{segment_bases(tmp_path)[2]:020d}.log"
        victim.unlink()
        with pytest.raises(NotAccessible, match=rf"cannot be compacted: .*{victim.name}"):
            log.compact()


def test_a_disk_that_fails_when_segments_are_replaced_fails_the_log(tmp_path: Path) -> None:
    """Goal: what was swapped half is for the next open to complete; nothing of it is thrown away."""
    files = Meanwhile()
    with open_compacted(tmp_path, files=files) as log:
        churn(log, 200)
        log.flush()
        records, end = everything(log), active_base(tmp_path)

        def fail() -> None:
            raise OSError(5, "Input/output error")

        files.before("rename", ".swap", fail)
        with pytest.raises(LogFailed, match="replacing segments failed"):
            log.compact()
    with open_compacted(tmp_path) as log:
        assert latest(everything(log), below=end) == latest(records, below=end)


@pytest.mark.parametrize("chunk", [1, 61, 100])
def test_batches_larger_than_what_is_read_at_once_are_compacted(
    tmp_path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "READ_CHUNK", max(chunk, 12))
    with open_compacted(tmp_path) as log:
        churn(log, 100)
        log.flush()
        records = everything(log)
        log.compact()
        assert everything(log) == latest(records, below=active_base(tmp_path))


@pytest.mark.parametrize("cut", [1, 20, 70])
def test_a_segment_that_became_shorter_is_refused_and_nothing_changes(tmp_path: Path, cut: int) -> None:
    with open_compacted(tmp_path) as log:
        churn(log, 200)
        log.flush()
        victim = tmp_path / f"{segment_bases(tmp_path)[2]:020d}.log"
        victim.write_bytes(victim.read_bytes()[:-cut])
        before = contents(tmp_path)
        with pytest.raises(CorruptionError, match=victim.name):
            log.compact()
        assert contents(tmp_path) == before


def test_what_does_not_fit_in_one_segment_is_refused_and_no_record_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: compression by another codec's version may make a copy larger; positions are numbers of 31 bits."""
    with open_compacted(tmp_path) as log:
        churn(log, 200)
        log.flush()
        records, end = everything(log), active_base(tmp_path)
        monkeypatch.setattr(compaction, "INT32_MAX", 100)
        with pytest.raises(UsageError, match="does not fit in one segment any more; nothing of it was changed"):
            log.compact()
        assert latest(everything(log), below=end) == latest(records, below=end)
        assert not [*tmp_path.glob("*.cleaned")]


def test_a_lost_index_stops_no_compaction(tmp_path: Path) -> None:
    with open_compacted(tmp_path) as log:
        churn(log, 200)
        log.flush()
        records = everything(log)
        for path in [*tmp_path.glob("*.index"), *tmp_path.glob("*.timeindex")]:
            path.unlink()
        log.compact()
        assert everything(log) == latest(records, below=active_base(tmp_path))


def test_a_reader_knows_what_is_left_to_compact_before_segments_are_sealed(tmp_path: Path) -> None:
    with open_compacted(tmp_path) as log:
        churn(log, 200)
        assert compaction.clean_offset_of(log._source.view) is None
        with open_compacted(tmp_path, read_only=True) as reader:
            early = reader.cleanable()
        log.flush()
        assert early == log.cleanable()
        log.compact()
        assert compaction.clean_offset_of(log._source.view) == active_base(tmp_path)


def test_truncation_into_the_compacted_part_and_on(tmp_path: Path) -> None:
    for place in range(0, 120, 3):
        path = tmp_path / str(place)
        with open_compacted(path) as log:
            churn(log, 120)
            log.compact()
            kept = everything(log)
            end = log.truncate_to(place)
            assert end <= place
            # The batch that held the offset goes whole.
            left = everything(log)
            assert left == kept[: len(left)]
            assert all(record.offset < place for record in left)
            put(log, "new", b"")
            expected = everything(log)
        with open_compacted(path) as log:
            assert everything(log) == expected
            log.append(bytes(600), key=b"roll")
            log.compact()
            assert {record.key for record in expected} <= {record.key for record in everything(log)}


def test_gaps_are_no_more_lawful_where_a_truncation_has_cut_them_away(tmp_path: Path) -> None:
    """Goal: so also where it was interrupted, and the next open finds how far it came."""
    files = FaultyFiles(QuickFiles(), methods={"write"}, error=errno.ENOSPC, only="seeklog-checkpoint.tmp")
    with open_compacted(tmp_path / "log", files=files) as log:
        churn(log, 120)
        log.compact()
        assert log._source.contiguous_from == active_base(log.path)
        whole = crashed_copy(log.path, tmp_path / "whole")
        files.fail_at = files.calls + 2  # the checkpoint before the cut is written, the one behind it is not
        with pytest.raises(LogFailed):
            log.truncate_to(50)
    with open_compacted(tmp_path / "log") as log:
        assert log._source.contiguous_from == log.log_end_offset <= 50
    with open_compacted(whole) as log:
        end = log.truncate_to(50)
        put(log, "new", b"")
        assert log._source.contiguous_from == end
    with open_compacted(whole) as log:
        assert log._source.contiguous_from == end


def test_compaction_and_retention_go_together(tmp_path: Path) -> None:
    clock = FakeClock()
    words = {"cleanup_policy": "compact,delete", "retention_ms": DAY_MS}
    with open_compacted(tmp_path, clock=clock, **words) as log:
        churn(log, 100)
        log.compact()
        clock.advance(2 * DAY_MS)
        churn(log, 10, seed=2)
        log.retain()
        assert log.log_start_offset > 0
        log.compact()
        assert everything(log)[0].offset >= log.log_start_offset


def test_a_close_stops_a_compaction(tmp_path: Path) -> None:
    log = open_compacted(tmp_path)
    churn(log, 100)
    partition = log._partition
    assert partition is not None
    partition._is_closing = True
    with pytest.raises(LogClosed):
        log.compact()
    log.close()
    assert not list(tmp_path.glob("*.cleaned"))


# ---------------------------------------------------------------- readers


@pytest.mark.id("compaction-under-scan")
def test_a_scan_that_is_under_way_goes_on(tmp_path: Path) -> None:
    with open_compacted(tmp_path, max_open_segments=1) as log, open_reader(tmp_path) as other:
        churn(log, 400, keys=30)
        before = everything(log)
        for reader in (log, other):
            scan = reader.scan_chunks()
            got = list(next(scan))
            back = reader.scan_reverse()
            got_back = [next(back)]
            batches = iter(reader.read_batches(0, max_bytes=10**6))
            bases = [next(batches).base_offset]
            churn(log, 200, keys=30, seed=3)
            log.compact()
            for chunk in scan:
                got += chunk
            got_back += back
            bases += [batch.base_offset for batch in batches]
            final = everything(log)
            for found in (got, got_back[::-1]):
                offsets = [record.offset for record in found]
                assert offsets == sorted(set(offsets))
                assert set(found) <= {*before, *final}
            assert bases == sorted(set(bases))
            # What was compacted away had a later record, maybe one behind the end of the scan.
            assert {record for record in final if record.offset <= before[-1].offset} <= set(got)
            before = final
        assert everything(other) == final


def test_a_reader_that_came_before_the_seal_goes_on(tmp_path: Path) -> None:
    """Goal: a segment is listed between its roll and its seal, and compacted before it is opened."""
    with open_compacted(tmp_path) as log:
        churn(log, 400, keys=30)
        before = everything(log)
        seals = {path: path.read_bytes() for path in tmp_path.glob("*.seal")}
        for path in seals:
            path.unlink()
        with open_reader(tmp_path) as reader:
            scan = reader.scan()
            for path, data in seals.items():
                path.write_bytes(data)
            log.compact()
            got = list(scan)
        assert got == [record for record in before if record in set(got)]
        assert set(everything(log)) <= set(got)


@pytest.mark.id("compaction-merges-under-reader")
def test_a_reader_whose_last_segment_was_merged_away_goes_on(tmp_path: Path) -> None:
    with open_compacted(tmp_path, segment_bytes=2000) as log:
        churn(log, 10)
        with open_reader(tmp_path) as reader:
            assert everything(reader) == everything(log)
            churn(log, 200, seed=2)
            log.compact()
            assert everything(reader) == everything(log)
            churn(log, 10, seed=3)
            assert everything(reader) == everything(log)


# ---------------------------------------------------------------- crashes


class Died(BaseException):
    """The process is gone."""


class DyingFiles(QuickFiles):
    """A disk whose process dies at the nth rename, removal or sync of the directory."""

    def __init__(self) -> None:
        self.left = -1

    def step(self) -> None:
        if self.left == 0:
            raise Died
        self.left -= 1

    def rename(self, source: str, target: str) -> None:
        self.step()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.step()
        super().remove(path)

    def sync_directory(self, path: str) -> None:
        self.step()


@pytest.mark.id("compaction-death")
def test_a_death_between_any_two_steps_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    step = 0
    while True:
        path = tmp_path / str(step)
        files = DyingFiles()
        log = open_compacted(path, files=files, segment_bytes=500)
        churn(log, 150)
        log.flush()
        before = everything(log)
        expected = latest(before, below=active_base(path))
        files.left = step
        try:
            log.compact()
        except Died:
            has_died = True
        else:
            has_died = False
        files.left = -1
        left = crashed_copy(path, tmp_path / f"{step} left")
        with open_reader(left) as reader:
            assert everything(reader)[-1] == before[-1]
            assert {r.key: r.value for r in everything(reader)} == {r.key: r.value for r in before}
        with open_compacted(left, segment_bytes=500) as again:
            assert again.recovery.cut_bytes == 0
            after = everything(again)
            assert set(expected) <= set(after) <= set(before)
            assert {r.key: r.value for r in after} == {r.key: r.value for r in before}
            again.compact()
            assert everything(again) == expected
            assert not [p for p in left.iterdir() if p.name.endswith((".cleaned", ".swap", ".deleted", ".tmp"))]
        with open_compacted(left, segment_bytes=500) as again:
            assert again.recovery.clean
            assert everything(again) == expected
        log.close() if not has_died else None
        if not has_died:
            break
        step += 1
    assert step > 15


def test_segments_follow_each_other(tmp_path: Path) -> None:
    with open_compacted(tmp_path) as log:
        churn(log, 300, keys=60)
        log.compact()
        seals = [read_seal(QuickFiles(), str(tmp_path), base) for base in segment_bases(tmp_path)[:-1]]
        for seal, following in pairwise(seals):
            assert seal is not None
            assert following is not None
            assert seal.next_offset == following.base_offset
    assert compaction.BUFFER_BYTES == 128 << 20
