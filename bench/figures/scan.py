"""Scans of a log of 16 KB batches to records and to Arrow columns, with CRC checks.

seeklog and naive read files in the page cache. The Kafka clients decode the same bytes from memory. Each turn scans
the next part of the log.
"""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING

import seeklog
from bench.measure import Bench, Stopwatch, best_of, log_size, warm_page_cache
from bench.peers.kafka_clients import count_with_aiokafka, count_with_kafka_python
from bench.peers.naive import NaiveLog
from bench.row import Row, Unit
from bench.workload import (
    CYCLE,
    RECORDS_PER_16KB_BATCH,
    build_log,
    fill,
    fill_naive,
    segment_fetches,
    whole_cycles,
)
from seeklog import Log, LogConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.measure import Trial

# In cycles of about 1 MB of log: aiokafka's compiled reader takes 8 ms for five. A scan to columns needs more, so that
# its start-up does not dominate.
RECORDS_CYCLES = 5
ARROW_CYCLES = 110
KAFKA_PYTHON_CYCLES = 1
TOPIC = "payments"


def measure(bench: Bench) -> Iterator[Row]:
    count = whole_cycles(bench.scale.scanned)
    naive_count = whole_cycles(bench.scale.scanned_by_naive)
    with bench.directory("scan-seeklog") as path, bench.directory("scan-naive") as naive_path:
        build_log(path, count, records_per_batch=RECORDS_PER_16KB_BATCH)
        naive = NaiveLog(naive_path)
        fill_naive(naive, naive_count)
        warm_page_cache(path)
        bytes_per_record = log_size(path) / count
        fetches = list(segment_fetches(path))
        with Log(path) as log:
            yield from _records(bench, log, naive, fetches, count=count, naive_count=naive_count)
            yield from _arrow(bench, log, fetches, count=count, bytes_per_record=bytes_per_record)
            yield from _read_all(bench, log, count=count)
        naive.close()
    yield from _topic(bench, count=count)


def _records(
    bench: Bench, log: Log, naive: NaiveLog, fetches: Sequence[bytes], *, count: int, naive_count: int
) -> Iterator[Row]:
    a_turn = RECORDS_CYCLES * CYCLE
    rates = best_of(
        bench.scale.short_turns // 3,
        {
            "seeklog": _scanning(lambda start: _exhaust(log.scan(start, start + a_turn)), count, a_turn),
            "naive": _scanning(lambda start: _exhaust(islice(naive.read(start), a_turn)), naive_count, a_turn),
            "aiokafka": _aiokafka(fetches, check_crc=True),
            "aiokafka, no CRC": _aiokafka(fetches, check_crc=False),
        },
    )
    for peer, name, target in (
        ("naive", "naive", 4),
        ("aiokafka, compiled", "aiokafka", 0.8),
        ("aiokafka, CRC unchecked", "aiokafka, no CRC", None),
    ):
        yield Row(
            work="scan to records",
            figure=rates["seeklog"],
            unit=Unit.RECORDS_PER_SECOND,
            peer=peer,
            peer_figure=rates[name],
            target=target,
        )


def _arrow(bench: Bench, log: Log, fetches: Sequence[bytes], *, count: int, bytes_per_record: float) -> Iterator[Row]:
    a_turn = min(ARROW_CYCLES * CYCLE, count)
    turns = bench.scale.short_turns // 3
    rates = best_of(
        turns,
        {
            "seeklog": _scanning(lambda start: _arrow_rows(log, start, start + a_turn), count, a_turn),
            "aiokafka": _aiokafka(fetches, check_crc=True),
            "aiokafka, no CRC": _aiokafka(fetches, check_crc=False),
        },
    ) | best_of(
        # A turn takes a tenth of a second, so there are fewer.
        max(3, turns // 5),
        {
            "kafka-python": _kafka_python(fetches, check_crc=True),
            "kafka-python, no CRC": _kafka_python(fetches, check_crc=False),
        },
    )
    work = "scan_arrow, all columns, 16 KB batches"
    for peer, name, target in (
        ("aiokafka, compiled", "aiokafka", 5),
        ("kafka-python", "kafka-python", 100),
        ("aiokafka, CRC unchecked", "aiokafka, no CRC", None),
        ("kafka-python, CRC unchecked", "kafka-python, no CRC", None),
    ):
        yield Row(
            work=work,
            figure=rates["seeklog"],
            unit=Unit.RECORDS_PER_SECOND,
            peer=peer,
            peer_figure=rates[name],
            target=target,
        )
    yield Row(
        work=work,
        figure=rates["seeklog"] * bytes_per_record / 1e9,
        unit=Unit.GIGABYTES_PER_SECOND,
        target=2,
    )


def _read_all(bench: Bench, log: Log, *, count: int) -> Iterator[Row]:
    a_turn = min(ARROW_CYCLES * CYCLE, count)
    rates = best_of(
        bench.scale.short_turns // 3,
        {
            "read_all": _scanning(
                lambda start: log.scan_arrow(start, start + a_turn).read_all().num_rows, count, a_turn
            ),
            "streamed": _scanning(lambda start: _arrow_rows(log, start, start + a_turn), count, a_turn),
        },
    )
    yield Row(
        work="scan_arrow().read_all(), all columns",
        figure=rates["read_all"],
        unit=Unit.RECORDS_PER_SECOND,
        peer="streamed",
        peer_figure=rates["streamed"],
        target=0.7,
    )


def _topic(bench: Bench, *, count: int) -> Iterator[Row]:
    """Scan a topic of two partitions with two threads, and each of its partitions with one, or both in turn."""
    with bench.directory("scan-topic") as path:
        with seeklog.open(path, config=LogConfig(flush="os")) as store:
            store.create_topic(TOPIC, partitions=2)
            for number in range(2):
                with store.writer(TOPIC, number) as log:
                    fill(log, count // 2, records_per_batch=RECORDS_PER_16KB_BATCH)
        warm_page_cache(path)
        with seeklog.open(path, read_only=True) as store:
            topic = store.topic(TOPIC)
            rows = whole_cycles(count // 2)

            def scan(partitions: Sequence[int], threads: int) -> Trial:
                def trial() -> float:
                    with Stopwatch() as clock:
                        batches = topic.scan_arrow(partitions=partitions, threads=threads)
                        seen = sum(batch.num_rows for batch in batches)
                    return _checked(seen, rows * len(partitions)) / clock.seconds

                return trial

            rates = best_of(
                bench.scale.short_turns // 6,
                {"both": scan((0, 1), 2), "one": scan((0,), 1), "one, two threads": scan((1,), 2)},
            )
    for work, name, target in (
        ("a topic's scan_arrow, two partitions, two threads", "both", 1.7),
        ("a topic's scan_arrow, one partition, two threads", "one, two threads", None),
    ):
        yield Row(
            work=work,
            figure=rates[name],
            unit=Unit.RECORDS_PER_SECOND,
            peer="one partition, one thread",
            peer_figure=rates["one"],
            target=target,
        )


def _scanning(scan: Callable[[int], int], count: int, a_turn: int) -> Trial:
    """Return a trial that scans the next `a_turn` records each time; `scan` counts them."""
    starts = cycle(range(0, count - a_turn + 1, a_turn))

    def trial() -> float:
        start = next(starts)
        with Stopwatch() as clock:
            seen = scan(start)
        return _checked(seen, a_turn) / clock.seconds

    return trial


def _aiokafka(fetches: Sequence[bytes], *, check_crc: bool) -> Trial:
    return _decoding(lambda chosen: count_with_aiokafka(chosen, check_crc=check_crc), fetches, a_turn=RECORDS_CYCLES)


def _kafka_python(fetches: Sequence[bytes], *, check_crc: bool) -> Trial:
    return _decoding(
        lambda chosen: count_with_kafka_python(chosen, check_crc=check_crc), fetches, a_turn=KAFKA_PYTHON_CYCLES
    )


def _decoding(decode: Callable[[Sequence[bytes]], int], fetches: Sequence[bytes], *, a_turn: int) -> Trial:
    starts = cycle(range(0, len(fetches) - a_turn + 1, a_turn))

    def trial() -> float:
        start = next(starts)
        chosen = fetches[start : start + a_turn]
        with Stopwatch() as clock:
            seen = decode(chosen)
        return _checked(seen, a_turn * CYCLE) / clock.seconds

    return trial


def _checked(seen: int, expected: int) -> int:
    if seen != expected:
        raise ValueError(f"saw {seen} of {expected} records")
    return seen


def _exhaust(records: Iterator[object]) -> int:
    count = 0
    for _record in records:
        count += 1
    return count


def _arrow_rows(log: Log, start: int, stop: int) -> int:
    return sum(batch.num_rows for batch in log.scan_arrow(start, stop))
