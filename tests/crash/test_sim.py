"""The simulated disk: what survives a power loss, and that it finds flawed protocols."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TYPE_CHECKING

import pytest

from crash.faulty import FaultyFiles
from crash.sim import Detail, Disk, SimFiles
from seeklog.files import OsFiles
from seeklog.files.local import LOCK_TEXT_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from seeklog.files import Files

NEW = Disk.of({}, directories=["/data"])


def all_states(sim: SimFiles, detail: Detail = Detail()) -> list[Disk]:  # noqa: B008  # frozen
    return [disk for _, disk in sim.crash_states(detail)]


def states_at_every_boundary(protocol: Callable[[SimFiles], None], start: Disk) -> list[Disk]:
    sim = SimFiles(start)
    states: list[Disk] = []
    sim.on_boundary = lambda moment: states.extend(all_states(moment))
    protocol(sim)
    return states


def replace_file(sim: SimFiles, *, sync_data: bool, sync_names: bool) -> None:
    """Replace /data/value like a checkpoint: write a temporary file, sync, rename, sync the directory."""
    handle = sim.open("/data/value.tmp", write=True, create=True)
    sim.write(handle, b"new", 0)
    if sync_data:
        sim.sync(handle)
    sim.close(handle)
    sim.rename("/data/value.tmp", "/data/value")
    if sync_names:
        sim.sync_directory("/data")


OLD = Disk.of({"/data/value": b"old"})


def test_replacement_with_both_syncs_leaves_old_or_new_content() -> None:
    states = states_at_every_boundary(lambda sim: replace_file(sim, sync_data=True, sync_names=True), start=OLD)

    assert {disk.files["/data/value"] for disk in states} == {b"old", b"new"}


def test_replacement_without_data_sync_is_caught() -> None:
    states = states_at_every_boundary(lambda sim: replace_file(sim, sync_data=False, sync_names=True), start=OLD)

    assert {disk.files["/data/value"] for disk in states} >= {b"old", b"new", b"", b"ne", b"\0\0\0"}


@pytest.mark.parametrize("sync_names", [True, False])
def test_replacement_is_durable_only_after_directory_sync(sync_names: bool) -> None:
    sim = SimFiles(OLD)
    replace_file(sim, sync_data=True, sync_names=sync_names)

    contents = {disk.files["/data/value"] for disk in all_states(sim)}

    assert contents == ({b"new"} if sync_names else {b"old", b"new"})


def test_synced_file_without_directory_sync_may_have_no_name() -> None:
    sim = SimFiles(NEW)
    handle = sim.open("/data/value", write=True, create=True)
    sim.write(handle, b"content", 0)
    sim.sync(handle)

    assert {disk.files.get("/data/value") for disk in all_states(sim)} == {None, b"content"}


def test_directory_with_unsynced_parent_may_vanish_with_its_files() -> None:
    sim = SimFiles(NEW)
    sim.make_directory("/data/log")
    handle = sim.open("/data/log/value", write=True, create=True)
    sim.write(handle, b"content", 0)
    sim.sync(handle)
    sim.sync_directory("/data/log")

    assert {disk.files.get("/data/log/value") for disk in all_states(sim)} == {None, b"content"}
    sim.sync_directory("/data")
    assert {disk.files.get("/data/log/value") for disk in all_states(sim)} == {b"content"}


def test_each_byte_prefix_of_the_last_write_may_survive() -> None:
    sim = SimFiles(Disk.of({"/data/value": b""}))
    handle = sim.open("/data/value", write=True)
    sim.write(handle, b"abcdef", 0)

    contents = {disk.files["/data/value"] for disk in all_states(sim)}

    assert contents >= {b"abcdef"[:size] for size in range(7)} | {bytes(6)}


def test_each_subset_of_nine_sectors_of_the_last_write_may_survive() -> None:
    sim = SimFiles(Disk.of({"/data/value": b"." * 100}))
    handle = sim.open("/data/value", write=True)
    # From byte 100 to byte 4,300: the first and the last of nine sectors are partial.
    sim.write(handle, b"x" * 4200, 100)

    contents = {disk.files["/data/value"] for disk in all_states(sim) if len(disk.files["/data/value"]) == 4300}
    subsets = {tuple(content[at] for at in [100, *range(512, 4300, 512)]) for content in contents}

    assert len(subsets) == 2**9 + 1  # and one of garbage


def test_writes_to_two_files_may_survive_in_either_order() -> None:
    sim = SimFiles(Disk.of({"/data/a": b"", "/data/b": b""}))
    for name in ("a", "b"):
        sim.write(sim.open(f"/data/{name}", write=True), b"x", 0)

    contents = {(disk.files["/data/a"], disk.files["/data/b"]) for disk in all_states(sim)}

    assert contents >= {(b"", b""), (b"x", b""), (b"", b"x"), (b"x", b"x")}


def test_a_rename_may_leave_the_old_name_the_new_name_or_both() -> None:
    sim = SimFiles(Disk.of({"/data/a": b"x"}))
    sim.rename("/data/a", "/data/b")

    assert {frozenset(disk.files) for disk in all_states(sim)} == {
        frozenset({"/data/a"}),
        frozenset({"/data/b"}),
        frozenset({"/data/a", "/data/b"}),
    }


def test_bytes_of_a_failed_sync_read_back_and_are_lost_even_after_a_later_sync() -> None:
    sim = SimFiles(Disk.of({"/data/value": b"old"}))
    faulty = FaultyFiles(sim, fail_at=1)
    handle = faulty.open("/data/value", write=True)
    faulty.write(handle, b"new", 3)
    with pytest.raises(OSError) as failure:
        faulty.sync(handle)
    assert failure.value.errno == errno.EIO

    faulty.sync(handle)

    assert faulty.read(handle, 10, 0) == b"oldnew"
    assert {disk.files["/data/value"] for disk in all_states(sim)} == {b"old"}


def test_bytes_of_a_failed_sync_are_durable_once_rewritten_and_synced() -> None:
    sim = SimFiles(Disk.of({"/data/value": b"old"}))
    handle = sim.open("/data/value", write=True)
    sim.write(handle, b"new", 3)
    sim.fail_sync(handle)

    sim.write(handle, b"new", 3)
    sim.sync(handle)

    assert {disk.files["/data/value"] for disk in all_states(sim)} == {b"oldnew"}


def test_bytes_after_lost_ones_are_durable_after_a_hole() -> None:
    sim = SimFiles(Disk.of({"/data/value": b"old"}))
    handle = sim.open("/data/value", write=True)
    sim.write(handle, b"new", 3)
    sim.fail_sync(handle)

    sim.write(handle, b"!", 6)
    sim.sync(handle)

    assert sim.durable_disk().files["/data/value"] == b"old\0\0\0!"


def test_a_process_crash_keeps_every_operation_and_frees_the_lock() -> None:
    sim = SimFiles(NEW)
    first = sim.open("/data/.lock", write=True, create=True)
    sim.lock(first, "/data/.lock", "1")
    handle = sim.open("/data/value", write=True, create=True)
    sim.write(handle, b"content", 0)
    with pytest.raises(BlockingIOError):
        sim.lock(sim.open("/data/.lock", write=True), "/data/.lock", "2")

    sim.process_crash()

    assert sim.open_handles == 0
    assert sim.read_file("/data/value") == b"content"
    assert {disk.files.get("/data/value") for disk in all_states(sim)} >= {None, b"content"}
    sim.lock(sim.open("/data/.lock", write=True), "/data/.lock", "2")


def test_a_removed_file_is_readable_through_its_handle_and_may_come_back() -> None:
    sim = SimFiles(OLD)
    handle = sim.open("/data/value")

    sim.remove("/data/value")

    assert sim.read(handle, 3, 0) == b"old"
    assert {disk.files.get("/data/value") for disk in all_states(sim)} == {None, b"old"}
    with pytest.raises(FileNotFoundError):
        sim.open("/data/value")


def test_the_same_seed_gives_the_same_states_each_once() -> None:
    def run(seed: int) -> list[tuple[str, Disk]]:
        sim = SimFiles(NEW)
        for number in range(20):
            sim.write(sim.open(f"/data/{number}", write=True, create=True), bytes(700), 0)
        return list(sim.crash_states(Detail(prefixes=8, omissions=8, samples=8, seed=seed)))

    assert run(7) == run(7)
    assert run(7) != run(8)
    digests = [disk.digest() for _, disk in run(7)]
    assert len(digests) == len(set(digests))


def test_full_disk_takes_prefix_of_a_write_and_later_all_of_it() -> None:
    faulty = FaultyFiles(SimFiles(OLD), methods={"write"}, fail_at=1, error=errno.ENOSPC, prefix=2, lasting=True)
    handle = faulty.open("/data/value", write=True)
    for _ in range(2):
        with pytest.raises(OSError) as failure:
            faulty.write(handle, b"new", 3)
        assert failure.value.errno == errno.ENOSPC
    assert faulty.read(handle, 10, 0) == b"oldne"

    faulty.heal()
    faulty.write(handle, b"new", 3)

    assert faulty.read(handle, 10, 0) == b"oldnew"
    assert (faulty.calls, faulty.failures) == (3, 2)


# Directories of a store.


def partition(sim: SimFiles) -> None:
    """Create /data/log with one file, durably."""
    sim.make_directory("/data/log")
    handle = sim.open("/data/log/value", write=True, create=True)
    sim.write(handle, b"content", 0)
    sim.sync(handle)
    sim.close(handle)
    sim.sync_directory("/data/log")
    sim.sync_directory("/data")


def test_renamed_directory_moves_with_all_its_files_or_not_at_all() -> None:
    sim = SimFiles(NEW)
    partition(sim)

    sim.rename("/data/log", "/data/gone")

    assert sim.disk().files == {"/data/gone/value": b"content"}
    names = {frozenset(disk.files) for disk in all_states(sim)}
    assert names >= {frozenset({"/data/log/value"}), frozenset({"/data/gone/value"})}
    assert frozenset() not in names
    sim.sync_directory("/data")
    assert {frozenset(disk.files) for disk in all_states(sim)} == {frozenset({"/data/gone/value"})}


def test_file_in_renamed_directory_is_synced_through_its_handle() -> None:
    sim = SimFiles(NEW)
    partition(sim)
    handle = sim.open("/data/log/value", write=True)
    sim.rename("/data/log", "/data/gone")
    sim.sync_directory("/data")

    sim.write(handle, b"changed", 0)
    sim.sync(handle)

    assert [disk.files for disk in all_states(sim)] == [{"/data/gone/value": b"changed"}]


def test_removed_directory_may_remain_with_any_of_its_files() -> None:
    sim = SimFiles(Disk.of({"/data/log/a": b"", "/data/log/b": b""}))
    for name in ("a", "b"):
        sim.remove(f"/data/log/{name}")

    sim.remove_directory("/data/log")

    states = {(("/data/log" in disk.directories), frozenset(disk.files)) for disk in all_states(sim)}
    assert states == {
        (False, frozenset()),
        (True, frozenset()),
        (True, frozenset({"/data/log/a"})),
        (True, frozenset({"/data/log/b"})),
        (True, frozenset({"/data/log/a", "/data/log/b"})),
    }
    sim.sync_directory("/data")
    assert {"/data/log" in disk.directories for disk in all_states(sim)} == {False}


def test_directory_recreated_under_a_removed_name_is_another_one() -> None:
    sim = SimFiles(NEW)
    partition(sim)
    sim.remove("/data/log/value")
    sim.remove_directory("/data/log")
    sim.make_directory("/data/log")
    handle = sim.open("/data/log/new", write=True, create=True)
    sim.close(handle)

    found = {frozenset(disk.files) for disk in all_states(sim)}

    assert frozenset({"/data/log/value", "/data/log/new"}) not in found
    assert found >= {frozenset({"/data/log/value"}), frozenset({"/data/log/new"}), frozenset()}


def test_stores_share_the_lock_that_a_broker_needs_alone() -> None:
    sim = SimFiles(NEW)
    first, second = sim.lock_out_broker("/data/.lock"), sim.lock_out_broker("/data/.lock")
    with pytest.raises(BlockingIOError):
        sim.lock_as_broker("/data/.lock")
    sim.close(first)
    with pytest.raises(BlockingIOError):
        sim.lock_as_broker("/data/.lock")
    sim.close(second)

    sim.lock_as_broker("/data/.lock")

    with pytest.raises(BlockingIOError):
        sim.lock_out_broker("/data/.lock")
    assert sim.open_handles == 1
    sim.process_crash()
    sim.lock_out_broker("/data/.lock")


# The same calls on the real disk and on the simulated one.


def call_everything(files: Files, root: str) -> list[object]:
    """Make valid and invalid calls on directories, and return their results or errors."""
    found: list[object] = []

    def note(call: Callable[[], object]) -> None:
        try:
            found.append(call())
        except OSError as error:
            found.append(errno.errorcode[error.errno or 0])

    def make_file(path: str) -> None:
        handle = files.open(f"{root}/{path}", write=True, create=True)
        files.write(handle, path.encode(), 0)
        files.close(handle)

    for name in ("full", "empty", "empty2"):
        note(lambda name=name: files.make_directory(f"{root}/{name}"))
    make_file("full/inside")
    make_file("plain")
    make_file("other")
    everything = ("full", "empty", "plain", "nothing", "plain/below", "full/inside", "nothing/below")
    for name in everything:
        note(lambda name=name: files.kind(f"{root}/{name}"))
        note(lambda name=name: files.kinds(f"{root}/{name}"))
        note(lambda name=name: sorted(files.list(f"{root}/{name}")))
        note(lambda name=name: files.file_size(f"{root}/{name}"))
    for name in ("full", "plain", "nothing", "plain/below"):
        note(lambda name=name: files.remove_directory(f"{root}/{name}"))
    for source, target in (
        ("plain", "empty"),
        ("empty", "plain"),
        ("empty", "full"),
        ("full", "full"),
        ("nothing", "full"),
        ("full", "empty"),
        ("empty", "moved"),
        ("plain", "other"),
        ("moved", "empty2"),
        ("empty2", "empty2"),
    ):
        note(lambda source=source, target=target: files.rename(f"{root}/{source}", f"{root}/{target}"))
        note(lambda: files.kinds(root))
    note(lambda: files.read_file(f"{root}/empty2/inside"))
    note(lambda: files.remove(f"{root}/empty2"))
    note(lambda: files.remove(f"{root}/empty2/inside"))
    note(lambda: files.remove_directory(f"{root}/empty2"))
    note(lambda: files.remove_directory(f"{root}/empty2"))
    note(lambda: files.kinds(root))
    return found


def test_simulated_disk_lists_directories_like_the_real_one(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()

    assert call_everything(SimFiles(NEW), "/data") == call_everything(OsFiles(), str(root))


def test_the_real_disk_has_the_same_lock_against_a_broker(tmp_path: Path) -> None:
    files, path = OsFiles(), str(tmp_path / ".lock")
    held = [files.lock_out_broker(path), files.lock_out_broker(path)]
    with open(path, "r+b") as broker:
        for handle in held:
            with pytest.raises(BlockingIOError):
                fcntl.lockf(broker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(handle)
        fcntl.lockf(broker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(BlockingIOError):
            files.lock_out_broker(path)
        # A lock of Java's sort goes with any handle of the file that its process closes: that failure closed one.
        fcntl.lockf(broker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(BlockingIOError):
            files.lock_as_broker(path)
        fcntl.lockf(broker, fcntl.LOCK_UN)
        os.close(files.lock_out_broker(path))
        alone = files.lock_as_broker(path)
        for take in (files.lock_out_broker, files.lock_as_broker):
            with pytest.raises(BlockingIOError):
                take(path)
        with pytest.raises(BlockingIOError):
            fcntl.lockf(broker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(alone)
        fcntl.lockf(broker, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_both_disks_report_a_held_lock_without_writing(tmp_path: Path) -> None:
    found = []
    for files, root in ((SimFiles(NEW), "/data"), (OsFiles(), str(tmp_path))):
        path = f"{root}/.lock"
        with pytest.raises(FileNotFoundError):
            files.is_locked(path)
        handle = files.open(path, write=True, create=True)
        files.lock(handle, path, "owner")
        held = files.is_locked(path)
        files.close(handle)
        found.append((held, files.is_locked(path), files.read_file(path)))

    assert found == [(True, False, b"owner".ljust(LOCK_TEXT_SIZE))] * 2


@pytest.mark.parametrize(
    "method", ["kinds", "kind", "remove_directory", "lock_out_broker", "lock_as_broker", "lock", "is_locked"]
)
def test_faulty_disk_fails_operations_of_a_store_too(method: str) -> None:
    sim = SimFiles(NEW)
    sim.make_directory("/data/log")
    before = sim.disk()
    faulty = FaultyFiles(sim, methods={method}, fail_at=1)
    arguments = ["/data/log", "1"] if method == "lock" else []

    with pytest.raises(OSError) as failure:
        getattr(faulty, method)("/data/log", *arguments)

    assert failure.value.errno == errno.EIO
    assert (faulty.failed_method, faulty.failed_path) == (method, "/data/log")
    assert sim.disk() == before
