"""The pipeline from end to end on twenty thousand payments, compared with plain Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from payments_oracle import Letter, Result, expect_result, read_batches
from payments_place import COUNT, RULES, Place
from pipelines.payments.plots import write_plots
from pipelines.payments.run import run
from pipelines.payments.summary import Summary, describe, rupees, summarise
from pyspark.sql import SparkSession

import seeklog


@pytest.fixture(scope="module")
def result(undisturbed: Place) -> Result:
    return undisturbed.result()


@pytest.fixture(scope="module")
def expected(undisturbed: Place) -> Result:
    batches = read_batches(undisturbed.checkpoint("windows"))
    return expect_result(undisturbed.store, batches=batches, rules=RULES)


@pytest.fixture(scope="module")
def summary(spark: SparkSession, undisturbed: Place) -> Summary:
    return summarise(spark, store=undisturbed.store, output=undisturbed.output, rules=RULES)


def test_every_bad_record_is_a_dead_letter_with_its_reason(expected: Result, result: Result) -> None:
    assert len(expected.dead_letters) > 100
    assert [_without_detail(letter) for letter in result.dead_letters] == expected.dead_letters


def test_every_good_payment_is_in_the_table_once(expected: Result, result: Result) -> None:
    assert len(expected.payments) > 0.9 * COUNT
    assert result.payments == expected.payments


def test_the_windows_are_those_of_the_watermark(expected: Result, result: Result) -> None:
    assert len(expected.windows) > 100
    assert result.windows == expected.windows


def test_alerts_are_in_order(expected: Result, result: Result) -> None:
    rules = {dict(headers)["rule"] for _, _, headers, _ in expected.alerts}
    assert rules == {b"many-payments", b"large-payment"}
    assert result.alerts == expected.alerts


def test_queries_split_the_topic_alike(undisturbed: Place) -> None:
    names = ("dead_letters", "payments", "windows")
    batches = [read_batches(undisturbed.checkpoint(name)) for name in names]
    assert batches[0] == batches[1] == batches[2]
    assert len(batches[0]) >= 5


def test_run_without_new_records_changes_nothing(spark: SparkSession, undisturbed: Place, result: Result) -> None:
    undisturbed.run(spark)
    assert undisturbed.result() == result


def test_the_summary_accounts_for_every_record(expected: Result, summary: Summary) -> None:
    assert summary.records == COUNT
    assert summary.bad == Counter(_reason(letter) for letter in expected.dead_letters)
    assert summary.payments == len(expected.payments)
    assert summary.duplicates == COUNT - len(expected.payments) - len(expected.dead_letters)
    assert summary.dropped == 0
    assert summary.windows == len(expected.windows)
    assert summary.counted == sum(window[3] for window in expected.windows)
    last_end_us = max(window[2] for window in expected.windows)
    assert summary.counted + summary.late == sum(payment[5] < last_end_us for payment in expected.payments)
    assert summary.late > 0
    assert summary.counted + summary.late + summary.open == summary.payments
    assert sum(total.amount_paise for total in summary.merchants) == sum(payment[2] for payment in expected.payments)
    assert [alert.merchant.encode() for alert in summary.alerts] == [alert[0] for alert in expected.alerts]
    assert summary.is_complete


def test_the_summary_is_readable(summary: Summary) -> None:
    lines = describe(summary).splitlines()
    assert lines[0].split() == ["20,000", "records", "in", "the", "topic"]
    assert any("many-payments" in line for line in lines)
    assert not any("do not match" in line for line in lines)
    assert "do not match" in describe(replace(summary, dropped=1))
    assert rupees(123_456_789) == "₹12,34,568"
    assert [rupees(paise) for paise in (0, 49, 99_900, 100_000, 10_000_000)] == [
        "₹0",
        "₹0",
        "₹999",
        "₹1,000",
        "₹1,00,000",
    ]


def test_the_plots_are_drawn(summary: Summary, tmp_path: Path) -> None:
    paths = write_plots(summary, tmp_path / "plots")
    assert [path.name for path in paths] == [
        "payments_over_time.png",
        "amounts_by_merchant.png",
        "bad_records_by_reason.png",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_missing_topic_is_reported_before_anything_is_created(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with seeklog.open(store) as opened:
        opened.create_topic("other")
    with pytest.raises(seeklog.SeeklogError, match="payments"):
        run(spark, store=store, output=tmp_path / "output")
    with seeklog.open(store, read_only=True) as opened:
        assert opened.topics() == ["other"]
    assert not (tmp_path / "output").exists()


def _reason(letter: Letter) -> str:
    return (dict(letter[2])["dead-letter.reason"] or b"").decode()


def _without_detail(letter: Letter) -> Letter:
    key, value, headers, timestamp_ms = letter
    assert dict(headers)["dead-letter.detail"]
    return key, value, tuple(header for header in headers if header[0] != "dead-letter.detail"), timestamp_ms
