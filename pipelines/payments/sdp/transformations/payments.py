"""The tables and sinks of the payments pipeline. Spark derives their dependencies.

A declarative pipeline has no `foreachBatch` to sort alerts in, so a plain sink writes them. Each alert is written once,
but the alerts of a batch are in no particular order.
"""

from __future__ import annotations

from pipelines.payments import transformations
from pipelines.payments.rules import Rules, Topics
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
RULES, TOPICS = Rules(), Topics()
STORE = str(spark.conf.get("spark.payments.store"))


def parsed() -> DataFrame:
    """Return the parsed records of the topic. Not a view, because Spark cannot deduplicate an unresolved view."""
    records = (
        spark.readStream.format("seeklog")
        .option("path", STORE)
        .option("subscribe", TOPICS.payments)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", str(spark.conf.get("spark.payments.maxOffsetsPerTrigger")))
        .load()
    )
    return transformations.parse(records, rules=RULES)


@dp.table
def payments() -> DataFrame:
    good = transformations.good_payments(parsed())
    return transformations.deduplicate(good, within_s=RULES.remember_s)


@dp.table
def merchant_windows() -> DataFrame:
    good = transformations.good_payments(parsed())
    unique = transformations.deduplicate(good, within_s=RULES.lateness_s)
    return transformations.merchant_windows(unique, window_s=RULES.window_s)


dp.create_sink("dead_letters", "seeklog", {"path": STORE, "topic": TOPICS.dead_letters})
dp.create_sink("alerts", "seeklog", {"path": STORE, "topic": TOPICS.alerts})


@dp.append_flow(target="dead_letters")
def to_dead_letters() -> DataFrame:
    return transformations.dead_letters(parsed())


@dp.append_flow(target="alerts")
def to_alerts() -> DataFrame:
    return transformations.alerts(spark.readStream.table("merchant_windows"), rules=RULES)
