"""Sketches agree with exact counts, and merged parts equal the whole."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from seeklog.record import sketch
from seeklog.record.sketch import Keys, Sizes, Throughput


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_are_within_three_percent(seed: int) -> None:
    chance = random.Random(seed)
    sizes = [int(chance.paretovariate(1.1) * chance.choice([1, 50, 4000])) for _ in range(5000)] + [0]
    whole, one_by_one = Sizes(), Sizes()
    for first in range(0, len(sizes), 700):
        part = Sizes()
        part.add_all(pa.array(sizes[first : first + 700], pa.int64()))
        whole.merge(part)
    for size in sizes:
        one_by_one.add(size)

    assert whole == one_by_one
    assert (whole.count, whole.total, whole.least, whole.most) == (5001, sum(sizes), 0, max(sizes))
    ordered = sorted(sizes)
    for share in (0.01, 0.5, 0.95, 0.99, 1.0):
        exact = ordered[max(0, -(-int(share * 5001 * 1000) // 1000) - 1)]
        assert abs(whole.percentile(share) - exact) <= 0.032 * exact + 1


def test_few_keys_are_counted_exactly_and_many_within_reported_error() -> None:
    chance = random.Random(1)
    keys = [b"hot"] * 9000 + [b"warm"] * 3000 + [b"%d" % chance.randrange(60_000) for _ in range(60_000)]
    chance.shuffle(keys)
    exact = Counter(keys)
    whole = Keys()
    for first in range(0, len(keys), 20_000):
        part = Keys()
        part.add_all(pa.array(keys[first : first + 20_000], pa.binary()))
        whole.merge(part)

    assert whole.count == len(keys)
    assert abs(whole.distinct - len(exact)) < 0.03 * len(exact)
    assert len(whole.counters) <= sketch.COUNTERS_KEPT
    assert len(whole.hashes) == sketch.HASHES_KEPT
    assert 0 < whole.error <= len(keys) / sketch.COUNTERS_KEPT
    assert [key for key, _ in whole.most_frequent(2)] == [b"hot", b"warm"]
    for key, count in whole.most_frequent(5):
        assert exact[key] - whole.error <= count <= exact[key]
    few = Keys()
    few.add_all(pa.array([b"a", b"b", b"a", b""], pa.binary()))
    assert (few.distinct, few.error, few.most_frequent(1)) == (3, 0, [(b"a", 2)])


def test_buckets_become_coarser_without_losing_counts() -> None:
    fine, coarse = Throughput(1000), Throughput(1000)
    for second in range(-50, sketch.MAX_BUCKETS * 3):
        coarse.add(second * 1000, records=1, size=10)
    fine.add(-1, records=5, size=7)
    fine.merge(coarse)

    assert fine.bucket_ms == coarse.bucket_ms == 4000
    assert sum(fine.records.values()) == sketch.MAX_BUCKETS * 3 + 50 + 5
    assert fine.records[-1] == 4 + 5
    assert sum(fine.size.values()) == 10 * (sketch.MAX_BUCKETS * 3 + 50) + 7


def test_counts_added_together_equal_single_additions() -> None:
    counts = {b"a": 5, b"b": 2}
    keys, sizes, one_by_one = Keys(), Sizes(), Sizes()
    keys.add_counts(counts)
    keys.add_counts({b"a": 1})
    sizes.add_counts({10: 3, 5000: 1})
    for size in (10, 10, 10, 5000):
        one_by_one.add(size)

    assert (keys.count, keys.distinct, keys.most_frequent(1)) == (8, 2, [(b"a", 6)])
    assert sizes == one_by_one


def test_keys_accept_more_counters() -> None:
    keys = Keys(max_counters=2)
    keys.add_counts({b"a": 5, b"b": 3, b"c": 1})

    assert keys.most_frequent(9) == [(b"a", 4), (b"b", 2)]
    assert keys.error == 1
