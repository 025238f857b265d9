"""Nothing is deleted unasked: records stay in topics that nobody gave a retention, in any process that opens them."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

import seeklog
from interop.releases import VERSIONS, unpack
from log.workbench import FakeClock, QuickFiles, TickingClock
from seeklog import Record, Store
from store.workbench import read

YEAR_2020_MS = 1_577_836_800_000
FIVE_MINUTES_MS = 5 * 60_000
CENTURY_MS = 100 * 365 * 86_400_000


def open_plain(root: Path, *, clock: FakeClock, **words: Any) -> Store:
    """Open a store as a program does that configures nothing, but without its threads."""
    return seeklog.open(root, clock=clock, files=QuickFiles(), background=False, **words)


def fill_with_2020(store: Store, topic: str, count: int = 1000) -> list[bytes]:
    values = [b"%d" % number for number in range(count)]
    with store.writer(topic, 0) as log:
        log.append_many([Record(value, timestamp_ms=YEAR_2020_MS + at) for at, value in enumerate(values)])
        log.roll()
    return values


@pytest.mark.id("nothing-deleted-unasked")
def test_old_records_of_unconfigured_topic_outlive_maintenance(root: Path) -> None:
    clock = TickingClock()
    with open_plain(root, clock=clock) as store:
        store.create_topic("payments", partitions=1)
        values = fill_with_2020(store, "payments")
        clock.advance(FIVE_MINUTES_MS)

        assert store.maintain() == 0

        assert read(store, "payments") == values
        assert not store.log("payments", 0).plan_retention().segment_count


@pytest.mark.id("reader-deletes-nothing")
def test_process_that_only_reads_deletes_nothing(root: Path) -> None:
    clock = TickingClock()
    with open_plain(root, clock=clock) as store:
        store.create_topic("payments", partitions=1)
        values = fill_with_2020(store, "payments")
    with open_plain(root, clock=clock) as reader:
        with reader.consumer(["payments"], auto_offset_reset="earliest", consumer_timeout_ms=1) as consumer:
            assert [record.value for record in consumer] == values
        clock.advance(FIVE_MINUTES_MS)
        assert reader.maintain() == 0

    with open_plain(root, clock=clock, read_only=True) as store:
        assert read(store, "payments") == values


def test_reader_obeys_retention_that_topic_was_given(root: Path) -> None:
    clock = TickingClock()
    with open_plain(root, clock=clock) as store:
        store.create_topic("payments", partitions=1, config={"retention.ms": 1000})
        fill_with_2020(store, "payments")

    with open_plain(root, clock=clock) as reader:
        assert reader.maintain() == 1
        assert read(reader, "payments") == []


@pytest.mark.id("deletion-names-its-setting")
@pytest.mark.parametrize(
    ("own", "default", "cause"),
    [
        ({"retention.ms": 1000}, {}, "retention.ms=1000 of topic payments"),
        ({}, {"retention.ms": 1000}, "retention.ms=1000 of the store's default"),
        ({"retention.bytes": 0}, {}, "retention.bytes=0 of topic payments"),
    ],
)
def test_deletion_by_retention_names_who_asked_for_it(
    root: Path, caplog: pytest.LogCaptureFixture, own: dict[str, int], default: dict[str, int], cause: str
) -> None:
    clock = TickingClock()
    with open_plain(root, clock=clock, config=default) as store:
        store.create_topic("payments", partitions=1, config=own)
        fill_with_2020(store, "payments")
        with caplog.at_level(logging.INFO, "seeklog"):
            assert store.maintain() == 1

    (line,) = [line for line in caplog.messages if "retention" in line]
    assert line.startswith(f"{root}/payments-0: retention deleted offsets 0 to 999 (")
    assert line.endswith(cause)


def catalog_of(root: Path) -> dict[str, dict[str, Any]]:
    lines = (root / "seeklog-topics").read_text().splitlines()[1:-1]
    return {entry["topic"]: entry["config"] for entry in map(json.loads, lines)}


@pytest.mark.parametrize("version", VERSIONS)
def test_catalog_of_release_stores_only_settings_that_were_given(version: str, tmp_path: Path) -> None:
    unpack(version, tmp_path)

    configs = catalog_of(tmp_path / "store")

    assert configs["orders"] == {}
    assert not any("retention.ms" in config for config in configs.values())


@pytest.mark.id("release-keeps-everything")
@pytest.mark.parametrize("version", VERSIONS)
def test_topics_of_release_keep_everything_a_century_later(version: str, tmp_path: Path) -> None:
    unpack(version, tmp_path)
    shutil.rmtree(tmp_path / "archive")
    clock = TickingClock()
    clock.jump_to(YEAR_2020_MS + CENTURY_MS)
    with open_plain(tmp_path / "store", clock=clock) as store:
        before = {
            (name, number): read(store, name, number)
            for name in store.topics()
            for number in store.topic(name).partitions
            if not store.topic(name).config.compacts
        }
        assert sum(map(len, before.values())) > 10
        offsets = store.lag(store.groups()[0])

        assert store.maintain() == 0

        assert {at: read(store, *at) for at in before} == before
        assert store.lag(store.groups()[0]) == offsets
