"""Every record of a log of 16 KB batches, as records and as Arrow columns, CRC checked.

seeklog and naive read files that are in the page cache. The Kafka clients decode the same bytes from memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.measure import Bench, Stopwatch, best_of, log_size, warm_page_cache
from bench.peers.kafka_clients import count_with_aiokafka, count_with_kafka_python
from bench.peers.naive import NaiveLog
from bench.row import Row, Unit
from bench.workload import (
    CYCLE,
    RECORDS_PER_16KB_BATCH,
    build_log,
    fill_naive,
    segment_fetches,
    whole_cycles,
)
from seeklog import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.measure import Trial


def measure(bench: Bench) -> Iterator[Row]:
    yield from _records(bench)
    yield from _arrow(bench)


def _records(bench: Bench) -> Iterator[Row]:
    count = whole_cycles(bench.scale.scanned)
    with bench.directory("scan-seeklog") as path, bench.directory("scan-naive") as naive_path:
        build_log(path, count, records_per_batch=RECORDS_PER_16KB_BATCH)
        naive = NaiveLog(naive_path)
        fill_naive(naive, count)
        warm_page_cache(path)
        fetches = list(segment_fetches(path))
        with Log(path) as log:
            rates = best_of(
                bench.scale.repetitions,
                {
                    "seeklog": _rate(lambda: _exhaust(log.scan()), count),
                    "naive": _rate(lambda: _exhaust(naive.scan()), count),
                    "aiokafka": _aiokafka(fetches, check_crc=True),
                    "aiokafka, no CRC": _aiokafka(fetches, check_crc=False),
                },
            )
        naive.close()
    unit = Unit.RECORDS_PER_SECOND
    work = "scan to records"
    yield Row(work=work, figure=rates["seeklog"], unit=unit, peer="naive", peer_figure=rates["naive"], target=4)
    yield Row(
        work=work,
        figure=rates["seeklog"],
        unit=unit,
        peer="aiokafka, compiled",
        peer_figure=rates["aiokafka"],
        target=0.8,
    )
    yield Row(
        work=work,
        figure=rates["seeklog"],
        unit=unit,
        peer="aiokafka, CRC unchecked",
        peer_figure=rates["aiokafka, no CRC"],
    )


def _arrow(bench: Bench) -> Iterator[Row]:
    count = whole_cycles(bench.scale.scanned_as_arrow)
    with bench.directory("scan-seeklog") as path:
        build_log(path, count, records_per_batch=RECORDS_PER_16KB_BATCH)
        warm_page_cache(path)
        size = log_size(path)
        fetches = list(segment_fetches(path))
        half = fetches[: len(fetches) // 2]
        few = fetches[: max(1, bench.scale.scanned_by_kafka_python // CYCLE)]
        with Log(path) as log:
            rates = best_of(
                bench.scale.repetitions,
                {
                    "seeklog": _rate(lambda: _arrow_rows(log), count),
                    "aiokafka": _aiokafka(half, check_crc=True),
                    "aiokafka, no CRC": _aiokafka(half, check_crc=False),
                    "kafka-python": _kafka_python(few, check_crc=True),
                    "kafka-python, no CRC": _kafka_python(few, check_crc=False),
                },
            )
    unit = Unit.RECORDS_PER_SECOND
    work = "scan_arrow, all columns, 16 KB batches"
    for peer, name, target in (
        ("aiokafka, compiled", "aiokafka", 5),
        ("kafka-python", "kafka-python", 100),
        ("aiokafka, CRC unchecked", "aiokafka, no CRC", None),
        ("kafka-python, CRC unchecked", "kafka-python, no CRC", None),
    ):
        yield Row(work=work, figure=rates["seeklog"], unit=unit, peer=peer, peer_figure=rates[name], target=target)
    yield Row(
        work=work,
        figure=rates["seeklog"] / count * size / 1e9,
        unit=Unit.GIGABYTES_PER_SECOND,
        target=2,
    )


def _rate(work: Callable[[], int], expected: int) -> Trial:
    """Return a trial that does `work`, which says how many records it saw."""

    def trial() -> float:
        with Stopwatch() as clock:
            seen = work()
        if seen != expected:
            raise ValueError(f"saw {seen} of {expected} records")
        return seen / clock.seconds

    return trial


def _aiokafka(fetches: Sequence[bytes], *, check_crc: bool) -> Trial:
    return _rate(lambda: count_with_aiokafka(fetches, check_crc=check_crc), CYCLE * len(fetches))


def _kafka_python(fetches: Sequence[bytes], *, check_crc: bool) -> Trial:
    return _rate(lambda: count_with_kafka_python(fetches, check_crc=check_crc), CYCLE * len(fetches))


def _exhaust(records: Iterator[object]) -> int:
    count = 0
    for _record in records:
        count += 1
    return count


def _arrow_rows(log: Log) -> int:
    return sum(batch.num_rows for batch in log.scan_arrow())
