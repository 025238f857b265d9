"""What became of every record: counted from the topics and the tables, not from what the queries said on the way.

A record is bad, a copy, or a payment in the table. A payment is in a closed window, in one that is still open, or too
late for its own. The sums must come out; the summary says so if they do not.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import seeklog
from pipelines.payments import transformations
from pipelines.payments.rules import Rules, Topics


@dataclass(frozen=True, slots=True)
class MerchantTotal:
    """What one merchant was paid."""

    merchant: str
    payments: int
    amount_paise: int


@dataclass(frozen=True, slots=True)
class Interval:
    """The payments made in one window of time, by all merchants."""

    start: datetime
    payments: int
    counted: int
    """How many of them are in closed windows; zero if it is still open."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One record of the topic of alerts."""

    rule: str
    merchant: str
    window_start: datetime
    window_end: datetime
    payments: int
    amount_paise: int
    largest_paise: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The counts of a run."""

    records: int
    bad: dict[str, int]
    """By reason, the most frequent first."""
    payments: int
    copies: int
    dropped: int
    """Good ones that are in no table, because the watermark had passed them by."""
    counted: int
    late: int
    open: int
    windows: int
    merchants: list[MerchantTotal]
    """The one with the largest amount first."""
    intervals: list[Interval]
    alerts: list[Alert]

    @property
    def is_whole(self) -> bool:
        """Whether every record is accounted for."""
        return self.dropped == 0 and self.late >= 0 and self.copies >= 0


def summarise(
    spark: SparkSession,
    *,
    store: str | Path,
    output: str | Path,
    rules: Rules | None = None,
    topics: Topics | None = None,
) -> Summary:
    """Count what a run of the pipeline has read and written."""
    rules, topics = rules or Rules(), topics or Topics()
    payments = read_table(spark, Path(output) / "payments", schema=transformations.PAYMENTS_SCHEMA)
    windows = read_table(spark, Path(output) / "merchant_windows", schema=transformations.WINDOWS_SCHEMA)
    merchants = [
        MerchantTotal(row.merchant, row.payments, row.amount_paise)
        for row in payments.groupBy("merchant")
        .agg(F.count("*").alias("payments"), F.sum("amount_paise").alias("amount_paise"))
        .orderBy(F.desc("amount_paise"), "merchant")
        .collect()
    ]
    intervals = list(_intervals(payments, windows, window_s=rules.window_s))
    payment_count = sum(total.payments for total in merchants)
    counted = sum(interval.counted for interval in intervals)
    closed = [interval for interval in intervals if interval.counted]
    in_closed = sum(interval.payments for interval in intervals if closed and interval.start <= closed[-1].start)
    records, bad, alerts = _read_topics(store, topics)
    distinct = _distinct_payments(spark, store=store, topic=topics.payments, rules=rules)
    return Summary(
        records=records,
        bad=dict(bad.most_common()),
        payments=payment_count,
        copies=records - bad.total() - distinct,
        dropped=distinct - payment_count,
        counted=counted,
        late=in_closed - counted,
        open=payment_count - in_closed,
        windows=windows.count(),
        merchants=merchants,
        intervals=intervals,
        alerts=alerts,
    )


def read_table(spark: SparkSession, path: Path, *, schema: str) -> DataFrame:
    """Return one of the tables. Its schema is given, so that a table of empty parts has columns, too."""
    return spark.read.schema(schema).parquet(str(path.absolute()))


def _intervals(payments: DataFrame, windows: DataFrame, *, window_s: int) -> Iterator[Interval]:
    start = F.window("paid_at", f"{window_s} seconds")["start"].alias("window_start")
    made = payments.groupBy(start).count()
    closed = windows.groupBy("window_start").agg(F.sum("payments").alias("counted"))
    # As numbers: a timestamp would come to Python in the zone of the machine.
    seconds = F.unix_seconds("window_start").alias("seconds")
    joined = made.join(closed, "window_start", "left").orderBy("window_start")
    for row in joined.select(seconds, "count", F.coalesce("counted", F.lit(0)).alias("counted")).collect():
        yield Interval(datetime.fromtimestamp(row.seconds, UTC), row["count"], row.counted)


def _distinct_payments(spark: SparkSession, *, store: str | Path, topic: str, rules: Rules) -> int:
    """Count the payments of the topic as a batch: what the stream should have come to."""
    records = (
        spark.read.format("seeklog")
        .option("path", str(store))
        .option("subscribe", topic)
        .option("columns", "key,value,partition,offset,timestamp")
        .load()
    )
    payments = transformations.good_payments(transformations.parse(records, rules=rules))
    return payments.select("merchant", "payment_id").distinct().count()


def _read_topics(store: str | Path, topics: Topics) -> tuple[int, Counter[str], list[Alert]]:
    with seeklog.open(store, read_only=True) as opened:
        records = opened.describe_topic(topics.payments).record_count
        reasons: Counter[str] = Counter()
        for letter in read_topic(opened, topics.dead_letters):
            reasons[(dict(letter.headers)["dead-letter.reason"] or b"").decode()] += 1
        alerts = [_alert(json.loads(record.value or b"{}")) for record in read_topic(opened, topics.alerts)]
    return records, reasons, alerts


def read_topic(store: seeklog.Store, topic: str) -> Iterator[seeklog.Record]:
    """Yield a topic's records, partition by partition."""
    for partition in store.describe_topic(topic).partitions:
        yield from store.log(topic, partition.partition).scan()


def _alert(told: dict[str, Any]) -> Alert:
    return Alert(
        rule=told["rule"],
        merchant=told["merchant"],
        window_start=datetime.fromtimestamp(told["window_start_ms"] / 1000, UTC),
        window_end=datetime.fromtimestamp(told["window_end_ms"] / 1000, UTC),
        payments=told["payments"],
        amount_paise=told["amount_paise"],
        largest_paise=told["largest_paise"],
    )


# ---------------------------------------------------------------- as text


def rupees(paise: int) -> str:
    """Return an amount as it is written in India: ₹12,34,567."""
    whole = str(round(paise / 100))
    head, tail = whole[:-3], whole[-3:]
    pairs = [head[max(0, end - 2) : end] for end in range(len(head), 0, -2)][::-1]
    return "₹" + ",".join([*pairs, tail])


def describe(summary: Summary, *, top: int = 5) -> str:
    """Return the summary as lines for a terminal."""
    return "\n".join(_lines(summary, top=top))


def _lines(summary: Summary, *, top: int) -> Iterator[str]:
    yield f"{summary.records:>9,}  records in the topic"
    yield f"{sum(summary.bad.values()):>9,}  bad, kept as dead letters"
    for reason, count in summary.bad.items():
        yield f"{count:>13,}  {reason}"
    yield f"{summary.copies:>9,}  copies of payments that came before"
    if summary.dropped:
        yield f"{summary.dropped:>9,}  dropped: they came after the watermark of the table"
    yield f"{summary.payments:>9,}  payments of {len(summary.merchants)} merchants in the table"
    yield f"{summary.counted:>13,}  in {summary.windows:,} closed windows of merchants"
    yield f"{summary.late:>13,}  too late for theirs"
    yield f"{summary.open:>13,}  in windows that are still open"
    yield ""
    total = sum(merchant.amount_paise for merchant in summary.merchants)
    yield f"Largest merchants, of {rupees(total)} in all"
    for merchant in summary.merchants[:top]:
        share = merchant.amount_paise / total
        amount = rupees(merchant.amount_paise)
        yield f"  {merchant.merchant:<14}{merchant.payments:>9,} payments{amount:>16}{share:>7.1%}"
    yield ""
    yield f"{len(summary.alerts)} alerts" + (", the first:" if len(summary.alerts) > top else "")
    for alert in summary.alerts[:top]:
        span = f"{alert.window_start:%H:%M}-{alert.window_end:%H:%M}"
        yield f"  {span}  {alert.merchant:<14}{_told(alert)}"
    if not summary.is_whole:
        yield ""
        yield "The sums do not come out: some records are in no place, or in two."


def _told(alert: Alert) -> str:
    if alert.rule == "large-payment":
        return f"large-payment: one of {rupees(alert.largest_paise)}"
    return f"{alert.rule}: {alert.payments:,} of {rupees(alert.amount_paise)} in all"
