"""A lake on a disk that loses power: its manifest is the old or the new one, and its files are complete."""

from __future__ import annotations

import pytest

from crash.lake_work import explore_lake
from crash.sim import Disk, SimFiles


@pytest.mark.id("lake-crash-states")
def test_crash_leaves_old_or_new_manifest_and_whole_files() -> None:
    assert explore_lake(SimFiles(Disk.of({}, directories=["/lakes"]))) > 60


class NoSync(SimFiles):
    def sync(self, handle: int) -> None:
        pass


class NoDirectorySync(SimFiles):
    def sync_directory(self, path: str) -> None:
        pass


class NoDateSync(SimFiles):
    def sync_directory(self, path: str) -> None:
        if "date=" not in path:
            super().sync_directory(path)


class NoTopicSync(SimFiles):
    def sync_directory(self, path: str) -> None:
        if not path.endswith("topic=orders"):
            super().sync_directory(path)


@pytest.mark.parametrize("disk_type", [NoSync, NoDirectorySync, NoDateSync, NoTopicSync])
def test_lake_without_a_step_is_caught(disk_type: type[SimFiles]) -> None:
    """Goal: the test above can fail."""
    with pytest.raises(Exception):  # the first failure
        explore_lake(disk_type(Disk.of({}, directories=["/lakes"])))
