from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pipelines.payments import transformations
from pipelines.payments.rules import Rules
from pyspark.sql import DataFrame, Row, SparkSession

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
RULES = Rules(max_age_s=3600, max_ahead_s=60, max_amount_paise=1_000_000)
GOOD = {
    "payment_id": "pay_1",
    "merchant": "m1",
    "amount_paise": 199_900,
    "currency": "INR",
    "method": "upi",
    "paid_at_ms": NOON_MS,
}
RECORD_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)


def value(**changes: object) -> bytes:
    """Return a good payment with changed fields; `...` removes a field."""
    return json.dumps({name: field for name, field in {**GOOD, **changes}.items() if field is not ...}).encode()


def records(
    spark: SparkSession,
    values: Sequence[bytes | None],
    *,
    key: bytes | None = b"m1",
    headers: list[tuple[str, bytes | None]] | None = None,
    timestamp: datetime | None = NOON,
) -> DataFrame:
    rows = [(key, each, "payments", 3, 40 + number, timestamp, 0, headers) for number, each in enumerate(values)]
    return spark.createDataFrame(rows, RECORD_SCHEMA)


# ---------------------------------------------------------------- parse

BAD: dict[str, tuple[bytes | None, str, str]] = {
    "null": (None, "no-value", "the value is null"),
    "empty": (b"", "not-json", "not one JSON object"),
    "text": (b"hello", "not-json", "not one JSON object"),
    "cut off": (value()[:-1], "not-json", "not one JSON object"),
    "two objects": (value() * 2, "not-json", "not one JSON object"),
    "two objects with a comma": (value() + b"," + value(), "not-json", "not one JSON object"),
    "text after it": (value() + b" and more", "not-json", "not one JSON object"),
    "an array": (b"[" + value() + b"]", "not-json", "not one JSON object"),
    "a number": (b"7", "not-json", "not one JSON object"),
    "JSON's null": (b"null", "not-json", "not one JSON object"),
    "a field twice": (value()[:-1] + b', "currency": "INR"}', "not-json", "not one JSON object"),
    "not UTF-8": (value().replace(b"pay_1", b"pay_\xff"), "not-json", "not one JSON object"),
    "a byte order mark": (b"\xef\xbb\xbf" + value(), "not-json", "not one JSON object"),
    "NaN": (value().replace(b"199900", b"NaN"), "not-json", "not one JSON object"),
    "no field": (b"{}", "missing-field", "payment_id is missing or null"),
    "an empty id": (value(payment_id=""), "missing-field", "payment_id is empty"),
    "an amount as text": (value(amount_paise="199900"), "wrong-type", "should be BIGINT and is STRING"),
    "half a paisa": (value(amount_paise=0.5), "wrong-type", "should be BIGINT and is DECIMAL(1,1)"),
    "an amount past 64 bits": (value(amount_paise=2**63), "wrong-type", "should be BIGINT and is DECIMAL(19,0)"),
    "an amount with an exponent": (value().replace(b"199900", b"2e5"), "wrong-type", "should be BIGINT and is DOUBLE"),
    "a bool as amount": (value(amount_paise=True), "wrong-type", "should be BIGINT and is BOOLEAN"),
    "a number as id": (value(payment_id=7), "wrong-type", "payment_id should be STRING and is BIGINT"),
    "an object as merchant": (value(merchant={"id": "m1"}), "wrong-type", "merchant should be STRING and is OBJECT"),
    "a time as text": (value(paid_at_ms="noon"), "wrong-type", "paid_at_ms should be BIGINT and is STRING"),
    "another's key": (value(merchant="m2"), "wrong-key", "key is not the merchant"),
    "zero": (value(amount_paise=0), "amount-out-of-range", "amount_paise is 0"),
    "negative": (value(amount_paise=-5), "amount-out-of-range", "amount_paise is -5"),
    "too much": (value(amount_paise=1_000_001), "amount-out-of-range", "amount_paise is 1000001"),
    "another currency": (value(currency="EUR"), "unknown-currency", "currency is EUR"),
    "small letters": (value(currency="inr"), "unknown-currency", "currency is inr"),
    "a clock ahead": (value(paid_at_ms=NOON_MS + 60_001), "from-the-future", f"paid_at_ms is {NOON_MS + 60_001}"),
    "the end of time": (value(paid_at_ms=2**63 - 1), "from-the-future", f"paid_at_ms is {2**63 - 1}"),
    "an hour and more": (value(paid_at_ms=NOON_MS - 3_600_001), "too-old", f"paid_at_ms is {NOON_MS - 3_600_001}"),
    "the beginning of time": (value(paid_at_ms=-(2**63)), "too-old", f"paid_at_ms is {-(2**63)}"),
    **{f"no {name}": (value(**{name: ...}), "missing-field", f"{name} is missing or null") for name in GOOD},
    **{f"{name} null": (value(**{name: None}), "missing-field", f"{name} is missing or null") for name in GOOD},
}
FINE: dict[str, bytes] = {
    "plain": value(),
    "fields in another order": json.dumps(dict(reversed(GOOD.items()))).encode(),
    "a field more": value(note="thanks"),
    "spaces around it": b" \n" + value() + b"\t\n",
    "the smallest amount": value(amount_paise=1),
    "the largest amount": value(amount_paise=1_000_000),
    "an hour ago": value(paid_at_ms=NOON_MS - 3_600_000),
    "a minute ahead": value(paid_at_ms=NOON_MS + 60_000),
    "an empty method": value(method=""),
    "letters of Hindi": json.dumps({**GOOD, "method": "नकद"}, ensure_ascii=False).encode(),
}


@pytest.fixture(scope="module")
def verdicts(spark: SparkSession) -> dict[str, Row]:
    """All records above, parsed at once: a Spark job for each would take minutes."""
    cases = {**{name: case[0] for name, case in BAD.items()}, **FINE}
    parsed = transformations.parse(records(spark, list(cases.values())), rules=RULES).orderBy("offset")
    return dict(zip(cases, parsed.collect(), strict=True))


@pytest.mark.parametrize("case", BAD)
def test_bad_record_gets_its_reason(verdicts: dict[str, Row], case: str) -> None:
    _, reason, detail = BAD[case]
    assert verdicts[case].reason == reason
    assert detail in verdicts[case].detail
    assert verdicts[case].paid_at is None


@pytest.mark.parametrize("case", FINE)
def test_good_record_gets_no_reason(verdicts: dict[str, Row], case: str) -> None:
    assert verdicts[case].reason is None
    assert verdicts[case].detail is None
    assert verdicts[case].paid_at is not None


def test_record_without_time_or_key_is_bad(spark: SparkSession) -> None:
    timeless = transformations.parse(records(spark, [value()], timestamp=None), rules=RULES)
    assert [row.reason for row in timeless.collect()] == ["from-the-future"]
    keyless = transformations.parse(records(spark, [value()], key=None), rules=RULES)
    assert [row.reason for row in keyless.collect()] == ["wrong-key"]


def test_rules_give_the_currencies(spark: SparkSession) -> None:
    rules = Rules(currencies=("INR", "EUR"))
    parsed = transformations.parse(records(spark, [value(currency="EUR"), value(currency="USD")]), rules=rules)
    assert [row.reason for row in parsed.orderBy("offset").collect()] == [None, "unknown-currency"]


# ---------------------------------------------------------------- dead letters and good ones


def test_dead_letter_is_the_record_with_explaining_headers(spark: SparkSession) -> None:
    came = records(spark, [b"\xff\x00", value()], key=b"k", headers=[("trace", b"7"), ("trace", None)])
    (letter,) = (
        transformations.dead_letters(transformations.parse(came, rules=RULES)).where("value = X'FF00'").collect()
    )
    assert (bytes(letter.key), bytes(letter.value)) == (b"k", b"\xff\x00")
    assert [(header.key, header.value) for header in letter.headers] == [
        ("trace", b"7"),
        ("trace", None),
        ("dead-letter.reason", b"not-json"),
        ("dead-letter.detail", b"the value is not one JSON object in UTF-8"),
        ("dead-letter.topic", b"payments"),
        ("dead-letter.partition", b"3"),
        ("dead-letter.offset", b"40"),
    ]
    assert letter.timestamp.astimezone(UTC) == NOON


def test_dead_letter_of_an_empty_record_has_headers_too(spark: SparkSession) -> None:
    parsed = transformations.parse(records(spark, [None], key=None), rules=RULES)
    (letter,) = transformations.dead_letters(parsed).collect()
    assert (letter.key, letter.value) == (None, None)
    assert letter.headers[0].key == "dead-letter.reason"


def test_every_record_is_either_good_or_a_dead_letter(spark: SparkSession) -> None:
    cases = [*(case[0] for case in BAD.values()), *FINE.values()]
    parsed = transformations.parse(records(spark, cases), rules=RULES)
    assert transformations.dead_letters(parsed).count() == len(BAD)
    assert transformations.good_payments(parsed).count() == len(FINE)


def test_good_payment_has_the_columns_of_the_table(spark: SparkSession) -> None:
    payments = transformations.good_payments(transformations.parse(records(spark, [value()]), rules=RULES))
    empty = spark.createDataFrame([], transformations.PAYMENTS_SCHEMA)
    assert payments.schema.simpleString() == empty.schema.simpleString()
    (row,) = payments.collect()
    assert row.asDict() | {"paid_at": None, "arrived_at": None} == {
        "payment_id": "pay_1",
        "merchant": "m1",
        "amount_paise": 199_900,
        "currency": "INR",
        "method": "upi",
        "paid_at": None,
        "arrived_at": None,
        "partition": 3,
        "offset": 40,
    }
    assert row.paid_at.astimezone(UTC) == row.arrived_at.astimezone(UTC) == NOON


# ---------------------------------------------------------------- windows and alerts


def payment(payment_id: str, minutes: float, *, merchant: str = "m1", amount_paise: int = 100) -> tuple[Any, ...]:
    paid_at = NOON + timedelta(minutes=minutes)
    return (payment_id, merchant, amount_paise, "INR", "upi", paid_at, paid_at, 0, 0)


def minutes(at: datetime) -> float:
    return (at.astimezone(UTC) - NOON) / timedelta(minutes=1)


def test_window_includes_its_start_and_excludes_its_end(spark: SparkSession) -> None:
    rows = [payment("a", 0), payment("b", 4.9999), payment("c", 5), payment("d", 5, merchant="m2", amount_paise=7)]
    payments = spark.createDataFrame(rows, transformations.PAYMENTS_SCHEMA)
    windows = transformations.merchant_windows(payments, window_s=300)
    assert (
        windows.schema.simpleString() == spark.createDataFrame([], transformations.WINDOWS_SCHEMA).schema.simpleString()
    )
    found = {
        (row.merchant, minutes(row.window_start), minutes(row.window_end)): (row.payments, row.amount_paise)
        for row in windows.collect()
    }
    assert found == {("m1", 0, 5): (2, 200), ("m1", 5, 10): (1, 100), ("m2", 5, 10): (1, 7)}


def test_window_has_its_largest_payment(spark: SparkSession) -> None:
    rows = [payment("a", 0, amount_paise=10), payment("b", 1, amount_paise=30), payment("c", 2, amount_paise=20)]
    windows = transformations.merchant_windows(
        spark.createDataFrame(rows, transformations.PAYMENTS_SCHEMA), window_s=300
    )
    assert [(row.payments, row.amount_paise, row.largest_paise) for row in windows.collect()] == [(3, 60, 30)]


def test_each_broken_rule_makes_an_alert(spark: SparkSession) -> None:
    rules = Rules(many_payments=10, large_payment_paise=5000)
    end = NOON + timedelta(minutes=5)
    rows = [
        ("quiet", NOON, end, 9, 9000, 4999),
        ("busy", NOON, end, 10, 9000, 4999),
        ("rich", NOON, end, 1, 5000, 5000),
        ("both", NOON, end, 11, 90000, 6000),
    ]
    windows = spark.createDataFrame(rows, transformations.WINDOWS_SCHEMA)
    alerts = transformations.alerts(windows, rules=rules).orderBy("key", "value").collect()
    assert [(bytes(row.key), bytes(row.headers[0].value)) for row in alerts] == [
        (b"both", b"large-payment"),
        (b"both", b"many-payments"),
        (b"busy", b"many-payments"),
        (b"rich", b"large-payment"),
    ]
    assert [header.key for header in alerts[0].headers] == ["rule"]
    assert all(row.timestamp.astimezone(UTC) == end for row in alerts)
    assert bytes(alerts[2].value) == (
        b'{"rule":"many-payments","merchant":"busy","window_start_ms":1767268800000,"window_end_ms":1767269100000,'
        b'"payments":10,"amount_paise":9000,"largest_paise":4999}'
    )


# ---------------------------------------------------------------- streams

Batches = Sequence[Sequence[tuple[Any, ...]]]
STREAMED = [field.split()[0] for field in transformations.PAYMENTS_SCHEMA.split(", ")]


@pytest.fixture
def streamed(
    spark: SparkSession, tmp_path: Path
) -> Callable[[Batches, Callable[[DataFrame], DataFrame]], list[list[Row]]]:
    """Runs a step over batches of payments and returns the rows of each batch."""

    def run(batches: Batches, step: Callable[[DataFrame], DataFrame]) -> list[list[Row]]:
        session = spark.newSession()
        session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        source = tmp_path / "source"
        source.mkdir()
        for number, rows in enumerate(batches):
            # One file per batch, with its number as its time: Spark reads the oldest first.
            path = source / f"{number}.json"
            path.write_text(
                "".join(json.dumps(dict(zip(STREAMED, row, strict=True)), default=str) + "\n" for row in rows)
            )
            os.utime(path, (number + 1, number + 1))
        reader = session.readStream.schema(transformations.PAYMENTS_SCHEMA).option("maxFilesPerTrigger", 1)
        payments = reader.json(str(source))
        came: list[list[Row]] = []
        query = (
            step(payments)
            .writeStream.foreachBatch(lambda batch, batch_id: came.append(batch.collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return came

    return run


def test_first_copy_is_kept_within_and_across_batches(streamed: Any) -> None:
    batches = [
        [payment("a", 0, amount_paise=1), payment("a", 0, amount_paise=2), payment("b", 1)],
        [payment("a", 0, amount_paise=3), payment("c", 2)],
        [payment("c", 2), payment("b", 1)],
    ]
    came = streamed(batches, lambda stream: transformations.deduplicate(stream, within_s=3600))
    assert [sorted((row.payment_id, row.amount_paise) for row in rows) for rows in came] == [
        [("a", 1), ("b", 100)],
        [("c", 100)],
        [],
    ]


def test_ids_are_unique_per_merchant(streamed: Any) -> None:
    batches = [[payment("a", 0), payment("a", 0, merchant="m2")]]
    (rows,) = streamed(batches, lambda stream: transformations.deduplicate(stream, within_s=3600))
    assert sorted(row.merchant for row in rows) == ["m1", "m2"]


def test_late_payments_are_counted_until_their_window_closes(streamed: Any) -> None:
    """Goal: payments within the lateness are counted, later ones and duplicates are not.

    The watermark is ten minutes before the latest payment of the previous batches. Spark drops payments older than the
    watermark of the previous batch, and closes windows that end at or before the watermark.
    """
    batches = [
        [payment("a", 0), payment("b", 14)],
        [payment("late", 3), payment("b", 14), payment("c", 25)],  # watermark 4: nothing is closed
        [payment("later", 4.5), payment("d", 26)],  # watermark 15: payments before 4 are dropped
        [payment("too late", 12), payment("e", 27)],  # watermark 16: payments before 15 are dropped
        [payment("f", 28)],
    ]

    def step(stream: DataFrame) -> DataFrame:
        return transformations.merchant_windows(transformations.deduplicate(stream, within_s=600), window_s=300)

    came = streamed(batches, step)
    assert [sorted((minutes(row.window_start), row.payments) for row in rows) for rows in came] == [
        [],
        [],
        [(0.0, 3), (10.0, 1)],
        [],
        [],
    ]
