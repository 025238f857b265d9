"""Power losses during an archiving to a directory: the archive is as before or after, and can continue."""

from __future__ import annotations

from itertools import count
from typing import Final

import pytest

from crash.archive_work import ArchivePromise, ArchiveRecorder
from crash.archiving import ARCHIVE, archived, fill, open_on
from crash.restore_work import RestoreRecorder
from crash.sim import Detail, Disk, Rename, SimFiles
from seeklog import Store, TopicPartition, names
from seeklog.archive.manifest import Manifest
from seeklog.archive.reading import read_manifest

DETAIL: Final = Detail(prefixes=2, sectors=2, omissions=6, samples=2)
# Everything but one, each in turn.
HOLES: Final = Detail(prefixes=0, sectors=0, omissions=256, samples=0)
# A lower bound; fewer states would mean that nothing is observed.
STATES_LEAST: Final = 300


def manifest_of(files: SimFiles) -> Manifest:
    manifest = read_manifest(files, ARCHIVE)
    assert manifest is not None
    return manifest


def states_while_archiving(files: SimFiles, detail: Detail, *, include_active: bool = False) -> list[Disk]:
    """Archive, and return the crash states at every step."""
    seen: dict[bytes, Disk] = {}

    def watch(sim: SimFiles) -> None:
        for _, disk in sim.crash_states(detail):
            seen.setdefault(disk.digest(), disk)

    with open_on(files) as store:
        files.on_boundary = watch
        store.archive(ARCHIVE, include_active=include_active)
        files.on_boundary = None
    return list(seen.values())


def check_all_states(files: SimFiles, *, before: list[int] | None, include_active: bool = False) -> int:
    """Archive, and judge the crash states at every step; return their number."""
    seen = states_while_archiving(files, DETAIL, include_active=include_active)
    after = archived(files)
    assert after is not None
    assert after[: len(before or ())] == (before or [])
    for disk in seen:
        left = SimFiles(disk)
        assert archived(left) in (before, after)
        with open_on(left) as store:
            store.archive(ARCHIVE, include_active=include_active)
        assert archived(left) == after
    return len(seen)


@pytest.mark.id("archive-crash-states")
def test_archive_is_old_or_new_after_any_crash_and_next_run_completes() -> None:
    """Goal: the first archiving, one that adds segments, and one without new segments."""
    files = SimFiles(Disk.of({}, directories=["/data"]))
    with open_on(files) as store:
        store.create_topic("orders", partitions=1)
        fill(store, 5)
    states = check_all_states(files, before=None)
    first = archived(files)
    with open_on(files) as store:
        fill(store, 4)
    states += check_all_states(files, before=first)
    second = archived(files)
    assert second is not None
    assert len(second) > len(first or ()) > 0
    states += check_all_states(files, before=second)
    assert states >= STATES_LEAST


@pytest.mark.id("backup-crash-states")
def test_backup_is_old_or_new_after_any_crash_and_next_run_completes() -> None:
    """Goal: one with a partial segment, one that replaces it by a longer one, and one by a sealed one."""
    files = SimFiles(Disk.of({}, directories=["/data"]))
    before: list[int] | None = None
    states = 0
    with open_on(files) as store:
        store.create_topic("orders", partitions=1)
    for batches in (1, 1, 3):
        with open_on(files) as store:
            fill(store, batches)
        states += check_all_states(files, before=before, include_active=True)
        before = archived(files)
    assert before == list(range(10))
    assert states >= STATES_LEAST


@pytest.mark.id("restore-crash-states")
def test_restored_directory_is_a_whole_store_or_none_after_any_crash() -> None:
    """Goal: some operations; the proof cuts power at each."""
    recorder = RestoreRecorder(SimFiles)
    seen: dict[bytes, list[str]] = {}
    operations = count()

    def judge(sim: SimFiles) -> None:
        if recorder.promise.whole is None or next(operations) % 47:
            return
        for label, disk in sim.crash_states(DETAIL):
            if disk.digest() not in seen:
                seen[disk.digest()] = [f"{label}: {violation}" for violation in recorder.promise.violations(disk)]

    recorder.sim.on_boundary = judge
    recorder.run()
    assert [violation for found in seen.values() for violation in found] == []
    assert len(seen) >= STATES_LEAST // 10


@pytest.mark.id("archive-removal-waits-for-sync")
def test_replaced_files_stay_until_new_manifest_is_durable() -> None:
    """Goal: a kill right after the rename of the manifest, then a power loss during the next archiving."""

    class Killed(BaseException):
        pass

    def kill(sim: SimFiles) -> None:
        last = sim.pending[-1] if sim.pending else None
        if isinstance(last, Rename) and last.target == names.ARCHIVE:
            raise Killed

    def append_keyed(store: Store) -> None:
        with store._table.writing(TopicPartition("orders", 0)) as log:
            for one in range(log.log_end_offset, log.log_end_offset + 20):
                log.append(b"%0100d" % one, key=b"%d" % (one % 7))
            log.flush()

    files = SimFiles(Disk.of({}, directories=["/data"]))
    with open_on(files) as store:
        store.create_topic("orders", partitions=1, config={"cleanup.policy": "compact"})
        append_keyed(store)
        store.archive(ARCHIVE)
        append_keyed(store)
        store.compact("orders")
    before = archived(files)
    store = open_on(files)
    files.on_boundary = kill
    with pytest.raises(Killed):
        store.archive(ARCHIVE)
    files.on_boundary = None
    files.process_crash()
    assert manifest_of(files).replaced
    seen = states_while_archiving(files, HOLES)
    after = archived(files)
    assert len(seen) > 20
    assert all(archived(SimFiles(disk)) in (before, after) for disk in seen)


def test_source_with_a_gap_from_a_crash_is_archived_up_to_the_gap() -> None:
    """Goal: a segment's name is lost and later names survive, because none was synced: recovery cuts these."""
    recorder = ArchiveRecorder(SimFiles)
    left: dict[bytes, Disk] = {}

    def watch(sim: SimFiles) -> None:
        for label, disk in sim.crash_states(HOLES):
            if label == "all but [link 00000000000000000002.log]" and not recorder.promise.possible[0]:
                left.setdefault(disk.digest(), disk)

    recorder.sim.on_boundary = watch
    recorder.run()
    promise = ArchivePromise(is_filled=True)

    assert [violation for disk in left.values() for violation in promise.violations(disk)] == []
    assert len(left) > 10
