"""Repairs of a damaged log, which must have the same result however often they are interrupted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from crash.sim import Disk, SimFiles
from log.workbench import FakeClock
from seeklog import Log, LogConfig, names
from seeklog.errors import SeeklogError
from seeklog.log.check.finding import Severity
from seeklog.log.check.inspection import inspect_partition
from seeklog.log.check.repair_work import repair

if TYPE_CHECKING:
    from collections.abc import Callable

    from seeklog.files import Files

PATH: Final = "/data/orders-0"
CONFIG: Final = LogConfig(segment_bytes=700, index_interval_bytes=100, retention_ms=-1)
RECORDS: Final = 16


def append_all(path: str, files: Files) -> dict[int, bytes]:
    with Log(path, config=CONFIG, files=files, clock=FakeClock(), background=False) as log:
        for number in range(RECORDS):
            log.append(b"value %02d" % number, key=b"key")
        return {record.offset: record.value or b"" for record in log.scan()}


def read_all(path: str, files: Files) -> dict[int, bytes]:
    with Log(path, config=CONFIG, files=files, clock=FakeClock(), background=False) as log:
        assert log.log_end_offset == RECORDS
        return {record.offset: record.value or b"" for record in log.scan()}


def mend(path: str, files: Files, *, from_torn: bool = False) -> None:
    repair(path, config=CONFIG, files=files, clock=FakeClock(), from_torn=from_torn)


def log_paths(disk: Disk) -> list[str]:
    return sorted(path for path in disk.files if path.endswith(names.LOG))


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def damage_inside(disk: Disk) -> Disk:
    path = log_paths(disk)[1]
    return disk.with_file(path, flipped(disk.files[path], 150))


def damage_everywhere(disk: Disk) -> Disk:
    for path in log_paths(disk):
        disk = disk.with_file(path, flipped(disk.files[path], 70))
    return disk


def lose_the_end(disk: Disk) -> Disk:
    path = log_paths(disk)[-1]
    return disk.with_file(path, disk.files[path][:-30])


def lose_a_segment(disk: Disk) -> Disk:
    return disk.with_file(log_paths(disk)[1], None)


def change_an_epoch(disk: Disk) -> Disk:
    path = log_paths(disk)[0]
    return disk.with_file(path, flipped(disk.files[path], 15))


def damage_the_checkpoint(disk: Disk) -> Disk:
    path = f"{PATH}/{names.CHECKPOINT}"
    return disk.with_file(path, flipped(disk.files[path], 30))


def damage_the_checkpoint_and_lose_the_end(disk: Disk) -> Disk:
    return damage_the_checkpoint(lose_the_end(disk))


def cut_by_recovery(disk: Disk) -> Disk:
    """Return another log: its writer was killed, its end damaged, and recovery has put that aside."""
    files = SimFiles(Disk.of({}, directories=["/data"]))
    log = Log(PATH, config=CONFIG, files=files, clock=FakeClock(), background=False)
    for number in range(RECORDS):
        log.append(b"value %02d" % number, key=b"key")
        if number == RECORDS // 2 - 1:
            log.flush()
    files.process_crash()
    disk = files.disk()
    path = log_paths(disk)[-1]
    files = SimFiles(disk.with_file(path, flipped(disk.files[path], 70)))
    with Log(PATH, config=CONFIG, files=files, clock=FakeClock(), background=False) as log:
        assert log.recovery.cut_records
    return files.disk()


def cut_by_recovery_and_damage_the_checkpoint(disk: Disk) -> Disk:
    return damage_the_checkpoint(cut_by_recovery(disk))


Damage: TypeAlias = "Callable[[Disk], Disk]"
DAMAGES: Final[tuple[Damage, ...]] = (
    damage_inside,
    damage_everywhere,
    lose_the_end,
    lose_a_segment,
    change_an_epoch,
    damage_the_checkpoint,
    damage_the_checkpoint_and_lose_the_end,
    cut_by_recovery,
    cut_by_recovery_and_damage_the_checkpoint,
)
FROM_TORN: Final = {cut_by_recovery, cut_by_recovery_and_damage_the_checkpoint}
"""Damage from which the repair restores bytes that recovery cut."""


def damaged_disk(damage: Damage) -> Disk:
    files = SimFiles(Disk.of({}, directories=["/data"]))
    append_all(PATH, files)
    return damage(files.disk())


def killed_log(damage: Damage) -> SimFiles:
    """Return a log whose writer was killed after syncing only the first record of its segments."""
    files = SimFiles(Disk.of({}, directories=["/data"]))
    log = Log(PATH, config=CONFIG, files=files, clock=FakeClock(), background=False)
    for number in range(RECORDS):
        log.append(b"value %02d" % number, key=b"key")
        if number == 0:
            log.flush()
    files.process_crash()
    before = files.disk()
    for path, data in damage(before).files.items():
        if data != before.files[path]:
            handle = files.open(path, write=True)
            files.write(handle, data, 0)
            files.close(handle)
    return files


def errors(files: Files) -> list[str]:
    found = inspect_partition(PATH, config=CONFIG, files=files)
    return [f"{each.kind} {each.path} {each.detail}" for each in found if each.severity is not Severity.NOTE]


def kept_aside(disk: Disk) -> dict[str, bytes]:
    """Return the bytes quarantined by a repair."""
    return {path: data for path, data in disk.files.items() if path.endswith(names.DAMAGED)}


def lost_offsets(disk: Disk) -> set[int]:
    """Return the offsets listed as lost."""
    lines = disk.files.get(f"{PATH}/{names.LOSSES}", b"").decode().splitlines()[1:-1]
    return {offset for line in lines for offset in range(*map(int, line.split()[1:3]))}


@dataclass(slots=True)
class RepairPromise:
    """The result of an uninterrupted repair."""

    records: dict[int, bytes]
    kept: dict[str, bytes] = field(default_factory=dict)
    from_torn: bool = False

    @classmethod
    def of(cls, disk: Disk, *, from_torn: bool = False) -> RepairPromise:
        files = SimFiles(disk)
        mend(PATH, files, from_torn=from_torn)
        return cls(read_all(PATH, files), kept_aside(files.disk()), from_torn)

    def violations(self, disk: Disk) -> list[str]:
        """Repair a disk after an interrupted repair, and return the differences from an uninterrupted one."""
        left = SimFiles(disk)
        try:
            mend(PATH, left, from_torn=self.from_torn)
            violations = errors(left)
            if read_all(PATH, left) != self.records:
                violations.append("the records are not those of a repair that was not interrupted")
        except (SeeklogError, AssertionError) as error:
            return [f"{type(error).__name__}: {error}"]
        if kept_aside(left.disk()) != self.kept:
            violations.append("the quarantined bytes differ from those of an uninterrupted repair")
        return violations


class RepairRecorder:
    """Repairs a log with one kind of damage."""

    def __init__(self, disk_type: Callable[[Disk], Any], damage: Damage) -> None:
        disk = damaged_disk(damage)
        self.promise = RepairPromise.of(disk, from_torn=damage in FROM_TORN)
        self.sim = disk_type(disk)
        self.files: Files = self.sim
        self.door: Callable[[Files], Files] = lambda files: files

    def run(self) -> None:
        mend(PATH, self.door(self.files), from_torn=self.promise.from_torn)
