"""Some fifteen kinds of wrong index. No answer changes; the index is rebuilt once, with one warning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from crash.recorder import PATH
from crash.sim import SimFiles
from faults.disks import ask_disk, files_with
from faults.wrong_indexes import (
    ACTIVE,
    DIRECTORY,
    INDEXED,
    SEALED,
    SUFFIXES,
    WAYS,
    damaged,
    expected,
    healthy,
    link_objection,
    names_in,
    objection,
)
from seeklog import Log, names
from seeklog.errors import NotAccessible

if TYPE_CHECKING:
    from pathlib import Path

# A key index belongs to a sealed segment: use the second segment instead of the active one.
PLACES = [
    pytest.param(suffix, which if suffix != names.KEY_INDEX else which % 2, id=f"{suffix}-{name}")
    for suffix in SUFFIXES
    for which, name in ((SEALED, "sealed"), (ACTIVE, "active"))
]

places = pytest.mark.parametrize(("suffix", "which"), PLACES)
either_way = pytest.mark.parametrize("read_only", [True, False])


@pytest.mark.id("index-wrong")
@either_way
@places
@pytest.mark.parametrize("way", WAYS)
def test_wrong_index_changes_no_answer_and_warns_once(way: str, suffix: str, which: int, read_only: bool) -> None:
    assert objection(way, suffix=suffix, which=which, read_only=read_only) == ""


@pytest.mark.id("index-is-a-link")
@either_way
@places
def test_link_instead_of_an_index_is_not_followed(suffix: str, which: int, read_only: bool, tmp_path: Path) -> None:
    assert link_objection(tmp_path, suffix=suffix, which=which, read_only=read_only) == ""


@pytest.mark.id("index-missing")
@either_way
def test_answers_are_the_same_without_any_index(read_only: bool) -> None:
    answers = expected(read_only=read_only)
    disk = healthy()
    for path in files_with(disk, *SUFFIXES):
        disk = disk.with_file(path, None)

    assert ask_disk(disk, config=INDEXED, read_only=read_only, expected=answers) == answers


def test_directory_instead_of_active_index_refuses_open_for_writing() -> None:
    """Goal: the active segment needs its index files; the error names the one that cannot be created."""
    path, disk, files = damaged(DIRECTORY, suffix=names.OFFSET_INDEX, which=ACTIVE)

    with pytest.raises(NotAccessible, match=path):
        Log(PATH, config=INDEXED, files=files, background=False)

    assert names_in(files) == names_in(SimFiles(disk))
