"""Commands that change a store: full disks, unreadable files, and Ctrl-C."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import seeklog
from cli.disk import bytes_of
from cli.segmented import flip
from cli.workbench import MORNING_MS, Run, surroundings
from seeklog import names

ROOM = 2 << 20
# Even a full disk has room in a log's last page and in the small files that an open removes. A record of 16 pages does
# not fit there.
TOO_LARGE = b"x" * (16 * 4096)
UNCLEAN = """
import os, sys, seeklog
with seeklog.open(sys.argv[1], background=False) as store:
    store.create_topic("fresh", partitions=1)
    with store.writer("fresh", 0) as log:
        for number in range(20):
            log.append(b"x%d" % number)
store = seeklog.open(sys.argv[1], background=False)
with store.writer("fresh", 0) as log:
    log.append(b"y")
    os._exit(0)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes; skipped if it cannot be mounted."""
    where = tmp_path / "disk"
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", where], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("may not mount a tmpfs here")
    try:
        yield where
    finally:
        subprocess.run(["umount", where], check=True)


def fill(disk: Path) -> None:
    """Fill a disk."""
    with open(disk / "ballast", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


def make_store(path: Path) -> None:
    with seeklog.open(path, background=False) as made:
        config = {"segment.bytes": 20_000, "retention.ms": -1, "cleanup.policy": "compact"}
        made.create_topic("orders", partitions=1, config=config)
        with made.writer("orders", 0) as log:
            for number in range(1000):
                log.append(b"x" * 100, key=b"k%d" % (number % 900), timestamp_ms=MORNING_MS + number)


@pytest.mark.parametrize(
    "arguments",
    [
        ["create", "disk/data", "refunds"],
        ["config", "disk/data", "orders", "--partitions", "3"],
        ["compact", "disk/data", "orders", "--yes"],
        ["archive", "disk/data", "disk/cold"],
    ],
)
def test_full_disk_is_one_line_and_loses_nothing(run: Run, small_disk: Path, arguments: list[str]) -> None:
    make_store(small_disk / "data")
    fill(small_disk)

    ran = run(*arguments)

    assert (ran.code, ran.out) == (1, b""), ran.err
    assert ran.err.count("\n") == 1
    assert "room" in ran.err or "full" in ran.err
    (small_disk / "ballast").unlink()
    shown = run(*arguments)
    assert shown.code == 0, shown.err
    with seeklog.open(small_disk / "data", read_only=True) as store:
        latest = {record.key: record.value for record in store.log("orders", 0).scan()}
    assert len(latest) == 900


def test_setting_is_changed_on_a_full_disk(run: Run, small_disk: Path) -> None:
    """The catalog has the room."""
    make_store(small_disk / "data")
    fill(small_disk)

    assert run("config", "disk/data", "orders", "--set", "retention.ms=9").code == 0
    with seeklog.open(small_disk / "data", read_only=True) as store:
        assert store.describe_topic("orders").configured["retention.ms"] == 9


@pytest.mark.parametrize("arguments", [["truncate", "--before", "end"], ["delete"], ["retain"]])
def test_deletions_work_on_a_full_disk(run: Run, small_disk: Path, arguments: list[str]) -> None:
    make_store(small_disk / "data")
    with seeklog.open(small_disk / "data", background=False) as store:
        store.alter_topic("orders", {"cleanup.policy": "delete", "retention.ms": 1000})
    fill(small_disk)

    ran = run(arguments[0], "disk/data", "orders", *arguments[1:], "--yes")

    # Either the small file that is written first still fitted, or the error reports the full disk.
    assert ran.code == 0 or (ran.code == 1 and "free some disk space, then run it again" in ran.err.splitlines()[-1])


@pytest.mark.parametrize(
    "arguments",
    [
        ["truncate", "data", "orders", "--before", "end"],
        ["reset", "data", "billing", "orders", "--to", "start"],
        ["delete", "data", "orders"],
    ],
)
def test_ctrl_c_at_the_question_changes_nothing(run_on_terminal: Run, store: Path, arguments: list[str]) -> None:
    with seeklog.open(store, background=False) as opened:
        opened.commit_offsets("billing", {seeklog.TopicPartition("orders", 0): 4})
    before = bytes_of(store)

    ran = run_on_terminal(*arguments, interrupt_after="[y/N]")

    assert ran.code == 130
    assert "Traceback" not in ran.text
    assert bytes_of(store) == before


@pytest.mark.parametrize(
    "arguments", ["groups data", "lag data", "config data orders", "truncate data orders --before end --dry-run"]
)
def test_closed_pipe_ends_the_command_quietly(store: Path, arguments: str) -> None:
    command = f"'{sys.executable}' -m seeklog.cli {arguments} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, cwd=store.parent, env=surroundings(store), check=False
    )

    assert b"Traceback" not in done.stderr
    assert b"Error" not in done.stderr
    assert done.stdout.strip() in (b"0", b"141")


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("ls data >&-", b"0"),
        ("ls data 2>&-", b'{"topic": "orders"'),
        ("ls missing 2>&-", b"4"),
        ("append data orders <&-", b"2"),
        ("append data orders >&- < /dev/null", b"0"),
    ],
)
def test_closed_standard_streams_are_not_an_error(store: Path, command: str, output: bytes) -> None:
    """Goal: a service or cron may start a command without them. Nothing goes to another stream or file instead."""
    before = bytes_of(store)
    done = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m seeklog.cli {command}; echo $?"],
        capture_output=True,
        cwd=store.parent,
        env=surroundings(store),
        check=False,
    )

    assert b"Traceback" not in done.stderr
    assert done.stdout.startswith(output)
    assert bytes_of(store) == before


def test_damaged_catalog_is_named(run: Run, store: Path) -> None:
    catalog = store / names.TOPICS
    catalog.write_bytes(catalog.read_bytes()[:-9])

    for arguments in (["groups", store], ["retain", store], ["config", store, "orders"], ["delete", store, "orders"]):
        ran = run(*arguments)
        assert (ran.code, ran.out) == (3, b"")
        assert catalog.name in ran.err
        assert ran.err.count("\n") == 1


def test_store_without_a_partition_is_refused(run: Run, store: Path) -> None:
    shutil.move(store / "orders-1", store.parent / "orders-1")

    ran = run("truncate", store, "orders", "--before", "end", "--yes")

    assert ran.code in (3, 4)
    assert ran.err.count("\n") == 1


def test_append_to_a_filling_disk_reports_the_appended_count(run: Run, small_disk: Path) -> None:
    first = run("append", "disk/data", "orders", "--create", stdin=b"%0100d\n" % 7 * 30_000)

    assert (first.code, first.err.count("\n")) == (1, 1), first.err
    assert "the disk is full" in first.err
    with seeklog.open(small_disk / "data", read_only=True) as store:
        written = store.log("orders", 0).high_watermark
    assert first.err.endswith(f"; {written:,} records appended before the error\n")
    fill(small_disk)

    again = run("append", "disk/data", "orders", stdin=TOO_LARGE + b"\n")

    assert (again.code, again.err.count("\n")) == (1, 1), again.err
    assert "the disk is full" in again.err


def test_append_to_a_damaged_log_is_refused_in_one_line(run: Run, store: Path) -> None:
    subprocess.run([sys.executable, "-c", UNCLEAN, store], env=surroundings(store), check=True)
    flip(store / "fresh-0" / "00000000000000000000.log", 80)

    ran = run("append", store, "fresh", stdin=b"x\n")

    assert (ran.code, ran.err.count("\n")) == (3, 1), ran.err
    assert "read_only" not in ran.err
