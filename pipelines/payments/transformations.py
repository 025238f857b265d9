"""The steps of the pipeline as functions of DataFrames, for streams and, except for deduplication, for batches.

A step takes the columns of `format("seeklog")` or those that another step returns. No step uses a clock or random
numbers: the same records give the same rows, so that a batch can be repeated after a crash.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the usual name)

from pipelines.payments.rules import Rules

# The fields of a payment, with Spark's names for their JSON types.
FIELDS = {
    "payment_id": "STRING",
    "merchant": "STRING",
    "amount_paise": "BIGINT",
    "currency": "STRING",
    "method": "STRING",
    "paid_at_ms": "BIGINT",
}
# The columns of the table `payments`.
PAYMENTS_SCHEMA = (
    "payment_id string, merchant string, amount_paise bigint, currency string, method string, "
    "paid_at timestamp, arrived_at timestamp, partition int, offset bigint"
)
# The columns of the table `merchant_windows`.
WINDOWS_SCHEMA = (
    "merchant string, window_start timestamp, window_end timestamp, payments bigint, amount_paise bigint, "
    "largest_paise bigint"
)


def parse(records: DataFrame, *, rules: Rules) -> DataFrame:
    """Add the fields of the payment, and the `reason` and `detail` of a bad record, null for a good payment."""
    text = F.col("value").cast("string")
    # Spark's parser ignores text after the first JSON value; in an array, a second item reveals it.
    items = F.try_parse_json(F.concat(F.lit("["), F.when(F.is_valid_utf8(text), text), F.lit("]")))
    values = {name: F.try_variant_get("json", f"$.{name}", kind.lower()) for name, kind in FIELDS.items()}
    return (
        records.withColumn("items", items)
        .withColumn("json", F.when(_variant("items", "$[1]").isNull(), _variant("items", "$[0]")))
        .withColumns({"shape": F.schema_of_variant("json"), **values})
        .withColumn("flaw", F.coalesce(_flaw_of_shape(), _flaw_of_content(rules)))
        .withColumns({"reason": F.col("flaw.reason"), "detail": F.col("flaw.detail")})
        # Only times of good payments are converted, because one out of range would fail.
        .withColumn("paid_at", F.when(F.col("reason").isNull(), F.timestamp_millis("paid_at_ms")))
        .drop("items", "json", "shape", "paid_at_ms", "flaw")
    )


def _variant(column: str, path: str) -> Column:
    return F.try_variant_get(column, path, "variant")


# A condition, and the reason and the detail of a record for which it holds.
Check = tuple[Column, str, Column]


def _flaw_of_shape() -> Column:
    """Return why a record is not a payment, or null: not JSON, a field is missing, or has another type."""
    fields = [
        F.struct(F.lit(name).alias("name"), F.lit(kind).alias("kind"), _type_of(name).alias("found"))
        for name, kind in FIELDS.items()
    ]
    wrong = F.get(F.filter(F.array(*fields), lambda field: field["found"] != field["kind"]), F.lit(0))
    name, kind, found = wrong["name"], wrong["kind"], wrong["found"]
    checks: list[Check] = [
        (F.col("value").isNull(), "no-value", F.lit("the value is null")),
        (
            ~F.coalesce(F.col("shape").startswith("OBJECT<"), F.lit(False)),
            "not-json",
            F.lit("the value is not one JSON object in UTF-8"),
        ),
        (found == "VOID", "missing-field", F.concat(name, F.lit(" is missing or null"))),
        (
            wrong.isNotNull(),
            "wrong-type",
            F.concat(name, F.lit(" should be "), kind, F.lit(" and is "), F.substring(found, 1, 40)),
        ),
    ]
    # Nearly all records have exactly these fields, and one comparison accepts them.
    exact = ", ".join(f"{name}: {kind}" for name, kind in sorted(FIELDS.items()))
    return F.when(~F.col("shape").eqNullSafe(f"OBJECT<{exact}>"), _first(checks))


def _type_of(name: str) -> Column:
    """Return the type of a field: VOID for JSON's null and for a missing field."""
    return F.coalesce(F.schema_of_variant(_variant("json", f"$.{name}")), F.lit("VOID"))


def _flaw_of_content(rules: Rules) -> Column:
    """Return why a payment with all fields is bad, or null."""
    amount, currency, paid_at_ms = F.col("amount_paise"), F.col("currency"), F.col("paid_at_ms")
    arrived_ms = F.unix_millis("timestamp")
    checks: list[Check] = [
        (F.col(name) == "", "missing-field", F.lit(f"{name} is empty")) for name in ("payment_id", "merchant")
    ]
    checks += [
        # Order exists only within a partition: that of a merchant's payments, and which of two duplicates is first.
        (
            ~F.col("key").eqNullSafe(F.col("merchant").cast("binary")),
            "wrong-key",
            F.lit("the record's key is not the merchant"),
        ),
        (
            ~amount.between(1, rules.max_amount_paise),
            "amount-out-of-range",
            F.concat(F.lit("amount_paise is "), amount.cast("string")),
        ),
        (
            ~currency.isin(*rules.currencies),
            "unknown-currency",
            F.concat(F.lit("currency is "), F.substring(currency, 1, 40)),
        ),
        (
            # Also true for a record without a timestamp, which cannot be compared.
            ~F.coalesce(paid_at_ms <= arrived_ms + rules.max_ahead_s * 1000, F.lit(False)),
            "from-the-future",
            F.concat(F.lit("paid_at_ms is "), paid_at_ms.cast("string")),
        ),
        (
            paid_at_ms < arrived_ms - rules.max_age_s * 1000,
            "too-old",
            F.concat(F.lit("paid_at_ms is "), paid_at_ms.cast("string")),
        ),
    ]
    return _first(checks)


def _first(checks: list[Check]) -> Column:
    """Return the reason and the detail of the first check that holds, or null."""
    flaws = [
        (condition, F.struct(F.lit(reason).alias("reason"), detail.alias("detail")))
        for condition, reason, detail in checks
    ]
    first = F.when(*flaws[0])
    for condition, flaw in flaws[1:]:
        first = first.when(condition, flaw)
    return first


def dead_letters(parsed: DataFrame) -> DataFrame:
    """Return the bad records unchanged, plus headers with the reason and the origin of each."""
    added = {
        "dead-letter.reason": F.col("reason"),
        "dead-letter.detail": F.col("detail"),
        "dead-letter.topic": F.col("topic"),
        "dead-letter.partition": F.col("partition").cast("string"),
        "dead-letter.offset": F.col("offset").cast("string"),
    }
    headers = [F.struct(F.lit(key).alias("key"), value.cast("binary").alias("value")) for key, value in added.items()]
    own = F.coalesce("headers", F.array().cast("array<struct<key: string, value: binary>>"))
    return parsed.where("reason IS NOT NULL").select(
        "key", "value", F.concat(own, F.array(*headers)).alias("headers"), "timestamp"
    )


def good_payments(parsed: DataFrame) -> DataFrame:
    """Return the good payments with the columns of the table `payments`, duplicates included."""
    return parsed.where("reason IS NULL").select(
        "payment_id",
        "merchant",
        "amount_paise",
        "currency",
        "method",
        "paid_at",
        F.col("timestamp").alias("arrived_at"),
        "partition",
        "offset",
    )


def deduplicate(payments: DataFrame, *, within_s: int) -> DataFrame:
    """Return a stream of payments without duplicates. Drop payments more than `within_s` older than the newest.

    Duplicates share merchant and id, and so a key, a partition, and a task; the first in the log is kept.
    """
    return payments.withWatermark("paid_at", f"{within_s} seconds").dropDuplicatesWithinWatermark(
        ["merchant", "payment_id"]
    )


def merchant_windows(payments: DataFrame, *, window_s: int) -> DataFrame:
    """Return a row for each merchant and window. A stream emits it when the watermark has passed the window."""
    window = F.window("paid_at", f"{window_s} seconds")
    return (
        payments.groupBy("merchant", window)
        .agg(
            F.count("*").alias("payments"),
            F.sum("amount_paise").alias("amount_paise"),
            F.max("amount_paise").alias("largest_paise"),
        )
        .select(
            "merchant",
            F.col("window.start").alias("window_start"),
            F.col("window.end").alias("window_end"),
            "payments",
            "amount_paise",
            "largest_paise",
        )
    )


def alerts(windows: DataFrame, *, rules: Rules) -> DataFrame:
    """Return a record for each rule that a window breaks, with the end of the window as its timestamp."""
    broken = F.filter(
        F.array(
            F.when(F.col("payments") >= rules.many_payments, "many-payments"),
            F.when(F.col("largest_paise") >= rules.large_payment_paise, "large-payment"),
        ),
        lambda rule: rule.isNotNull(),
    )
    # Times are numbers, because text would depend on the session's time zone.
    value = F.struct(
        "rule",
        "merchant",
        F.unix_millis("window_start").alias("window_start_ms"),
        F.unix_millis("window_end").alias("window_end_ms"),
        "payments",
        "amount_paise",
        "largest_paise",
    )
    header = F.struct(F.lit("rule").alias("key"), F.col("rule").cast("binary").alias("value"))
    return windows.withColumn("rule", F.explode(broken)).select(
        F.col("merchant").cast("binary").alias("key"),
        F.to_json(value).cast("binary").alias("value"),
        F.array(header).alias("headers"),
        F.col("window_end").alias("timestamp"),
    )
