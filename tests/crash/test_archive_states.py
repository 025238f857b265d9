"""Power lost while a store is archived to a directory: the archive is as it was or as it should be, and goes on."""

from __future__ import annotations

from typing import Final

from crash.sim import Detail, Disk, SimFiles
from seeklog import Record, Store, TopicPartition
from seeklog.errors import ArchiveIncomplete, NotALog
from storage.workbench import START_MS
from store.workbench import open_store

ROOT, ARCHIVE = "/data/store", "/data/cold/archive"
DETAIL: Final = Detail(prefixes=2, sectors=2, omissions=6, samples=2)
# So many states and more there are; fewer would mean that nobody watches.
STATES_LEAST: Final = 300


def open_on(files: SimFiles) -> Store:
    # A segment holds two batches.
    return open_store(ROOT, files=files, segment_bytes=500)  # type: ignore[arg-type]


def fill(store: Store, count: int) -> None:
    with store._table.writing(TopicPartition("orders", 0)) as log:
        for _ in range(count):
            first = log.log_end_offset
            log.append_many([Record(b"%0100d" % one, timestamp_ms=START_MS + one) for one in (first, first + 1)])
        log.flush()


def archived(files: SimFiles) -> list[int] | None:
    """Return the offsets that an archive gives, None if there is none that counts."""
    try:
        with Store(ARCHIVE, files=files, read_only=True, background=False) as cold:
            return [record.offset for record in cold.log("orders", 0).scan()] if cold.topics() else []
    except (NotALog, ArchiveIncomplete):
        return None


def check_all_states(files: SimFiles, *, before: list[int] | None) -> int:
    """Archive, and look at what a power loss would leave at every step of it; return how many states there were."""
    seen: dict[bytes, Disk] = {}

    def watch(sim: SimFiles) -> None:
        for _, disk in sim.crash_states(DETAIL):
            seen.setdefault(disk.digest(), disk)

    with open_on(files) as store:
        files.on_boundary = watch
        store.archive(ARCHIVE)
        files.on_boundary = None
    after = archived(files)
    assert after is not None
    assert after[: len(before or ())] == (before or [])
    for disk in seen.values():
        left = SimFiles(disk)
        assert archived(left) in (before, after)
        with open_on(left) as store:
            store.archive(ARCHIVE)
        assert archived(left) == after
    return len(seen)


def test_a_crash_at_any_step_of_an_archiving_leaves_it_whole_or_as_it_was_and_the_next_completes_it() -> None:
    """Goal: the first archiving, one that adds to it, and one that has nothing to add."""
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
