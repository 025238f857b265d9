from __future__ import annotations

import json
from pathlib import Path

import pytest

import seeklog
from cli.disk import bytes_of
from cli.workbench import MORNING_MS, Run


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """A store `data` with `orders`, one partition with sealed segments and an active one."""
    path = tmp_path / "data"
    with seeklog.open(path, background=False) as made:
        made.create_topic("orders", partitions=1, config={"segment.bytes": 1000, "retention.ms": -1})
        with made.writer("orders", 0) as log:
            for number in range(50):
                log.append(b"x" * 80, key=b"k%d" % (number % 6), timestamp_ms=MORNING_MS + number * 60_000)
    return path


def test_sealed_segments_are_copied_once(run: Run, long: Path, tmp_path: Path) -> None:
    before = bytes_of(long)

    first = run("archive", long, "cold")
    again = run("archive", long, "cold", "orders")

    assert (first.code, first.out, again.code, again.out) == (0, b"", 0, b"")
    assert first.err.startswith("copied 8 segments, ")
    assert first.err.endswith("; 0 were archived before\n")
    assert again.err.startswith(f"copied 0 segments, 0 B, to {tmp_path}/cold in ")
    assert again.err.endswith("; 8 were archived before\n")
    assert bytes_of(long) == before
    (row,) = map(json.loads, run("ls", "cold").lines)
    assert (row["topic"], row["records"]) == ("orders", 48)


def test_archive_is_read_by_url(run: Run, long: Path, tmp_path: Path) -> None:
    assert run("archive", long, f"file://{tmp_path}/cold", "--verify", "size").code == 0
    assert json.loads(run("ls", f"file://{tmp_path}/cold").text)["topic"] == "orders"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nosuch://bucket/path"], 2, "nosuch://bucket/path cannot be opened"),
        (["data/within"], 2, "is inside the store"),
        (["cold", "order"], 4, "did you mean 'orders'?"),
        (["cold", "--storage-option", "key"], 2, "is not NAME=VALUE"),
        (["cold", "--storage-option", "client_kwargs={oops"], 2, "must be JSON"),
        (["cold", "--verify", "never"], 2, "'never' is not one of"),
        (["file:///dev/null/here"], 1, "cannot be archived to /dev/null/here"),
    ],
)
def test_invalid_call_is_reported_in_one_line(
    run: Run, long: Path, arguments: list[str], code: int, message: str
) -> None:
    ran = run("archive", long, *arguments)

    assert (ran.code, ran.out) == (code, b"")
    assert message in ran.err
    assert ran.err.count("\n") == 1


def test_target_with_other_files_is_refused(run: Run, long: Path, tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    (tmp_path / "cold" / "letters.txt").write_text("dear")

    ran = run("archive", long, "cold")

    assert (ran.code, ran.out) == (1, b"")
    assert "is not an archive and not empty: it holds 'letters.txt'" in ran.err
    assert sorted(path.name for path in (tmp_path / "cold").iterdir()) == ["letters.txt"]


def test_gaps_and_losses_are_refused_with_the_option_to_allow_them(run: Run, long: Path, tmp_path: Path) -> None:
    run("archive", long, "cold")
    lost = sorted((tmp_path / "cold" / "orders-0").glob("*.log"))[1]
    lost.unlink()

    refused = run("archive", long, "cold")
    assert refused.code == 3
    assert "--repair" in refused.err
    assert run("archive", long, "cold", "--repair").code == 0
    assert lost.exists()


def test_damaged_segment_is_not_archived(run: Run, long: Path, tmp_path: Path) -> None:
    hurt = sorted((long / "orders-0").glob("*.log"))[2]
    data = bytearray(hurt.read_bytes())
    data[100] ^= 0xFF
    hurt.write_bytes(data)

    ran = run("archive", long, "cold")

    assert ran.code == 3
    assert hurt.name in ran.err
    assert ran.err.count("\n") == 1
    assert run("ls", "cold").code == 4
