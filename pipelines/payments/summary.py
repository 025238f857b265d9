"""The summary of a run, counted from the topics and tables it wrote.

A record is bad, a duplicate, or a payment in the table. A payment is in a closed window, in an open window, or too late
for its window. The sums must match the number of records; otherwise the summary says so.
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
    """The payments of one merchant."""

    merchant: str
    payments: int
    amount_paise: int


@dataclass(frozen=True, slots=True)
class Interval:
    """The payments of all merchants in one window."""

    start: datetime
    payments: int
    counted: int
    """The number of payments counted in a closed window; zero if it is still open."""


@dataclass(frozen=True, slots=True)
class Alert:
    """A record of the topic of alerts."""

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
    duplicates: int
    dropped: int
    """Good payments that are in no table because they were older than the watermark."""
    counted: int
    late: int
    open: int
    windows: int
    merchants: list[MerchantTotal]
    """The merchant with the largest amount first."""
    intervals: list[Interval]
    alerts: list[Alert]

    @property
    def is_complete(self) -> bool:
        """Whether every record is accounted for."""
        return self.dropped == 0 and self.late >= 0 and self.duplicates >= 0


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
        duplicates=records - bad.total() - distinct,
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
    """Return a table. The schema is given, so that a table without rows has columns too."""
    return spark.read.schema(schema).parquet(str(path.absolute()))


def _intervals(payments: DataFrame, windows: DataFrame, *, window_s: int) -> Iterator[Interval]:
    start = F.window("paid_at", f"{window_s} seconds")["start"].alias("window_start")
    made = payments.groupBy(start).count()
    closed = windows.groupBy("window_start").agg(F.sum("payments").alias("counted"))
    # As numbers, because Python would get timestamps in the machine's time zone.
    seconds = F.unix_seconds("window_start").alias("seconds")
    joined = made.join(closed, "window_start", "left").orderBy("window_start")
    for row in joined.select(seconds, "count", F.coalesce("counted", F.lit(0)).alias("counted")).collect():
        yield Interval(datetime.fromtimestamp(row.seconds, UTC), row["count"], row.counted)


def _distinct_payments(spark: SparkSession, *, store: str | Path, topic: str, rules: Rules) -> int:
    """Count the payments of the topic in a batch, to compare with the streams."""
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


def _alert(fields: dict[str, Any]) -> Alert:
    for name in ("window_start", "window_end"):
        fields[name] = datetime.fromtimestamp(fields.pop(f"{name}_ms") / 1000, UTC)
    return Alert(**fields)


# ---------------------------------------------------------------- as text


def rupees(paise: int) -> str:
    """Return an amount in Indian notation: ₹12,34,567."""
    whole = str(round(paise / 100))
    head, tail = whole[:-3], whole[-3:]
    pairs = [head[max(0, end - 2) : end] for end in range(len(head), 0, -2)][::-1]
    return "₹" + ",".join([*pairs, tail])


def describe(summary: Summary, *, top: int = 5) -> str:
    """Return the summary as text for a terminal."""
    return "\n".join(_lines(summary, top=top))


def _lines(summary: Summary, *, top: int) -> Iterator[str]:
    yield f"{summary.records:>9,}  records in the topic"
    yield f"{sum(summary.bad.values()):>9,}  bad, kept as dead letters"
    for reason, count in summary.bad.items():
        yield f"{count:>13,}  {reason}"
    yield f"{summary.duplicates:>9,}  duplicates of earlier payments"
    if summary.dropped:
        yield f"{summary.dropped:>9,}  dropped: older than the watermark of the table"
    yield f"{summary.payments:>9,}  payments of {len(summary.merchants)} merchants in the table"
    yield f"{summary.counted:>13,}  in {summary.windows:,} closed windows of merchants"
    yield f"{summary.late:>13,}  too late for their windows"
    yield f"{summary.open:>13,}  in open windows"
    yield ""
    total = sum(merchant.amount_paise for merchant in summary.merchants)
    yield f"Largest merchants, of {rupees(total)} in total"
    for merchant in summary.merchants[:top]:
        share = merchant.amount_paise / total
        amount = rupees(merchant.amount_paise)
        yield f"  {merchant.merchant:<14}{merchant.payments:>9,} payments{amount:>16}{share:>7.1%}"
    yield ""
    yield f"{len(summary.alerts)} alerts" + (", the first:" if len(summary.alerts) > top else "")
    for alert in summary.alerts[:top]:
        span = f"{alert.window_start:%H:%M}-{alert.window_end:%H:%M}"
        yield f"  {span}  {alert.merchant:<14}{_alert_text(alert)}"
    if not summary.is_complete:
        yield ""
        yield "The sums do not match: some records are missing or counted twice."


def _alert_text(alert: Alert) -> str:
    if alert.rule == "large-payment":
        return f"large-payment: {rupees(alert.largest_paise)}"
    return f"{alert.rule}: {alert.payments:,}, {rupees(alert.amount_paise)} in total"
