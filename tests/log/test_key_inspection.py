"""Inspecting key index files, and rebuilding them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from log.workbench import START_MS, QuickFiles, config_of, contents, open_log
from record.batches import batch_of, varint
from seeklog import LogConfig, Record
from seeklog.log.check.finding import Kind, Severity
from seeklog.log.check.inspection import inspect_partition
from seeklog.log.check.reindex import rebuild_index, recover_or_rebuild, renew_index, validate_index
from seeklog.log.keys.index import encode_key_index, with_crcs
from seeklog.log.segment import seal_of
from seeklog.record.key_table import KeyTable

FILES = QuickFiles()
CONFIG = config_of(segment_bytes=2_000, key_index="seal")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of keyed records in several segments; all but the last have key indexes."""
    directory = tmp_path / "log"
    with open_log(directory, segment_bytes=2_000, key_index="seal") as log:
        for number in range(60):
            log.append_many([Record(b"%050d" % number, key=b"k%d" % (number % 17), timestamp_ms=START_MS + number)])
        log.flush()
        log.make_key_indexes()
    assert len(key_indexes(directory)) > 2
    return directory


def key_indexes(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.keyindex"))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def lie(path: Path) -> None:
    """Change the offset of an entry, and correct the CRCs."""
    # The last offset is before the CRC of the only page and the CRC of the whole file.
    data = bytearray(path.read_bytes()[:-8])
    data[-1] ^= 1
    path.write_bytes(with_crcs(bytes(data)))


DAMAGES: dict[str, tuple[Callable[[Path], object], Severity, str]] = {
    "flipped": (flip, Severity.ERROR, "fails its CRC"),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-1]), Severity.ERROR, "its size"),
    "empty": (lambda path: path.write_bytes(b""), Severity.ERROR, "0 bytes"),
    "nonsense": (lambda path: path.write_bytes(b"x" * 500), Severity.ERROR, "does not start"),
    "another's": (
        lambda path: path.write_bytes(key_indexes(path.parent)[1].read_bytes()),
        Severity.WARNING,
        "another state",
    ),
    "wrong": (lie, Severity.ERROR, "does not match the log"),
}


def inspect(directory: Path, config: LogConfig = CONFIG) -> list[tuple[Kind, Severity, str]]:
    found = inspect_partition(str(directory), config=config, files=FILES)
    return [(one.kind, one.severity, Path(one.path).name) for one in found]


def test_correct_key_indexes_are_not_changed(log: Path) -> None:
    before = contents(log)
    assert inspect(log) == []
    for path in log.glob("*.log"):
        assert validate_index(path, files=FILES) == []
        assert renew_index(path, config=CONFIG, files=FILES).done == "unchanged"
    assert contents(log) == before


@pytest.mark.id("key-index-rebuilt")
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_or_wrong_key_index_is_reported_and_rebuilt(log: Path, damage: str) -> None:
    before = contents(log)
    do, severity, reason = DAMAGES[damage]
    first = key_indexes(log)[0]
    segment = first.with_suffix(".log")
    for renew in (rebuild_index, recover_or_rebuild, renew_index):
        do(first)
        assert inspect(log) == [(Kind.KEY_INDEX, severity, first.name)]
        (problem,) = validate_index(segment, files=FILES)
        assert (Path(problem.path).name, problem.entry) == (first.name, None)
        assert reason in problem.reason
        renew(segment, config=CONFIG, files=FILES)
        assert contents(log) == before


def test_missing_key_index_is_not_reported(log: Path) -> None:
    first = key_indexes(log)[0]
    first.unlink()
    assert inspect(log) == []
    assert validate_index(first.with_suffix(".log"), files=FILES) == []
    assert renew_index(first.with_suffix(".log"), config=CONFIG, files=FILES).key_sizes == (None, None)
    assert not first.exists()


def test_key_index_of_damaged_log_is_not_reported(log: Path) -> None:
    first = key_indexes(log)[0]
    flip(first.with_suffix(".log"))
    assert Kind.KEY_INDEX not in {kind for kind, _, _ in inspect(log)}
    flip(first)
    assert Kind.KEY_INDEX in {kind for kind, _, _ in inspect(log)}


def test_key_index_of_damaged_log_without_seal_is_not_reported(log: Path) -> None:
    """The state of the segment when the index was built is not known any more."""
    first = key_indexes(log)[0]
    first.with_suffix(".seal").unlink()
    flip(first.with_suffix(".log"))
    assert Kind.KEY_INDEX not in {kind for kind, _, _ in inspect(log)}


def test_key_index_of_unreadable_records_is_reported(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append_batches(batch_of(varint(100) + b"a record that is shorter"))
        state = log._source.view.segments[0].scan_all()
    index = tmp_path / f"{0:020d}.keyindex"
    index.write_bytes(encode_key_index(KeyTable(0), seal_of(state, sealed_at_ms=0)))

    assert inspect(tmp_path) == [(Kind.KEY_INDEX, Severity.ERROR, index.name)]
    # It is not rebuilt: reading the records reports the damage.
    size = index.stat().st_size
    assert renew_index(tmp_path / f"{0:020d}.log", config=CONFIG, files=FILES).key_sizes == (size, size)


def test_key_index_of_records_above_size_limit_is_not_checked(tmp_path: Path) -> None:
    """A batch that expands past the limit is not damage, and only a reader with a higher limit can see its keys."""
    settings = {"segment_bytes": 2_000, "key_index": "seal", "compression_type": "gzip"}
    with open_log(tmp_path, **settings) as log:
        for number in range(40):
            log.append(bytes(5_000), key=b"k%d" % number)
        log.flush()
        log.make_key_indexes()
    index = key_indexes(tmp_path)[0]
    lie(index)
    assert inspect(tmp_path) == [(Kind.KEY_INDEX, Severity.ERROR, index.name)]
    wary = replace(CONFIG, max_decompressed_bytes=4_000, max_message_bytes=4_000)
    assert inspect(tmp_path, wary) == []
    before = contents(tmp_path)
    assert renew_index(index.with_suffix(".log"), config=wary, files=FILES).done == "unchanged"
    assert contents(tmp_path) == before


def test_old_and_new_size_of_key_index_are_reported(log: Path) -> None:
    first = key_indexes(log)[0]
    size = first.stat().st_size
    first.write_bytes(b"short")
    renewed = renew_index(first.with_suffix(".log"), config=CONFIG, files=FILES)
    assert (renewed.done, renewed.key_sizes) == ("rebuilt", (5, size))
