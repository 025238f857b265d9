from __future__ import annotations

import json
from collections import Counter
from itertools import islice, pairwise
from pathlib import Path

import pytest
from pipelines.payments import generate
from pipelines.payments.generate import BREAKAGES, Arrival, arrivals

import seeklog


@pytest.fixture(scope="module")
def records() -> list[Arrival]:
    return list(islice(arrivals(), 40_000))


def test_seed_determines_the_records(records: list[Arrival]) -> None:
    assert list(islice(arrivals(), 1000)) == records[:1000]
    assert list(islice(arrivals(seed=8), 1000)) != records[:1000]


def test_records_arrive_in_order_and_payments_do_not(records: list[Arrival]) -> None:
    assert all(first.timestamp_ms <= second.timestamp_ms for first, second in pairwise(records))
    paid = [json.loads(record.value or b"")["paid_at_ms"] for record in records if record.kind == "payment"]
    assert any(first > second for first, second in pairwise(paid))
    late = [record.timestamp_ms - at for record, at in zip(_good(records), paid, strict=True)]
    assert sum(delay > 600_000 for delay in late) > 100  # later than the lateness of a window


def test_every_kind_of_bad_record_occurs(records: list[Arrival]) -> None:
    kinds = Counter(record.kind for record in records)
    assert set(kinds) == {"payment", "duplicate", *BREAKAGES}
    assert all(kinds[kind] >= 10 for kind in BREAKAGES)
    assert kinds["payment"] > 0.9 * len(records)


def test_duplicate_follows_with_the_same_key_and_bytes(records: list[Arrival]) -> None:
    first = {record.value: record for record in reversed(records) if record.kind == "payment"}
    copies = [record for record in records if record.kind == "duplicate"]
    assert len(copies) > 100
    for copy in copies:
        assert first[copy.value].key == copy.key
        assert first[copy.value].timestamp_ms < copy.timestamp_ms


def test_few_merchants_have_most_payments_and_one_a_burst(records: list[Arrival]) -> None:
    ordinary = Counter(record.merchant for record in records[:7_000])
    (popular, most), *_ = ordinary.most_common(1)
    assert popular == "merchant_0"
    assert most > 0.2 * ordinary.total()
    burst = Counter(record.merchant for record in records[8_000:14_000])
    assert burst.most_common(1)[0][0] != "merchant_0"


def test_store_gets_the_stream_in_pieces(tmp_path: Path) -> None:
    """Goal: appending twice is the same as appending once, so that a run can go on with more."""
    assert generate.generate(tmp_path / "once", count=3000) == 3000
    generate.generate(tmp_path / "twice", count=1000)
    generate.generate(tmp_path / "twice", count=2000)
    assert _partitions(tmp_path / "once") == _partitions(tmp_path / "twice")
    assert all(_partitions(tmp_path / "once"))


def _good(records: list[Arrival]) -> list[Arrival]:
    return [record for record in records if record.kind == "payment"]


def _partitions(path: Path) -> list[list[tuple[object, ...]]]:
    with seeklog.open(path, read_only=True) as store:
        return [
            [
                (record.offset, record.key, record.value, record.headers, record.timestamp_ms)
                for record in store.log("payments", partition.partition).scan()
            ]
            for partition in store.describe_topic("payments").partitions
        ]
