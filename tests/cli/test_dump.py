from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import seeklog
from cli.segmented import flip, logs_of, make_segments, state_of
from cli.workbench import MORNING_MS, Run, surroundings
from seeklog.record.batch import encode_batch

GOLDEN = Path(__file__).parents[1] / "interop" / "golden"
BROKERS = sorted((GOLDEN / "broker").glob("*.tar.gz"))


def parts(text: str, what: str) -> list[dict[str, object]]:
    return [part for part in map(json.loads, text.splitlines()) if part["type"] == what]


@pytest.mark.parametrize("archive", BROKERS, ids=lambda path: path.name.split(".tar")[0])
def test_whole_directory_of_a_broker_is_dumped(run: Run, tmp_path: Path, archive: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "broker", filter="data")
    root = next(path.parent for path in (tmp_path / "broker").rglob("meta.properties"))
    before = state_of(root)

    ran = run("dump", root, "--deep")

    assert ran.code == 0, [line for line in ran.lines if '"damage"' in line or '"is_proved": false' in line][:3]
    batches = parts(ran.text, "batch")
    assert {batch["codec"] for batch in batches} > {"none", "gzip", "snappy", "lz4", "zstd"} - {"none"}
    assert any(batch["is_control"] and batch["marker"] == "commit" for batch in batches)
    assert all(entry["is_proved"] is not False for entry in parts(ran.text, "entry"))
    assert state_of(root) == before


def test_every_golden_batch_is_dumped_with_its_records(run: Run) -> None:
    files = sorted(GOLDEN.glob("*.bin"))
    ran = run("dump", *files, "--records")

    assert ran.code == 0
    assert len(parts(ran.text, "summary")) == len(files)
    for part in parts(ran.text, "summary"):
        assert part["damages"] == 0


def test_batch_shows_all_fields_of_its_header(run: Run, tmp_path: Path) -> None:
    records = [seeklog.Record(b"a" * 500, key=b"k", timestamp_ms=MORNING_MS)]
    raw = encode_batch(records, codec=1, producer_id=7, producer_epoch=2, base_sequence=40, transactional=True)
    (tmp_path / "00000000000000000000.log").write_bytes(raw)

    (batch,) = parts(run("dump", "00000000000000000000.log").text, "batch")

    assert (batch["codec"], batch["records"], batch["size"], batch["crc_ok"]) == ("gzip", 1, len(raw), True)
    assert (batch["producer_id"], batch["producer_epoch"], batch["base_sequence"]) == (7, 2, 40)
    assert batch["is_transactional"]
    assert not batch["is_control"]
    assert isinstance(batch["ratio"], float)
    assert batch["ratio"] > 5


def test_gaps_and_late_batches_are_reported(run: Run, tmp_path: Path) -> None:
    early, late = (seeklog.Record(b"v", timestamp_ms=MORNING_MS + shift) for shift in (0, 5000))
    data = encode_batch([late]) + encode_batch([early], base_offset=10)
    (tmp_path / "00000000000000000000.log").write_bytes(data)

    ran = run("dump", "00000000000000000000.log")

    assert [(gap["from"], gap["to"]) for gap in parts(ran.text, "gap")] == [(1, 9)]
    assert [batch["late_ms"] for batch in parts(ran.text, "batch")] == [0, 5000]
    (summary,) = parts(ran.text, "summary")
    assert (summary["missing_offsets"], summary["late_batches"]) == (9, 1)


def test_dump_continues_after_damage_and_exits_with_3(run: Run, tmp_path: Path) -> None:
    path = logs_of(make_segments(tmp_path / "data"))[1]
    whole = len(parts(run("dump", path).text, "batch"))
    chance = random.Random(7)
    for _ in range(8):
        position = chance.randrange(path.stat().st_size)
        if position % 86 in range(12, 16) or position % 86 < 8:
            continue  # the epoch or the offset, which the CRC does not cover
        flip(path, position)
        ran = run("dump", path)
        flip(path, position)
        (damage,) = parts(ran.text, "damage")
        assert ran.code == 3
        assert 0 <= position - damage["position"] < damage["size"]  # type: ignore[operator]
        assert len(parts(ran.text, "batch")) == whole - 1


def test_batches_in_old_formats_are_named_and_skipped(run: Run, tmp_path: Path) -> None:
    old = struct.pack(">qiIbb", 3, 14, 0, 1, 0) + bytes(8)
    data = old + struct.pack(">qiIbb", 4, 14, 0, 0, 0) + bytes(8) + encode_batch([seeklog.Record(b"v")], base_offset=5)
    (tmp_path / "00000000000000000003.log").write_bytes(data)

    ran = run("dump", "00000000000000000003.log")

    found = [(batch["base_offset"], batch["magic"], batch["size"]) for batch in parts(ran.text, "batch")]
    assert found == [(3, 1, 26), (4, 0, 26), (5, 2, len(data) - 52)]
    assert ran.code == 0


def test_wrong_index_entry_is_named(run: Run, tmp_path: Path) -> None:
    log = logs_of(make_segments(tmp_path / "data"))[0]
    index = log.with_suffix(".index")
    assert all(entry["is_proved"] for entry in parts(run("dump", index).text, "entry"))
    flip(index, 15)

    ran = run("dump", index)

    assert ran.code == 3
    assert [entry["entry"] for entry in parts(ran.text, "entry") if not entry["is_proved"]] == [1]


def test_range_limits_the_dump(run: Run, tmp_path: Path) -> None:
    make_segments(tmp_path / "data")

    ran = run("dump", "data/orders-0", "--from", 20, "--to", 25, "--records")

    assert [record["offset"] for record in parts(ran.text, "record")] == [20, 21, 22, 23, 24]
    assert run("dump", "data/orders-0", "--from", 20, "--to", 20).code == 2


def test_hex_names_header_fields(run_on_terminal: Run, tmp_path: Path) -> None:
    log = logs_of(make_segments(tmp_path / "data"))[0]

    ran = run_on_terminal("dump", log, "--hex", "--to", 1, "--no-color")

    assert ran.code == 0
    assert "    00000010  02                        magic              2" in ran.lines
    assert any(line.endswith("order 0.") for line in ran.lines)


def test_escape_sequences_in_records_are_neutralised(run_on_terminal: Run, tmp_path: Path) -> None:
    with seeklog.Log(tmp_path / "log", background=False) as log:
        log.append(b"\x1b]0;owned\x07", key=b"\x9b2J")

    ran = run_on_terminal("dump", "log", "--records", "--hex", "--no-color")

    assert b"\x1b" not in ran.out
    assert b"\x07" not in ran.out
    assert "owned" in ran.text


def test_seals_checkpoints_epochs_and_snapshots_are_shown(run: Run, tmp_path: Path) -> None:
    make_segments(tmp_path / "data")

    ran = run("dump", "data/orders-0")

    kinds = {json.loads(line)["type"] for line in ran.lines}
    assert kinds >= {"batch", "seal", "checkpoint", "epoch", "line", "summary"}


def test_damaged_seal_is_reported(run: Run, tmp_path: Path) -> None:
    log = logs_of(make_segments(tmp_path / "data"))[0]
    flip(log.with_suffix(".seal"), 20)

    ran = run("dump", log.with_suffix(".seal"))

    assert ran.code == 3
    assert parts(ran.text, "damage")


def test_seal_of_a_segment_with_gaps_shows_its_pages(run: Run, tmp_path: Path) -> None:
    config = seeklog.LogConfig(segment_bytes=250, cleanup_policy="compact")
    with seeklog.Log(tmp_path / "log-0", config=config, background=False) as log:
        for key in (b"a", b"b", b"c", b"b", b"d", b"e", b"f"):
            log.append(b"value", key=key)
        log.flush()
        log.compact()
    seal = logs_of(tmp_path / "log-0")[0].with_suffix(".seal")

    (shown,) = parts(run("dump", seal).text, "seal")
    assert (shown["page_size"], shown["pages"]) == (16384, 1)

    flip(seal, seal.stat().st_size - 1)
    ran = run("dump", seal)
    assert ran.code == 3
    (damage,) = parts(ran.text, "damage")
    assert "page checksums" in str(damage["detail"])


def test_summary_has_one_line_per_file(run_on_terminal: Run, tmp_path: Path) -> None:
    make_segments(tmp_path / "data")

    ran = run_on_terminal("dump", "data/orders-0", "--summary", "--no-color")

    assert ran.code == 0
    assert sum("batches" in line for line in ran.lines) == 3


def test_random_bytes_are_reported_as_damage(run: Run, tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").write_bytes(random.Random(3).randbytes(5000))

    ran = run("dump", "00000000000000000000.log")

    assert ran.code == 3
    assert [part["position"] for part in parts(ran.text, "damage")] == [0]


def test_missing_file_is_reported_in_one_line(run: Run, tmp_path: Path) -> None:
    ran = run("dump", "nowhere.log")
    assert (ran.code, ran.err) == (
        4,
        "seeklog: nowhere.log does not exist; name a log file or a directory\n",
    )
    (tmp_path / "empty").mkdir()
    assert run("dump", "empty").code == 4


def test_unreadable_file_is_reported_in_one_line(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(b"x" * 100)

    ran = run("dump", path)

    assert ran.code == 1
    assert ran.err.count("\n") == 1


def test_closed_pipe_ends_the_command_quietly(tmp_path: Path) -> None:
    make_segments(tmp_path / "data", records=2000)
    command = f"'{sys.executable}' -m seeklog.cli dump data/orders-0 --records | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, cwd=tmp_path, env=surroundings(tmp_path), check=False
    )

    assert done.stderr == b""
    assert done.stdout.splitlines()[-1] == b"141"


def test_ctrl_c_ends_the_dump(run_on_terminal: Run, tmp_path: Path) -> None:
    make_segments(tmp_path / "data", records=3000)

    ran = run_on_terminal("dump", "data", "--records", "--hex", "--no-color", interrupt_after="offset 100 ")

    assert ran.code == 130
    assert "Traceback" not in ran.text
