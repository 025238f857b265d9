"""A producer against a list: random calls, full disks, failed writes and syncs, and what the log holds in the end."""

from __future__ import annotations

import contextlib
import errno
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from crash.faulty import FaultyFiles
from log.workbench import QuickFiles, TickingClock
from seeklog import Producer, Record
from seeklog.clients import SendFuture, SendManyFuture
from seeklog.errors import DiskFull, LogFailed, NotAccessible, RecordTooLarge, SeeklogError
from store.producing import NEVER_MS
from store.workbench import open_store

EXAMPLES, STEPS = 50, 30
PARTITIONS = 3
LARGEST = 2000
# Of a record, the number included: some do not fit in a batch of 300 bytes, one does not fit in any.
SIZES = st.sampled_from([8, 8, 40, 200, 500, LARGEST])


class ProducerModel(RuleBasedStateMachine):
    """Each record has a number. Every number is in the log once if its future is confirmed, in the order of its sends.

    A record that was refused is not there. One in doubt may be there, once; an idempotent producer leaves none in doubt
    after a single failure.
    """

    producer: Producer

    @initialize(
        idempotence=st.booleans(),
        flush=st.sampled_from(["os", "batch"]),
        codec=st.sampled_from(["none", "lz4"]),
        segment_bytes=st.sampled_from([900, 1 << 20]),
        linger_ms=st.sampled_from([0, NEVER_MS]),
    )
    def open(self, idempotence: bool, flush: str, codec: str, segment_bytes: int, linger_ms: float) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="seeklog-model-"))
        self.files = FaultyFiles(QuickFiles(), methods={"write", "sync"}, only=".log")
        self.store = open_store(
            self.home / "store",
            files=self.files,
            clock=TickingClock(),
            flush=flush,
            compression_type=codec,
            segment_bytes=segment_bytes,
            max_message_bytes=LARGEST,
        )
        self.store.create_topic("t", partitions=PARTITIONS)
        self.idempotence, self.linger_ms = idempotence, linger_ms
        self.is_open = True
        self.next = 0
        self.sent: list[list[tuple[bytes, SendFuture | SendManyFuture, int]]] = [[] for _ in range(PARTITIONS)]
        """Of each partition: the value, its future, and its place among the future's records of the partition."""
        self.begin()
        for partition in range(PARTITIONS):  # opens the logs, so that only appends fail
            self.send(partition, [8])
        self.flush()

    def begin(self) -> None:
        self.producer = self.store.producer(
            batch_bytes=300, buffer_bytes=20_000, linger_ms=self.linger_ms, idempotence=self.idempotence
        )

    def value(self, size: int) -> bytes:
        self.next += 1
        return b"%08d" % self.next + bytes(size - 8)

    @rule(partition=st.integers(0, PARTITIONS - 1), sizes=st.lists(SIZES, min_size=1, max_size=20))
    def send(self, partition: int, sizes: list[int]) -> None:
        with self.producer._sender._lock:  # so that the sender finds all their batches at once
            for value in map(self.value, sizes):
                future = self.producer.send("t", value, partition=partition)
                future.add_done_callback(lambda _: None)
                self.sent[partition].append((value, future, 0))

    @rule(size=SIZES, key=st.binary(max_size=2) | st.none())
    def send_by_key(self, size: int, key: bytes | None) -> None:
        value = self.value(size)
        future = self.producer.send("t", value, key=key)
        future.add_done_callback(lambda _: None)
        self.sent[future.partition].append((value, future, 0))

    @rule(partition=st.integers(0, PARTITIONS - 1), sizes=st.lists(SIZES, max_size=12))
    def send_many(self, partition: int, sizes: list[int]) -> None:
        values = [self.value(size) for size in sizes]
        future = self.producer.send_many("t", map(Record, values), partition=partition)
        self.sent[partition] += [(value, future, place) for place, value in enumerate(values)]

    @rule(after=st.integers(1, 4), error=st.sampled_from([errno.EIO, errno.ENOSPC]))
    def fail_soon(self, after: int, error: int) -> None:
        self.flush()  # so that one call fails in each attempt to write, and none in its retry
        self.files.error, self.files.fail_at = error, self.files.calls + after

    @rule()
    def flush(self) -> None:
        with contextlib.suppress(SeeklogError):
            self.producer.flush()
        for futures in self.sent:
            for _, future, _ in futures:
                assert future.done()

    @rule()
    def continue_with_another(self) -> None:
        with contextlib.suppress(SeeklogError):
            self.producer.close()
        self.begin()

    @invariant()
    def every_confirmed_record_is_there_once_in_order(self) -> None:
        for partition, sent in enumerate(self.sent):
            if not all(future.done() for _, future, _ in sent):
                continue
            stored = [record.value for record in self.store.log("t", partition).scan()]
            numbers = [int((value or b"")[:8]) for value in stored]
            assert numbers == sorted(set(numbers)), "twice, or in another order"
            for value, future, place in sent:
                self.check(value, future, place, stored)

    def check(self, value: bytes, future: SendFuture | SendManyFuture, place: int, stored: list[Any]) -> None:
        error = future.exception(0)
        if isinstance(future, SendManyFuture):
            if error is None:
                ((ranges),) = future.result(0).values()
                offset = [offset for found in ranges for offset in found][place]
                assert stored[offset] == value
            return  # an error is that of one record among them
        if error is None:
            assert stored[future.result(0).offset] == value
        elif isinstance(error, RecordTooLarge):
            assert value not in stored
        else:
            # A log that failed is opened for the next batch, which may fail, too: then nothing was written.
            assert isinstance(error, DiskFull | LogFailed | NotAccessible)
            assert isinstance(error, LogFailed) or value not in stored
            # A failed write is tried again. A full disk during the retry leaves the batch in doubt.
            assert not (self.idempotence and isinstance(error, LogFailed)), "in doubt after one failure"

    def teardown(self) -> None:
        if getattr(self, "is_open", False):
            self.files.heal()
            self.flush()
            self.every_confirmed_record_is_there_once_in_order()
            with contextlib.suppress(SeeklogError):
                self.producer.close()
            self.store.close()
            shutil.rmtree(self.home)


@pytest.mark.id("sending-model")
def test_producer_behaves_like_a_list_of_what_it_confirmed() -> None:
    run_state_machine_as_test(
        ProducerModel,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            report_multiple_bugs=False,
            deadline=None,
            # The threads of a failed run may do something else in the next, so shrinking it takes for ever.
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
        ),
    )
