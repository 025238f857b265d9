"""Producers and consumers in asyncio tasks: they never stop the loop, and cancellation loses nothing."""

from __future__ import annotations

import asyncio
import errno
import json
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from log.workbench import PATIENCE_S, FakeClock, GatedFiles
from seeklog import Record, Store
from seeklog.clients import AsyncConsumer, AsyncProducer, RecordMetadata
from seeklog.errors import (
    DeserializationError,
    DiskFull,
    InvalidRecord,
    LogClosed,
    LogFailed,
    SerializationError,
    TopicNotFound,
)
from store.producing import NEVER_MS
from store.workbench import open_store, read

WAIT_MS = 1000 * PATIENCE_S


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as store:
        store.create_topic("t", partitions=2)
        yield store


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    """Run a coroutine function; a task that waits for ever fails its test."""

    async def bounded() -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return await main()

    return asyncio.run(bounded())


async def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task after it has begun to wait."""
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def fill(store: Store, count: int, *, partition: int = 0) -> list[bytes]:
    values = [b"%d" % number for number in range(count)]
    with store.producer() as producer:
        producer.send_many("t", map(Record, values), partition=partition)
    return values


# ---------------------------------------------------------------- producers


def test_awaited_future_is_where_the_record_is(store: Store) -> None:
    async def main() -> None:
        async with store.async_producer(linger_ms=0) as producer:
            future = await producer.send("t", b"one", key=b"k", headers=[("h", b"1")], partition=1)
            assert await future == RecordMetadata("t", 1, 0)
            assert await future == future.result(0)
            assert await producer.send_and_wait("t", b"two", partition=1) == ("t", 1, 1)

    run(main)
    assert read(store, "t", 1) == [b"one", b"two"]


def test_leaving_the_producer_writes_what_is_buffered(store: Store) -> None:
    async def main() -> None:
        async with store.async_producer(linger_ms=NEVER_MS) as producer:
            futures = [await producer.send("t", b"%d" % number, partition=0) for number in range(500)]
        assert all(future.done() for future in futures)
        await producer.stop()
        with pytest.raises(LogClosed):
            await producer.send("t", b"late")

    run(main)
    assert read(store, "t", 0) == [b"%d" % number for number in range(500)]


def test_tasks_of_several_loops_may_send(store: Store) -> None:
    async def send(producer: AsyncProducer, name: int) -> list[int]:
        futures = [await producer.send("t", b"%d %d" % (name, number), partition=0) for number in range(300)]
        return [(await future).offset for future in futures]

    producer = store.async_producer(linger_ms=0, batch_bytes=500, buffer_bytes=2000)
    offsets: dict[int, list[int]] = {}
    threads = [
        threading.Thread(target=lambda name=name: offsets.update({name: run(lambda: send(producer, name))}))
        for name in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    run(producer.close)

    stored = read(store, "t", 0)
    assert len(stored) == 1200
    for name, found in offsets.items():
        assert [stored[offset] for offset in found] == [b"%d %d" % (name, number) for number in range(300)]


def test_future_of_a_plain_producer_can_be_awaited(store: Store) -> None:
    async def main() -> int:
        with store.producer(linger_ms=0) as producer:
            return (await producer.send("t", b"v", partition=0)).offset

    assert run(main) == 0


@pytest.mark.parametrize("words", [{"value": "text"}, {"value": b"", "timestamp_ms": "now"}], ids=repr)
def test_invalid_record_raises_in_the_task_that_sends_it(store: Store, words: dict[str, Any]) -> None:
    async def main() -> None:
        async with store.async_producer() as producer:
            with pytest.raises(InvalidRecord):
                await producer.send("t", **words)
            with pytest.raises(TopicNotFound):
                await producer.send("unknown", b"v")

    run(main)


def test_awaited_future_raises_the_error_of_its_record(tmp_path: Path) -> None:
    files = GatedFiles()

    async def main() -> None:
        async with store.async_producer(linger_ms=0) as producer:
            await producer.send_and_wait("t", b"v", partition=0)
            files.write_errors["/t-0/"] = errno.ENOSPC
            with pytest.raises(DiskFull):
                await producer.send_and_wait("t", b"lost", partition=0)

    with open_store(tmp_path / "store", files=files) as store:
        store.create_topic("t", partitions=1)
        run(main)


def test_values_are_serialized_in_the_task(store: Store) -> None:
    async def main() -> None:
        async with store.async_producer(key=str, value=json) as producer:
            await producer.send("t", {"amount": 1}, key="k", partition=0)
            await producer.send_and_wait("t", None, key="k", partition=0)
            with pytest.raises(SerializationError, match="the value"):
                await producer.send("t", object())

    run(main)
    assert read(store, "t", 0) == [b'{"amount": 1}', None]


class Held:
    """A store whose disk is at a closed gate, and a producer whose buffer is full of two records."""

    def __init__(self, path: Path) -> None:
        self.files = GatedFiles("/t-0/")
        self.store = open_store(path, files=self.files)
        self.store.create_topic("t", partitions=1)
        self.producer = self.store.async_producer(batch_bytes=500, buffer_bytes=1000, linger_ms=0)

    async def fill(self) -> None:
        await self.producer.send_and_wait("t", b"opens the log")
        self.files.gate.clear()
        for name in (b"1", b"2"):
            await self.producer.send("t", name * 400)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    held = Held(tmp_path / "store")
    yield held
    held.files.gate.set()
    held.store.close()


def test_full_buffer_lets_other_tasks_run(held: Held) -> None:
    async def main() -> None:
        await held.fill()
        waiting = [asyncio.create_task(held.producer.send("t", b"%d" % name * 400)) for name in range(3, 8)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        held.files.gate.set()
        await asyncio.gather(*waiting)
        await held.producer.close()

    run(main)
    assert [value[:1] for value in read(held.store, "t")[1:]] == [b"%d" % name for name in range(1, 8)]  # type: ignore[index]


@pytest.mark.id("asyncio-cancelled-send")
def test_cancelled_send_has_sent_nothing(held: Held) -> None:
    async def main() -> None:
        await held.fill()
        await cancel(asyncio.create_task(held.producer.send("t", b"cancelled" * 40)))
        held.files.gate.set()
        await held.producer.close()

    run(main)
    assert read(held.store, "t")[1:] == [b"1" * 400, b"2" * 400]


def test_record_is_written_although_no_task_waits_any_more(held: Held) -> None:
    async def main() -> None:
        await held.producer.send_and_wait("t", b"opens the log")
        held.files.gate.clear()
        future = await held.producer.send("t", b"v")

        async def wait() -> RecordMetadata:
            return await future

        await cancel(asyncio.create_task(wait()))
        held.files.gate.set()
        assert (await future).offset == 1
        await held.producer.close()

    run(main)
    assert read(held.store, "t") == [b"opens the log", b"v"]


def test_cancelled_flush_loses_no_error(held: Held) -> None:
    async def main() -> None:
        await held.fill()
        flush = asyncio.create_task(held.producer.flush())
        await cancel(flush)
        held.files.write_errors["/t-0/"] = errno.ENOSPC
        held.files.gate.set()
        with pytest.raises(DiskFull):
            await held.producer.flush()
        held.files.write_errors.clear()
        await held.producer.close()

    run(main)


def test_tasks_wake_when_the_sending_thread_ends(tmp_path: Path) -> None:
    class DyingClock(FakeClock):
        is_broken = False

        def monotonic(self) -> float:
            if self.is_broken and threading.current_thread().name == "seeklog-sender":
                raise ZeroDivisionError("a defect")
            return super().monotonic()

    clock = DyingClock()

    async def main() -> None:
        producer = store.async_producer(linger_ms=NEVER_MS, batch_bytes=500, buffer_bytes=500)
        future = await producer.send("t", bytes(400))
        clock.is_broken = True
        waiting = asyncio.create_task(producer.send("t", bytes(400)))
        flushing = asyncio.create_task(producer.flush())
        with pytest.raises(LogFailed, match="a defect"):
            await future
        with pytest.raises(LogFailed, match="a defect"):
            await waiting
        await flushing
        await producer.close()

    with open_store(tmp_path / "store", clock=clock) as store:
        store.create_topic("t", partitions=1)
        run(main)


# ---------------------------------------------------------------- consumers


def consumer_of(store: Store, **words: Any) -> AsyncConsumer[Record]:
    return store.async_consumer(["t"], auto_offset_reset="earliest", **words)


def test_iteration_returns_every_record_and_waits_for_more(store: Store) -> None:
    values = fill(store, 3000)

    async def main() -> list[bytes | None]:
        found: list[bytes | None] = []
        async with consumer_of(store) as consumer, store.async_producer(linger_ms=0) as producer:
            async for record in consumer:
                found.append(record.value)
                if len(found) == 3000:
                    await producer.send("t", b"later", partition=1)
                if len(found) == 3001:
                    break
        return found

    assert run(main) == [*values, b"later"]


def test_waiting_consumer_lets_other_tasks_run(store: Store) -> None:
    async def main() -> None:
        async with consumer_of(store) as consumer:
            assert await consumer.poll() == []
            reading = asyncio.create_task(consumer.getone())
            for _ in range(20):
                await asyncio.sleep(0)
            assert not reading.done()
            fill(store, 1)
            assert (await reading).value == b"0"

    run(main)


def test_poll_returns_at_most_the_records_asked_for(store: Store) -> None:
    values = fill(store, 100)

    async def main() -> list[bytes | None]:
        found: list[bytes | None] = []
        async with consumer_of(store) as consumer:
            for size in (1, 7, 40, 500):
                records = await consumer.poll(WAIT_MS, max_records=size)
                assert len(records) <= size
                found += [record.value for record in records]
        return found

    assert run(main) == values


@pytest.mark.id("asyncio-cancelled-poll")
def test_records_of_cancelled_reads_are_returned_later(store: Store) -> None:
    """Goal: reads cancelled at any moment neither lose nor repeat a record."""
    values = fill(store, 400)
    draw = random.Random(7)

    async def read_some(consumer: AsyncConsumer[Record], found: list[bytes | None]) -> None:
        if draw.random() < 0.5:
            found.append((await consumer.getone()).value)
        else:
            found += [record.value for record in await consumer.poll(WAIT_MS, max_records=draw.randrange(1, 9))]

    async def main() -> list[bytes | None]:
        found: list[bytes | None] = []
        cancelled = 0
        async with consumer_of(store, max_poll_records=5) as consumer:
            while len(found) < 400:
                task = asyncio.create_task(read_some(consumer, found))
                for _ in range(draw.randrange(4)):
                    await asyncio.sleep(0)
                if draw.random() < 0.7:
                    cancelled += task.cancel()
                await asyncio.wait([task])
        assert cancelled > 20
        return found

    assert run(main) == values


@pytest.mark.parametrize("cancels", [False, True])
def test_commit_covers_only_the_records_that_were_returned(store: Store, cancels: bool) -> None:
    values = fill(store, 50)

    async def first() -> None:
        consumer = consumer_of(store, group="g", enable_auto_commit=False, max_poll_records=20)
        for expected in values[:7]:
            assert (await consumer.getone()).value == expected
        if cancels:
            await consumer.poll(WAIT_MS)
            task = asyncio.create_task(consumer.poll(WAIT_MS))
            await cancel(task)
        await consumer.commit()
        assert await consumer.committed(("t", 0)) == (20 if cancels else 7)
        assert (await consumer.getone()).value == values[20 if cancels else 7]
        await consumer.close()

    async def second() -> bytes | None:
        async with consumer_of(store, group="g") as consumer:
            return (await consumer.getone()).value

    run(first)
    assert run(second) == values[20 if cancels else 7]


def test_commit_within_an_iteration_continues_after_its_record(store: Store) -> None:
    values = fill(store, 300)

    async def main() -> list[bytes | None]:
        found: list[bytes | None] = []
        async with consumer_of(store, group="g", enable_auto_commit=False) as consumer:
            async for record in consumer:
                found.append(record.value)
                if len(found) % 90 == 0:
                    await consumer.commit()
                    assert await consumer.committed(("t", 0)) == len(found)
                if len(found) == 300:
                    break
        return found

    assert run(main) == values


def test_call_cancelled_while_a_poll_runs_loses_no_record(store: Store) -> None:
    values = fill(store, 30)

    async def main() -> list[bytes | None]:
        found: list[bytes | None] = []
        async with consumer_of(store, max_poll_records=10) as consumer:
            found += [(await consumer.getone()).value for _ in range(3)]
            consumer._begin_poll(0, 10)  # as a read leaves it that was cancelled
            position = asyncio.create_task(consumer.position(("t", 0)))
            await asyncio.sleep(0)
            position.cancel()
            await asyncio.wait([position])
            while len(found) < 30:
                found.append((await consumer.getone()).value)
        return found

    assert run(main) == values


def test_seek_discards_what_was_read_ahead(store: Store) -> None:
    values = fill(store, 30)

    async def main() -> None:
        async with store.async_consumer() as consumer:
            await consumer.assign([("t", 0)])
            assert {(at.topic, at.partition) for at in await consumer.assignment()} == {("t", 0)}
            await consumer.seek_to_beginning()
            assert (await consumer.getone()).value == values[0]
            assert await consumer.position(("t", 0)) == 1
            await consumer.seek(("t", 0), offset=25)
            assert (await consumer.getone()).value == values[25]
            await consumer.seek_to_end()
            assert await consumer.poll() == []

    run(main)


def test_error_of_a_deserializer_is_raised_and_repeated(store: Store) -> None:
    async def main() -> None:
        async with store.async_producer() as producer:
            for value in (b"1", b"no json"):
                await producer.send("t", value, partition=0)
        async with store.async_consumer(["t"], value=json, auto_offset_reset="earliest") as consumer:
            assert (await consumer.getone()).value == 1
            for _ in range(2):
                with pytest.raises(DeserializationError):
                    await consumer.getone()

    run(main)


def test_closed_consumer_cannot_be_read(store: Store) -> None:
    async def main() -> None:
        consumer = consumer_of(store)
        await consumer.start()
        await consumer.stop()
        await consumer.close()
        for call in (consumer.getone(), consumer.poll(), consumer.commit()):
            with pytest.raises(LogClosed):
                await call

    run(main)
