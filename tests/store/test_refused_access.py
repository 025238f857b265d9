"""Errors of the operating system: what they say to do."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from log.workbench import FailingFiles
from seeklog.cli.exits import line
from seeklog.errors import DiskFull, NotAccessible
from seeklog.files import translate
from store.workbench import open_store

NOBODY = 65534


def refused(number: int) -> NotAccessible:
    error = translate(OSError(number, os.strerror(number), "/data/.lock"), "/data cannot be opened")
    assert isinstance(error, NotAccessible)
    return error


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_refused_permission_names_path_user_and_cure(number: int) -> None:
    error = refused(number)

    assert str(error) == (
        f"/data cannot be opened: [Errno {number}] {os.strerror(number)}: '/data/.lock'; this process runs as user "
        f"{os.geteuid()}: run it as the owner of the files, or give that user access to them"
    )


def test_read_only_file_system_names_the_ways_out() -> None:
    error = refused(errno.EROFS)

    assert str(error).endswith(
        "'/data/.lock'; the file system is mounted read-only: remount it for writing, or choose a path on another one; "
        "to only read, open with read_only=True"
    )
    assert line(error).endswith("remount it for writing, or choose a path on another one")


def test_other_errors_of_a_disk_keep_their_advice() -> None:
    error = translate(OSError(errno.EIO, os.strerror(errno.EIO)), "/data cannot be read", advice="check the disk")

    assert str(error) == f"/data cannot be read: [Errno {errno.EIO}] {os.strerror(errno.EIO)}; check the disk"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_refusal_that_seeklog_or_a_backend_explains_is_left_alone(number: int) -> None:
    """The bucket of an archive forbids it, or the files are at a URL: another user or mount would not help."""
    error = translate(OSError(number, "archives are read-only", "s3://data/x"), "/data cannot be written")

    assert str(error) == f"/data cannot be written: [Errno {number}] archives are read-only: 's3://data/x'"


def test_full_disk_says_to_free_space_once() -> None:
    error = translate(OSError(errno.ENOSPC, "no space"), "/data cannot be written")

    assert isinstance(error, DiskFull)
    assert str(error) == "/data cannot be written: the disk is full; free some space, then try again"
    assert line(error) == "/data cannot be written: the disk is full; free some disk space, then run it again"


def test_store_on_a_read_only_file_system_says_so(tmp_path: Path) -> None:
    open_store(tmp_path / "store").close()
    files = FailingFiles("open", ".lock", error=errno.EROFS)
    files.fails = True

    with pytest.raises(NotAccessible, match=r"\.lock'; the file system is mounted read-only: remount"):
        open_store(tmp_path / "store", files=files)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_files_of_another_user_are_refused_with_the_user(tmp_path: Path) -> None:
    """As a real kernel refuses them."""
    with open_store(tmp_path / "store") as store:
        store.create_topic("orders", partitions=1)
    # The first open imports what the second needs: another user may not be able to read the package.
    script = "import os, seeklog; seeklog.open({0!r}).close(); os.chmod({0!r}, 0); os.seteuid({1}); seeklog.open({0!r})"
    done = subprocess.run(
        [sys.executable, "-c", script.format(str(tmp_path / "store"), NOBODY)],
        capture_output=True,
        check=False,
        text=True,
    )

    assert "NotAccessible: " in done.stderr
    assert f"this process runs as user {NOBODY}: run it as the owner" in done.stderr
