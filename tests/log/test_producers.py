"""Kafka's rules for producers that number their records, case by case."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import pytest

from seeklog.errors import (
    DuplicateSequence,
    InvalidRecord,
    OutOfOrderSequence,
    ProducerFenced,
    SeeklogError,
    UsageError,
)
from seeklog.log.producers import (
    EXPIRATION_MS,
    ProducerBatch,
    ProducerEntry,
    ProducerSequence,
    ProducerState,
    WrittenBatch,
)
from seeklog.record.batch import BatchHeader
from seeklog.record.control import EndMarker
from seeklog.record.layout import CONTROL, TRANSACTIONAL

NOW_MS = 1_700_000_000_000
PRODUCER = 7
LARGEST = 2**31 - 1


@dataclass(frozen=True)
class Sent:
    """A batch, as a case describes it."""

    sequence: int
    count: int = 1
    epoch: int = 0
    producer_id: int = PRODUCER
    transactional: bool = False
    ends: int | None = None
    """The epoch of the coordinator, if this is a control batch."""
    timestamp_ms: int = NOW_MS

    def at(self, offset: int) -> ProducerBatch:
        attributes = (TRANSACTIONAL if self.transactional else 0) | (0 if self.ends is None else CONTROL)
        header = BatchHeader(
            base_offset=offset,
            size=100,
            leader_epoch=0,
            crc=0,
            attributes=attributes,
            last_offset_delta=self.count - 1,
            base_timestamp_ms=self.timestamp_ms,
            max_timestamp_ms=self.timestamp_ms,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            record_count=self.count,
        )
        return ProducerBatch(header, None if self.ends is None else EndMarker(True, self.ends))


def run(*history: Sent, now_ms: int = NOW_MS) -> tuple[ProducerState, int]:
    """Return the state of a partition that has accepted these batches, and its end offset."""
    state, end = ProducerState(), 0
    for sent in history:
        batch = sent.at(end)
        assert state.check([batch], now_ms=now_ms) is None, f"{sent} was taken for a duplicate"
        state.note([batch], now_ms=now_ms)
        end += sent.count
    return state, end


def six(*, epoch: int = 0) -> tuple[Sent, ...]:
    """Six batches of two records: sequences 0 to 11, offsets 0 to 11."""
    return tuple(Sent(2 * number, 2, epoch=epoch) for number in range(6))


ONCE = (Sent(0, 3),)
AROUND = (Sent(LARGEST - 2, 2), Sent(LARGEST, 3))  # sequences from 2147483645 on; the last three wrap around
OPEN = (Sent(0, 2, transactional=True),)
ENDED = (*OPEN, Sent(-1, ends=4, transactional=True))

# A name, the batches before, the new batch, and its result: None: it is appended; a range: it is a duplicate with
# these offsets; an error.
CASES: dict[str, tuple[tuple[Sent, ...], Sent, range | type[SeeklogError] | None]] = {
    "a new producer begins at 0": ((), Sent(0), None),
    "a new producer may begin anywhere": ((), Sent(500), None),
    "a new producer may begin with any epoch": ((), Sent(0, epoch=9), None),
    "the next sequence is taken": (ONCE, Sent(3), None),
    "a gap is refused": (ONCE, Sent(4), OutOfOrderSequence),
    "a gap by half of all numbers is refused": (ONCE, Sent(3 + 2**30 - 1), OutOfOrderSequence),
    "the last batch again is acknowledged": (ONCE, Sent(0, 3), range(3)),
    "the same sequence with another count is none of the last": (ONCE, Sent(0, 2), DuplicateSequence),
    "a part of the last batch is none of the last": (ONCE, Sent(1, 2), DuplicateSequence),
    "the fifth last batch again is acknowledged": (six(), Sent(2, 2), range(2, 4)),
    "the sixth last batch again is too old": (six(), Sent(0, 2), DuplicateSequence),
    "after six batches the next is taken": (six(), Sent(12), None),
    "after the largest sequence comes 0": ((Sent(LARGEST),), Sent(0), None),
    "after the largest sequence 1 is a gap": ((Sent(LARGEST),), Sent(1), OutOfOrderSequence),
    "a batch goes across the largest sequence": (AROUND, Sent(2), None),
    "a batch across the largest sequence again": (AROUND, Sent(LARGEST, 3), range(2, 5)),
    "a batch before the largest sequence again": (AROUND, Sent(LARGEST - 2, 2), range(2)),
    "behind the round a sequence is old": (AROUND, Sent(LARGEST - 1), DuplicateSequence),
    "behind the round a gap is a gap": (AROUND, Sent(3), OutOfOrderSequence),
    "a new epoch begins at 0": (ONCE, Sent(0, epoch=1), None),
    "a new epoch cannot go on": (ONCE, Sent(3, epoch=1), OutOfOrderSequence),
    "a new epoch may jump": (ONCE, Sent(0, epoch=30), None),
    "an old epoch is fenced": ((*ONCE, Sent(0, epoch=1)), Sent(3), ProducerFenced),
    "an old epoch's batch again is fenced": ((*ONCE, Sent(0, epoch=1)), Sent(0, 3), ProducerFenced),
    "a new epoch forgets the batches of the old one": ((*ONCE, Sent(0, 1, epoch=1)), Sent(1, 3, epoch=1), None),
    "producers do not know each other": (ONCE, Sent(0, 3, producer_id=8), None),
    "nobody's batches are not looked at": (ONCE, Sent(-1, producer_id=-1, epoch=-1), None),
    "a sequence below -1 cannot be": ((), Sent(-2), InvalidRecord),
    "an epoch below 0 cannot be": ((), Sent(0, epoch=-1), InvalidRecord),
    "a coordinator's batch has no sequence": (ONCE, Sent(-1), None),
    "a coordinator's batch of an old epoch is fenced": ((Sent(0, epoch=2),), Sent(-1, epoch=1), ProducerFenced),
    "after a coordinator's batch sequences begin at 0": ((Sent(-1),), Sent(0), None),
    "after a coordinator's batch there is no going on": ((Sent(-1),), Sent(5), OutOfOrderSequence),
    "a transaction goes on": (OPEN, Sent(2, transactional=True), None),
    "a batch outside of the open transaction is refused": (OPEN, Sent(2), InvalidRecord),
    "a transaction ends": (OPEN, Sent(-1, ends=0, transactional=True), None),
    "a transaction ends with a new epoch": (OPEN, Sent(-1, epoch=1, ends=0, transactional=True), None),
    "an old epoch cannot end a transaction": (
        (Sent(0, 2, epoch=1, transactional=True),),
        Sent(-1, ends=0, transactional=True),
        ProducerFenced,
    ),
    "an old coordinator cannot end a transaction": (ENDED, Sent(-1, ends=3, transactional=True), ProducerFenced),
    "after a transaction sequences go on": (ENDED, Sent(2), None),
    "after a transaction its batch again is acknowledged": (ENDED, Sent(0, 2, transactional=True), range(2)),
    "after an end with a new epoch sequences begin at 0": (
        (*OPEN, Sent(-1, epoch=1, ends=4, transactional=True)),
        Sent(0, epoch=1, transactional=True),
        None,
    ),
    "after an end with a new epoch there is no going on": (
        (*OPEN, Sent(-1, epoch=1, ends=4, transactional=True)),
        Sent(2, epoch=1, transactional=True),
        OutOfOrderSequence,
    ),
}


@pytest.mark.id("producer-model")
@pytest.mark.parametrize("case", CASES)
def test_batch_is_appended_acknowledged_or_refused(case: str) -> None:
    history, comes, expected = CASES[case]
    state, end = run(*history)
    before = list(state)
    batch = comes.at(end)

    if isinstance(expected, type):
        with pytest.raises(expected) as caught:
            state.check([batch], now_ms=NOW_MS)
        assert "nothing was written" in str(caught.value)
        assert str(caught.value).count("\n") == 0
    else:
        assert state.check([batch], now_ms=NOW_MS) == expected
    assert list(state) == before, "a check changes nothing"


def test_error_gives_expected_and_actual_sequence_after_pickling() -> None:
    state, end = run(*ONCE)
    with pytest.raises(OutOfOrderSequence) as caught:
        state.check([Sent(9).at(end)], now_ms=NOW_MS)
    error = pickle.loads(pickle.dumps(caught.value))

    assert (error.producer_id, error.epoch, error.sequence, error.expected) == (PRODUCER, 0, 9, 3)
    assert str(error) == str(caught.value)
    with pytest.raises(ProducerFenced) as fenced:
        run(Sent(0, epoch=3))[0].check([Sent(0).at(1)], now_ms=NOW_MS)
    error = pickle.loads(pickle.dumps(fenced.value))
    assert (error.producer_id, error.epoch, error.current_epoch) == (PRODUCER, 0, 3)


# Several batches at once


def checked(state: ProducerState, *sent: Sent, end: int) -> range | None:
    batches = []
    for each in sent:
        batches.append(each.at(end))
        end += each.count
    return state.check(batches, now_ms=NOW_MS)


def test_batches_of_one_append_follow_each_other() -> None:
    state, end = run(*ONCE)
    assert checked(state, Sent(3, 2), Sent(5), end=end) is None
    with pytest.raises(OutOfOrderSequence):
        checked(state, Sent(3, 2), Sent(6), end=end)
    assert checked(ProducerState(), Sent(40, 2), Sent(42), end=0) is None
    with pytest.raises(OutOfOrderSequence):
        checked(ProducerState(), Sent(40, 2), Sent(43), end=0)


def test_run_of_repeated_batches_is_acknowledged_as_one() -> None:
    state, end = run(*six())
    assert checked(state, Sent(4, 2), Sent(6, 2), Sent(8, 2), end=end) == range(4, 10)


@pytest.mark.parametrize(
    "sent",
    [
        (Sent(10, 2), Sent(12)),
        (Sent(12), Sent(10, 2)),
        (Sent(4, 2), Sent(8, 2)),
        (Sent(10, 2), Sent(-1, producer_id=-1, epoch=-1)),
    ],
    ids=["old and new", "new and old", "with a gap", "old and nobody's"],
)
def test_partly_repeated_batches_are_refused_together(sent: tuple[Sent, ...]) -> None:
    """Goal: the offsets of an append are one range, which could not describe these."""
    state, end = run(*six())
    with pytest.raises(OutOfOrderSequence):
        checked(state, *sent, end=end)


def test_same_batch_twice_in_one_append_is_refused() -> None:
    with pytest.raises(DuplicateSequence):
        checked(ProducerState(), Sent(0, 2), Sent(0, 2), end=0)


# What the state remembers


def test_transaction_is_known_from_its_first_batch_to_its_end() -> None:
    state, _ = run(Sent(0, 2), Sent(2, 3, transactional=True), Sent(5, transactional=True))
    (entry,) = state
    assert entry.transaction_start == 2

    state, _ = run(*OPEN, Sent(-1, ends=4, transactional=True))
    (entry,) = state
    assert (entry.transaction_start, entry.coordinator_epoch, entry.last_sequence) == (-1, 4, 1)


def test_emptied_control_batch_is_ignored() -> None:
    state = ProducerState()
    state.note([ProducerBatch(Sent(-1, ends=4).at(0).header, None)], now_ms=NOW_MS)
    assert not len(state)


def test_any_batch_in_the_log_updates_the_state() -> None:
    """Goal: recovery and replication rebuild the state, so they must refuse nothing."""
    state = ProducerState()
    for batch in (Sent(5, epoch=3).at(0), Sent(90, 2, epoch=3).at(1), Sent(7, epoch=1).at(3)):
        state.note([batch], now_ms=NOW_MS)
    (entry,) = state
    assert entry == ProducerEntry(PRODUCER, 1, (WrittenBatch(7, 3, 0, NOW_MS),), NOW_MS)


def test_last_offsets_are_those_of_the_last_batches() -> None:
    state, _ = run(*six(), Sent(0, producer_id=8), Sent(-1, producer_id=9, ends=0))
    assert state.last_offsets(now_ms=NOW_MS) == {PRODUCER: 11, 8: 12}
    assert state.last_offsets(now_ms=NOW_MS + EXPIRATION_MS) == {}


def test_idle_producer_is_forgotten_after_a_day() -> None:
    state, end = run(*ONCE)
    later = NOW_MS + EXPIRATION_MS
    with pytest.raises(OutOfOrderSequence):
        state.check([Sent(9).at(end)], now_ms=later - 1)
    assert state.check([Sent(9).at(end)], now_ms=later) is None
    state.expire(now_ms=later - 1)
    assert len(state) == 1
    state.expire(now_ms=later)
    assert len(state) == 0


def test_producer_with_an_open_transaction_is_not_forgotten() -> None:
    state, _ = run(*OPEN)
    state.expire(now_ms=NOW_MS + 50 * EXPIRATION_MS)
    assert len(state) == 1


@pytest.mark.parametrize("age_ms", [400 * EXPIRATION_MS, EXPIRATION_MS - 1, 1])
def test_producer_of_old_records_expires_by_append_time(age_ms: int) -> None:
    """Goal: copying the records of last year, or of today, is protected against duplicates after a reopen."""
    state, end = run(Sent(0, 3, timestamp_ms=NOW_MS - age_ms))
    assert state.check([Sent(0, 3).at(end)], now_ms=NOW_MS + EXPIRATION_MS - 1) == range(3)
    again = ProducerState()
    again.restore(state.entries(), now_ms=NOW_MS + EXPIRATION_MS - 1)
    assert again.check([Sent(0, 3).at(end)], now_ms=NOW_MS + EXPIRATION_MS - 1) == range(3)
    again.restore(state.entries(), now_ms=NOW_MS + EXPIRATION_MS)
    assert not len(again)


def test_sequence_advances_by_records_and_wraps() -> None:
    place = ProducerSequence(producer_id=7, epoch=1, sequence=5)
    assert place.after(3) == ProducerSequence(producer_id=7, epoch=1, sequence=8)
    assert place.after(LARGEST - 4).sequence == 0


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("producer_id", -1),
        ("producer_id", 2**63),
        ("producer_id", "7"),
        ("epoch", -1),
        ("epoch", 2**15),
        ("sequence", -1),
        ("sequence", 2**31),
        ("sequence", True),
    ],
)
def test_impossible_sequence_is_refused(word: str, value: Any) -> None:
    with pytest.raises(UsageError, match=word):
        ProducerSequence(**{"producer_id": 7, word: value})
