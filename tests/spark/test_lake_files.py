"""The task of `to_lake` without Spark: files of many days, and disk errors."""

from __future__ import annotations

import errno
import random
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from crash.faulty import FaultyFiles
from log.workbench import START_MS, QuickFiles
from seeklog import Record, TopicPartition
from seeklog.archive.reading import Origin
from seeklog.errors import DiskFull, NotAccessible
from seeklog.spark.lake import parquet
from seeklog.spark.lake.parquet import Order, Written, date_of, write_piece
from seeklog.spark.read.offsets import Range
from seeklog.spark.read.plan import plan_splits
from spark.workbench import append
from store.workbench import open_store

DAY_MS = 86_400_000
COUNT = 3000


@pytest.fixture(scope="module")
def scattered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    """Records of a hundred days, unordered."""
    chance = random.Random(5)
    records = [
        Record(b"%d" % number, timestamp_ms=START_MS + chance.randrange(100 * DAY_MS)) for number in range(COUNT)
    ]
    root = tmp_path_factory.mktemp("scattered") / "store"
    with open_store(root) as store:
        store.create_topic("orders", partitions=1)
        append(store, "orders", records, batch_records=50)
    return root, records


def order_of(root: Path, lake: Path) -> Order:
    with open_store(root, read_only=True) as store:
        (split,) = plan_splits(store, [Range(TopicPartition("orders", 0), 0, COUNT)])
    return Order(origin=Origin(root=str(root)), lake=str(lake), piece=split.pieces[0], compression="zstd", log_bytes=0)


def names_in(lake: Path) -> list[str]:
    return sorted(path.name for path in lake.rglob("*.parquet*"))


def check_written(written: Written, records: list[Record], lake: Path) -> None:
    found: Counter[int] = Counter()
    for hidden, file in written[1]:
        table = pq.ParquetFile(lake / hidden).read()
        times = [round(moment.timestamp() * 1000) for moment in table.column("timestamp").to_pylist()]
        assert {f"date={date_of(time // DAY_MS)}" for time in times} == {Path(file.path).parent.name}
        assert (min(times), max(times)) == (file.min_timestamp_ms, file.max_timestamp_ms)
        offsets = table.column("offset").to_pylist()
        assert (file.start, file.next_offset, file.rows) == (offsets[0], offsets[-1] + 1, len(offsets))
        assert [records[offset].value for offset in offsets] == table.column("value").to_pylist()
        assert (lake / hidden).stat().st_size == file.size
        found.update(offsets)
    assert found == Counter(range(COUNT))


def test_unordered_times_go_to_the_files_of_their_days(scattered: tuple[Path, list[Record]], tmp_path: Path) -> None:
    root, records = scattered
    written = write_piece(order_of(root, tmp_path), files=QuickFiles())

    check_written(written, records, tmp_path)
    assert len({Path(file.path).parent for _, file in written[1]}) == len(
        {(record.timestamp_ms or 0) // DAY_MS for record in records}
    )


def test_many_days_open_few_files_and_buffer_little(
    scattered: tuple[Path, list[Record]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a day that occurs again after its file was closed gets another file, and no record is lost."""
    monkeypatch.setattr(parquet, "MAX_OPEN", 7)
    monkeypatch.setattr(parquet, "GROUP_ROWS", 11)
    monkeypatch.setattr(parquet, "BUFFER_BYTES", 300)
    monkeypatch.setattr("seeklog.spark.read.scan.BATCH_ROWS", 100)
    root, records = scattered
    written = write_piece(order_of(root, tmp_path), files=QuickFiles())

    check_written(written, records, tmp_path)
    paths = [file.path for _, file in written[1]]
    assert len(paths) == len(set(paths)) > 200
    assert any(path.endswith("-0003.parquet") for path in paths)


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, DiskFull), (errno.EIO, NotAccessible)])
@pytest.mark.parametrize("method", ["write", "sync", "open", "make_directory"])
@pytest.mark.parametrize("at", [1, 5])
def test_disk_error_is_reported_and_leaves_no_file(
    scattered: tuple[Path, list[Record]], tmp_path: Path, number: int, kind: type[Exception], method: str, at: int
) -> None:
    root, _ = scattered
    files = FaultyFiles(QuickFiles(), methods={method}, fail_at=at, error=number)

    with pytest.raises(kind):
        write_piece(order_of(root, tmp_path), files=files)

    assert names_in(tmp_path) == []
