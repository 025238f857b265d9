"""The expected result of the pipeline, computed in plain Python, and its actual result, read without Spark.

Both share only the rules with the pipeline. The boundaries of batches come from a checkpoint, because the watermark
advances between batches and decides which payments are late.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.dataset
from pipelines.payments.rules import Rules

import seeklog

Headers = tuple[tuple[str, bytes | None], ...]
Letter = tuple[bytes | None, bytes | None, Headers, int]
Row = tuple[Any, ...]


@dataclass
class Result:
    """Tables as sorted rows, topics as records in order."""

    payments: list[Row]
    windows: list[Row]
    dead_letters: list[Letter]
    alerts: list[Letter]


# ---------------------------------------------------------------- what is there


def read_result(store: Path, output: Path) -> Result:
    return Result(
        payments=read_table(output / "payments"),
        windows=read_table(output / "merchant_windows"),
        dead_letters=read_topic(store, "payments-dead-letters"),
        alerts=read_topic(store, "payments-alerts"),
    )


def read_table(path: Path) -> list[Row]:
    """Return the rows of all Parquet files in a directory, with their batch numbers."""
    table = pyarrow.dataset.dataset(path, partitioning="hive").to_table()
    columns = [
        column.cast("int64").to_pylist() if str(column.type).startswith("timestamp") else column.to_pylist()
        for column in table.columns
    ]
    return sorted(zip(*columns, strict=True))


def read_topic(store: Path, topic: str) -> list[Letter]:
    with seeklog.open(store, read_only=True) as opened:
        return [
            (record.key, record.value, tuple(record.headers), record.timestamp_ms)
            for partition in opened.describe_topic(topic).partitions
            for record in opened.log(topic, partition.partition).scan()
        ]


def read_batches(checkpoint: Path) -> list[dict[int, int]]:
    """Return the end of each batch of a query by partition."""
    ends = []
    for name in sorted((path.name for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()), key=int):
        offsets = json.loads((checkpoint / "offsets" / name).read_text().splitlines()[-1])
        ends.append({int(partition): end for partition, end in offsets["payments"].items()})
    return ends


# ---------------------------------------------------------------- what should be


def expect_result(store: Path, *, batches: list[dict[int, int]], rules: Rules) -> Result:
    with seeklog.open(store, read_only=True) as opened:
        logs = {
            partition.partition: list(opened.log("payments", partition.partition).scan())
            for partition in opened.describe_topic("payments").partitions
        }
    expected = Result([], [], [], [])
    windows = Windows(rules)
    seen: set[tuple[str, str]] = set()
    starts = dict.fromkeys(logs, 0)
    for number, ends in enumerate(batches):
        good = []
        for partition in sorted(logs):
            for record in logs[partition][starts[partition] : ends[partition]]:
                verdict = judge(record, rules)
                if isinstance(verdict, str):
                    expected.dead_letters.append(dead_letter(record, verdict, partition))
                    continue
                good.append(verdict)
                identity = (verdict["merchant"], verdict["payment_id"])
                if identity not in seen:
                    seen.add(identity)
                    fields = [
                        verdict[name] for name in ("payment_id", "merchant", "amount_paise", "currency", "method")
                    ]
                    times = [verdict["paid_at_ms"] * 1000, record.timestamp_ms * 1000]
                    expected.payments.append((*fields, *times, partition, record.offset, number))
        for row in windows.add(good):
            expected.windows.append((*row, number))
            expected.alerts.extend(alerts(row, rules))
        starts = ends
    expected.payments.sort()
    expected.windows.sort()
    return expected


def judge(record: seeklog.Record, rules: Rules) -> dict[str, Any] | str:
    """Return the payment, or the reason why the record is bad."""
    if record.value is None:
        return "no-value"
    try:
        payment = json.loads(record.value.decode())
    except ValueError:
        return "not-json"
    if not isinstance(payment, dict):
        return "not-json"
    types = {"payment_id": str, "merchant": str, "amount_paise": int, "currency": str, "method": str, "paid_at_ms": int}
    for name, kind in types.items():
        if payment.get(name) is None:
            return "missing-field"
        if type(payment[name]) is not kind:
            return "wrong-type"
    if record.key != payment["merchant"].encode():
        return "wrong-key"
    if not 0 < payment["amount_paise"] <= rules.max_amount_paise:
        return "amount-out-of-range"
    if payment["currency"] not in rules.currencies:
        return "unknown-currency"
    if payment["paid_at_ms"] > record.timestamp_ms + rules.max_ahead_s * 1000:
        return "from-the-future"
    if payment["paid_at_ms"] < record.timestamp_ms - rules.max_age_s * 1000:
        return "too-old"
    return payment


def dead_letter(record: seeklog.Record, reason: str, partition: int) -> Letter:
    """Return the dead letter without its detail."""
    fields = {"reason": reason, "topic": "payments", "partition": str(partition), "offset": str(record.offset)}
    headers = tuple((f"dead-letter.{name}", text.encode()) for name, text in fields.items())
    return record.key, record.value, (*record.headers, *headers), record.timestamp_ms


class Windows:
    """Counts payments by merchant and window like a stream with a watermark."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._newest_ms = 0
        self._watermark_ms = self._watermark_before_ms = 0
        self._open: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._seen: set[tuple[str, str]] = set()
        self.late = 0

    def add(self, payments: list[dict[str, Any]]) -> list[Row]:
        """Add the good payments of a batch and return the windows that it closes, in the order of their alerts."""
        length_ms = self._rules.window_s * 1000
        for payment in payments:
            identity = (payment["merchant"], payment["payment_id"])
            if payment["paid_at_ms"] <= self._watermark_before_ms:
                self.late += 1
            elif identity not in self._seen:
                self._seen.add(identity)
                start_ms = payment["paid_at_ms"] // length_ms * length_ms
                self._open[payment["merchant"], start_ms].append(payment["amount_paise"])
        closed = sorted(
            (start_ms, merchant) for merchant, start_ms in self._open if start_ms + length_ms <= self._watermark_ms
        )
        rows = []
        for start_ms, merchant in closed:
            amounts = self._open.pop((merchant, start_ms))
            times = (start_ms * 1000, (start_ms + length_ms) * 1000)
            rows.append((merchant, *times, len(amounts), sum(amounts), max(amounts)))
        self._newest_ms = max(self._newest_ms, *(payment["paid_at_ms"] for payment in payments))
        self._watermark_before_ms = self._watermark_ms
        self._watermark_ms = max(self._watermark_ms, self._newest_ms - self._rules.lateness_s * 1000)
        return rows


def alerts(window: Row, rules: Rules) -> list[Letter]:
    merchant, start_us, end_us, payments, amount_paise, largest_paise = window
    broken = {
        "large-payment": largest_paise >= rules.large_payment_paise,
        "many-payments": payments >= rules.many_payments,
    }
    fields = {
        "merchant": merchant,
        "window_start_ms": start_us // 1000,
        "window_end_ms": end_us // 1000,
        "payments": payments,
        "amount_paise": amount_paise,
        "largest_paise": largest_paise,
    }
    return [
        (
            merchant.encode(),
            json.dumps({"rule": rule, **fields}, separators=(",", ":")).encode(),
            (("rule", rule.encode()),),
            end_us // 1000,
        )
        for rule, is_broken in broken.items()
        if is_broken
    ]
