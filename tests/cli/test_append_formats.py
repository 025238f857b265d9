"""How `append` finds the format of its input, and what it reads from Parquet and Arrow."""

from __future__ import annotations

import decimal
import json
import resource
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import seeklog
from cli.disk import bytes_of
from cli.workbench import COMMAND, MORNING_MS, TIMEOUT_S, Run, surroundings

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

MORNING = datetime(2026, 1, 1, tzinfo=UTC)


def records(path: Path) -> list[tuple[Any, ...]]:
    with seeklog.open(path, read_only=True) as store:
        return [
            (record.value, record.key, record.headers, record.timestamp_ms) for record in store.log("refunds", 0).scan()
        ]


def values(path: Path) -> list[bytes | None]:
    return [value for value, *_ in records(path)]


def ipc_file(table: Any, path: Path) -> None:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


def ipc_stream(table: Any, path: Path) -> None:
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)


WRITERS: dict[str, Callable[[Any, Path], None]] = {
    "parquet": pq.write_table,
    "arrow": ipc_file,
    "feather": ipc_file,
    "arrows": ipc_stream,
}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", b"value\nv\n"),
        ("a.CSV", b"value\nv\n"),
        ("a.jsonl", b'{"value": "v"}\n'),
        ("a.ndjson", b'{"value": "v"}\n'),
        ("a.json", b'{"value": "v"}\n'),
        ("a.txt", b"v\n"),
        ("a", b"v\n"),
    ],
)
def test_ending_of_a_text_file_chooses_the_format(
    run: Run, store: Path, tmp_path: Path, name: str, data: bytes
) -> None:
    (tmp_path / name).write_bytes(data)

    assert run("append", store, "refunds", name).code == 0
    assert values(store) == [b"v"]


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("has_ending", [True, False])
def test_parquet_and_arrow_are_read_whatever_the_file_is_called(
    run: Run, store: Path, tmp_path: Path, form: str, has_ending: bool
) -> None:
    name = f"rows.{form}" if has_ending else "rows.dat"
    WRITERS[form](pa.table({"value": [b"1", None], "key": ["a", "b"]}), tmp_path / name)

    ran = run("append", store, "refunds", name)

    assert (ran.code, ran.out) == (0, b""), ran.err
    assert [record[:2] for record in records(store)] == [(b"1", b"a"), (None, b"b")]


def test_arrow_stream_is_read_from_a_pipe(run: Run, store: Path, tmp_path: Path) -> None:
    ipc_stream(pa.table({"value": ["v"]}), tmp_path / "rows.arrows")

    assert run("append", store, "refunds", stdin=(tmp_path / "rows.arrows").read_bytes()).code == 0
    assert values(store) == [b"v"]


@pytest.mark.parametrize("chosen", ["arrow", "arrows"])
def test_both_names_of_arrow_read_files_and_streams(run: Run, store: Path, tmp_path: Path, chosen: str) -> None:
    for number, write in enumerate((ipc_file, ipc_stream)):
        write(pa.table({"value": [str(number)]}), tmp_path / "rows")
        assert run("append", store, "refunds", "rows", "--format", chosen).code == 0

    assert values(store) == [b"0", b"1"]


@pytest.mark.id("append-refuses-other-content")
@pytest.mark.parametrize(
    ("name", "arguments", "made", "message"),
    [
        ("rows.csv", [], "parquet", "rows.csv contains Parquet, not CSV; pass --format parquet"),
        ("rows.jsonl", [], "arrow", "rows.jsonl contains Arrow, not JSON lines; pass --format arrow"),
        ("rows.txt", ["--format", "lines"], "parquet", "rows.txt contains Parquet, not lines"),
        ("rows.parquet", [], "arrows", "rows.parquet contains Arrow, not Parquet"),
        ("rows.csv", ["--format", "parquet"], b"value\n1\n", "rows.csv is not Parquet: it begins with b'value\\n1\\n'"),
        ("rows.parquet", [], b"", "rows.parquet is not Parquet: it is empty"),
        ("rows.jsonl.gz", [], b"\x1f\x8b\x08\0", "rows.jsonl.gz is compressed with gzip; decompress it first"),
        ("rows.bin", [], b"a\nb\0c\n", "byte 3 of rows.bin is a NUL byte, so this is not text"),
        ("rows.csv", ["--key-sep", ","], b"a,b\n", "--key and --key-sep do not apply to CSV"),
        ("rows.parquet", ["--delimiter", ";"], "parquet", "--delimiter does not apply to Parquet"),
    ],
)
def test_input_of_another_kind_is_refused_before_anything_is_created(
    run: Run, store: Path, tmp_path: Path, name: str, arguments: list[str], made: str | bytes, message: str
) -> None:
    if isinstance(made, bytes):
        (tmp_path / name).write_bytes(made)
    else:
        WRITERS[made](pa.table({"value": ["1"] * 1000}), tmp_path / name)
    before = bytes_of(store)

    ran = run("append", store, "new-topic", name, "--create", *arguments)

    assert (ran.code, ran.out, ran.err.count("\n")) == (2, b"", 1)
    assert message in ran.err
    assert bytes_of(store) == before


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_file_with_its_index_at_the_end_is_refused_from_a_pipe(
    run: Run, store: Path, tmp_path: Path, form: str
) -> None:
    WRITERS[form](pa.table({"value": ["v"]}), tmp_path / "rows")

    ran = run("append", store, "refunds", stdin=(tmp_path / "rows").read_bytes())

    assert (ran.code, ran.out) == (2, b"")
    assert "name the file instead of a pipe" in ran.err
    assert values(store) == []


TEXT = "é"
JSON = pa.array(['{"a":1}'])
if hasattr(pa, "json_"):  # since pyarrow 19
    JSON = pa.ExtensionArray.from_storage(pa.json_(), JSON)
MICROSECOND = pa.array([MORNING_MS * 1000 + 999], pa.timestamp("us", "UTC"))


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (pa.array([b"\xff"]), b"\xff"),
        (pa.array([b"\xff"], pa.large_binary()), b"\xff"),
        (pa.array([b"ab"], pa.binary(2)), b"ab"),
        (pa.array([TEXT]), TEXT.encode()),
        (pa.array([TEXT], pa.large_string()), TEXT.encode()),
        (pa.array([TEXT]).dictionary_encode(), TEXT.encode()),
        (pa.array([None], pa.null()), None),
        (JSON, b'{"a":1}'),
        (pa.array([7]), b"7"),
        (pa.array([1.5]), b"1.5"),
        (pa.array([True]), b"true"),
        (pa.array([{"id": 7, "tags": [TEXT, None]}]), '{"id":7,"tags":["é",null]}'.encode()),
    ],
)
@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_value_of_each_type_becomes_bytes(
    run: Run, store: Path, tmp_path: Path, form: str, column: Any, found: bytes | None
) -> None:
    WRITERS[form](pa.table({"value": column}), tmp_path / f"rows.{form}")

    ran = run("append", store, "refunds", f"rows.{form}")

    assert ran.code == 0, ran.err
    assert values(store) == [found]


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (MICROSECOND, MORNING_MS),
        (MICROSECOND.cast(pa.timestamp("ns", "Europe/Berlin")), MORNING_MS),
        (pa.array([MORNING_MS // 1000], pa.timestamp("s", "UTC")), MORNING_MS),
        (pa.array([MORNING_MS], pa.timestamp("ms")), MORNING_MS),  # no zone: local, which is UTC in tests
        (pa.array([-1], pa.timestamp("ms", "UTC")), -1),
        (pa.array([MORNING_MS]), MORNING_MS),
        (pa.array(["2026-01-01T01:00:00+01:00"]), MORNING_MS),
    ],
)
def test_time_of_each_type_becomes_milliseconds(run: Run, store: Path, tmp_path: Path, column: Any, found: int) -> None:
    pq.write_table(pa.table({"value": ["v"], "timestamp": column}), tmp_path / "rows.parquet")

    ran = run("append", store, "refunds", "rows.parquet")

    assert ran.code == 0, ran.err
    assert [record[3] for record in records(store)] == [found]


def test_columns_are_named_and_the_others_ignored(run: Run, store: Path, tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": [1, 2],
            "payload": ["a", "b"],
            "at": [MORNING] * 2,
            "note": ["ignored"] * 2,
            "header.source": ["web", None],
            "value": ["also ignored"] * 2,
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet")

    named = ["--key-column", "id", "--value-column", "payload", "--time-column", "at", "--header", "h=1"]
    ran = run("append", store, "refunds", "rows.parquet", *named)

    assert ran.code == 0, ran.err
    assert records(store) == [
        (b"a", b"1", (("source", b"web"), ("h", b"1")), MORNING_MS),
        (b"b", b"2", (("h", b"1"),), MORNING_MS),
    ]


@pytest.mark.parametrize(
    ("table", "arguments", "message", "written"),
    [
        ({"key": ["k"]}, [], "rows.parquet: no column is called value; name it with --value-column. columns: key", 0),
        ({"value": ["v"], "kee": ["k"]}, [], "rows.parquet: unknown column 'kee'; did you mean key?", 0),
        ({"value": ["v"]}, ["--time-column", "at"], "rows.parquet: --time-column: there is no column 'at'", 0),
        (
            {"value": [decimal.Decimal("1.5")]},
            [],
            "rows.parquet, column value: a value cannot be of type decimal128(2, 1); cast the column",
            0,
        ),
        (
            {"value": ["v"], "at": [1.5]},
            ["--time-column", "at"],
            "rows.parquet, column at: a timestamp cannot be of type double; cast the column to a timestamp",
            0,
        ),
        ({"value": ["v"], "headers": ["x"]}, [], "rows.parquet, column headers: a headers cannot be", 0),
        (
            {"value": ["1", "2", "3"], "timestamp": ["0", "1", "noon"]},
            [],
            "rows.parquet, row 3, column timestamp: the timestamp 'noon' is not a time",
            2,
        ),
        ({"value": [1.0, float("nan")]}, [], "rows.parquet, row 2, column value: NaN and infinity have no JSON", 1),
        (
            {"value": ["v"], "timestamp": pa.array([-5], pa.timestamp("ms", "UTC"))},
            [],
            "rows.parquet, row 1, column timestamp: the timestamp is before 1970",
            0,
        ),
        (
            {"value": ["v"], "partition": [9]},
            ["--keep-partition"],
            "rows.parquet, row 1: topic 'refunds' has no partition 9",
            0,
        ),
        (
            {"value": ["1", "x" * 1_100_000]},
            [],
            "rows.parquet, row 2: the record has 1,100,000 bytes; max.message.bytes of the topic is",
            1,
        ),
    ],
)
def test_append_stops_at_an_invalid_row_and_names_it(
    run: Run, store: Path, tmp_path: Path, table: dict[str, Any], arguments: list[str], message: str, written: int
) -> None:
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")

    ran = run("append", store, "refunds", "rows.parquet", *arguments)

    assert (ran.code, ran.out, ran.err.count("\n")) == (1, b"", 1)
    assert ran.err.startswith(f"seeklog: {message}")
    were = "record before it was" if written == 1 else "records before it were"
    assert ran.err.endswith(f"; {written} {were} appended, none after it\n")
    assert len(values(store)) == written


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_truncated_file_is_reported_as_damaged(run: Run, store: Path, tmp_path: Path, form: str) -> None:
    path = tmp_path / f"rows.{form}"
    WRITERS[form](pa.table({"value": [f"{number:09}" for number in range(1000)]}), path)
    path.write_bytes(path.read_bytes()[:3000])

    ran = run("append", store, "refunds", path.name)

    assert (ran.code, ran.out, ran.err.count("\n")) == (1, b"", 1)
    assert f"rows.{form}: " in ran.err
    assert "cannot be read from its beginning: " in ran.err
    assert values(store) == []


def test_error_in_a_text_file_names_the_file(run: Run, store: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b'{"value": "1"}\n{"value": \n')

    ran = run("append", store, "refunds", "rows.jsonl")

    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert ran.err.startswith("seeklog: rows.jsonl, line 2: not JSON: ")


def test_missing_pyarrow_is_answered_with_the_extra(run: Run, store: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"value": ["v"]}), tmp_path / "rows.parquet")
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "pyarrow.py").write_text("raise ModuleNotFoundError(name='pyarrow')")
    env = {"PYTHONPATH": f"{tmp_path / 'none'}:{surroundings(tmp_path)['PYTHONPATH']}"}

    ran = run("append", store, "refunds", "rows.parquet", env=env)

    assert (ran.code, ran.out) == (2, b"")
    assert 'pip install "seeklog[arrow]"' in ran.err
    assert values(store) == []


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, form: str) -> None:
    """The values are larger than all memory that the process may use beyond that of a small file."""
    row_count, size = 40_000, 10_000
    text = "x" * size
    if form == "csv":
        with (tmp_path / "rows.csv").open("w") as file:
            file.write("value\n")
            file.writelines(f"{text}\n" for _ in range(row_count))
    else:
        schema = pa.schema([("value", pa.string())])
        batch = pa.record_batch([[text] * 1000], schema)
        opened = pq.ParquetWriter if form == "parquet" else pa.ipc.new_file
        # One row group: a dictionary stores the value once, so the file says nothing about the size of its rows.
        with opened(tmp_path / f"rows.{form}", schema) as writer:
            if form == "parquet":
                writer.write_table(pa.Table.from_batches([batch] * (row_count // 1000)), row_group_size=row_count)
            else:
                for _ in range(row_count // 1000):
                    writer.write_batch(batch)

    def limit() -> None:
        # Addresses, which libraries reserve generously; the values take 400 MB at once.
        resource.setrlimit(resource.RLIMIT_DATA, (600 << 20, 600 << 20))

    with seeklog.open(tmp_path / "data", background=False) as store:
        store.create_topic("big", config={"compression.type": "zstd"})
    done = subprocess.run(
        [*COMMAND, "append", "data", "big", f"rows.{form}"],
        capture_output=True,
        cwd=tmp_path,
        env=surroundings(tmp_path, ARROW_DEFAULT_MEMORY_POOL="system", OMP_NUM_THREADS="1"),
        preexec_fn=limit,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr.decode()
    with seeklog.open(tmp_path / "data", read_only=True) as store:
        assert store.log("big", 0).log_end_offset == row_count


def test_json_lines_of_other_programs_name_their_fields(run: Run, store: Path, tmp_path: Path) -> None:
    lines = [json.dumps({"id": number, "body": {"n": number}, "when": MORNING_MS + number}) for number in range(3)]
    (tmp_path / "events.jsonl").write_text("\n".join(lines))

    named = ["--key-column", "id", "--value-column", "body", "--time-column", "when"]
    assert run("append", store, "refunds", "events.jsonl", *named).code == 0
    assert records(store)[2] == (b'{"n":2}', b"2", (), MORNING_MS + 2)
