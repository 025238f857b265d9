"""`option("key", …)` and `option("keys", …)`: only the latest record of each key is read."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from seeklog.errors import InvalidConfig
from seeklog.spark.read.offsets import batch_ranges, key_ranges
from seeklog.spark.read.options import parse_read_options, parse_stream_options, parse_table_options
from seeklog.spark.read.plan import plan_splits
from store.workbench import open_store

BASE = {"path": "/store", "subscribe": "orders"}
BINARY = b"\x00\xff"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic of two partitions and many segments; the last record of key-n is n + 900, b"gone" is a tombstone."""
    path = tmp_path_factory.mktemp("keys") / "store"
    with open_store(path, segment_bytes=4000, key_index="seal") as store:
        store.create_topic("orders", partitions=2)
        with store.producer(batch_bytes=500) as producer:
            for number in range(1000):
                producer.send("orders", b"%d" % number, key=b"key-%d" % (number % 100))
            producer.send("orders", b"here", key=b"gone")
            producer.send("orders", None, key=b"gone")
            producer.send("orders", b"binary", key=BINARY)
            producer.send("orders", b"one", key=b"both", partition=0)
            producer.send("orders", b"two", key=b"both", partition=1)
        store.maintain()
    assert list(path.rglob("*.keyindex"))
    return path


def values(spark: SparkSession, path: Path, **options: str) -> dict[bytes, list[bytes | None]]:
    frame = spark.read.format("seeklog").options(path=str(path), subscribe="orders", **options).load()
    found: dict[bytes, list[bytes | None]] = {}
    for row in frame.select("key", "value").collect():
        found.setdefault(bytes(row.key), []).append(None if row.value is None else bytes(row.value))
    return {key: sorted(each, key=str) for key, each in found.items()}


def test_latest_record_of_a_key_is_read(spark: SparkSession, path: Path) -> None:
    assert values(spark, path, key="key-7") == {b"key-7": [b"907"]}
    assert values(spark, path, key="stranger") == {}


def test_latest_record_of_each_key_is_read(spark: SparkSession, path: Path) -> None:
    keys = ["key-1", "key-99", "gone", "both", "stranger", {"base64": base64.b64encode(BINARY).decode()}, "key-1"]
    assert values(spark, path, keys=json.dumps(keys)) == {
        b"key-1": [b"901"],
        b"key-99": [b"999"],
        b"gone": [None],
        b"both": [b"one", b"two"],
        BINARY: [b"binary"],
    }


def test_latest_record_is_the_latest_between_start_and_end(path: Path) -> None:
    with open_store(path, read_only=True) as store:
        log = store.log("orders", 0)
        rows = list(log.scan())
        key = next(row.key for row in rows if row.key is not None and row.key.startswith(b"key"))
        ends = [row.offset for row in rows if row.key == key]
        for start, end in [(0, ends[3]), (0, ends[3] + 1), (ends[2], ends[5]), (ends[-1] + 1, len(rows))]:
            options = parse_read_options(
                {
                    **BASE,
                    "key": key.decode(),
                    "startingOffsets": json.dumps({"orders": {"0": start}}),
                    "endingOffsets": json.dumps({"orders": {"0": end}}),
                }
            )
            found = key_ranges(store, [one for one in batch_ranges(store, options) if not one[0][1]], options.keys)
            inside = [offset for offset in ends if start <= offset < end]
            assert [one.start for one in found] == inside[-1:]


def test_splits_have_only_the_batches_of_the_keys(path: Path) -> None:
    options = parse_read_options({**BASE, "path": str(path), "keys": '["key-1", "key-2", "key-3"]'})
    with open_store(path, read_only=True) as store:
        (split,) = plan_splits(store, key_ranges(store, batch_ranges(store, options), options.keys))
        assert [piece.stop - piece.start for piece in split.pieces] == [1, 1, 1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"key": "a", "keys": "[]"}, "options key and keys both"),
        ({"keys": "[]"}, "option keys is"),
        ({"keys": "a"}, "option keys is"),
        ({"keys": '{"a": 1}'}, "option keys is"),
        ({"keys": "[1]"}, "option keys is"),
        ({"keys": "[null]"}, "option keys is"),
        ({"keys": '[{"base64": "%"}]'}, "option keys is"),
        ({"keys": '[{"hex": "00"}]'}, "option keys is"),
        ({"key": " "}, "option key is"),
    ],
)
def test_invalid_keys_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        parse_read_options({**BASE, **settings})


@pytest.mark.parametrize("word", ["key", "keys"])
def test_streams_and_tables_refuse_key_options(word: str) -> None:
    with pytest.raises(InvalidConfig, match=f"option {word} has no effect here: it applies to spark.read only"):
        parse_stream_options({**BASE, word: '["a"]'})
    with pytest.raises(InvalidConfig, match=f"option {word} has no effect here: a metadata table"):
        parse_table_options({**BASE, "table": "segments", word: '["a"]'})
