"""A compacted log against a dict: keys, tombstones, clock jumps, compactions of any size, and crashes in between.

After every step the log holds only records that were appended, at their offsets, and the latest record of each key,
unless it is a tombstone whose delete horizon has passed. A record that was superseded and removed never comes back.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from log.compacting import Crashed, CrashingFiles
from log.histories import NO_PRODUCER, Coordinator
from log.test_compaction_transactions import compact_as_the_model, look
from log.workbench import START_MS, FakeClock, crashed_copy, open_log, segment_bases
from seeklog import Log, LogConfig, LogReader, Record

EXAMPLES = int(os.environ.get("SEEKLOG_MODEL_EXAMPLES", "0")) or 30
DAY_MS = 24 * 3600 * 1000

keys = st.sampled_from([b"", b"a", b"b", b"c", b"d", b"e", b"a longer key"])
values = st.one_of(st.none(), st.binary(max_size=40))


class CompactedMachine(RuleBasedStateMachine):
    """A log, a reader, and the records that were appended."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="seeklog-compaction-"))
        self.path = self.home / "0"
        self.clock = FakeClock()
        self.appended: dict[int, Record] = {}
        self.gone: set[int] = set()
        self.deaths = 0
        self.reader: Log | None = None

    @initialize(codec=st.sampled_from(["none", "lz4", "zstd"]), segment_bytes=st.sampled_from([300, 900]))
    def begin(self, codec: str, segment_bytes: int) -> None:
        self.config = LogConfig.from_mapping(
            {"flush": "os", "cleanup.policy": "compact", "compression.type": codec, "segment.bytes": segment_bytes}
        )
        self.open()

    def open(self) -> None:
        self.files = CrashingFiles()
        self.log = Log(self.path, config=self.config, clock=self.clock, files=self.files, background=False)

    def teardown(self) -> None:
        if self.reader is not None:
            self.reader.close()
        if hasattr(self, "log"):
            self.files.left = -1
            self.log.close()
        shutil.rmtree(self.home)

    @rule(batch=st.lists(st.tuples(keys, values), min_size=1, max_size=4))
    def append(self, batch: list[tuple[bytes, bytes | None]]) -> None:
        records = [Record(value, key=key, timestamp_ms=self.clock.now_ms()) for key, value in batch]
        if sum(80 + len(record.value or b"") for record in records) > self.config.segment_bytes:
            records = records[:1]
        for offset, record in zip(self.log.append_many(records), records, strict=True):
            self.appended[offset] = record

    @rule(days=st.integers(-3, 5))
    def the_clock_jumps(self, days: int) -> None:
        self.clock.jump_to(START_MS + days * DAY_MS)

    @rule(slots=st.sampled_from([8, 20, 10_000]))
    def compact(self, slots: int) -> None:
        self.log.compact(buffer_bytes=20 * slots)
        active = segment_bases(self.path)[-1]
        below = [record.key for record in self.log.scan(end=active)]
        assert len(below) == len(set(below)), "a key occurs twice in the compacted part"

    @rule(slots=st.sampled_from([8, 10_000]), step=st.integers(0, 40))
    def crash_while_compacting(self, slots: int, step: int) -> None:
        self.files.left = step
        with contextlib.suppress(Crashed):
            self.log.compact(buffer_bytes=20 * slots)
        self.files.left = -1
        self.crash()

    @rule()
    def crash(self) -> None:
        self.deaths += 1
        left = crashed_copy(self.path, self.home / str(self.deaths))
        if self.reader is not None:
            self.reader.close()
            self.reader = None
        self.log.close()
        self.path = left
        self.open()
        assert self.log.recovery.cut_bytes == 0
        assert not [each for each in left.iterdir() if each.name.endswith((".cleaned", ".swap", ".deleted", ".tmp"))]

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.open()

    @rule()
    def reader_refreshes(self) -> None:
        if self.reader is None:
            self.reader = LogReader(self.path, config=self.config, clock=self.clock)
        assert list(self.reader.scan()) == list(self.log.scan())

    @invariant()
    def the_latest_of_each_key_is_there(self) -> None:
        if not hasattr(self, "log"):
            return
        found = {record.offset: record for record in self.log.scan()}
        assert list(found) == sorted(found)
        assert self.log.log_end_offset == len(self.appended)
        for offset, record in found.items():
            given = self.appended[offset]
            assert (record.key, record.value, record.timestamp_ms) == (given.key, given.value, given.timestamp_ms)
        assert not self.gone & found.keys(), "a removed record came back"
        self.gone |= self.appended.keys() - found.keys()
        latest = {record.key: offset for offset, record in self.appended.items()}
        held = {record.key for record in found.values()}
        for key, offset in latest.items():
            if self.appended[offset].value is not None:
                assert offset in found
            else:
                assert offset in found or key not in held, "a value outlived its tombstone"


def test_compacted_log_behaves_like_dict() -> None:
    run_state_machine_as_test(
        CompactedMachine,
        settings=settings(max_examples=EXAMPLES, stateful_step_count=25, report_multiple_bugs=False, deadline=None),
    )


producers = st.integers(1, 3)
rows = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([None, b"one", b"another"])), min_size=1, max_size=3)
steps = st.one_of(
    st.tuples(st.just("put"), st.one_of(st.just(NO_PRODUCER), producers), rows),
    st.tuples(st.just("end"), producers, st.booleans()),
    st.tuples(st.sampled_from(["roll", "compact", "reopen"])),
    st.tuples(st.just("days"), st.integers(1, 3)),
)


@pytest.mark.id("compaction-transactions-model")
@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(history=st.lists(steps, max_size=40))
def test_transactions_are_compacted_by_kafka_rules(history: list[tuple[Any, ...]]) -> None:
    """The log holds exactly the batches that the rules keep, whatever the history."""
    log_settings: dict[str, Any] = {"cleanup_policy": "compact", "segment_bytes": 900, "clock": FakeClock()}
    with tempfile.TemporaryDirectory(prefix="seeklog-transactions-") as home:
        path = Path(home)
        log = open_log(path, **log_settings)
        coordinator = Coordinator(log)
        for step, *arguments in [*history, ("compact",), ("days", 2), ("compact",)]:
            if step == "put":
                coordinator.put(*arguments[1], producer=arguments[0])
            elif step == "end":
                coordinator.end(arguments[0], commits=arguments[1])
            elif step == "roll":
                coordinator.do("|")
            elif step == "compact":
                compact_as_the_model(log, path)
            elif step == "days":
                log_settings["clock"].advance(arguments[0] * DAY_MS)
            else:
                before = look(log)
                log.close()
                log = coordinator.log = open_log(path, **log_settings)
                assert look(log) == before
        log.close()
