from __future__ import annotations

import csv
import io
import json
import resource
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import seeklog
from cli.workbench import COMMAND, TIMEOUT_S, Run, surroundings


def test_parquet_has_the_columns_of_sparks_kafka_source(run: Run, store: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")

    ran = run("export", store, "orders", "-o", "orders.parquet")

    assert (ran.code, ran.out) == (0, b"")
    assert ran.err.startswith("wrote 20 records of orders to orders.parquet (")
    table = parquet.read_table(tmp_path / "orders.parquet")
    assert table.column_names == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ]
    assert [json.loads(value)["id"] for value in table["value"].to_pylist()] == [*range(0, 20, 2), *range(1, 20, 2)]
    first = table.slice(0, 1).to_pylist()[0]
    assert first["timestamp"].isoformat() == "2026-01-01T00:00:00+00:00"
    assert (first["topic"], first["partition"], first["offset"]) == ("orders", 0, 0)
    assert first["headers"] == [{"key": "source", "value": b"app"}]


def test_json_lines_are_the_same_as_those_of_cat(run: Run, store: Path, tmp_path: Path) -> None:
    run("export", store, "orders", "-o", "orders.jsonl")

    assert (tmp_path / "orders.jsonl").read_bytes() == run("cat", store, "orders").out


def test_range_of_one_partition_is_exported_as_csv(run: Run, store: Path, tmp_path: Path) -> None:
    ran = run("export", store, "orders", "-o", "data.txt", "--format", "csv", "-p", 1, "--from", 2, "--to", 4)

    assert ran.code == 0
    found = list(csv.DictReader(io.StringIO((tmp_path / "data.txt").read_text())))
    assert [(row["partition"], row["offset"]) for row in found] == [("1", "2"), ("1", "3")]


def test_empty_topic_yields_a_file_without_rows(run: Run, store: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")

    run("export", store, "refunds", "-o", "refunds.parquet")

    assert parquet.read_table(tmp_path / "refunds.parquet").num_rows == 0


def test_only_header_keys_that_are_not_text_add_a_column(run: Run, store: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    with seeklog.open(store, background=False) as made, made.writer("refunds", 0) as log:
        log.append(b"plain", headers=[("a", b"1")])
        log.append(b"odd", headers=[("a", b"1"), ("\udcff", b"2")])

    run("export", store, "refunds", "-o", "odd.parquet")
    run("export", store, "refunds", "-o", "plain.parquet", "--to", 1)

    assert parquet.read_table(tmp_path / "odd.parquet")["header_keys"].to_pylist() == [None, [b"a", b"\xff"]]
    assert "header_keys" not in parquet.read_table(tmp_path / "plain.parquet").column_names


def test_existing_file_is_replaced_only_with_force(run: Run, store: Path, tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("mine")

    ran = run("export", store, "orders", "-o", "orders.csv")

    assert (ran.code, ran.err) == (2, "seeklog: orders.csv already exists; pass --force to replace it\n")
    assert (tmp_path / "orders.csv").read_text() == "mine"
    assert run("export", store, "orders", "-o", "orders.csv", "--force").code == 0
    assert (tmp_path / "orders.csv").read_text().startswith("partition,offset,")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["orders", "-o", "orders.xls"], 2, "pass --format: parquet, csv, jsonl, arrow, arrows"),
        (["orders"], 2, "Missing option '--output'"),
        (["order", "-o", "x.csv"], 4, "did you mean 'orders'?"),
        (["orders", "-o", "x.csv", "--from", 99], 4, "offset 99 is out of range"),
        (["orders", "-o", "x.csv", "--to", "@soon"], 2, "@soon is not a time"),
        (["orders", "-o", "nowhere/x.csv"], 4, "No such file or directory"),
        (["orders", "-o", ".", "--format", "csv"], 2, ". is a directory; name a file"),
    ],
)
def test_invalid_call_is_one_line_and_leaves_no_file(
    run: Run, store: Path, tmp_path: Path, arguments: list[Any], code: int, message: str
) -> None:
    ran = run("export", store, *arguments)

    assert (ran.code, ran.out, ran.err.count("\n")) == (code, b"", 1)
    assert message in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.id("export-meets-damage")
@pytest.mark.parametrize("name", ["orders.parquet", "orders.csv"])
def test_damage_leaves_no_file(run: Run, store: Path, tmp_path: Path, name: str) -> None:
    log = store / "orders-1" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 0xFF
    log.write_bytes(data)

    ran = run("export", store, "orders", "-o", name)

    assert (ran.code, ran.err.count("\n")) == (3, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.id("export-without-room")
@pytest.mark.parametrize("name", ["big.parquet", "big.jsonl"])
def test_full_disk_leaves_no_file(tmp_path: Path, name: str) -> None:
    import os

    with seeklog.open(tmp_path / "data", background=False) as made:
        made.create_topic("big", partitions=1)
        with made.writer("big", 0) as log:
            log.append_many([seeklog.Record(os.urandom(500)) for _ in range(1000)])

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = subprocess.run(
        [*COMMAND, "export", "data", "big", "-o", name],
        capture_output=True,
        cwd=tmp_path,
        env=surroundings(tmp_path),
        preexec_fn=limit,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr.decode().count("\n") == 1
    assert "File too large" in done.stderr.decode()
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_export_to_stdout_is_refused(run: Run, store: Path, tmp_path: Path) -> None:
    ran = run("export", store, "orders", "-o", "-", "--format", "jsonl")

    assert (ran.code, ran.out) == (2, b"")
    assert "seeklog cat" in ran.err
    assert not (tmp_path / "-").exists()


def test_missing_output_directory_is_named(run: Run, store: Path) -> None:
    ran = run("export", store, "orders", "-o", "nowhere/orders.csv")

    assert (ran.code, ran.err) == (4, "seeklog: nowhere: No such file or directory; check the spelling\n")
