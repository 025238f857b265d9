from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import seeklog
from cli.workbench import MORNING_MS, Ran, Run, surroundings


def ids(ran: Ran) -> list[int]:
    assert (ran.code, ran.err) == (0, "")
    return [json.loads(json.loads(line)["value"])["id"] for line in ran.lines]


def test_output_in_a_pipe_is_json_lines(run: Run, store: Path) -> None:
    ran = run("cat", store, "orders", "-n", 1)

    assert ran.code == 0
    assert json.loads(ran.text) == {
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "key": "customer_0",
        "value": '{"id": 0, "paise": 0}',
        "headers": [{"key": "source", "value": "app"}],
    }


def test_output_on_a_terminal_is_a_table(run_on_terminal: Run, store: Path) -> None:
    ran = run_on_terminal("cat", store, "orders", "-n", 2, "--by-time", "--no-color")

    assert ran.code == 0
    assert ran.lines == [
        "PARTITION  OFFSET  TIME                      KEY         HEADERS     VALUE",
        '        0       0  2026-01-01T00:00:00.000Z  customer_0  source=app  {"id": 0, "paise": 0}',
        '        1       0  2026-01-01T00:01:00.000Z  customer_1  source=web  {"id": 1, "paise": 100}',
    ]


def test_partitions_are_read_in_turn_or_merged_by_time(run: Run, store: Path) -> None:
    assert ids(run("cat", store, "orders")) == [*range(0, 20, 2), *range(1, 20, 2)]
    assert ids(run("cat", store, "orders", "--by-time")) == list(range(20))


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--partition", 1, "--from", 8], [17, 19]),
        (["--from", -1], [18, 19]),
        (["--from", "end"], []),
        (["--from", "start", "--to", 1], [0, 1]),
        (["--to", 1_000_000, "--from", -1], [18, 19]),
        (["--from", "@2026-01-01T00:18"], [18, 19]),
        (["--from", "@2026-01-01T00:03", "--to", "@2026-01-01T00:05"], [4, 3]),
        (["--from", "0:9", "--from", "1:8", "--to", "1:9"], [18, 17]),
        (["--from", "@2030-01-01"], []),
        (["--from", 5, "--to", 2], []),
        (["-n", 0], []),
        (["--by-time", "-n", 3, "--from", 1], [2, 3, 4]),
        (["--key", "customer_4", "--partition", 0], [4, 14]),
        (["--header", "source=app", "--partition", 1], [3, 9, 15]),
        (["--grep", r'"id": 1[01]\b'], [10, 11]),
        (["--where", "value.paise >= 1700 and headers.source = 'web'"], [17, 19]),
        (["--where", "value.id < 4", "--where", "partition = 1"], [1, 3]),
        (["--where", "timestamp >= '2026-01-01T00:19'"], [19]),
    ],
)
def test_ranges_and_filters_select_records(run: Run, store: Path, arguments: list[Any], found: list[int]) -> None:
    assert ids(run("cat", store, "orders", *arguments)) == found


def test_offset_that_only_some_partitions_have_is_accepted(run: Run, store: Path) -> None:
    with seeklog.open(store, background=False) as made, made.writer("orders", 1) as log:
        log.append(b'{"id": 20}')

    assert ids(run("cat", store, "orders", "--from", 10)) == [20]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["order"], 4, "there is no topic 'order' in {store}; did you mean 'orders'?"),
        (["orders", "--partition", 7], 4, "topic 'orders' has no partition 7; its partitions: 0, 1"),
        (["orders", "--from", 100], 4, "orders-0: offset 100 is out of range: valid offsets are 0 to 9"),
        (["orders", "--from", "1:100"], 4, "orders-1: offset 100 is out of range: valid offsets are 0 to 9"),
        (["orders", "--from", "soon"], 2, "'soon' is not a point in a log; write an offset, -N, start, end or @TIME"),
        (["orders", "--from", "@noon"], 2, "@noon is not a time"),
        (["orders", "--from", 1, "--from", 2], 2, "--from 2 is given twice"),
        (["orders", "--from", "7:0"], 2, "--from 7:… names a partition that is not selected"),
        (["orders", "--where", "value.id ="], 2, "--where: column 11: expected a name or a value, found the end"),
        (["orders", "--grep", "("], 2, "--grep '(': column 1: missing ), unterminated subpattern"),
        (["orders", "--header", "source"], 2, "--header 'source' is not NAME=VALUE"),
        (["orders", "-t", "%q"], 2, "-t: %q at column 1"),
        (["orders", "-t", "refunds"], 2, "-t 'refunds' names no field of a record, such as %v"),
        (["orders", "-f", "--to", 5], 2, "--to ends the range, and -f does not end"),
        (["orders", "-f", "--format", "json"], 2, "use --format jsonl"),
        (["orders", "-t", "%o", "--json"], 2, "a template replaces"),
        (["orders", "--format", "csv", "--json"], 2, "--json and --format csv conflict"),
        (["orders", "--format", "xml"], 2, "'xml' is not one of"),
        (["or/ders"], 2, "or/ders"),
    ],
)
def test_invalid_call_is_reported_in_one_line(
    run: Run, store: Path, arguments: list[Any], code: int, message: str
) -> None:
    ran = run("cat", store, *arguments)

    assert (ran.code, ran.out, ran.err.count("\n")) == (code, b"", 1)
    assert ran.err.startswith("seeklog: ")
    assert message.format(store=store) in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["cat", "-f", "%o %k\\n", "{store}", "orders"],
        ["cat", "{store}", "orders", "-f", "%o %k\\n"],
        ["cat", "{store}", "orders", "-f%o %k\\n"],
        ["cat", "{store}", "%o %k\\n"],
        ["tail", "-f", "%o %k\\n", "{store}", "orders"],
        ["key", "{store}", "orders", "customer_1", "-f", "%o %k\\n"],
    ],
)
def test_template_in_kcats_place_is_answered_with_the_option(run: Run, store: Path, arguments: list[str]) -> None:
    ran = run(*[word.format(store=store) for word in arguments])

    assert (ran.code, ran.out, ran.err.count("\n")) == (2, b"", 1)
    assert ran.err.startswith("seeklog: '%o %k\\\\n' is a template")
    assert "here the option is -t: -t '%o %k\\n'" in ran.err


def test_template_after_f_is_answered_when_the_directory_is_preset(run: Run, store: Path) -> None:
    ran = run("cat", "orders", "-f", "%o %k", env={"SEEKLOG_DIR": str(store)})

    assert (ran.code, ran.out) == (2, b"")
    assert "here the option is -t: -t '%o %k'" in ran.err


def test_key_that_looks_like_a_template_is_a_key(run: Run, store: Path) -> None:
    ran = run("key", store, "orders", "%s")

    assert ran.code == 4
    assert 'has the key "%s"' in ran.err


def test_missing_directory_is_not_created(run: Run, tmp_path: Path) -> None:
    ran = run("cat", "nowhere", "orders")

    assert (ran.code, ran.out) == (4, b"")
    assert "there is no store at nowhere" in ran.err
    assert not (tmp_path / "nowhere").exists()


def test_reading_changes_nothing_on_disk(run: Run, store: Path) -> None:
    def look() -> dict[Path, tuple[int, bytes]]:
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in store.rglob("*") if path.is_file()}

    before = look()
    assert run("cat", store, "orders").code == 0
    assert run("tail", store, "orders").code == 0

    assert look() == before


def test_damage_is_reported_after_the_intact_records(run: Run, store: Path) -> None:
    log = store / "orders-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 0xFF
    log.write_bytes(data)

    ran = run("cat", store, "orders", "--partition", 0)

    assert (ran.code, ran.err.count("\n")) == (3, 1)
    assert f"{log}, byte " in ran.err
    assert len(ran.lines) <= 9


def test_csv_has_the_expected_columns(run: Run, store: Path) -> None:
    ran = run("cat", store, "orders", "--format", "csv", "-n", 1)

    assert list(csv.reader(io.StringIO(ran.text))) == [
        ["partition", "offset", "timestamp", "key", "value", "headers", "encoding"],
        [
            "0",
            "0",
            "2026-01-01T00:00:00.000Z",
            "customer_0",
            '{"id": 0, "paise": 0}',
            '[{"key": "source", "value": "app"}]',
            "",
        ],
    ]


def test_json_is_one_list(run: Run, store: Path) -> None:
    assert [each["offset"] for each in json.loads(run("cat", store, "orders", "--format", "json", "--to", 2).text)] == [
        0,
        1,
        0,
        1,
    ]
    assert json.loads(run("cat", store, "refunds", "--format", "json").text) == []


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A store whose records contain escape sequences."""
    path = tmp_path / "hostile"
    with seeklog.open(path, background=False) as made:
        made.create_topic("odd", partitions=1)
        with made.writer("odd", 0) as log:
            log.append(
                b"\x1b[2J\xff\r\n", key=b"\x1b]0;x\x07", headers=[("\x1b[31m", b"\x9b")], timestamp_ms=MORNING_MS
            )
            log.append(None, timestamp_ms=MORNING_MS)
    return path


def test_raw_values_reach_a_pipe_unchanged(run: Run, hostile: Path) -> None:
    assert run("cat", hostile, "odd", "--format", "raw").out == b"\x1b[2J\xff\r\n\n\n"
    assert run("cat", hostile, "odd", "-n", 1, "-t", "%k|%v").out == b"\x1b]0;x\x07|\x1b[2J\xff\r\n"


@pytest.mark.parametrize("arguments", [["--format", name] for name in ("table", "jsonl", "json", "csv", "raw", "hex")])
def test_escape_sequences_in_records_are_neutralised(run_on_terminal: Run, hostile: Path, arguments: list[str]) -> None:
    ran = run_on_terminal("cat", hostile, "odd", "--no-color", *arguments)

    assert ran.code == 0
    assert b"\x1b" not in ran.out
    assert b"\x07" not in ran.out
    assert b"\x9b" not in ran.out


def test_template_on_a_terminal_escapes_record_data(run_on_terminal: Run, hostile: Path) -> None:
    assert (
        run_on_terminal("cat", hostile, "odd", "-t", "%k %v\\n", "-n", 1).out == b"\\x1b]0;x\\x07 \\x1b[2J\\xff\\r\\n\n"
    )


def test_hex_shows_every_byte(run: Run, hostile: Path) -> None:
    ran = run("cat", hostile, "odd", "--format", "hex")

    assert ran.lines == [
        "odd-0 offset 0, 2026-01-01T00:00:00.000Z",
        "  key: 6 bytes",
        "    00000000  1b 5d 30 3b 78 07                                 |.]0;x.|",
        "  value: 7 bytes",
        "    00000000  1b 5b 32 4a ff 0d 0a                              |.[2J...|",
        "  header \\x1b[31m: 1 byte",
        "    00000000  9b                                                |.|",
        "odd-0 offset 1, 2026-01-01T00:00:00.000Z",
        "  key: null",
        "  value: null",
    ]


def test_long_value_is_cut_to_the_width_of_the_terminal(run_on_terminal: Run, tmp_path: Path) -> None:
    with seeklog.open(tmp_path / "wide", background=False) as made:
        made.create_topic("wide", partitions=1)
        with made.writer("wide", 0) as log:
            log.append("日本語".encode() * 100, key=b"k" * 200, timestamp_ms=MORNING_MS)

    lines = run_on_terminal("cat", "wide", "wide", "--no-color").lines

    assert lines[1].endswith("…")
    assert "k" * 31 + "…" in lines[1]
    assert max(map(len, lines)) <= 120


def test_closed_pipe_ends_the_command_quietly(tmp_path: Path) -> None:
    with seeklog.open(tmp_path / "big", background=False) as made:
        made.create_topic("big", partitions=1)
        with made.writer("big", 0) as log:
            for _ in range(20):
                log.append_many([seeklog.Record(b"x" * 1000) for _ in range(500)])
    command = f"'{sys.executable}' -m seeklog.cli cat big big | head -n 1; echo ${{PIPESTATUS[0]}}"

    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, cwd=tmp_path, env=surroundings(tmp_path), check=False
    )

    assert done.stderr == b""
    assert done.stdout.splitlines()[-1] == b"141"


def test_archive_is_read_like_a_store(run: Run, store: Path, tmp_path: Path) -> None:
    with seeklog.open(store, background=False, config={"segment.ms": 1}) as made:
        made.maintain()
        made.archive(tmp_path / "cold")

    ran = run("cat", f"file://{tmp_path / 'cold'}", "orders", "-n", 1)

    assert ran.code == 0, ran.err


def test_log_open_in_another_process_is_read(run: Run, store: Path) -> None:
    with seeklog.open(store, background=False) as made, made.writer("orders", 0):
        assert len(run("cat", store, "orders").lines) == 20
