"""Producers that number their records, through a store: retried, fenced, and resumed, and no record is stored twice."""

from __future__ import annotations

import copy
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.faulty import FaultyFiles
from crash.sim import Disk, SimFiles
from log.workbench import FakeClock, QuickFiles, TickingClock
from seeklog import Store
from seeklog.errors import CorruptionError, DiskFull, LogLocked, ProducerFenced, SeeklogError, UsageError
from seeklog.topics.producer_ids import ProducerIds, decode_identity, encode_identity
from store.workbench import open_store

NUMBERS = [b"%d" % number for number in range(40)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store", clock=TickingClock()) as store:
        store.create_topic("t", partitions=2)
        yield store


def values(store: Store, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in store.log("t", partition).scan()]


def test_idempotent_producer_numbers_records_by_partition(store: Store) -> None:
    with store.producer(idempotence=True) as producer:
        for number in NUMBERS:
            producer.send("t", number, partition=int(number) % 2).result()
        assert [producer.written(("t", partition)) for partition in (0, 1)] == [20, 20]
    headers = [batch.header for batch in store.log("t", 0).read_batches(0)]
    assert len({header.producer_id for header in headers}) == 1
    assert [header.base_sequence for header in headers] == list(range(20))


def test_two_producers_have_different_ids(store: Store) -> None:
    for _ in range(2):
        with store.producer(idempotence=True) as producer:
            producer.send("t", b"x", partition=0)
    ids = {batch.header.producer_id for batch in store.log("t", 0).read_batches(0)}
    assert len(ids) == 2
    assert min(ids) >= 0


def test_plain_producers_do_not_number_records(store: Store) -> None:
    with store.producer() as producer:
        producer.send("t", b"x", partition=0).result()
        with pytest.raises(UsageError, match="idempotent"):
            producer.written(("t", 0))
    (batch,) = store.log("t", 0).read_batches(0)
    assert batch.header.producer_id == -1


@pytest.mark.id("producer-reopens-a-failed-log")
@pytest.mark.parametrize(("method", "flush"), [("write", "os"), ("write", "batch"), ("sync", "batch")])
def test_batch_is_stored_once_after_log_failed_and_was_reopened(tmp_path: Path, method: str, flush: str) -> None:
    """Goal: it is unknown whether the batch was written before the failure, and it does not matter."""
    files = FaultyFiles(QuickFiles(), methods={method}, error=errno.EIO, only=".log")
    with open_store(tmp_path / "store", clock=TickingClock(), files=files, flush=flush) as store:
        store.create_topic("t", partitions=1)
        with store.producer(idempotence=True) as producer:
            producer.send("t", NUMBERS[0]).result()
            files.fail_at = files.calls + 1
            for number in NUMBERS[1:5]:
                producer.send("t", number).result()
        assert values(store) == NUMBERS[:5]


@pytest.mark.parametrize("method", ["write", "sync"])
def test_batch_in_doubt_is_not_taken_for_next_one(tmp_path: Path, method: str) -> None:
    """Goal: after the last attempt a batch may or may not be stored; the next one is appended in either case."""
    files = FaultyFiles(QuickFiles(), methods={method}, error=errno.EIO, only=".log", lasting=True)
    with open_store(tmp_path / "store", clock=TickingClock(), files=files, flush="batch") as store:
        store.create_topic("t", partitions=1)
        with store.producer(idempotence=True) as producer:
            producer.send("t", b"a").result()
            files.fail_at = files.calls + 1
            with pytest.raises(SeeklogError):
                producer.send("t", b"b").result()
            files.heal()
            producer.send("t", b"c").result()
            assert producer.written(("t", 0)) == len(values(store))
        assert [value for value in values(store) if value != b"b"] == [b"a", b"c"]


def test_batch_refused_by_full_disk_is_sent_again_without_gap(tmp_path: Path) -> None:
    files = FaultyFiles(QuickFiles(), methods={"write"}, error=errno.ENOSPC, only=".log")
    with open_store(tmp_path / "store", clock=TickingClock(), files=files) as store:
        store.create_topic("t", partitions=1)
        with store.producer(idempotence=True) as producer:
            producer.send("t", b"a").result()
            files.fail_at = files.calls + 1
            with pytest.raises(DiskFull):
                producer.send("t", b"b").result()
            files.heal()
            assert producer.send("t", b"b").result().offset == 1
        assert values(store) == [b"a", b"b"]


def test_split_batch_is_numbered_without_gap(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", clock=TickingClock(), max_message_bytes=300) as store:
        store.create_topic("t", partitions=1, config={"compression_type": "none"})
        with store.producer(idempotence=True, linger_ms=50) as producer:
            futures = [producer.send("t", number.rjust(60)) for number in NUMBERS]
            producer.flush()
            assert sorted(future.result().offset for future in futures) == list(range(40))
            assert producer.written(("t", 0)) == 40


@pytest.mark.id("producer-fenced")
def test_named_producer_fences_its_predecessor(store: Store) -> None:
    with store.producer(name="loader") as old:
        old.send("t", b"old", partition=0).result()
        with store.producer(name="loader") as new:
            new.send("t", b"new", partition=0).result()
            with pytest.raises(ProducerFenced):
                old.send("t", b"zombie", partition=0).result()
            assert new.written(("t", 0)) == 1
    assert values(store) == [b"old", b"new"]


def test_resumed_producer_continues_after_written_records(store: Store) -> None:
    for stop in (7, 7, 19, 40):
        with store.producer(name="loader", resume=True) as producer:
            for number in NUMBERS[producer.written(("t", 0)) : stop]:
                producer.send("t", number, partition=0)
    assert values(store) == NUMBERS


@pytest.mark.id("producer-of-a-recreated-topic")
@pytest.mark.parametrize("by", ["this store", "another store"])
def test_records_of_deleted_topic_do_not_count_in_recreated_one(store: Store, by: str) -> None:
    """A resumed producer would skip as many records of the new topic as it had written to the old one."""
    with store.producer(name="loader", resume=True) as producer:
        for number in NUMBERS[:7]:
            producer.send("t", number, partition=0).result()
        store._table.drop("t")  # as if room was needed for another log
        with open_store(store.path) as another:
            changed = store if by == "this store" else another
            changed.delete_topic("t")
            changed.create_topic("t", partitions=2)
        producer.send("t", NUMBERS[0], partition=0).result()
        assert producer.written(("t", 0)) == 1
    with store.producer(name="loader", resume=True) as producer:
        for number in NUMBERS[producer.written(("t", 0)) :]:
            producer.send("t", number, partition=0)
    assert values(store) == NUMBERS


def test_only_one_producer_of_name_can_resume_at_once(store: Store) -> None:
    with store.producer(name="loader", resume=True):
        for resume in (True, False):
            with pytest.raises(LogLocked, match="loader"):
                store.producer(name="loader", resume=resume)
        store.producer(name="other", resume=True).close()
    store.producer(name="loader").close()


def test_new_epoch_counts_from_zero(store: Store) -> None:
    with store.producer(name="loader") as producer:
        producer.send("t", b"a", partition=0).result()
    with store.producer(name="loader") as producer:
        assert producer.written(("t", 0)) == 0


@pytest.mark.parametrize("words", [{"resume": True}, {"name": ""}, {"name": 7}])
def test_invalid_producer_options_are_refused(store: Store, words: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        store.producer(**words)  # type: ignore[arg-type]


def test_damaged_producer_file_is_reported(store: Store, tmp_path: Path) -> None:
    store.producer(name="loader").close()
    (path,) = [path for path in (tmp_path / "store").glob("seeklog-producer-*") if path.suffix != ".lock"]
    identity = decode_identity(path.read_bytes(), path=str(path))
    assert encode_identity(identity) == path.read_bytes()
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CorruptionError, match="CRC"):
        store.producer(name="loader")


def test_epoch_is_never_assigned_twice() -> None:
    """Goal: at no boundary of a claim does a crash take back an epoch that a producer writes with."""
    root = "/store"
    sim = SimFiles(Disk.of({}, directories=[root]))
    given: list[int] = []
    states = 0

    def look(crashed: SimFiles) -> None:
        nonlocal states
        hook, crashed.on_boundary = crashed.on_boundary, None
        disks = [disk for _, disk in crashed.crash_states()]
        killed = copy.deepcopy(crashed)
        killed.process_crash()
        for files in (*map(SimFiles, disks), killed):
            states += 1
            try:
                claimed = ProducerIds(root, files=files, clock=FakeClock()).claim("loader", resume=False)
            except SeeklogError as error:
                raise AssertionError(f"after a crash: {error}") from error
            assert claimed.epoch > max(given, default=-1), given
        crashed.on_boundary = hook

    sim.on_boundary = look
    ids = ProducerIds(root, files=sim, clock=FakeClock())
    for _ in range(4):
        epoch = ids.claim("loader", resume=False).epoch
        given.append(epoch)
    assert given == [0, 1, 2, 3]
    assert states > 20
