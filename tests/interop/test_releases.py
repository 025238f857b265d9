"""Files written by a release of seeklog are opened by every later release and read the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from interop.releases import GOLDEN, VERSIONS, contents, description, look, unpack
from seeklog import Log, names

if TYPE_CHECKING:
    from pathlib import Path

every_release = pytest.mark.parametrize("version", VERSIONS)
KINDS = (
    names.LOG,
    names.OFFSET_INDEX,
    names.TIME_INDEX,
    names.SEAL,
    names.KEY_INDEX,
    names.SNAPSHOT,
    names.TRANSACTION_INDEX,
    names.TORN,
    names.DAMAGED,
    names.CHECKPOINT,
    names.WATERMARK,
    names.LOSSES,
    names.LEADER_EPOCHS,
    names.PARTITION_METADATA,
    names.TOPICS,
    names.ARCHIVE,
    names.RECOVERY_POINTS,
    names.LOG_START_OFFSETS,
    names.HIGH_WATERMARKS,
    names.CLEANED_OFFSETS,
)
BEGINNINGS = (names.STAGED, names.TRANSACTION, names.PRODUCER)


@pytest.fixture
def release(version: str, tmp_path: Path) -> Path:
    unpack(version, tmp_path)
    return tmp_path


@every_release
def test_collection_has_every_kind_of_file(release: Path) -> None:
    found = [path.rpartition("/")[2] for path in contents(release)]

    assert [kind for kind in KINDS if not any(name.endswith(kind) for name in found)] == []
    assert [start for start in BEGINNINGS if not any(name.startswith(start) for name in found)] == []


def test_collection_is_complete_and_small() -> None:
    """Goal: notice a missing file, and keep permanent files small."""
    assert "0.1.0" in VERSIONS
    assert all(path.stat().st_size < 60_000 for path in GOLDEN.iterdir())


@pytest.mark.id("release-read")
@every_release
def test_reader_finds_what_the_release_found_and_changes_nothing(version: str, release: Path) -> None:
    before = contents(release)

    assert look(str(release), read_only=True) == description(version)["read"]
    assert contents(release) == before


@pytest.mark.id("release-written")
@every_release
def test_writer_finds_the_same_and_finishes_the_transaction(version: str, release: Path) -> None:
    before = contents(release)

    assert look(str(release), read_only=False) == description(version)["written"]
    after = contents(release)
    for path, data in before.items():
        if path.endswith((names.LOG, names.TORN, names.DAMAGED)):
            # Identical; the records of the transaction follow.
            assert after[path].startswith(data), path
    assert not any(path.rpartition("/")[2].startswith(names.STAGED) for path in after)


@every_release
def test_appended_records_follow(version: str, release: Path) -> None:
    end = description(version)["read"]["torn-0"]["log_end_offset"]

    with Log(release / "torn-0", background=False) as log:
        assert log.append(b"behind") == end
        assert [record.value for record in log.read(end)] == [b"behind"]
