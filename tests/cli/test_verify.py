from __future__ import annotations

import json
import random
import tarfile
from pathlib import Path

import pytest

import seeklog
from cli.segmented import flip, logs_of, make_segments, state_of
from cli.workbench import Run

BROKERS = sorted((Path(__file__).parents[1] / "interop" / "golden" / "broker").glob("*.tar.gz"))
SEED = 20260101


def test_undamaged_store_is_reported_in_one_line(run: Run, store: Path) -> None:
    before = state_of(store)

    ran = run("verify", store)

    assert (ran.code, ran.out) == (0, b"")
    assert ran.err.startswith("checked 3 partitions, 3 segments, 20 batches, 20 records, ")
    assert ran.err.endswith(": no damage\n")
    assert state_of(store) == before


def test_quiet_prints_nothing_for_an_undamaged_store(run: Run, store: Path) -> None:
    ran = run("verify", store, "-q")

    assert (ran.code, ran.out, ran.err) == (0, b"", "")


def test_any_flipped_byte_is_found_and_named(run: Run, tmp_path: Path) -> None:
    """Goal: exit code 3, with the file and a byte of the damaged batch, for a flip in any part of it."""
    partition = make_segments(tmp_path / "data")
    logs = logs_of(partition)
    assert len(logs) == 3
    chance = random.Random(SEED)
    for number in range(24):
        path = logs[number % 3]
        position = chance.randrange(path.stat().st_size)
        mask = 1 << chance.randrange(8)
        flip(path, position, mask=mask)
        ran = run("verify", tmp_path / "data")
        flip(path, position, mask=mask)

        named = [row for row in map(json.loads, ran.lines) if row["severity"] == "error"]
        assert ran.code == 3, (SEED, path.name, position)
        assert any(
            row["file"] == str(path) and row["position"] is not None and 0 <= position - row["position"] < 200
            for row in named
        ), (SEED, path.name, position, named)


def test_finding_has_a_meaning_and_a_next_step(run_on_terminal: Run, tmp_path: Path) -> None:
    partition = make_segments(tmp_path / "data")
    path = logs_of(partition)[1]
    flip(path, 730)

    ran = run_on_terminal("verify", "data", "--no-color")

    assert ran.code == 3
    assert ran.lines[0].startswith(f"error    {path}, byte ")
    assert "crc: stored CRC 0x" in ran.lines[1]
    assert ran.lines[2].strip().startswith("bytes of this batch changed")
    assert (
        ran.lines[3].strip() == f"next: restore the file from a copy, or run: seeklog repair {tmp_path}/data orders-0"
    )


def test_changed_epoch_is_found_by_the_crc_of_the_file(run: Run, tmp_path: Path) -> None:
    partition = make_segments(tmp_path / "data")
    for path in logs_of(partition):
        flip(path, 15)
        (row,) = map(json.loads, run("verify", "data").lines)
        assert (row["file"], row["position"], row["kind"]) == (str(path), None, "seal")
        assert "a byte that no batch's own CRC covers, such as one of a leader epoch" in row["detail"]
        flip(path, 15)


def test_single_file_is_checked_with_its_segment(run: Run, tmp_path: Path) -> None:
    first, second, _ = logs_of(make_segments(tmp_path / "data"))
    flip(second, 730)

    assert run("verify", first).code == 0
    assert run("verify", first.with_suffix(".index")).code == 0
    assert run("verify", second).code == 3


def test_names_after_a_store_select_in_it(run: Run, store: Path) -> None:
    assert run("verify", "data", "orders").err.startswith("checked 2 partitions, ")
    assert run("verify", "data", "orders-1", "refunds").err.startswith("checked 2 partitions, ")
    assert run("verify", "orders-1", env={"SEEKLOG_DIR": str(store)}).err.startswith("checked 1 partition, ")
    assert run("verify", "data/orders-1").err.startswith("checked 1 partition, ")


def test_partition_is_checked_without_a_store(run: Run, tmp_path: Path) -> None:
    with seeklog.Log(tmp_path / "alone") as log:
        log.append(b"value")

    assert run("verify", "alone").err.startswith("checked 1 partition, 1 segment, 1 batch, 1 record, ")


def test_damaged_checkpoint_is_found(run: Run, tmp_path: Path) -> None:
    partition = make_segments(tmp_path / "data")
    flip(partition / "seeklog-checkpoint", 30)

    ran = run("verify", "data")

    assert ran.code == 3
    assert any(json.loads(line)["kind"] == "checkpoint" for line in ran.lines)


def test_deep_also_checks_producer_snapshots(run: Run, tmp_path: Path) -> None:
    partition = make_segments(tmp_path / "data")
    (partition / "00000000000000000050.snapshot").write_bytes(b"nonsense")

    assert (run("verify", "data").code, run("verify", "data").out) == (0, b"")
    ran = run("verify", "data", "--deep")
    row = json.loads(ran.lines[0])
    assert (ran.code, row["severity"], row["kind"]) == (0, "warning", "snapshot")


@pytest.mark.parametrize("archive", BROKERS, ids=lambda path: path.name.split(".tar")[0])
def test_broker_directory_is_checked(run: Run, tmp_path: Path, archive: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "broker", filter="data")
    root = next(path.parent for path in (tmp_path / "broker").rglob("meta.properties"))
    before = state_of(root)

    ran = run("verify", root, "--deep")

    assert ran.code == 0, ran.text
    assert state_of(root) == before


def test_archive_is_checked(run: Run, tmp_path: Path) -> None:
    make_segments(tmp_path / "data")
    with seeklog.open(tmp_path / "data", background=False) as store:
        store.archive(str(tmp_path / "cold"))

    assert run("verify", "cold").err.endswith("no damage\n")
    flip(logs_of(tmp_path / "cold" / "orders-0")[0], 730)
    assert run("verify", "cold").code == 3


def test_missing_path_is_reported_in_one_line(run: Run) -> None:
    ran = run("verify", "nowhere")

    assert (ran.code, ran.out) == (4, b"")
    assert ran.err == ("seeklog: nowhere does not exist; name a store, a partition's directory or a segment's file\n")


def test_unknown_topic_gets_a_suggestion(run: Run, store: Path) -> None:
    ran = run("verify", "data", "order")

    assert (ran.code, ran.out) == (4, b"")
    assert ran.err == f"seeklog: there is no topic 'order' in {store}; did you mean 'orders'?\n"


def test_other_file_is_refused_with_a_suggestion(run: Run, store: Path) -> None:
    ran = run("verify", store / "seeklog-topics")

    assert (ran.code, ran.out) == (2, b"")
    assert f"show its contents with: seeklog dump {store}/seeklog-topics" in ran.err


def test_unreadable_file_is_a_finding(run: Run, tmp_path: Path) -> None:
    partition = make_segments(tmp_path / "data")
    path = logs_of(partition)[0].with_suffix(".index")
    path.unlink()
    path.mkdir()

    ran = run("verify", "data")

    assert ran.code == 3
    assert any(json.loads(line)["kind"] == "unreadable" for line in ran.lines)


def test_concurrent_append_is_not_reported_as_damage(run: Run, store: Path) -> None:
    with seeklog.open(store, background=False) as writer, writer.writer("orders", 0) as log:
        log.append(b"another")
        assert run("verify", "data").code == 0
