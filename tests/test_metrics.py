"""Sections, histograms, families, and Prometheus' text format."""

from __future__ import annotations

import json
import math
import random
import threading
from typing import Any

import pytest

from cases import for_each
from seeklog.metrics import (
    BOUNDS_S,
    OF_GROUP,
    OF_PARTITION,
    OF_TOPIC,
    TOTALS,
    CatalogSection,
    ConsumerSection,
    Family,
    Histogram,
    LagSection,
    LogSection,
    ProducerSection,
    prometheus_text,
)


def histogram_of(*seconds: float) -> Histogram:
    histogram = Histogram()
    for each in seconds:
        histogram.observe(each)
    return histogram


# ---------------------------------------------------------------- histograms


@for_each("number", range(len(BOUNDS_S)))
def test_bound_belongs_to_the_next_bucket(number: int) -> None:
    bound = BOUNDS_S[number]
    assert histogram_of(math.nextafter(bound, 0)).counts.index(1) == number
    assert histogram_of(bound * (1 + 1e-12)).counts.index(1) == number + 1


def test_every_duration_has_a_bucket() -> None:
    assert histogram_of(0.0).counts[0] == 1
    assert histogram_of(1e-9).counts[0] == 1
    assert histogram_of(BOUNDS_S[-1], 1e9, 9e13).as_dict()["buckets"] == [[None, 3]]


def test_histogram_counts_sums_and_keeps_the_maximum() -> None:
    assert histogram_of(0.003, 0.001, 200.0).as_dict() == {
        "count": 3,
        "sum": pytest.approx(200.004),
        "max": 200.0,
        "p50": 0.00512,
        "p99": 200.0,
        "buckets": [[0.00128, 1], [0.00512, 1], [None, 1]],
    }


def test_empty_histogram_is_all_zero() -> None:
    assert Histogram().as_dict() == {"count": 0, "sum": 0.0, "max": 0.0, "p50": 0.0, "p99": 0.0, "buckets": []}


def test_quantile_is_at_most_twice_the_value() -> None:
    rng = random.Random(24)
    for _ in range(200):
        values = sorted(math.exp(rng.uniform(math.log(2e-5), math.log(60))) for _ in range(rng.randint(1, 50)))
        histogram = histogram_of(*values)
        for share in (0.1, 0.5, 0.9, 0.99, 1.0):
            exact = values[max(0, math.ceil(share * len(values)) - 1)]
            assert exact <= histogram.quantile(share) <= 2 * exact


def test_added_histograms_equal_one_that_saw_everything() -> None:
    both = histogram_of(0.001, 5.0)
    both.add(histogram_of(0.1, 500.0))
    assert both.as_dict() == histogram_of(0.001, 5.0, 0.1, 500.0).as_dict()
    both.add(Histogram())
    assert both.as_dict()["count"] == 4


# ---------------------------------------------------------------- sections


def test_added_sections_sum_counters_and_keep_the_larger_maximum() -> None:
    one, other = ConsumerSection(), ConsumerSection()
    one.records_consumed, one.records_lag, one.records_lag_max = 5, 10, 7
    other.records_consumed, other.records_lag, other.records_lag_max = 6, 3, 3
    one.add(other)
    assert (one.records_consumed, one.records_lag, one.records_lag_max) == (11, 13, 7)


def test_sections_share_no_histogram() -> None:
    one, other = LogSection(), LogSection()
    one.flush_seconds.observe(1.0)
    total = LogSection()
    total.add(one)
    total.flush_seconds.observe(1.0)
    assert other.flush_seconds.as_dict()["count"] == 0
    assert one.flush_seconds.as_dict()["count"] == 1


@for_each("section", {*TOTALS.values(), *OF_PARTITION.values(), *OF_GROUP.values()})
def test_every_number_has_a_meaning_and_a_plain_value(section: Any) -> None:
    numbers = section().as_dict()
    assert numbers.keys() == section.definitions.keys()
    assert all(definition.meaning.endswith(".") for definition in section.definitions.values())
    assert json.loads(json.dumps(numbers)) == numbers


# ---------------------------------------------------------------- families


def test_sum_of_family_keeps_the_numbers_of_retired_sections() -> None:
    family = Family(ProducerSection)
    first, second = family.new(), family.new()
    first.records_sent, second.records_sent = 3, 4
    family.retire(first)
    assert family.total().records_sent == 7
    second.records_sent += 1
    assert family.total().records_sent == 8
    family.retire(second)
    assert family.total().records_sent == 8
    assert family.total().records_sent == 8


def test_family_keeps_no_section_of_the_past() -> None:
    family = Family(ProducerSection)
    for _ in range(100):
        family.retire(family.new())
    family.new()
    assert len(family._live) == 1
    assert not family._retired


def test_section_retired_under_the_lock_of_its_family_is_counted() -> None:
    """Goal: the garbage collector may run a finalizer inside any method of the family, in the same thread."""
    family = Family(ProducerSection)
    section = family.new()
    section.records_sent = 1
    with family._lock:
        family.retire(section)
    assert family.total().records_sent == 1


def test_family_of_forked_child_starts_from_zero() -> None:
    family = Family(ProducerSection)
    of_parent = family.new()
    of_parent.records_sent = 5
    family._lock.acquire()  # a thread that the child does not have

    family.abandon()
    family.retire(of_parent)
    own = family.new()
    own.records_sent = 2

    assert family.total().records_sent == 2


def test_threads_may_create_and_retire_sections_at_the_same_time() -> None:
    family = Family(ProducerSection)

    def work() -> None:
        for _ in range(200):
            section = family.new()
            section.records_sent += 1
            family.retire(section)
            family.total()

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert family.total().records_sent == 800


# ---------------------------------------------------------------- Prometheus


def sample_metrics() -> dict[str, Any]:
    log = LogSection()
    log.records_in = 5
    log.flush_seconds.observe(0.003)
    log.flush_seconds.observe(500.0)
    detail = {"log": log.as_dict()} | {name: OF_TOPIC[name]().as_dict() for name in ("retention", "compaction")}
    offsets = OF_PARTITION["offsets"]().as_dict() | {"log_end_offset": 7}
    return {name: section().as_dict() for name, section in TOTALS.items()} | {
        "log": log.as_dict(),
        "by_topic": {"orders": detail, "a-b": detail},
        "by_partition": {"orders-0": {**detail, "offsets": offsets}, "a-b-12": detail},
        "by_group": {'br"ea\\k\ning': {"lag": LagSection().as_dict() | {"records_lag": 3}}},
    }


def test_prometheus_reads_the_text() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    families = {each.name: each for each in parser.text_string_to_metric_families(prometheus_text(sample_metrics()))}

    def value(family: str, name: str, **labels: str) -> float:
        (found,) = [each.value for each in families[family].samples if each.name == name and each.labels == labels]
        return float(found)

    assert families["seeklog_log_records_in"].type == "counter"
    assert families["seeklog_catalog_topics"].type == "gauge"
    assert families["seeklog_log_flush_seconds"].type == "histogram"
    assert value("seeklog_log_records_in", "seeklog_log_records_in_total") == 5
    assert value("seeklog_log_flush_seconds", "seeklog_log_flush_seconds_bucket", le="0.00256") == 0
    assert value("seeklog_log_flush_seconds", "seeklog_log_flush_seconds_bucket", le="0.00512") == 1
    assert value("seeklog_log_flush_seconds", "seeklog_log_flush_seconds_bucket", le="+Inf") == 2
    assert value("seeklog_log_flush_seconds", "seeklog_log_flush_seconds_sum") == pytest.approx(500.003)
    records = "seeklog_topic_log_records_in"
    assert value(records, f"{records}_total", topic="a-b") == 5
    offset = "seeklog_partition_offsets_log_end_offset"
    assert value(offset, offset, topic="orders", partition="0") == 7
    records = "seeklog_partition_log_records_in"
    assert value(records, f"{records}_total", topic="a-b", partition="12") == 5
    lag = "seeklog_group_lag_records_lag"
    assert value(lag, lag, group='br"ea\\k\ning') == 3


def test_each_prometheus_family_is_announced_once() -> None:
    lines = prometheus_text(sample_metrics()).splitlines()
    announced = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert len(announced) == len(set(announced))
    assert all(line.startswith(("# HELP ", "# TYPE ", "seeklog_")) for line in lines)


def test_prometheus_text_of_one_log_has_its_sections_alone() -> None:
    text = prometheus_text({"log": LogSection().as_dict()})
    assert "seeklog_log_records_in_total 0\n" in text
    assert "catalog" not in text


def test_sections_of_gauges_alone_can_be_added() -> None:
    total, one = CatalogSection(), CatalogSection()
    one.topics = 3
    total.add(one)
    assert total.as_dict() == {"topics": 3, "partitions": 0, "changes": 0}
