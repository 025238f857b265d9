"""The `.snapshot` files of real brokers: read, written identically, and rebuilt from the logs."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from seeklog import LogReader
from seeklog.log.producers import ProducerBatch, ProducerEntry, ProducerState
from seeklog.log.side.producer_snapshot import decode_snapshot, encode_snapshot
from seeklog.record.control import decode_end_marker

GOLDEN = Path(__file__).parent / "golden" / "broker"
NAMES = sorted(path.name.removesuffix(".tar.gz") for path in GOLDEN.glob("*.tar.gz"))
# Nothing expires: these producers have been idle since the files were written.
FOREVER_MS = 2**62


@pytest.fixture(scope="module", params=NAMES)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("brokers")
    with tarfile.open(GOLDEN / f"{request.param}.tar.gz") as archive:
        archive.extractall(root, filter="data")
    return root / str(request.param)


def snapshots_of(directory: Path) -> dict[int, list[ProducerEntry]]:
    """Return the producers in every snapshot of a partition by its offset."""
    found = {}
    for path in sorted(directory.glob("*.snapshot")):
        entries = decode_snapshot(path.read_bytes())
        assert entries is not None, path
        found[int(path.stem)] = entries
    return found


def test_every_snapshot_is_rewritten_byte_for_byte(broker: Path) -> None:
    paths = [*broker.glob("*/*.snapshot"), *broker.glob("*/*.snapshot.deleted")]
    sizes = []
    for path in paths:
        entries = decode_snapshot(path.read_bytes())
        assert entries is not None, path
        assert encode_snapshot(entries) == path.read_bytes(), path
        sizes.append(len(entries))
    assert len(paths) >= 10
    assert max(sizes) >= 20, "some with many producers"
    assert 0 in sizes
    assert 1 in sizes


def test_state_from_the_log_equals_the_brokers_snapshot(broker: Path) -> None:
    """Goal: our rules make of a log, its transactions and control batches, the very state that the broker had."""
    compared = 0
    for directory in sorted(path for path in broker.iterdir() if path.is_dir()):
        snapshots = snapshots_of(directory)
        if not any(snapshots.values()):
            continue
        with LogReader(directory) as log:
            if log.log_start_offset:
                continue  # earlier producers are still in the snapshot, but no longer in the log
            batches = list(log.read_batches(0, max_bytes=1 << 30, uncommitted=True))
        for offset, expected in snapshots.items():
            state = ProducerState(expiration_ms=FOREVER_MS)
            for batch in batches:
                if batch.base_offset < offset:
                    marker = decode_end_marker(batch.raw) if batch.header.is_control else None
                    state.note([ProducerBatch(batch.header, marker)], now_ms=0)
            assert encode_snapshot(sorted(state)) == encode_snapshot(sorted(expected)), f"{directory.name} at {offset}"
            compared += bool(expected)
    assert compared >= 3
