"""Ctrl-C prints one line: how much was done, and how to continue or what is left.

Ctrl-C comes when a command reports progress: the commands run in this process, and their progress raises.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import seeklog
from cli.segmented import RECORDS, flip, logs_of, make_segments, state_of
from cli.workbench import Ran
from seeklog.cli.app import run
from seeklog.cli.show.progress import Progress
from seeklog.clients.producer import Producer

Interrupted = Callable[..., Ran]


@pytest.fixture
def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Interrupted:
    """Run a command that Ctrl-C stops at its `at`-th report of progress; None: not at all."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    advance = Progress.advance

    def run_interrupted(*arguments: object, at: int | None = 1) -> Ran:
        reports = itertools.count(1)

        def advance_once(progress: Progress, amount: int = 1) -> None:
            advance(progress, amount)
            if next(reports) == at:
                raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(Progress, "advance", advance_once)
            code = run(list(map(str, arguments)))
        out, err = capsys.readouterr()
        return Ran(code, out.encode(), err)

    return run_interrupted


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store `data` whose topic `orders` has three segments, and a topic `old` of three expired partitions."""
    make_segments(tmp_path / "data")
    with seeklog.open(tmp_path / "data", background=False) as opened:
        opened.create_topic("old", partitions=3, config={"retention.ms": 1000, "cleanup.policy": "compact,delete"})
        for partition in range(3):
            with opened.writer("old", partition) as log:
                log.append(b"x", key=b"k", timestamp_ms=1000)
                log.roll()
                log.append(b"y", key=b"k", timestamp_ms=1000)
    return tmp_path / "data"


class Case(NamedTuple):
    arguments: str
    message: str
    at: int = 1


@pytest.mark.parametrize(
    "case",
    [
        Case("archive data cold", r"archiving after \d+ B of 4\.\d+ KB; .* run it again to continue"),
        Case("archive data cold --all", r"archiving after \d+ B of 4\.\d+ KB; .* run it again to continue"),
        Case("export data orders -o x.csv", r"exporting orders after \d+ of 50 records; x.csv was not written"),
        Case("report data", r"reading after \d.* of \d+\.\d+ KB; report.html was not written"),
        Case("verify data", r"checking after 70 B of 4\.\d+ KB; no damage"),
        Case("compact data old --yes", r"compacting after 1 of 3 partitions; run it again for the others"),
        Case("retain data old --yes", r"deleting after 2 of 3 partitions; run it again for the others", at=2),
        Case("truncate data old --before end --yes", r"truncating after 1 of 3 partitions; .* seeklog info data old"),
        Case("roll data old", r"rolling after 1 of 3 partitions; run it again for the others"),
        Case("reindex data", r"checking after 3 of 4 partitions; nothing was changed", at=3),
        Case("bench . -n 1000", r"measuring after 2 of 6 benchmarks; the result was not saved", at=2),
    ],
    ids=lambda case: case.arguments,
)
def test_ctrl_c_prints_what_was_done(interrupted: Interrupted, store: Path, case: Case) -> None:
    ran = interrupted(*case.arguments.split(), at=case.at)

    assert ran.code == 130
    message = ran.err.splitlines()[-1]
    assert re.fullmatch(f"stopped {case.message}", message), ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("at", [1, 2, 5, 9])
def test_interrupted_archive_and_restore_are_continued(interrupted: Interrupted, store: Path, at: int) -> None:
    assert interrupted("archive", "data", "cold", "--all", at=min(at, 3)).code == 130
    assert interrupted("archive", "data", "cold", "--all", at=None).code == 0

    stopped = interrupted("restore", "cold", "restored", at=at)
    assert stopped.code == 130
    assert re.fullmatch(
        r"stopped restoring after .* of .*; restored is not a store yet; run it again to continue\n", stopped.err
    )
    assert interrupted("cat", "restored", "orders", at=None).code == 4
    assert interrupted("restore", "cold", "restored", at=None).code == 0
    assert len(interrupted("cat", "restored", "orders", at=None).lines) == RECORDS


def test_interrupted_verify_shows_the_damage_found_so_far(interrupted: Interrupted, store: Path) -> None:
    log = logs_of(store / "old-0")[0]
    flip(log, 65)
    before = state_of(store)

    ran = interrupted("verify", "data", at=3)

    assert (ran.code, ran.text.count("\n")) == (130, 1)
    assert str(log) in ran.text
    assert ran.err.endswith("; 1 error\n")
    assert state_of(store) == before


def test_interrupted_rebuild_of_indexes_is_continued(interrupted: Interrupted, store: Path) -> None:
    for index in (store / "orders-0").glob("*.index"):
        index.write_bytes(b"")

    # Four partitions are checked before the first segment is rebuilt.
    ran = interrupted("reindex", "data", at=5)

    assert ran.code == 130
    assert ran.err == "stopped reindexing after 1 of 2 segments; run it again to rebuild the others\n"
    assert "rebuilt the indexes of" in interrupted("reindex", "data", at=None).err
    assert "match their logs" in interrupted("reindex", "data", at=None).err


def test_interrupted_repair_is_continued(interrupted: Interrupted, store: Path) -> None:
    flip(logs_of(store / "orders-0")[0], 70)

    ran = interrupted("repair", "data", "--yes")

    assert ran.code == 130
    assert ran.err.splitlines()[-1] == "stopped repairing; run it again to complete the repair"
    assert interrupted("repair", "data", "--yes", at=None).code == 0
    assert interrupted("verify", "data", at=None).code == 0


def test_dry_run_of_a_restore_changes_nothing(interrupted: Interrupted, store: Path, tmp_path: Path) -> None:
    interrupted("archive", "data", "cold", at=None)

    assert interrupted("restore", "cold", "restored", "--dry-run", at=None).code == 0
    assert not (tmp_path / "restored").exists()


@pytest.fixture
def sigint_raises() -> Iterator[None]:
    """Handle SIGINT as Python does. A Spark session that ran before in this process has left its own handler."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint_raises")
@pytest.mark.parametrize("after", [1, 2, 7])
def test_record_that_was_sent_during_ctrl_c_is_counted(
    interrupted: Interrupted, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Goal: a user who appends the lines after the reported one appends none twice, and skips none."""
    (tmp_path / "lines").write_text("".join(f"{number}\n" for number in range(10)))
    send, sent = Producer.send, itertools.count(1)

    def send_and_interrupt(self: Producer, *arguments: object, **more: object) -> object:
        future = send(self, *arguments, **more)  # type: ignore[arg-type]
        if next(sent) == after:
            os.kill(os.getpid(), signal.SIGINT)
        return future

    monkeypatch.setattr(Producer, "send", send_and_interrupt)
    ran = interrupted("append", "data", "new", "lines", "--create", at=None)

    assert ran.code == 130
    records = "1 record" if after == 1 else f"{after} records"
    assert ran.err == (
        f"stopped after appending {records}, up to line {after}; to continue, append the lines after it\n"
    )
    assert interrupted("cat", "data", "new", "-t", "%v", at=None).text == "".join(map(str, range(after)))


def test_ctrl_c_before_the_first_record_says_so(interrupted: Interrupted, store: Path, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("a\n")

    ran = interrupted("append", "data", "orders", "lines")

    assert (ran.code, ran.err) == (130, "stopped after appending 0 records\n")
