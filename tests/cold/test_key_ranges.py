"""Key lookups over a URL: few requests, for parts of the key index; a damaged page is never trusted."""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import seeklog
from cold.s3_server import BUCKET, S3Server
from log.workbench import START_MS
from seeklog import LogReader, Record, Store, TopicPartition, names
from seeklog.files.remote import RemoteFiles
from seeklog.log.keys import ranges
from seeklog.log.keys.index import PAGE_SIZE, encode_key_index, open_key_index
from seeklog.log.keys.ranges import RangedKeys, open_ranged
from seeklog.log.side.seal import read_seal
from seeklog.record.key_hash import hash_key
from seeklog.record.key_table import KeyTable
from store.workbench import open_store

# An index with 14.5 bytes per key: 870 KB.
KEYS = 60_000


def key_of(number: int) -> bytes:
    return b"customer-%d" % number


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one sealed segment of many keys, each in it once, and its key index."""
    root = tmp_path_factory.mktemp("keyed") / "store"
    with open_store(root, segment_bytes=1_500_000, key_index="seal") as store:
        store.create_topic("customers", partitions=1)
        with store._table.writing(TopicPartition("customers", 0)) as log:
            for first in range(0, KEYS + 20_000, 1000):
                log.append_many(
                    [
                        Record(b"v", key=key_of(number), timestamp_ms=START_MS + number)
                        for number in range(first, first + 1000)
                    ]
                )
            log.flush()
            log.make_key_indexes()
    return root


@pytest.fixture
def archive(root: Path, s3: S3Server) -> Iterator[tuple[str, Store]]:
    url = f"s3://{BUCKET}/keyed"
    with open_store(root, read_only=True) as store:
        store.archive(url, storage_options=s3.options)
    with seeklog.open(url, storage_options=s3.options, read_only=True) as cold:
        s3.traffic.clear()
        yield url, cold


def index_path(root: Path) -> Path:
    return next(path for path in sorted((root / "customers-0").glob("*.keyindex")))


@pytest.mark.id("key-requests")
def test_key_is_found_with_few_requests_for_parts_of_index(
    archive: tuple[str, Store], s3: S3Server, root: Path
) -> None:
    size = index_path(root).stat().st_size
    assert size > 500_000
    log = archive[1].log("customers", 0)
    s3.traffic.clear()
    found = log.latest_for_key(key_of(1234))
    assert found is not None
    assert found.offset == 1234
    # Head, page CRCs, filter, hashes, offsets; two indexes of the log and a range of it.
    assert len(s3.traffic.of("GET", ".keyindex")) <= 5
    assert len(s3.traffic.requests) <= 8
    assert s3.traffic.size < size // 2
    s3.traffic.clear()
    assert log.latest_for_key(key_of(40_000)).offset == 40_000  # type: ignore[union-attr]
    assert len(s3.traffic.of("GET", ".keyindex")) <= 3
    s3.traffic.clear()
    assert not log.contains_key(b"nobody")
    # The block of the filter.
    assert len(s3.traffic.requests) <= 1


def test_every_key_is_found_as_in_whole_index(root: Path, memory: str) -> None:
    """Goal: by ranges and mapped, present and absent, first and last hash, the offsets are the same."""
    path = index_path(root)
    seal = read_seal(seeklog.files.OsFiles(), str(path.parent), int(path.name[:20]))
    assert seal is not None
    data = path.read_bytes()
    whole = open_key_index(data, seal)
    ranged = ranged_of(memory, data, seal)
    chance = random.Random(5)
    hashes = [hash_key(key_of(chance.randrange(2 * KEYS)))[0] for _ in range(500)]
    for first in (*hashes, 0, 1, 2**64 - 1, *(one + 1 for one in hashes[:50])):
        assert tuple(ranged.offsets_of(first)) == tuple(whole.offsets_of(first))  # type: ignore[union-attr]


def ranged_of(memory: str, data: bytes, seal: Any) -> RangedKeys:
    import fsspec

    fsspec.filesystem("memory").pipe_file("/cold/index.keyindex", data)
    found = open_ranged(RemoteFiles(memory), f"{memory}/index.keyindex", seal)
    assert isinstance(found, RangedKeys), found
    return found


@pytest.mark.parametrize("count", [0, 1, 2, 300, 5000])
def test_small_indexes_can_be_read_by_ranges(
    root: Path, memory: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "MAX_WHOLE_BYTES", 0)
    path = index_path(root)
    seal = read_seal(seeklog.files.OsFiles(), str(path.parent), int(path.name[:20]))
    assert seal is not None
    from seeklog.record.batch import encode_batch

    table = KeyTable(0)
    if count:
        batch = encode_batch(
            [Record(b"", key=key_of(number), timestamp_ms=1) for number in range(count)], base_offset=0
        )
        assert table.add(batch, 0, True, 2**62, 1 << 30)
    data = encode_key_index(table, seal)
    ranged, whole = ranged_of(memory, data, seal), open_key_index(data, seal)
    for number in range(count + 20):
        first = hash_key(key_of(number))[0]
        assert tuple(ranged.offsets_of(first)) == tuple(whole.offsets_of(first))  # type: ignore[union-attr]
        assert bool(ranged.offsets_of(first)) >= (number < count)


def test_hash_far_from_its_expected_position_is_found(root: Path, memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the range read around the guessed position of a hash grows until it holds all of its entries."""
    monkeypatch.setattr(ranges, "isqrt", lambda _: -3)  # two entries on either side at first
    path = index_path(root)
    seal = read_seal(seeklog.files.OsFiles(), str(path.parent), int(path.name[:20]))
    assert seal is not None
    ranged = ranged_of(memory, path.read_bytes(), seal)
    for number in range(0, 40_000, 1000):
        assert number in ranged.offsets_of(hash_key(key_of(number))[0])


def test_false_positive_of_filter_has_no_offsets(root: Path, memory: str) -> None:
    path = index_path(root)
    seal = read_seal(seeklog.files.OsFiles(), str(path.parent), int(path.name[:20]))
    assert seal is not None
    data = path.read_bytes()
    whole, ranged = open_key_index(data, seal), ranged_of(memory, data, seal)
    chance = random.Random(1)
    strangers = (chance.getrandbits(64) for _ in range(100_000))
    wrong = next(first for first in strangers if whole.may_hold(first))  # type: ignore[union-attr]

    assert tuple(ranged.offsets_of(wrong)) == ()


def test_index_of_another_segment_is_reported(root: Path, memory: str) -> None:
    path = index_path(root)
    seal = read_seal(seeklog.files.OsFiles(), str(path.parent), int(path.name[:20]))
    assert seal is not None
    import fsspec

    fsspec.filesystem("memory").pipe_file("/cold/index.keyindex", path.read_bytes())
    other = replace(seal, next_offset=seal.next_offset + 1, record_count=seal.record_count + 1)
    found = open_ranged(RemoteFiles(memory), f"{memory}/index.keyindex", other)
    assert isinstance(found, str)
    assert "another state" in found


def test_small_index_is_fetched_whole(memory: str, root: Path) -> None:
    import fsspec

    path = index_path(root)
    seal = read_seal(seeklog.files.OsFiles(), str(path.parent), int(path.name[:20]))
    assert seal is not None
    fsspec.filesystem("memory").pipe_file("/cold/index.keyindex", bytes(ranges.MAX_WHOLE_BYTES))
    assert open_ranged(RemoteFiles(memory), f"{memory}/index.keyindex", seal) is None


@pytest.mark.id("key-page-damaged")
def test_damaged_index_page_is_reported_and_key_still_found(
    root: Path, s3: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: a filter that lost a bit would deny a key, so no page is trusted without its CRC."""
    url = f"s3://{BUCKET}/damaged-keys"
    with open_store(root, read_only=True) as store:
        store.archive(url, storage_options=s3.options)
    place = f"{url}/customers-0/{index_path(root).name}".removeprefix("s3://")
    whole = s3.system.cat_file(place)
    for at in (50, 48 + 20 * PAGE_SIZE, len(whole) // 2, len(whole) - 300):
        damaged = bytearray(whole)
        damaged[at : at + 64] = bytes(64)
        s3.system.pipe_file(place, bytes(damaged))
        with seeklog.open(url, storage_options=s3.options, read_only=True) as cold:
            log = cold.log("customers", 0)
            caplog.clear()
            with caplog.at_level(logging.WARNING, "seeklog"):
                for number in range(0, 40_000, 400):
                    assert log.latest_for_key(key_of(number)).offset == number  # type: ignore[union-attr]
        assert "rebuilding the key index" in caplog.text


class Unanswering(RemoteFiles):
    """A storage that does not return the size of a key index while `is_down`."""

    is_down = True

    def file_size(self, path: str) -> int:
        if self.is_down and path.endswith(names.KEY_INDEX):
            raise OSError(errno.EIO, "on purpose", path)
        return super().file_size(path)


def test_unreadable_small_index_at_url_is_rebuilt(
    tmp_path: Path, memory: str, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(tmp_path / "store", segment_bytes=20_000, key_index="seal") as store:
        store.create_topic("customers", partitions=1)
        with store.writer("customers", 0) as log:
            for number in range(1000):
                log.append(b"v", key=key_of(number))
            log.flush()
            log.make_key_indexes()
        store.archive(memory)
    files = Unanswering(memory)
    for is_down in (True, False):
        files.is_down = is_down
        caplog.clear()
        with LogReader(f"{memory}/customers-0", files=files) as log:
            for number in (0, 1, 500):
                found = log.latest_for_key(key_of(number))
                assert found is not None
                assert found.offset == number
        assert ("rebuilding the key index: it cannot be read" in caplog.text) == is_down
